"""Profiles of the running process: where it spends CPU time, and what fills its memory.

    /debug/profile?seconds=N    collapsed stacks, one per line, with the microseconds of CPU time spent in each
    /debug/heap                 how many objects of which type the garbage collector knows, and the resident memory
    /debug/heap?seconds=N       what was allocated meanwhile and is still there, by line of source (tracemalloc)

Bounded: N is at most 60, one profile at a time. CPU time is sampled by a thread of its own, `RATE` times a second: no
code is instrumented, and threads that wait cost nothing. tracemalloc slows every allocation down while it runs.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import tracemalloc
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = ["Profiler"]

RATE: Final = 100  # samples a second
LONGEST: Final = 60  # seconds
DEPTH: Final = 200  # frames of a stack, the innermost ones
ROWS: Final = 50  # of a heap summary
USUAL: Final = 10  # seconds of a CPU profile

T = TypeVar("T")


class Profiler:
    """Answers requests for profiles."""

    def __init__(self) -> None:
        self._busy = False

    async def cpu(self, request: web.Request) -> web.Response:
        """Where CPU time goes, as flame graph programs read it."""
        seconds = _seconds(request, USUAL)
        with self._alone():
            stacks = await _interruptible(lambda stop: sample_stacks(seconds * RATE, lambda: stop.wait(1 / RATE)))
        return web.Response(text="".join(f"{stack} {spent}\n" for stack, spent in stacks.most_common()))

    async def heap(self, request: web.Request) -> web.Response:
        """What fills the memory."""
        seconds = _seconds(request, 0)
        with self._alone():
            if seconds:
                found = await _interruptible(lambda stop: allocations(lambda: stop.wait(seconds)))
            else:
                found = await asyncio.to_thread(count_objects)
        body = msgspec.json.format(
            msgspec.json.encode({"residentBytes": _resident(), "tasks": len(asyncio.all_tasks()), **found})
        )
        return web.Response(body=body + b"\n", content_type="application/json")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._busy:
            raise web.HTTPTooManyRequests(text="another profile is being taken: wait until it ends\n")
        self._busy = True
        try:
            yield
        finally:
            self._busy = False


def sample_stacks(samples: int, wait: Callable[[], bool]) -> Counter[str]:
    """Microseconds of CPU time by stack, outermost frame first, of all threads but this one.

    `wait` is called before each sample, and ends the profile by answering True.
    """
    spent: Counter[str] = Counter()
    before: dict[int, int] = {}
    for _ in range(samples):
        if wait():
            break
        frames = sys._current_frames()  # noqa: SLF001  # documented, for debuggers
        for thread in threading.enumerate():
            if thread is threading.current_thread() or thread.native_id is None:
                continue
            now = _cpu_nanoseconds(thread.native_id)
            used = 10**9 // RATE if now is None else now - before.get(thread.native_id, now)
            if now is not None:
                before[thread.native_id] = now
            frame = frames.get(thread.ident or 0)
            if used and frame is not None:
                spent[_collapsed(thread.name, frame)] += used // 1000
        del frames  # they hold what their functions hold
    return spent


def _cpu_nanoseconds(thread: int) -> int | None:
    """What a thread has used so far; None where the system does not say: then it counts as busy."""
    try:
        return int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _collapsed(thread: str, frame: FrameType | None) -> str:
    names: list[str] = []
    while frame is not None and len(names) < DEPTH:
        names.append(f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return ";".join([thread.replace(";", ","), *reversed(names)])


def count_objects() -> dict[str, Any]:
    """Objects by type. Those without references to other objects, such as text and numbers, are not counted."""
    counts: Counter[type] = Counter()
    for known in gc.get_objects():  # a loop in Python, so that other threads run meanwhile
        counts[type(known)] += 1
    types = {f"{kind.__module__}.{kind.__qualname__}": number for kind, number in counts.most_common(ROWS)}
    return {"objects": counts.total(), "types": types, "uncollectable": len(gc.garbage)}


def allocations(wait: Callable[[], object]) -> dict[str, Any]:
    """What is allocated during `wait` and still there after it, largest first."""
    running = tracemalloc.is_tracing()
    if not running:
        tracemalloc.start()
    try:
        before = tracemalloc.take_snapshot()
        wait()
        grown = tracemalloc.take_snapshot().compare_to(before, "lineno")
    finally:
        if not running:
            tracemalloc.stop()
    rows = sorted((row for row in grown if row.size_diff > 0), key=lambda row: -row.size_diff)[:ROWS]
    return {
        "allocated": [{"at": str(row.traceback), "bytes": row.size_diff, "objects": row.count_diff} for row in rows]
    }


def _resident() -> int | None:
    try:
        import resource

        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except (ImportError, OSError):
        return None


async def _interruptible(work: Callable[[threading.Event], T]) -> T:
    """The result of `work` in a thread; its event is set when the caller leaves or the process stops."""
    stop = threading.Event()
    try:
        return await asyncio.to_thread(work, stop)
    finally:
        stop.set()


def _seconds(request: web.Request, usual: int) -> int:
    text = request.query.get("seconds", "")
    if not text:
        return usual
    if not (text.isdecimal() and 0 < int(text) <= LONGEST):
        raise web.HTTPBadRequest(text=f'seconds: "{text}" is not a whole number from 1 to {LONGEST} (try 10)\n')
    return int(text)
