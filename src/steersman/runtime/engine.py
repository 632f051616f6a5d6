"""The engine: runs one controller.

    sources ──► queue ──► workers: snapshot ─► reconcile ─► done | later | failed

- No key is reconciled before every source has delivered its first list: nobody decides on half a picture.
- One reconcile reads one snapshot, taken when it begins; its own writes are visible in it.
- Whatever a reconciler does (raise, hang, return nonsense), it is counted, logged with its `reconcile_id`, and concerns
  its own key only. Its delays grow until it does not fail.
- A key that somebody else may work on is left to them and not lost: `add_all` brings it back when it is ours again.
- A worker itself ends only when the queue is closed or it is cancelled; anything else is a defect, which `run` raises.
  One that its own reconcile cancelled is replaced: nobody else cancels a single worker.
"""

from __future__ import annotations

import asyncio
import inspect
import random as randomness
import uuid
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from structlog.contextvars import bound_contextvars

from steersman.cache.identity import ref_of, revision_of
from steersman.clock import SYSTEM_CLOCK, Deadline
from steersman.errors import PlanError, SteersmanError, traceback_of
from steersman.kube.errors import Conflict, KubeError
from steersman.logger import Logger
from steersman.runtime.cluster import Snapshots, shelves, used_clusters
from steersman.runtime.context import ClusterContext, Context
from steersman.runtime.finalizers import has_finalizer, is_terminating
from steersman.runtime.histogram import RECONCILE_BUCKETS, Histogram
from steersman.runtime.metadata import metadata_of
from steersman.runtime.queue import LOW_PRIORITY, QueueClosed, WorkQueue
from steersman.runtime.result import Result, TerminalError, done
from steersman.runtime.sources import Source
from steersman.runtime.supervision import why_of
from steersman.runtime.threads import run_blocking
from steersman.runtime.troubles import Trouble, Troubles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from steersman.clock import Clock
    from steersman.runtime.cluster import Cluster, Shelf
    from steersman.runtime.controller import Controller, Schedule

__all__ = ["Engine", "Tally"]

NAP_SECONDS = 60.0  # so that a wall clock that is set moves what is due by it
LOOK_SECONDS = 10.0  # between two looks for keys in trouble
IDLE_KEYS = 1_000  # keys that may pile up while nobody works before those of gone objects are let go of
LATE_LOOKS = 5  # conflicts in a row that are no failure: the next look sees what the last one ran into
LEFT_KEYS = 10_000  # keys remembered that were somebody else's; the oldest are forgotten beyond that

log = Logger(__name__)


class Tally:
    """What happened so far; `steersman.runtime.metrics` shows it."""

    def __init__(self) -> None:
        self.results = {"success": 0, "error": 0, "requeue": 0, "requeue_after": 0}
        self.terminal_errors = 0
        self.panics = 0  # errors that are not ours: defects in the reconciler, most likely
        self.timeouts = 0
        self.active = 0  # workers that are reconciling right now
        self.seconds = Histogram(RECONCILE_BUCKETS)


class ReconcileTimeout(SteersmanError):  # noqa: N818  reads better in a log than an error of an error
    """A reconcile took longer than its controller allows."""


class Engine:
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
        """`permit` says whether this process may work on a key right now; others are left to whoever may."""
        self.controller = controller
        self.name = controller.name
        self.tally = Tally()
        self._clock = clock
        self._random = random
        self._permit = permit
        options = controller.options
        limiter = options.limiter() if options.limiter is not None else None
        self.queue: WorkQueue[Any] = WorkQueue(name=self.name, limiter=limiter, debounce=options.debounce, clock=clock)
        self._clusters = {name: clusters[name] for name in used_clusters(controller, clusters)}
        self._shelves = {name: shelves(controller, cluster) for name, cluster in self._clusters.items()}
        self.sources = [self._source(watch) for watch in controller.watched]
        for channel in controller.channels:
            channel.connect(self.queue.add)
        for row in controller.indexes:
            self._shelf(row.cluster, row.target).informer.add_index(row.name, row.values)
        self._field_manager = options.field_manager or f"{clusters[''].client.field_manager}-{self.name}"
        self._owned_kinds = controller.owned_kinds
        self._stopped = asyncio.Event()
        self._at_work = False  # workers run
        self._room = IDLE_KEYS  # how many keys may wait until then, before we look for what is gone
        self._working: dict[Any, asyncio.Task[Any]] = {}  # key -> the worker that reconciles it
        self._interrupted: set[Any] = set()
        self._cancelled: dict[asyncio.Task[Any], Any] = {}  # a worker that was cancelled -> what it was reconciling
        self._left: dict[Any, None] = {}  # keys that were somebody else's and that no cache would bring back
        self._finished = asyncio.Event()  # set whenever a reconcile ends
        self._threaded = not controller.is_async
        self._warned = float("-inf")
        self._troubles = Troubles(options.limits)
        self._told: dict[tuple[str, Any], str] = {}  # troubles that the log knows of

    # -- life ---------------------------------------------------------------------------------------------------------

    def start_sources(self) -> None:
        """Let changes in; they wait in the queue until workers run."""
        for source in self.sources:
            source.start()

    def has_synced(self) -> bool:
        """Whether every source has delivered its first list."""
        return all(source.has_synced() for source in self.sources)

    async def wait_synced(self) -> None:
        """Return once `has_synced()`, or when there is no use in waiting because the engine was stopped."""
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
        """Work until the queue is closed or this is cancelled; raises only when the engine itself is broken."""
        await self.wait_synced()
        if self._stopped.is_set():
            return
        wanted = self.controller.options.concurrency
        log.info("controller started", controller=self.name, workers=wanted)
        self._at_work = True
        async with asyncio.TaskGroup() as parts:  # one that breaks ends all, because nobody would miss a timer
            timers = [parts.create_task(self._look_around(schedule)) for schedule in self.controller.schedules]
            timers.append(parts.create_task(self._look_for_trouble()))
            workers = {parts.create_task(self._work(), name=f"{self.name} worker {n}") for n in range(wanted)}
            while workers:
                ended, workers = await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
                for worker in filter(asyncio.Task.cancelled, ended):
                    self._lost(worker)
                    workers.add(parts.create_task(self._work(), name=worker.get_name()))
            for timer in timers:
                timer.cancel()

    def stop(self) -> None:
        """Take nothing new; what is running may end. `run` returns when it has."""
        self._stopped.set()
        for source in self.sources:
            source.stop()
        self.queue.close(drop=True)

    # -- what a manager asks for --------------------------------------------------------------------------------------

    def add(self, key: Any, *, priority: int = 0, after: float | None = None) -> None:
        """Have `key` reconciled, for a reason that no source knows of."""
        self.queue.add(key, priority=priority, after=after)
        if not self._at_work and self.queue.dirty > self._room:
            self._let_go_of_gone_objects()

    def add_all(self, *, where: Callable[[Any], bool] = lambda _key: True, spread_seconds: float = 0.0) -> None:
        """Have every key (for which `where` holds) reconciled, behind real changes.

        That is every object, and what was left to somebody else: also of objects that are gone since.
        """
        left = [key for key in self._left if where(key)]
        for key in left:
            del self._left[key]
        for key in dict.fromkeys([*left, *filter(where, self._known_keys())]):
            after = self._random() * spread_seconds if spread_seconds else None
            self.queue.add(key, priority=LOW_PRIORITY, after=after)

    def _let_go_of_gone_objects(self) -> None:
        """A standby sees everything come and go; a worker would find nothing to do for what is gone already."""
        controller = self.controller
        if controller.target is not None and controller.on_gone is None:
            informer = self._shelf("", controller.target).informer
            if informer.has_synced():
                with informer.snapshot() as snapshot:
                    self.queue.retain(lambda key: snapshot.get(key) is not None)
        self._room = max(IDLE_KEYS, 2 * self.queue.dirty)

    async def wait_idle(self, where: Callable[[Any], bool]) -> None:
        """Return when no key for which `where` holds is being reconciled; new ones must be refused by `permit`."""
        while any(where(key) for key in self.queue.running_keys()):
            self._finished.clear()
            await self._finished.wait()

    def interrupt(self, where: Callable[[Any], bool]) -> None:
        """Cancel what is being reconciled for such keys; they are dirty again, for whoever may work on them."""
        for key, task in self._working.items():
            if where(key) and key not in self._interrupted:
                self._interrupted.add(key)
                task.cancel()

    # -- working ------------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.get()
            except QueueClosed:
                return
            task = self._working[key] = _current_task()
            try:
                if self._permit is None or self._permit(key):
                    await self._reconcile(key)
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
                del self._working[key]
                self.queue.done(key)
                self._finished.set()

    def _lost(self, worker: asyncio.Task[Any]) -> None:
        """A worker was cancelled, and nothing else: what it reconciled did that, now or just before."""
        key = self._cancelled.pop(worker, None)
        log.error("a reconcile cancelled its worker; it is replaced", controller=self.name, worker=worker.get_name())
        if key is not None:
            with bound_contextvars(controller=self.name, object=str(key)):
                self._failed(key, RuntimeError("the reconcile cancelled the task it ran in"))

    def _leave(self, key: Any) -> None:
        """The key is somebody else's. Between two owners it is nobody's, so it is kept if no cache would bring it back.

        Objects that exist are looked at again anyway when they become ours; so the rest is what is gone, where that
        matters, and keys that are not objects.
        """
        self.queue.forget(key)
        self._troubles.gone(key)
        if self.controller.target is not None and (self.controller.on_gone is None or self._exists(key)):
            return
        self._left.pop(key, None)
        self._left[key] = None
        if len(self._left) > LEFT_KEYS:
            del self._left[next(iter(self._left))]

    async def _reconcile(self, key: Any) -> None:
        reconcile_id = str(uuid.uuid4())
        started = self._clock.monotonic()
        self.tally.active += 1
        self._troubles.began(key, started)
        try:
            with bound_contextvars(controller=self.name, object=str(key), reconcile_id=reconcile_id):
                self._warn_when_saturated()
                try:
                    result = await self._attempt(key, reconcile_id)
                except Exception as error:  # noqa: BLE001  a reconciler may raise anything; it concerns its key only
                    self._failed(key, error)
                else:
                    self._succeeded(key, result)
        finally:
            self.tally.active -= 1
            self._troubles.ended(key)
            self.tally.seconds.observe(self._clock.monotonic() - started)

    async def _attempt(self, key: Any, reconcile_id: str) -> Result:
        with ExitStack() as stack:
            context = self._context(key, reconcile_id, stack)
            stack.callback(self._note_writes, context, key, self._spec_version(context, key))
            deadline = Deadline(self._clock, self.controller.options.timeout_seconds)
            try:
                async with deadline:
                    result = await self._answer(context, key)
            except asyncio.CancelledError as error:
                if _current_task().cancelling():
                    raise
                raise RuntimeError("something the reconcile waited for was cancelled") from error
            except SystemExit as error:  # of a library that was made for a command line; others still have work to do
                raise RuntimeError(f"the reconcile called exit({error.code})") from error
            except TimeoutError as error:
                if not deadline.expired:
                    raise
                self.tally.timeouts += 1
                limit = self.controller.options.timeout_seconds
                raise ReconcileTimeout(f"the reconcile took longer than {limit:g} s") from error
        if not isinstance(result, Result):
            raise TypeError(f"{self.name} returned {type(result).__name__}: return done, requeue(…) or nothing")
        return result

    async def _answer(self, context: Context, key: Any) -> Any:
        """What the right function says about the key: reconcile, cleanup or forget."""
        controller = self.controller
        if controller.target is None:
            return await _call(controller.reconcile, context, key)
        obj = context.cache[controller.target].get(key)
        if obj is None:
            self._troubles.gone(key)
            if controller.on_gone is not None:
                await _call(controller.on_gone, context, key)
            return done
        finalizer = controller.finalizer_name
        if is_terminating(obj):
            if finalizer is not None:
                return await self._clean_up(context, key, obj, finalizer)
            if not controller.options.while_terminating:
                return done
        elif finalizer is not None:
            obj = await context.add_finalizer(obj, finalizer)
        return await _call(controller.reconcile, context, obj)

    async def _clean_up(self, context: Context, key: Any, obj: Any, finalizer: str) -> Any:
        if not has_finalizer(obj, finalizer):
            return done
        result = await _call(self.controller.cleanup, context, obj)
        if result == done:
            await context.remove_finalizer(context.cache[self.controller.target].get(key) or obj, finalizer)
        return result

    # -- outcomes -----------------------------------------------------------------------------------------------------

    def _succeeded(self, key: Any, result: Result) -> None:
        self._troubles.succeeded(key)
        if not result.again:
            self.tally.results["success"] += 1
            self.queue.forget(key)
        elif result.after_seconds is not None:
            self.tally.results["requeue_after"] += 1
            self.queue.forget(key)
            priority = self.queue.priority(key) if result.priority is None else result.priority
            self.queue.add(key, priority=priority, after=result.after_seconds)
        else:
            self.tally.results["requeue"] += 1
            self.queue.retry(key, priority=result.priority)

    def _failed(self, key: Any, error: Exception) -> None:
        if _came_late(error) and self.queue.failures(key) < LATE_LOOKS:
            self.tally.results["requeue"] += 1
            log.info("somebody else was faster; looking again", error=str(error), retry_seconds=self.queue.retry(key))
            return
        self.tally.results["error"] += 1
        expected = isinstance(error, SteersmanError)
        self.tally.panics += not expected
        if isinstance(error, (TerminalError, PlanError)):
            self.tally.terminal_errors += 1
            self.queue.forget(key)
            self._troubles.succeeded(key)
            reason = getattr(error, "reason", None)
            log.warning("reconcile failed for good", error=str(error), **({"reason": reason} if reason else {}))
            return
        wait = (error.retry_after or 0.0) if isinstance(error, KubeError) else 0.0
        delay = self.queue.retry(key, at_least=wait)
        said = (expected and str(error)) or why_of(error)
        what = {"error": said, "retry_seconds": round(delay, 3)}
        news = self._troubles.failed(key, self.queue.failures(key), said)
        if expected:
            log.warning("reconcile failed", **what)
        else:  # where it happened is said once, not with every retry
            log.error("reconcile failed", **what, **({"traceback": traceback_of(error)} if news else {}))

    def troubles(self) -> list[Trouble]:
        """Keys that write every time, never end or keep failing."""
        return list(self._troubles.current(self._clock.monotonic()))

    def _spec_version(self, context: Context, key: Any) -> int | str:
        """What changes with the spec of an object: its generation, or its revision where the kind has none."""
        target = self.controller.target
        obj = None if target is None else context.cache[target].get(key)
        return 0 if obj is None else metadata_of(obj).generation or revision_of(obj)

    def _note_writes(self, context: Context, key: Any, before: int | str) -> None:
        writes = context.writes + sum(other.writes for other in context.clusters.values())
        after = self._spec_version(context, key)  # own writes included, so that only others' changes count
        self._troubles.wrote(key, self._clock.monotonic(), writes=writes, before=before, after=after)

    async def _look_for_trouble(self) -> None:
        """Tell the log what has become troublesome since the last look, and what is well again."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            current = {(trouble.kind, trouble.key): trouble.text for trouble in self.troubles()}
            for (kind, key), text in current.items():
                if (kind, key) not in self._told:
                    log.warning("a key is in trouble", controller=self.name, object=str(key), trouble=kind, why=text)
            for kind, key in self._told.keys() - current.keys():
                log.info("a key is well again", controller=self.name, object=str(key), trouble=kind)
            self._told = current

    def _warn_when_saturated(self) -> None:
        """Threads are few: say so when all of them are taken and keys wait."""
        if not self._threaded:
            return
        now = self._clock.monotonic()
        busy = self.tally.active == self.controller.options.concurrency and len(self.queue) > 0
        if busy and now - self._warned > 60:
            self._warned = now
            log.warning(
                "all threads are busy", controller=self.name, threads=self.tally.active, waiting=len(self.queue)
            )

    # -- the parts ----------------------------------------------------------------------------------------------------

    def _context(self, key: Any, reconcile_id: str, stack: ExitStack) -> Context:
        home, manager = self._clusters[""], self._field_manager
        caches = {name: stack.enter_context(self.snapshots(name)) for name in self._clusters}
        others = {
            name: ClusterContext(cluster, caches[name], field_manager=manager)
            for name, cluster in self._clusters.items()
            if name
        }
        return Context(
            home,
            caches[""],
            key=key,
            reconcile_id=reconcile_id,
            field_manager=manager,
            clock=self._clock,
            log=structlog.get_logger(__name__),
            failures=self.queue.failures(key),
            target=self.controller.target,
            owned_kinds=self._owned_kinds,
            others=others,
        )

    def snapshots(self, cluster: str = "") -> Snapshots:
        """Everything its controller reads, at this moment; close it soon."""
        return Snapshots(self._shelves[cluster], user=self.name)

    def _source(self, watch: Any) -> Source[Any]:
        informer = self._shelf(watch.cluster, watch.target).informer
        read = partial(Snapshots, self._shelves[""], user=self.name, brief=True)
        return Source(watch, informer, self, read, controller=self.name)

    def _shelf(self, cluster: str, target: Any) -> Shelf:
        return next(shelf for shelf in self._shelves[cluster] if shelf.target is target)

    def _known_keys(self) -> list[Any]:
        """The keys of all objects; without a kind of its own, whatever its mappings make of what they watch."""
        if self.controller.target is None:
            return [key for source in self.sources for key in source.known_keys()]
        with self.snapshots("") as snapshots:
            return [ref_of(obj) for obj in snapshots[self.controller.target]]

    def _exists(self, key: Any) -> bool:
        with self._shelf("", self.controller.target).informer.snapshot() as snapshot:
            return snapshot.get(key) is not None

    async def _look_around(self, schedule: Schedule) -> None:
        while True:
            if schedule.cron:
                due = schedule.next(self._clock.time())
                while (left := due - self._clock.time()) > 0:
                    await self._clock.sleep(min(left, NAP_SECONDS))
            else:
                await self._clock.sleep(schedule.every_seconds)
            if schedule.keys is None:
                self.add_all(spread_seconds=schedule.every_seconds)
            for key in schedule.keys or ():
                self.queue.add(key, priority=LOW_PRIORITY)


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def _came_late(error: Exception) -> bool:
    """Whether a write was meant for a revision that is past. A field that another manager owns stays owned."""
    return type(error) is Conflict and not error.causes


async def _call(function: Callable[..., Any], context: Context, argument: Any) -> Any:
    """The answer of a function, on the loop or in a thread; nothing means done."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        answer = await function(context, argument)
    else:
        answer = await run_blocking(function, context, argument)
    return done if answer is None else answer
