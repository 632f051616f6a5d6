"""Sources watched one by one by name, where they cannot or should not be listed.

Where all sources are listed this does nothing. Elsewhere exactly the names that evaluations ask for are watched; the
watches come and go with the evaluations. An evaluation that asked for a name whose first list has not finished has not
observed that the source is missing: it is not acted on, and repeated when the name is synced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.kube.api.gvk import NamespacedName
from steersman.operators.reload.api.config import SourceKind, SourceRef
from steersman.operators.reload.sources.digest_cache import SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from steersman.cache.interfaces import NamedInformer
    from steersman.operators.reload.sources.digest import Source

ANY = "*"  # the name in an interest in all sources of a namespace


class UnreadSources(msgspec.Struct, frozen=True):
    """Sources that an evaluation asked for and could not observe."""

    waiting: tuple[str, ...] = ()  # the first list has not finished
    problems: tuple[str, ...] = ()  # cannot be read, and why

    def __bool__(self) -> bool:
        return bool(self.waiting or self.problems)


class NamedSourceWatch:
    """The sources that the workloads of one controller refer to."""

    def __init__(self, controller: str, names: Mapping[SourceKind, frozenset[str]] | None = None) -> None:
        """`names`: the only ones that may be asked for, where the configuration has a list."""
        self._controller = controller
        self._names = names or {}
        self._informers: dict[SourceKind, NamedInformer[Source]] = {}

    def connect(self, cache: Any, kinds: Iterable[SourceKind], wake: Callable[[Iterable[str]], None]) -> None:
        """Find the informers of sources; `wake` requeues the workloads that are interested in these names."""
        for kind in kinds if not self._informers else ():
            watched = cache.watched(SOURCES[kind]) if kind in SOURCES else None
            if watched is not None:
                self._informers[kind] = watched.informer
                watched.informer.on_name_resolved(_waking(kind, wake))

    def sees(self, source: SourceRef) -> bool:
        """Whether this source was synced before: otherwise its appearance is not a creation."""
        informer = self._informers.get(source.kind)
        return informer is None or informer.is_synced_for(NamespacedName(source.name, source.namespace))

    def read(self, workload: NamespacedName, interests: Iterable[str]) -> UnreadSources:
        """Watch every source that an evaluation asked for; returns what the evaluation could not observe."""
        wanted: dict[SourceKind, list[NamespacedName]] = {kind: [] for kind in self._informers}
        waiting: list[str] = []
        problems: list[str] = []
        for interest in sorted(interests):
            word, namespace, name = interest.split("/", 2)
            kind = SourceKind(word) if word in tuple(SourceKind) else None
            informer = self._informers.get(kind) if kind is not None else None
            if kind is None or informer is None:
                continue
            if name == ANY:
                if not informer.is_namespace_synced(namespace):
                    problems.append(f"the {word}s of namespace {namespace} cannot be listed, only asked for by name")
                continue
            ref = NamespacedName(name, namespace)
            if not self._may(kind, name):
                continue
            wanted[kind].append(ref)
            if not informer.is_synced_for(ref):
                why = informer.why_not_synced(ref)
                waiting += [interest] if why is None else []
                problems += [f"{word}/{name} cannot be read: {why}"] if why is not None else []
        for kind, refs in wanted.items():
            self._informers[kind].set_interest((self._controller, workload), refs)
        return UnreadSources(tuple(waiting), tuple(problems))

    def gone(self, workload: NamespacedName) -> None:
        """The workload no longer exists: nothing is watched for it."""
        for informer in self._informers.values():
            informer.set_interest((self._controller, workload), ())

    def _may(self, kind: SourceKind, name: str) -> bool:
        names = self._names.get(kind)
        return names is None or name in names


def _waking(kind: SourceKind, wake: Callable[[Iterable[str]], None]) -> Callable[[NamespacedName], None]:
    def requeue(ref: NamespacedName) -> None:
        wake([str(SourceRef(kind, ref.namespace, ref.name))])

    return requeue
