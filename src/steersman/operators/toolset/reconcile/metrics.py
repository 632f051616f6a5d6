"""The metrics of the toolset operator. Names are those of the original's documentation, with one prefix: `toolset_`."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from steersman.operators.toolset.reconcile.plan import DriftKind, Operation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.kube.api.gvk import NamespacedName

DRIFT_LABELS: Final[Mapping[str, str]] = {
    DriftKind.MISSING: "missing_key",
    DriftKind.MODIFIED: "modified_value",
    DriftKind.EXTRA: "extra_key",
    DriftKind.DELETED: "deleted",
    DriftKind.METADATA: "metadata",
    DriftKind.OWNERSHIP: "ownership",
    DriftKind.IMMUTABLE: "immutable",
}
_RECONCILE_BUCKETS: Final = tuple(0.01 * 2**power for power in range(10))
_DISCOVERY_BUCKETS: Final = tuple(0.1 * 2**power for power in range(10))


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What one reconcile of one target found; the gauges show all targets together."""

    included: frozenset[tuple[str, str, str]] = frozenset()  # type, namespace and name of Services
    excluded: frozenset[tuple[str, str, str]] = frozenset()
    override_conflicts: int = 0
    parts: int = 0
    detectors: Mapping[str, bool] = {}  # by type, whether it works


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
            "toolset_services_discovered", "Services that are included.", ["service_type", "namespace"], registry=to
        )
        self.discovery = Histogram(
            "toolset_discovery_duration_seconds",
            "Of matching all Services once.",
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
            "toolset_unhealthy_services", "Candidates that are not included.", ["service_type"], registry=to
        )
        self.generated = Counter("toolset_toolsets_generated", "Toolsets written.", ["toolset_type"], registry=to)
        self.failures = Counter(
            "toolset_generation_failures",
            "Services and overrides that could not be rendered.",
            ["toolset_type", "error_type"],
            registry=to,
        )
        self.conflicts = Counter(
            "toolset_configmap_conflicts", "Write conflicts, by outcome.", ["outcome"], registry=to
        )
        self.size = Gauge("toolset_configmap_size_bytes", "Bytes of values.", ["part"], registry=to)
        self.parts = Gauge("toolset_configmap_parts", "Parts beside the base.", registry=to)
        self.problems = Gauge(
            "toolset_problems", "Current problems, by the reason of their Event.", ["reason"], registry=to
        )
        self.override_errors = Counter("toolset_override_errors", "Overrides that are not valid.", registry=to)
        self.override_conflicts = Gauge(
            "toolset_override_conflicts", "Overrides that replace discovered values.", registry=to
        )
        self.notifications = Counter("toolset_notifications", "Notifications of consumers.", ["status"], registry=to)
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
        self._problems: dict[NamespacedName, Tally[str]] = {}
        self._observed: dict[NamespacedName, Observation] = {}
        self._sizes: dict[NamespacedName, dict[str, int]] = {}
        self._shown: set[tuple[str, str]] = set()
        self._unhealthy: set[str] = set()

    def count_drift(self, reports: Iterable[str]) -> None:
        """Count reports such as `missing:KEY`."""
        for report in reports:
            label = DRIFT_LABELS.get(report.partition(":")[0])
            if label is not None:
                self.drift.labels(label).inc()

    def set_problems(self, target: NamespacedName, reasons: Iterable[str]) -> None:
        """The current problems of one target."""
        before = self._problems.pop(target, Tally())
        now = Tally(reasons)
        if now:
            self._problems[target] = now
        for reason in before | now:
            self.problems.labels(reason).set(sum(reasons[reason] for reasons in self._problems.values()))

    def forget(self, target: NamespacedName) -> None:
        """Forget a target."""
        self.set_problems(target, ())
        self.set_observation(target, None)
        self.set_sizes(target, {})

    def set_observation(self, target: NamespacedName, found: Observation | None) -> None:
        """Set the gauges over all targets, each Service once; None forgets this target."""
        self._observed.pop(target, None)
        if found is not None:
            self._observed[target] = found
        every = self._observed.values()
        included = Tally((kind, namespace) for kind, namespace, _ in _union(seen.included for seen in every))
        excluded = Tally(kind for kind, _, _ in _union(seen.excluded for seen in every))
        types = {kind for kind, _ in included}
        shown = included.keys() | {key for key in self._shown if key[0] not in types}  # a type without Services is 0
        for key in self._shown - shown:
            self.services.remove(*key)  # else namespaces that come and go leave series behind
        self._shown = shown
        self._unhealthy |= excluded.keys()
        for key in shown:
            self.services.labels(*key).set(included[key])
        for kind in self._unhealthy:
            self.unhealthy.labels(kind).set(excluded[kind])
        self.override_conflicts.set(sum(seen.override_conflicts for seen in every))
        self.parts.set(sum(seen.parts for seen in every))
        for kind in {kind for seen in every for kind in seen.detectors}:
            self.detectors.labels(kind).set(all(seen.detectors.get(kind, True) for seen in every))

    def set_sizes(self, target: NamespacedName, sizes: Mapping[str, int]) -> None:
        """Bytes of a target's ConfigMaps by part; shown is the largest of all targets, which meets the limit first."""
        before = self._sizes.pop(target, {})
        if sizes:
            self._sizes[target] = dict(sizes)
        for part in before.keys() | sizes.keys():
            self.size.labels(part).set(max((known.get(part, 0) for known in self._sizes.values()), default=0))


def _union(sets: Iterable[frozenset[tuple[str, str, str]]]) -> frozenset[tuple[str, str, str]]:
    return frozenset().union(*sets)
