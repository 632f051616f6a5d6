"""Versions of a kind as Python types: written in one, read, listed and watched in the other, on both API servers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import steersman as sm
from steersman.crd import crd_manifest, crd_name
from steersman.kube.api.errors import KubeError
from steersman.runtime.webhook.certificate_source import DEFINITIONS
from steersman.testing import eventually
from tests.contract.conftest import WORKER

GROUP = f"versions-{WORKER}.example.org"


class Rope(sm.Resource, group=GROUP, version="v2"):
    """The hub: a length with its unit."""

    class Spec(sm.Struct):
        length: str
        colour: str | None = None

    class Status(sm.Struct):
        cuts: int = 0

    spec: Spec
    status: Status = Status()


class RopeV1(sm.Resource, group=GROUP, version="v1", kind="Rope", hub=Rope):
    """A spoke: a length in centimetres. The colour is kept in an annotation."""

    class Spec(sm.Struct):
        size: int

    spec: Spec
    status: Rope.Status = Rope.Status()

    def convert_to(self) -> Rope:
        annotations = dict(self.annotations)
        colour = annotations.pop("colour", None)
        hub = Rope(metadata=self.metadata, spec=Rope.Spec(length=f"{self.spec.size}cm"), status=self.status)
        if colour is not None:
            hub.spec.colour = colour
        hub.metadata.annotations = annotations or None
        return hub

    @classmethod
    def convert_from(cls, hub: Rope) -> RopeV1:
        if not hub.spec.length.endswith("cm"):
            raise ValueError(f'spec.length: "{hub.spec.length}" has no value in cm')
        spoke = cls(spec=cls.Spec(size=int(hub.spec.length.removesuffix("cm"))), status=hub.status)
        if hub.spec.colour is not None:
            spoke.metadata.annotations = {**hub.annotations, "colour": hub.spec.colour}
        return spoke


@pytest.fixture
async def ropes(cluster, client, namespace):
    """The kind in both versions, and the server that converts it; its certificate is managed."""
    name = crd_name(Rope)
    certificates = sm.ManagedCertificates(
        client, namespace=namespace, secret="conversion", names=["127.0.0.1"], definitions=[name]
    )
    conversion = sm.ConversionWebhook(versions=[RopeV1, Rope])
    server = sm.WebhookServer([conversion], certificates, host="127.0.0.1", port=0, registry=CollectorRegistry())
    task = asyncio.create_task(server.run())
    await asyncio.wait_for(server.serving.wait(), 90)
    await client.create(
        crd_manifest(RopeV1, Rope, conversion=lambda path: {"url": f"https://127.0.0.1:{server.port}{path}"})
    )
    await certificates.load()  # what the server does every half minute: the new definition gets the authority

    async def converted() -> bool:
        """Whether the API server has taken up the definition with its authority."""
        try:
            await client.create(rope(RopeV1, "probe", namespace, size=1), dry_run=True)
        except KubeError:
            return False
        return True

    await eventually(converted, timeout=60)
    yield server
    await client.delete(DEFINITIONS, name)

    async def gone() -> bool:
        try:
            await client.get(DEFINITIONS, name)
        except KubeError:
            return True
        return False

    await eventually(gone, timeout=60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def rope(cls: type[Any], name: str, namespace: str, **spec: Any) -> Any:
    return cls(metadata=sm.ObjectMeta(name=name, namespace=namespace, labels={"a": "b"}), spec=cls.Spec(**spec))


async def test_an_object_created_in_one_version_is_read_in_the_other_and_comes_back_the_same(ropes, client, namespace):
    made = await client.create(rope(RopeV1, "a", namespace, size=7))
    hub = await client.get(Rope, "a", namespace=namespace)
    assert (hub.spec, hub.metadata) == (Rope.Spec(length="7cm"), made.metadata)
    assert (await client.get(RopeV1, "a", namespace=namespace)) == made
    hub.spec.colour = "red"
    await client.replace(hub)
    spoke = await client.get(RopeV1, "a", namespace=namespace)
    assert (spoke.spec.size, spoke.annotations) == (7, {"colour": "red"})
    spoke.spec.size = 8
    await client.replace(spoke)
    hub = await client.get(Rope, "a", namespace=namespace)
    assert (hub.spec, hub.annotations, hub.labels) == (Rope.Spec(length="8cm", colour="red"), {}, {"a": "b"})


async def test_both_versions_are_listed_and_watched(ropes, client, namespace):
    await client.create(rope(RopeV1, "a", namespace, size=1))
    await client.create(rope(Rope, "b", namespace, length="2cm"))
    listed = {cls: await client.list(cls, namespace=namespace) for cls in (RopeV1, Rope)}
    assert [item.spec.size for item in listed[RopeV1].items] == [1, 2]
    assert [item.spec.length for item in listed[Rope].items] == ["1cm", "2cm"]
    await client.create(rope(RopeV1, "c", namespace, size=3))
    seen: dict[type, Any] = {}
    for cls in (RopeV1, Rope):
        start = listed[cls].resource_version
        async with client.watch(cls, namespace=namespace, resource_version=start, timeout_seconds=30) as events:
            seen[cls] = (await anext(events)).object
    assert (seen[RopeV1].spec.size, seen[Rope].spec.length, seen[Rope].name) == (3, "3cm", "c")


async def test_one_manager_applies_in_both_versions(ropes, client, namespace):
    await client.apply(rope(RopeV1, "a", namespace, size=7))
    await client.apply(rope(Rope, "a", namespace, length="8cm", colour="red"))
    spoke = await client.get(RopeV1, "a", namespace=namespace)
    assert (spoke.spec.size, spoke.annotations) == (8, {"colour": "red"})
    await client.apply(rope(RopeV1, "a", namespace, size=9))
    assert (await client.get(Rope, "a", namespace=namespace)).spec.length == "9cm"


async def test_an_object_that_cannot_be_converted_is_named_with_the_reason(ropes, client, namespace):
    await client.create(rope(Rope, "odd", namespace, length="3 inches"))
    said = rf'Rope {namespace}/odd from {GROUP}/v2 to {GROUP}/v1: spec.length: "3 inches" has no value in cm'
    with pytest.raises(KubeError) as caught:
        await client.get(RopeV1, "odd", namespace=namespace)
    assert said in str(caught.value)
    assert (await client.get(Rope, "odd", namespace=namespace)).spec.length == "3 inches"
