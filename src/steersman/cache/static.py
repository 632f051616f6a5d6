"""A static cache: objects that were listed once, read as a controller reads its caches.

    cache = StaticCache({DNSZone: zones, Pod: pods}, indexes={"zone-name": zone_names})
    cache[DNSZone].by_index("zone-name", "example.org")
    cache.add(DNSZone, changed)                         # takes the place of the object of that name

For commands that say offline what a controller would do (plan, why, audit), and for tests: functions that read
`ctx.cache` read this as well. It is the same store with the same indexes, without a watch. A kind that was not given
has no objects. An index function is called when an index of its name is first read, for the objects of that kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.cache.identity import labels_of
from steersman.cache.store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from steersman.cache.interfaces import LabelMatcher
    from steersman.kube.api.gvk import NamespacedName

    Indexes = Mapping[str, Callable[[Any], Iterable[str]]]

__all__ = ["StaticCache", "StaticObjects"]


class StaticObjects(ObjectStore[Any]):
    """The objects of one kind, read as a `Snapshot` is."""

    def __init__(self, objects: Iterable[Any], indexes: Indexes) -> None:
        super().__init__()
        self._functions = indexes
        self.replace(objects, "")

    def list(self, *, namespace: str | None = None, selector: LabelMatcher | None = None) -> Sequence[Any]:
        """All objects, those of one namespace, those whose labels match; ordered by namespace and name."""
        objects = [self.get(ref) for ref in self.refs(namespace)]
        return objects if selector is None else [obj for obj in objects if selector.matches(labels_of(obj))]

    def by_index(self, index: str, value: str) -> Sequence[Any]:
        """The objects for which the index function of that name gives `value`; ordered by namespace and name."""
        if index in self._functions:
            self.add_index(index, self._functions[index])
        refs: Iterable[NamespacedName] = self.index(index).refs(value)
        return [self.get(ref) for ref in sorted(refs, key=lambda ref: (ref.namespace, ref.name))]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.list())

    def __contains__(self, ref: NamespacedName) -> bool:
        return self.get(ref) is not None


class StaticCache:
    """Objects by kind: see the module."""

    def __init__(self, objects: Mapping[Any, Iterable[Any]] | None = None, *, indexes: Indexes | None = None) -> None:
        """`objects` by Resource class, or by Kind for plain dicts; `indexes` by name, as for `Controller.index`."""
        self._indexes = dict(indexes or {})
        self._kinds = {target: StaticObjects(found, self._indexes) for target, found in (objects or {}).items()}

    def __getitem__(self, target: Any) -> StaticObjects:
        if target not in self._kinds:
            self._kinds[target] = StaticObjects((), self._indexes)
        return self._kinds[target]

    def add(self, target: Any, obj: Any) -> None:
        """Add an object, or replace the one of that name."""
        self[target].upsert(obj)
