"""The worker: reconciles one key.

    snapshot ─► reconcile | cleanup | on_missing ─► done | requeue | error ─► queue, counters, log

- One reconcile reads one snapshot, taken when it begins; its own writes are visible in it.
- Whatever a reconciler does (raise, hang, return nonsense), it is counted, logged with its `reconcile_id`, and concerns
  its own key only. The delays before its retries grow until it succeeds.

It neither takes keys from the queue nor decides which keys may be worked on: see `controller.runner`.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import structlog
from structlog.contextvars import bind_contextvars, bound_contextvars, reset_contextvars

from steersman.cache.identity import revision_of
from steersman.clock import Deadline
from steersman.errors import PlanError, SteersmanError, summary_of, traceback_of
from steersman.kube.api.errors import Conflict, KubeError
from steersman.kube.transport.tracing import active_tracer, reconcile_span, record_error
from steersman.logger import Logger
from steersman.runtime.cluster import ClusterSnapshot
from steersman.runtime.controller.field_handlers import FieldChange, copied
from steersman.runtime.controller.result import Result, TerminalError, done
from steersman.runtime.controller.struct_fields import value_at
from steersman.runtime.observability.histogram import RECONCILE_BUCKETS, Histogram
from steersman.runtime.reconcile.blocking_context import run_blocking
from steersman.runtime.reconcile.context import ClusterContext, Context
from steersman.runtime.reconcile.finalizers import has_finalizer, is_terminating
from steersman.runtime.reconcile.metadata import metadata_of
from steersman.runtime.reconcile.object_memory import ObjectMemories
from steersman.runtime.reconcile.plan_errors import PlanErrorReporter

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

    from steersman.clock import Clock
    from steersman.runtime.cluster import Cluster, WatchedResource
    from steersman.runtime.controller.builder import Controller
    from steersman.runtime.controller.stuck_keys import StuckKeyTracker
    from steersman.runtime.workqueue.queue import WorkQueue

__all__ = ["ReconcileTimeout", "Tally", "Worker", "call", "current_task"]

PLAN_RETRY_SECONDS = 30.0  # the first retry after a PlanError; a change of what it depends on is sooner
STALE_RETRIES = 5  # conflicts in a row that are not a failure: the next reconcile sees the change it collided with
SATURATION_SECONDS = 60.0  # between two warnings that all threads are busy

log = Logger(__name__)


class Tally:
    """What happened so far; `steersman.runtime.observability.metrics` shows it."""

    def __init__(self) -> None:
        self.results = {"success": 0, "error": 0, "requeue": 0, "requeue_after": 0}
        self.terminal_errors = 0
        self.panics = 0  # errors that are not ours: defects in the reconciler, most likely
        self.timeouts = 0
        self.active = 0  # workers that are reconciling right now
        self.seconds = Histogram(RECONCILE_BUCKETS)


class ReconcileTimeout(SteersmanError):  # noqa: N818  reads better in a log than an error of an error
    """A reconcile took longer than its controller allows."""


class Worker:
    """Reconciles the keys of one controller; any number of tasks may use it at once, for one key each."""

    def __init__(
        self,
        controller: Controller,
        clusters: Mapping[str, Cluster],
        resources: Mapping[str, list[WatchedResource]],
        queue: WorkQueue[Any],
        stuck: StuckKeyTracker,
        *,
        clock: Clock,
    ) -> None:
        self.tally = Tally()
        self.memories = ObjectMemories()
        self._handled = ObjectMemories()  # values of fields, by their path, when their handlers last succeeded
        self._controller = controller
        self._clusters = clusters
        self._resources = resources
        self._queue = queue
        self._stuck = stuck
        self._clock = clock
        self._guard = clusters[""].guard
        self._field_manager = (
            controller.options.field_manager or f"{clusters[''].client.field_manager}-{controller.name}"
        )
        self._plan_errors = PlanErrorReporter(controller.target) if controller.target is not None else None
        self._owned_kinds = controller.owned_kinds
        self._uses_threads = not controller.is_async
        self._warned = float("-inf")  # when it last logged that all threads are busy

    def reconcile(self, key: Any) -> Coroutine[Any, Any, None]:
        """Reconcile `key` and decide when it is next; raises only when it is cancelled."""
        tracer = active_tracer()
        return self._reconcile(key) if tracer is None else self._reconcile_traced(tracer, key)

    async def _reconcile_traced(self, tracer: Any, key: Any) -> None:
        queued, now = self._queue.queued_seconds(key), self._clock.time()
        with reconcile_span(tracer, self._controller.name, str(key), now=now, queued_seconds=queued):
            await self._reconcile(key)

    async def _reconcile(self, key: Any) -> None:
        reconcile_id = os.urandom(16).hex()
        started = self._clock.monotonic()
        self.tally.active += 1
        self._stuck.began(key, started)
        bound = bind_contextvars(controller=self._controller.name, object=str(key), reconcile_id=reconcile_id)
        try:
            self._warn_when_saturated()
            try:
                result = await self._attempt(key, reconcile_id)
            except Exception as error:  # noqa: BLE001  a reconciler may raise anything; it concerns its key only
                self._failed(key, error)
            else:
                self._succeeded(key, result)
        finally:
            reset_contextvars(**bound)
            self.tally.active -= 1
            self._stuck.ended(key)
            self.tally.seconds.observe(self._clock.monotonic() - started)

    def cancelled_itself(self, key: Any) -> None:
        """A reconcile of `key` cancelled the task it ran in: count that as a failure."""
        with bound_contextvars(controller=self._controller.name, object=str(key)):
            self._failed(key, RuntimeError("the reconcile cancelled the task it ran in"))

    # -- one attempt ---------------------------------------------------------------------------------------------------

    async def _attempt(self, key: Any, reconcile_id: str) -> Result:
        limit = self._controller.options.timeout_seconds
        with ExitStack() as stack:
            stack.enter_context(self._guard.acting_for(key))
            context = self._context(key, reconcile_id, stack)
            stack.callback(self._note_writes, context, key, self._live(context, key))
            deadline = Deadline(self._clock, limit)
            try:
                async with deadline:
                    result = await self._call_reconciler(context, key)
            except PlanError as error:
                if self._plan_errors is not None:
                    await self._plan_errors.report(context, key, error)
                raise
            except asyncio.CancelledError as error:
                if current_task().cancelling():
                    raise
                raise RuntimeError("something the reconcile waited for was cancelled") from error
            except SystemExit as error:  # of a library that was made for a command line; others still have work to do
                raise RuntimeError(f"the reconcile called exit({error.code})") from error
            except TimeoutError as error:
                if not deadline.expired:
                    raise
                self.tally.timeouts += 1
                raise ReconcileTimeout(f"the reconcile took longer than {limit:g} s") from error
        if not isinstance(result, Result):
            name = self._controller.name
            raise TypeError(f"{name} returned {type(result).__name__}: return done, requeue(…) or nothing")
        return result

    async def _call_reconciler(self, context: Context, key: Any) -> Any:
        """Call the function for the state of the object: reconcile, cleanup or on_missing."""
        controller, plan_errors = self._controller, self._plan_errors
        if plan_errors is None:
            return await call(controller.reconcile, context, key)
        obj = context.cache[controller.target].get(key)
        if obj is None:
            self._stuck.forget(key)
            plan_errors.forget(key)
            self.memories.forget(key)
            self._handled.forget(key)
            if controller.missing_handler is not None:
                await call(controller.missing_handler, context, key)
            return done
        if is_terminating(obj):
            if controller.finalizers:
                return await self._clean_up(context, key, obj)
            if not controller.options.while_terminating:
                return done
        elif controller.finalizers:
            obj = await context.add_finalizer(obj, *(row.name for row in controller.finalizers))
        if controller.field_handlers:
            await self._handle_fields(context, key, obj)
        was_reported = plan_errors.is_reported(key, obj)
        result = await call(controller.reconcile, context, obj)
        if was_reported:
            await plan_errors.clear(context, key)
        return result

    async def _handle_fields(self, context: Context, key: Any, obj: Any) -> None:
        """Call the handlers of the fields that differ from what they were when their handlers last succeeded."""
        handled: dict[str, Any] = self._handled.of(key, metadata_of(obj).uid)
        for row in self._controller.field_handlers:
            value = value_at(obj, row.route)
            if row.path not in handled:
                handled[row.path] = copied(value)
            elif (old := handled[row.path]) != value:
                await call(row.handler, context, obj, FieldChange(path=row.path, old=old, new=value))
                handled[row.path] = copied(value)

    @contextmanager
    def open_context(self, key: Any) -> Iterator[Context]:
        """A context for `key` on a snapshot of this moment, outside of its reconciles; what it writes is guarded."""
        with ExitStack() as stack:
            stack.enter_context(self._guard.acting_for(key))
            yield self._context(key, os.urandom(16).hex(), stack)

    def forget_memories(self, where: Callable[[Any], bool]) -> None:
        """Other processes work on these keys from now on."""
        self.memories.forget_all(where)
        self._handled.forget_all(where)

    async def _clean_up(self, context: Context, key: Any, obj: Any) -> Any:
        """Run the cleanups whose finalizers are still there, in their order; one that is not done holds the rest."""
        controller = self._controller
        for row in controller.finalizers:
            if not has_finalizer(obj, row.name):
                continue
            result = await call(row.cleanup, context, obj)
            if result != done:
                return result
            await context.remove_finalizer(context.cache.live(controller.target, key) or obj, row.name)
            obj = context.cache[controller.target].get(key)
            if obj is None:
                break
        return done

    def _context(self, key: Any, reconcile_id: str, stack: ExitStack) -> Context:
        controller, manager = self._controller, self._field_manager
        caches = {
            name: stack.enter_context(
                ClusterSnapshot(resources, user=controller.name, copies=not controller.options.shared_objects)
            )
            for name, resources in self._resources.items()
        }
        others = {
            name: ClusterContext(cluster, caches[name], field_manager=manager, key=key)
            for name, cluster in self._clusters.items()
            if name
        }
        return Context(
            self._clusters[""],
            caches[""],
            key=key,
            reconcile_id=reconcile_id,
            field_manager=manager,
            clock=self._clock,
            log=structlog.get_logger(__name__),
            failures=self._queue.num_requeues(key),
            target=controller.target,
            owned_kinds=self._owned_kinds,
            others=others,
            memories=self.memories,
        )

    # -- outcomes ------------------------------------------------------------------------------------------------------

    def _succeeded(self, key: Any, result: Result) -> None:
        self._stuck.succeeded(key)
        if not result.requeue:
            self.tally.results["success"] += 1
            self._queue.forget(key)
        elif result.after_seconds is not None:
            self.tally.results["requeue_after"] += 1
            self._queue.forget(key)
            priority = self._queue.priority(key) if result.priority is None else result.priority
            self._queue.add(key, priority=priority, after=result.after_seconds)
        else:
            self.tally.results["requeue"] += 1
            self._queue.add_rate_limited(key, priority=result.priority)

    def _failed(self, key: Any, error: Exception) -> None:
        if _is_stale(error) and self._queue.num_requeues(key) < STALE_RETRIES:
            self.tally.results["requeue"] += 1
            delay = self._queue.add_rate_limited(key)
            log.info("conflict with another client; reconciling again", error=str(error), retry_seconds=delay)
            return
        self.tally.results["error"] += 1
        record_error(error)
        expected = isinstance(error, SteersmanError)
        self.tally.panics += not expected
        if isinstance(error, TerminalError):
            self.tally.terminal_errors += 1
            self._queue.forget(key)
            self._stuck.succeeded(key)
            log.warning("reconcile failed; no retry until something changes", error=str(error))
            return
        if isinstance(error, PlanError) and not error.retryable:  # the object is wrong, not this controller
            self._stuck.succeeded(key)
            delay = self._queue.add_rate_limited(key, at_least=PLAN_RETRY_SECONDS)
            log.warning("reconcile failed", error=str(error), reason=error.reason, retry_seconds=round(delay, 3))
            return
        wait = (error.retry_after or 0.0) if isinstance(error, KubeError) else 0.0
        delay = self._queue.add_rate_limited(key, at_least=wait)
        message = (expected and str(error)) or summary_of(error)
        is_new = self._stuck.failed(key, self._queue.num_requeues(key), message)
        details = {"error": message, "retry_seconds": round(delay, 3)}
        if expected:
            log.warning("reconcile failed", **details)
        else:  # the traceback is logged once, not with every retry
            log.error("reconcile failed", **details, **({"traceback": traceback_of(error)} if is_new else {}))

    def _live(self, context: Context, key: Any) -> Any | None:
        target = self._controller.target
        return None if target is None else context.cache.live(target, key)

    def _note_writes(self, context: Context, key: Any, begun: Any | None) -> None:
        """`begun`: the object when the reconcile began."""
        writes = context.writes + sum(other.writes for other in context.clusters.values())
        if not writes:
            self._stuck.rested(key)
            return
        after = _spec_version(self._live(context, key))  # own writes included, so that only others' changes count
        self._stuck.wrote(key, self._clock.monotonic(), before=_spec_version(begun), after=after)

    def _warn_when_saturated(self) -> None:
        """Threads are few: say so when all of them are busy and keys wait."""
        if not self._uses_threads:
            return
        now = self._clock.monotonic()
        busy = self.tally.active == self._controller.options.concurrency and len(self._queue) > 0
        if busy and now - self._warned > SATURATION_SECONDS:
            self._warned = now
            log.warning(
                "all threads are busy",
                controller=self._controller.name,
                threads=self.tally.active,
                waiting=len(self._queue),
            )


def current_task() -> asyncio.Task[Any]:
    """The task that runs this."""
    task = asyncio.current_task()
    assert task is not None
    return task


def _spec_version(obj: Any | None) -> int | str:
    """What changes with the spec of an object: its generation, or its resourceVersion where the kind has none."""
    return 0 if obj is None else metadata_of(obj).generation or revision_of(obj)


def _is_stale(error: Exception) -> bool:
    """Whether a write was meant for an older resourceVersion. A field that another manager owns stays owned."""
    return type(error) is Conflict and not error.causes


async def call(function: Callable[..., Any], context: Context, *arguments: Any) -> Any:
    """The answer of a function, on the loop or in a thread; nothing means done."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        answer = await function(context, *arguments)
    else:
        answer = await run_blocking(function, context, *arguments)
    return done if answer is None else answer
