"""The loop watchdog: how late the event loop is, and what blocks it.

Everything in a process shares one loop, so a call that blocks it stops all controllers, lease renewals and probes at
once. `LoopLag` beats on the loop: a beat that comes much too late fails the liveness probe. While the loop is blocked,
signals that it should act on wait, and nothing says what blocks. A thread still runs then, and so does a signal handler
that Python itself calls. So, within `watched`,

- a loop that is late is logged once per blockage, with the line of code that blocks it;
- a second signal ends the process when the loop has not done so in order within `HURRY_SECONDS`, a third at once.
  Both exit with 128 + signal, which no caller takes for an orderly end.

What cannot be helped: an extension that holds Python's global lock stops threads and handlers as well.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections import deque
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import without_callers
from steersman.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from steersman.clock import Clock

__all__ = ["LoopLag", "watched"]

BEAT_SECONDS: Final = 0.5
WINDOW_SECONDS: Final = 30.0  # how long a late beat is remembered
TOO_LATE_SECONDS: Final = 5.0
CHECK_SECONDS: Final = 1.0  # of the thread
LATE_SECONDS: Final = 3.0  # a loop that is later than this is blocked
HURRY_SECONDS: Final = 2.0  # for an orderly end after the second signal: releasing a lease takes a request
LOG_SECONDS: Final = 0.2  # for the last line of the log, whose reader may be blocked
FRAMES: Final = 8
NUDGE: Final = signal.SIGURG  # ends a wait in the kernel; ignored by default and by asyncio

log = Logger(__name__)


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


@contextmanager
def watched(late: Callable[[], float], signals: Collection[signal.Signals]) -> Iterator[None]:
    """Watch over the loop of this thread, the main one. `late` says how late it is right now, from any thread.

    `signals` must have handlers of the loop already: those act as before, if the loop lives.
    """
    received: SimpleQueue[int | None] = SimpleQueue()  # may be put to in the middle of anything, unlike other queues
    counted = 0

    def note(number: int, _frame: Any) -> None:
        nonlocal counted
        counted += 1
        if counted > 2:
            os._exit(128 + number)
        received.put(number)

    before = signal.signal(NUDGE, lambda _number, _frame: None)
    for number in signals:
        signal.signal(number, note)  # the loop still gets it, by the file descriptor it waits on
    about = (received, late, threading.get_ident(), signals)
    watching = threading.Thread(target=_watch, args=about, name="loop watchdog", daemon=True)
    watching.start()
    try:
        yield
    finally:
        received.put(None)
        watching.join(LOG_SECONDS)
        signal.signal(NUDGE, before or signal.SIG_DFL)


def _watch(
    received: SimpleQueue[int | None], late: Callable[[], float], thread: int, signals: Collection[signal.Signals]
) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # one that came here would not wake the thread that handles it
    asked: list[int] = []
    reported = False
    while True:
        try:
            number = received.get(timeout=HURRY_SECONDS if len(asked) > 1 else CHECK_SECONDS)
        except Empty:
            if len(asked) > 1:
                _leave(asked[-1])
            blocked = late() > LATE_SECONDS
            if blocked:  # a signal may have come just before a call that waits, and Python would handle it after that
                signal.pthread_kill(thread, NUDGE)
            if blocked and not reported:
                _log_blockage(late(), thread)
            reported = blocked
        else:
            if number is None:
                return
            asked.append(number)


def _log_blockage(seconds: float, thread: int) -> None:
    frame = sys._current_frames().get(thread)  # noqa: SLF001  documented for debugging
    frames = list(traceback.extract_stack(frame))
    began = max((n for n, frame in enumerate(frames, 1) if frame.filename.endswith("asyncio/events.py")), default=0)
    standing = without_callers(frames[began:])[-FRAMES:]
    if standing:
        log.error(
            "the event loop is blocked: nothing else runs meanwhile (await, or use a reconciler without async)",
            seconds=round(seconds, 1),
            where=f"{standing[0].filename}:{standing[0].lineno} in {standing[0].name}",
            traceback="".join(traceback.format_list(standing)).rstrip(),
        )


def _leave(number: int) -> None:
    """Exit now, even if the last line cannot be written because the blocking code holds the log."""
    name = signal.Signals(number).name
    logging = threading.Thread(
        target=lambda: log.error("not all work has ended; leaving at once", signal=name), daemon=True
    )
    logging.start()
    logging.join(LOG_SECONDS)
    os._exit(128 + number)
