"""A blocking function in a thread of its own: it may take its time, and the event loop goes on.

A pool would do less often what it is asked to: functions that never return would fill it, and end the process late.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["start_thread"]


def start_thread(function: Callable[..., Any], *arguments: Any, name: str) -> asyncio.Future[Any]:
    """What `function(*arguments)` will return. Cancelling the future leaves the thread to itself."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if not outcome.done():
            outcome.set_exception(error) if error is not None else outcome.set_result(result)

    def work() -> None:
        result, error = None, None
        try:
            result = function(*arguments)
        except BaseException as problem:  # noqa: BLE001  whatever it is belongs to the one who waits
            error = RuntimeError(str(problem)) if isinstance(problem, StopIteration) else problem
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits
            loop.call_soon_threadsafe(settle, result, error)

    run = contextvars.copy_context().run
    threading.Thread(target=run, args=(work,), name=name, daemon=True).start()
    return outcome
