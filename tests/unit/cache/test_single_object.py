"""Single names: who wants what, and what is followed for it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from steersman.cache.handlers import Subscribers
from steersman.cache.informer import SharedInformer, SingleScope
from steersman.cache.metrics import CacheMetrics
from steersman.cache.reflector import ReflectorStatus
from steersman.cache.single_object import NamedObjects
from steersman.cache.store import ObjectStore
from steersman.kube.api.errors import ConnectionFailed, Forbidden, KubeError, NotFound
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ObjectMeta, Resource
from steersman.logger import Logger
from steersman.testing.clock import VirtualClock, settle


class Thing(Resource, group="example.org", version="v1"):
    note: str = ""


def ref(name):
    return NamespacedName(name, "shop")


def thing(name, revision=1, note=""):
    meta = ObjectMeta(name=name, namespace="shop", uid=f"uid-{name}", resource_version=str(revision))
    return Thing(metadata=meta, note=note)


class Following:
    """Stands for a reflector: the test plays the server."""

    def __init__(self, sink, news):
        self.name, self.sink, self.news = "things", sink, news
        self.status = ReflectorStatus()
        self.running = False

    async def run(self):
        self.running = True
        try:
            await asyncio.Event().wait()
        finally:
            self.running = False

    async def answer(self, *objects):
        await self.sink.replace(objects, "1", ())
        self.status.synced = True
        self.news()

    def refuse(self):
        self.status.refused, self.status.error = True, Forbidden("no", code=403)
        self.news()


class Bench:
    def __init__(self, *, limit=10, needed=lambda _ref: True):
        self.store = ObjectStore()
        self.told, self.news, self.made = [], [], {}
        metrics = CacheMetrics(CollectorRegistry()).reflector("things")
        subscribers = Subscribers(asyncio.Event(), Logger("test"), metrics)
        subscribers.add(lambda old, new, initial: self.told.append((old and old.note, new and new.note, initial)), [])
        self.subscribers = subscribers
        self.names = NamedObjects(
            self.make, lambda name: self.store.replace_one(name, None), needed=needed, limit=limit
        )
        self.names.on_name_resolved.append(self.news.append)

    def make(self, name, news):
        sink = SingleScope(self.store, self.subscribers, name, lambda _ref: None)
        self.made[name.name] = Following(sink, news)
        return self.made[name.name]

    def running(self):
        return sorted(name for name, one in self.made.items() if one.running)


@pytest.fixture
async def bench(request):
    made = Bench(**getattr(request, "param", {}))
    task = asyncio.create_task(made.names.run())
    yield made
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert made.running() == []


async def test_a_name_is_known_when_its_first_list_is_through_whether_it_exists_or_not(bench):
    bench.names.set_interest("me", [ref("a"), ref("b")])
    await settle()
    assert bench.running() == ["a", "b"]
    assert not bench.names.is_synced_for(ref("a"))
    await bench.made["a"].answer(thing("a", note="1"))
    await bench.made["b"].answer()
    assert bench.names.is_synced_for(ref("a"))
    assert bench.names.is_synced_for(ref("b"))
    assert bench.told == [(None, "1", True)]
    assert bench.news == [ref("a"), ref("b")]
    assert bench.store.get(ref("b")) is None


async def test_a_name_is_followed_while_anybody_wants_it_and_forgotten_with_its_object_after_that(bench):
    for user in ("me", "you"):
        bench.names.set_interest(user, [ref("a")])
    await settle()
    await bench.made["a"].answer(thing("a"))
    bench.names.set_interest("me", [])
    await settle()
    assert bench.running() == ["a"]
    bench.names.set_interest("you", [ref("b")])
    await settle()
    assert bench.running() == ["b"]
    assert bench.store.get(ref("a")) is None
    assert not bench.names.is_synced_for(ref("a"))


async def test_a_list_that_no_longer_has_the_object_is_its_deletion(bench):
    bench.names.set_interest("me", [ref("a")])
    await settle()
    await bench.made["a"].answer(thing("a", note="1"))
    await bench.made["a"].answer(thing("a", note="1"))  # the same again is no news
    await bench.made["a"].answer()
    assert bench.told == [(None, "1", True), ("1", None, False)]


async def test_what_comes_late_does_not_undo_what_the_collection_has_shown(bench):
    bench.names.set_interest("me", [ref("a")])
    await settle()
    await bench.made["a"].answer(thing("a", 1, note="1"))
    bench.store.replace([thing("a", 9, note="9")], "9", namespace="shop")  # the collection can be read again
    bench.made["a"].sink.upsert([thing("a", 5, note="5")])
    bench.made["a"].sink.remove(thing("a", 6))
    assert bench.store.get(ref("a")).note == "9"
    bench.made["a"].sink.upsert([thing("a", 10, note="10")])
    bench.made["a"].sink.remove(thing("a", 11))
    assert bench.told == [(None, "1", True), ("9", "10", False), ("10", None, False)]


async def test_a_name_that_may_not_be_read_is_not_known_and_says_why(bench):
    bench.names.set_interest("me", [ref("a")])
    await settle()
    bench.made["a"].refuse()
    assert not bench.names.is_synced_for(ref("a"))
    assert bench.names.problem(ref("a")) == "no"
    assert bench.names.refused
    assert bench.news == [ref("a")]


@pytest.mark.parametrize("bench", [{"limit": 2}], indirect=True)
async def test_beyond_the_limit_names_stay_unknown_and_take_a_place_that_becomes_free(bench):
    bench.names.set_interest("me", [ref("a"), ref("b")])
    await settle()
    bench.names.set_interest("you", [ref("c")])
    await settle()
    assert bench.running() == ["a", "b"]
    assert "more than 2 names" in bench.names.problem(ref("c"))
    assert bench.names.problems() == ["1 names too many to watch one by one (at most 2)"]
    bench.names.set_interest("me", [ref("b")])
    await settle()
    assert bench.running() == ["b", "c"]


async def test_what_the_collection_shows_again_is_not_followed_by_itself_and_stays():
    listed = set()
    bench = Bench(needed=lambda name: name not in listed)
    task = asyncio.create_task(bench.names.run())
    bench.names.set_interest("me", [ref("a")])
    await settle()
    await bench.made["a"].answer(thing("a"))
    listed.add(ref("a"))
    bench.names.check()
    await settle()
    assert bench.running() == []
    assert bench.store.get(ref("a")) is not None
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_the_collection_shows_stays_also_when_the_name_is_given_up_at_the_same_time():
    listed = set()
    bench = Bench(needed=lambda name: name not in listed)
    task = asyncio.create_task(bench.names.run())
    bench.names.set_interest("me", [ref("a")])
    await settle()
    await bench.made["a"].answer(thing("a"))
    listed.add(ref("a"))  # the collection can be read again, and the store has what it showed
    bench.names.set_interest("me", [])
    await settle()
    assert bench.running() == []
    assert bench.store.get(ref("a")) is not None
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class Refusing:
    """Stands for a client: `trouble` comes of the collection, an object of every name."""

    def __init__(self, clock):
        self.clock = clock
        self.ended = asyncio.Event()
        self.trouble: KubeError | None = Forbidden("no", code=403)
        self.asked = []

    async def pages(self, _target, *, field_selector, **_options):
        self.asked.append(f"list {field_selector or 'all'}")
        if not field_selector:
            await self.clock.sleep(0.1)
            if self.trouble is not None:
                raise self.trouble
        name = field_selector.partition("=")[2] if field_selector else "a"
        yield SimpleNamespace(items=[thing(name)], undecodable=[], resource_version="4")

    @contextlib.asynccontextmanager
    async def watch(self, _target, *, field_selector, send_initial_events, **_options):
        self.asked.append(f"{'stream' if send_initial_events else 'watch'} {field_selector or 'all'}")
        if send_initial_events:
            raise self.trouble if self.trouble is not None and not field_selector else Forbidden("no", code=403)
        yield SimpleNamespace(batch=self.end)
        if self.trouble is not None:
            raise self.trouble

    async def end(self):
        await self.ended.wait()


async def test_names_stand_in_for_a_collection_until_it_has_been_read_whatever_else_it_fails_with():
    clock = VirtualClock()
    client = Refusing(clock)
    metrics = CacheMetrics(CollectorRegistry())
    informer = SharedInformer(
        client, Thing, random=random.Random(1), metrics=metrics, clock=clock, by_name="refused", namespaces={"shop"}
    )
    task = asyncio.create_task(informer.run())
    informer.set_interest("me", [ref("a")])
    await clock.advance(1)
    assert informer.is_synced_for(ref("a"))
    await clock.advance(100)  # the collection is asked for again, first as a stream, and refused again
    assert client.asked.count("list metadata.name=a") == 1  # and nobody let go of the name meanwhile
    client.trouble = ConnectionFailed("cut")
    await clock.advance(100)
    assert client.asked.count("stream all") > 2
    assert client.asked.count("list metadata.name=a") == 1
    assert not informer.is_synced_for(ref("b"))  # nobody has looked
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_optional_kind_that_is_removed_again_is_not_a_problem():
    clock = VirtualClock()
    client = Refusing(clock)
    client.trouble = None
    metrics = CacheMetrics(CollectorRegistry())
    informer = SharedInformer(client, Thing, random=random.Random(1), metrics=metrics, clock=clock, optional=True)
    task = asyncio.create_task(informer.run())
    await clock.advance(10)
    assert (informer.health().objects, informer.health().problem) == (1, None)
    client.trouble = NotFound("no such kind", code=404)
    client.ended.set()
    await clock.advance(10)
    assert "stream all" in client.asked[2:]
    assert informer.health().problem is None
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("trouble", "options", "unknown", "coverage"),
    [
        (Forbidden("no", code=403), {"optional": True}, "no", ""),
        (NotFound("no such kind", code=404), {"optional": True}, None, "kind not installed"),
        (
            Forbidden("no", code=403),
            {"by_name": "refused"},
            None,
            "list forbidden, names in use are watched one by one",
        ),
        (
            Forbidden("no", code=403),
            {"namespaces": {"shop", "lab"}, "optional": True},
            "no",
            "2 of 2 namespaces unknown",
        ),
        (None, {"optional": True}, None, ""),
    ],
    ids=["forbidden", "not installed", "by name", "namespaces", "read"],
)
async def test_a_source_that_is_not_read_says_so_instead_of_having_no_objects(trouble, options, unknown, coverage):
    clock = VirtualClock()
    client = Refusing(clock)
    client.trouble = trouble
    metrics = CacheMetrics(CollectorRegistry())
    informer = SharedInformer(client, Thing, random=random.Random(1), metrics=metrics, clock=clock, **options)
    task = asyncio.create_task(informer.run())
    await clock.advance(10)
    health = informer.health()
    assert (health.synced, health.unknown, health.coverage) == (True, unknown, coverage)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def written(name, revision):
    """A store whose object was deleted at 11 by somebody else, and the answer to our write at `revision`."""
    bench = Bench()
    sink = SingleScope(bench.store, bench.subscribers, ref(name), lambda _ref: None)
    sink.upsert([thing(name, 10)])
    sink.reached("10")
    sink.remove(thing(name, 11))
    sink.reached("11")
    bench.store.record_write(thing(name, revision))
    return bench.store, sink


def test_a_write_to_something_gone_again_is_not_a_ghost():
    store, _ = written("a", 10)
    assert store.get(ref("a")) is None


def test_a_write_that_the_watch_does_not_have_yet_is_shown_until_it_is_past_it():
    store, sink = written("a", 12)
    assert store.get(ref("a")) == thing("a", 12)
    store.record_write(thing("b", 12))
    sink.progress("13")
    assert store.get(ref("a")) is None
    assert store.get(ref("b")) is not None  # of which this watch says nothing
    store.let_go(ref("a"))
    assert not store._followed
