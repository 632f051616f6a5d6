"""Scheduling fields of both kinds, in the shapes of the core API, so that the API server validates them. Pure data.

Only what a schema needs is here; the scheduler decides what a field means, and `inspect/why_pending` explains it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import field

from steersman.crd.markers import Atomic, ListMap, Schema
from steersman.kube.api.objects import Struct

QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
Amount = Annotated[int | str, Schema(pattern=QUANTITY)]
Weight = Annotated[int, Schema(format="int32", minimum=1, maximum=100)]


class LocalReference(Struct):
    """An object of the same namespace."""

    name: str = ""
    """Name of the object."""


class ResourceClaim(Struct):
    """A resource claim of the pod that the container uses."""

    name: str
    """Name of an entry in `spec.resourceClaims` of the pod."""
    request: str | None = None
    """The one request of the claim that the container uses. All of them when absent."""


class Resources(Struct):
    """What a container asks for, and what it may use at most."""

    limits: dict[str, Amount] | None = None
    """The most that the container may use, by resource name, such as `cpu: 500m` or `memory: 1Gi`."""
    requests: dict[str, Amount] | None = None
    """What the scheduler reserves for the container, by resource name. Where a limit is set and a request is not, the
    limit is requested."""
    claims: Annotated[list[ResourceClaim] | None, ListMap("name")] = None
    """Claims for dynamic resource allocation that the container uses."""


class Tolerate(Struct):
    """A taint that the pod can live with."""

    key: str | None = None
    """Key of the tolerated taint. Empty with `operator: Exists` tolerates every taint."""
    operator: Literal["Exists", "Equal", "Lt", "Gt"] | None = None
    """How `value` is compared with the taint: `Equal` (when absent), `Exists` for any value, `Lt` or `Gt` for numbers.
    """
    value: str | None = None
    """Value of the tolerated taint. Leave it empty for `Exists`."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the tolerated taint. All effects when absent."""
    toleration_seconds: int | None = None
    """Seconds that the pod stays on a node after a taint with effect `NoExecute` appears. For ever when absent."""


class SelectorRequirement(Struct):
    """One expression about labels or fields."""

    key: str
    """The label or field that the expression tests."""
    operator: str
    """How it is tested: `In`, `NotIn`, `Exists` or `DoesNotExist`; for nodes also `Gt` and `Lt`."""
    values: Annotated[list[str] | None, Atomic()] = None
    """Values to compare with. `In` and `NotIn` need at least one, `Gt` and `Lt` exactly one integer, `Exists` and
    `DoesNotExist` none."""


class NodeTerm(Struct):
    """A node must match all of these."""

    match_expressions: Annotated[list[SelectorRequirement] | None, Atomic()] = None
    """Expressions about labels of the node."""
    match_fields: Annotated[list[SelectorRequirement] | None, Atomic()] = None
    """Expressions about fields of the node, such as `metadata.name`."""


class NodeTerms(Struct):
    """A node must match one of these."""

    node_selector_terms: Annotated[list[NodeTerm], Atomic()]
    """Alternatives: a node that matches one of them is possible."""


class PreferredNode(Struct):
    """A node that matches is preferred by so much."""

    weight: Weight
    """How much the preference counts, from 1 to 100. The scheduler adds up the weights of all preferences that a node
    matches."""
    preference: NodeTerm
    """What a preferred node matches."""


class NodeAffinity(Struct):
    """Which nodes are possible, and which are preferred."""

    required: NodeTerms | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    """What a node must match when the pod is placed. A pod stays when its node changes later."""
    preferred: Annotated[list[PreferredNode] | None, Atomic()] = field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )
    """What the scheduler prefers among possible nodes."""


class Labels(Struct):
    """A label selector."""

    match_labels: dict[str, str] | None = None
    """Labels that must all be there, each with exactly this value."""
    match_expressions: Annotated[list[SelectorRequirement] | None, Atomic()] = None
    """Expressions that must all hold, in addition to `matchLabels`."""


class PodTerm(Struct):
    """Pods, and the kind of place that is shared with them."""

    topology_key: str
    """Node label whose value is the shared place: `kubernetes.io/hostname` for a node, `topology.kubernetes.io/zone`
    for a zone."""
    label_selector: Labels | None = None
    """Labels of the pods meant. No pods when absent."""
    namespace_selector: Labels | None = None
    """Labels of the namespaces in which pods are meant; an empty selector is all namespaces. It adds to `namespaces`.
    """
    namespaces: Annotated[list[str] | None, Atomic()] = None
    """Names of the namespaces in which pods are meant. The performer's own when this and `namespaceSelector` are
    absent."""
    match_label_keys: Annotated[list[str] | None, Atomic()] = None
    """Label keys of the pod itself; only pods with the same values are meant."""
    mismatch_label_keys: Annotated[list[str] | None, Atomic()] = None
    """Label keys of the pod itself; only pods with other values are meant."""


class PreferredPods(Struct):
    """A place shared with such pods is preferred, or avoided, by so much."""

    weight: Weight
    """How much the preference counts, from 1 to 100. The scheduler adds up the weights of all preferences that a node
    matches."""
    pod_affinity_term: PodTerm
    """The pods and the place that the preference is about."""


class PodAffinity(Struct):
    """Which pods must or should be near, or far."""

    required: Annotated[list[PodTerm] | None, Atomic()] = field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    """Rules that must hold when the pod is placed. A pod stays when its neighbours change later."""
    preferred: Annotated[list[PreferredPods] | None, Atomic()] = field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )
    """Rules that the scheduler prefers to keep."""


class Affinity(Struct):
    """All rules about neighbours."""

    node_affinity: NodeAffinity | None = None
    """Which nodes are possible, and which are preferred."""
    pod_affinity: PodAffinity | None = None
    """Pods that must or should be in the same place."""
    pod_anti_affinity: PodAffinity | None = None
    """Pods that must not or should not be in the same place."""


class Scheduling(Struct):
    """Where pods may run. `nodeAffinity` is the older spelling of `affinity.nodeAffinity`; use one of them."""

    node_selector: dict[str, str] | None = None
    """Labels that a node must have, each with exactly this value."""
    node_affinity: NodeAffinity | None = None
    """Which nodes are possible, and which are preferred: the older spelling of `affinity.nodeAffinity`. Use one of the
    two."""
    affinity: Affinity | None = None
    """Rules about nodes and about other pods."""
    tolerations: list[Tolerate] | None = None
    """Taints of nodes that the pod tolerates."""
    runtime_class: str | None = None
    """Name of the RuntimeClass that runs the pod. The runtime's default when absent."""
    priority_class_name: str | None = None
    """Name of the PriorityClass, which decides which pods go first when nodes are full. The cluster's default when
    absent."""
