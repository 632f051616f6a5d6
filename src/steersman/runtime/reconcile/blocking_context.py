"""Reconcilers that block: each run gets a thread, and a context whose methods block as well.

There are never more threads than the controller's concurrency. A thread cannot be stopped from outside, so a run that
is cancelled or timed out, however often, keeps its key until the thread ends: no key runs twice at once, and no lease
is released under it. What can be stopped is what it asked of its context: a request in flight is cancelled at once,
because a cancelled reconcile may no longer act, and the method it waits for, like every further one, raises. Threads do
not keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from steersman.runtime.daemon_thread import start_thread
from steersman.runtime.reconcile.context import ClusterContext

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from steersman.kube.client.pod_streams import PortForward
    from steersman.runtime.reconcile.context import Context

__all__ = ["BlockingContext", "run_blocking"]

P = ParamSpec("P")
T = TypeVar("T")


class Abandoned(RuntimeError):  # noqa: N818  a state of the run, not a fault of its own
    """The reconcile was cancelled or timed out: stop."""


async def run_blocking(function: Callable[..., Any], context: Context, *arguments: Any) -> Any:
    """Call `function(context, *arguments)` in a thread of its own and return what it returns."""
    blocking = BlockingContext(context, asyncio.get_running_loop())
    outcome = start_thread(function, blocking, *arguments, name=f"reconcile {context.key}")
    try:
        return await asyncio.shield(outcome)
    except asyncio.CancelledError:
        blocking.abandon()
        while not outcome.done():  # a timeout cancels once, the end of the process once more, and the thread works on
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([outcome])
        outcome.exception()  # no caller waits for it any more
        raise


def _waiting_for(
    method: Callable[Concatenate[ClusterContext, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_BlockingCluster, P], T]:
    """The same method for a thread, which waits for the answer."""

    @functools.wraps(method)
    def call(self: _BlockingCluster, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return cast("T", self._run.wait(getattr(self._context, method.__name__)(*args, **kwargs)))

    return call


class _BlockingCluster:
    """Reading and writing in one cluster, from a thread."""

    def __init__(self, run: BlockingContext, context: ClusterContext) -> None:
        self._run = run
        self._context = context
        self.cache = _BlockingCache(run, context.cache)
        self.field_manager = context.field_manager

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be changed."""
        return self._context.dry_run

    @property
    def writes(self) -> int:
        """Requests so far that changed something, or asked to."""
        return self._context.writes

    apply = _waiting_for(ClusterContext.apply)
    create = _waiting_for(ClusterContext.create)
    patch = _waiting_for(ClusterContext.patch)
    delete = _waiting_for(ClusterContext.delete)
    add_finalizer = _waiting_for(ClusterContext.add_finalizer)
    remove_finalizer = _waiting_for(ClusterContext.remove_finalizer)
    logs = _waiting_for(ClusterContext.logs)
    exec = _waiting_for(ClusterContext.exec)

    def status(self, obj: Any, status: Any = None, **fields: Any) -> bool:
        return bool(self._run.wait(self._context.status(obj, status, **fields)))

    def set_condition(self, obj: Any, kind: str, status: Any, *, reason: str, message: str = "", **fields: Any) -> bool:
        call = self._context.set_condition(obj, kind, status, reason=reason, message=message, **fields)
        return bool(self._run.wait(call))

    @contextlib.contextmanager
    def port_forward(self, pod: Any, port: int) -> Iterator[PortForward]:
        opened = self._context.port_forward(pod, port)
        local = cast("PortForward", self._run.wait(opened.__aenter__()))
        try:
            yield local
        finally:
            self._run.finish(opened.__aexit__(None, None, None))

    def event(self, obj: Any, reason: str, message: str, *, warning: bool = False) -> None:
        self._run.on_loop(lambda: self._context.event(obj, reason, message, warning=warning))

    def effect(self, name: str, target: str = "") -> bool:
        return bool(self._run.on_loop(lambda: self._context.effect(name, target)))


class BlockingContext(_BlockingCluster):
    """A `Context` for a thread: the same methods, without `await`."""

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._abandoned = threading.Event()
        self._requests: set[asyncio.Task[Any]] = set()  # what the thread waits for; known to the event loop only
        super().__init__(self, context)
        self._reconcile = context
        self.key = context.key
        self.reconcile_id = context.reconcile_id
        self.failures = context.failures
        self.clock = context.clock
        self.log = context.log
        self.clusters = {name: _BlockingCluster(self, other) for name, other in context.clusters.items()}

    @property
    def memory(self) -> dict[str, Any]:
        """What this controller keeps about the object, in this process only."""
        return cast("dict[str, Any]", self.on_loop(lambda: self._reconcile.memory))

    def abandon(self) -> None:
        """Cancel the call in flight and let every further one fail. To be called on the event loop."""
        self._abandoned.set()
        for request in self._requests:
            request.cancel()

    @property
    def abandoned(self) -> bool:
        """Whether the run should end: it was cancelled or timed out."""
        return self._abandoned.is_set()

    def on_loop(self, call: Callable[[], Any]) -> Any:
        """Run `call` on the event loop, where the caches live."""

        async def run() -> Any:
            return call()

        return self.wait(run())

    def wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """What `coroutine` answers, on the event loop."""
        return asyncio.run_coroutine_threadsafe(self._request(coroutine), self._loop).result()

    def finish(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run what gives something back, also when the run was cancelled meanwhile."""
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _request(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """On the event loop, where `abandon` is called too: a request is either seen by it or sees it."""
        if self._abandoned.is_set():
            coroutine.close()
            raise Abandoned(f"the reconcile of {self.key} was cancelled")
        task = asyncio.current_task()
        assert task is not None
        self._requests.add(task)
        try:
            return await coroutine
        except asyncio.CancelledError:
            if not self._abandoned.is_set():
                raise
            raise Abandoned(f"the reconcile of {self.key} was cancelled") from None
        finally:
            self._requests.discard(task)


class _BlockingCache:
    """`Context.cache` for a thread."""

    def __init__(self, context: BlockingContext, snapshots: Any) -> None:
        self._context = context
        self._snapshots = snapshots

    def __getitem__(self, target: Any) -> _BlockingSnapshot:
        return _BlockingSnapshot(self._context, self._context.on_loop(lambda: self._snapshots[target]))


class _BlockingSnapshot:
    """A snapshot, read from a thread."""

    def __init__(self, context: BlockingContext, snapshot: Any) -> None:
        self._context = context
        self._snapshot = snapshot

    def get(self, ref: Any) -> Any:
        return self._context.on_loop(lambda: self._snapshot.get(ref))

    def list(self, **options: Any) -> Any:
        return self._context.on_loop(lambda: self._snapshot.list(**options))

    def by_index(self, index: str, value: str) -> Any:
        return self._context.on_loop(lambda: self._snapshot.by_index(index, value))

    @property
    def resource_version(self) -> str:
        return str(self._snapshot.resource_version)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.list())

    def __contains__(self, ref: object) -> bool:
        return bool(self._context.on_loop(lambda: ref in self._snapshot))

    def __len__(self) -> int:
        return int(self._context.on_loop(lambda: len(self._snapshot)))
