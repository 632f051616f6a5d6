"""An event loop in virtual time, for programs that talk to themselves over real sockets.

Invariant: time passes only when nothing can happen without it. The loop never waits: when no socket is readable, no
callback is ready and no thread is at work, it jumps to its next timer. So minutes of leases and backoffs take
milliseconds, a busy machine changes nothing, and the same seed gives the same run. This is right only while both ends
of every connection are on this loop; answers from elsewhere would come late in virtual time. Who asks elsewhere holds
the time until the answer is there (`hold`, `release`).

What runs with `PROCESS` set is a process that can be stopped: its callbacks, timers and sockets wait until it goes on.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import time
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PROCESS", "LoopClock", "VirtualLoop"]

CPU_SECONDS = 300.0  # after which a run never ends; a busy machine does not matter
THREAD_SECONDS = 1.0  # real ones, until a thread that is at work is asked about again
EPOCH = 1_767_225_600.0
PROCESS: ContextVar[str] = ContextVar("PROCESS", default="")


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` jumps from timer to timer."""

    def __init__(self, cpu_seconds: float = CPU_SECONDS) -> None:
        self._cpu_seconds, self._ends = cpu_seconds, time.process_time() + cpu_seconds
        self._virtual = 1000.0  # away from zero, so that code which takes 0 for "never" is found out
        self._threads = 0
        self._holders: set[object] = set()
        self._stopped: dict[str, list[_Callback]] = {}
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

    def stop_process(self, process: str) -> None:
        """Stop a process, as SIGSTOP does."""
        self._stopped.setdefault(process, [])

    def continue_process(self, process: str) -> None:
        """Let it go on with everything that has become due."""
        for callback in self._stopped.pop(process, ()):
            callback.again()

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        wrapped = _Callback(self, callback, args)
        wrapped.handle = super().call_soon(wrapped, context=context)
        return wrapped.handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        wrapped = _Callback(self, callback, args)
        wrapped.handle = handle = super().call_at(when, wrapped, context=context)
        return handle

    def waiting_for(self, process: str) -> list[_Callback] | None:
        """The callbacks of a process that is stopped; None when it is not."""
        return self._stopped.get(process)

    def _is_due(self, event: Any) -> bool:
        """Whether a socket that is ready belongs to a process that is not stopped."""
        handles = [handle for handle in event[0].data or () if handle is not None]
        return not any(handle._context.get(PROCESS) in self._stopped for handle in handles)

    def hold(self, holder: object) -> None:
        """Let no time pass until `release`, or until nothing at all has happened for a real second."""
        self._holders.add(holder)

    def release(self, holder: object) -> None:
        """Let time pass again."""
        self._holders.discard(holder)

    def wait(self, select: Callable[[float], list[Any]], timeout: float | None) -> list[Any]:
        """What is ready now; when nothing is, move on by `timeout`."""
        if time.process_time() > self._ends:  # raised here, because the loop would swallow it in a callback
            self._ends = math.inf  # what is cancelled now may end
            raise TimeoutError(f"the run did not end within {self._cpu_seconds:g} seconds of CPU time")
        events = list(filter(self._is_due, select(0))) if self._stopped else select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        if self._threads or self._holders or timeout is None:
            return self._wait_outside(select)
        self._virtual += timeout  # the kernel delivers at once on the loopback; bytes that are late came slowly
        return []

    def _wait_outside(self, select: Callable[[float], list[Any]]) -> list[Any]:
        """Wait in real time, for a thread or for an answer; the sockets of the stopped are ready all the while."""
        until, events = time.monotonic() + THREAD_SECONDS, list[Any]()
        while not events and time.monotonic() < until:
            events = list(filter(self._is_due, select(0.0 if self._stopped else THREAD_SECONDS)))
            if self._stopped and not events:
                time.sleep(0.001)
        if not events and not self._threads:
            self._holders.clear()  # an answer that does not come
        return events


class _Callback:
    """A callback that waits while its process is stopped."""

    def __init__(self, loop: VirtualLoop, callback: Any, args: tuple[Any, ...]) -> None:
        self._loop, self._callback, self._args = loop, callback, args
        self.handle: asyncio.Handle | None = None

    def __call__(self) -> None:
        waiting = self._loop.waiting_for(PROCESS.get())
        if waiting is None:
            self._callback(*self._args)
        else:
            self._context = copy_context()
            waiting.append(self)

    def again(self) -> None:
        """Run soon, unless it was cancelled meanwhile."""
        self._loop.call_soon(self._run, context=self._context)

    def _run(self) -> None:
        if self.handle is not None and not self.handle.cancelled():
            self._callback(*self._args)


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
