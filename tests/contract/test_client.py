"""The client against both API servers: what its tests on scripted answers assume is what servers do."""

from __future__ import annotations

import asyncio

import pytest

from steersman.kube import (
    AlreadyExists,
    BadRequest,
    Client,
    Conflict,
    DecodeFailure,
    Invalid,
    NotFound,
    PartialObjectMetadata,
    PatchType,
    ResourceExpired,
    Selector,
    Timeout,
    Unauthorized,
    load_config,
)
from steersman.kube.api.objects import ObjectMeta, Resource, Struct
from steersman.kube.api.types import Deployment


class ConfigMap(Resource, version="v1"):
    data: dict[str, str] | None = None


class Strict(Resource, version="v1", kind="ConfigMap"):
    data: dict[str, str]  # a ConfigMap without data does not fit, on purpose


class Container(Struct):
    name: str
    image: str = ""


class PodSpec(Struct):
    containers: list[Container]


class Template(Struct):
    spec: PodSpec


class Spec(Struct):
    template: Template
    replicas: int = 1


class Workload(Resource, group="apps", version="v1", kind="Deployment"):
    spec: Spec  # a small part of a Deployment


@pytest.fixture
async def client(cluster, ns, tmp_path):
    cluster.write_kubeconfig(tmp_path / "kubeconfig")
    async with Client.connect(load_config(tmp_path / "kubeconfig"), field_manager="contract") as connected:
        connected.namespace = ns
        yield connected


def configmap(name, *, labels=None, **data):
    return ConfigMap(metadata=ObjectMeta(name=name, labels=labels), data=data or None)


def deployment(name="web", **spec):
    pod = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "app", "image": "app:1", "ports": [{"containerPort": 80}]}]},
    }
    body = {"selector": {"matchLabels": {"app": name}}, "template": pod, **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": body}


async def test_an_object_lives_and_dies(client, ns):
    made = await client.create(configmap("a", k="1"))
    assert (made.namespace, made.data) == (ns, {"k": "1"})
    with pytest.raises(AlreadyExists):
        await client.create(configmap("a"))
    patched = await client.patch(ConfigMap, "a", {"data": {"k": "2"}})
    assert patched.data == {"k": "2"}
    with pytest.raises(Conflict):
        await client.replace(made)
    patched.data = {"k": "3"}
    assert (await client.replace(patched)).data == {"k": "3"}
    operations = [{"op": "replace", "path": "/data/k", "value": "4"}]
    assert (await client.patch(ConfigMap, "a", operations, type=PatchType.JSON)).data == {"k": "4"}
    with pytest.raises(Conflict):
        await client.delete(ConfigMap, "a", uid="another")
    assert await client.delete(ConfigMap, "a", uid=made.metadata.uid) is None
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "a")


async def test_a_dry_run_changes_nothing(client):
    await client.create(configmap("a"), dry_run=True)
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "a")


async def test_an_object_with_a_finalizer_stays_and_says_so(client):
    obj = configmap("a")
    obj.metadata.finalizers = ["example.org/wait"]
    await client.create(obj)
    left = await client.delete(ConfigMap, "a")
    assert left is not None
    assert left.metadata.deletion_timestamp
    await client.update_with_retry(ConfigMap, "a", lambda found: setattr(found.metadata, "finalizers", None))
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "a")


async def test_an_invalid_object_says_which_field(client):
    with pytest.raises(Invalid) as raised:
        await client.create(configmap("Not_A_Name"))
    assert [cause.field for cause in raised.value.causes] == ["metadata.name"]


async def test_lists_are_read_over_all_pages_in_every_shape(client, ns):
    for number in range(5):
        await client.create(configmap(f"c{number}", labels={"suite": "client", "even": str(number % 2 == 0)}, k="v"))
    options = {"namespace": ns, "label_selector": "suite=client", "limit": 2}
    names = [f"c{number}" for number in range(5)]
    assert [item.name for item in (await client.list(ConfigMap, **options)).items] == names
    assert [item["kind"] for item in (await client.list(ConfigMap.KIND, **options)).items] == ["ConfigMap"] * 5
    slim = await client.list(ConfigMap, into=PartialObjectMetadata, **options)
    assert [item.name for item in slim.items] == names
    pages = [page async for page in client.pages(ConfigMap, **options)]
    assert [len(page.items) for page in pages] == [2, 2, 1]
    none = await client.list(ConfigMap, namespace=ns, label_selector=Selector.NOTHING)
    assert none.items == []
    await client.delete_collection(ConfigMap, label_selector="suite=client,even=True")
    assert [item.name for item in (await client.list(ConfigMap, **options)).items] == ["c1", "c3"]


async def test_a_watch_gives_every_change_from_a_resource_version_on(client, ns):
    start = (await client.list(Strict, namespace=ns)).resource_version
    await client.create(configmap("a", k="1"))
    await client.create(configmap("empty"))
    await client.patch(ConfigMap, "a", {"data": {"k": "2"}})
    await client.delete(ConfigMap, "a")
    async with client.watch(Strict, namespace=ns, resource_version=start, timeout_seconds=30) as events:
        seen = [await asyncio.wait_for(anext(events), 90) for _ in range(4)]
    assert [event.type for event in seen] == ["ADDED", "ADDED", "MODIFIED", "DELETED"]
    assert isinstance(seen[1].object, DecodeFailure)
    assert seen[1].object.metadata.name == "empty"
    assert [seen[at].object.data for at in (0, 2, 3)] == [{"k": "1"}, {"k": "2"}, {"k": "2"}]


@pytest.mark.parametrize("into", [None, dict, PartialObjectMetadata])
async def test_a_streamed_list_ends_with_its_bookmark(client, ns, into):
    await client.create(configmap("a", k="1"))
    options = {"namespace": ns, "field_selector": "metadata.name=a", "timeout_seconds": 30}
    async with client.watch(ConfigMap, send_initial_events=True, into=into, **options) as events:
        first = await asyncio.wait_for(anext(events), 90)
        last = await asyncio.wait_for(anext(events), 90)
    assert (first.type, last.type, last.initial_events_end) == ("ADDED", "BOOKMARK", True)


async def test_a_watch_ends_when_it_was_asked_to(client, ns):
    options = {"namespace": ns, "field_selector": "metadata.name=missing", "timeout_seconds": 1}
    async with client.watch(ConfigMap, **options) as events:
        assert [event async for event in events if event.type != "BOOKMARK"] == []


async def test_a_resource_version_of_the_future_is_refused_at_once(client):
    with pytest.raises(Timeout) as raised:
        await client.list(ConfigMap, resource_version="999999999", resource_version_match="NotOlderThan")
    assert [cause.reason for cause in raised.value.causes] == ["ResourceVersionTooLarge"]


async def test_a_continue_token_that_means_nothing_is_refused(client):
    with pytest.raises((BadRequest, ResourceExpired)):
        await client.transport.request("GET", ConfigMap.KIND.path(), params={"limit": "1", "continue": "nonsense"})


async def test_modify_keeps_what_the_struct_does_not_name(client):
    await client.create(deployment())

    def upgrade(workload):
        workload.spec.template.spec.containers[0].image = "app:2"

    changed = await client.update_with_retry(Workload, "web", upgrade)
    again = await client.update_with_retry(Workload, "web", upgrade)
    assert again.metadata.resource_version == changed.metadata.resource_version  # nothing differed, nothing written
    whole = await client.get(Workload, "web", into=dict)
    container = whole["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "app:2"
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert whole["spec"]["selector"] == {"matchLabels": {"app": "web"}}


async def test_two_who_modify_at_once_both_get_through(client):
    await client.create(configmap("a"))

    def add(key):
        return lambda found: setattr(found, "data", {**(found.data or {}), key: "1"})

    await asyncio.gather(*(client.update_with_retry(ConfigMap, "a", add(key)) for key in "xyz"))
    assert (await client.get(ConfigMap, "a")).data == {"x": "1", "y": "1", "z": "1"}


async def test_apply_owns_its_fields_and_says_who_owns_others(client):
    await client.apply(deployment(replicas=2))
    with pytest.raises(Conflict) as raised:
        await client.apply(deployment(replicas=3), field_manager="other")
    assert [cause.field for cause in raised.value.causes] == [".spec.replicas"]
    forced = await client.apply(deployment(replicas=3), field_manager="other", force=True)
    assert forced["spec"]["replicas"] == 3


async def test_scale_is_read_and_set(client):
    await client.create(deployment(replicas=2))
    assert (await client.scale(Deployment, "web")).spec.replicas == 2
    assert (await client.scale(Deployment, "web", 4)).spec.replicas == 4
    assert (await client.get(Workload, "web")).spec.replicas == 4


async def test_a_service_account_gets_a_token_and_an_administrator_may_do_anything(client):
    await client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "builder"}})
    assert (await client.create_token("builder", expiration_seconds=600)).token
    assert await client.can_i("delete", Deployment)


async def test_discovery_knows_the_kinds_and_their_names(client):
    served = {found.kind.qualified: found for found in await client.api_resources()}
    deployments = served["deployments.apps"]
    assert deployments.kind == Deployment.KIND
    assert "deploy" in deployments.short_names
    assert {"scale", "status"} <= set(deployments.subresources)
    assert {"get", "list", "watch", "patch"} <= deployments.verbs
    assert not served["namespaces"].kind.namespaced
    assert str(await client.server_version()).startswith("v1.")
    assert "apis/apps/v1" in (await client.openapi())["paths"]


async def test_a_wrong_token_is_refused_with_the_way_out(cluster, tmp_path):
    text = cluster.kubeconfig().replace(cluster.token, "wrong")
    (tmp_path / "kubeconfig").write_text(text)
    async with Client.connect(load_config(tmp_path / "kubeconfig")) as stranger:
        with pytest.raises(Unauthorized, match=r"get a new one and put it in the user's token \(.*kubeconfig\)"):
            await stranger.list(ConfigMap)
