"""Hurried time: a clock that runs as many times faster than the machine's as a test likes.

For tests with real sockets, where a virtual clock cannot move what the kernel does: backoffs, deadlines and leases keep
their proportions and take a fraction of the time. It says nothing about the other side, whose clock is its own.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.clock import Timer

__all__ = ["FastClock"]


class FastClock:
    """A `steersman.clock.Clock` on which a minute passes in `60 / speed` seconds."""

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
