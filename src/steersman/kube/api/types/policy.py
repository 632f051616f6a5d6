"""How much of a workload may be away at once. Pure data."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import field

from steersman.kube.api.objects import LabelSelector, Resource, Struct
from steersman.kube.api.types.meta import IntOrString, StatusCondition

__all__ = ["PodDisruptionBudget", "PodDisruptionBudgetSpec", "PodDisruptionBudgetStatus"]


class PodDisruptionBudgetSpec(Struct):
    """The pods that are meant, and how many must stay or may go."""

    selector: LabelSelector | None = None
    min_available: IntOrString | None = None
    max_unavailable: IntOrString | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(Struct):
    """How many may go right now."""

    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    disrupted_pods: dict[str, str | None] | None = None
    conditions: Sequence[StatusCondition] = ()


class PodDisruptionBudget(Resource, group="policy", version="v1"):
    """A limit for evictions."""

    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = field(default_factory=PodDisruptionBudgetStatus)
