"""The dialect of shipshape: ConfigMaps and Deployments that belong together by their labels.

    on the template   shipshape.io/restartedAt               2026-11-15T10:00:05Z
                      shipshape.io/config-hash-CONFIGMAP     64 hex, one per ConfigMap

Who belongs together is configuration (`reload.selectors`), so the edges are the engine's; this dialect reads and writes
what the original leaves on templates. The original takes a template with a time and without the hash of one of its
ConfigMaps for out of date, so a restart writes the hashes of all of them. The names of both annotations follow from
the first, which the original lets people choose.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

from steersman.kube.api.times import format_time
from steersman.operators.reload.api.config import SourceKind
from steersman.operators.reload.compat.dialect import CompatAnnotations
from steersman.operators.reload.compat.dialects.hashes import ShipshapeHash

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from steersman.operators.reload.api.config import LabelScope, SourceRef
    from steersman.operators.reload.compat.dialect import SourceClaim
    from steersman.operators.reload.planning.edges import DependencyEdge, Sources
    from steersman.operators.reload.sources.digest import Hash, Source
    from steersman.operators.reload.workloads.workload import Workload

RESTARTED_AT: Final = "shipshape.io/restartedAt"
_DATA: Final = ShipshapeHash()
_HASH: Final = "config-hash-"
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST: Final = 63  # characters of the name of an annotation, after its prefix


class Shipshape:
    """See the module."""

    name = "shipshape"

    def __init__(self, scopes: Sequence[LabelScope] = (), *, key: str = RESTARTED_AT) -> None:
        self._scopes = tuple(scopes)
        self._key = key
        self._prefix = hash_annotation("", key).removesuffix("configmap")
        self.annotations = frozenset({key, f"{self._prefix}*"} if scopes else ())
        self.hashes: tuple[Hash, ...] = (_DATA,) if scopes else ()

    @property
    def total(self) -> None:
        """None."""

    def claims(self, _workload: Workload, _sources: Sources) -> Iterable[SourceClaim]:
        """None: the engine makes the edges of scopes."""
        return ()

    def problems(self, _workload: Workload) -> Iterable[str]:
        """None: any text is a hash, and a wrong one is the hash of something else."""
        return ()

    def window(self, _workload: Workload) -> None:
        """None: the configuration decides."""

    def pause(self, _workload: Workload) -> None:
        """None: it pauses nothing."""

    def known(self, workload: Workload, edge: DependencyEdge, source: Source) -> bool | None:
        """Whether the hash on the template is that of the source now.

        A time and no hash at all were left by a version that wrote no hashes: what its pods started with is unknown.
        """
        if not self._together(workload, source):
            return None
        template = workload.facts.template_annotations
        recorded = template.get(hash_annotation(edge.source.name, self._key))
        if recorded is not None:
            return recorded == source.hashes.get(self.name)
        if self._key in template and not any(name.startswith(self._prefix) for name in template):
            return False
        return None

    def marks(
        self,
        workload: Workload,
        edges: Iterable[DependencyEdge],
        sources: Mapping[SourceRef, Source],
        *,
        changed: Collection[SourceRef],  # noqa: ARG002  # all of them are written
        restart_at: float | None,
    ) -> CompatAnnotations:
        """The time and the hashes of everything that belongs to the workload, with a restart."""
        if restart_at is None:
            return CompatAnnotations()
        held = [source for edge in edges if (source := sources.get(edge.source)) and self._together(workload, source)]
        if not held:
            return CompatAnnotations()
        template: dict[str, str | None] = {self._key: format_time(float(int(restart_at)))}
        for source in held:
            template[hash_annotation(source.name, self._key)] = source.hashes.get(self.name, "")
        return CompatAnnotations(template=template)

    def _together(self, workload: Workload, source: Source) -> bool:
        if source.source.kind is not SourceKind.CONFIGMAP or source.namespace != workload.namespace:
            return False
        for scope in self._scopes:
            group = scope.group(workload.namespace, workload.labels)
            here = group is not None and type(workload).KIND.kind in scope.workloads
            if here and scope.group(source.namespace, source.labels) == group:
                return True
        return False


def hash_annotation(configmap: str, key: str = RESTARTED_AT) -> str:
    """The name of the annotation with the hash of a ConfigMap, for a time that is written to `key`.

    >>> hash_annotation("web")
    'shipshape.io/config-hash-web'
    """
    kept = _FOREIGN.sub("-", configmap).strip("-.") or "configmap"
    if len(_HASH) + len(kept) > _LONGEST:
        kept = f"{kept[:40].rstrip('-.') or 'configmap'}-{hashlib.sha256(configmap.encode()).hexdigest()[:10]}"
    name = f"{_HASH}{kept}"
    prefix, slash, _ = key.partition("/")
    return f"{prefix}/{name}" if slash else name
