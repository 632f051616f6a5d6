"""Background work: what runs beside the reconciles of an object, for as long as the object exists.

    the object appears ─┬► daemon ─────────────────────────────► the object is deleted, or
                        └► timer: initial delay ► run ► pause ► run …  `running_while` says no: cancelled

Invariants:
- Each row runs at most once at a time for an object. A new run waits until the one that was cancelled has ended.
- It runs only where reconciles do: not on a standby, not for a namespace of another process. A namespace is handed
  over, and a lease released, when what was cancelled has ended.
- What it writes passes the guard, for the key of its object.
- A daemon that fails starts again after a pause that grows; one that returns has done its work. A timer that fails runs
  again at its next turn.

Not here: anything that survives the process. After a restart every daemon starts again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog
from structlog.contextvars import bound_contextvars

from steersman.cache.identity import ref_of, revision_of, uid_of
from steersman.errors import SteersmanError, summary_of, traceback_of
from steersman.logger import Logger
from steersman.runtime.controller.worker import call
from steersman.runtime.reconcile.daemon_context import DaemonContext
from steersman.runtime.reconcile.finalizers import is_terminating
from steersman.runtime.reconcile.metadata import metadata_of
from steersman.runtime.workqueue.rate_limiters import ExponentialBackoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from steersman.clock import Clock
    from steersman.runtime.cluster import Cluster
    from steersman.runtime.controller.builder import BackgroundRow, Controller
    from steersman.runtime.controller.worker import Worker

__all__ = ["BackgroundWork"]

FIRST_PAUSE_SECONDS = 1.0  # before a daemon that failed starts again
LONGEST_PAUSE_SECONDS = 300.0  # also: a daemon that ran longer than this without failing begins with the first again

log = Logger(__name__)


class _Entry:
    """The background work of one object."""

    def __init__(self, uid: str, rows: int) -> None:
        self.uid = uid
        self.version: int | str = ""  # of its spec
        self.changed_at = 0.0
        self.tasks: list[asyncio.Task[None] | None] = [None] * rows


class BackgroundWork:
    """The daemons and timers of one controller; see the module's docstring."""

    def __init__(
        self,
        controller: Controller,
        cluster: Cluster,
        worker: Worker,
        *,
        permit: Callable[[Any], bool] | None,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        self._rows = controller.background
        self._name = controller.name
        self._target = controller.target
        self._cluster = cluster
        self._worker = worker
        self._permit = permit
        self._clock = clock
        self._pauses: ExponentialBackoff[Any] = ExponentialBackoff(
            base_seconds=FIRST_PAUSE_SECONDS, cap_seconds=LONGEST_PAUSE_SECONDS, random=random
        )
        self._active = False
        self._entries: dict[Any, _Entry] = {}
        self._last: dict[tuple[Any, int], asyncio.Task[None]] = {}  # until it has ended; cancelled ones too

    # -- what the runner says ------------------------------------------------------------------------------------------

    def start(self, objects: Iterable[Any]) -> None:
        """This process works: begin for every object there is."""
        self._active = True
        self.update(objects)

    def update(self, objects: Iterable[Any]) -> None:
        """Objects that this process may work on by now."""
        for obj in objects:
            self.changed(None, obj)

    def changed(self, old: Any | None, new: Any | None) -> None:
        """An object appeared, changed or vanished."""
        if not self._active:
            return
        key = ref_of(old if new is None else new)
        entry = self._entries.get(key)
        if new is None or is_terminating(new) or not (self._permit is None or self._permit(key)):
            self._cancel(key)
            return
        if entry is None or entry.uid != uid_of(new):
            self._cancel(key)
            entry = self._entries[key] = _Entry(uid_of(new), len(self._rows))
        version = metadata_of(new).generation or revision_of(new)
        if version != entry.version:
            entry.version, entry.changed_at = version, self._clock.monotonic()
        for number, row in enumerate(self._rows):
            task, wanted = entry.tasks[number], self._is_wanted(row, new)
            if wanted and task is None:
                entry.tasks[number] = self._begin(key, number, entry)
            elif not wanted and task is not None:
                task.cancel()
                entry.tasks[number] = None

    def cancel(self, where: Callable[[Any], bool]) -> None:
        """Cancel what runs for these keys."""
        for key in [key for key in self._entries if where(key)]:
            self._cancel(key)

    async def ended(self, where: Callable[[Any], bool]) -> None:
        """Return when nothing runs for these keys; it must have been cancelled."""
        while left := [task for (key, _), task in self._last.items() if where(key)]:
            await asyncio.wait(left)
            await asyncio.sleep(0)  # the callbacks that remove them

    def stop(self) -> None:
        """Cancel everything, and begin nothing more."""
        self._active = False
        self.cancel(lambda _key: True)

    def running(self) -> list[tuple[Any, str]]:
        """The key and the name of everything that runs now."""
        return [(key, self._rows[number].name) for key, number in self._last]

    # -- one row of one object -----------------------------------------------------------------------------------------

    def _is_wanted(self, row: BackgroundRow, obj: Any) -> bool:
        try:
            return row.running_while is None or bool(row.running_while(obj))
        except Exception as error:  # noqa: BLE001  a question that fails must not end the work of an object
            details = {"error": summary_of(error), "traceback": traceback_of(error)}
            log.warning("running_while failed; taken as yes", controller=self._name, **details)
            return True

    def _cancel(self, key: Any) -> None:
        entry = self._entries.pop(key, None)
        for task in () if entry is None else entry.tasks:
            if task is not None:
                task.cancel()

    def _begin(self, key: Any, number: int, entry: _Entry) -> asyncio.Task[None]:
        row, slot = self._rows[number], (key, number)
        work = self._run(key, row, entry, self._last.get(slot))
        task = self._last[slot] = asyncio.create_task(work, name=f"{self._name} {row.name} {key}")

        def forget(ended: asyncio.Task[None]) -> None:
            if self._last.get(slot) is ended:
                del self._last[slot]

        task.add_done_callback(forget)
        return task

    async def _run(self, key: Any, row: BackgroundRow, entry: _Entry, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        with self._cluster.guard.acting_for(key), bound_contextvars(controller=self._name, object=str(key)):
            if row.every_seconds is None:
                await self._run_daemon(key, row, entry)
            else:
                await self._run_timer(key, row, entry, row.every_seconds)

    async def _run_daemon(self, key: Any, row: BackgroundRow, entry: _Entry) -> None:
        context = DaemonContext(
            self._cluster,
            key=key,
            clock=self._clock,
            log=structlog.get_logger(__name__),
            memory=self._worker.memories.of(key, entry.uid),
            snapshot=lambda: self._worker.open_context(key),
        )
        slot = (entry, row)
        try:
            while (obj := self._read(key, entry)) is not None:
                started = self._clock.monotonic()
                try:
                    await row.function(context, obj)
                except Exception as error:  # noqa: BLE001  a daemon may raise anything; it concerns its object only
                    if self._clock.monotonic() - started > LONGEST_PAUSE_SECONDS:
                        self._pauses.forget(slot)
                    pause = self._pauses.when(slot)
                    _log_failure("daemon failed", row, error, restart_seconds=round(pause, 3))
                else:
                    return
                await self._clock.sleep(pause)
        finally:
            self._pauses.forget(slot)

    def _read(self, key: Any, entry: _Entry) -> Any | None:
        with self._worker.open_context(key) as context:
            obj = context.cache[self._target].get(key)
        return obj if obj is not None and uid_of(obj) == entry.uid else None

    async def _run_timer(self, key: Any, row: BackgroundRow, entry: _Entry, every: float) -> None:
        if row.initial_delay_seconds:
            await self._clock.sleep(row.initial_delay_seconds)
        while True:
            while (left := entry.changed_at + row.idle_seconds - self._clock.monotonic()) > 0:
                await self._clock.sleep(left)
            with self._worker.open_context(key) as context:
                obj = context.cache[self._target].get(key)
                if obj is None or uid_of(obj) != entry.uid:
                    return
                try:
                    await call(row.function, context, obj)
                except Exception as error:  # noqa: BLE001  as above
                    _log_failure("timer failed", row, error, next_seconds=every)
            await self._clock.sleep(every)


def _log_failure(event: str, row: BackgroundRow, error: Exception, **details: Any) -> None:
    if isinstance(error, SteersmanError):
        log.warning(event, name=row.name, error=str(error), **details)
    else:
        log.error(event, name=row.name, error=summary_of(error), traceback=traceback_of(error), **details)
