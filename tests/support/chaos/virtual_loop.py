"""An event loop in virtual time, for programs that talk to themselves over real sockets.

Invariant: time passes only when nothing can happen without it. The loop never waits: when no socket is readable, no
callback is ready and no thread is at work, it jumps to its next timer. So minutes of leases and backoffs take
milliseconds, a busy machine changes nothing, and the same seed gives the same run. This is right only while both ends
of every connection are on this loop; answers from elsewhere would come late in virtual time.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LoopClock", "VirtualLoop"]

THREAD_SECONDS = 1.0  # real ones, until a thread that is at work is asked about again
EPOCH = 1_767_225_600.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` jumps from timer to timer."""

    def __init__(self) -> None:
        self._virtual = 1000.0  # away from zero, so that code which takes 0 for "never" is found out
        self._threads = 0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._virtual

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """As always; time stands still until the thread is done."""
        self._threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_done)
        return future

    def _thread_done(self, _future: object) -> None:
        self._threads -= 1

    def wait(self, select: Callable[[float], list[Any]], timeout: float | None) -> list[Any]:
        """What is ready now; when nothing is, move on by `timeout`."""
        events = select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        if self._threads or timeout is None:
            return select(THREAD_SECONDS)
        self._virtual += timeout  # the kernel delivers at once on the loopback; bytes that are late came slowly
        return []


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        return self._loop.wait(super().select, timeout)


class LoopClock:
    """The time of the running loop as a `steersman.clock.Clock`."""

    def time(self) -> float:
        return EPOCH + self.monotonic()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def call_at(self, when: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_at(when, callback)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))
