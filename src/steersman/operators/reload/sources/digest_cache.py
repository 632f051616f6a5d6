"""Digests of sources in canonical forms, computed on demand.

Values are hashed while they are decoded, and dropped. Parsing them takes time that the event loop does not have, so it
is done only for a form that a workload is compared in, of a source that is read once more for it, on its own thread:

    evaluation ──compare rules──► want ──► the cached version lacks a form? it is read once more, parsed and hashed
                                   └─────► short JSON is cheap: later versions are hashed in it while they are decoded

Invariant: an evaluation is acted on only when every digest it compared was present. A version that was read again
replaces exactly that version in the cache, now or when the watch delivers it. Nothing here has to survive a restart:
the demand follows from the rules on sources, in the configuration, and in the state of workloads.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from steersman.bounded_parsing import off_loop
from steersman.kube.api.objects import PartialObjectMetadata
from steersman.operators.reload.api.config import SourceKind
from steersman.operators.reload.sources.compare import comparisons_for, parse_compare_rules
from steersman.operators.reload.sources.digest import ConfigMapSource, SecretSource, hash_forms

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping

    from steersman.operators.reload.api.config import CompareConfig, SourceRef
    from steersman.operators.reload.sources.compare import CompareRule
    from steersman.operators.reload.sources.digest import Source

CONFIRMED_SECONDS: Final = 5.0  # for which a source that is the most recent counts as that

SOURCES: Mapping[SourceKind, type[Source]] = {
    SourceKind.CONFIGMAP: ConfigMapSource,
    SourceKind.SECRET: SecretSource,
}


class CanonicalDigestCache:
    """The canonical digests that the workloads of one process are compared in."""

    def __init__(self, *, while_decoding: bool = False) -> None:
        """`while_decoding`: for commands, which read everything once and have no event loop to keep responsive."""
        self.while_decoding = while_decoding
        self._asked: dict[Hashable, dict[SourceRef, frozenset[str]]] = {}  # by user
        self._rules: dict[SourceRef, dict[str, int]] = {}  # by compare rules: how many users
        self._expected: list[CompareConfig] = []
        self._again: dict[SourceRef, Source] = {}  # versions that were read once more
        self._reading: dict[SourceRef, asyncio.Lock] = {}
        self._confirmed: dict[SourceRef, tuple[tuple[str, str], float]] = {}  # the most recent versions, and when

    # -- the demand ----------------------------------------------------------------------------------------------------

    def want(self, user: Hashable, rules: Mapping[SourceRef, Collection[str]]) -> None:
        """`user` compares these sources by these rules and no others."""
        asked = {source: frozenset(filter(None, texts)) for source, texts in rules.items() if any(texts)}
        before = self._asked.get(user, {})
        if asked == before:
            return
        for source, texts in asked.items():
            for text in texts:
                counts = self._rules.setdefault(source, {})
                counts[text] = counts.get(text, 0) + 1
        for source, texts in before.items():
            for text in texts:
                self._release(source, text)
        if asked:
            self._asked[user] = asked
        else:
            self._asked.pop(user, None)

    def expect(self, rows: Iterable[CompareConfig]) -> None:
        """Hash sources by these rules whether or not a workload asks: for commands, which read everything once."""
        self._expected += rows

    def of(self, source: SourceRef) -> set[tuple[CompareRule, ...]]:
        """All lists of rules by which workloads compare the keys of a source."""
        asked = {parse_compare_rules(text) for text in self._rules.get(source, ())}
        rows = comparisons_for(self._expected, source.kind.value, source.namespace, source.name)
        return asked | {(row,) for row in rows}

    # -- versions that are read once more ------------------------------------------------------------------------------

    def superseded(self, source: SourceRef, revision: str) -> None:
        """A version of a source was decoded."""
        self._confirmed.pop(source, None)
        known = self._again.get(source)
        if known is not None and known.metadata.resource_version != revision:
            del self._again[source]

    def shown(self, cached: Source | None, ref: SourceRef) -> Source | None:
        """The source that the cache shows, in all forms in which that very version has been hashed."""
        again = self._again.get(ref)
        if cached is None or again is None or _version(again) != _version(cached):
            return cached
        return again

    async def read(self, client: Any, source: SourceRef, cached: Source, transform: Callable[[Any], Any]) -> bool:
        """Read the version `cached` of a source once more; returns whether it is now there in all forms asked for.

        A list of one name needs no right that the watch has not.
        """
        async with self._reading.setdefault(source, asyncio.Lock()):
            try:
                if self._complete(cached, source):
                    return True  # another workload asked for the same meanwhile
                listing = await client.list(
                    SOURCES[source.kind], namespace=source.namespace, field_selector=f"metadata.name={source.name}"
                )
                for found in listing.items:
                    forms, beyond = await off_loop(hash_forms, found, self.of(source))
                    kept = transform(found)
                    self._again[source] = replace(kept, forms={**kept.forms, **forms}, beyond=beyond)
                return self._complete(cached, source)
            finally:
                if source not in self._rules:
                    self._reading.pop(source, None)

    async def confirm(self, client: Any, source: SourceRef, cached: Source, tick: float) -> bool:
        """Whether `cached` is the most recent version on the server; one request serves all callers within seconds.

        A watch may be behind. That is harmless for a process that acts on what it has observed itself, but one that
        continues the work of another may take an older version for a change.
        """
        known, at = self._confirmed.get(source, (("", ""), tick))
        if source.kind not in SOURCES or (known == _version(cached) and tick - at < CONFIRMED_SECONDS):
            return True
        listing = await client.list(
            SOURCES[source.kind].KIND,
            into=PartialObjectMetadata,
            namespace=source.namespace,
            field_selector=f"metadata.name={source.name}",
        )
        if [_version(found) for found in listing.items] != [_version(cached)]:
            return False
        self._confirmed[source] = (_version(cached), tick)
        return True

    # -- the machinery -------------------------------------------------------------------------------------------------

    def _complete(self, cached: Source, ref: SourceRef) -> bool:
        shown = self.shown(cached, ref)
        return shown is not None and not any(map(shown.lacks, self.of(ref)))

    def _release(self, source: SourceRef, text: str) -> None:
        counts = self._rules[source]
        counts[text] -= 1
        if not counts[text]:
            del counts[text]
        if not counts:
            del self._rules[source]
            self._again.pop(source, None)
            self._reading.pop(source, None)


def _version(source: Source | PartialObjectMetadata) -> tuple[str, str]:
    return source.metadata.uid, source.metadata.resource_version
