"""Time, as something that is handed in.

Everything that waits, measures or stamps takes a `Clock`, so that tests move time themselves and never sleep.
`time` is for people and records (it may jump); `monotonic` is for every duration and deadline (it never goes back).
The virtual clock for tests is `steersman.testing.VirtualClock`.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["SYSTEM_CLOCK", "Clock", "SystemClock", "Timer", "timeout"]


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


class timeout:  # noqa: N801  # reads like asyncio.timeout, which it is, on any clock
    """`async with timeout(clock, seconds):` raises TimeoutError when the block takes longer; None never does."""

    __slots__ = ("_clock", "_scope", "_seconds", "_timer")

    def __init__(self, clock: Clock, seconds: float | None) -> None:
        self._clock = clock
        self._seconds = seconds
        self._scope = asyncio.timeout(None)
        self._timer: Timer | None = None

    async def __aenter__(self) -> None:
        await self._scope.__aenter__()
        if self._seconds is not None:
            self._timer = self._clock.call_at(self._clock.monotonic() + self._seconds, self._expire)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._scope.__aexit__(kind, error, traceback)

    def _expire(self) -> None:
        self._scope.reschedule(asyncio.get_running_loop().time())


SYSTEM_CLOCK = SystemClock()
