"""The runner: runs one controller.

    sources ──► queue ──► workers (controller.worker) ──► done | requeue | failed
    schedules ────┘

- No key is reconciled before every source has delivered its first list: no decision is made on half a picture.
- One key is never reconciled twice at once: the queue sees to it.
- A key that another process may work on is left to it and not lost: `add_all` adds it again when it is ours.
- A task that works ends only when the queue is closed or it is cancelled; anything else is a defect, which `run`
  raises. One that its own reconcile cancelled is replaced: nothing else cancels a single one.
"""

from __future__ import annotations

import asyncio
import random as randomness
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from steersman.cache.identity import ref_of
from steersman.clock import SYSTEM_CLOCK
from steersman.logger import Logger
from steersman.runtime.cluster import ClusterSnapshot, used_clusters, watched_resources
from steersman.runtime.controller.background import BackgroundWork
from steersman.runtime.controller.predicates import changed
from steersman.runtime.controller.stuck_keys import StuckKey, StuckKeyTracker
from steersman.runtime.controller.watches import InformerSource
from steersman.runtime.controller.worker import Worker, current_task
from steersman.runtime.workqueue.queue import LOW_PRIORITY, QueueClosed, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from steersman.clock import Clock
    from steersman.runtime.cluster import Cluster, WatchedResource
    from steersman.runtime.controller.builder import Controller, Schedule
    from steersman.runtime.controller.watches import WatchSpec

__all__ = ["ControllerRunner"]

STUCK_CHECK_SECONDS = 10.0
STANDBY_KEYS = 1_000  # keys that may wait on a standby before those of deleted objects are dropped
LEFT_KEYS = 10_000  # keys remembered that belong to other processes; the oldest are forgotten beyond that

log = Logger(__name__)


class ControllerRunner:
    """One controller at work."""

    def __init__(
        self,
        controller: Controller,
        clusters: Mapping[str, Cluster],
        *,
        permit: Callable[[Any], bool] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        """`permit` says whether this process may work on a key right now; other keys are left to other processes."""
        self.controller = controller
        self.name = controller.name
        self._clock = clock
        self._random = random
        self._permit = permit
        options = controller.options
        limiter = options.limiter() if options.limiter is not None else None
        self.queue: WorkQueue[Any] = WorkQueue(name=self.name, limiter=limiter, debounce=options.debounce, clock=clock)
        self._clusters = {name: clusters[name] for name in used_clusters(controller, clusters)}
        self._resources = {name: watched_resources(controller, cluster) for name, cluster in self._clusters.items()}
        for row in controller.indexes:
            self._resource(row.cluster, row.target).informer.add_index(row.name, row.values)
        self._stopped = asyncio.Event()
        self._is_working = False  # false on a standby
        self._standby_limit = STANDBY_KEYS  # how many keys may wait before those of deleted objects are dropped
        self._tasks: dict[Any, asyncio.Task[Any]] = {}  # key -> the task that reconciles it
        self._interrupted: set[Any] = set()
        self._cancelled: dict[asyncio.Task[Any], Any] = {}  # a task that was cancelled -> the key it was reconciling
        self._left: dict[Any, None] = {}  # keys of other processes that no cache would add again
        self._finished = asyncio.Event()  # set whenever a reconcile ends
        self._stuck = StuckKeyTracker(options.limits)
        self._worker = Worker(controller, self._clusters, self._resources, self.queue, self._stuck, clock=clock)
        self.tally = self._worker.tally
        self._background = self._background_work()
        self.sources = [self._source(watch) for watch in controller.watched]

    # -- life ---------------------------------------------------------------------------------------------------------

    def start_sources(self) -> None:
        """Let changes in; they wait in the queue until workers run."""
        for source in self.sources:
            source.start()
        for channel in self.controller.channels:
            channel.connect(self.queue.add)

    def has_synced(self) -> bool:
        """Whether every source has delivered its first list."""
        return all(source.has_synced() for source in self.sources)

    async def wait_synced(self) -> None:
        """Return once `has_synced()`, or when the runner was stopped."""
        waits: list[asyncio.Future[Any]] = [
            asyncio.gather(*(source.wait_synced() for source in self.sources)),
            asyncio.ensure_future(self._stopped.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def run(self) -> None:
        """Work until the queue is closed or this is cancelled; raises only when the runner itself is broken."""
        await self.wait_synced()
        if self._stopped.is_set():
            return
        log.info("controller started", controller=self.name, workers=self.controller.options.concurrency)
        self._is_working = True
        if self._background is None:
            await self._run_workers()
            return
        with self.snapshot() as snapshot:
            self._background.start(snapshot[self.controller.target])
        try:
            await self._run_workers()
        finally:
            self._background.stop()
            await self._background.ended(lambda _key: True)

    async def _run_workers(self) -> None:
        wanted = self.controller.options.concurrency
        async with asyncio.TaskGroup() as parts:  # one that breaks ends all: a dead timer would go unnoticed
            timers = [parts.create_task(self._run_schedule(schedule)) for schedule in self.controller.schedules]
            timers.append(parts.create_task(self._report_stuck_keys()))
            workers = {parts.create_task(self._work(), name=f"{self.name} worker {n}") for n in range(wanted)}
            while workers:
                ended, workers = await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
                for worker in filter(asyncio.Task.cancelled, ended):
                    self._replaced(worker)
                    workers.add(parts.create_task(self._work(), name=worker.get_name()))
            for timer in timers:
                timer.cancel()

    def stop(self) -> None:
        """Take nothing new; what is running may end. `run` returns when it has."""
        self._stopped.set()
        for source in self.sources:
            source.stop()
        self.queue.close(drop=True)
        if self._background is not None:
            self._background.stop()

    # -- what a manager asks for --------------------------------------------------------------------------------------

    def add(self, key: Any, *, priority: int = 0, after: float | None = None) -> None:
        """Have `key` reconciled, for a reason that no source knows of."""
        self.queue.add(key, priority=priority, after=after)
        if not self._is_working and self.queue.dirty > self._standby_limit:
            self._drop_deleted_keys()

    def add_all(self, *, where: Callable[[Any], bool] = lambda _key: True, spread_seconds: float = 0.0) -> None:
        """Have every key (for which `where` holds) reconciled, behind real changes.

        That is every object, and what was left to other processes: also of objects that were deleted since.
        """
        left = [key for key in self._left if where(key)]
        for key in left:
            del self._left[key]
        for key in dict.fromkeys([*left, *filter(where, self._known_keys())]):
            after = self._random() * spread_seconds if spread_seconds else None
            self.queue.add(key, priority=LOW_PRIORITY, after=after)
        if self._background is not None:
            with self.snapshot() as snapshot:
                self._background.update(obj for obj in snapshot[self.controller.target] if where(ref_of(obj)))

    def _drop_deleted_keys(self) -> None:
        """Drop the keys of objects that were created and deleted while this process was on standby."""
        controller = self.controller
        if controller.target is not None and controller.missing_handler is None:
            informer = self._resource("", controller.target).informer
            if informer.has_synced():
                with informer.snapshot() as snapshot:
                    self.queue.retain(lambda key: snapshot.get(key) is not None)
        self._standby_limit = max(STANDBY_KEYS, 2 * self.queue.dirty)

    async def wait_idle(self, where: Callable[[Any], bool]) -> None:
        """Return when nothing works on a key for which `where` holds; new work must be refused by `permit`."""
        if self._background is not None:
            self._background.cancel(where)
            await self._background.ended(where)
        while any(where(key) for key in self.queue.processing_keys()):
            self._finished.clear()
            await self._finished.wait()
        self._worker.forget_memories(where)

    def interrupt(self, where: Callable[[Any], bool]) -> None:
        """Cancel the reconciles of such keys, which become dirty again, for the process that may work on them."""
        if self._background is not None:
            self._background.cancel(where)
        for key, task in self._tasks.items():
            if where(key) and key not in self._interrupted:
                self._interrupted.add(key)
                task.cancel()

    def stuck_keys(self) -> list[StuckKey]:
        """Keys that write in every reconcile, never end or keep failing."""
        return list(self._stuck.current(self._clock.monotonic()))

    def snapshot(self) -> ClusterSnapshot:
        """Everything its controller reads, at this moment; close it soon."""
        return ClusterSnapshot(self._resources[""], user=self.name)

    # -- working ------------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.get()
            except QueueClosed:
                return
            task = self._tasks[key] = current_task()
            try:
                if self._permit is None or self._permit(key):
                    await self._worker.reconcile(key)
                else:
                    self._leave(key)
            except asyncio.CancelledError:
                if key not in self._interrupted or task.cancelling() > 1:
                    self._cancelled[task] = key
                    raise
                self.queue.add(key)  # only this reconcile was to end, not its worker
            finally:
                if key in self._interrupted:
                    self._interrupted.discard(key)
                    task.uncancel()
                del self._tasks[key]
                self.queue.done(key)
                self._finished.set()

    def _replaced(self, worker: asyncio.Task[Any]) -> None:
        """A single worker was cancelled: what it reconciled did that, now or just before."""
        key = self._cancelled.pop(worker, None)
        log.error("a reconcile cancelled its worker; it is replaced", controller=self.name, worker=worker.get_name())
        if key is not None:
            self._worker.cancelled_itself(key)

    def _leave(self, key: Any) -> None:
        """The key belongs to another process, or to none during a handover: keep it if no cache would add it again.

        Objects that exist are reconciled anyway when they become ours. What remains are deleted objects, if the
        controller has an `on_missing`, and keys that are not objects.
        """
        self.queue.forget(key)
        self._stuck.forget(key)
        if self.controller.target is not None and (self.controller.missing_handler is None or self._exists(key)):
            return
        self._left.pop(key, None)
        self._left[key] = None
        if len(self._left) > LEFT_KEYS:
            del self._left[next(iter(self._left))]

    # -- parts --------------------------------------------------------------------------------------------------------

    def _background_work(self) -> BackgroundWork | None:
        if not self.controller.background:
            return None
        return BackgroundWork(
            self.controller,
            self._clusters[""],
            self._worker,
            permit=self._permit,
            clock=self._clock,
            random=self._random,
        )

    def _source(self, watch: Any) -> InformerSource[Any]:
        if watch.role == "for":
            watch = self._completed(watch)
        informer = self._resource(watch.cluster, watch.target).informer
        read = partial(ClusterSnapshot, self._resources[""], user=self.name, brief=True)
        return InformerSource(watch, informer, self, read, controller=self.name)

    def _completed(self, watch: WatchSpec) -> WatchSpec:
        """The row of the controller's own kind, with what background work and field handlers must see."""
        for row in self.controller.field_handlers:
            watch = replace(watch, when=None if watch.when is None else watch.when | changed(row.path))
        background, observe = self._background, watch.observe
        if background is None:
            return watch

        def observed(old: Any, new: Any) -> None:
            background.changed(old, new)
            if observe is not None:
                observe(old, new)

        return replace(watch, observe=observed)

    def _resource(self, cluster: str, target: Any) -> WatchedResource:
        return next(resource for resource in self._resources[cluster] if resource.target is target)

    def _known_keys(self) -> list[Any]:
        """The keys of all objects; without a kind of its own, whatever its mappings make of what they watch."""
        if self.controller.target is None:
            return [key for source in self.sources for key in source.known_keys()]
        with self.snapshot() as snapshot:
            return [ref_of(obj) for obj in snapshot[self.controller.target]]

    def _exists(self, key: Any) -> bool:
        with self._resource("", self.controller.target).informer.snapshot() as snapshot:
            return snapshot.get(key) is not None

    async def _run_schedule(self, schedule: Schedule) -> None:
        while True:
            await schedule.wait(self._clock)
            if schedule.keys is None:
                self.add_all(spread_seconds=schedule.every_seconds)
            for key in schedule.keys or ():
                self.queue.add(key, priority=LOW_PRIORITY)

    async def _report_stuck_keys(self) -> None:
        while True:
            await self._clock.sleep(STUCK_CHECK_SECONDS)
            self._stuck.log_changes(self._clock.monotonic(), self.name)
