"""Informers against both API servers: the cache equals the server, whatever happens in between."""

from __future__ import annotations

import asyncio
import random
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client import CollectorRegistry

from steersman.cache import SharedInformerFactory
from steersman.cache.reflector import INITIAL_SILENCE
from steersman.kube.api.gvk import Kind, NamespacedName
from steersman.kube.api.objects import ObjectMeta, PartialObjectMetadata, Resource
from steersman.kube.client.client import Client, PatchType
from steersman.kube.config.kubeconfig import load_config
from steersman.kube.transport.transport import TransportOptions
from steersman.testing import FaultProxy, eventually
from steersman.testing.clock import FastClock
from steersman.testing.controlplane.launcher import ControlPlane


class ConfigMap(Resource, version="v1"):
    data: dict[str, str] | None = None


class Narrow(Resource, version="v1", kind="ConfigMap", plural="configmaps"):
    data: dict[str, int] | None = None  # does not fit every ConfigMap, on purpose


CONFIGMAPS = Kind(version="v1", kind="ConfigMap", plural="configmaps")


def configmap(name: str, namespace: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace, labels={"suite": "cache"}), data=data)


@pytest.fixture
async def client(cluster, tmp_path):
    cluster.write_kubeconfig(tmp_path / "kubeconfig")
    async with Client.connect(load_config(tmp_path / "kubeconfig")) as connected:
        yield connected


@pytest.fixture(params=["streaming", "listing"])
def pool(request, client):
    return SharedInformerFactory(
        client, random=random.Random(1), registry=CollectorRegistry(), streaming=request.param == "streaming"
    )


@pytest.fixture
async def run(client, namespace):
    tasks = []

    async def start(informer):
        await eventually(lambda: cache_of_the_server_is_fresh(client, namespace))
        tasks.append(asyncio.create_task(informer.run()))
        await asyncio.wait_for(informer.wait_synced(), 90)
        return informer

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def cache_of_the_server_is_fresh(client, namespace) -> bool:
    """A first list is answered from the server's cache, which may be behind; what a test has made must be in there."""
    made = await client.list(CONFIGMAPS, into=PartialObjectMetadata, namespace=namespace)
    known = await client.list(CONFIGMAPS, into=PartialObjectMetadata, namespace=namespace, resource_version="0")
    return int(known.resource_version) >= max((int(one.metadata.resource_version) for one in made.items), default=0)


def names(informer) -> list[str]:
    with informer.snapshot() as snapshot:
        return [ref.name for obj in snapshot if not (ref := obj.ref).name.startswith("kube-root-ca")]


async def test_what_exists_is_there_when_synced_and_what_comes_follows(pool, client, run, namespace):
    await client.create(configmap("a", namespace, x="1"))
    seen = []
    informer = pool.informer(ConfigMap, namespaces=[namespace], label_selector="suite=cache")
    informer.add_handler(lambda old, new, initial: seen.append((old and old.data, new and new.data, initial)))
    await run(informer)
    assert seen == [(None, {"x": "1"}, True)]
    await client.create(configmap("b", namespace))
    await client.patch(ConfigMap, "a", {"data": {"x": "2"}}, type=PatchType.MERGE, namespace=namespace)
    await client.delete(ConfigMap, "b", namespace=namespace)
    await eventually(lambda: len(seen) == 4)
    assert seen[1:] == [(None, None, False), ({"x": "1"}, {"x": "2"}, False), (None, None, False)]
    assert names(informer) == ["a"]


async def test_an_object_that_stops_matching_the_selector_is_gone(pool, client, run, namespace):
    await client.create(configmap("a", namespace))
    informer = await run(pool.informer(ConfigMap, namespaces=[namespace], label_selector="suite=cache"))
    assert names(informer) == ["a"]
    patch = {"metadata": {"labels": {"suite": None}}}
    await client.patch(ConfigMap, "a", patch, type=PatchType.MERGE, namespace=namespace)
    await eventually(lambda: names(informer) == [])


async def test_plain_dicts_are_cached_like_structs(pool, client, run, namespace):
    await client.create(configmap("a", namespace, x="1"))
    informer = await run(pool.informer(CONFIGMAPS, namespaces=[namespace]))
    with informer.snapshot() as snapshot:
        kept = snapshot.get(NamespacedName("a", namespace))
    assert kept["data"] == {"x": "1"}
    assert "managedFields" not in kept["metadata"]


async def test_more_objects_than_fit_on_a_page_are_all_there(pool, client, run, namespace):
    await asyncio.gather(*(client.create(configmap(f"n{number:04}", namespace)) for number in range(620)))
    informer = await run(pool.informer(ConfigMap, namespaces=[namespace], label_selector="suite=cache"))
    assert len(names(informer)) == 620


async def test_a_collection_larger_than_an_answer_may_be_is_there_in_smaller_pages(cluster, client, namespace, run):
    for number in range(12):
        await client.create(configmap(f"large-{number:02}", namespace, x="x" * 20_000))
    options = TransportOptions(max_response_bytes=150_000)
    async with Client.connect(client.transport.config, options=options) as narrow:
        pool = SharedInformerFactory(narrow, random=random.Random(1), registry=CollectorRegistry(), streaming=False)
        informer = await run(pool.informer(ConfigMap, namespaces=[namespace]))
        assert names(informer) == [f"large-{number:02}" for number in range(12)]


async def test_a_late_handler_gets_the_known_objects(pool, client, run, namespace):
    await client.create(configmap("a", namespace))
    informer = await run(pool.informer(ConfigMap, namespaces=[namespace], label_selector="suite=cache"))
    seen = []
    subscription = informer.add_handler(lambda old, new, initial: seen.append((new.name, initial)))
    assert seen == [("a", True)]
    assert subscription.has_synced()
    subscription.remove()
    await client.create(configmap("b", namespace))
    await eventually(lambda: names(informer) == ["a", "b"])
    assert seen == [("a", True)]


async def test_a_handler_that_raises_stops_nothing_else(pool, client, run, namespace):
    seen = []

    def broken(old, new, initial):
        raise RuntimeError("handler")

    informer = pool.informer(ConfigMap, namespaces=[namespace], label_selector="suite=cache")
    informer.add_handler(broken)
    informer.add_handler(lambda old, new, initial: seen.append(new.name))
    await run(informer)
    await client.create(configmap("a", namespace))
    await eventually(lambda: seen == ["a"])


async def test_an_object_that_does_not_decode_is_named_and_the_others_are_there(pool, client, run, namespace):
    await client.create(configmap("good", namespace))
    await client.create(configmap("bad", namespace, x="not a number"))
    informer = await run(pool.informer(Narrow, namespaces=[namespace], label_selector="suite=cache"))
    assert names(informer) == ["good"]
    assert f"{namespace}/bad" in informer.health().problem
    await client.create(configmap("later", namespace))
    await eventually(lambda: names(informer) == ["good", "later"])
    await client.delete(ConfigMap, "bad", namespace=namespace)
    await eventually(lambda: informer.health().problem is None)


async def test_a_write_is_visible_before_the_watch_delivers_it(pool, client, run, namespace):
    informer = await run(pool.informer(ConfigMap, namespaces=[namespace], label_selector="suite=cache"))
    informer.record_write(await client.create(configmap("a", namespace)))
    assert names(informer) == ["a"]
    await eventually(lambda: not informer._store._overlay)
    assert names(informer) == ["a"]


async def test_the_same_question_is_asked_once(pool):
    one = pool.informer(ConfigMap, namespaces=["b", "a"], label_selector="x=1")
    assert pool.informer(ConfigMap, namespaces=["a", "b"], label_selector="x=1") is one
    assert pool.informer(ConfigMap, namespaces=["a"], label_selector="x=1") is not one
    assert len(pool) == 2


async def test_a_kind_that_is_missing_says_so_and_appears_when_it_is_installed(pool):
    class Missing(Resource, group="missing.example.org", version="v1"):
        pass

    informer = pool.informer(Missing)
    task = asyncio.create_task(informer.run())
    await eventually(lambda: informer.health().problem is not None)
    assert "CustomResourceDefinition installed?" in informer.health().problem
    assert not informer.has_synced()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_cut_connection_loses_nothing(cluster, client, namespace, tmp_path, run):
    address = urlsplit(cluster.url)
    async with FaultProxy(address.hostname, address.port) as proxy:
        direct = cluster.kubeconfig()
        (tmp_path / "proxied").write_text(direct.replace(address.netloc, proxy.address))
        async with Client.connect(load_config(tmp_path / "proxied")) as through:
            pool = SharedInformerFactory(through, random=random.Random(1), registry=CollectorRegistry())
            informer = await run(pool.informer(ConfigMap, namespaces=[namespace], label_selector="suite=cache"))
            for number in range(5):
                await proxy.cut()
                await client.create(configmap(f"n{number}", namespace))
            await eventually(lambda: names(informer) == [f"n{n}" for n in range(5)])


LONGEST_BACKOFF = 61.0  # seconds; an open watch may be silent for longer


class RecordedWaits(FastClock):
    """A fast clock that keeps what the informer reported as its problem whenever it began to wait."""

    def __init__(self):
        super().__init__(60.0)
        self.informer: Any = None
        self.problems: list[str] = []

    def call_at(self, when, callback):
        seconds = round(when - self.monotonic())
        if self.informer is not None and seconds < LONGEST_BACKOFF and seconds != INITIAL_SILENCE:
            self.problems.append(self.informer.health().problem or "")
        return super().call_at(when, callback)


@pytest.fixture(scope="module")
async def own_plane():
    async with ControlPlane() as plane:
        yield plane


@pytest.fixture(params=["embedded", pytest.param("own_plane", marks=pytest.mark.real)], ids=["embedded", "real"])
def restarting(request):
    """A server, and how to restart it so that it no longer has the history before."""
    server = request.getfixturevalue(request.param)
    if isinstance(server, ControlPlane):
        return server, server.restart_server

    async def forget():
        server.compact()

    return server, forget


@pytest.mark.slow
@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "listing"])
async def test_after_a_restart_of_the_server_a_410_is_followed_by_the_state_without_a_wait(
    restarting, streaming, tmp_path
):
    server, restart = restarting
    address, clock, registry = urlsplit(server.url), RecordedWaits(), CollectorRegistry()
    (tmp_path / "direct").write_text(server.kubeconfig())
    async with FaultProxy(address.hostname, address.port) as proxy, asyncio.TaskGroup() as tasks:
        (tmp_path / "proxied").write_text(server.kubeconfig().replace(address.netloc, proxy.address))
        async with (
            Client.connect(load_config(tmp_path / "direct")) as direct,
            Client.connect(load_config(tmp_path / "proxied")) as through,
        ):
            pool = SharedInformerFactory(
                through, random=random.Random(1), registry=registry, streaming=streaming, clock=clock
            )
            informer = clock.informer = pool.informer(ConfigMap, namespaces=["default"], label_selector="suite=cache")
            running = tasks.create_task(informer.run())
            await asyncio.wait_for(informer.wait_synced(), 90)
            proxy.refuse()
            await proxy.reset()
            name = f"missed-{'streaming' if streaming else 'listing'}"
            await direct.create(configmap(name, "default"))
            await eventually(lambda: len(list(filter(None, clock.problems))) >= 5)
            await restart()
            proxy.accept()
            await eventually(lambda: name in names(informer))
            running.cancel()
    reasons = {
        sample.labels["reason"]
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "steersman_cache_failures_total"
    }
    assert "Expired" in reasons
    assert not [problem for problem in clock.problems if "too old" in problem]
