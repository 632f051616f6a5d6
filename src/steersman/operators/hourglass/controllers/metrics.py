"""The metrics of the hourglass operator: how many of each kind in which phase, and why pods were deleted."""

from __future__ import annotations

from collections import Counter as Tally
from typing import TYPE_CHECKING, ClassVar, Final
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.kube.api.gvk import NamespacedName

REASONS: Final = ("Replaced", "Failed", "PendingTooLong", "ScaledDown", "Lost")


class _Phases(Collector):
    """Counts objects by namespace and phase when asked."""

    def __init__(self) -> None:
        self.phases: dict[tuple[str, NamespacedName], str] = {}

    def collect(self) -> Iterable[GaugeMetricFamily]:
        for kind in ("executor", "performer"):
            name = f"steersman_hourglass_{kind}s"
            family = GaugeMetricFamily(name, f"Resources of kind {kind}, by phase.", labels=["namespace", "phase"])
            counted = Tally((ref.namespace, phase) for (of, ref), phase in self.phases.items() if of == kind)
            for (namespace, phase), number in sorted(counted.items()):
                family.add_metric([namespace, phase], number)
            yield family


class HourglassMetrics:
    """The series of one operator."""

    _made: ClassVar[WeakKeyDictionary[CollectorRegistry, HourglassMetrics]] = WeakKeyDictionary()

    @classmethod
    def of(cls, registry: CollectorRegistry | None = None) -> HourglassMetrics:
        """The series in a registry: made once, because a registry takes each name once."""
        registry = REGISTRY if registry is None else registry
        if registry not in cls._made:
            cls._made[registry] = cls(registry)
        return cls._made[registry]

    def __init__(self, registry: CollectorRegistry) -> None:
        self._phases = _Phases()
        registry.register(self._phases)
        self.removals = Counter(
            "steersman_hourglass_pod_removals", "Pods of performers removed.", ["reason"], registry=registry
        )
        self.recreations = Counter(
            "steersman_hourglass_pod_recreations", "Pods of performers made again after a loss.", registry=registry
        )
        self.refusals = Counter(
            "steersman_hourglass_refusals", "Objects that the server refused.", ["reason"], registry=registry
        )
        for reason in REASONS:
            self.removals.labels(reason)

    def set_phase(self, kind: str, ref: NamespacedName, phase: str) -> None:
        """Record the phase of an object."""
        self._phases.phases[kind, ref] = phase

    def forget(self, kind: str, ref: NamespacedName) -> None:
        """Forget an object that no longer exists."""
        self._phases.phases.pop((kind, ref), None)
