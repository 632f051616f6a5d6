"""The kinds as the simulation sees them: templates and pod specs stay whole, so that what is copied loses nothing.

The structs of `steersman.kube.types` name only the fields that controllers read. Here a template is copied from a
Deployment to a ReplicaSet to a Pod and compared on the way, so every field counts: it stays plain JSON. Pure data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import field

from steersman.kube.objects import ObjectMeta, Resource, Struct
from steersman.kube.types.apps import (
    ControllerRevision,
    DaemonSetStatus,
    DaemonSetUpdateStrategy,
    DeploymentStatus,
    DeploymentStrategy,
    ReplicaSetStatus,
    StatefulSetStatus,
    StatefulSetUpdateStrategy,
    WorkloadCondition,
)
from steersman.kube.types.batch import CronJobStatus, JobStatus
from steersman.kube.types.core import Node, Service
from steersman.kube.types.discovery import EndpointSlice
from steersman.kube.types.pods import PodStatus

__all__ = [
    "JSON",
    "ControllerRevision",
    "CronJob",
    "CronJobSpec",
    "DaemonSet",
    "DaemonSetSpec",
    "Deployment",
    "DeploymentSpec",
    "EndpointSlice",
    "Job",
    "JobSpec",
    "JobTemplate",
    "Node",
    "Pod",
    "Progress",
    "ReplicaSet",
    "ReplicaSetSpec",
    "RolloutStatus",
    "Service",
    "StatefulSet",
    "StatefulSetSpec",
]

JSON = dict[str, Any]


class Pod(Resource, version="v1"):
    """Containers that run together on one node."""

    spec: JSON = field(default_factory=dict)
    status: PodStatus = field(default_factory=PodStatus)


class ReplicaSetSpec(Struct):
    """What a ReplicaSet should be."""

    replicas: int | None = None
    min_ready_seconds: int = 0
    selector: JSON = field(default_factory=dict)
    template: JSON = field(default_factory=dict)


class ReplicaSet(Resource, group="apps", version="v1"):
    """A number of identical pods."""

    spec: ReplicaSetSpec = field(default_factory=ReplicaSetSpec)
    status: ReplicaSetStatus = field(default_factory=ReplicaSetStatus)


class Progress(WorkloadCondition):
    """A condition of a Deployment. When it was last confirmed is what the progress deadline counts from."""

    last_update_time: str | None = None


class RolloutStatus(DeploymentStatus):
    """What a Deployment is."""

    conditions: Sequence[Progress] = ()


class DeploymentSpec(Struct):
    """What a Deployment should be."""

    replicas: int | None = None
    selector: JSON = field(default_factory=dict)
    template: JSON = field(default_factory=dict)
    strategy: DeploymentStrategy | None = None
    min_ready_seconds: int = 0
    revision_history_limit: int | None = None
    progress_deadline_seconds: int | None = None
    paused: bool = False


class Deployment(Resource, group="apps", version="v1"):
    """Interchangeable pods that are rolled."""

    spec: DeploymentSpec = field(default_factory=DeploymentSpec)
    status: RolloutStatus = field(default_factory=RolloutStatus)


class StatefulSetSpec(Struct):
    """What a StatefulSet should be."""

    replicas: int | None = None
    selector: JSON = field(default_factory=dict)
    template: JSON = field(default_factory=dict)
    service_name: str = ""
    volume_claim_templates: Sequence[JSON] = ()
    pod_management_policy: str = ""
    update_strategy: StatefulSetUpdateStrategy | None = None
    min_ready_seconds: int = 0
    revision_history_limit: int | None = None
    ordinals: JSON | None = None


class StatefulSet(Resource, group="apps", version="v1"):
    """Pods with a name of their own."""

    spec: StatefulSetSpec = field(default_factory=StatefulSetSpec)
    status: StatefulSetStatus = field(default_factory=StatefulSetStatus)


class DaemonSetSpec(Struct):
    """What a DaemonSet should be."""

    selector: JSON = field(default_factory=dict)
    template: JSON = field(default_factory=dict)
    update_strategy: DaemonSetUpdateStrategy | None = None
    min_ready_seconds: int = 0
    revision_history_limit: int | None = None


class DaemonSet(Resource, group="apps", version="v1"):
    """One pod per node."""

    spec: DaemonSetSpec = field(default_factory=DaemonSetSpec)
    status: DaemonSetStatus = field(default_factory=DaemonSetStatus)


class JobSpec(Struct):
    """What a Job should be."""

    template: JSON = field(default_factory=dict)
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    backoff_limit: int | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool | None = None


class Job(Resource, group="batch", version="v1"):
    """Pods that run until they have succeeded."""

    spec: JobSpec = field(default_factory=JobSpec)
    status: JobStatus = field(default_factory=JobStatus)


class JobTemplate(Struct):
    """What the Jobs of a CronJob should be; their spec is copied whole."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: JSON = field(default_factory=dict)


class CronJobSpec(Struct):
    """What a CronJob should be."""

    schedule: str = ""
    time_zone: str | None = None
    job_template: JobTemplate = field(default_factory=JobTemplate)
    concurrency_policy: str = ""
    suspend: bool | None = None
    successful_jobs_history_limit: int | None = None
    failed_jobs_history_limit: int | None = None


class CronJob(Resource, group="batch", version="v1"):
    """Jobs by the clock."""

    spec: CronJobSpec = field(default_factory=CronJobSpec)
    status: CronJobStatus = field(default_factory=CronJobStatus)
