"""Forms: in which forms sources are hashed, because somebody compares them so.

Values are hashed while they are read, and dropped. So a form that somebody asks for must be known when a source is
decoded, and one that is asked for later needs the source once more:

    look ──asks for ways──► want ──► every version that is decoded from now on is hashed in these forms too
                              └────► the version at hand lacks one? it is read once more, hashed, and dropped

Invariant: a look is acted on only when every digest it compared was there. What is read again stands in for exactly the
version that the cache shows; a newer one comes by the watch, in these forms, and brings its own look. Nothing here
needs to survive: what is asked for follows from policies, annotations and the state on workloads.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from steersman.operators.reload.comparison import comparisons_for, read_ways
from steersman.operators.reload.digest import ConfigMapSource, SecretSource
from steersman.operators.reload.types import SourceKind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping

    from steersman.operators.reload.comparison import Comparison
    from steersman.operators.reload.digest import Source
    from steersman.operators.reload.features import CompareConfig
    from steersman.operators.reload.types import SourceRef

__all__ = ["SOURCES", "Forms"]

SOURCES: Mapping[SourceKind, type[Source]] = {
    SourceKind.CONFIGMAP: ConfigMapSource,
    SourceKind.SECRET: SecretSource,
}


class Forms:
    """What all workloads of one process ask for."""

    def __init__(self) -> None:
        self._asked: dict[Hashable, dict[SourceRef, frozenset[str]]] = {}  # by who asks
        self._ways: dict[SourceRef, dict[str, int]] = {}  # how many ask for it
        self._expected: list[CompareConfig] = []
        self._again: dict[SourceRef, Source] = {}  # versions that were read once more
        self._reading: dict[SourceRef, asyncio.Lock] = {}

    # -- who asks ------------------------------------------------------------------------------------------------------

    def want(self, user: Hashable, ways: Mapping[SourceRef, Collection[str]]) -> None:
        """`user` compares these sources in these ways and no others."""
        asked = {source: frozenset(filter(None, texts)) for source, texts in ways.items() if any(texts)}
        before = self._asked.get(user, {})
        if asked == before:
            return
        for source, texts in asked.items():
            for text in texts:
                counts = self._ways.setdefault(source, {})
                counts[text] = counts.get(text, 0) + 1
        for source, texts in before.items():
            for text in texts:
                self._release(source, text)
        if asked:
            self._asked[user] = asked
        else:
            self._asked.pop(user, None)

    def expect(self, rows: Iterable[CompareConfig]) -> None:
        """Hash whatever these rows are about in their forms, whoever asks: for those who read everything just once."""
        self._expected += rows

    def of(self, source: SourceRef) -> set[tuple[Comparison, ...]]:
        """All ways in which somebody compares the keys of a source."""
        asked = {read_ways(text) for text in self._ways.get(source, ())}
        rows = comparisons_for(self._expected, source.kind.value, source.namespace, source.name)
        return asked | {(row,) for row in rows}

    # -- versions that are read once more ------------------------------------------------------------------------------

    def superseded(self, source: SourceRef, revision: str) -> None:
        """A version of a source has come."""
        known = self._again.get(source)
        if known is not None and known.metadata.resource_version != revision:
            del self._again[source]

    def shown(self, held: Source | None, ref: SourceRef) -> Source | None:
        """The source that the cache shows, in all forms in which that very version has been hashed."""
        again = self._again.get(ref)
        if held is None or again is None or _version(again) != _version(held):
            return held
        return again

    async def read(self, client: Any, source: SourceRef, held: Source, transform: Callable[[Any], Any]) -> bool:
        """Read the version `held` of a source once more; returns whether it is now there in all forms asked for.

        A list of one name needs no right that the watch has not.
        """
        async with self._reading.setdefault(source, asyncio.Lock()):
            try:
                if self._complete(held, source):
                    return True  # somebody else asked for the same meanwhile
                listing = await client.list(
                    SOURCES[source.kind], namespace=source.namespace, field_selector=f"metadata.name={source.name}"
                )
                for one in listing.items:
                    if _version(one) == _version(held):
                        self._again[source] = transform(one)
                return self._complete(held, source)
            finally:
                if source not in self._ways:
                    self._reading.pop(source, None)

    # -- the machinery -------------------------------------------------------------------------------------------------

    def _complete(self, held: Source, ref: SourceRef) -> bool:
        shown = self.shown(held, ref)
        return shown is not None and not any(map(shown.lacks, self.of(ref)))

    def _release(self, source: SourceRef, text: str) -> None:
        counts = self._ways[source]
        counts[text] -= 1
        if not counts[text]:
            del counts[text]
        if not counts:
            del self._ways[source]
            self._again.pop(source, None)
            self._reading.pop(source, None)


def _version(source: Source) -> tuple[str, str]:
    return source.metadata.uid, source.metadata.resource_version
