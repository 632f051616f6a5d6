"""The reflector against a scripted server, on virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from steersman.cache.metrics import CacheMetrics
from steersman.cache.reflector import BOOKMARK_SECONDS, INITIAL_SILENCE, MISSED_BOOKMARKS, Reflector
from steersman.kube.api.errors import (
    ConnectionFailed,
    Forbidden,
    Invalid,
    KubeError,
    ResourceExpired,
    ResponseTooLarge,
    ServerError,
    TooManyRequests,
)
from steersman.kube.api.objects import ObjectMeta, Resource
from steersman.testing.clock import VirtualClock, settle


class Thing(Resource, group="example.org", version="v1"):
    note: str = ""


def thing(name: str, revision: int, note: str = "") -> Thing:
    meta = ObjectMeta(name=name, namespace="shop", uid=f"uid-{name}", resource_version=str(revision))
    return Thing(metadata=meta, note=note)


def added(name: str, revision: int) -> Any:
    return SimpleNamespace(type="ADDED", object=thing(name, revision), initial_events_end=False)


def deleted(name: str, revision: int) -> Any:
    return SimpleNamespace(type="DELETED", object=thing(name, revision), initial_events_end=False)


def bookmark(revision: int, *, end: bool = False) -> Any:
    return SimpleNamespace(type="BOOKMARK", object=thing("", revision), initial_events_end=end)


class Silence:
    """Nothing more comes, and nothing ends."""


class Played:
    """Events in batches of one, or as the script puts them together."""

    def __init__(self, events: Any) -> None:
        self._events = events

    async def batch(self) -> list[Any]:
        event = await anext(self._events, None)
        return [] if event is None else event if isinstance(event, list) else [event]


class Server:
    """Plays one script per request: items, then an error, silence or the end."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.requests: list[str] = []
        self.times: list[float] = []  # of the requests
        self.lists: list[Any] = []
        self.watches: list[list[Any]] = []

    async def pages(self, *, resource_version: str, limit: int, namespace: str | None = None):
        self.times.append(self.clock.monotonic())
        where = f" in {namespace}" if namespace else ""
        self.requests.append(f"list {resource_version!r} limit {limit}{where}")
        script = self.lists.pop(0)
        for page in script:
            if isinstance(page, KubeError):
                raise page
            revision, items = page
            yield SimpleNamespace(items=items, undecodable=[], resource_version=revision)

    @contextlib.asynccontextmanager
    async def watch(self, *, resource_version: str, timeout_seconds: int, send_initial_events: bool):
        self.times.append(self.clock.monotonic())
        self.requests.append(f"{'stream' if send_initial_events else 'watch'} {resource_version!r}")
        self.timeout_seconds = timeout_seconds
        script = self.watches.pop(0) if self.watches else [Silence]
        if script and isinstance(script[0], KubeError):
            raise script[0]
        yield Played(self._play(script))

    async def _play(self, script: list[Any]):
        for event in script:
            if isinstance(event, KubeError):
                raise event
            if event is Silence:
                await asyncio.Event().wait()
            if isinstance(event, float):
                await self.clock.sleep(event)
                continue
            yield event


class Memory:
    """A sink that keeps a diary."""

    def __init__(self) -> None:
        self.diary: list[str] = []
        self.objects: dict[str, Thing] = {}

    async def replace(self, objects, revision, keep, *, namespace=None) -> None:
        found = {o.name: o for o in objects}
        self.objects = found if namespace is None else {**self.objects, **found}
        self.diary.append(f"replace {sorted(found)} at {revision}{f' in {namespace}' if namespace else ''}")

    def upsert(self, objects) -> None:
        for obj in objects:
            self.objects[obj.name] = obj
            self.diary.append(f"upsert {obj.name} at {obj.metadata.resource_version}")

    def remove(self, obj) -> None:
        self.objects.pop(obj.name, None)
        self.diary.append(f"remove {obj.name} at {obj.metadata.resource_version}")

    def reached(self, revision) -> None:
        pass

    def progress(self, revision) -> None:
        self.diary.append(f"progress {revision}")


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def server(clock):
    return Server(clock)


@pytest.fixture
def sink():
    return Memory()


@pytest.fixture
async def start(clock, server, sink):
    tasks = []

    async def begin(*, streaming: bool = True, **options) -> Reflector[Thing]:
        metrics = CacheMetrics(CollectorRegistry()).reflector("things")
        reflector: Reflector[Thing] = Reflector(
            server,
            sink,
            name="things",
            metrics=metrics,
            random=random.Random(1),
            clock=clock,
            streaming=streaming,
            **options,
        )
        tasks.append(asyncio.create_task(reflector.run()))
        await settle()
        return reflector

    yield begin
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(r, asyncio.CancelledError) for r in results), results


# -- streaming the initial state -------------------------------------------------------------------------------------


async def test_the_store_is_replaced_in_one_piece_when_the_initial_events_are_complete(server, sink, start):
    server.watches = [[added("a", 3), added("b", 2), Silence]]
    reflector = await start()
    assert sink.diary == []
    assert not reflector.status.synced


async def test_a_stream_goes_on_as_a_watch_on_the_same_connection(server, sink, start):
    server.watches = [[added("a", 3), added("b", 2), bookmark(7, end=True), added("c", 8), Silence]]
    reflector = await start()
    assert sink.diary == ["replace ['a', 'b'] at 7", "upsert c at 8"]
    assert reflector.status.synced
    assert reflector.status.phase == "watching"
    assert server.requests == ["stream ''"]


async def test_updates_and_deletions_before_the_end_of_the_initial_events_are_part_of_them(server, sink, start):
    server.watches = [[added("a", 3), added("b", 2), deleted("a", 5), added("b", 6), bookmark(7, end=True), Silence]]
    await start()
    assert sink.diary == ["replace ['b'] at 7"]
    assert sink.objects["b"].metadata.resource_version == "6"


async def test_an_ordinary_bookmark_does_not_end_the_initial_events(server, sink, start):
    server.watches = [[added("a", 3), bookmark(7), Silence]]
    reflector = await start()
    assert not reflector.status.synced
    assert sink.diary == []


async def test_a_server_without_streaming_is_listed(server, sink, start):
    server.watches = [[Invalid("sendInitialEvents: Forbidden")], [Silence]]
    server.lists = [[("4", [thing("a", 1)])]]
    await start()
    assert server.requests == ["stream ''", "list '' limit 500", "watch '4'"]
    assert sink.diary == ["replace ['a'] at 4"]


async def test_a_server_that_never_ends_the_initial_events_is_listed(server, sink, start, clock):
    """It takes the parameter and knows nothing of it: what comes is an ordinary watch, with ordinary bookmarks."""
    server.watches = [[added("a", 3), 20.0, added("a", 4), Silence], [Silence]]
    server.lists = [[("5", [thing("a", 4), thing("b", 1)])]]
    reflector = await start()
    await clock.advance(20 + INITIAL_SILENCE - 1)
    assert server.requests == ["stream ''"]
    await clock.advance(2)
    assert sink.diary == ["replace ['a', 'b'] at 5"]
    assert [request.split()[0] for request in server.requests] == ["stream", "list", "watch"]
    assert reflector.status.synced
    await clock.advance(60)
    assert len(server.requests) == 3, "the watch that follows is as patient as any"


@pytest.mark.parametrize("streams", [[[added("a", 3)]] * 5, [[added("a", 3), 25.0] * 3]], ids=["often", "long"])
async def test_streams_that_end_in_order_before_they_are_complete_are_followed_by_a_list(
    server, sink, start, clock, streams
):
    server.watches = [*streams, [ResourceExpired("too old")], [added("a", 3), bookmark(9, end=True), Silence]]
    server.lists = [[("5", [thing("a", 4)])]]
    await start()
    await clock.advance(150)
    assert sink.diary[0] == "replace ['a'] at 5"
    asked = [request.split()[0] for request in server.requests]
    assert asked[: len(streams) + 2] == ["stream"] * len(streams) + ["list", "watch"]
    assert asked[-1] == "stream", "a server may have had a bad moment: the next complete picture is a stream again"


async def test_a_stream_that_is_complete_is_as_patient_as_any_watch(server, start, clock):
    server.watches = [[added("a", 3), bookmark(7, end=True), Silence]]
    await start()
    await clock.advance(BOOKMARK_SECONDS * MISSED_BOOKMARKS)
    assert len(server.requests) == 1


async def test_a_stream_cut_before_it_was_complete_starts_over_and_shows_nothing_half(server, sink, start, clock):
    server.watches = [[added("a", 3), ConnectionFailed("cut")], [added("b", 5), bookmark(6, end=True), Silence]]
    await start()
    assert sink.diary == []
    await clock.advance(2)
    assert sink.diary == ["replace ['b'] at 6"]
    assert server.requests == ["stream ''", "stream ''"]


# -- listing ---------------------------------------------------------------------------------------------------------


async def test_on_a_server_that_lags_behind_a_process_that_starts_sees_what_its_predecessor_saw(server, sink, start):
    """Such a server answers "0" with an old state, "" with the most recent one, and holds its watches."""
    server.lists = [[("9", [thing("a", 9)])]]
    old, answer = [("4", [thing("a", 4)])], server.pages

    async def pages(*, resource_version, limit, namespace=None):
        if resource_version == "0":
            server.lists = [old]
        async for page in answer(resource_version=resource_version, limit=limit):
            yield page

    server.pages = pages
    await start(streaming=False)
    assert sink.objects["a"].metadata.resource_version == "9"
    assert server.requests[-1] == "watch '9'"


async def test_all_pages_make_one_replacement(server, sink, start):
    server.lists = [[("4", [thing("a", 1)]), ("4", [thing("b", 2)])]]
    await start(streaming=False)
    assert sink.diary == ["replace ['a', 'b'] at 4"]
    assert server.requests == ["list '' limit 500", "watch '4'"]


async def test_pages_that_expire_are_answered_by_one_list_of_everything_at_its_most_recent(server, sink, start):
    server.lists = [[("4", [thing("a", 1)]), ResourceExpired("continue token expired")], [("9", [thing("b", 2)])]]
    await start(streaming=False)
    assert sink.diary == ["replace ['b'] at 9"]
    assert server.requests[:2] == ["list '' limit 500", "list '' limit 0"]


async def test_a_collection_larger_than_an_answer_may_be_comes_in_pages(server, sink, start):
    server.lists = [[ResponseTooLarge("x")], [("9", [thing("a", 1)]), ("9", [thing("b", 2)])]]
    await start(streaming=False)
    assert sink.diary == ["replace ['a', 'b'] at 9"]
    assert server.requests[:2] == ["list '' limit 500", "list '' limit 500"]


async def test_an_expired_watch_relists_and_what_vanished_is_gone(server, sink, start):
    server.lists = [[("4", [thing("a", 1), thing("b", 2)])], [("20", [thing("b", 2)])]]
    server.watches = [[added("c", 10), ResourceExpired("too old")], [Silence]]
    await start(streaming=False)
    assert server.requests == ["list '' limit 500", "watch '4'", "list '10' limit 0", "watch '20'"]
    assert sorted(sink.objects) == ["b"]


# -- watching --------------------------------------------------------------------------------------------------------


async def test_bookmarks_move_the_resource_version_that_a_new_watch_starts_from(server, sink, start):
    server.lists = [[("4", [])]]
    server.watches = [[bookmark(50)], [Silence]]
    await start(streaming=False)
    assert server.requests[-1] == "watch '50'"
    assert sink.diary == ["replace [] at 4", "progress 50"]


async def test_a_429_does_not_relist(server, sink, start, clock):
    server.lists = [[("4", [])]]
    server.watches = [[TooManyRequests("busy", retry_after=3)], [TooManyRequests("busy")], [Silence]]
    await start(streaming=False)
    await clock.advance(60)
    assert server.requests == ["list '' limit 500", "watch '4'", "watch '4'", "watch '4'"]


async def test_an_unreachable_server_is_asked_every_few_seconds(server, start, clock):
    server.lists = [[ConnectionFailed("refused")] for _ in range(100)]
    await start(streaming=False)
    await clock.advance(600)
    assert 60 < len(server.requests) < 90


async def test_after_a_restart_of_the_server_its_410_is_followed_by_a_list_at_once(server, sink, start, clock):
    away = [[ConnectionFailed("refused")]] * 6
    server.lists = [[("7", [])], [("40", [thing("a", 39)])]]
    server.watches = [[bookmark(8)], *away, [bookmark(9), ResourceExpired("too old", code=410)], [Silence]]
    await start(streaming=False)
    await clock.advance(60)
    assert server.requests[-3:] == ["watch '8'", "list '9' limit 0", "watch '40'"]
    assert len(set(server.times[-3:])) == 1
    assert sink.diary[-1] == "replace ['a'] at 40"


async def test_a_failure_shows_in_the_status_and_goes_when_the_source_works_again(server, start, clock):
    server.lists = [[ConnectionFailed("refused")], [("4", [])]]
    reflector = await start(streaming=False)
    assert "refused" in str(reflector.status.error)
    await clock.advance(3)
    assert reflector.status.error is None
    assert reflector.status.synced


async def test_a_silent_connection_is_replaced_when_the_watch_is_over_and_no_end_was_sent(server, start, clock):
    server.lists = [[("4", [])]]
    server.watches = [[Silence], [Silence]]
    await start(streaming=False)
    await clock.advance(server.timeout_seconds + 4)
    assert len(server.requests) == 2
    await clock.advance(2)
    assert server.requests[-2:] == ["watch '4'", "watch '4'"]


async def test_three_missed_bookmarks_mean_a_dead_connection(server, start, clock):
    server.lists = [[("4", [])]]
    server.watches = [[60.0, bookmark(5), 60.0, bookmark(6), Silence], [Silence]]
    await start(streaming=False)
    await clock.advance(120 + 184)
    assert server.requests[-1] == "watch '4'"
    await clock.advance(2)
    assert server.requests[-1] == "watch '6'"


async def test_a_stopped_reflector_goes_on_where_it_was(server, sink, clock):
    server.lists = [[("4", [])]]
    server.watches = [[added("a", 9), Silence], [Silence]]
    metrics = CacheMetrics(CollectorRegistry()).reflector("things")
    reflector: Reflector[Thing] = Reflector(
        server, sink, name="things", metrics=metrics, random=random.Random(1), clock=clock, streaming=False
    )
    for _ in range(2):
        task = asyncio.create_task(reflector.run())
        await settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert server.requests == ["list '' limit 500", "watch '4'", "watch '9'"]


async def test_a_watch_is_asked_to_end_at_a_random_moment(server, start, clock):
    server.lists = [[("4", [])]]
    seen = set()
    await start(streaming=False)
    for _ in range(5):
        assert 240 <= server.timeout_seconds < 480
        seen.add(server.timeout_seconds)
        await clock.advance(server.timeout_seconds + 6)
    assert len(seen) > 1


async def test_what_a_projection_drops_is_not_stored_and_what_it_cannot_read_is_kept_by_name(server, start):
    class Keeping(Memory):
        async def replace(self, objects, revision, keep, *, namespace=None) -> None:
            await super().replace(objects, revision, keep)
            self.kept = keep

    sink = Keeping()
    server.lists = [[("4", [thing("good", 1, "long"), thing("bad", 2)])]]
    metrics = CacheMetrics(CollectorRegistry()).reflector("things")
    reflector: Reflector[Thing] = Reflector(
        server,
        sink,
        name="things",
        metrics=metrics,
        random=random.Random(1),
        project=lambda objects: [None if obj.name == "bad" else thing(obj.name, 1) for obj in objects],
        clock=VirtualClock(),
        streaming=False,
    )
    task = asyncio.create_task(reflector.run())
    await settle()
    assert sink.objects["good"].note == ""
    assert {str(ref) for ref in sink.kept} == {"shop/bad"}
    task.cancel()


async def test_a_source_that_works_again_says_so_although_nothing_happens(server, start, clock):
    server.lists = [[("4", [])]]
    server.watches = [[5.0, ConnectionFailed("cut")], [Silence]]
    reflector = await start(streaming=False)
    await clock.advance(5)
    assert "cut" in str(reflector.status.error)
    await clock.advance(5)
    assert server.requests[-2:] == ["watch '4'", "watch '4'"]
    assert reflector.status.error is None


async def test_a_watch_that_breaks_as_soon_as_it_is_open_is_not_taken_for_recovered(server, start, clock):
    server.lists = [[("4", [])] for _ in range(20)]
    server.watches = [[0.5, ConnectionFailed("cut")] for _ in range(60)]
    reflector = await start(streaming=False)
    await clock.advance(0.5)
    while len(server.requests) < 5:  # later the revision itself is doubted, and listed anew
        assert "cut" in str(reflector.status.error)
        await clock.advance(0.5)


@pytest.mark.parametrize("stopped_at", ["4", "20"])
async def test_a_second_run_never_goes_back_behind_what_was_shown(server, clock, stopped_at):
    class Telling(Memory):
        async def replace(self, objects, revision, keep, *, namespace=None) -> None:
            await super().replace(objects, revision, keep)
            if revision == stopped_at:
                await asyncio.Event().wait()  # handlers are being told

    server.lists = [[("4", [])], [("20", [])]]
    server.watches = [] if stopped_at == "4" else [[ResourceExpired("too old", code=410)], [Silence]]
    metrics = CacheMetrics(CollectorRegistry()).reflector("things")
    reflector: Reflector[Thing] = Reflector(
        server, Telling(), name="things", metrics=metrics, random=random.Random(1), clock=clock, streaming=False
    )
    for seconds in (60, 1):
        task = asyncio.create_task(reflector.run())
        await clock.advance(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert server.requests[-1] == f"watch '{stopped_at}'"


async def test_events_are_counted_when_they_come(server, sink, clock):
    server.lists = [[("4", [])]]
    server.watches = [[added("a", 5), [added("b", 6), added("c", 7)], Silence]]
    registry = CollectorRegistry()
    reflector: Reflector[Thing] = Reflector(
        server,
        sink,
        name="things",
        metrics=CacheMetrics(registry).reflector("things"),
        random=random.Random(1),
        clock=clock,
        streaming=False,
    )
    task = asyncio.create_task(reflector.run())
    await settle()
    assert registry.get_sample_value("steersman_cache_watch_events_total", {"cluster": "", "source": "things"}) == 3
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_source_that_may_list_but_not_watch_says_so_once(server, start, clock):
    server.lists = [[("4", [])] for _ in range(500)]
    server.watches = [[Forbidden("cannot watch", code=403)] for _ in range(500)]
    with capture_logs() as lines:
        reflector = await start()
        await clock.advance(3600)
        server.watches = []
        await clock.advance(60)
    assert len(server.requests) > 100
    assert [line["log_level"] for line in lines] == ["error", "info"]  # and at last, that it works
    assert reflector.status.error is None


@pytest.fixture
async def listing(server, start):
    """A reflector that may list and not watch, and waits for its next list."""
    server.lists = [[("4", [thing("a", 1)])]]
    server.watches = [[Forbidden("cannot watch", code=403)] for _ in range(100)]
    reflector = await start()
    assert server.requests[-1] == "watch '4'"
    server.requests.clear()
    return reflector


async def test_where_lists_stand_in_for_a_watch_a_refresh_lists_its_namespace_at_once(server, sink, clock, listing):
    server.lists = [[("7", [thing("b", 6)])]]
    now = clock.monotonic()
    listing.refresh("shop")
    await settle()
    assert server.requests == ["list '' limit 500 in shop"]
    assert clock.monotonic() == now
    assert sink.diary[-1] == "replace ['b'] at 7 in shop"
    server.lists = [[("9", [])] for _ in range(30)]
    await clock.advance(30)
    assert server.requests[1] == "list '4' limit 0"  # the complete list goes on from where it was


async def test_refreshes_that_come_together_are_one_list_and_those_that_come_meanwhile_another(server, clock, listing):
    server.lists = [[("7", [])], [("8", [])]]
    for _ in range(50):
        listing.refresh("shop")
    await settle()
    for _ in range(50):
        listing.refresh("shop")
    await settle()
    assert len(server.requests) == 1
    await clock.advance(0.5)
    assert server.requests == ["list '' limit 500 in shop"] * 2


async def test_a_refresh_of_many_namespaces_is_one_complete_list(server, sink, listing):
    server.lists = [[("7", [thing("b", 6)])]]
    for number in range(20):
        listing.refresh(f"shop-{number}")
    await settle()
    assert server.requests == ["list '' limit 500"]
    assert sink.diary[-1] == "replace ['b'] at 7"


async def test_a_refresh_that_fails_waits_for_its_turn_and_is_repeated(server, sink, clock, listing):
    server.lists = [
        [ConnectionFailed("cut")],
        [("9", [])],
        [("10", [thing("b", 6)])],
        *([("11", [])] for _ in range(9)),
    ]
    listing.refresh("shop")
    await settle()
    assert server.requests == ["list '' limit 500 in shop"]
    await clock.advance(60)
    assert server.requests[1:4] == ["list '4' limit 0", "watch '9'", "list '' limit 500 in shop"]
    assert "replace ['b'] at 10 in shop" in sink.diary


async def test_where_a_watch_delivers_a_refresh_costs_nothing(server, clock, start):
    server.lists = [[("4", [])]]
    reflector = await start(streaming=False)
    before = list(server.requests)
    reflector.refresh("shop")
    await clock.advance(10)
    assert server.requests == before
    assert not reflector.is_listing_only


async def test_a_reflector_stopped_before_it_began_asks_for_nothing(server, sink, clock):
    metrics = CacheMetrics(CollectorRegistry()).reflector("things")
    reflector: Reflector[Thing] = Reflector(
        server, sink, name="things", metrics=metrics, random=random.Random(1), clock=clock
    )
    task = asyncio.create_task(reflector.run())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (server.requests, sink.diary) == ([], [])


async def test_whatever_fails_on_the_way_the_store_is_right_in_the_end(server, sink, start, clock):
    server.lists = [[ConnectionFailed("refused")], [("4", [thing("a", 1), thing("b", 2)])], [("30", [thing("b", 25)])]]
    server.watches = [
        [added("c", 10), ConnectionFailed("cut")],
        [TooManyRequests("busy")],
        [deleted("a", 12), added("d", 13), ResourceExpired("too old")],
        [added("e", 31), Silence],
    ]
    await start(streaming=False)
    await clock.advance(120)
    assert sorted(sink.objects) == ["b", "e"]
    assert sink.objects["b"].metadata.resource_version == "25"


async def test_an_object_the_server_lost_unsafely_is_gone_after_the_stream_broke_on_it(server, sink, start, clock):
    lost = ServerError("object could not be read from storage", reason="StoreReadError", code=500)
    server.lists = [[("4", [thing("a", 1), thing("corrupt", 2)])], [("20", [thing("a", 1)])]]
    server.watches = [*([lost] for _ in range(6)), [Silence]]
    await start(streaming=False)
    await clock.advance(600)
    assert server.requests[-1] == "watch '20'"
    assert sorted(sink.objects) == ["a"]


async def test_a_stream_that_is_refused_for_now_is_asked_for_again_as_a_stream(server, sink, start, clock):
    server.watches = [[TooManyRequests("busy", retry_after=1)], [added("a", 3), bookmark(7, end=True), Silence]]
    await start()
    await clock.advance(10)
    assert server.requests == ["stream ''", "stream ''"]
    assert sink.diary == ["replace ['a'] at 7"]


async def test_nothing_more_is_read_while_the_sink_is_still_busy(server, start):
    busy, read = asyncio.Event(), []

    class Slow(Memory):
        async def replace(self, objects, revision, keep, *, namespace=None) -> None:
            await busy.wait()

    async def play(script):
        for event in script:
            read.append(event.object.name)
            yield event

    server._play = play
    server.watches = [[added("a", 3), bookmark(7, end=True), added("b", 8)], [Silence]]
    metrics = CacheMetrics(CollectorRegistry()).reflector("things")
    reflector: Reflector[Thing] = Reflector(
        server, Slow(), name="things", metrics=metrics, random=random.Random(1), clock=server.clock
    )
    task = asyncio.create_task(reflector.run())
    await settle()
    assert read == ["a", ""]
    busy.set()
    await settle()
    assert read == ["a", "", "b"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


# -- events that came together ---------------------------------------------------------------------------------------


async def test_events_arrive_together_and_are_delivered_in_their_order_whatever_they_are(server, sink, start):
    together = [added("a", 8), added("b", 9), deleted("a", 10), bookmark(11), added("a", 12)]
    server.watches = [[bookmark(7, end=True), together, Silence]]
    reflector = await start()
    assert sink.diary == [
        "replace [] at 7",
        "upsert a at 8",
        "upsert b at 9",
        "remove a at 10",
        "progress 11",
        "upsert a at 12",
    ]
    assert reflector.status.revision == "12"


async def test_the_end_of_the_initial_state_in_the_middle_of_a_batch_splits_it(server, sink, start):
    together = [added("a", 3), added("b", 2), deleted("b", 4), bookmark(7, end=True), added("c", 8), deleted("a", 9)]
    server.watches = [[together, Silence]]
    reflector = await start()
    assert sink.diary == ["replace ['a'] at 7", "upsert c at 8", "remove a at 9"]
    assert reflector.status.revision == "9"


async def test_after_a_batch_that_was_delivered_a_410_lists_from_its_last_resource_version(server, sink, start, clock):
    server.watches = [[bookmark(7, end=True), [added("a", 8), added("b", 9)], ResourceExpired("too old")], [Silence]]
    await start()
    await clock.advance(1)
    assert sink.diary[-2:] == ["upsert a at 8", "upsert b at 9"]
    assert server.requests[-1] == "stream '9'"


async def test_a_batch_whose_last_event_is_a_bookmark_is_watched_from_there_again(server, sink, start, clock):
    server.watches = [[bookmark(7, end=True), [added("a", 8), bookmark(20)]], [Silence]]
    await start()
    await clock.advance(1)
    assert server.requests[-1] == "watch '20'"


async def test_objects_as_they_came_are_let_go_once_they_are_delivered(sink, start, server):
    """They hold values of Secrets, of which a projection keeps digests; the next event may be hours away."""
    came = []

    class Came(SimpleNamespace):
        """Of a class of its own, it can be referred to weakly."""

    def remembered(thing):
        came.append(weakref.ref(thing))
        return thing

    async def pages(**_):
        yield remembered(Came(items=[thing("a", 1)], undecodable=[], resource_version="4"))

    class Watched:
        told = False

        async def batch(self):
            if self.told:
                await asyncio.Event().wait()
            self.told = True
            return [remembered(Came(type="ADDED", object=thing("b", 5), initial_events_end=False))]

    @contextlib.asynccontextmanager
    async def watch(**_):
        yield Watched()

    server.pages, server.watch = pages, watch
    await start(streaming=False)
    gc.collect()
    assert sorted(sink.objects) == ["a", "b"]
    assert [ref() for ref in came] == [None, None]
