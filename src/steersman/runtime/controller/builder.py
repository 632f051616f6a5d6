"""A controller as a table: what it reconciles, what it owns and watches, which changes matter, and its schedules.

    Controller(DNSZone, reconcile_zone)
        .when(generation | labels)
        .watches(Bind9Instance, to=zones_selecting, when=labels | status("readyPods"))
        .owns(ConfigMap)
        .schedule(every=timedelta(minutes=10))

or, for a first one:

    @controller(WebApp, owns=[Deployment])
    async def webapp(ctx: Context, app: WebApp) -> Result: ...

A controller is a value: every method returns a new one, nothing runs, nothing is connected. `controller.runner`
runs it. Its reconciler is a function from what the cluster is to what it should be, called with the object as one
snapshot shows it; it does not know whether the object was created or updated.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from steersman.errors import ConfigError
from steersman.runtime.controller.field_handlers import FieldHandler
from steersman.runtime.controller.predicates import Predicate, changed
from steersman.runtime.controller.schedule import Schedule, make_schedule, seconds_of
from steersman.runtime.controller.stuck_keys import Limits
from steersman.runtime.controller.watches import WatchSelection, WatchSpec, owner_of, self_of
from steersman.runtime.reconcile.finalizers import check_finalizer
from steersman.runtime.reconcile.metadata import kind_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable
    from datetime import timedelta

    from steersman.cache.informer import ByName
    from steersman.kube.api.gvk import Kind
    from steersman.kube.api.objects import Resource
    from steersman.kube.api.types.rbac import PolicyRule
    from steersman.runtime.controller.channel import Channel
    from steersman.runtime.controller.result import Result
    from steersman.runtime.reconcile.context import Context
    from steersman.runtime.workqueue.queue import Debounce
    from steersman.runtime.workqueue.rate_limiters import RateLimiter

    Reconciler = Callable[..., Awaitable[Result | None] | Result | None]
    Target = type[Resource] | Kind

__all__ = ["Controller", "Options", "Schedule", "controller"]

F = TypeVar("F")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a controller works through its keys."""

    concurrency: int = 8  # keys at once; one key never runs twice at once
    timeout_seconds: float | None = None  # of one reconcile; None: no limit
    debounce: Any = None  # Debounce | None: let changes of one key settle first
    limiter: Any = None  # Callable[[], RateLimiter] | None: delays after failures; None: 5 ms doubling to 1000 s
    while_terminating: bool = False  # also reconcile objects that are being deleted, without a finalizer of ours
    field_manager: str | None = None  # None: the client's, followed by the controller's name
    shared_objects: bool = False  # read the cache's own objects, never to be changed, instead of copies (7 µs a Pod)
    limits: Limits = Limits()  # from when on a key that writes every time, hangs or fails counts as stuck

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ConfigError("must be at least 1", field="concurrency")
        if self.timeout_seconds is not None and self.timeout_seconds <= 0:
            raise ConfigError("must be positive, or None for no limit", field="timeout_seconds")


class IndexRow(msgspec.Struct, frozen=True, kw_only=True):
    """An index on the cache of a kind."""

    target: Any  # type[Resource] | Kind
    name: str
    values: Any  # Callable[[object], Iterable[str]]
    cluster: str = ""


class FinalizerRow(msgspec.Struct, frozen=True):
    """A finalizer, and what is done before it is removed."""

    name: str
    cleanup: Any  # Reconciler, run when the object is terminating and has the finalizer


class BackgroundRow(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon, or a timer: it has an interval."""

    function: Any  # async (DaemonContext, object) of a daemon; a Reconciler of a timer
    every_seconds: float | None = None  # None: a daemon
    initial_delay_seconds: float = 0.0
    idle_seconds: float = 0.0  # how long the spec of the object must be unchanged
    running_while: Any = None  # Callable[[object], bool] | None: for as long as the object exists

    @property
    def name(self) -> str:
        """How the log calls it."""
        return getattr(self.function, "__name__", repr(self.function))


class Controller(msgspec.Struct, frozen=True):
    """See the module for how it reads. `target` None makes a controller whose keys are whatever its mappings give."""

    target: Any  # type[Resource] | Kind | None
    reconcile: Any  # Reconciler
    name: str = ""
    watched: tuple[WatchSpec, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    indexes: tuple[IndexRow, ...] = ()
    finalizers: tuple[FinalizerRow, ...] = ()  # in the order of their cleanups
    missing_handler: Any = None  # Callable[[Context, key], …], run when the object no longer exists
    options: Options = Options()
    channels: tuple[Any, ...] = ()  # Channel: keys that do not come from a watch
    background: tuple[BackgroundRow, ...] = ()
    field_handlers: tuple[FieldHandler, ...] = ()
    needed: tuple[Any, ...] = ()  # PolicyRule: rights that cannot be read from the source

    def __post_init__(self) -> None:
        if not self.name and self.target is None:
            raise ConfigError("a controller that is for no kind needs a name", field="controller")
        second = "key" if self.target is None else "object"
        for function, argument in ((self.reconcile, second), (self.missing_handler, "key")):
            _check_arguments(function, argument)
        kind = None if self.target is None else kind_of(self.target)
        if not self.name and kind is not None:
            msgspec.structs.force_setattr(self, "name", kind.kind.lower())
        if self.target is not None and not any(watch.role == "for" for watch in self.watched):
            primary = WatchSpec(target=self.target, role="for", to=self_of)
            msgspec.structs.force_setattr(self, "watched", (primary, *self.watched))

    # -- the rows of the table -------------------------------------------------------------------------------------

    def when(self, predicate: Predicate) -> Controller:
        """Only changes of the object itself for which `predicate` holds; without it, every change matters."""
        return self._change_primary(when=_checked(predicate, self.target))

    def observe(self, function: Callable[[Any, Any], None]) -> Controller:
        """Call `function(old, new)` for every change of the object itself, before the predicate: to note it in memory.

        Predicates and mappings have no side effects; this is the place for them.
        """
        return self._change_primary(observe=function)

    def select(
        self,
        *,
        namespaces: Collection[str] | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        optional: bool = False,
    ) -> Controller:
        """Only these objects of the kind it is for; the others are not even watched.

        `optional`: while the kind does not exist there is nothing to do, and readiness does not warn.
        """
        selection = _selection(namespaces, label_selector, field_selector, transform)
        return self._change_primary(selection=replace(selection, optional=optional))

    def owns(
        self,
        *targets: Target,
        when: Predicate | None = None,
        namespaces: Collection[str] | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        transform: Callable[[Any], Any] | None = None,
    ) -> Controller:
        """Also when an object changes that belongs to one of ours. `Context.apply` sets the owner of these kinds."""
        if self.target is None:
            raise ConfigError("a controller that is for no kind cannot own objects; use watches()", field=self.name)
        selection = _selection(namespaces, label_selector, field_selector, transform)
        to = owner_of(kind_of(self.target))
        return self._add("owns", targets, to=to, when=when, selection=selection)

    def watches(
        self,
        *targets: Target,
        to: Callable[..., Iterable[Any]],
        when: Predicate | None = None,
        after: Callable[[Any, Any, Any], float | None] | None = None,
        on_enqueue: Callable[[Any, list[Any]], None] | None = None,
        namespaces: Collection[str] | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        observe: Callable[[Any, Any], None] | None = None,
        by_name: ByName = "never",
        optional: bool = False,
        cluster: str = "",
    ) -> Controller:
        """Also when one of these objects changes: `to(obj)` or `to(obj, cache)` returns the keys it affects.

        `after(key, old, new)`: how many seconds a key may wait with this change, so that many changes cost one
        reconcile; None: it is due at once. A key that is due sooner stays so.
        `on_enqueue(obj, keys)`: called when the keys that an object affects, or affected before, are queued and none of
        them runs yet. For memory of what changed, so that a reconcile need not read everything again.
        `observe`: called with every change (old, new) before the predicate, for what is recorded in memory.
        `by_name`: follow only the names that `set_interest` gives, "always" or where a whole collection is "refused".
        `optional`: while the kind does not exist it counts as empty; once it is installed, it is watched.
        """
        selection = _selection(namespaces, label_selector, field_selector, transform)
        selection = replace(selection, by_name=by_name, optional=optional)
        return self._add(
            "watches",
            targets,
            to=to,
            when=when,
            after=after,
            on_enqueue=on_enqueue,
            observe=observe,
            selection=selection,
            cluster=cluster,
        )

    def reads(
        self,
        *targets: Target,
        namespaces: Collection[str] | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        cluster: str = "",
    ) -> Controller:
        """Keep these objects in `Context.cache`; their changes trigger nothing."""
        selection = _selection(namespaces, label_selector, field_selector, transform)
        return self._add("reads", targets, selection=selection, cluster=cluster)

    def schedule(
        self,
        *,
        every: float | timedelta | str | None = None,
        cron: str | None = None,
        zone: str = "UTC",
        keys: Iterable[Hashable] | None = None,
    ) -> Controller:
        """Also reconcile every object (or `keys`): once per `every`, spread over that time, or when `cron` says so.

        `every` is a timedelta, text such as "10m", or a number of seconds.
        `cron` has the usual five fields, in the time of `zone`: `schedule(cron="0 2 * * *", zone="Europe/Berlin")`.
        """
        if keys is None and self.target is None:
            raise ConfigError("a controller that is for no kind must name the keys to reconcile", field="schedule")
        row = make_schedule(every=every, cron=cron, zone=zone, keys=None if keys is None else tuple(keys))
        return replace(self, schedules=(*self.schedules, row))

    def index(
        self, target: Target, name: str, values: Callable[[Any], Iterable[str]], *, cluster: str = ""
    ) -> Controller:
        """Find objects by what `values(obj)` gives: `ctx.cache[target].by_index(name, value)`.

        The kind must be watched or read already. One function per name: controllers that share a cache share it.
        """
        if not any(row.target is target and row.cluster == cluster for row in self.watched):
            raise ConfigError(f"read or watch {kind_of(target)} before you index it", field=self.name)
        row = IndexRow(target=target, name=name, values=values, cluster=cluster)
        return replace(self, indexes=(*self.indexes, row))

    def watches_channel(self, channel: Channel) -> Controller:
        """Also reconcile the keys that this process itself sends through `channel`."""
        return replace(self, channels=(*self.channels, channel))

    def finalizer(self, name: str, cleanup: Reconciler) -> Controller:
        """Hold deleted objects back until `cleanup(ctx, obj)` is done with them; then let them go.

        Cleanups of several finalizers run in the order of these rows: the next begins when the one before it is done
        and its finalizer is removed, so a crash repeats at most one of them.
        """
        check_finalizer(name)
        _check_arguments(cleanup, "object")
        if self.target is None:
            raise ConfigError("a controller that is for no kind has nothing to finalize", field="finalizer")
        if any(row.name == name for row in self.finalizers):
            raise ConfigError(f"{name} is there already: give each cleanup a finalizer of its own", field="finalizer")
        return replace(self, finalizers=(*self.finalizers, FinalizerRow(name, cleanup)))

    def daemon(
        self, run: Callable[..., Awaitable[None]], *, running_while: Callable[[Any], bool] | None = None
    ) -> Controller:
        """Run `run(ctx, obj)` for every object, from when it appears until it is deleted; `ctx` is a `DaemonContext`.

        It is cancelled when the object goes, when `running_while(obj)` says no, and when this process may no longer
        work on it. It starts again when it fails, with growing pauses, and not when it returns.
        """
        if not inspect.iscoroutinefunction(run):
            raise ConfigError(
                f"{getattr(run, '__name__', run)} must be an async function: a thread cannot be cancelled",
                field="daemon",
            )
        return self._add_background(run, "daemon", running_while=running_while)

    def timer(
        self,
        run: Reconciler,
        *,
        every: float | timedelta | str,
        initial_delay: float | timedelta | str = 0.0,
        idle: float | timedelta | str = 0.0,
        running_while: Callable[[Any], bool] | None = None,
    ) -> Controller:
        """Call `run(ctx, obj)` for every object, with pauses of `every`, whatever its reconciles do.

        Durations are timedeltas, text such as "10m", or seconds. The first call comes after `initial_delay`. With
        `idle` a call waits until the spec of the object has been unchanged for so long.
        """
        interval = seconds_of(every, field="timer")
        if not interval > 0:
            raise ConfigError("every must be positive", field="timer")
        return self._add_background(
            run,
            "timer",
            every_seconds=interval,
            initial_delay_seconds=seconds_of(initial_delay, field="timer"),
            idle_seconds=seconds_of(idle, field="timer"),
            running_while=running_while,
        )

    def on_field(self, path: str, handler: Callable[..., Any]) -> Controller:
        """Call `handler(ctx, obj, change)` before the reconcile when the field at `path` changed.

        `change` has the old and the new value. See `steersman.runtime.controller.field_handlers` for what it promises.
        """
        if self.target is None:
            raise ConfigError("a controller that is for no kind has no fields", field="on_field")
        _checked(changed(path), self.target)
        _check_arguments(handler, "object", "and the change")
        return replace(self, field_handlers=(*self.field_handlers, FieldHandler(path, handler)))

    def on_missing(self, forget: Callable[[Context, Any], Any]) -> Controller:
        """Call `forget(ctx, key)` when the object no longer exists, for what was kept in memory about it."""
        return replace(self, missing_handler=forget)

    def needs(self, *rules: PolicyRule) -> Controller:
        """Declare rights that `steersman rbac` cannot read from the source: `needs(rule("pods", "get"))`."""
        return replace(self, needed=(*self.needed, *rules))

    def within(self, namespaces: Collection[str]) -> Controller:
        """Only in these namespaces, for everything it watches: what rights in a few namespaces are enough for."""
        return replace(self, watched=tuple(_narrowed(row, frozenset(namespaces)) for row in self.watched))

    def with_options(self, **options: Any) -> Controller:
        """With other `Options`: `with_options(concurrency=2, timeout_seconds=60)`."""
        _check_options(options, Options.__struct_fields__)
        return replace(self, options=replace(self.options, **options))

    def named(self, name: str) -> Controller:
        """With another name; names are unique within a manager, and label logs and metrics."""
        return replace(self, name=name)

    # -- what the runner asks -------------------------------------------------------------------------------------

    @property
    def kind(self) -> Kind | None:
        """The kind it is for."""
        return None if self.target is None else kind_of(self.target)

    @property
    def is_async(self) -> bool:
        """Whether the reconciler runs on the event loop; otherwise it gets a thread."""
        return any(map(inspect.iscoroutinefunction, (self.reconcile, getattr(self.reconcile, "__call__", None))))  # noqa: B004  callables may be objects

    @property
    def owned_kinds(self) -> frozenset[Kind]:
        """The kinds whose objects get an owner reference when applied."""
        return frozenset(watch.kind for watch in self.watched if watch.role == "owns")

    def __str__(self) -> str:
        return "\n".join([self.name, *(f"  {watch}" for watch in self.watched)])

    def _add(self, role: str, targets: tuple[Target, ...], **row: Any) -> Controller:
        if not targets:
            raise ConfigError(f"{role}() needs at least one kind", field=self.name)
        rows = []
        for target in targets:
            kind_of(target)
            _checked(row.get("when"), target)
            rows.append(WatchSpec(target=target, role=role, **row))
        return replace(self, watched=(*self.watched, *rows))

    def _add_background(self, run: Any, role: str, **row: Any) -> Controller:
        if self.target is None:
            raise ConfigError("a controller that is for no kind has no objects to run it for", field=role)
        _check_arguments(run, "object")
        return replace(self, background=(*self.background, BackgroundRow(function=run, **row)))

    def _change_primary(self, **change: Any) -> Controller:
        if self.target is None:
            raise ConfigError(
                "a controller that is for no kind has no objects of its own; use watches()", field=self.name
            )
        return replace(
            self, watched=tuple(replace(row, **change) if row.role == "for" else row for row in self.watched)
        )


def _narrowed(row: WatchSpec, namespaces: frozenset[str]) -> WatchSpec:
    if not row.kind.namespaced:
        return row
    known = row.selection.namespaces
    wanted = namespaces if known is None else known & namespaces
    return replace(row, selection=replace(row.selection, namespaces=wanted))


def controller(
    target: Target,
    *,
    owns: Iterable[Target] = (),
    reads: Iterable[Target] = (),
    when: Predicate | None = None,
    every: float | timedelta | str | None = None,
    name: str = "",
    debounce: Debounce | None = None,
    limiter: Callable[[], RateLimiter[Any]] | None = None,
    **options: Any,
) -> Callable[[Reconciler], Controller]:
    """Make a controller of the function below; `options` are those of `Options`."""

    if inspect.isroutine(target):
        raise ConfigError(
            f"needs the kind that {target.__name__} is for: write @controller(KIND) above it", field="controller"
        )
    _check_options(options, (*inspect.signature(controller).parameters, *Options.__struct_fields__))
    owned, read = tuple(owns), tuple(reads)

    def decorate(reconcile: Reconciler) -> Controller:
        made = Controller(target, reconcile, name or getattr(reconcile, "__name__", ""))
        made = made.with_options(debounce=debounce, limiter=limiter, **options)
        made = made.owns(*owned) if owned else made
        made = made.reads(*read) if read else made
        made = made if when is None else made.when(when)
        return made if every is None else made.schedule(every=every)

    return decorate


def _check_options(given: Collection[str], known: Iterable[str]) -> None:
    """Raise ConfigError for an unknown option."""
    for name in given:
        if name not in Options.__struct_fields__:
            from steersman.kube.config.yaml_document import did_you_mean

            names = sorted(set(known) - {"target", "options"})
            raise ConfigError(f"{name}= is not an option{did_you_mean(name, names)}", field="controller")


def _check_arguments(function: Any, second: str, third: str = "") -> None:
    """Raise ConfigError unless it can be called as a reconciler is; a callable without a signature is accepted."""
    if function is None:
        return
    try:
        inspect.signature(function).bind(*([None] * (3 if third else 2)))
    except TypeError:
        name = getattr(function, "__qualname__", repr(function))
        count, arguments = ("three", f", the {second} {third}") if third else ("two", f" and the {second}")
        raise ConfigError(
            f"{name} is called with {count} arguments, the context{arguments}", field="controller"
        ) from None
    except ValueError:
        return


def _checked(predicate: Predicate | None, target: Any) -> Predicate | None:
    if predicate is not None:
        if not isinstance(predicate, Predicate):
            raise ConfigError(
                f"{predicate!r} is not a predicate (try Predicate(name, lambda old, new: …))", field="when"
            )
        predicate.check(target)
    return predicate


def _selection(
    namespaces: Collection[str] | None,
    label_selector: str | None,
    field_selector: str | None,
    transform: Callable[[Any], Any] | None,
) -> WatchSelection:
    return WatchSelection(
        namespaces=None if namespaces is None else frozenset(namespaces),
        label_selector=label_selector,
        field_selector=field_selector,
        transform=transform,
    )
