"""What an informer stores and tells of what a server sends, where a transform decides on it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from types import SimpleNamespace

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from steersman.cache import mutation_detector
from steersman.cache.informer import SharedInformer
from steersman.cache.metrics import CacheMetrics
from steersman.cache.mutation_detector import CacheMutated
from steersman.kube.api.errors import Forbidden
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ObjectMeta, Resource
from steersman.kube.api.types.core import ConfigMap, Secret
from steersman.testing.clock import VirtualClock, settle


class Thing(Resource, group="example.org", version="v1"):
    note: str = ""


def thing(name, revision=1, note="long"):
    meta = ObjectMeta(name=name, namespace="shop", uid=f"uid-{name}", resource_version=str(revision))
    return Thing(metadata=meta, note=note)


def shorten(obj):
    if obj.name == "bad" and obj.note == "long":
        raise ValueError("cannot be shortened")
    obj.note = obj.note[:1]
    return obj


class Client:
    """A server with two objects, one of which no transform can read, and then the events of the test."""

    def __init__(self):
        self.events = asyncio.Queue()

    async def pages(self, _target, **_):
        yield SimpleNamespace(items=[thing("a"), thing("bad")], undecodable=[], resource_version="4")

    @contextlib.asynccontextmanager
    async def watch(self, _target, **_):
        yield self

    async def batch(self):
        return [await self.events.get()]

    async def send(self, kind, obj):
        self.events.put_nowait(SimpleNamespace(type=kind, object=obj, initial_events_end=False))
        await settle()


@pytest.fixture
async def informer(client):
    metrics = CacheMetrics(CollectorRegistry())
    made = SharedInformer(
        client,
        Thing,
        random=random.Random(1),
        metrics=metrics,
        clock=VirtualClock(),
        streaming=False,
        transform=shorten,
    )
    task = asyncio.create_task(made.run())
    await settle()
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def client():
    return Client()


def notes(informer):
    with informer.snapshot() as snapshot:
        return {obj.name: obj.note for obj in snapshot}


async def test_objects_of_lists_and_events_are_stored_and_delivered_as_the_transform_leaves_them(informer, client):
    told = []
    informer.add_handler(lambda _old, new, _initial: told.append(new.note))
    await client.send("ADDED", thing("b", 5))
    await client.send("MODIFIED", thing("a", 6, "other"))
    assert notes(informer) == {"a": "o", "b": "l"}
    assert told == ["l", "l", "o"]


async def test_an_object_that_the_transform_fails_on_is_left_out_and_named_and_stops_nothing_else(informer, client):
    assert informer.has_synced()
    assert notes(informer) == {"a": "l"}
    assert "shop/bad left out: the transform failed: ValueError" in informer.health().problem
    await client.send("MODIFIED", thing("a", 5, "x"))
    assert notes(informer) == {"a": "x"}


async def test_an_object_that_the_transform_can_read_again_is_taken_in_and_no_problem_any_more(informer, client):
    await client.send("MODIFIED", thing("bad", 5, "short"))
    assert notes(informer) == {"a": "l", "bad": "s"}
    assert informer.health().problem is None
    await client.send("MODIFIED", thing("bad", 6))
    assert notes(informer)["bad"] == "s"  # the last good state
    await client.send("DELETED", thing("bad", 7))
    assert notes(informer) == {"a": "l"}
    assert informer.health().problem is None


async def test_objects_of_an_informer_that_stopped_are_compared_once_more_and_cost_later_tests_nothing(client):
    made = SharedInformer(
        client, Thing, random=random.Random(1), metrics=CacheMetrics(CollectorRegistry()), streaming=False
    )
    task = asyncio.create_task(made.run())
    await settle()
    obj = made.snapshot().get(NamespacedName("a", "shop"))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    obj.note = "changed in memory"
    with pytest.raises(CacheMutated, match=r"Thing shop/a \(note\)"):
        mutation_detector.check()
    obj.note = "changed when the test was over"
    mutation_detector.check()


async def test_a_written_object_is_shown_as_it_will_be_stored_and_stays_with_its_writer_as_it_is(informer):
    written = thing("new", 9)
    informer.record_write(written)
    assert informer.snapshot().get(NamespacedName("new", "shop")).note == "l"
    assert written.note == "long"


COPY = "kubectl.kubernetes.io/last-applied-configuration"


@pytest.mark.parametrize("target", [Secret, ConfigMap, Secret.KIND], ids=["Secret", "ConfigMap", "dict"])
@pytest.mark.parametrize("transforms", [False, True])
async def test_the_copy_that_kubectl_leaves_in_annotations_is_kept_nowhere(target, transforms):
    shown = []
    annotations = {COPY: '{"data":{"password":"Y2FuYXJ5"}}', "mine": "stays"}
    meta = {"name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "4"}

    def decoded():
        plain = {"metadata": {**meta, "annotations": dict(annotations)}}
        return plain if target is Secret.KIND else msgspec.convert(plain, target)

    class Server(Client):
        async def pages(self, _target, **_):
            yield SimpleNamespace(items=[decoded()], undecodable=[], resource_version="4")

    def transform(obj):
        shown.append(msgspec.json.encode(obj))
        return obj

    made = SharedInformer(
        Server(),
        target,
        random=random.Random(1),
        metrics=CacheMetrics(CollectorRegistry()),
        clock=VirtualClock(),
        streaming=False,
        transform=transform if transforms else None,
    )
    running = asyncio.create_task(made.run())
    await made.wait_synced()
    made.record_write(decoded())
    (kept,) = made.snapshot().list()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    told = msgspec.json.encode(kept)
    assert b"stays" in told
    assert b"Y2FuYXJ5" not in b"".join([told, *shown])


class ListedClient:
    """A server that lists and refuses to watch."""

    def __init__(self):
        self.objects = {}
        self.revision = "4"

    async def pages(self, _target, *, namespace=None, **_):
        found = [obj for obj in self.objects.values() if namespace in (None, obj.namespace)]
        yield SimpleNamespace(items=found, undecodable=[], resource_version=self.revision)

    @contextlib.asynccontextmanager
    async def watch(self, _target, **_):
        raise Forbidden("cannot watch", code=403)
        yield


def in_namespace(name, namespace, revision):
    meta = ObjectMeta(name=name, namespace=namespace, uid=f"uid-{namespace}-{name}", resource_version=str(revision))
    return Thing(metadata=meta)


async def test_a_refresh_replaces_its_namespace_leaves_the_others_and_says_since_when_what_is_new_may_be_there():
    client = ListedClient()
    client.objects = {key: in_namespace(*key, 1) for key in (("a", "shop"), ("a", "lab"))}
    metrics = CacheMetrics(CollectorRegistry())
    clock = VirtualClock()
    informer = SharedInformer(client, Thing, random=random.Random(1), metrics=metrics, clock=clock)
    task = asyncio.create_task(informer.run())
    await settle()
    told = []
    informer.add_handler(
        lambda old, new, initial: None if initial else told.append((old and old.name, new and new.name))
    )
    assert informer.listed_before("shop") == ""
    client.revision, client.objects = "9", {("b", "shop"): in_namespace("b", "shop", 8)}
    informer.refresh("shop")
    await settle()
    assert told == [("a", None), (None, "b")]
    with informer.snapshot() as snapshot:
        assert sorted((obj.namespace, obj.name) for obj in snapshot) == [("lab", "a"), ("shop", "b")]
        assert snapshot.resource_version == "4"  # of the other namespaces nothing newer is known
    assert informer.listed_before("shop") == informer.listed_before("lab") == "4"
    assert (informer.listed_at("shop"), informer.listed_at("lab")) == ("9", "4")
    client.revision = "12"
    await clock.advance(0.5)
    informer.refresh("shop")
    await settle()
    assert (informer.listed_before("shop"), informer.listed_before("lab")) == ("9", "4")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
