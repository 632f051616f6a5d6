"""Time, as something that is handed in.

Everything that waits, measures or stamps takes a `Clock`, so that tests move time themselves and never sleep.
`time` is for people and records (it may jump); `monotonic` is for every duration and deadline (it never goes back).
The virtual clock for tests is `steersman.testing.VirtualClock`.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

__all__ = ["SYSTEM_CLOCK", "Ages", "Clock", "Deadline", "SystemClock", "Timer", "WallSteps", "moved_along"]

_STEP = 2.0  # seconds; clocks that are only corrected differ by less between two readings
_REMEMBERED = 100  # steps


class Timer(Protocol):
    """A callback that has not run yet."""

    def cancel(self) -> None:
        """Make sure the callback never runs; harmless when it already has."""


class Clock(Protocol):
    """Where time comes from. All values are seconds."""

    def time(self) -> float:
        """Wall-clock seconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds on a scale that never goes back; only differences mean anything."""

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        """Run `callback` on the event loop once `monotonic()` reaches `when`."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`; zero or less yields once to the event loop."""


class SystemClock:
    """The machine's own clock, on the running asyncio loop."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(max(0.0, when - time.monotonic()), callback)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class Deadline:
    """Limits the time of a block; no limit when `seconds` is None.

        async with Deadline(clock, 5) as deadline:
            await something()                  # TimeoutError after five seconds of that clock
        deadline.expired                       # whether it was this deadline, and not a TimeoutError from inside

    Cancellation from outside passes through untouched, also when it arrives together with the deadline. `restart`
    makes it a limit on silence: it costs one reading of the clock, as the timer is set again only when it fires.
    """

    __slots__ = ("_cancelling", "_clock", "_since", "_task", "_timer", "expired", "seconds")

    def __init__(self, clock: Clock, seconds: float | None) -> None:
        self._clock = clock
        self._since = 0.0
        self._timer: Timer | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self.seconds = seconds
        self.expired = False

    def restart(self, seconds: float | None = None) -> None:
        """Start again, with another limit if one is given."""
        self._since = self._clock.monotonic()
        if seconds is not None:
            self.seconds = seconds
            self._set()

    def lift(self) -> None:
        """No limit from now on; also after the block."""
        self.seconds = None
        if self._timer is not None:
            self._timer.cancel()

    async def __aenter__(self) -> Self:
        if self.seconds is not None:
            self._task = asyncio.current_task()
            assert self._task is not None
            self._cancelling = self._task.cancelling()
            self.restart(self.seconds)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.expired and self._task is not None:
            only_ours = self._task.uncancel() <= self._cancelling
            if only_ours and kind is not None and issubclass(kind, asyncio.CancelledError):
                raise TimeoutError from error

    def _set(self) -> None:
        assert self.seconds is not None
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_at(self._since + self.seconds, self._check)

    def _check(self) -> None:
        assert self.seconds is not None
        assert self._task is not None
        if self._clock.monotonic() < self._since + self.seconds:  # restarted meanwhile
            self._set()
            return
        self.expired = True
        self._task.cancel()


class WallSteps:
    """Notices that the wall clock was set, by comparing it with the monotonic clock.

    Stamps in the cluster are wall-clock times, because they outlive the process. When the clock is set forward while
    we run, all of them would suddenly be older than they are: deadlines would pass and grace periods end, at once and
    for everything. A stamp from before a step is therefore moved along with it. A clock that is set back makes ages
    too small for a while, which is late and never early; nothing is done about that.
    """

    def __init__(self) -> None:
        self._offset: float | None = None  # of the wall clock to the monotonic one
        self.forward: tuple[tuple[float, float], ...] = ()  # of each step: the last time before it, and its length

    def notice(self, wall: float, tick: float) -> float:
        """By how many seconds the clock was set since this was last asked; 0.0 when it was not."""
        offset = wall - tick
        step = 0.0 if self._offset is None else offset - self._offset
        if self._offset is not None and abs(step) < _STEP:
            return 0.0
        self._offset = offset
        if step > 0:
            self.forward = (*self.forward, (wall - step, step))[-_REMEMBERED:]
        return step


def moved_along(stamp: float, steps: Iterable[tuple[float, float]]) -> float:
    """A stamp as it would be, had the clock always been as it is since these steps forward."""
    for before, step in steps:
        if stamp <= before + step:
            stamp = min(stamp, before) + step
    return stamp


class Ages:
    """How long ago things happened, also when the wall clock is set forward meanwhile."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steps = WallSteps()
        self._steps.notice(clock.time(), clock.monotonic())

    def since(self, stamp: float) -> float:
        """Seconds since a wall-clock time that was written down."""
        now = self._clock.time()
        self._steps.notice(now, self._clock.monotonic())
        return now - moved_along(stamp, self._steps.forward)


SYSTEM_CLOCK = SystemClock()
