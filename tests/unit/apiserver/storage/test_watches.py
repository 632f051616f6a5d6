"""Watches on the log, without a network."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from steersman.apiserver.resources.kinds import BUILTINS
from steersman.apiserver.storage.representations import FullView, MetadataView
from steersman.apiserver.storage.selection import Selection
from steersman.apiserver.storage.store import ResourceTable, Store
from steersman.apiserver.storage.watch import Watch, WatchHub, WatchOptions
from steersman.testing.clock import VirtualClock, settle

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from steersman.testing.clock import VirtualTimer

INFO = next(info for info in BUILTINS if info.kind.plural == "configmaps")


class Bench:
    """A store with watches on it."""

    def __init__(self, clock: VirtualClock | None = None) -> None:
        self.clock = clock or VirtualClock()
        self.store = Store(self.clock, history=1000)
        self.table: ResourceTable = self.store.table(INFO.storage)
        self.hub = WatchHub(self.store, self.clock)
        self._streams: list[AsyncGenerator[bytes]] = []

    def put(self, name: str, namespace: str = "ns", **labels: str) -> None:
        metadata = {"name": name, "namespace": namespace, "labels": labels}
        self.store.put(self.table, f"{namespace}/{name}", {"metadata": metadata})

    def remove(self, name: str, namespace: str = "ns") -> None:
        self.store.remove(self.table, f"{namespace}/{name}")

    def watch(self, *, namespace: str = "", labels: str = "", metadata: bool = False, **options: Any) -> Seen:
        options.setdefault("revision", self.store.revision)
        selection = Selection.parse(INFO, namespace, labels, "")
        view = MetadataView(INFO) if metadata else FullView(INFO)
        watch = Watch(self.hub, self.table, selection, view, WatchOptions(**options))
        return Seen(watch)


class Seen:
    """A watch that is being read."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.chunks: list[bytes] = []
        self.task = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        async for chunk in self.watch.stream():
            self.chunks.append(chunk)

    async def events(self) -> list[dict[str, Any]]:
        """What has been sent so far."""
        await settle()
        return [msgspec.json.decode(line) for chunk in self.chunks for line in chunk.splitlines()]

    async def types(self) -> list[tuple[str, str]]:
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in await self.events()]


@pytest.fixture
async def bench():
    bench = Bench()
    yield bench
    bench.hub.close()
    await settle()


async def test_a_watch_sends_what_happened_after_its_resource_version_and_then_what_happens(bench: Bench):
    bench.put("a")
    start = bench.store.revision
    bench.put("b")
    seen = bench.watch(revision=start)
    assert await seen.types() == [("ADDED", "b")]
    bench.put("b", x="y")
    bench.remove("a")
    assert await seen.types() == [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "a")]


async def test_a_burst_of_writes_is_one_chunk(bench: Bench):
    seen = bench.watch()
    await settle()
    for name in "abcde":
        bench.put(name)
    await settle()
    assert len(seen.chunks) == 1
    assert len(await seen.events()) == 5


async def test_watchers_with_the_same_question_get_the_same_bytes(bench: Bench):
    first, second = bench.watch(labels="x"), bench.watch(labels="x")
    await settle()
    bench.put("a", x="y")
    await settle()
    assert first.chunks[0] is second.chunks[0]


async def test_a_selector_turns_entering_and_leaving_into_added_and_deleted(bench: Bench):
    seen = bench.watch(labels="x=1")
    bench.put("a", x="0")
    bench.put("a", x="1", note="in")
    bench.put("a", x="1", note="still in")
    bench.put("a", x="2", note="out")
    bench.put("a", x="3")
    bench.remove("a")
    events = await seen.events()
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    gone = events[-1]["object"]["metadata"]
    assert gone["labels"]["note"] == "still in"
    assert int(gone["resourceVersion"]) == bench.store.revision - 2


async def test_a_deleted_object_that_matched_is_deleted_with_its_last_state(bench: Bench):
    bench.put("a", x="1")
    seen = bench.watch(labels="x=1")
    bench.remove("a")
    (event,) = await seen.events()
    assert event["type"] == "DELETED"
    assert event["object"]["metadata"]["resourceVersion"] == str(bench.store.revision)


async def test_a_namespace_sees_only_its_own(bench: Bench):
    seen = bench.watch(namespace="ns")
    bench.put("a", "other")
    bench.put("b", "ns")
    assert await seen.types() == [("ADDED", "b")]


async def test_initial_objects_come_first_and_end_with_an_annotated_bookmark(bench: Bench):
    bench.put("a")
    initial = tuple(bench.table.scan())
    seen = bench.watch(initial=initial, mark_initial_end=True, bookmarks=True)
    bench.put("b")
    events = await seen.events()
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK", "ADDED"]
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_bookmark_comes_about_every_minute_and_shortly_before_the_end(bench: Bench):
    seen = bench.watch(bookmarks=True, timeout=150)
    await settle()
    another = next(info for info in BUILTINS if info.kind.plural == "secrets")
    bench.store.put(bench.store.table(another.storage), "ns/x", {"metadata": {"name": "x"}})
    for expected in (1, 2):
        await bench.clock.advance(60)
        bookmarks = await seen.events()
        assert [event["type"] for event in bookmarks] == ["BOOKMARK"] * expected
    assert bookmarks[-1]["object"]["metadata"] == {"resourceVersion": str(bench.store.revision)}
    assert bookmarks[-1]["object"]["kind"] == "ConfigMap"
    await bench.clock.advance(28)
    assert len(await seen.events()) == 3
    await bench.clock.advance(2)
    await settle()
    assert seen.task.done()


class EarlyClock(VirtualClock):
    """Timers fire a little early, as those of an event loop may."""

    timers = 0

    def call_at(self, when: float, callback: Callable[[], object]) -> VirtualTimer:
        self.timers += 1
        assert self.timers < 20, "a timer that is due at once, again and again"
        return super().call_at(when - 1e-9, callback)


async def test_the_last_bookmark_is_sent_once_although_its_timer_fires_early():
    bench = Bench(EarlyClock())
    seen = bench.watch(bookmarks=True, timeout=150)
    await settle()
    await bench.clock.advance(149)
    assert len(await seen.events()) == 3
    await bench.clock.advance(1)
    await settle()
    assert seen.task.done()


async def test_without_asking_there_are_no_bookmarks(bench: Bench):
    seen = bench.watch(timeout=150)
    await settle()
    await bench.clock.advance(149)
    assert await seen.events() == []


async def test_a_watch_that_fell_behind_a_compaction_gets_410_and_ends(bench: Bench):
    bench.put("a")
    bench.put("b")
    bench.store.compact()
    seen = bench.watch(revision=2)
    (event,) = await seen.events()
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert seen.task.done()


async def test_a_compaction_does_not_disturb_a_watch_that_is_up_to_date(bench: Bench):
    seen = bench.watch()
    bench.put("a")
    await settle()
    bench.store.compact()
    bench.put("b")
    assert await seen.types() == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_watch_from_the_future_stays_silent_until_then(bench: Bench):
    seen = bench.watch(revision=bench.store.revision + 2)
    for name in "abc":
        bench.put(name)
    assert await seen.types() == [("ADDED", "c")]


async def test_metadata_watchers_see_metadata_only(bench: Bench):
    seen = bench.watch(metadata=True)
    bench.put("a")
    (event,) = await seen.events()
    assert event["object"]["kind"] == "PartialObjectMetadata"


async def test_closing_the_hub_ends_every_stream_and_leaves_nothing_behind(bench: Bench):
    seen = [bench.watch() for _ in range(3)]
    await settle()
    assert len(bench.hub.open) == 3
    bench.hub.close()
    await settle()
    assert all(item.task.done() for item in seen)
    assert not bench.hub.open
    assert bench.clock.pending == 0
