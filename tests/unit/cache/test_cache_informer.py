"""What an informer stores and tells of what a server sends, where a transform decides on it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from steersman.cache.informer import SharedInformer
from steersman.cache.metrics import CacheMetrics
from steersman.kube.objects import ObjectMeta, Resource
from steersman.kube.resources import ObjectRef
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


async def test_objects_of_lists_and_events_are_stored_and_told_as_the_transform_leaves_them(informer, client):
    told = []
    informer.add_handler(lambda _old, new, _initial: told.append(new.note))
    await client.send("ADDED", thing("b", 5))
    await client.send("MODIFIED", thing("a", 6, "other"))
    assert notes(informer) == {"a": "o", "b": "l"}
    assert told == ["l", "l", "o"]


async def test_an_object_that_the_transform_fails_on_is_left_out_and_named_and_stops_nobody(informer, client):
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


async def test_a_written_object_is_shown_as_it_will_be_stored_and_stays_with_its_writer_as_it_is(informer):
    written = thing("new", 9)
    informer.record_write(written)
    assert informer.snapshot().get(ObjectRef("new", "shop")).note == "l"
    assert written.note == "long"
