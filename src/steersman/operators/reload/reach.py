"""Reach: the sources a look asked for, where they can only be had by name.

Where the server lists all sources this does nothing. Where it may not be asked to, or should not be, exactly the names
that looks ask for are watched one by one; they come and go with the looks. A look that asked for a name whose first
list is not through yet has seen nothing there, which is not the same as having seen that there is nothing: it is not
acted on, and comes again when the name is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.kube.resources import ObjectRef
from steersman.operators.reload.forms import SOURCES
from steersman.operators.reload.types import SourceKind, SourceRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from steersman.cache.contract import NamedInformer
    from steersman.operators.reload.digest import Source

__all__ = ["Reach", "Unread"]

ANY = "*"  # the name in an interest in all sources of a namespace


class Unread(msgspec.Struct, frozen=True):
    """What a look asked for and could not see."""

    waiting: tuple[str, ...] = ()  # it will be known soon
    problems: tuple[str, ...] = ()  # it will not, and why

    def __bool__(self) -> bool:
        return bool(self.waiting or self.problems)


class Reach:
    """The names that the workloads of one controller need."""

    def __init__(self, controller: str, names: Mapping[SourceKind, frozenset[str]] | None = None) -> None:
        """`names`: the only ones that may be asked for, where the configuration has a list."""
        self._controller = controller
        self._names = names or {}
        self._informers: dict[SourceKind, NamedInformer[Source]] = {}

    def connect(self, cache: Any, kinds: Iterable[SourceKind], wake: Callable[[Iterable[str]], None]) -> None:
        """Find where sources come from; `wake` has those looked at who are interested in these names."""
        for kind in kinds if not self._informers else ():
            shelf = cache.shelf(SOURCES[kind]) if kind in SOURCES else None
            if shelf is not None:
                self._informers[kind] = shelf.informer
                shelf.informer.on_news(_waking(kind, wake))

    def sees(self, source: SourceRef) -> bool:
        """Whether it was known already whether this source exists: otherwise it has not just been created."""
        informer = self._informers.get(source.kind)
        return informer is None or informer.knows(ObjectRef(source.name, source.namespace))

    def read(self, workload: ObjectRef, interests: Iterable[str]) -> Unread:
        """Have everything watched that a look asked for; what of it the look could not see."""
        wanted: dict[SourceKind, list[ObjectRef]] = {kind: [] for kind in self._informers}
        waiting: list[str] = []
        problems: list[str] = []
        for interest in sorted(interests):
            word, namespace, name = interest.split("/", 2)
            kind = SourceKind(word) if word in tuple(SourceKind) else None
            informer = self._informers.get(kind) if kind is not None else None
            if kind is None or informer is None:
                continue
            if name == ANY:
                if not informer.knows_all(namespace):
                    problems.append(f"the {word}s of namespace {namespace} cannot be listed, only asked for by name")
                continue
            ref = ObjectRef(name, namespace)
            if not self._may(kind, name):
                continue
            wanted[kind].append(ref)
            if not informer.knows(ref):
                why = informer.trouble_with(ref)
                waiting += [interest] if why is None else []
                problems += [f"{word}/{name} cannot be read: {why}"] if why is not None else []
        for kind, refs in wanted.items():
            self._informers[kind].want((self._controller, workload), refs)
        return Unread(tuple(waiting), tuple(problems))

    def gone(self, workload: ObjectRef) -> None:
        """The workload no longer exists: nothing is watched for it."""
        for informer in self._informers.values():
            informer.want((self._controller, workload), ())

    def _may(self, kind: SourceKind, name: str) -> bool:
        names = self._names.get(kind)
        return names is None or name in names


def _waking(kind: SourceKind, wake: Callable[[Iterable[str]], None]) -> Callable[[ObjectRef], None]:
    def tell(ref: ObjectRef) -> None:
        wake([str(SourceRef(kind, ref.namespace, ref.name))])

    return tell
