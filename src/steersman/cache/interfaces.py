"""What the runtime asks of a cache: the narrow interfaces, and the promises behind them.

    watch ──► store ──► handlers(old, new, initial)      in order, once per change, never blocking
                └─────► snapshot()                       what one reconcile reads: it does not change meanwhile

Promises, which every implementation keeps and the runtime relies on:
- per object, handlers see a subsequence of its real states, in order; `old` is what they saw last; an object that
  vanished while no watch ran is delivered as a deletion; one name with another uid may come as a single update;
- a subscription is synced when the handler has *returned* for every object of the first complete list;
- a snapshot never changes, except for the writes recorded through it; those become visible to later snapshots too, and
  stay so until the watch has delivered that write or something newer, so no change of another client is ever hidden;
- stored objects keep `metadata` name, namespace, uid, resourceVersion and generation, whatever a transform drops,
  and are never mutated: readers share them.

Interfaces only: the implementations are in the modules beside this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence

    from steersman.kube.api.gvk import Kind, NamespacedName
    from steersman.kube.api.objects import Resource

__all__ = [
    "EventHandler",
    "HandlerRegistration",
    "Informer",
    "InformerFactory",
    "LabelMatcher",
    "NamedInformer",
    "Snapshot",
    "SourceHealth",
]

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
R = TypeVar("R", bound="Resource")


class SourceHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How one source of events is doing, as `/readyz?verbose` and `/debug/caches` show it."""

    name: str  # e.g. "deployments.apps in shop where app=web"
    synced: bool  # the first complete list has been stored and handled
    objects: int = 0
    resource_version: str = ""  # the resourceVersion the store has reached
    last_event_seconds: float | None = None  # age of the last event or bookmark; None before the first
    refused: bool = False  # rights are missing, to list as well as to watch, or the server does not know who asks
    unseen: frozenset[str] = frozenset()  # namespaces that have never been listed; of a watch per namespace only
    problem: str | None = None  # why it is not (or only partly) working, and the way out; never a secret value
    unknown: str | None = None  # why nothing is known of its objects, where that is expected and stops nothing
    coverage: str = ""  # what its objects are, where they are not the whole collection
    partial: bool = False  # the problem is one of single objects, names or namespaces: everything else is well


class LabelMatcher(Protocol):
    """Anything that decides on labels; the selectors of `steersman.kube.api.selectors` do."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""


class EventHandler(Protocol[T_contra]):
    """Called on the event loop for every change; must return quickly and may not await.

    old None: created. new None: deleted (`old` is the last known state). Both: updated, or a resync when both carry
    the same resourceVersion. `initial` is true for objects of the first list and for the synthetic creations that a
    handler added late receives. An exception is logged and counted, and stops neither the store nor other handlers.
    """

    def __call__(self, old: T_contra | None, new: T_contra | None, initial: bool) -> None: ...


class HandlerRegistration(Protocol):
    """One handler's place at an informer."""

    def has_synced(self) -> bool:
        """Whether the handler has returned for every object of the first complete list."""

    async def wait_synced(self) -> None:
        """Return once `has_synced()`; cancel-safe."""

    def remove(self) -> None:
        """Deliver nothing more; harmless when repeated."""


class Snapshot(Protocol[T]):
    """The objects of one informer at one moment. Close it, or leave its `with` block, when done reading."""

    listeners: list[Callable[[NamespacedName], None]]  # called for every object that later snapshots show differently

    @property
    def resource_version(self) -> str:
        """The resourceVersion of the store when the snapshot was taken."""

    def get(self, ref: NamespacedName) -> T | None:
        """The object of that name, or None."""

    def latest(self, ref: NamespacedName) -> T | None:
        """The object of that name as a snapshot taken now would show it."""

    def list(self, *, namespace: str | None = None, selector: LabelMatcher | None = None) -> Sequence[T]:
        """All objects, those of one namespace, those whose labels match; ordered by namespace and name."""

    def by_index(self, index: str, value: str) -> Sequence[T]:
        """The objects for which the index function named `index` gave `value`; ordered by namespace and name."""

    def record_write(self, obj: T) -> None:
        """Show `obj`, the server's response to a write, in this snapshot and in later ones until the watch has it."""

    def record_delete(self, ref: NamespacedName, uid: str) -> None:
        """Hide the object with that uid, which the server deleted, here and later until the watch agrees."""

    def close(self) -> None:
        """Release what keeps the snapshot still; reading afterwards is an error."""

    def __iter__(self) -> Iterator[T]: ...
    def __len__(self) -> int: ...
    def __contains__(self, ref: object) -> bool: ...
    def __enter__(self) -> Snapshot[T]: ...
    def __exit__(self, *exc: object) -> None: ...


class Informer(Protocol[T]):
    """One shared list+watch with its store."""

    @property
    def target(self) -> type[T] | Kind:
        """What objects decode to: a Resource class, or plain dicts for a Kind."""

    @property
    def kind(self) -> Kind:
        """The kind that is watched."""

    async def run(self) -> None:
        """List and watch until cancelled. Returns never; raises only on a defect, and may then be run again.

        A server that is away, refuses, or does not know the kind is not a defect: it shows in `health()` and is
        retried with backoff.
        """

    def health(self) -> SourceHealth:
        """How the source is doing right now; cheap."""

    def has_synced(self) -> bool:
        """Whether the first complete list has been stored and handled by every handler present."""

    async def wait_synced(self) -> None:
        """Return once `has_synced()`; cancel-safe."""

    def add_handler(self, handler: EventHandler[T]) -> HandlerRegistration:
        """Deliver changes to `handler`, at any time; when objects are known already, as initial creations."""

    def add_index(self, name: str, values: Callable[[T], Iterable[str]]) -> None:
        """Index objects by several values each; at any time; adding the same name and function again is harmless."""

    def snapshot(self) -> Snapshot[T]:
        """What is known now, recorded writes included. Costs O(1), whatever the number of objects."""

    def refresh(self, namespace: str) -> None:
        """List a namespace soon, where lists stand in for a watch that is not allowed; elsewhere this does nothing."""

    def listed_before(self, namespace: str) -> str:
        """Where lists stand in for a watch: after which resourceVersion what is new in the last list appeared."""

    def listed_at(self, namespace: str) -> str:
        """Where lists stand in for a watch: the resourceVersion of the last list."""

    def kept(self, obj: T) -> T | None:
        """What the cache keeps of an object that a server answered with, which stays as it is; None if it cannot be."""

    def record_write(self, obj: T) -> None:
        """As `Snapshot.record_write`, for writers that hold no snapshot."""

    def record_delete(self, ref: NamespacedName, uid: str) -> None:
        """As `Snapshot.record_delete`, for writers that hold no snapshot."""


class NamedInformer(Informer[T], Protocol[T]):
    """An informer that may follow single objects by name, where a collection may not be read or should not be."""

    def set_interest(self, user: Hashable, refs: Collection[NamespacedName]) -> None:
        """`user` wants these names and no others, where names are followed one by one; elsewhere this does nothing."""

    def on_name_resolved(self, callback: Callable[[NamespacedName], None]) -> None:
        """Call `callback` whenever a name that is followed by itself becomes known, or turns out not to be readable."""

    def is_synced_for(self, ref: NamespacedName) -> bool:
        """Whether a snapshot says truly if this object exists."""

    def is_namespace_synced(self, namespace: str) -> bool:
        """Whether a snapshot says truly which objects of a namespace there are."""

    def why_not_synced(self, ref: NamespacedName) -> str | None:
        """Why `is_synced_for` will not become true soon."""


class InformerFactory(Protocol):
    """All informers of one cluster, shared: the same arguments give the same informer."""

    on_new: Callable[[Any], None] | None  # called for every informer made from then on

    @overload
    def informer(
        self,
        target: type[R],
        *,
        namespaces: Collection[str] | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        transform: Callable[[R], R] | None = None,
        by_name: Literal["never", "refused", "always"] = "never",
        optional: bool = False,
    ) -> Informer[R]: ...
    @overload
    def informer(
        self,
        target: Kind,
        *,
        namespaces: Collection[str] | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        transform: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        by_name: Literal["never", "refused", "always"] = "never",
        optional: bool = False,
    ) -> Informer[dict[str, Any]]: ...

    def __iter__(self) -> Iterator[Informer[Any]]:
        """The informers made so far, in order of creation; the manager runs each of them."""
