"""Workloads: Deployment, StatefulSet, DaemonSet, ReplicaSet and the revisions they keep. Pure data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import field

from steersman.kube.api.objects import LabelSelector, Resource, Struct
from steersman.kube.api.types.core import PersistentVolumeClaim
from steersman.kube.api.types.meta import BaseCondition, IntOrString
from steersman.kube.api.types.pods import PodTemplateSpec

__all__ = [
    "ControllerRevision",
    "DaemonSet",
    "DaemonSetSpec",
    "DaemonSetStatus",
    "DaemonSetUpdateStrategy",
    "Deployment",
    "DeploymentSpec",
    "DeploymentStatus",
    "DeploymentStrategy",
    "ReplicaSet",
    "ReplicaSetSpec",
    "ReplicaSetStatus",
    "RollingUpdate",
    "RollingUpdatePartition",
    "StatefulSet",
    "StatefulSetSpec",
    "StatefulSetStatus",
    "StatefulSetUpdateStrategy",
    "WorkloadCondition",
]


class WorkloadCondition(BaseCondition):
    """One aspect of a workload's state: Available, Progressing, ReplicaFailure."""


class RollingUpdate(Struct):
    """How far a rollout may go at once."""

    max_unavailable: IntOrString | None = None
    max_surge: IntOrString | None = None


class DeploymentStrategy(Struct):
    """How pods are replaced."""

    type: str = ""  # RollingUpdate or Recreate
    rolling_update: RollingUpdate | None = None


class DeploymentSpec(Struct):
    """What a Deployment should be."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)
    strategy: DeploymentStrategy | None = None
    min_ready_seconds: int = 0
    revision_history_limit: int | None = None
    progress_deadline_seconds: int | None = None
    paused: bool = False


class DeploymentStatus(Struct):
    """What a Deployment is."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    terminating_replicas: int | None = None
    collision_count: int | None = None
    conditions: Sequence[WorkloadCondition] = ()


class Deployment(Resource, group="apps", version="v1"):
    """Interchangeable pods that are rolled."""

    spec: DeploymentSpec = field(default_factory=DeploymentSpec)
    status: DeploymentStatus = field(default_factory=DeploymentStatus)


class RollingUpdatePartition(Struct):
    """How far the rollout of a StatefulSet may go."""

    partition: int | None = None
    max_unavailable: IntOrString | None = None


class StatefulSetUpdateStrategy(Struct):
    """How pods are replaced."""

    type: str = ""  # RollingUpdate or OnDelete
    rolling_update: RollingUpdatePartition | None = None


class StatefulSetSpec(Struct):
    """What a StatefulSet should be."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)
    service_name: str = ""
    volume_claim_templates: Sequence[PersistentVolumeClaim] = ()
    persistent_volume_claim_retention_policy: dict[str, Any] | None = None
    pod_management_policy: str = ""
    update_strategy: StatefulSetUpdateStrategy | None = None
    min_ready_seconds: int = 0
    revision_history_limit: int | None = None
    ordinals: dict[str, Any] | None = None


class StatefulSetStatus(Struct):
    """What a StatefulSet is."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    current_replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""
    collision_count: int | None = None
    conditions: Sequence[WorkloadCondition] = ()


class StatefulSet(Resource, group="apps", version="v1"):
    """Pods with a name and storage of their own."""

    spec: StatefulSetSpec = field(default_factory=StatefulSetSpec)
    status: StatefulSetStatus = field(default_factory=StatefulSetStatus)


class DaemonSetUpdateStrategy(Struct):
    """How pods are replaced."""

    type: str = ""  # RollingUpdate or OnDelete
    rolling_update: RollingUpdate | None = None


class DaemonSetSpec(Struct):
    """What a DaemonSet should be."""

    selector: LabelSelector | None = None
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)
    update_strategy: DaemonSetUpdateStrategy | None = None
    min_ready_seconds: int = 0
    revision_history_limit: int | None = None


class DaemonSetStatus(Struct):
    """What a DaemonSet is."""

    observed_generation: int = 0
    desired_number_scheduled: int = 0
    current_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_ready: int = 0
    number_available: int = 0
    number_unavailable: int = 0
    number_misscheduled: int = 0
    collision_count: int | None = None
    conditions: Sequence[WorkloadCondition] = ()


class DaemonSet(Resource, group="apps", version="v1"):
    """One pod per node."""

    spec: DaemonSetSpec = field(default_factory=DaemonSetSpec)
    status: DaemonSetStatus = field(default_factory=DaemonSetStatus)


class ReplicaSetSpec(Struct):
    """What a ReplicaSet should be."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)
    min_ready_seconds: int = 0


class ReplicaSetStatus(Struct):
    """What a ReplicaSet is."""

    observed_generation: int = 0
    replicas: int = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    terminating_replicas: int | None = None
    conditions: Sequence[WorkloadCondition] = ()


class ReplicaSet(Resource, group="apps", version="v1"):
    """A number of identical pods; Deployments make them."""

    spec: ReplicaSetSpec = field(default_factory=ReplicaSetSpec)
    status: ReplicaSetStatus = field(default_factory=ReplicaSetStatus)


class ControllerRevision(Resource, group="apps", version="v1"):
    """A template that a StatefulSet or DaemonSet once had."""

    revision: int = 0
    data: Any = None
