"""The watchdog: a thread beside the event loop, for when the loop does not answer.

Everything in a process shares one loop. While a call blocks it, signals that the loop should act on wait, and nothing
says who blocks. A thread still runs then, and so does a signal handler that Python itself calls. So

- a loop that is late is named once per blockage, with the place where it stands;
- a second signal ends the process when the loop has not done so in order within `HURRY_SECONDS`, a third at once.
  Both leave by 128 + signal: nobody should take it for an orderly end.

What cannot be helped: an extension that holds Python's global lock stops threads and handlers as well.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from steersman.errors import without_callers
from steersman.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

__all__ = ["watched"]

LOOK_SECONDS: Final = 1.0
LATE_SECONDS: Final = 3.0  # a loop that is later than this stands somewhere
HURRY_SECONDS: Final = 2.0  # for an end in order, once somebody is in a hurry: a lease is given back by a request
WORDS_SECONDS: Final = 0.2  # for the last line of the log, which nobody may be reading
FRAMES: Final = 8
NUDGE: Final = signal.SIGURG  # ends a wait in the kernel, means nothing, and is used by nobody

log = Logger(__name__)


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
        signal.signal(number, note)  # the loop is told besides: by the file descriptor it waits on
    about = (received, late, threading.get_ident(), signals)
    watching = threading.Thread(target=_watch, args=about, name="loop watchdog", daemon=True)
    watching.start()
    try:
        yield
    finally:
        received.put(None)
        watching.join(WORDS_SECONDS)
        signal.signal(NUDGE, before or signal.SIG_DFL)


def _watch(
    received: SimpleQueue[int | None], late: Callable[[], float], thread: int, signals: Collection[signal.Signals]
) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # one that came here would not wake the thread that handles it
    asked: list[int] = []
    told = False
    while True:
        try:
            number = received.get(timeout=HURRY_SECONDS if len(asked) > 1 else LOOK_SECONDS)
        except Empty:
            if len(asked) > 1:
                _leave(asked[-1])
            blocked = late() > LATE_SECONDS
            if blocked:  # a signal may have come just before a call that waits, and Python would handle it after that
                signal.pthread_kill(thread, NUDGE)
            if blocked and not told:
                _name(late(), thread)
            told = blocked
        else:
            if number is None:
                return
            asked.append(number)


def _name(seconds: float, thread: int) -> None:
    frame = sys._current_frames().get(thread)  # noqa: SLF001  documented, for who looks for what blocks
    frames = list(traceback.extract_stack(frame))
    began = max((n for n, one in enumerate(frames, 1) if one.filename.endswith("asyncio/events.py")), default=0)
    standing = without_callers(frames[began:])[-FRAMES:]
    if standing:
        log.error(
            "the event loop is blocked: nothing else runs meanwhile (await, or use a reconciler without async)",
            seconds=round(seconds, 1),
            where=f"{standing[0].filename}:{standing[0].lineno} in {standing[0].name}",
            traceback="".join(traceback.format_list(standing)).rstrip(),
        )


def _leave(number: int) -> None:
    """End now. Words that cannot be written, because who blocks holds the log, keep nobody."""
    name = signal.Signals(number).name
    words = threading.Thread(
        target=lambda: log.error("not all work has ended; leaving at once", signal=name), daemon=True
    )
    words.start()
    words.join(WORDS_SECONDS)
    os._exit(128 + number)
