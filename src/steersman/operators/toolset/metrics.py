"""The metrics of the toolset operator. Names are those of the original's documentation, with one prefix: `toolset_`."""

from __future__ import annotations

from collections import Counter as Tally
from typing import TYPE_CHECKING, Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from steersman.operators.toolset.plan import Drift, Operation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.kube.resources import ObjectRef

__all__ = ["DRIFT_LABELS", "ToolsetMetrics"]

DRIFT_LABELS: Final[Mapping[str, str]] = {
    Drift.MISSING: "missing_key",
    Drift.MODIFIED: "modified_value",
    Drift.EXTRA: "extra_key",
    Drift.DELETED: "deleted",
    Drift.METADATA: "metadata",
    Drift.OWNERSHIP: "ownership",
    Drift.IMMUTABLE: "immutable",
}
_RECONCILE_BUCKETS: Final = tuple(0.01 * 2**power for power in range(10))
_DISCOVERY_BUCKETS: Final = tuple(0.1 * 2**power for power in range(10))


class ToolsetMetrics:
    """The series of one operator; made once per registry."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        to = REGISTRY if registry is None else registry
        self.reconciles = Counter(
            "toolset_configmap_reconcile", "ConfigMaps reconciled.", ["operation", "status"], registry=to
        )
        self.drift = Counter(
            "toolset_configmap_drift_detected", "Drift found in ConfigMaps.", ["drift_type"], registry=to
        )
        self.duration = Histogram(
            "toolset_reconciliation_duration_seconds", "Of one reconcile.", buckets=_RECONCILE_BUCKETS, registry=to
        )
        self.services = Gauge(
            "toolset_services_discovered", "Services that take part.", ["service_type", "namespace"], registry=to
        )
        self.discovery = Histogram(
            "toolset_discovery_duration_seconds",
            "Of one look at all Services.",
            ["status"],
            buckets=_DISCOVERY_BUCKETS,
            registry=to,
        )
        self.detectors = Gauge(
            "toolset_detectors_health_status", "1 while a detector works.", ["detector_type"], registry=to
        )
        self.checks = Counter(
            "toolset_health_checks", "Probes of services, by how they ended.", ["service_type", "status"], registry=to
        )
        self.check_duration = Histogram(
            "toolset_health_check_duration_seconds", "Of one probe.", ["service_type"], registry=to
        )
        self.unhealthy = Gauge(
            "toolset_unhealthy_services", "Candidates that do not take part.", ["service_type"], registry=to
        )
        self.generated = Counter("toolset_toolsets_generated", "Toolsets written.", ["toolset_type"], registry=to)
        self.failures = Counter(
            "toolset_generation_failures",
            "Services and overrides that no toolset could be made of.",
            ["toolset_type", "error_type"],
            registry=to,
        )
        self.conflicts = Counter(
            "toolset_configmap_conflicts", "Writes that met somebody else's.", ["outcome"], registry=to
        )
        self.size = Gauge("toolset_configmap_size_bytes", "Bytes of values.", ["part"], registry=to)
        self.parts = Gauge("toolset_configmap_parts", "Parts beside the base.", registry=to)
        self.problems = Gauge(
            "toolset_problems", "What stands in the way now, by reason of its Event.", ["reason"], registry=to
        )
        self.override_errors = Counter("toolset_override_errors", "Overrides that cannot be read.", registry=to)
        self.override_conflicts = Gauge(
            "toolset_override_conflicts", "Overrides that discovery has another opinion about.", registry=to
        )
        self.notifications = Counter("toolset_notifications", "Consumers told.", ["status"], registry=to)
        self.requests = Counter(
            "toolset_http_requests", "Requests to the API.", ["endpoint", "method", "status"], registry=to
        )
        self.request_duration = Histogram(
            "toolset_http_request_duration_seconds", "Of one request.", ["endpoint", "method", "status"], registry=to
        )
        for operation in Operation:
            for status in ("success", "failure"):
                self.reconciles.labels(operation, status)
        for label in DRIFT_LABELS.values():
            self.drift.labels(label)
        for outcome in ("retried", "exhausted"):
            self.conflicts.labels(outcome)
        self._standing: dict[ObjectRef, Tally[str]] = {}
        self._shown: set[tuple[str, str]] = set()
        self._unhealthy: set[str] = set()

    def found_drift(self, reports: Iterable[str]) -> None:
        """Count reports such as `missing:KEY`."""
        for report in reports:
            label = DRIFT_LABELS.get(report.partition(":")[0])
            if label is not None:
                self.drift.labels(label).inc()

    def stands(self, target: ObjectRef, reasons: Iterable[str]) -> None:
        """What stands in the way of one target now; nothing when it is no longer kept."""
        before = self._standing.pop(target, Tally())
        now = Tally(reasons)
        if now:
            self._standing[target] = now
        for reason in before | now:
            self.problems.labels(reason).set(sum(one[reason] for one in self._standing.values()))

    def looked(self, taking_part: Mapping[tuple[str, str], int], left_out: Mapping[str, int]) -> None:
        """Show how many services take part, by type and namespace, and how many do not."""
        for gone in self._shown - taking_part.keys():
            self.services.labels(*gone).set(0)
        for key, number in taking_part.items():
            self.services.labels(*key).set(number)
        for missing in self._unhealthy - left_out.keys():
            self.unhealthy.labels(missing).set(0)
        for kind, number in left_out.items():
            self.unhealthy.labels(kind).set(number)
        self._shown |= taking_part.keys()
        self._unhealthy |= left_out.keys()
