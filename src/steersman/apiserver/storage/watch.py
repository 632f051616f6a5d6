"""Watches: the log, followed from a revision on.

A watch is a position in a table's log. It sends what lies after the position and sleeps until the table changes; the
hub wakes every sleeper of a changed table once per turn of the event loop, so a burst of writes is one write to each
socket, and watchers with the same question share the bytes of the answer.
Invariant: the log itself is the buffer. A watch holds nothing but its position, so a slow client costs nothing, and
a client so slow that its position was compacted away is told so (410) instead of missing a change.

What a selector makes of a change: an object that enters it is ADDED, one that leaves it is DELETED (its last matching
state, under the new revision), whatever happened to it in the store.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from steersman.apiserver import status_errors
from steersman.apiserver.resources.conversion import prepare_versions
from steersman.apiserver.resources.conversion_webhook import with_conversions
from steersman.apiserver.status_errors import StatusError
from steersman.apiserver.storage.store import Record

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from steersman.apiserver.resources.conversion_webhook import Conversion, ConversionOutcome
    from steersman.apiserver.storage.representations import View
    from steersman.apiserver.storage.selection import Selection
    from steersman.apiserver.storage.store import ResourceTable, Store, StoreEvent
    from steersman.clock import Clock, Timer

_encode = msgspec.json.Encoder().encode
BOOKMARK_INTERVAL = 60.0  # seconds; about what the real server does
LAST_BOOKMARK = 2.0  # seconds before the end, so that the client can resume without a relist


class WatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the client asked for. `initial` are the objects to send first, at `revision`."""

    revision: int  # send what happened after it
    initial: tuple[Record, ...] = ()
    mark_initial_end: bool = False  # send the bookmark that ends the initial events
    bookmarks: bool = False
    timeout: float = 1800.0  # seconds on the clock until the server ends the stream


class WatchHub:
    """The watches that wait for a change, by table."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.open: set[Watch] = set()
        self._sleepers: dict[str, set[asyncio.Future[None]]] = {}
        self._changed: set[str] = set()
        self.convert: Callable[[list[Conversion]], Awaitable[list[ConversionOutcome]]] | None = None  # calls webhooks
        self._batches: dict[tuple[object, ...], bytes] = {}  # of this turn: same question, same answer
        store.listen(self._on_change)

    def _on_change(self, table: ResourceTable, event: StoreEvent) -> None:  # noqa: ARG002  the log has it already
        name = table.kind.qualified
        if name in self._changed or not self._sleepers.get(name):
            return
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._wake)
        self._changed.add(name)

    def _wake(self) -> None:
        self._batches.clear()
        for name in self._changed:
            sleepers = self._sleepers.pop(name, ())
            for sleeper in sleepers:
                if not sleeper.done():
                    sleeper.set_result(None)
        self._changed.clear()

    async def changed(self, watch: Watch) -> None:
        """Return once the watched table changed, or the watch has something else to do."""
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        watch.sleeper = sleeper
        sleepers = self._sleepers.setdefault(watch.table.kind.qualified, set())
        sleepers.add(sleeper)
        try:
            await sleeper
        finally:
            sleepers.discard(sleeper)
            watch.sleeper = None

    def batch(self, watch: Watch, events: list[StoreEvent]) -> bytes:
        """The lines of `events` as `watch` sees them."""
        if not watch.view.name:
            return watch.lines(events)
        question = (
            watch.table.kind.qualified,
            watch.view.name,
            watch.selection.label,
            events[0].revision,
            events[-1].revision,
        )
        found = self._batches.get(question)
        if found is None:
            found = self._batches[question] = watch.lines(events)
        return found

    def finish(self, table: ResourceTable) -> None:
        """End the watches of a table that is no longer served."""
        for watch in self.open:
            if watch.table is table:
                watch.finish()

    def close(self) -> None:
        """End every open watch."""
        for watch in list(self.open):
            watch.stop()


class Watch:
    """One open watch; `stream` gives the bytes to send."""

    def __init__(
        self, hub: WatchHub, table: ResourceTable, selection: Selection, view: View, options: WatchOptions
    ) -> None:
        self.table = table
        self.selection = selection
        self.view = view
        self.sleeper: asyncio.Future[None] | None = None
        self._hub = hub
        self._options = options
        self._position = options.revision
        self._stopped = False
        self._finishing = False
        self._bookmark_due = False
        self._nearly_over = False
        self._converts = view.info.converts

    async def stream(self) -> AsyncGenerator[bytes]:
        """Chunks of whole lines, until the timeout, `stop`, or a revision that is gone."""
        hub, clock, store = self._hub, self._hub.clock, self._hub.store
        hub.open.add(self)
        start = clock.monotonic()
        timers = [clock.call_at(start + self._options.timeout, self.stop)]
        if self._options.bookmarks:
            timers.append(self._schedule_bookmark(start))
        try:
            if first := await self._converted(self._first) if self._converts else self._first():
                yield first
            while not self._stopped:
                if self._position < store.compacted:
                    yield self._gone()
                    return
                seen = store.revision
                events = self.table.since(self._position)
                self._position = max(seen, self._position)  # a watch may start in the future
                if events and self._converts:
                    batch = await self._converted(partial(hub.batch, self, events))
                else:
                    batch = hub.batch(self, events) if events else b""
                if batch:
                    yield batch
                    continue
                if self._bookmark_due:
                    self._bookmark_due = False
                    timers.append(self._schedule_bookmark(start))
                    yield self.view.bookmark(self._position)
                    continue
                if self._finishing:
                    return
                await hub.changed(self)
        except StatusError as error:  # a webhook that does not convert
            yield _error(error)
        finally:
            hub.open.discard(self)
            for timer in timers:
                timer.cancel()

    async def _converted(self, encode: Callable[[], bytes]) -> bytes:
        """What `encode` makes, once a webhook has converted the objects in it."""
        ask = self._hub.convert
        assert ask is not None, "a server that serves conversion webhooks can call them"
        return await with_conversions(encode, ask)

    def stop(self) -> None:
        """End the stream after what is being sent."""
        self._stopped = True
        self._rouse()

    def finish(self) -> None:
        """End the stream after everything that has happened is sent."""
        self._finishing = True
        self._rouse()

    def lines(self, events: list[StoreEvent]) -> bytes:
        """What this watch says about `events`."""
        view = self.view
        if self._converts:
            matches = self.selection.matches
            prepare_versions(view.info, [event.record.obj for event in events if matches(event.record)])
        if self.selection.everything and not self.selection.namespace:
            return b"".join([view.line(event, event.type, event.record) for event in events])
        return b"".join([self._line(event) for event in events])

    def _line(self, event: StoreEvent) -> bytes:
        matches = self.selection.matches
        before = event.previous is not None and matches(event.previous)
        now = event.type != "DELETED" and matches(event.record)
        if now:
            return self.view.line(event, "MODIFIED" if before else "ADDED", event.record)
        if not before:
            return b""
        if event.type == "DELETED" or event.previous is None:
            return self.view.line(event, "DELETED", event.record)
        return self.view.line(event, "DELETED", event.previous.at(event.revision))

    def _first(self) -> bytes:
        if self._converts:
            prepare_versions(self.view.info, [record.obj for record in self._options.initial])
        parts = [self.view.event("ADDED", record) for record in self._options.initial]
        if self._options.mark_initial_end:
            parts.append(self.view.bookmark(self._options.revision, initial_events_end=True))
        return b"".join(parts)

    def _schedule_bookmark(self, start: float) -> Timer:
        now = self._hub.clock.monotonic()
        last = start + self._options.timeout - LAST_BOOKMARK
        when = now + BOOKMARK_INTERVAL
        if now < last < when and not self._nearly_over:  # once: a timer of an event loop may fire a little early
            when, self._nearly_over = last, True
        return self._hub.clock.call_at(when, self._want_bookmark)

    def _want_bookmark(self) -> None:
        self._bookmark_due = True
        self._rouse()

    def _rouse(self) -> None:
        if self.sleeper is not None and not self.sleeper.done():
            self.sleeper.set_result(None)

    def _gone(self) -> bytes:
        return _error(
            status_errors.expired(f"too old resource version: {self._position} ({self._hub.store.compacted})")
        )


def _error(error: StatusError) -> bytes:
    return _encode({"type": "ERROR", "object": error.status()}) + b"\n"
