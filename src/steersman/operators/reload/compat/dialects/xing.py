"""The dialect of xing/kubernetes-deployment-restart-controller.

    on the workload   com.xing.deployment-restart: enabled                        takes part with all it refers to
                      com.xing.deployment-restart.applied-config-checksums        {"configmap/NS/NAME":"16 hex",…}
    on its template   com.xing.deployment-restart.timestamp                       `Mar  5 14:03:09`

The original sees `envFrom` of containers and ConfigMap volumes, on Deployments and StatefulSets. Here every reference
counts; the checksums name exactly the sources the original would look for, and a source whose restart still waits
keeps the checksum of what its pods were started for. So at any moment the original, started again, restarts only what
is really out of date.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.operators.reload.api.config import SourceKind, SourceRef
from steersman.operators.reload.compat.dialect import CompatAnnotations
from steersman.operators.reload.compat.dialects.hashes import XingHash
from steersman.operators.reload.planning.edges import reference_claim
from steersman.operators.reload.sources.references import ReferenceType

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from steersman.operators.reload.compat.dialect import SourceClaim
    from steersman.operators.reload.planning.edges import DependencyEdge, Sources
    from steersman.operators.reload.sources.digest import Hash, Source
    from steersman.operators.reload.sources.references import Reference
    from steersman.operators.reload.workloads.workload import Workload

ENABLED: Final = "com.xing.deployment-restart"
CHECKSUMS: Final = "com.xing.deployment-restart.applied-config-checksums"
TIMESTAMP: Final = "com.xing.deployment-restart.timestamp"
_KINDS: Final = frozenset({"Deployment", "StatefulSet"})  # those the original watches
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_checksums: Final = msgspec.json.Decoder(dict[str, object])


class Xing:
    """See the module."""

    name = "xing"
    annotations = frozenset({ENABLED, CHECKSUMS, TIMESTAMP})
    hashes: tuple[Hash, ...] = (XingHash(),)

    @property
    def total(self) -> None:
        """None."""

    def claims(self, workload: Workload, _sources: Sources) -> Iterator[SourceClaim]:
        """Every reference of a workload that takes part."""
        if _enabled(workload):
            for reference in workload.facts.references:
                yield reference_claim(workload, reference, f"{ENABLED}: enabled")

    def problems(self, workload: Workload) -> Iterator[str]:
        """Checksums that cannot be read."""
        if _enabled(workload) and read_checksums(workload.annotations.get(CHECKSUMS)) is None:
            yield f"{CHECKSUMS}: not a JSON object of checksums; reset"

    def window(self, _workload: Workload) -> None:
        """None: the configuration decides."""

    def pause(self, _workload: Workload) -> None:
        """None: it pauses nothing."""

    def known(self, workload: Workload, edge: DependencyEdge, source: Source) -> bool | None:
        """Whether the recorded checksum is that of the source now."""
        if not _enabled(workload):
            return None
        recorded = (read_checksums(workload.annotations.get(CHECKSUMS)) or {}).get(str(edge.source))
        return None if recorded is None else recorded in source.hashes.get(self.name, "").split()

    def marks(
        self,
        workload: Workload,
        edges: Iterable[DependencyEdge],
        sources: Mapping[SourceRef, Source],
        *,
        changed: Collection[SourceRef],
        restart_at: float | None,
    ) -> CompatAnnotations:
        """The checksums when they differ, and the time of a restart."""
        if not _enabled(workload) or type(workload).KIND.kind not in _KINDS:
            return CompatAnnotations()
        text = workload.annotations.get(CHECKSUMS)
        recorded = read_checksums(text)
        waiting = frozenset(changed) if restart_at is None else frozenset()
        checksums = self._checksums(workload, edges, sources, recorded or {}, waiting)
        template: dict[str, str | None] = {} if restart_at is None else {TIMESTAMP: _stamp(restart_at)}
        if checksums == recorded and (checksums or text is None or recorded is not None):
            return CompatAnnotations(template=template)
        written = msgspec.json.encode(checksums, order="sorted").decode()
        return CompatAnnotations(metadata={CHECKSUMS: written}, template=template)

    def _checksums(
        self,
        workload: Workload,
        edges: Iterable[DependencyEdge],
        sources: Mapping[SourceRef, Source],
        recorded: Mapping[str, str],
        waiting: Collection[SourceRef],
    ) -> dict[str, str]:
        tracked = {edge.source for edge in edges}
        checksums: dict[str, str] = {}
        for reference in filter(_seen_by_the_original, workload.facts.references):
            ref = SourceRef(reference.kind, workload.namespace, reference.name)
            if ref not in tracked or ref not in sources:
                continue
            before = recorded.get(str(ref))
            accepted = sources[ref].hashes.get(self.name, "").split()
            if ref in waiting or before in accepted:
                if before is not None:
                    checksums[str(ref)] = before
            elif accepted:
                checksums[str(ref)] = accepted[0]
        return checksums


def read_checksums(text: str | None) -> dict[str, str] | None:
    """What the annotation records, without invalid entries; None when it cannot be read at all."""
    if text is None:
        return {}
    try:
        found = _checksums.decode(text.strip())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _enabled(workload: Workload) -> bool:
    return workload.annotations.get(ENABLED) == "enabled"


def _seen_by_the_original(reference: Reference) -> bool:
    if reference.via is ReferenceType.ENV_FROM:
        return bool(reference.reader)
    return reference.via is ReferenceType.VOLUME and reference.kind is SourceKind.CONFIGMAP


def _stamp(at: float) -> str:
    """Go's time.Stamp; the names of months are English whatever the locale."""
    now = time.gmtime(at)
    return f"{_MONTHS[now.tm_mon - 1]} {now.tm_mday:2d} {time.strftime('%H:%M:%S', now)}"
