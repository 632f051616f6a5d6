"""Stale pods: those that started before the last change of a key they use; for `steersman audit` and as a metric.

It works without the operator and without any right to write: the API server knows when each key was last written (the
times of field managers) and when each container started. A manager's time moves with every key it writes, so where the
operator recorded what a pod was started for, that record decides.

The auditor counts them periodically, when `reload.auditPeriod` is set. A count that fails leaves the last one, with the
time of the last success beside it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
from prometheus_client import REGISTRY, CollectorRegistry, Gauge

from steersman.kube.api.errors import KubeError
from steersman.kube.api.times import format_time
from steersman.kube.api.types.pods import Pod
from steersman.operators.reload.api.annotations import APPLIED, RESTARTED_AT
from steersman.operators.reload.api.config import SourceRef
from steersman.operators.reload.inspect.offline import OfflineInspection, read_cluster, seconds
from steersman.operators.reload.planning.diff import wanted
from steersman.operators.reload.planning.state import read_state
from steersman.operators.reload.sources.compare import IGNORE, form_for_key
from steersman.operators.reload.workloads.pods import owner_of
from steersman.operators.reload.workloads.workload import WorkloadName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.kube.api.gvk import Kind
    from steersman.kube.client.client import Client
    from steersman.operators.reload.api.config import ReloadOptions
    from steersman.operators.reload.controllers.digest_key_store import KeyStore
    from steersman.operators.reload.planning.edges import DependencyEdge
    from steersman.operators.reload.planning.evaluate import Evaluation
    from steersman.runtime.cluster import Cluster

ALERT = "sum by (namespace) (steersman_reload_stale_pods) > 0"
log = structlog.get_logger(__name__)


class Auditor:
    """Counts stale pods."""

    def __init__(
        self,
        options: ReloadOptions,
        served: Iterable[Kind] | None,
        registry: CollectorRegistry | None = None,
        keys: KeyStore | None = None,
    ) -> None:
        registry = REGISTRY if registry is None else registry
        self._options = options
        self._keys = keys
        self._served = tuple(served or ())
        self._known: set[str] = set()  # namespaces that have a series
        self.stale = Gauge(
            "steersman_reload_stale_pods",
            "Pods that started before the last change of a key they use.",
            ["namespace"],
            registry=registry,
        )
        self.audited = Gauge(
            "steersman_reload_audit_timestamp_seconds", "When stale pods were last counted.", registry=registry
        )

    async def run(self, cluster: Cluster) -> None:
        """Count for ever, every `reload.auditPeriod`."""
        period = self._options.features.audit
        while period is not None:
            try:
                await self.count(cluster.client)
            except KubeError as error:
                log.warning("stale pods not counted", error=str(error))
            await asyncio.sleep(period.total_seconds())

    async def count(self, client: Client) -> dict[str, int]:
        """Count once: stale pods by namespace; a namespace that had some keeps its series, at zero."""
        import time

        spaces = sorted(self._options.namespaces) if self._options.namespaces is not None else None
        inspection = OfflineInspection(self._options, served=self._served)
        if self._keys is not None:
            inspection.keys = self._keys.ring
        await read_cluster(inspection, client, namespaces=spaces)
        pods = [pod for space in spaces or [""] for pod in (await client.list(Pod.KIND, namespace=space or None)).items]
        now = time.time()
        found = Counter(stale.namespace for stale in stale_pods(inspection, pods, now))
        self._known |= found.keys()
        for namespace in self._known:
            self.stale.labels(namespace).set(found[namespace])
        self.audited.set(now)
        return dict(found)


class StaleSource(msgspec.Struct, frozen=True, kw_only=True):
    """One source that changed after the pod had started."""

    source: str
    keys: tuple[str, ...]
    changed: str


class StalePod(msgspec.Struct, frozen=True, kw_only=True):
    """One pod that may run an old configuration."""

    pod: str
    namespace: str
    workload: WorkloadName
    started: str
    sources: tuple[StaleSource, ...]
    enrolled: bool  # whether the workload is enrolled


def stale_pods(inspection: OfflineInspection, pods: Iterable[Mapping[str, Any]], now: float) -> list[StalePod]:
    """The stale ones among `pods` (manifests), by namespace and name."""
    evaluations = {
        (rule.kind.kind, workload.namespace, workload.name): inspection.evaluate(rule, workload, now)
        for rule, workload in inspection.workloads()
    }
    found = []
    for pod in pods:
        meta, status = pod.get("metadata") or {}, pod.get("status") or {}
        if meta.get("deletionTimestamp") or status.get("phase") in ("Succeeded", "Failed"):
            continue
        kind, name = _workload_of(meta)
        evaluation = evaluations.get((kind, meta.get("namespace", ""), name))
        if evaluation is None:
            continue
        started = _started(pod)
        sources = tuple(_newer(inspection, evaluation, meta, started))
        if sources:
            who = WorkloadName(kind, meta["namespace"], name)
            found.append(
                StalePod(
                    pod=meta["name"],
                    namespace=meta["namespace"],
                    workload=who,
                    started=format_time(started),
                    sources=sources,
                    enrolled=bool(evaluation.edges.tracked),
                )
            )
    return sorted(found, key=lambda stale: (stale.namespace, stale.pod))


def _newer(
    inspection: OfflineInspection, evaluation: Evaluation, meta: Mapping[str, Any], started: float
) -> Iterable[StaleSource]:
    fresh = _known_fresh(inspection, evaluation, meta)
    edges = {edge.source: edge for edge in evaluation.edges.tracked}
    for source, keys in _uses(evaluation).items():
        times = inspection.changed.get(source)
        if times is None or source in fresh:
            continue
        used = [
            key
            for key, at in times.items()
            if (keys is None or key in keys) and at > started and _counts(key, edges.get(source))
        ]
        if used:
            yield StaleSource(
                source=source.seen_from(evaluation.workload.namespace),
                keys=tuple(sorted(used)),
                changed=format_time(max(times[key] for key in used)),
            )


def _counts(key: str, edge: DependencyEdge | None) -> bool:
    """Whether a change of a key means anything."""
    return edge is None or (edge.uses(key) and form_for_key(key, edge.compare_rules) != IGNORE)


def _uses(evaluation: Evaluation) -> dict[SourceRef, frozenset[str] | None]:
    """What the pods use, whether or not they are restarted for it; what is left out on purpose is left out here."""
    found: dict[SourceRef, frozenset[str] | None] = {}
    refused = {source.source for source in evaluation.edges.untracked if "ignore" in source.rule}
    for reference in evaluation.workload.facts.references:
        source = SourceRef(reference.kind, evaluation.workload.namespace, reference.name)
        if source in refused:
            continue
        before = found.get(source, frozenset())
        mine = None if reference.keys is None else frozenset(reference.keys)
        found[source] = None if before is None or mine is None else before | mine
    for edge in evaluation.edges.tracked:
        found[edge.source] = None if edge.keys is None else frozenset(filter(edge.uses, edge.keys))
    return found


def _known_fresh(inspection: OfflineInspection, evaluation: Evaluation, meta: Mapping[str, Any]) -> set[SourceRef]:
    """The sources whose digest is the one that this very pod was started for."""
    stamp = evaluation.workload.facts.template_annotations.get(RESTARTED_AT)
    applied = read_state(evaluation.workload.annotations.get(APPLIED)).applied
    if applied is None or not stamp or (meta.get("annotations") or {}).get(RESTARTED_AT) != stamp:
        return set()
    return {
        edge.source
        for edge in evaluation.edges.tracked
        if (known := applied.sources.get(edge.source.seen_from(evaluation.workload.namespace))) is not None
        and (key := evaluation.keys.find(known.key)) is not None
        and (entry := wanted(edge, inspection.source(edge.source), key).entry) is not None
        and known.digest == entry.digest
    }


def _workload_of(meta: Mapping[str, Any]) -> tuple[str, str]:
    owner = next((owner for owner in meta.get("ownerReferences") or () if owner.get("controller")), None)
    return ("", "") if owner is None else owner_of(owner.get("kind", ""), owner.get("name", ""), meta.get("labels"))


def _started(pod: Mapping[str, Any]) -> float:
    """When the oldest of its running containers started: a container that starts again reads its sources again."""
    status = pod.get("status") or {}
    running = [
        seconds(((container.get("state") or {}).get("running") or {}).get("startedAt"))
        for container in status.get("containerStatuses") or ()
    ]
    times = [when for when in running if when]
    return min(times) if times else seconds(status.get("startTime") or pod["metadata"].get("creationTimestamp"))
