"""One cluster, as controllers see it: a client to write with, caches to read from, and snapshots that hold still.

Most programs know one cluster, whose name is empty. A controller of several clusters names the others.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from steersman.cache.copies import CopyingSnapshot
from steersman.cache.identity import labels_of, ref_of, revision_of
from steersman.clock import SYSTEM_CLOCK, Clock
from steersman.errors import ConfigError
from steersman.kube.api.gvk import Kind
from steersman.kube.api.selectors import Selector
from steersman.runtime.controller.watches import WatchSelection
from steersman.runtime.reconcile.apply_cache import ApplyCache
from steersman.runtime.reconcile.metadata import kind_of
from steersman.runtime.reconcile.write_guard import WriteGuard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Self

    from steersman.cache.interfaces import Informer, InformerFactory, Snapshot
    from steersman.kube.api.gvk import NamespacedName
    from steersman.kube.api.objects import Resource
    from steersman.kube.client.client import Client
    from steersman.runtime.controller.builder import Controller
    from steersman.runtime.controller.watches import WatchSpec
    from steersman.runtime.reconcile.event_recorder import EventRecorder

__all__ = ["Cluster", "ClusterSnapshot", "WatchedResource", "used_clusters", "watched_resources"]

R = TypeVar("R", bound="Resource")


class Cluster:
    """A client with its caches, and what is remembered about writes. Every write of the client passes the guard."""

    def __init__(
        self,
        client: Client,
        caches: InformerFactory,
        *,
        name: str = "",
        recorder: EventRecorder | None = None,
        guard: WriteGuard | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.guard = guard or WriteGuard()
        self.client = client.guarded(self.guard)
        self._unguarded = client
        self.caches = caches
        self.name = name
        self.recorder = recorder
        self.clock = clock
        self.applied = ApplyCache()

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be changed."""
        return self.guard.dry_run

    def client_for(self, key: Any) -> Client:
        """The client for what is written for `key`, wherever that happens."""
        return self._unguarded.guarded(self.guard.bound_to(key))


class WatchedResource(msgspec.Struct, frozen=True):
    """One kind in the cache of a controller: its informer, and which objects it selects."""

    target: Any  # type[Resource] | Kind
    selection: WatchSelection
    informer: Any  # Informer[Any]

    @classmethod
    def of(cls, watch: WatchSpec, caches: InformerFactory) -> WatchedResource:
        """What a row of a controller's table watches."""
        informer: Informer[Any] = watch.selection.informer(caches, watch.target)
        return cls(watch.target, watch.selection, informer)

    def holds(self, obj: Any) -> bool:
        """Whether an object belongs here, as far as is known without a request."""
        selection = self.selection
        if selection.field_selector is not None:
            return False
        if selection.namespaces is not None and ref_of(obj).namespace not in selection.namespaces:
            return False
        return selection.label_selector is None or Selector.parse(selection.label_selector).matches(labels_of(obj))


def used_clusters(controller: Controller, known: Mapping[str, Cluster]) -> list[str]:
    """The names of the clusters that a controller has to do with, its own first."""
    used = dict.fromkeys(["", *(watch.cluster for watch in controller.watched)])
    for name in used:
        if name not in known:
            raise ConfigError(
                f"controller {controller.name} watches cluster {name!r}; known are {', '.join(map(repr, known))}",
                field="cluster",
            )
    return list(used)


def watched_resources(controller: Controller, cluster: Cluster) -> list[WatchedResource]:
    """One per row of the table; one kind in two selections would make `cache[kind]` ambiguous."""
    made: dict[Any, WatchedResource] = {}
    for watch in controller.watched:
        if watch.cluster != cluster.name:
            continue
        known = made.get(watch.target)
        if known is not None and known.selection != watch.selection:
            raise ConfigError(
                f"controller {controller.name} watches {watch.kind} in two selections: use one, or a class for each",
                field="watches",
            )
        made[watch.target] = known or WatchedResource.of(watch, cluster.caches)
    return list(made.values())


class ClusterSnapshot:
    """Everything a controller reads from one cluster, at one moment: `snapshots[Deployment].get(ref)`.

    `brief` is for code that never awaits while it has the snapshot: caches do not change meanwhile, so kinds that are
    not read need no snapshot. With `copies`, what `snapshots[…]` gives belongs to the reader; otherwise it is shared
    and must not be changed, as is everything that `live`, `latest` and `beyond` give.
    """

    def __init__(
        self, resources: Iterable[WatchedResource], *, user: str, brief: bool = False, copies: bool = False
    ) -> None:
        self._user = user
        self._copies = copies
        self._resources = {resource.target: resource for resource in resources}
        self._closed = False
        self._open: dict[Any, Snapshot[Any]] = {}
        for target in () if brief else self._resources:
            self._of(target)

    @overload
    def __getitem__(self, target: type[R]) -> Snapshot[R]: ...
    @overload
    def __getitem__(self, target: Kind) -> Snapshot[dict[str, Any]]: ...
    def __getitem__(self, target: Any) -> Snapshot[Any]:
        try:
            found = self._of(target)
            return CopyingSnapshot(found) if self._copies else found
        except KeyError:
            raise ConfigError(
                f"controller {self._user} does not read {kind_of(target)}: add .reads({kind_of(target).kind}) to it",
                field="cache",
            ) from None

    def __iter__(self) -> Iterator[WatchedResource]:
        return iter(self._resources.values())

    def watched(self, target: type[Resource] | Kind) -> WatchedResource | None:
        """Where objects of `target` are; failing that, those of its kind, whatever their class."""
        if target in self._resources:
            return self._resources[target]
        kind = kind_of(target)
        return next((resource for resource in self if resource.informer.kind == kind), None)

    def live(self, target: type[Resource] | Kind, ref: NamespacedName) -> Any | None:
        """The object of that name, if it is known here."""
        resource = self.watched(target)
        return None if resource is None else self._of(resource.target).get(ref)

    def latest(self, target: type[Resource] | Kind, ref: NamespacedName) -> Any | None:
        """As `live`, with what has become known since the snapshot was taken."""
        resource = self.watched(target)
        return None if resource is None else self._of(resource.target).latest(ref)

    async def beyond(self, revision: str, target: type[Resource] | Kind, ref: NamespacedName) -> Any | None:
        """Wait for another resourceVersion of the object than `revision`; None when it is deleted or not watched."""
        resource = self.watched(target)
        if resource is None:
            return None
        snapshot, moved = self._of(resource.target), asyncio.Event()

        def changed(_ref: NamespacedName) -> None:
            moved.set()

        snapshot.listeners.append(changed)
        try:
            while (known := snapshot.latest(ref)) is not None and revision_of(known) == revision:
                moved.clear()
                await moved.wait()
        finally:
            snapshot.listeners.remove(changed)
        return known

    def record_write(self, target: type[Resource] | Kind, obj: Any) -> Any:
        """Show a written object from now on; returns it as the cache will know it, while `obj` stays as it is."""
        resource = self.watched(target)
        if resource is None or not isinstance(obj, dict if isinstance(resource.target, Kind) else resource.target):
            return obj  # another projection: the watch will deliver ours
        kept = resource.informer.kept(obj)
        if kept is None:
            return obj
        if resource.holds(obj):
            self._of(resource.target).record_write(kept)
        return kept

    def record_delete(self, target: type[Resource] | Kind, ref: NamespacedName, uid: str) -> None:
        """Hide a deleted object from now on."""
        resource = self.watched(target)
        if resource is not None:
            self._of(resource.target).record_delete(ref, uid)

    def _of(self, target: Any) -> Snapshot[Any]:
        found = self._open.get(target)
        if found is None:
            if self._closed:
                raise RuntimeError("this snapshot is closed; take a new one")
            found = self._open[target] = self._resources[target].informer.snapshot()
        return found

    def close(self) -> None:
        """Let the caches move on."""
        self._closed = True
        for snapshot in self._open.values():
            snapshot.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
