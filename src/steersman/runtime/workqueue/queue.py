"""The work queue: which key to reconcile next.

A key is *dirty* while something may have changed since its last run began, and *processing* while a worker holds it.

    add ──► dirty ──due──► ready ──get──► processing ──done──► (dirty again? ready : forgotten)

Invariants:
1. A key is ready exactly when it is dirty, not processing, and due. So no change is lost, and none is processed twice
   at once.
2. One request stands for many: adding a dirty key keeps the higher priority and the earlier time, and never makes it
   wait again once it is ready.
3. Debouncing restarts the wait with every request, but never beyond `limit_seconds` after the first of them.
4. A key leaves the ready keys only in the step that returns it from `get`; a cancelled `get` takes nothing.
5. After `close` nothing is added; what was ready, or became dirty while processing, is still handed out; what was
   waiting for its time is dropped. `get` raises `QueueClosed` when nothing is left.

There is one timer, whatever the number of waiting keys. Nothing here knows what a key means; nothing here does I/O. It
belongs to one event loop and takes no locks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from heapq import heapify, heappop, heappush
from itertools import count, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import SteersmanError
from steersman.runtime.observability.histogram import QUEUE_BUCKETS, Histogram
from steersman.runtime.workqueue.rate_limiters import ExponentialBackoff
from steersman.runtime.workqueue.ready_queue import INFINITY, QueueEntry, ReadyQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from steersman.clock import Clock, Timer
    from steersman.runtime.workqueue.rate_limiters import RateLimiter

__all__ = ["LOW_PRIORITY", "MAX_DELAY", "Debounce", "QueueClosed", "WorkQueue"]

LOW_PRIORITY = -100  # the first list and resyncs, which real changes overtake
MAX_DELAY = 180 * 86400.0  # timers cannot count for ever; half a year is far enough

K = TypeVar("K", bound="Hashable")


class QueueClosed(SteersmanError):  # noqa: N818  a state, not a fault
    """The queue is closed and has nothing left to hand out."""


class Debounce(msgspec.Struct, frozen=True, kw_only=True):
    """Wait until a key is still for `quiet_seconds`, but never longer than `limit_seconds` after its first change."""

    quiet_seconds: float
    limit_seconds: float

    def __post_init__(self) -> None:
        if not 0 < self.quiet_seconds <= self.limit_seconds:
            raise ValueError("a debounce needs 0 < quiet_seconds <= limit_seconds")


class WorkQueue(Generic[K]):
    """A keyed queue with priorities, delays, debouncing, fairness and backoff.

    queue.add(key)
    key = await queue.get()
    try:
        ...
    finally:
        queue.done(key)
    """

    def __init__(
        self,
        *,
        name: str = "",
        limiter: RateLimiter[K] | None = None,
        debounce: Debounce | None = None,
        partition: Callable[[K], Hashable] | None = None,
        patience_seconds: float | None = 30.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`partition` names the group a key shares its turn with: by default the namespace of the key."""
        self.name = name
        self._limiter: RateLimiter[K] = limiter or ExponentialBackoff()
        self._debounce = debounce
        self._partition = partition or _namespace
        self._clock = clock
        self._dirty: dict[K, QueueEntry[K]] = {}
        self._processing: dict[K, tuple[int, float, float]] = {}  # key -> (priority, since when, ready since)
        self._ready: ReadyQueue[K] = ReadyQueue(patience_seconds=patience_seconds)
        self._heap: list[tuple[float, int]] = []  # tickets by time; those that no entry holds are skipped
        self._waiting: dict[tuple[float, int], QueueEntry[K]] = {}  # ticket -> the entry that holds it
        self._sequence = count()
        self._timer: Timer | None = None
        self._timer_at = INFINITY
        self._getters: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self.adds = 0
        self.retries = 0
        self.queue_seconds = Histogram(QUEUE_BUCKETS)  # from ready to processing
        self.work_seconds = Histogram(QUEUE_BUCKETS)  # from processing to done

    # -- asking for work -------------------------------------------------------------------------------------------

    def add(self, key: K, *, priority: int = 0, after: float | None = None) -> None:
        """Run `key` once more: `after` that many seconds, or as soon as the queue's debounce allows."""
        if self._closed:
            return
        entry = self._dirty.get(key)
        if entry is None:
            entry = self._dirty[key] = QueueEntry(key, priority)
            self.adds += 1
        elif priority > entry.priority:
            if entry.lane is None:
                entry.priority = priority
            else:
                self._ready.promote(entry, priority)
        if entry.lane is None:
            self._schedule(entry, after)

    def add_rate_limited(
        self, key: K, *, priority: int | None = None, after: float | None = None, at_least: float = 0.0
    ) -> float:
        """Run `key` again after its backoff, or `after` if that is sooner; returns the delay.

        `at_least` is the Retry-After of a server. A key that is being processed keeps its priority.
        """
        if priority is None:
            priority = self._processing[key][0] if key in self._processing else 0
        delay = self._limiter.when(key)
        if after is not None:
            delay = min(delay, after)
        delay = max(delay, at_least)
        if not self._closed:
            self.retries += 1
            self.add(key, priority=priority, after=delay)
        return delay

    def forget(self, key: K) -> None:
        """The key did not fail: its next failure is its first."""
        self._limiter.forget(key)

    def retain(self, keep: Callable[[K], bool]) -> None:
        """Let go of every key for which `keep` does not hold, as if it had never been added; what runs, runs on."""
        for key, entry in [
            item for item in self._dirty.items() if item[0] not in self._processing and not keep(item[0])
        ]:
            if entry.lane is not None:
                self._ready.remove(entry)
            self._drop(entry)
            self._limiter.forget(key)

    def num_requeues(self, key: K) -> int:
        """How often the key failed in a row."""
        return self._limiter.num_requeues(key)

    # -- doing it --------------------------------------------------------------------------------------------------

    async def get(self) -> K:
        """The next key, as soon as there is one; it is processing until `done`. Raises `QueueClosed` at the end."""
        while True:
            entry = self._take()
            if entry is not None:
                return entry.key
            if self._closed and not self._dirty:
                raise QueueClosed(f"queue {self.name!r} is closed and empty")
            getter = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except BaseException:
                with suppress(ValueError):
                    self._getters.remove(getter)
                if getter.done() and not getter.cancelled():
                    self._wake_getter()  # we were called but leave: the next one goes
                raise

    def priority(self, key: K) -> int:
        """The priority with which a key that is processing was handed out."""
        return self._processing[key][0]

    def queued_seconds(self, key: K) -> float:
        """How long a key that is processing was ready before it was handed out."""
        _, since, ready = self._processing[key]
        return since - ready

    def done(self, key: K) -> None:
        """The run of `key` is over. If it became dirty meanwhile, it is ready again (or waits for its time)."""
        try:
            _, since, _ = self._processing.pop(key)
        except KeyError:
            raise ValueError(f"{key} is not processing: done() without get(), or twice") from None
        now = self._clock.monotonic()
        self.work_seconds.observe(now - since)
        entry = self._dirty.get(key)
        if entry is not None:
            if entry.due <= now:
                self._make_ready(entry, now)
            elif self._closed:
                self._drop(entry)
            else:
                self._wait(entry)
        if self._closed:
            self._release_getters()

    # -- ending ----------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self, *, drop: bool = False) -> None:
        """Accept nothing more. What is ready is still handed out, unless `drop`; then `get` raises `QueueClosed`."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_at = None, INFINITY
        for entry in list(self._waiting.values()):
            self._drop(entry)
        self._heap.clear()
        if drop:
            self._ready.clear()
            self._dirty.clear()
        self._release_getters()

    # -- looking ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many keys are ready; those that are processing or wait for their time do not count."""
        return len(self._ready)

    @property
    def dirty(self) -> int:
        """How many keys are to run, now or later."""
        return len(self._dirty)

    def depths(self) -> dict[int, int]:
        """Ready keys by priority."""
        return self._ready.depths()

    @property
    def processing(self) -> int:
        """How many keys are being worked on."""
        return len(self._processing)

    def processing_keys(self) -> list[K]:
        """The keys being worked on."""
        return list(self._processing)

    def processing_seconds(self) -> list[float]:
        """How long each key has been processing."""
        now = self._clock.monotonic()
        return [now - since for _, since, _ in self._processing.values()]

    def describe(self, limit: int = 100) -> dict[str, Any]:
        """The state of the queue for a person: at most `limit` keys of each sort."""
        now = self._clock.monotonic()
        waiting = sorted(self._waiting.items(), key=itemgetter(0))
        return {
            "name": self.name,
            "closed": self._closed,
            "counts": {"ready": len(self._ready), "waiting": len(waiting), "running": len(self._processing)},
            "ready": [
                {"key": str(entry.key), "priority": entry.priority, "forSeconds": now - entry.since}
                for entry in islice(self._ready, limit)
            ],
            "waiting": [
                {
                    "key": str(entry.key),
                    "priority": entry.priority,
                    "inSeconds": at - now,
                    "failures": self.num_requeues(entry.key),
                }
                for (at, _), entry in waiting[:limit]
            ],
            "running": [
                {"key": str(key), "priority": priority, "forSeconds": now - since, "dirty": key in self._dirty}
                for key, (priority, since, _) in islice(self._processing.items(), limit)
            ],
        }

    # -- the machinery ---------------------------------------------------------------------------------------------

    def _schedule(self, entry: QueueEntry[K], after: float | None) -> None:
        """Make earlier (or, debouncing, later) the time of an entry that is not ready, and act on it."""
        now = self._clock.monotonic()
        if after is None and (debounce := self._debounce) is not None:
            if entry.asked is None:
                entry.asked = now
            entry.quiet = min(now + debounce.quiet_seconds, entry.asked + debounce.limit_seconds)
        else:
            entry.at = min(entry.at, now + min(after, MAX_DELAY) if after and after > 0 else now)
        entry.due = min(entry.at, entry.quiet)
        if entry.key in self._processing:
            return  # `done` will see to it
        if entry.due <= now:
            self._make_ready(entry, now)
        else:
            self._wait(entry)

    def _make_ready(self, entry: QueueEntry[K], now: float) -> None:
        if entry.ticket is not None:
            del self._waiting[entry.ticket]
            entry.ticket = None
        self._ready.append(entry, self._partition(entry.key), now)
        self._wake_getter()

    def _take(self) -> QueueEntry[K] | None:
        now = self._clock.monotonic()
        if self._heap and self._heap[0][0] <= now:
            self._release(now)
        entry = self._ready.pop(now)
        if entry is not None:
            key = entry.key
            del self._dirty[key]
            self._processing[key] = (entry.priority, now, entry.since)
            self.queue_seconds.observe(now - entry.since)
            if self._closed:
                self._release_getters()
        return entry

    def _drop(self, entry: QueueEntry[K]) -> None:
        if entry.ticket is not None:
            del self._waiting[entry.ticket]
        del self._dirty[entry.key]

    def _wait(self, entry: QueueEntry[K]) -> None:
        """Let `entry` wait for its time. A ticket for an earlier time is kept: it is checked when that time comes."""
        ticket = entry.ticket
        if ticket is not None:
            if ticket[0] <= entry.due:
                return
            del self._waiting[ticket]
        ticket = entry.ticket = (entry.due, next(self._sequence))
        self._waiting[ticket] = entry
        heappush(self._heap, ticket)
        if len(self._heap) > 2 * len(self._waiting) + 64:
            self._heap = list(self._waiting)
            heapify(self._heap)
        if entry.due < self._timer_at:
            self._arm(entry.due)

    def _release(self, now: float) -> None:
        """Make ready whose time has come, in the order of their times."""
        while self._heap and self._heap[0][0] <= now:
            entry = self._waiting.pop(heappop(self._heap), None)
            if entry is None:
                continue
            entry.ticket = None
            if entry.due <= now:
                self._make_ready(entry, now)
            else:
                self._wait(entry)

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._clock.call_at(when, self._tick)

    def _tick(self) -> None:
        self._timer, self._timer_at = None, INFINITY
        self._release(self._clock.monotonic())
        if self._heap and self._heap[0][0] < self._timer_at:
            self._arm(self._heap[0][0])

    def _wake_getter(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _release_getters(self) -> None:
        """Closed: wake all getters when nothing can come any more."""
        while self._getters and not self._dirty:
            self._wake_getter()


def _namespace(key: Any) -> Hashable:
    return getattr(key, "namespace", "")
