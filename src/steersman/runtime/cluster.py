"""One cluster, as controllers see it: a client to write with, caches to read from, and snapshots that hold still.

Most programs know one cluster, whose name is empty. A controller that looks after several names the others.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from steersman.cache.identity import labels_of, ref_of, revision_of
from steersman.clock import SYSTEM_CLOCK, Clock
from steersman.errors import ConfigError, SteersmanError
from steersman.kube.resources import Kind
from steersman.kube.selectors import Selector
from steersman.runtime.applied import AppliedMemory
from steersman.runtime.metadata import kind_of
from steersman.runtime.sources import Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Self

    from steersman.cache.contract import Caches, Informer, Snapshot
    from steersman.kube.client import Client
    from steersman.kube.objects import Resource
    from steersman.kube.resources import ObjectRef
    from steersman.runtime.controller import Controller
    from steersman.runtime.recorder import EventRecorder
    from steersman.runtime.sources import Watch

__all__ = ["Cluster", "NotLeading", "Shelf", "Snapshots", "shelves", "used_clusters"]

R = TypeVar("R", bound="Resource")


class Cluster:
    """A client with its caches, and what is remembered about writes."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        *,
        name: str = "",
        recorder: EventRecorder | None = None,
        dry_run: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.client = client
        self.caches = caches
        self.name = name
        self.recorder = recorder
        self.dry_run = dry_run
        self.clock = clock
        self.may_act: Callable[[], bool] = lambda: True  # asked before every write of a reconcile
        self.applied = AppliedMemory()


class NotLeading(SteersmanError):  # noqa: N818  a state, not a fault
    """A reconcile wanted to write after the term of its process was over."""


class Shelf(msgspec.Struct, frozen=True):
    """One kind at hand: where its objects come from, and which of them."""

    target: Any  # type[Resource] | Kind
    selection: Selection
    informer: Any  # Informer[Any]

    @classmethod
    def of(cls, watch: Watch, caches: Caches) -> Shelf:
        """The shelf that a row of a controller's table asks for."""
        informer: Informer[Any] = watch.selection.informer(caches, watch.target)
        return cls(watch.target, watch.selection, informer)

    def holds(self, obj: Any) -> bool:
        """Whether an object belongs here, as far as can be told without asking the server."""
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


def shelves(controller: Controller, cluster: Cluster) -> list[Shelf]:
    """One shelf per row of the table; one kind in two selections would make `cache[kind]` ambiguous."""
    made: dict[Any, Shelf] = {}
    for watch in controller.watched:
        if watch.cluster != cluster.name:
            continue
        known = made.get(watch.target)
        if known is not None and known.selection != watch.selection:
            raise ConfigError(
                f"controller {controller.name} watches {watch.kind} in two selections: use one, or a class for each",
                field="watches",
            )
        made[watch.target] = known or Shelf.of(watch, cluster.caches)
    return list(made.values())


class Snapshots:
    """Everything a controller reads from one cluster, at one moment: `snapshots[Deployment].get(ref)`.

    `brief` is for those who never wait while they have it: caches stand still meanwhile, so what nobody asks for need
    not be kept.
    """

    def __init__(self, shelves: Iterable[Shelf], *, user: str, brief: bool = False) -> None:
        self._user = user
        self._shelves = {shelf.target: shelf for shelf in shelves}
        self._closed = False
        self._open: dict[Any, Snapshot[Any]] = {}
        for target in () if brief else self._shelves:
            self._of(target)

    @overload
    def __getitem__(self, target: type[R]) -> Snapshot[R]: ...
    @overload
    def __getitem__(self, target: Kind) -> Snapshot[dict[str, Any]]: ...
    def __getitem__(self, target: Any) -> Snapshot[Any]:
        try:
            return self._of(target)
        except KeyError:
            raise ConfigError(
                f"controller {self._user} does not read {kind_of(target)}: add .reads({kind_of(target).kind}) to it",
                field="cache",
            ) from None

    def __iter__(self) -> Iterator[Shelf]:
        return iter(self._shelves.values())

    def shelf(self, target: type[Resource] | Kind) -> Shelf | None:
        """Where objects of `target` are; failing that, those of its kind, whatever their class."""
        if target in self._shelves:
            return self._shelves[target]
        kind = kind_of(target)
        return next((shelf for shelf in self if shelf.informer.kind == kind), None)

    def live(self, target: type[Resource] | Kind, ref: ObjectRef) -> Any | None:
        """The object of that name, if it is known here."""
        shelf = self.shelf(target)
        return None if shelf is None else self._of(shelf.target).get(ref)

    def latest(self, target: type[Resource] | Kind, ref: ObjectRef) -> Any | None:
        """As `live`, with what has become known since the snapshot was taken."""
        shelf = self.shelf(target)
        return None if shelf is None else self._of(shelf.target).latest(ref)

    async def beyond(self, revision: str, target: type[Resource] | Kind, ref: ObjectRef) -> Any | None:
        """Wait until the object is known at another revision than that; None when it is gone or nobody watches it."""
        shelf = self.shelf(target)
        if shelf is None:
            return None
        snapshot, moved = self._of(shelf.target), asyncio.Event()

        def tell(_ref: ObjectRef) -> None:
            moved.set()

        snapshot.listeners.append(tell)
        try:
            while (known := snapshot.latest(ref)) is not None and revision_of(known) == revision:
                moved.clear()
                await moved.wait()
        finally:
            snapshot.listeners.remove(tell)
        return known

    def record_write(self, target: type[Resource] | Kind, obj: Any) -> Any:
        """Show a written object from now on; returns it as the cache will know it, while `obj` stays as it is."""
        shelf = self.shelf(target)
        if shelf is None or not isinstance(obj, dict if isinstance(shelf.target, Kind) else shelf.target):
            return obj  # another projection: the watch will bring ours
        kept = shelf.informer.kept(obj)
        if kept is None:
            return obj
        if shelf.holds(obj):
            self._of(shelf.target).record_write(kept)
        return kept

    def record_delete(self, target: type[Resource] | Kind, ref: ObjectRef, uid: str) -> None:
        """Hide an object that is gone from now on."""
        shelf = self.shelf(target)
        if shelf is not None:
            self._of(shelf.target).record_delete(ref, uid)

    def _of(self, target: Any) -> Snapshot[Any]:
        found = self._open.get(target)
        if found is None:
            if self._closed:
                raise RuntimeError("this snapshot is closed; take a new one")
            found = self._open[target] = self._shelves[target].informer.snapshot()
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
