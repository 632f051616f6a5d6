"""Our own webhooks, asked by both API servers: they mutate, validate, warn and refuse."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import steersman as sm
from steersman.crd import crd_manifest
from steersman.kube.api.errors import Invalid, KubeError
from steersman.kube.api.gvk import Kind
from steersman.kube.api.objects import ObjectMeta, Resource, Struct, to_wire
from steersman.runtime.webhook.admission import AdmissionRequest, Denied, default, mutate, validate
from steersman.runtime.webhook.certificate_source import CONFIGURATIONS, ManagedCertificates, MountedCertificates
from steersman.testing import eventually, serving_webhooks
from tests.support.manifests import Space


class GadgetSpec(Struct):
    size: int
    colour: str = ""
    owner: str | None = None


class Gadget(Resource, group="webhooks.example.org", version="v1"):
    spec: GadgetSpec


@validate(Gadget, operations=("CREATE", "UPDATE", "DELETE"))
async def reasonable(request: AdmissionRequest[Gadget]):
    if request.operation == "DELETE":
        return ["goodbye"]
    if request.object.spec.size > 100:
        raise Denied("100 is enough for everybody", field="spec.size")
    if request.object.spec.size == 13:
        raise RuntimeError("unlucky")
    return None


@mutate(Gadget, operations=("CREATE",))
async def painted(request: AdmissionRequest[Gadget]):
    if not request.object.spec.colour:
        request.object.spec.colour = "red"
    return request.object


GADGETS = Kind(group="webhooks.example.org", version="v1", kind="Gadget", plural="gadgets")


@default(Gadget)
def owned(obj: Gadget) -> None:
    assert threading.current_thread() is not threading.main_thread()
    if obj.spec.owner is None:
        obj.spec.owner = "nobody"


@mutate(GADGETS, object_selector="audited in (yes, always)")
def audited(request: AdmissionRequest[dict[str, Any]]) -> None:
    request.warn(f"{request.user.username} is recorded")
    request.object["metadata"]["annotations"] = {"author": request.user.username}


@validate(GADGETS, match_conditions={"updates": "request.operation == 'UPDATE'", "large": "object.spec.size > 50"})
def frozen(request: AdmissionRequest[dict[str, Any]]) -> None:
    request.warn("large gadgets are frozen")
    raise Denied("may not change", code=403)


HOOKS = [reasonable, painted, owned, audited, frozen]


@pytest.fixture
async def served(cluster, client, namespace):
    """The webhooks, known to the API server."""
    await client.apply(crd_manifest(Gadget))
    await eventually(lambda: client.create(gadget("probe", namespace, 1), dry_run=True))
    async with serving_webhooks(client, *HOOKS, namespace=namespace) as server:
        yield server


def gadget(name: str, namespace: str, size: int) -> Gadget:
    return Gadget(metadata=ObjectMeta(name=name, namespace=namespace), spec=GadgetSpec(size=size))


async def test_the_api_server_asks_and_obeys(served, client, namespace):
    made = await client.create(gadget("small", namespace, 5))
    assert made.spec.colour == "red"
    with pytest.raises(Invalid, match=r"spec\.size: 100 is enough for everybody"):
        await client.create(gadget("large", namespace, 101))
    with pytest.raises(KubeError, match="its log says why"):
        await client.create(gadget("unlucky", namespace, 13))
    await client.create(gadget("after", namespace, 6))


async def test_a_warning_of_a_validator_reaches_the_client(served, client, api, namespace):
    await client.create(gadget("short-lived", namespace, 1))
    path = Space(namespace).at("webhooks.example.org/v1", "gadgets/short-lived")
    assert (await api.delete(path)).warnings == ("goodbye",)


async def test_a_defaulter_that_is_a_plain_function_sets_what_is_missing(served, client, namespace):
    assert (await client.create(gadget("found", namespace, 1))).spec.owner == "nobody"
    kept = gadget("kept", namespace, 1)
    kept.spec.owner = "ann"
    assert (await client.create(kept)).spec.owner == "ann"


async def test_only_objects_that_the_selector_matches_reach_an_untyped_mutator_which_warns(
    served, client, api, namespace
):
    made = {}
    for name, labels in (("plain", {}), ("seen", {"audited": "yes"})):
        body = to_wire(gadget(name, namespace, 1))
        body["metadata"]["labels"] = labels
        made[name] = await api.post(Space(namespace).at("webhooks.example.org/v1", "gadgets"), body)
    assert {name: "author" in (answer.body["metadata"].get("annotations") or {}) for name, answer in made.items()} == {
        "plain": False,
        "seen": True,
    }
    assert made["plain"].warnings == ()
    assert [warning.partition(" ")[2] for warning in made["seen"].warnings] == ["is recorded"]


async def test_match_conditions_decide_who_is_asked_and_a_denial_carries_warnings(served, client, api, namespace):
    await client.create(gadget("small", namespace, 49))
    await client.create(gadget("large", namespace, 51))
    change = {"spec": {"colour": "blue"}}
    at = Space(namespace).at("webhooks.example.org/v1", "gadgets")
    assert (await api.patch(f"{at}/small", change)).status == 200
    refused = await api.patch(f"{at}/large", change)
    assert (refused.status, refused.warnings) == (403, ("large gadgets are frozen",))


async def test_other_namespaces_than_the_selected_ones_are_not_asked_about(served, client, namespace):
    assert (await client.create(gadget("elsewhere", "default", 101), dry_run=True)).spec.colour == ""


async def test_a_second_replica_serves_with_the_same_certificate(cluster, client, namespace):
    one, two = (ManagedCertificates(client, namespace=namespace, secret="hooks", names=["127.0.0.1"]) for _ in range(2))
    assert await one.load() == await two.load()
    assert await two.load() is None  # nothing new


async def test_webhooks_in_a_test_are_asked_about_its_namespace_and_leave_nothing_behind(cluster, client, namespace):
    @validate(sm.Kind(version="v1", kind="ConfigMap", plural="configmaps"), namespace_selector="!ignored")
    def refusing(request: AdmissionRequest[dict[str, Any]]) -> None:
        raise Denied("no")

    async def create(name: str) -> Any:
        return await client.create(sm.ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace)))

    async def configurations() -> list[Any]:
        return [[item["metadata"]["name"] for item in (await client.list(kind)).items] for kind in CONFIGURATIONS]

    before = await configurations()
    async with serving_webhooks(client, refusing, namespace=namespace):
        with pytest.raises(Invalid, match="no"):
            await create("a")
        await client.create(sm.ConfigMap(metadata=ObjectMeta(name="a", namespace="default")), dry_run=True)
    assert await configurations() == before
    assert not (await client.list(sm.Secret, namespace=namespace)).items
    await eventually(lambda: create("a"))


async def test_the_fixture_serves_several_webhooks(cluster, client, namespace, steersman_webhooks):
    await client.apply(crd_manifest(Gadget))
    await eventually(lambda: client.create(gadget("probe", namespace, 1), dry_run=True))
    await steersman_webhooks(reasonable)
    await steersman_webhooks(painted, owned)
    made = await client.create(gadget("small", namespace, 5))
    assert (made.spec.colour, made.spec.owner) == ("red", "nobody")
    with pytest.raises(Invalid):
        await client.create(gadget("large", namespace, 101))


async def test_two_webhooks_of_one_name_in_a_test_are_an_error_at_once(embedded, client, namespace):
    with pytest.raises(sm.ConfigError, match="rename one function"):
        async with serving_webhooks(client, reasonable, reasonable, namespace=namespace):
            pass


async def test_mounted_certificates_are_read_again_when_they_change(tmp_path):
    (tmp_path / "tls.crt").write_bytes(b"one")
    (tmp_path / "tls.key").write_bytes(b"key")
    source = MountedCertificates(tmp_path)
    assert (await source.load()).certificate == b"one"
    assert await source.load() is None
    (tmp_path / "tls.crt").unlink()
    assert await source.load() is None
    (tmp_path / "tls.crt").write_bytes(b"two")
    assert (await source.load()).certificate == b"two"
