"""Who is told what: handlers that come and go while a list is being told."""

from __future__ import annotations

import asyncio
import contextlib
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry

from steersman.cache.factory import SharedInformerFactory
from steersman.cache.informer import SharedInformer
from steersman.cache.metrics import CacheMetrics
from steersman.kube.api.errors import Forbidden, KubeError, ResourceExpired
from steersman.kube.api.objects import ObjectMeta, Resource
from steersman.kube.client.codec import DecodeFailure
from steersman.testing.clock import VirtualClock, settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Thing(Resource, group="example.org", version="v1"):
    note: str = ""


def thing(name: str, revision: int = 1) -> Thing:
    return Thing(metadata=ObjectMeta(name=name, namespace="shop", uid=name, resource_version=str(revision)))


class Server:
    """Lists what it has, unless that may not be read, and then sends what a test wants."""

    def __init__(self) -> None:
        self.objects: list[Thing] = []
        self.undecodable: list[DecodeFailure] = []
        self.refused: set[str] = set()
        self.batches: asyncio.Queue[list[Any] | KubeError] = asyncio.Queue()

    async def pages(self, _target: Any, *, namespace: str | None = None, **_: Any) -> AsyncIterator[Any]:
        if namespace in self.refused:
            raise Forbidden("no", code=403)
        yield SimpleNamespace(items=self.objects, undecodable=self.undecodable, resource_version="9")

    @contextlib.asynccontextmanager
    async def watch(self, _target: Any, **_: Any) -> AsyncIterator[Server]:
        yield self

    async def batch(self) -> list[Any]:
        sent = await self.batches.get()
        if isinstance(sent, KubeError):
            raise sent
        return sent

    async def send(self, *objects: Thing) -> None:
        """Events that come together."""
        events = [SimpleNamespace(type="MODIFIED", object=obj, initial_events_end=False) for obj in objects]
        self.batches.put_nowait(events)
        await settle()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def informer(server: Any, clock: VirtualClock) -> SharedInformer[Thing]:
    return informer_of(server, clock)


def informer_of(server: Any, clock: VirtualClock, namespaces: list[str] | None = None) -> SharedInformer[Thing]:
    metrics = CacheMetrics(CollectorRegistry())
    return SharedInformer(
        server, Thing, namespaces=namespaces, random=random.Random(1), metrics=metrics, clock=clock, streaming=False
    )


@contextlib.asynccontextmanager
async def running(informer: SharedInformer[Thing]) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(informer.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Listener(list[str]):
    """The names that a handler is told, and when the first came."""

    def __init__(self, informer: SharedInformer[Thing]) -> None:
        super().__init__()
        self.began = asyncio.Event()
        self.subscription = informer.add_handler(self._hear)

    def _hear(self, _old: Thing | None, new: Any, _initial: bool) -> None:
        self.append(new.name)
        self.began.set()


async def test_a_handler_that_joins_while_the_first_list_is_delivered_sees_every_object_once(informer, server):
    first, second = [], []

    def joining(old, new, initial):
        first.append(new.name)
        if len(first) == 3:
            informer.add_handler(lambda old, new, initial: second.append((new.name, initial)))

    informer.add_handler(joining)
    names = [f"n{number:04}" for number in range(1200)]
    server.objects = [thing(name) for name in names]
    async with running(informer):
        await informer.wait_synced()
        await server.send(thing("late", 10))
    assert first == [*names, "late"]
    assert sorted(second) == [("late", False), *((name, True) for name in names)]


async def test_a_handler_that_leaves_while_a_list_is_delivered_gets_no_more(informer, server):
    seen, others = Listener(informer), Listener(informer)
    server.objects = [thing(f"n{number:04}") for number in range(1200)]
    async with running(informer):
        await seen.began.wait()
        seen.subscription.remove()
        await informer.wait_synced()
    assert 0 < len(seen) < 1200
    assert len(others) == 1200


async def test_a_handler_that_joins_among_changes_hears_of_none_it_has_been_shown(informer, server):
    first, second = [], []

    def joining(old, new, initial):
        first.append((old and old.metadata.resource_version, new.metadata.resource_version))
        if len(first) == 1:
            informer.add_handler(lambda old, new, initial: second.append((new.metadata.resource_version, initial)))

    informer.add_handler(joining)
    async with running(informer):
        await server.send(thing("a", 10), thing("a", 11))
        await server.send(thing("a", 12))
    assert first == [(None, "10"), ("10", "11"), ("11", "12")]
    assert second == [("11", True), ("12", False)]


async def test_a_handler_that_leaves_among_changes_hears_no_more(informer, server):
    seen, others = [], []

    def leaving(old, new, initial):
        seen.append(new.name)
        subscription.remove()

    subscription = informer.add_handler(leaving)
    informer.add_handler(lambda old, new, initial: others.append(new.name))
    async with running(informer):
        await server.send(thing("a", 10), thing("b", 11))
    assert seen == ["a"]
    assert others == ["a", "b"]


async def test_a_handler_that_fails_hears_of_the_next_change_all_the_same(informer, server):
    seen, others = [], []

    def failing(old, new, initial):
        seen.append(new.name)
        raise LookupError("no")

    informer.add_handler(failing)
    informer.add_handler(lambda old, new, initial: others.append(new.name))
    async with running(informer):
        await server.send(thing("a", 10), thing("b", 11))
    assert seen == others == ["a", "b"]


@pytest.mark.parametrize(("refused", "partial"), [("", False), ("a", True), ("ab", False)])
async def test_a_source_is_down_when_all_its_namespaces_are(refused, partial, server, clock):
    server.refused = set(refused)
    informer = informer_of(server, clock, ["a", "b"])
    async with running(informer):
        await settle()
        assert (informer.health().problem is not None, informer.health().partial) == (bool(refused), partial)


async def test_an_unreadable_object_that_vanished_while_unwatched_is_not_a_problem_any_more(informer, server, clock):
    gone, still = (DecodeFailure(ObjectMeta(name=name, namespace="shop"), "odd") for name in ("gone", "still"))
    server.undecodable = [gone, still]
    async with running(informer):
        await informer.wait_synced()
        assert "shop/gone left out" in informer.health().problem
        server.undecodable = [still]
        server.batches.put_nowait(ResourceExpired("too old", code=410))
        await clock.advance(60)
        assert "shop/gone" not in informer.health().problem
        assert "shop/still left out" in informer.health().problem
        assert informer.health().partial


def test_sources_of_the_same_objects_have_names_of_their_own():
    class Slim(Resource, group="example.org", version="v1", kind="Thing"):
        pass

    client: Any = SimpleNamespace()
    registry = CollectorRegistry()
    pool = SharedInformerFactory(client, registry=registry)
    targets: list[Any] = [
        (Thing, None),
        (Slim, None),
        (Slim, lambda obj: obj),
        (Slim, lambda obj: obj),
        (Thing.KIND, None),
    ]
    names = [pool.informer(target, transform=transform).name for target, transform in targets]
    plain = "things.example.org"
    assert names == [plain, f"{plain} as Slim", f"{plain} as Slim 2", f"{plain} as Slim 3", f"{plain} as dict"]
    for name in names:
        assert registry.get_sample_value("steersman_cache_objects", {"cluster": "", "source": name}) == 0


async def test_a_list_whose_delivery_is_cancelled_is_delivered_completely(informer, server):
    seen = Listener(informer)
    names = [f"n{number:04}" for number in range(1200)]
    server.objects = [thing(name) for name in names]
    async with running(informer):
        await seen.began.wait()
        assert len(seen) < 1200
    assert seen == names  # the store has them all, so a later list would not tell of them again
