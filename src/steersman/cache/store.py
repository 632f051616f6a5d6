"""The store: the objects of one kind, their indexes, and snapshots that do not change.

Two layers. *Base* is what the watch delivered; handlers see changes of base and nothing else. *Overlay* is
the server's answers to our own writes, each shown in place of base until base has caught up with it. What readers see
is overlay over base:

    visible(ref) = overlay[ref] if ref in overlay else base[ref]

Invariants:
- an overlay entry is newer than base, and goes when base reaches its resourceVersion: no change of another client is
  hidden;
- indexes describe exactly what is visible;
- a snapshot shows what was visible when it was taken, plus the writes recorded through it. It costs nothing to take:
  the store saves the old state of a key into the open snapshots when that key changes.

No I/O and no locks: everything happens on one event loop, and no method awaits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from steersman.cache.identity import is_newer, labels_of, ref_of, revision_of, uid_of
from steersman.cache.index import Index
from steersman.cache.mutation_detector import detector
from steersman.clock import SYSTEM_CLOCK, Clock
from steersman.kube.api.gvk import NamespacedName

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from steersman.cache.interfaces import LabelMatcher

__all__ = ["TOMBSTONE_SECONDS", "Delta", "ObjectStore", "StoreSnapshot"]

T = TypeVar("T")

# A deletion we made is shown at most this long without the watch agreeing: insurance against an answer that lied.
TOMBSTONE_SECONDS = 30.0


class Delta(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One step of one object. `old` None: it appeared. `new` None: it vanished."""

    old: T | None
    new: T | None


class _Tombstone(msgspec.Struct, frozen=True, gc=False):
    """Stands in the overlay for an object that the server deleted."""

    uid: str
    until: float


class ObjectStore(Generic[T]):
    """The objects of one informer."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._base: dict[str, dict[str, T]] = {}  # namespace -> name -> object
        self._overlay: dict[NamespacedName, T | _Tombstone] = {}
        self._indexes: dict[str, Index[T]] = {}
        self._snapshots: list[StoreSnapshot[T]] = []
        self._size = 0
        # The resourceVersion that base has reached, by namespace (None: all of them)…
        self._reached: dict[str | None, str] = {}
        # …and, of names with a watch of their own, the one that this watch has reached.
        self._followed: dict[NamespacedName, str] = {}
        self._detector = detector()

    # -- what the watch delivers ---------------------------------------------------------------------------------

    def upsert(self, obj: T) -> Delta[T]:
        """The watch says that `obj` is now like this."""
        return Delta(self.upserts((obj,))[0], obj)

    def upserts(self, objects: Iterable[T]) -> list[T | None]:
        """As `upsert` of one after the other; what each of them replaces.

        In one loop, with no call per object: of all that a change costs, this is the part that grows with the cluster.
        """
        replaced: list[T | None] = []
        watched = bool(self._overlay or self._indexes or self._snapshots or self._detector)  # not by handlers alone
        base, where = self._base, None
        space: dict[str, T] = {}
        for obj in objects:
            if isinstance(obj, dict):
                meta: Any = obj["metadata"]
                name, namespace = meta["name"], meta.get("namespace", "")
            else:
                meta = obj.metadata  # type: ignore[attr-defined]  # everything that is not a dict is a Resource
                name, namespace = meta.name, meta.namespace
            if watched:
                ref = NamespacedName(name, namespace)
                before = self._visible(ref)
            if namespace != where:
                where = namespace
                if namespace not in base:
                    base[namespace] = {}
                space = base[namespace]
            old = space.get(name)
            space[name] = obj
            if old is None:
                self._size += 1
            if watched:
                self._catch_up(ref, obj)
                self._shown(ref, before)
                if self._detector is not None:
                    self._moved(old, obj)
            replaced.append(old)
        return replaced

    def remove(self, obj: T) -> Delta[T] | None:
        """The watch says that `obj` was deleted. None when it was not known."""
        ref = ref_of(obj)
        before = self._visible(ref)
        space = self._base.get(ref.namespace, {})
        old = space.pop(ref.name, None)
        if old is None:
            return None
        if not space:
            self._base.pop(ref.namespace, None)
        self._size -= 1
        self._catch_up(ref, obj)
        self._shown(ref, before)
        self._moved(old, None)
        return Delta(old, None)

    def replace(
        self,
        objects: Iterable[T],
        revision: str,
        *,
        namespace: str | None = None,
        keep: Collection[NamespacedName] = (),
    ) -> list[Delta[T]]:
        """A complete list: what is neither in it nor in `keep` was deleted. With `namespace`, complete for it only.

        Returns the changes, deletions first; an object with the same uid and resourceVersion is not one.
        """
        fresh = _by_namespace(objects)
        if not (self._size or self._overlay or self._snapshots or self._indexes or self._detector):
            return self._fill(fresh, revision, namespace)
        changes = self._exchange(fresh, list(self._base) if namespace is None else [namespace], keep)
        self.progress(revision, namespace=namespace)
        return changes

    def replace_part(
        self, objects: Iterable[T], *, namespace: str, keep: Collection[NamespacedName] = ()
    ) -> list[Delta[T]]:
        """As `replace` for one namespace of a store that holds all of them: how far the others are does not change."""
        return self._exchange(_by_namespace(objects), [namespace], keep)

    def _exchange(
        self, fresh: dict[str, dict[str, T]], spaces: Iterable[str], keep: Collection[NamespacedName]
    ) -> list[Delta[T]]:
        changes: list[Delta[T]] = []
        for space in spaces:
            kept = fresh.get(space, {})
            for name, old in list(self._base.get(space, {}).items()):
                if name not in kept and (not keep or ref_of(old) not in keep):
                    change = self.remove(old)
                    assert change is not None
                    changes.append(change)
        for space, members in fresh.items():
            known = self._base.get(space, {})
            for name, obj in members.items():
                old_obj = known.get(name)
                if old_obj is not None and _same(old_obj, obj):
                    continue
                changes.append(self.upsert(obj))
        return changes

    def replace_one(self, ref: NamespacedName, obj: T | None) -> Delta[T] | None:
        """What a complete list of one name says: the object, or that there is none. None when nothing changed."""
        old = self._base_get(ref)
        if obj is None:
            return None if old is None else self.remove(old)
        return None if old is not None and _same(old, obj) else self.upsert(obj)

    def reached_name(self, ref: NamespacedName, revision: str) -> None:
        """As `progress`, for a name with a watch of its own."""
        self._followed[ref] = revision
        entry = self._overlay.get(ref)
        if entry is not None and not isinstance(entry, _Tombstone) and not is_newer(revision_of(entry), revision):
            del self._overlay[ref]
            self._shown(ref, entry)

    def let_go(self, ref: NamespacedName) -> None:
        """The watch of a name ended: nothing is known of its object."""
        self._followed.pop(ref, None)
        self.replace_one(ref, None)

    def is_stale(self, obj: T) -> bool:
        """Whether base has something newer under the name of `obj`: another watch that delivers to it was faster."""
        known = self._base_get(ref_of(obj))
        comparable = known is not None and revision_of(known).isdecimal() and revision_of(obj).isdecimal()
        return comparable and is_newer(revision_of(known), revision_of(obj))

    def _fill(self, fresh: dict[str, dict[str, T]], revision: str, namespace: str | None) -> list[Delta[T]]:
        """The first list, before there are readers: the same as one `upsert` each, but cheaper."""
        self._base = fresh
        self._size = sum(map(len, fresh.values()))
        self._reached[namespace] = revision
        return [Delta(None, obj) for members in fresh.values() for obj in members.values()]

    def reached(self, revision: str, *, namespace: str | None = None) -> None:
        """The last object delivered was at `revision`; cheaper than `progress`, for every batch of events."""
        self._reached[namespace] = revision

    def progress(self, revision: str, *, namespace: str | None = None) -> None:
        """Base has reached `revision`: whatever we wrote up to there, the watch has delivered."""
        self._reached[namespace] = revision
        for ref, entry in list(self._overlay.items()):
            if namespace is not None and ref.namespace != namespace:
                continue
            if isinstance(entry, _Tombstone) or is_newer(revision_of(entry), revision):
                continue
            before = self._visible(ref)
            del self._overlay[ref]
            self._shown(ref, before)

    # -- what we wrote -------------------------------------------------------------------------------------------

    def record_write(self, obj: T) -> None:
        """Show the server's answer to a write until the watch has delivered it or something newer."""
        ref = ref_of(obj)
        base = self._base_get(ref)
        if base is not None and not is_newer(revision_of(obj), revision_of(base)):
            return
        held = self._overlay.get(ref)
        if held is not None and not isinstance(held, _Tombstone) and not is_newer(revision_of(obj), revision_of(held)):
            return
        if base is None and self._is_stale(ref, revision_of(obj)):
            return  # the watch is already past this write, and the object was deleted again
        before = self._visible(ref)
        self._overlay[ref] = obj
        self._shown(ref, before)
        self._moved(None if isinstance(held, _Tombstone) else held, obj)

    def record_delete(self, ref: NamespacedName, uid: str) -> None:
        """Hide the object with that uid until the watch agrees that it was deleted."""
        visible = self._visible(ref)
        if visible is None or (uid and uid_of(visible) != uid):
            return
        self._overlay[ref] = _Tombstone(uid_of(visible), self._clock.monotonic() + TOMBSTONE_SECONDS)
        self._shown(ref, visible)

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def revision(self) -> str:
        """The resourceVersion base has reached; with a watch per namespace, the one furthest behind."""
        if len(self._reached) == 1:  # as it nearly always is, and it is asked for with every snapshot
            return next(iter(self._reached.values()))
        return min(self._reached.values(), key=lambda r: int(r) if r.isdecimal() else 0, default="")

    def add_index(self, name: str, function: Callable[[T], Iterable[str]]) -> None:
        """Index what is and will be visible; the same name and function again is harmless."""
        if name in self._indexes:
            if self._indexes[name].function is not function:
                raise ValueError(f"index {name!r} exists with another function; choose another name")
            return
        index: Index[T] = Index(name, function)
        for ref in self.refs():
            index.move(ref, None, self._visible(ref))
        self._indexes[name] = index

    def index(self, name: str) -> Index[T]:
        """The index of that name."""
        try:
            return self._indexes[name]
        except KeyError:
            known = ", ".join(sorted(self._indexes)) or "none"
            raise LookupError(f"unknown index {name!r} (known: {known}); add it with add_index first") from None

    def refs(self, namespace: str | None = None) -> list[NamespacedName]:
        """The names of everything visible, in order."""
        self._expire()
        spaces = self._base if namespace is None else {namespace: self._base.get(namespace, {})}
        found = {ref_of(obj) for members in spaces.values() for obj in members.values()}
        for ref, entry in self._overlay.items():
            if namespace is not None and ref.namespace != namespace:
                continue
            if isinstance(entry, _Tombstone):
                found.discard(ref)
            else:
                found.add(ref)
        return sorted(found, key=lambda ref: (ref.namespace, ref.name))

    def base(self) -> list[T]:
        """What the watch has delivered, own writes not included: the state that handlers know."""
        return [obj for members in self._base.values() for obj in members.values()]

    def get(self, ref: NamespacedName) -> T | None:
        """What is visible under that name."""
        self._expire()
        return self._visible(ref)

    def snapshot(self) -> StoreSnapshot[T]:
        """A view that does not change."""
        self._expire()
        return StoreSnapshot(self)

    def __len__(self) -> int:
        return self._size

    # -- the machinery -------------------------------------------------------------------------------------------

    def _base_get(self, ref: NamespacedName) -> T | None:
        space = self._base.get(ref.namespace)
        return None if space is None else space.get(ref.name)

    def _visible(self, ref: NamespacedName) -> T | None:
        if self._overlay:
            entry = self._overlay.get(ref)
            if isinstance(entry, _Tombstone):
                return None
            if entry is not None:
                return entry
        return self._base_get(ref)

    def _is_stale(self, ref: NamespacedName, revision: str) -> bool:
        """Whether a watch that would have delivered this resourceVersion of the object has gone on from there."""
        watches = (self._reached.get(None) or self._reached.get(ref.namespace) or "", self._followed.get(ref, ""))
        return any(reached.isdecimal() and not is_newer(revision, reached) for reached in watches)

    def _catch_up(self, ref: NamespacedName, seen: T) -> None:
        """The watch delivered `seen`, an object or its deletion: drop the overlay if that is as new."""
        entry = self._overlay.get(ref)
        if entry is None:
            return
        if isinstance(entry, _Tombstone):
            base = self._base_get(ref)
            if base is None or uid_of(base) != entry.uid:
                del self._overlay[ref]
        elif not is_newer(revision_of(entry), revision_of(seen)) or not revision_of(seen).isdecimal():
            del self._overlay[ref]

    def _shown(self, ref: NamespacedName, before: T | None) -> None:
        """What is visible under `ref` may have changed from `before`."""
        after = self._visible(ref)
        if after is before:
            return
        for index in self._indexes.values():
            index.move(ref, before, after)
        for snapshot in self._snapshots:
            snapshot.save(ref, before)

    def stop(self) -> None:
        """Nothing is delivered any more."""
        if self._detector is not None:
            self._detector.stop()

    def _moved(self, old: T | None, new: T | None) -> None:
        """Let the mutation detector compare what goes with what had come."""
        if self._detector is not None:
            if old is not None:
                self._detector.went(old)
            if new is not None:
                self._detector.came(new)

    def _expire(self) -> None:
        if not self._overlay:
            return
        now = self._clock.monotonic()
        for ref, entry in list(self._overlay.items()):
            if isinstance(entry, _Tombstone) and entry.until <= now:
                del self._overlay[ref]
                self._shown(ref, None)


class StoreSnapshot(Generic[T]):
    """What was visible at one moment, and what was written through it since."""

    def __init__(self, store: ObjectStore[T]) -> None:
        self._store = store
        self._saved: dict[NamespacedName, T | None] = {}
        self._open = True
        self.listeners: list[Callable[[NamespacedName], None]] = []
        self.resource_version = store.revision
        store._snapshots.append(self)  # noqa: SLF001  # a snapshot is part of its store

    def save(self, ref: NamespacedName, before: T | None) -> None:
        """`ref` changes in the store; keep what this snapshot showed."""
        self._saved.setdefault(ref, before)
        for callback in self.listeners:
            callback(ref)

    def get(self, ref: NamespacedName) -> T | None:
        """The object of that name, or None."""
        self._check_open()
        if ref in self._saved:
            return self._saved[ref]
        return self._store._visible(ref)  # noqa: SLF001  # the same view, without expiry that would move it

    def latest(self, ref: NamespacedName) -> T | None:
        """The object of that name as a snapshot taken now would show it."""
        self._check_open()
        return self._store.get(ref)

    def list(self, *, namespace: str | None = None, selector: LabelMatcher | None = None) -> Sequence[T]:
        """All objects, or those of a namespace, or those whose labels match, ordered by namespace and name."""
        self._check_open()
        refs = set(self._store.refs(namespace))
        refs.update(ref for ref in self._saved if namespace is None or ref.namespace == namespace)
        objects = self._in_order(refs)
        return objects if selector is None else [obj for obj in objects if selector.matches(labels_of(obj))]

    def by_index(self, index: str, value: str) -> Sequence[T]:
        """The objects for which that index gave `value`, ordered by namespace and name."""
        self._check_open()
        lookup = self._store.index(index)
        refs = {ref for ref in lookup.refs(value) if ref not in self._saved}
        refs.update(ref for ref, old in self._saved.items() if old is not None and value in lookup.values(old))
        return self._in_order(refs)

    def record_write(self, obj: T) -> None:
        """Show the server's answer to a write here and in later snapshots."""
        self._check_open()
        self._store.record_write(obj)
        self._saved[ref_of(obj)] = obj

    def record_delete(self, ref: NamespacedName, uid: str) -> None:
        """Hide an object that the server deleted, here and in later snapshots."""
        self._check_open()
        shown = self.get(ref)
        self._store.record_delete(ref, uid)
        if shown is not None and (not uid or uid_of(shown) == uid):
            self._saved[ref] = None

    def close(self) -> None:
        """Release the snapshot; harmless when repeated."""
        if self._open:
            self._open = False
            self._store._snapshots.remove(self)  # noqa: SLF001  # a snapshot is part of its store
            self._saved.clear()

    def _in_order(self, refs: Iterable[NamespacedName]) -> Sequence[T]:
        ordered = sorted(refs, key=lambda ref: (ref.namespace, ref.name))
        return [obj for ref in ordered if (obj := self.get(ref)) is not None]

    def _check_open(self) -> None:
        if not self._open:
            raise RuntimeError("this snapshot is closed; take a new one")

    def __iter__(self) -> Iterator[T]:
        return iter(self.list())

    def __len__(self) -> int:
        return len(self.list())

    def __contains__(self, ref: object) -> bool:
        return self.get(ref) is not None  # type: ignore[arg-type]  # membership may be asked of anything

    def __enter__(self) -> StoreSnapshot[T]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _by_namespace(objects: Iterable[T]) -> dict[str, dict[str, T]]:
    found: dict[str, dict[str, T]] = {}
    for obj in objects:
        ref = ref_of(obj)
        found.setdefault(ref.namespace, {})[ref.name] = obj
    return found


def _same(old: Any, new: Any) -> bool:
    return revision_of(old) == revision_of(new) and uid_of(old) == uid_of(new)
