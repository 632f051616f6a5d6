"""Hand-over of slots: starts and stops the work of this process as `ShardMember` gains and loses them.

All keys of a slot that is gained are reconciled. A slot is handed over when nothing works on it: what is being
reconciled may end within `HAND_OVER_SECONDS`, because another process waits for it. A lease that is lost leaves no time
at all.

What concerns no namespace (tasks for leaders, keys without a namespace) belongs to the owner of the slot of the empty
name, so it too is done by exactly one process.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from steersman.clock import SYSTEM_CLOCK, Deadline
from steersman.runtime.sharding.assignment import SLOTS, slot_of
from steersman.runtime.sharding.member import ShardMember

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from steersman.clock import Clock
    from steersman.runtime.controller.runner import ControllerRunner
    from steersman.runtime.leaderelection.rules import LeaseTimings
    from steersman.runtime.sharding.member import ShardStore

__all__ = ["ShardHandover", "namespace_of"]

HAND_OVER_SECONDS = 2.0  # for a reconcile to end whose namespace goes to another process


class ShardHandover:
    """Keeps runners and leaders' tasks within what this process may act on."""

    def __init__(
        self,
        store: ShardStore,
        *,
        runners: Callable[[], Iterable[ControllerRunner]],
        start_tasks: Callable[[], None],
        cancel_tasks: Callable[[], Iterable[asyncio.Task[Any]]],
        identity: str | None = None,
        slots: int = SLOTS,
        timing: LeaseTimings | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._runners = runners
        self._start_tasks = start_tasks
        self._cancel_tasks = cancel_tasks
        self._slots = slots
        self._clock = clock
        self._home = slot_of("", slots)
        self._ending: list[asyncio.Task[Any]] = []  # tasks that were cancelled and may not have ended
        self.member = ShardMember(
            store,
            drain=self._let_go,
            interrupt=self._interrupt,
            on_gained=self._take_up,
            identity=identity,
            timing=timing,
            slots=slots,
            clock=clock,
        )

    def _within(self, slots: frozenset[int]) -> Callable[[Any], bool]:
        return lambda key: slot_of(namespace_of(key), self._slots) in slots

    def _take_up(self, gained: frozenset[int]) -> None:
        if self._home in gained:
            self._start_tasks()
        for runner in self._runners():
            runner.add_all(where=self._within(gained))

    def _interrupt(self, slots: frozenset[int]) -> None:
        if self._home in slots:
            self._ending += self._cancel_tasks()
        for runner in self._runners():
            runner.interrupt(self._within(slots))

    async def _let_go(self, slots: frozenset[int]) -> None:
        """Return when nothing works on `slots`."""
        if self._home in slots:
            self._ending += self._cancel_tasks()
        await asyncio.gather(
            self._tasks_ended(), *(self._idle(runner, self._within(slots)) for runner in self._runners())
        )

    async def _tasks_ended(self) -> None:
        if self._ending:
            await asyncio.wait(self._ending)
            self._ending.clear()

    async def _idle(self, runner: ControllerRunner, where: Callable[[Any], bool]) -> None:
        try:
            async with Deadline(self._clock, HAND_OVER_SECONDS):
                await runner.wait_idle(where)
        except TimeoutError:
            runner.interrupt(where)
            await runner.wait_idle(where)


def namespace_of(key: Any) -> str:
    """Where a key belongs, as far as that is known; keys without a namespace share one place."""
    namespace: str = getattr(key, "namespace", "")
    return namespace
