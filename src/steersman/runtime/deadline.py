"""`asyncio.timeout`, on a clock that is handed in.

    async with Deadline(clock, 5) as deadline:
        await something()                  # TimeoutError after five seconds of that clock
    deadline.expired                       # whether it was this deadline, and not a TimeoutError from inside

Cancellation from outside passes through untouched, also when it arrives together with the deadline.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

    from steersman.clock import Clock, Timer

__all__ = ["Deadline"]


class Deadline:
    """Limits the time of a block; `seconds` None is no limit."""

    def __init__(self, clock: Clock, seconds: float | None) -> None:
        self._clock = clock
        self._seconds = seconds
        self._timer: Timer | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self.expired = False

    async def __aenter__(self) -> Self:
        if self._seconds is not None:
            self._task = asyncio.current_task()
            assert self._task is not None
            self._cancelling = self._task.cancelling()
            self._timer = self._clock.call_at(self._clock.monotonic() + self._seconds, self._expire)
        return self

    def _expire(self) -> None:
        assert self._task is not None
        self.expired = True
        self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.expired and self._task is not None:
            only_ours = self._task.uncancel() <= self._cancelling
            if only_ours and kind is not None and issubclass(kind, asyncio.CancelledError):
                raise TimeoutError from error
