"""The informer: one shared list+watch with its store and its handlers.

    reflector (one, or one per namespace) ──► store ──► handlers, in order, each isolated from the others

An informer is *synced* when every handler has returned for every object of the first complete list. With a watch per
namespace, a namespace that may not be read does not hold up the rest: it counts as handled, shows in `health()` with
the missing rule, and joins as soon as the right is granted.

With `by_name`, single objects are followed instead (`cache.single_object`): "always", or where a collection is
"refused". Then `set_interest` says which, and `is_synced_for` whether the store can already answer for one.

An informer for an *optional* kind is synced, and empty, also while the kind does not exist; when it is installed, its
objects come as any others.

An object that does not decode, or that a transform fails on, never stops the others: the last good state stays, the
object is named in the log and in `health()`, and a metric counts it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar, cast

import msgspec

from steersman.cache.copies import copy_of
from steersman.cache.handlers import Subscribers
from steersman.cache.identity import ref_of
from steersman.cache.interfaces import SourceHealth
from steersman.cache.list_watch_state import REFUSED_LIMIT, SELDOM_LIMIT, SINGLE_LIMIT
from steersman.cache.reflector import Reflector
from steersman.cache.single_object import NamedObjects
from steersman.cache.store import ObjectStore
from steersman.clock import SYSTEM_CLOCK, Clock
from steersman.kube.api.errors import CredentialsFailed, Forbidden, NotFound, Unauthorized
from steersman.kube.api.gvk import Kind, NamespacedName
from steersman.kube.api.types.core import ConfigMap, Secret
from steersman.kube.client.codec import DecodeFailure
from steersman.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
    from random import Random

    from steersman.cache.interfaces import EventHandler, HandlerRegistration
    from steersman.cache.metrics import CacheMetrics
    from steersman.cache.store import StoreSnapshot
    from steersman.kube.client.client import Client

__all__ = ["ByName", "SharedInformer", "SingleScope"]

T = TypeVar("T")
ByName: TypeAlias = Literal["never", "refused", "always"]  # when single names are followed instead of a collection

log = Logger(__name__)


LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_VALUES: Final = (ConfigMap.KIND, Secret.KIND)  # kinds whose annotations may hold values a second time
NOT_INSTALLED: Final = "kind not installed"
ABSENT: Final = "the server has no such kind (is the CustomResourceDefinition installed?)"


class SharedInformer(Generic[T]):
    """See `steersman.cache.interfaces.Informer` for what it promises."""

    def __init__(
        self,
        client: Client,
        target: type[T] | Kind,
        *,
        random: Random,
        metrics: CacheMetrics,
        namespaces: Collection[str] | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        transform: Callable[[T], T] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        cluster: str = "",
        streaming: bool = True,
        taken: Collection[str] = (),
        by_name: ByName = "never",
        optional: bool = False,
    ) -> None:
        """`taken` are names of other informers, which this one must not have: a name labels metrics."""
        self.target = target
        self.kind: Kind = target if isinstance(target, Kind) else cast("Any", target).KIND
        self.name = _unique(_describe(self.kind, namespaces, label_selector, field_selector, by_name), target, taken)
        self._clock = clock
        self._transform = transform
        self._carries_managers = _carries_managers(target)
        self._carries_copies = self.kind in _VALUES or transform is not None
        # Objects are stored as they come.
        self._as_decoded = transform is None and not self._carries_managers and not self._carries_copies
        self._store: ObjectStore[T] = ObjectStore(clock=clock)
        self._bad: dict[NamespacedName, str] = {}
        self._synced = asyncio.Event()
        self._log = log.bind(source=self.name)
        self._metrics = metrics.reflector(self.name, cluster)
        self._subscribers: Subscribers[T] = Subscribers(self._synced, self._log, self._metrics)
        self._metrics.objects.set_function(lambda: len(self._store))
        self._namespaces = None if namespaces is None else frozenset(namespaces)
        self._by_name = by_name
        self._optional = optional
        make = partial(
            Reflector,
            name=self.name,
            metrics=self._metrics,
            random=random,
            clock=clock,
            project=self._project,
            streaming=streaming,
        )
        patience = SELDOM_LIMIT if optional or by_name != "never" else REFUSED_LIMIT

        def single(ref: NamespacedName, on_status: Callable[[], None]) -> Reflector[T]:
            fields = ",".join(filter(None, (f"metadata.name={ref.name}", field_selector)))
            origin = _Collection(client, target, ref.namespace or None, label_selector, fields)
            sink = SingleScope(self._store, self._subscribers, ref, self._forget)
            return make(origin, sink, on_status=on_status, refused_limit=SINGLE_LIMIT)

        self._named = NamedObjects(single, self._store.let_go, needed=self._needs_name)
        scopes: Iterable[str | None] = [None] if namespaces is None else sorted(namespaces)
        self._scopes: dict[str | None, Reflector[T]] = {}
        self._sinks: dict[str | None, _Scope[T]] = {}
        for scope in scopes if by_name != "always" else ():
            origin = _Collection(client, target, scope, label_selector, field_selector)
            sink = _Scope(self._store, self._subscribers, scope, self._forget, self._forget_all_but)
            self._sinks[scope] = sink
            self._scopes[scope] = make(origin, sink, on_status=self._check_synced, refused_limit=patience)
        self._check_synced()  # nothing to wait for where everything goes by name

    # -- running -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """List and watch until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for scope, reflector in self._scopes.items():
                    tasks.create_task(reflector.run(), name=f"reflector {self.name} {scope or ''}".rstrip())
                if self._by_name != "never":
                    tasks.create_task(self._named.run(), name=f"names {self.name}")
        finally:
            self._store.stop()

    def has_synced(self) -> bool:
        """Whether the first complete list has been handled."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Return once `has_synced()`."""
        await self._synced.wait()

    def health(self) -> SourceHealth:
        """How the source is doing."""
        now, problems = self._clock.monotonic(), self._problems()
        heard = [r.status.last_event for r in self._scopes.values() if r.status.last_event is not None]
        return SourceHealth(
            name=self.name,
            synced=self.has_synced(),
            objects=len(self._store),
            resource_version=self._store.revision,
            last_event_seconds=now - min(heard) if heard else None,
            refused=self._named.refused or any(map(self._is_forbidden, self._scopes.values())) or self._is_unknown(),
            unseen=frozenset(scope for scope, found in self._scopes.items() if scope and not found.status.synced),
            problem="; ".join(problems) or None,
            unknown=self._why_unknown(),
            coverage=self._coverage(),
            partial=bool(problems) and not self._is_down(),
        )

    def _is_down(self) -> bool:
        """Whether nothing of what it watches can be watched."""
        reflectors = self._scopes.values()
        failing = [found.status.error is not None and not self._is_expected(found) for found in reflectors]
        return bool(failing) and all(failing)

    def _why_unknown(self) -> str | None:
        """Why nothing is known of a kind that is optional and may not be read: that it has no objects is not known."""
        if self._by_name != "never" or not self._scopes:
            return None
        errors = [found.status.error if self._is_expected(found) else None for found in self._scopes.values()]
        return str(errors[0]) if all(isinstance(error, Forbidden) for error in errors) else None

    def _coverage(self) -> str:
        statuses = [reflector.status for reflector in self._scopes.values()]
        if statuses and all(self._optional and isinstance(status.error, NotFound) for status in statuses):
            return NOT_INSTALLED
        if self._by_name != "never" and any(status.refused for status in statuses):
            return "list forbidden, names in use are watched one by one"
        unseen = sum(scope is not None and not found.status.synced for scope, found in self._scopes.items())
        return f"{unseen} of {len(statuses)} namespaces unknown" if unseen else ""

    def _problems(self) -> list[str]:
        found = []
        for scope, reflector in self._scopes.items():
            error = reflector.status.error
            if error is None or self._is_expected(reflector):
                continue
            where = f"namespace {scope}: " if scope else ""
            absent = isinstance(error, NotFound) and not reflector.status.synced
            found.append(f"{where}{ABSENT if absent else error}")
        found += self._named.problems()[:3]
        found += [f"{ref} left out: {why}" for ref, why in list(self._bad.items())[:3]]
        if len(self._bad) > 3:
            found.append(f"and {len(self._bad) - 3} more objects left out")
        return found

    def _is_forbidden(self, reflector: Reflector[T]) -> bool:
        """Whether a collection may not be read, and that matters."""
        return reflector.status.refused and not self._is_expected(reflector)

    def _is_unknown(self) -> bool:
        """Whether the server does not know who asks: then it is of no use to ask for less."""
        errors = [reflector.status.error for reflector in self._scopes.values()]
        return any(isinstance(error, Unauthorized) and not isinstance(error, CredentialsFailed) for error in errors)

    def _is_expected(self, reflector: Reflector[T]) -> bool:
        """Whether it does not matter that a collection cannot be read: names stand in for it, or it is optional."""
        status = reflector.status
        hidden = not status.synced and isinstance(status.error, Forbidden)
        absent = self._optional and (hidden or isinstance(status.error, NotFound))  # not yet, or no longer
        return absent or (status.refused and self._by_name != "never")

    def _check_synced(self) -> None:
        self._named.check()
        if not self._synced.is_set() and all(self._settled(scope) for scope in self._scopes):
            self._synced.set()

    def _settled(self, scope: str | None) -> bool:
        status = self._scopes[scope].status
        return status.synced or (scope is not None and status.refused) or self._is_expected(self._scopes[scope])

    # -- lists in the place of a watch ---------------------------------------------------------------------------

    def refresh(self, namespace: str) -> None:
        """List a namespace soon, where lists stand in for a watch that is not allowed; elsewhere this does nothing."""
        reflector = self._scopes.get(namespace) or self._scopes.get(None)
        if reflector is not None:
            reflector.refresh(namespace)

    def listed_before(self, namespace: str) -> str:
        """Where lists stand in for a watch: the resourceVersion of the list before the last one of that namespace.

        What is new in the last list appeared after that. Empty where a watch delivers each change.
        """
        sink = self._listing(namespace)
        return sink.listed_before(namespace) if sink is not None else ""

    def listed_at(self, namespace: str) -> str:
        """The resourceVersion of the last list of that namespace; empty where a watch delivers each change."""
        sink = self._listing(namespace)
        return sink.listed_at(namespace) if sink is not None else ""

    def _listing(self, namespace: str) -> _Scope[T] | None:
        scope = namespace if namespace in self._scopes else None
        reflector = self._scopes.get(scope)
        return self._sinks[scope] if reflector and reflector.is_listing_only else None

    # -- single names --------------------------------------------------------------------------------------------

    def set_interest(self, user: Hashable, refs: Collection[NamespacedName]) -> None:
        """`user` wants these names and no others, where names are followed one by one; elsewhere this does nothing."""
        if self._by_name != "never":
            self._named.set_interest(user, refs)

    def on_name_resolved(self, callback: Callable[[NamespacedName], None]) -> None:
        """Call `callback` whenever a name that is followed by itself becomes known, or turns out not to be readable."""
        if callback not in self._named.on_name_resolved:
            self._named.on_name_resolved.append(callback)

    def is_synced_for(self, ref: NamespacedName) -> bool:
        """Whether the store says truly if this object exists."""
        return self._named.is_synced_for(ref) if self._needs_name(ref) else True

    def is_namespace_synced(self, namespace: str) -> bool:
        """Whether the store says truly which objects of a namespace there are."""
        return not self._needs_name(NamespacedName("", namespace))

    def why_not_synced(self, ref: NamespacedName) -> str | None:
        """Why `is_synced_for` will not become true soon."""
        return self._named.problem(ref)

    def _needs_name(self, ref: NamespacedName) -> bool:
        if self._by_name == "never" or (self._namespaces is not None and ref.namespace not in self._namespaces):
            return False
        reflector = self._scopes.get(ref.namespace) or self._scopes.get(None)
        return reflector is None or reflector.status.refused

    # -- reading and writing -------------------------------------------------------------------------------------

    def add_handler(self, handler: EventHandler[T]) -> HandlerRegistration:
        """Deliver changes from now on, and what is known already as initial creations."""
        return self._subscribers.add(handler, self._store.base())

    def add_index(self, name: str, values: Callable[[T], Iterable[str]]) -> None:
        """Index objects by several values each."""
        self._store.add_index(name, values)

    def snapshot(self) -> StoreSnapshot[T]:
        """What is known now."""
        return self._store.snapshot()

    def kept(self, obj: T) -> T | None:
        """What is stored of an object; None when that fails, which is named like that of any other object."""
        own = copy_of(obj)  # the writer keeps its own
        return own if self._as_decoded else self._project_one(own)

    def record_write(self, obj: T) -> None:
        """Show the server's answer to a write until the watch has it."""
        kept = self.kept(obj)
        if kept is not None:
            self._store.record_write(kept)

    def record_delete(self, ref: NamespacedName, uid: str) -> None:
        """Hide an object that the server deleted until the watch agrees."""
        self._store.record_delete(ref, uid)

    # -- what the reflectors deliver --------------------------------------------------------------------------------

    def _project(self, objects: Sequence[T]) -> Sequence[T | None]:
        """The objects as they are stored; None for one that cannot be."""
        if self._as_decoded and not self._bad and DecodeFailure not in set(map(type, objects)):
            return objects
        return [self._project_one(obj) for obj in objects]

    def _project_one(self, obj: T) -> T | None:
        if isinstance(obj, DecodeFailure):
            self._leave_out(obj, f"it does not decode: {obj.error}")
            return None
        try:
            if self._carries_copies:
                _drop_copy(obj)
            kept = obj if self._transform is None else self._transform(obj)
            if self._carries_managers:
                kept = _slim(kept)
        except Exception as problem:  # noqa: BLE001  # one poisonous object must not stop the others
            self._leave_out(obj, f"the transform failed: {type(problem).__name__}")
            return None
        if self._bad:
            self._bad.pop(ref_of(obj), None)
        return kept

    def _forget(self, ref: NamespacedName) -> None:
        self._bad.pop(ref, None)

    def _forget_all_but(self, known: Collection[NamespacedName], scope: str | None) -> None:
        """A complete list names the objects that cannot be read; all others of that scope were deleted."""
        for ref in [ref for ref in self._bad if ref not in known and scope in {None, ref.namespace}]:
            del self._bad[ref]

    def _leave_out(self, obj: Any, why: str) -> None:
        ref = ref_of(obj)
        if self._bad.get(ref) != why:
            self._bad[ref] = why
            self._log.error("an object is left out", object=str(ref), why=why)
        self._metrics.undecodable.inc()


class _Scope(Generic[T]):
    """Where one reflector delivers: its part of the store, then the subscribers."""

    def __init__(
        self,
        store: ObjectStore[T],
        subscribers: Subscribers[T],
        namespace: str | None,
        forget: Callable[[NamespacedName], None],
        forget_all_but: Callable[[Collection[NamespacedName], str | None], None],
    ) -> None:
        self._store = store
        self._subscribers = subscribers
        self._namespace = namespace
        self._forget = forget  # a left-out object was deleted
        self._forget_all_but = forget_all_but
        self._filled = False
        self._complete = ""  # the resourceVersion of the last complete list…
        self._parts: dict[str, str] = {}  # …and of the lists of single namespaces since then
        self._before: tuple[str, dict[str, str]] = ("", {})  # the same, before the last list

    def listed_before(self, namespace: str) -> str:
        complete, parts = self._before
        return parts.get(namespace, complete)

    def listed_at(self, namespace: str) -> str:
        return self._parts.get(namespace, self._complete)

    async def replace(
        self, objects: Iterable[T], revision: str, keep: Collection[NamespacedName], *, namespace: str | None = None
    ) -> None:
        self._before = (self._complete, self._parts)
        if namespace is None:
            self._complete, self._parts = revision, {}
        else:
            self._parts = {**self._parts, namespace: revision}
        self._forget_all_but(keep, namespace or self._namespace)
        if namespace is None or namespace == self._namespace:
            changes = self._store.replace(objects, revision, namespace=self._namespace, keep=keep)
        else:
            changes = self._store.replace_part(objects, namespace=namespace, keep=keep)
        initial, self._filled = not self._filled, True
        await self._subscribers.deliver_all(changes, initial=initial)

    def upsert(self, objects: Sequence[T]) -> None:
        self._subscribers.deliver(self._store.upserts(objects), objects)

    def remove(self, obj: T) -> None:
        self._forget(ref_of(obj))
        change = self._store.remove(obj)
        if change is not None:
            self._subscribers.deliver((change.old,), (None,))

    def reached(self, revision: str) -> None:
        self._store.reached(revision, namespace=self._namespace)

    def progress(self, revision: str) -> None:
        self._store.progress(revision, namespace=self._namespace)


class SingleScope(_Scope[T]):
    """The same for the reflector of one name; what it receives says nothing about other names.

    Where the collection can be read again, both deliver for a moment: what comes late then is dropped.
    """

    def __init__(
        self,
        store: ObjectStore[T],
        subscribers: Subscribers[T],
        ref: NamespacedName,
        forget: Callable[[NamespacedName], None],
    ) -> None:
        super().__init__(store, subscribers, ref.namespace, forget, lambda _known, _scope: None)
        self._ref = ref

    async def replace(
        self, objects: Iterable[T], revision: str, keep: Collection[NamespacedName], **_part: str | None
    ) -> None:
        found = next(iter(objects), None)
        initial, self._filled = not self._filled, True
        if found is None and keep:
            return  # it is there and cannot be read: what was known of it stays
        change = self._store.replace_one(self._ref, found)
        self._store.reached_name(self._ref, revision)
        if change is not None:
            await self._subscribers.deliver_all([change], initial=initial)

    def upsert(self, objects: Sequence[T]) -> None:
        super().upsert([obj for obj in objects if not self._store.is_stale(obj)])

    def remove(self, obj: T) -> None:
        if not self._store.is_stale(obj):
            super().remove(obj)

    def reached(self, revision: str) -> None:
        self._store.reached_name(self._ref, revision)

    def progress(self, revision: str) -> None:
        self._store.reached_name(self._ref, revision)


class _Collection:
    """One collection on one server: the reflector's origin."""

    def __init__(
        self, client: Client, target: Any, namespace: str | None, label_selector: str | None, field_selector: str | None
    ) -> None:
        self._client = client
        self._target = target
        self._options: dict[str, Any] = {
            "namespace": namespace,
            "label_selector": label_selector,
            "field_selector": field_selector,
        }

    def pages(self, *, resource_version: str, limit: int, namespace: str | None = None) -> Any:
        options = self._options if namespace is None else {**self._options, "namespace": namespace}
        return self._client.pages(self._target, resource_version=resource_version or None, limit=limit, **options)

    def watch(self, *, resource_version: str, timeout_seconds: int, send_initial_events: bool) -> Any:
        return self._client.watch(
            self._target,
            resource_version=resource_version or None,
            resource_version_match="NotOlderThan" if send_initial_events else None,
            send_initial_events=send_initial_events,
            timeout_seconds=timeout_seconds,
            **self._options,
        )


def _carries_managers(target: Any) -> bool:
    """Whether objects may come with managedFields: dicts do, and structs that ask for them."""
    if isinstance(target, Kind):
        return True
    metadata = next((field.type for field in msgspec.structs.fields(target) if field.name == "metadata"), None)
    return "managed_fields" in getattr(metadata, "__struct_fields__", ("managed_fields",))


def _slim(obj: T) -> T:
    """`obj` without managedFields, which are most of an object's bytes and of no use in a cache.

    Changed in place: it has just been decoded, and no reader has seen it.
    """
    if isinstance(obj, dict):
        obj["metadata"].pop("managedFields", None)
    else:
        metadata: Any = getattr(obj, "metadata", None)
        if getattr(metadata, "managed_fields", None) is not None:
            metadata.managed_fields = None
    return obj


def _drop_copy(obj: Any) -> None:
    """Take kubectl's copy of the object out of its annotations: of a Secret, it holds every value once more.

    In place, as above, and before a transform sees it, which may keep annotations.
    """
    metadata = obj["metadata"] if isinstance(obj, dict) else getattr(obj, "metadata", None)
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else getattr(metadata, "annotations", None)
    if annotations:
        annotations.pop(LAST_APPLIED, None)


def _describe(
    kind: Kind,
    namespaces: Collection[str] | None,
    label_selector: str | None,
    field_selector: str | None,
    by_name: ByName,
) -> str:
    parts = [kind.qualified]
    if namespaces is not None:
        parts.append(f"in {','.join(sorted(namespaces))}")
    conditions = [selector for selector in (label_selector, field_selector) if selector]
    if conditions:
        parts.append(f"where {' and '.join(conditions)}")
    if by_name == "always":
        parts.append("by name")
    return " ".join(parts)


def _unique(name: str, target: Any, taken: Collection[str]) -> str:
    """The name, followed by what distinguishes sources of the same objects: the class, or else a number."""
    candidates = (f"{name} as {getattr(target, '__name__', 'dict')}{f' {n}' if n > 1 else ''}" for n in count(1))
    return name if name not in taken else next(candidate for candidate in candidates if candidate not in taken)
