"""Where pods may run, as both kinds say it: the core API's own shapes, so that the server checks them. Pure data.

Only what a schema needs is here; what a field means is decided by the scheduler, and by `placement` for `why`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import field

from steersman.crd.markers import Atomic, ListMap, Schema
from steersman.kube.objects import Struct

__all__ = [
    "Affinity",
    "LocalReference",
    "NodeAffinity",
    "Resources",
    "Scheduling",
    "Tolerate",
]

QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
Amount = Annotated[int | str, Schema(pattern=QUANTITY)]
Weight = Annotated[int, Schema(format="int32", minimum=1, maximum=100)]


class LocalReference(Struct):
    """An object of the same namespace."""

    name: str = ""


class Claim(Struct):
    """A resource claim of the pod that the container uses."""

    name: str
    request: str | None = None


class Resources(Struct):
    """What a container asks for, and what it may use at most."""

    limits: dict[str, Amount] | None = None
    requests: dict[str, Amount] | None = None
    claims: Annotated[list[Claim] | None, ListMap("name")] = None


class Tolerate(Struct):
    """A taint that the pod can live with."""

    key: str | None = None
    operator: Literal["Exists", "Equal", "Lt", "Gt"] | None = None
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: int | None = None


class Requirement(Struct):
    """One expression about labels or fields."""

    key: str
    operator: str
    values: Annotated[list[str] | None, Atomic()] = None


class NodeTerm(Struct):
    """A node must match all of these."""

    match_expressions: Annotated[list[Requirement] | None, Atomic()] = None
    match_fields: Annotated[list[Requirement] | None, Atomic()] = None


class NodeTerms(Struct):
    """A node must match one of these."""

    node_selector_terms: Annotated[list[NodeTerm], Atomic()]


class PreferredNode(Struct):
    """A node that matches is preferred by so much."""

    weight: Weight
    preference: NodeTerm


class NodeAffinity(Struct):
    """Which nodes are possible, and which are preferred."""

    required: NodeTerms | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: Annotated[list[PreferredNode] | None, Atomic()] = field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Labels(Struct):
    """A label selector."""

    match_labels: dict[str, str] | None = None
    match_expressions: Annotated[list[Requirement] | None, Atomic()] = None


class PodTerm(Struct):
    """Pods, and the kind of place that is shared with them."""

    topology_key: str
    label_selector: Labels | None = None
    namespace_selector: Labels | None = None
    namespaces: Annotated[list[str] | None, Atomic()] = None
    match_label_keys: Annotated[list[str] | None, Atomic()] = None
    mismatch_label_keys: Annotated[list[str] | None, Atomic()] = None


class PreferredPods(Struct):
    """A place shared with such pods is preferred, or avoided, by so much."""

    weight: Weight
    pod_affinity_term: PodTerm


class PodAffinity(Struct):
    """Which pods must or should be near, or far."""

    required: Annotated[list[PodTerm] | None, Atomic()] = field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: Annotated[list[PreferredPods] | None, Atomic()] = field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Struct):
    """All rules about neighbours."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Scheduling(Struct):
    """Where pods may run. `nodeAffinity` is the older spelling of `affinity.nodeAffinity`; use one of them."""

    node_selector: dict[str, str] | None = None
    node_affinity: NodeAffinity | None = None
    affinity: Affinity | None = None
    tolerations: list[Tolerate] | None = None
    runtime_class: str | None = None
    priority_class_name: str | None = None
