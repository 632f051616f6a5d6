"""Time in tests: `VirtualClock` moves only when a test moves it, `FastClock` runs faster than the machine's.

Invariant of virtual time: callbacks run in the order of their due times (those due together in the order they were
set), each at exactly the instant it asked for, and everything a callback sets in motion on the event loop has come to
rest before time moves on. So a test that advances an hour sees what an hour would have shown, in microseconds and every
time the same way. It does not replace the loop's own clock: `asyncio.timeout` and sockets know nothing of it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.clock import Timer

__all__ = ["FastClock", "VirtualClock", "VirtualTimer", "settle"]

_ROUNDS = 100_000  # of the event loop; only something that spins needs more
_BLIND_ROUNDS = 200  # on loops that do not show their ready queue


async def settle() -> None:
    """Return once the event loop has nothing left to run except what waits for time or for I/O."""
    ready = getattr(asyncio.get_running_loop(), "_ready", None)
    if ready is None:
        for _ in range(_BLIND_ROUNDS):
            await asyncio.sleep(0)
        return
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)
        if not ready:
            return
    raise AssertionError(f"the event loop did not come to rest in {_ROUNDS} rounds: something in it never waits")


class VirtualTimer:
    """A callback that waits for virtual time."""

    __slots__ = ("callback", "cancelled", "when")

    def __init__(self, when: float, callback: Callable[[], object]) -> None:
        self.when = when
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def run(self) -> None:
        """Call back, unless cancelled in the meantime."""
        if not self.cancelled:
            self.cancelled = True
            self.callback()


class VirtualClock:
    """A `steersman.clock.Clock` for tests.

    The monotonic scale starts away from zero, so that code which takes 0 for "never" is found out.
    """

    def __init__(self, *, time: float = 1_767_225_600.0, monotonic: float = 1000.0) -> None:
        self._wall = time - monotonic
        self._now = monotonic
        self._order = itertools.count()
        self._timers: list[tuple[float, int, VirtualTimer]] = []

    def time(self) -> float:
        return self._wall + self._now

    def monotonic(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], object]) -> VirtualTimer:
        timer = VirtualTimer(when, callback)
        if when <= self._now:
            asyncio.get_running_loop().call_soon(timer.run)
        else:
            heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.Event()
        timer = self.call_at(self._now + seconds, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()

    async def advance(self, seconds: float) -> None:
        """Move time on, stopping at every timer on the way; return when the loop has come to rest."""
        if seconds < 0:
            raise ValueError(f"monotonic time does not go back ({seconds} s); use jump() to move the wall clock")
        end = self._now + seconds
        await settle()
        while (due := self.next_due) is not None and due <= end:
            await self._move_to(due)
        self._now = end
        await settle()

    async def advance_until(self, condition: Callable[[], object], *, limit: float = 3600.0) -> float:
        """Move from timer to timer until `condition` holds; return the seconds that took."""
        start = self._now
        await settle()
        while not condition():
            due = self.next_due
            if due is None or due > start + limit:
                reason = "no timer is set" if due is None else f"the next timer is {due - start:g} s away"
                raise AssertionError(f"the condition does not hold after {self._now - start:g} s and {reason}")
            await self._move_to(due)
        return self._now - start

    def jump(self, seconds: float) -> None:
        """Move the wall clock alone, as an administrator or a leap does; durations must not notice."""
        self._wall += seconds

    def pause(self, seconds: float) -> None:
        """Let time pass while nothing runs, as for a process that is stopped: what was due is late."""
        self._now += seconds

    @property
    def next_due(self) -> float | None:
        """When the next callback is due on the monotonic scale, if there is one."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    @property
    def pending(self) -> int:
        """How many callbacks wait for time to pass."""
        return sum(not timer.cancelled for _, _, timer in self._timers)

    async def _move_to(self, when: float) -> None:
        self._now = max(self._now, when)
        while self.next_due == when:
            heapq.heappop(self._timers)[2].run()
        await settle()


class FastClock:
    """A `steersman.clock.Clock` on which a minute passes in `60 / speed` seconds.

    For tests with real sockets, where a virtual clock cannot move what the kernel does: backoffs, deadlines and leases
    keep their proportions and take a fraction of the time. The other side keeps its own clock.
    """

    def __init__(self, speed: float) -> None:
        if not speed > 0:
            raise ValueError(f"time cannot run {speed:g} times as fast; 1 is the machine's own speed")
        self.speed = speed
        self._wall, self._start = time.time(), time.monotonic()

    def time(self) -> float:
        return self._wall + (time.monotonic() - self._start) * self.speed

    def monotonic(self) -> float:
        return time.monotonic() * self.speed

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        delay = max(0.0, when - self.monotonic()) / self.speed
        return asyncio.get_running_loop().call_later(delay, callback)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds) / self.speed)
