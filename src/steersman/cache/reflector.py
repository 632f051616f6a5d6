"""The reflector: keeps a sink equal to one list on an API server, for ever.

It performs the steps that `steersman.cache.list_watch_state` decides on, and calls its sink with the results:

    replace(objects, revision)   the complete state; what is missing from it was deleted
    upsert(objects), remove(obj) what changed, in the order of resourceVersions
    reached(revision)            delivered up to here
    progress(revision)           nothing happened up to here

A reflector never gives up and never raises for what a server does: a refusal, an absence or a silence shows in
`status` and is retried with backoff. A connection that is silent for longer than the server would be is replaced.

Where lists stand in for a watch that is not allowed, `refresh` lists one namespace between two complete lists. Requests
that come together are one list, and several namespaces at once are one complete list.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

import msgspec

from steersman.cache.identity import ref_of, revision_of
from steersman.cache.list_watch_state import (
    REFUSED_LIMIT,
    SHORT_WATCH,
    Ended,
    Failed,
    Listed,
    ListStep,
    ListWatchState,
    Outcome,
    StaleWatch,
    StreamStep,
    WatchStep,
    first_step,
    next_step,
)
from steersman.clock import SYSTEM_CLOCK, Clock, Deadline
from steersman.kube.api.errors import Forbidden, KubeError, NotFound, Unauthorized
from steersman.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from random import Random

    from steersman.cache.list_watch_state import Step
    from steersman.cache.metrics import ReflectorMetrics
    from steersman.kube.api.gvk import NamespacedName

__all__ = ["Origin", "Reflector", "ReflectorStatus", "Sink"]

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

WATCH_SECONDS = (240, 480)  # a watch is asked to end at a random moment in here, so that clients spread over servers
GRACE = 5.0  # seconds a server may be late with the end of a watch before the connection counts as dead
INITIAL_SILENCE = 30.0  # seconds without initial events and without their end: the server does not know of an end
BOOKMARK_SECONDS = 60.0  # servers that send bookmarks send about one a minute
_UPSERTS = frozenset({"ADDED", "MODIFIED"})
REFRESH_SECONDS = 0.5  # from a list that was asked for to the next one: however often a refresh is requested
MOST_NAMESPACES = 10  # that are refreshed one by one; for more, everything is listed
MISSED_BOOKMARKS = 3  # missing this many bookmarks means that the connection is dead

log = Logger(__name__)


class Sink(Protocol[T_contra]):
    """What a reflector delivers to."""

    async def replace(
        self,
        objects: Iterable[T_contra],
        revision: str,
        keep: Collection[NamespacedName],
        *,
        namespace: str | None = None,
    ) -> None:
        """The complete state, except that `keep` exist too but could not be read. With `namespace`, the state of that.

        It is taken over before this first waits, and delivered to the end also when the waiting is cancelled.
        """

    def upsert(self, objects: Sequence[T_contra]) -> None:
        """These are now like this, one after the other; one object may come several times."""

    def remove(self, obj: T_contra) -> None:
        """One object was deleted; this was its last state."""

    def reached(self, revision: str) -> None:
        """What was delivered last was at this resourceVersion."""

    def progress(self, revision: str) -> None:
        """Everything up to this resourceVersion has been delivered."""


class Origin(Protocol):
    """Where objects come from: one collection with fixed target, namespace and selectors. See `informer.Collection`."""

    def pages(self, *, resource_version: str, limit: int, namespace: str | None = None) -> Any:
        """An async iterator of pages; with `namespace`, of the objects in that one."""

    def watch(self, *, resource_version: str, timeout_seconds: int, send_initial_events: bool) -> Any:
        """An async context manager giving something whose `batch()` is the next events, none at the end."""


class ReflectorStatus(msgspec.Struct, kw_only=True):
    """How it goes; updated in place."""

    synced: bool = False  # the sink has been given a complete state at least once
    phase: Literal["starting", "listing", "watching", "waiting"] = "starting"
    revision: str = ""
    last_event: float | None = None  # monotonic seconds of the last event, bookmark or list
    error: KubeError | None = None  # why the last step failed; None once something worked again
    refused: bool = False  # not even a list was allowed, and nothing has worked since


class Reflector(Generic[T]):
    """One list+watch."""

    def __init__(
        self,
        origin: Origin,
        sink: Sink[T],
        *,
        name: str,
        metrics: ReflectorMetrics,
        random: Random,
        clock: Clock = SYSTEM_CLOCK,
        project: Callable[[Sequence[T]], Sequence[T | None]] = lambda objects: objects,
        on_status: Callable[[], None] = lambda: None,
        streaming: bool = True,
        refused_limit: float = REFUSED_LIMIT,
    ) -> None:
        """`refused_limit`: seconds between two questions for a kind or right that is missing, and as much at random."""
        self.name = name
        self.status = ReflectorStatus()
        self._origin = origin
        self._sink = sink
        self._metrics = metrics
        self._random = random
        self._clock = clock
        self._project = project  # what is kept of each object, None when it cannot be read
        self._on_status = on_status
        self._progress = ListWatchState(streaming=streaming, refused_limit=refused_limit)
        self._log = log.bind(source=name)
        self._said = ""  # the reason of the failure that the log knows of, until a watch works
        self._stale: set[str] = set()  # namespaces to list before the next complete list
        self._refresh = asyncio.Event()

    @property
    def is_listing_only(self) -> bool:
        """Whether lists stand in for a watch that is not allowed."""
        return self._progress.watch_forbidden

    def refresh(self, namespace: str) -> None:
        """List this namespace soon. Does nothing where a watch delivers changes anyway."""
        if self.is_listing_only:
            self._stale.add(namespace)
            self._refresh.set()

    async def run(self) -> None:
        """Reflect until cancelled. A second run goes on where the first was stopped."""
        step: Step = WatchStep(self.status.revision) if self.status.synced else first_step(self._progress)
        while True:
            if step.after:
                self.status.phase = "waiting"
                await self._wait(step.after)
            if not self.is_listing_only:
                self._stale.clear()
            outcome = await self._perform(step)
            if isinstance(outcome, Failed):
                self._report(step, outcome.error)
            self._progress, step = next_step(
                self._progress, step, outcome, now=self._clock.monotonic(), random=self._random
            )

    async def _wait(self, seconds: float) -> None:
        """Wait before a step; list the namespaces meanwhile for which `refresh` is called."""
        until = self._clock.monotonic() + seconds
        while await self._is_asked(until - self._clock.monotonic()):
            namespaces = sorted(self._stale)
            self._stale.clear()
            scopes: list[str | None] = [None] if len(namespaces) > MOST_NAMESPACES else [*namespaces]
            outcomes = [
                await self._list(ListStep(""), scope) for scope in scopes
            ]  # the most recent, not a cached state
            left = until - self._clock.monotonic()
            if any(isinstance(outcome, Failed) for outcome in outcomes):
                self._stale.update(namespaces)  # after the step that is due next, which reports why
                await self._clock.sleep(max(0.0, left))
                return
            await self._clock.sleep(max(0.0, min(REFRESH_SECONDS, left)))

    async def _is_asked(self, seconds: float) -> bool:
        """Whether a refresh is requested within that time."""
        if not self._stale:
            self._refresh.clear()
            deadline = Deadline(self._clock, max(0.0, seconds))
            try:
                async with deadline:
                    await self._refresh.wait()
            except TimeoutError:
                if not deadline.expired:
                    raise
        return bool(self._stale)

    async def _perform(self, step: Step) -> Outcome:
        match step:
            case ListStep():
                return await self._list(step)
            case StreamStep():
                return await self._watch(step.revision, initial=True)
            case WatchStep():
                return await self._watch(step.revision, initial=False)

    async def _list(self, step: ListStep, namespace: str | None = None) -> Outcome:
        self.status.phase = "listing" if namespace is None else self.status.phase
        started = self._clock.monotonic()
        state: dict[NamespacedName, T | None] = {}
        revision, pages = "", 0
        try:
            pages_of = self._origin.pages(resource_version=step.revision, limit=step.limit, namespace=namespace)
            async for page in pages_of:
                for found in (page.items, page.undecodable):
                    state.update(zip(map(ref_of, found), self._project(found), strict=True))
                revision, pages = page.resource_version, pages + 1
                del page, found  # objects as they came, values of Secrets among them
        except KubeError as error:
            return Failed(error, pages=pages)
        self._metrics.listed(self._clock.monotonic() - started)
        await self._take_over(state, revision, namespace)
        return Listed(revision, pages)

    async def _take_over(
        self, state: dict[NamespacedName, T | None], revision: str, namespace: str | None = None
    ) -> None:
        unreadable = {ref for ref, obj in state.items() if obj is None}
        objects = [obj for obj in state.values() if obj is not None]
        if namespace is not None:  # says nothing about the rest: the next complete list starts from where it was
            await self._sink.replace(objects, revision, unreadable, namespace=namespace)
            return
        try:
            await self._sink.replace(objects, revision, unreadable)
        except asyncio.CancelledError:
            self._taken_over(revision)  # the sink has it, and the next run must not go back behind it
            raise
        self._taken_over(revision)

    def _taken_over(self, revision: str) -> None:
        self.status.synced = True
        self._alive(revision)
        self._works()
        self._on_status()

    async def _watch(self, revision: str, *, initial: bool) -> Outcome:
        """Follow one watch to its end. With `initial`, collect the state first and hand it over in one piece."""
        timeout = self._random.randrange(*WATCH_SECONDS)
        watching = _Watching[T](revision, pending={} if initial else None, patience=timeout + GRACE)
        started = self._clock.monotonic()
        self.status.phase = "listing" if initial else "watching"
        self._metrics.watch_started()
        deadline, recovery = Deadline(self._clock, watching.patience), None
        try:
            async with (
                deadline,
                self._origin.watch(
                    resource_version=revision, timeout_seconds=timeout, send_initial_events=initial
                ) as events,
            ):
                if initial:
                    deadline.restart(INITIAL_SILENCE)
                else:
                    recovery = self._clock.call_at(started + SHORT_WATCH, self._recovered)
                while batch := await events.batch():
                    deadline.restart()
                    watching.events += len(batch)
                    self._metrics.received(len(batch))
                    await self._receive(batch, watching, deadline)
                    del batch  # objects as they came, values of Secrets among them: not while nothing happens
        except TimeoutError:
            if not deadline.expired:
                raise
            self._metrics.stale()
            stale = StaleWatch(f"no bytes from the API server for {deadline.seconds:.0f} s on an open watch")
            return Failed(stale, watching.reached, watching.events, watching.pending is None)
        except KubeError as error:
            return Failed(error, watching.reached, watching.events, watching.pending is None)
        finally:
            if recovery is not None:
                recovery.cancel()
            self._metrics.watch_ended(self._clock.monotonic() - started)
        seconds = self._clock.monotonic() - started
        return Ended(watching.reached, watching.events, seconds, watching.pending is None)

    async def _receive(self, batch: Iterable[Any], watching: _Watching[T], deadline: Deadline) -> None:
        """Events that came together, in order; no other task runs among them, except where the state is complete."""
        events = iter(batch)
        if watching.pending is not None:
            end = self._collect(events, watching.pending)
            if end is None:
                return
            pending, watching.pending = watching.pending, None
            watching.reached = revision_of(end.object)
            deadline.restart(watching.patience)
            _expect_bookmarks(deadline)
            await self._take_over(pending, watching.reached)
            self._recovered()
            self.status.phase = "watching"
        self._follow(events, watching, deadline)

    def _collect(self, events: Iterator[Any], pending: dict[NamespacedName, T | None]) -> Any:
        """Take initial events in; the bookmark that ends them, if it came."""
        for changed, event in _runs(events):
            pending.update(zip(map(ref_of, changed), self._project(changed), strict=True))
            if event is None:
                break
            if event.type == "DELETED":
                pending.pop(ref_of(event.object), None)
            elif event.initial_events_end:
                return event
        return None

    def _follow(self, events: Iterator[Any], watching: _Watching[T], deadline: Deadline) -> None:
        """Pass events on to the sink."""
        sink, last = self._sink, None
        for changed, event in _runs(events):
            if changed:
                kept = self._project(changed)
                sink.upsert(kept if kept is changed else [obj for obj in kept if obj is not None])
                last = changed[-1]
            if event is None:
                break
            last = event.object
            if event.type == "DELETED":
                sink.remove(last)
            else:
                _expect_bookmarks(deadline)
                sink.progress(revision_of(last))
        if last is not None:
            watching.reached = revision_of(last)
            sink.reached(watching.reached)
            self._alive(watching.reached)
            self._recovered()

    def _alive(self, revision: str) -> None:
        status = self.status
        status.revision = revision
        status.last_event = self._clock.monotonic()

    def _works(self) -> None:
        """A list came, or more: the status is good, though the log may wait for a watch, which may still be refused."""
        self.status.refused = False
        self.status.error = None

    def _recovered(self) -> None:
        """A watch delivers an event, or stays open: it works, also where nothing happens."""
        self._works()
        if self._said:
            self._said = ""
            self._log.info("the source works again", revision=self.status.revision)

    def _report(self, step: Step, error: Exception) -> None:
        """Say it once when a source starts failing or fails in another way; repeats are for the metric."""
        if not isinstance(error, KubeError):
            raise error
        self._metrics.failed(error.reason)
        known, self._said = self._said, error.reason
        self.status.error = error
        if isinstance(step, ListStep) and isinstance(error, (Forbidden, Unauthorized)):
            self.status.refused = True  # until something works: any other failure says nothing about rights
        self._on_status()
        if known == error.reason:
            return
        if self._progress.refused_limit > REFUSED_LIMIT and isinstance(error, NotFound):
            self._log.info("the kind is not installed; watching starts when it is")
        else:
            say = self._log.error if error.code in {401, 403} else self._log.info
            if isinstance(error, NotFound):  # a kind that is not there: the manager says so, of all that are missing
                say = self._log.debug
            say("the source fails and is retried", step=type(step).__name__, reason=error.reason, error=str(error))


class _Watching(Generic[T]):
    """How far one watch has come."""

    def __init__(self, revision: str, *, pending: dict[NamespacedName, T | None] | None, patience: float) -> None:
        self.reached = "" if pending is not None else revision
        self.events = 0
        self.pending = pending  # the initial state while it is incomplete
        self.patience = patience  # seconds of silence, once it is complete


def _runs(events: Iterator[Any]) -> Iterator[tuple[list[Any], Any]]:
    """The objects that appeared or changed in a row, and the event of another type that ends the row, if one does."""
    changed: list[Any] = []
    for event in events:
        if event.type in _UPSERTS:
            changed.append(event.object)
        else:
            yield changed, event
            changed = []
    if changed:
        yield changed, None


def _expect_bookmarks(deadline: Deadline) -> None:
    """The server sends bookmarks regularly: be less patient from now on."""
    patience = BOOKMARK_SECONDS * MISSED_BOOKMARKS + GRACE
    if deadline.seconds is None or patience < deadline.seconds:
        deadline.restart(patience)
