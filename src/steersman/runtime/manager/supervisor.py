"""The supervisor: background tasks that must not die unnoticed.

A supervised task never ends. When it fails, or just ends, it is logged, counted and started again with growing
delays; or, if it is *critical*, its failure ends the process. Either way `problems()` reports it at once: no task
is dead while the process looks healthy.
"""

from __future__ import annotations

import asyncio
import random as randomness
from typing import TYPE_CHECKING, Any

from steersman.clock import SYSTEM_CLOCK, Deadline
from steersman.errors import SteersmanError, summary_of, traceback_of
from steersman.logger import Logger
from steersman.runtime.workqueue.rate_limiters import ExponentialBackoff

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from steersman.clock import Clock

__all__ = ["Supervisor", "TaskFailed", "cancel_all", "retrieved"]

STEADY_SECONDS = 60.0  # a task that ran this long did not fail at once: start over with short delays

log = Logger(__name__)


class TaskFailed(SteersmanError):  # noqa: N818  says what happened, not what kind of error it is
    """A task that the process cannot do without ended."""


class Supervisor:
    """Starts tasks and keeps them running."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, random: Callable[[], float] = randomness.random) -> None:
        self._clock = clock
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._problems: dict[str, str] = {}
        self._backoff: ExponentialBackoff[str] = ExponentialBackoff(base_seconds=1.0, cap_seconds=30.0, random=random)
        self.restarts: dict[str, int] = {}
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.failure.add_done_callback(retrieved)

    def start(self, name: str, run: Callable[[], Awaitable[Any]], *, critical: bool = False) -> None:
        """Run a task until it is stopped. Names are unique among running tasks."""
        if name in self._tasks:
            raise ValueError(f"a task called {name!r} is running already")
        self.restarts.setdefault(name, 0)
        body = self._critical(name, run) if critical else self._restarting(name, run)
        self._tasks[name] = asyncio.create_task(body, name=name)

    def fail(self, error: BaseException) -> None:
        """Something happened that the process cannot go on with; the first such error is kept."""
        if not self.failure.done():
            self.failure.set_exception(error)

    def names(self) -> list[str]:
        """The tasks that are being run."""
        return list(self._tasks)

    def __contains__(self, name: object) -> bool:
        return name in self._tasks

    def problems(self) -> dict[str, str]:
        """Tasks that are down, and why."""
        return dict(self._problems)

    async def stop(self, names: Iterable[str] | None = None, *, seconds: float = 5.0) -> list[asyncio.Task[Any]]:
        """Cancel tasks (all of them, by default) and wait until they have ended; returns those that did not."""
        return await cancel_all(self.cancel(self._tasks if names is None else names), self._clock, seconds)

    def cancel(self, names: Iterable[str]) -> list[asyncio.Task[None]]:
        """Cancel tasks, without waiting for them to end; returns those that may not have ended yet."""
        cancelled = []
        for name in list(names):
            self._problems.pop(name, None)
            task = self._tasks.pop(name, None)
            if task is not None and not task.done():
                task.cancel()
                cancelled.append(task)
        return cancelled

    async def _restarting(self, name: str, run: Callable[[], Awaitable[Any]]) -> None:
        while True:
            began = self._clock.monotonic()
            problem = await self._outcome(name, run)
            if self._clock.monotonic() - began >= STEADY_SECONDS:
                self._backoff.forget(name)
            delay = self._backoff.when(name)
            self._problems[name] = problem
            self.restarts[name] += 1
            log.error("task failed; restarting it", task=name, problem=problem, after_seconds=round(delay, 1))
            await self._clock.sleep(delay)
            del self._problems[name]

    async def _critical(self, name: str, run: Callable[[], Awaitable[Any]]) -> None:
        problem = await self._outcome(name, run)
        self._problems[name] = problem
        self.fail(TaskFailed(f"{name}: {problem}"))

    async def _outcome(self, name: str, run: Callable[[], Awaitable[Any]]) -> str:
        """Why the task ended. One that was cancelled has stopped, whatever it raises."""
        problem = "it ended, though it should never end"
        try:
            await run()
        except asyncio.CancelledError:
            problem = "something it waited for was cancelled"
        except Exception as error:  # noqa: BLE001  whatever it is, the task is down
            log.error("task failed", task=name, traceback=traceback_of(error))  # noqa: TRY400  no local variables in logs
            problem = summary_of(error)
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        return problem


async def cancel_all(tasks: Iterable[asyncio.Task[Any]], clock: Clock, seconds: float) -> list[asyncio.Task[Any]]:
    """Cancel tasks and wait up to `seconds` for them to end; returns (and names in the log) those that did not."""
    pending = [task for task in tasks if not task.done()]
    for task in pending:
        task.cancel()
    if pending:
        try:
            async with Deadline(clock, seconds):
                await asyncio.wait(pending)
        except TimeoutError:
            pending = [task for task in pending if not task.done()]
            log.error("tasks did not end", tasks=[task.get_name() for task in pending])  # noqa: TRY400  it says it all
            return pending
    return []


def retrieved(future: asyncio.Future[None]) -> None:
    """As a callback: marks an exception as retrieved, so that asyncio does not warn."""
    if not future.cancelled():
        future.exception()
