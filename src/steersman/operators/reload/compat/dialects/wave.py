"""The dialect of wave.

    on the workload   wave.pusher.com/update-on-config-change: "true"               takes part with all it refers to
                      wave.pusher.com/extra-configmaps, extra-secrets               NAME or NS/NAME, separated by commas
    on its template   wave.pusher.com/config-hash                                   64 hex over everything it uses

The hash is over the values of all sources together, which are not kept: they are read, hashed and dropped when a
workload is first seen and when it is restarted. Releases differ in what goes into the hash, so each known way to
compute it is accepted and the present one is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from steersman.operators.reload.api.annotations import bounded_list
from steersman.operators.reload.api.config import SourceKind, SourceRef
from steersman.operators.reload.compat.dialect import CompatAnnotations, SourceClaim
from steersman.operators.reload.compat.dialects.hashes import wave_data, wave_hash
from steersman.operators.reload.planning.edges import reference_claim
from steersman.operators.reload.sources.references import ReferenceType

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from steersman.operators.reload.planning.edges import DependencyEdge, Sources
    from steersman.operators.reload.sources.digest import Hash, Source
    from steersman.operators.reload.workloads.workload import Workload

    Uses = dict[SourceRef, frozenset[str] | None]  # per source the keys that are used; None: all of them

ENABLED: Final = "wave.pusher.com/update-on-config-change"
CONFIG_HASH: Final = "wave.pusher.com/config-hash"
EXTRA: Final = {
    SourceKind.CONFIGMAP: "wave.pusher.com/extra-configmaps",
    SourceKind.SECRET: "wave.pusher.com/extra-secrets",
}
_WHOLE: Final = frozenset({ReferenceType.ENV_FROM, ReferenceType.VOLUME})
_KINDS: Final = frozenset({"Deployment", "StatefulSet", "DaemonSet"})


class Wave:
    """See the module."""

    name = "wave"
    annotations = frozenset({ENABLED, CONFIG_HASH, *EXTRA.values()})
    hashes: tuple[Hash, ...] = ()

    @property
    def total(self) -> Wave:
        """It has a hash over everything."""
        return self

    def claims(self, workload: Workload, _sources: Sources) -> Iterator[SourceClaim]:
        """Every reference of a workload that takes part, and what it names besides."""
        if not _enabled(workload):
            return
        for reference in workload.facts.references:
            yield reference_claim(workload, reference, f"{ENABLED}: true")
        for source in _extra(workload):
            yield SourceClaim(source=source, rule=EXTRA[source.kind], optional=True)

    def problems(self, workload: Workload) -> Iterator[str]:
        """Names that are none, which the original passes over in silence."""
        if not _enabled(workload):
            return
        for annotation in EXTRA.values():
            words, problem = _named(workload, annotation)
            if problem:
                yield f"{annotation}: {problem}; the hash on its template is neither read nor written"
            for word in filter(None, words):
                if word.count("/") > 1 or word != word.strip():
                    yield f'{annotation}: "{word[:100]}" is not a source (try NAME or NAMESPACE/NAME, without spaces)'

    def window(self, _workload: Workload) -> None:
        """None: the configuration decides."""

    def pause(self, _workload: Workload) -> None:
        """None: it pauses nothing."""

    def known(self, workload: Workload, _edge: DependencyEdge, _source: Source) -> bool | None:
        """Whether the hash on the template is that of everything now; it covers all sources together."""
        recorded = workload.facts.template_annotations.get(CONFIG_HASH)
        accepted = workload.facts.totals.get(self.name, "").split()
        if not _enabled(workload) or recorded is None or not accepted:
            return None
        return recorded in accepted

    def marks(
        self,
        workload: Workload,
        edges: Iterable[DependencyEdge],  # noqa: ARG002  # the hash is over what the original sees
        sources: Mapping[SourceRef, Source],  # noqa: ARG002  # the same
        *,
        changed: Collection[SourceRef],  # noqa: ARG002  # the same
        restart_at: float | None,
    ) -> CompatAnnotations:
        """The hash, with a restart."""
        accepted = workload.facts.totals.get(self.name, "").split()
        if restart_at is None or not accepted or not _enabled(workload):
            return CompatAnnotations()
        return CompatAnnotations(template={CONFIG_HASH: accepted[0]})

    # -- the hash over everything --------------------------------------------------------------------------------------

    def over(self, workload: Workload) -> frozenset[SourceRef]:
        """The sources whose values go into the hash."""
        if not _enabled(workload) or type(workload).KIND.kind not in _KINDS:
            return frozenset()
        if any(_named(workload, annotation)[1] for annotation in EXTRA.values()):
            return frozenset()  # a hash over a part of it would be another
        return frozenset(_uses(workload))

    def hash(self, workload: Workload, objects: Mapping[SourceRef, Mapping[str, Any]]) -> str:
        """The hash to write and, after it, the others to accept."""
        spellings = [
            wave_hash(*_parts(uses, objects, encoded=encoded))
            for encoded in (True, False)
            for uses in (_uses(workload), _uses(workload, earlier=True))
        ]
        return " ".join(dict.fromkeys(spellings))


def _enabled(workload: Workload) -> bool:
    return workload.annotations.get(ENABLED) == "true"


def _named(workload: Workload, annotation: str) -> tuple[tuple[str, ...], str]:
    """The entries of a list as they are written, spaces included, and what is wrong when it is too long."""
    return bounded_list(workload.annotations.get(annotation, "").split(","))


def _extra(workload: Workload) -> Iterator[SourceRef]:
    for kind, annotation in EXTRA.items():
        for word in _named(workload, annotation)[0]:
            namespace, slash, name = word.rpartition("/")
            if name and "/" not in namespace and word == word.strip() and (namespace or not slash):
                yield SourceRef(kind, namespace or workload.namespace, name)


def _uses(workload: Workload, *, earlier: bool = False) -> Uses:
    """What the original reads; earlier releases saw neither init containers nor projected volumes nor extra sources."""
    uses: Uses = {}
    for reference in workload.facts.references:
        source = SourceRef(reference.kind, workload.namespace, reference.name)
        if reference.kind not in EXTRA or (
            reference.reader is None and reference.via in (ReferenceType.ENV, ReferenceType.ENV_FROM)
        ):
            continue
        if earlier and (
            reference.via is ReferenceType.PROJECTED
            or (reference.via is not ReferenceType.VOLUME and not reference.reader)
        ):
            continue
        if reference.via in _WHOLE or (reference.via is ReferenceType.PROJECTED and reference.items is None):
            uses[source] = None
        elif reference.via in (ReferenceType.ENV, ReferenceType.PROJECTED):
            keys = reference.keys if reference.via is ReferenceType.ENV else reference.items
            before = uses.get(source, frozenset())
            uses[source] = None if before is None else before | frozenset(keys or ())
    if not earlier:
        uses |= dict.fromkeys(_extra(workload))
    return uses


def _parts(
    uses: Uses, objects: Mapping[SourceRef, Mapping[str, Any]], *, encoded: bool
) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    """What is hashed, by kind and name; two sources of one name from two namespaces are one, as in the original."""
    parts: dict[SourceKind, dict[str, dict[str, str]]] = {kind: {} for kind in EXTRA}
    for source in sorted(uses):
        if source in objects:
            data, binary = objects[source].get("data"), objects[source].get("binaryData")
            found = wave_data(source.kind, data, binary, uses[source], encoded=encoded)
            parts[source.kind].setdefault(source.name, {}).update(found)
    return parts[SourceKind.CONFIGMAP], parts[SourceKind.SECRET]
