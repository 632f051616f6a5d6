"""How late the event loop is: a beat that comes much too late means that something blocks it.

Everything in the process shares one loop, so one call that blocks stops all controllers, renewals and probes at once.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from steersman.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from steersman.clock import Clock

__all__ = ["LoopLag"]

BEAT_SECONDS = 0.5
WINDOW_SECONDS = 30.0  # how long a late beat is remembered
TOO_LATE_SECONDS = 5.0


class LoopLag:
    """Beats, and notices beats that are late."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._beats: deque[tuple[float, float]] = deque()  # (when, how late), late ones only
        self._due = clock.monotonic() + BEAT_SECONDS
        self._beating = False

    async def run(self) -> None:
        """Beat until cancelled."""
        try:
            while True:
                self._due = self._clock.monotonic() + BEAT_SECONDS
                self._beating = True
                await self._clock.sleep(BEAT_SECONDS)
                now = self._clock.monotonic()
                late = now - self._due
                while self._beats and self._beats[0][0] < now - WINDOW_SECONDS:
                    self._beats.popleft()
                if late > BEAT_SECONDS:
                    self._beats.append((now, late))
        finally:
            self._beating = False

    def now(self) -> float:
        """How late the loop is at this moment, for other threads; 0 while nothing beats."""
        return max(self._clock.monotonic() - self._due, 0.0) if self._beating else 0.0

    def seconds(self) -> float:
        """The longest the loop was late within the last half minute, the present included."""
        now = self._clock.monotonic()
        recent = [late for when, late in self._beats if when >= now - WINDOW_SECONDS]
        return max([now - self._due, *recent, 0.0])

    def problem(self) -> str | None:
        """Why the process should be restarted, if it should."""
        late = self.seconds()
        return f"the event loop was {late:.1f} s late: something blocks it" if late > TOO_LATE_SECONDS else None
