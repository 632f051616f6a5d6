"""Sources: what makes a key dirty.

    change (old, new) ──► observers ──► predicate ──► mapping, on old *and* new ──► queue.add(key, priority)

Predicates and mappings only answer: they have no side effects. What a controller notes in memory of a change, it notes
in an observer, which sees every change first, also those that the predicate drops.

A mapping sees both states, because an owner that an object leaves must notice that. Keys are added
with low priority for the first list and for resyncs, so that a restart does not delay real changes. A predicate that
fails counts as a yes: a change is never lost to a question. A mapping that fails loses its change, so it is logged as
an error, counted, and named in the source's health until it succeeds for that object or the object is deleted.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

import msgspec

from steersman.cache.identity import ref_of, revision_of
from steersman.errors import summary_of, traceback_of
from steersman.kube.api.gvk import Kind, NamespacedName
from steersman.logger import Logger
from steersman.runtime.reconcile.metadata import kind_of, owners_of
from steersman.runtime.workqueue.queue import LOW_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from steersman.cache.interfaces import HandlerRegistration, Informer, InformerFactory
    from steersman.runtime.controller.predicates import Predicate

__all__ = ["InformerSource", "WatchSelection", "WatchSpec", "owner_of", "self_of"]

K = TypeVar("K", bound="Hashable")
K_contra = TypeVar("K_contra", contravariant=True)

log = Logger(__name__)


class WatchSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Which objects of a kind are watched; decided by the server, so that others cost nothing."""

    namespaces: frozenset[str] | None = None  # None: all
    label_selector: str | None = None
    field_selector: str | None = None
    transform: Any = None  # Callable[[object], object]: what to keep of an object; must be the same function each time
    by_name: Literal["never", "refused", "always"] = "never"  # follow single names: see `steersman.cache.single_object`
    optional: bool = False  # the kind may be missing, and may come later

    def informer(self, caches: InformerFactory, target: Any) -> Informer[Any]:
        """The shared informer for this selection."""
        informer: Informer[Any] = caches.informer(
            target,
            namespaces=self.namespaces,
            label_selector=self.label_selector,
            field_selector=self.field_selector,
            transform=self.transform,
            by_name=self.by_name,
            optional=self.optional,
        )
        return informer


class WatchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a controller's table: what is watched, which changes matter, and which keys they affect."""

    target: Any  # type[Resource] | Kind
    role: str  # "for", "owns", "watches" or "reads"
    to: Any = None  # mapping; None: only read, never a trigger
    when: Any = None  # Predicate; None: every change
    observe: Any = None  # Callable[[old, new], None]: what is noted in memory, before the predicate is asked
    after: Any = None  # Callable[[key, old, new], float | None]: how many seconds a key may wait with this change
    on_enqueue: Any = None  # Callable[[object, keys], None]: what is noted in memory about keys that were queued
    selection: WatchSelection = WatchSelection()
    cluster: str = ""

    @property
    def kind(self) -> Kind:
        """The kind that is watched."""
        return kind_of(self.target)

    def __str__(self) -> str:
        where = f" in cluster {self.cluster}" if self.cluster else ""
        mapping = f" to {getattr(self.to, '__name__', self.to)}" if self.role == "watches" else ""
        return f"{self.role} {self.kind}{where}{mapping}{f' when {self.when}' if self.when else ''}"


def self_of(obj: Any) -> Iterable[NamespacedName]:
    """The object itself."""
    return (ref_of(obj),)


def owner_of(kind: Kind) -> Callable[[Any], Iterable[NamespacedName]]:
    """The owners of an object that are of `kind`, in whatever version they are referred to."""

    def owners(obj: Any) -> Iterable[NamespacedName]:
        namespace = ref_of(obj).namespace if kind.namespaced else ""
        for owner in owners_of(obj):
            if owner.kind == kind.kind and owner.api_version.rpartition("/")[0] == kind.group:
                yield NamespacedName(owner.name, namespace)

    return owners


class Adds(Protocol[K_contra]):
    """Who takes keys: a queue, or a runner in front of its queue."""

    def add(self, key: K_contra, *, priority: int = 0, after: float | None = None) -> None:
        """Have `key` reconciled."""


class InformerSource(Generic[K]):
    """A watch at work: a handler on an informer that feeds a queue."""

    def __init__(
        self,
        watch: WatchSpec,
        informer: Informer[Any],
        queue: Adds[K],
        read: Callable[[], Any],
        *,
        controller: str = "",
    ) -> None:
        """`read` opens what a mapping with a second parameter reads from: a mapping of targets to snapshots."""
        self.watch = watch
        self.informer = informer
        self.failures = 0  # mappings that failed
        self._unmapped: dict[NamespacedName, str] = {}  # objects whose mapping failed when they were last seen, and why
        self._queue = queue
        self._read = read if _wants_cache(watch.to) else None
        self._subscription: HandlerRegistration | None = None
        self._log = log.bind(source=str(watch), **({"controller": controller} if controller else {}))

    @property
    def problem(self) -> str | None:
        """Which objects it cannot map, and why."""
        if not self._unmapped:
            return None
        ref, why = next(reversed(self._unmapped.items()))
        more = f", and {len(self._unmapped) - 1} more" if len(self._unmapped) > 1 else ""
        return f"mapping {ref} failed: {why}{more}"

    def start(self) -> None:
        """Begin to feed the queue; harmless when repeated."""
        if self._subscription is None and self.watch.to is not None:
            self._subscription = self.informer.add_handler(self._on_change)

    def stop(self) -> None:
        """Feed nothing more."""
        if self._subscription is not None:
            self._subscription.remove()
            self._subscription = None

    def has_synced(self) -> bool:
        """Whether every object of the first list has reached the queue."""
        return self.informer.has_synced() if self._subscription is None else self._subscription.has_synced()

    async def wait_synced(self) -> None:
        """Return once `has_synced()`."""
        await (self.informer.wait_synced() if self._subscription is None else self._subscription.wait_synced())

    def known_keys(self) -> list[K]:
        """The keys that all known objects affect; none when the kind is only read."""
        if self.watch.to is None:
            return []
        with self.informer.snapshot() as snapshot:
            return [key for obj in snapshot for key in self._keys(None, obj)]

    def _on_change(self, old: Any | None, new: Any | None, initial: bool) -> None:
        noted = self._note(self.watch.observe, old, new)
        if noted and not self._matters(old, new):
            self._forget_gone(old, new)
            return
        unchanged = old is not None and new is not None and revision_of(old) == revision_of(new)
        priority = LOW_PRIORITY if initial or unchanged else 0
        keys = list(self._keys(old, new))
        for key in keys:
            self._queue.add(key, priority=priority, after=self._delay(key, old, new))
        self._forget_gone(old, new)
        self._note(self.watch.on_enqueue, old if new is None else new, keys)

    def _note(self, observer: Callable[..., None] | None, *change: Any) -> bool:
        """Whether the observer has noted the change; one that was not noted counts as one that matters."""
        try:
            if observer is not None:
                observer(*change)
        except Exception as error:  # noqa: BLE001  the change itself must not be lost with the note
            self._log.error("observer failed", error=summary_of(error), traceback=traceback_of(error))
            return False
        return True

    def _delay(self, key: K, old: Any | None, new: Any | None) -> float | None:
        if self.watch.after is None:
            return None
        try:
            seconds: float | None = self.watch.after(key, old, new)
        except Exception as error:  # noqa: BLE001  a question that fails must not lose the change
            self._log.error("delay failed; taken as none", error=summary_of(error), traceback=traceback_of(error))
            return None
        return seconds

    def _forget_gone(self, old: Any | None, new: Any | None) -> None:
        if new is None and old is not None and self._unmapped:
            self._unmapped.pop(ref_of(old), None)

    def _matters(self, old: Any | None, new: Any | None) -> bool:
        predicate: Predicate | None = self.watch.when
        if predicate is None:
            return True
        try:
            return predicate(old, new)
        except Exception as error:  # noqa: BLE001  a question that fails must not lose the change
            self._log.error("predicate failed; taken as yes", error=summary_of(error), traceback=traceback_of(error))
            return True

    def _keys(self, old: Any | None, new: Any | None) -> Iterable[K]:
        keys: dict[K, None] = {}
        for obj in (old, new):
            if obj is None:
                continue
            try:
                keys.update(dict.fromkeys(self._map(obj)))
                if self._unmapped:
                    self._unmapped.pop(ref_of(obj), None)
            except Exception as error:  # noqa: BLE001  one bad object must not stop the others
                self.failures += 1
                self._unmapped[ref_of(obj)] = why = summary_of(error)
                self._log.error(
                    "mapping failed; its change is lost",
                    object=str(ref_of(obj)),
                    error=why,
                    traceback=traceback_of(error),
                )
        return keys

    def _map(self, obj: Any) -> list[K]:
        if self._read is None:
            return _several(self.watch.to(obj))
        with self._read() as cache:
            return _several(self.watch.to(obj, cache))


def _several(keys: Any) -> list[Any]:
    """The keys that a mapping gave. Nothing is none; one key alone would fall apart into its letters or fields."""
    if isinstance(keys, (str, bytes, NamespacedName)):
        raise TypeError(f"a mapping gives a list of keys, not {keys!r} alone")
    return [] if keys is None else list(keys)


def _wants_cache(mapper: Callable[..., Any] | None) -> bool:
    """Whether a mapping takes what is known of other objects as its second argument."""
    if mapper is None:
        return False
    try:
        inspect.signature(mapper).bind(None, None)
    except (TypeError, ValueError):
        return False
    return True
