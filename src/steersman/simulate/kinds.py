"""The kinds as the simulation sees them: templates and pod specs stay whole, so that what is copied loses nothing.

The structs of `steersman.kube.api.types` name only the fields that controllers read. Here a template is copied from a
Deployment to a ReplicaSet to a Pod and compared on the way, so every field counts: it stays plain JSON. Pure data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import field

from steersman.kube.api.objects import ObjectMeta, Resource, Struct
from steersman.kube.api.types.apps import (
    DaemonSetStatus,
    DaemonSetUpdateStrategy,
    DeploymentStatus,
    DeploymentStrategy,
    ReplicaSetStatus,
    StatefulSetStatus,
    StatefulSetUpdateStrategy,
    WorkloadCondition,
)
from steersman.kube.api.types.batch import CronJobStatus, JobStatus
from steersman.kube.api.types.pods import PodStatus

JSON = dict[str, Any]


class SimulatedPod(Resource, version="v1", kind="Pod"):
    """Containers that run together on one node."""

    spec: JSON = field(default_factory=dict)
    status: PodStatus = field(default_factory=PodStatus)


class SimulatedReplicaSetSpec(Struct):
    """What a ReplicaSet should be."""

    replicas: int | None = None
    min_ready_seconds: int = 0
    selector: JSON = field(default_factory=dict)
    template: JSON = field(default_factory=dict)


class SimulatedReplicaSet(Resource, group="apps", version="v1", kind="ReplicaSet"):
    """A number of identical pods."""

    spec: SimulatedReplicaSetSpec = field(default_factory=SimulatedReplicaSetSpec)
    status: ReplicaSetStatus = field(default_factory=ReplicaSetStatus)


class Progress(WorkloadCondition):
    """A condition of a Deployment. When it was last confirmed is what the progress deadline counts from."""

    last_update_time: str | None = None


class RolloutStatus(DeploymentStatus):
    """What a Deployment is."""

    conditions: Sequence[Progress] = ()


class SimulatedDeploymentSpec(Struct):
    """What a Deployment should be."""

    replicas: int | None = None
    selector: JSON = field(default_factory=dict)
    template: JSON = field(default_factory=dict)
    strategy: DeploymentStrategy | None = None
    min_ready_seconds: int = 0
    revision_history_limit: int | None = None
    progress_deadline_seconds: int | None = None
    paused: bool = False


class SimulatedDeployment(Resource, group="apps", version="v1", kind="Deployment"):
    """Interchangeable pods that are rolled."""

    spec: SimulatedDeploymentSpec = field(default_factory=SimulatedDeploymentSpec)
    status: RolloutStatus = field(default_factory=RolloutStatus)


class SimulatedStatefulSetSpec(Struct):
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


class SimulatedStatefulSet(Resource, group="apps", version="v1", kind="StatefulSet"):
    """Pods with a name of their own."""

    spec: SimulatedStatefulSetSpec = field(default_factory=SimulatedStatefulSetSpec)
    status: StatefulSetStatus = field(default_factory=StatefulSetStatus)


class SimulatedDaemonSetSpec(Struct):
    """What a DaemonSet should be."""

    selector: JSON = field(default_factory=dict)
    template: JSON = field(default_factory=dict)
    update_strategy: DaemonSetUpdateStrategy | None = None
    min_ready_seconds: int = 0
    revision_history_limit: int | None = None


class SimulatedDaemonSet(Resource, group="apps", version="v1", kind="DaemonSet"):
    """One pod per node."""

    spec: SimulatedDaemonSetSpec = field(default_factory=SimulatedDaemonSetSpec)
    status: DaemonSetStatus = field(default_factory=DaemonSetStatus)


class SimulatedJobSpec(Struct):
    """What a Job should be."""

    template: JSON = field(default_factory=dict)
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    backoff_limit: int | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool | None = None


class SimulatedJob(Resource, group="batch", version="v1", kind="Job"):
    """Pods that run until they have succeeded."""

    spec: SimulatedJobSpec = field(default_factory=SimulatedJobSpec)
    status: JobStatus = field(default_factory=JobStatus)


class JobTemplate(Struct):
    """What the Jobs of a CronJob should be; their spec is copied whole."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: JSON = field(default_factory=dict)


class SimulatedCronJobSpec(Struct):
    """What a CronJob should be."""

    schedule: str = ""
    time_zone: str | None = None
    job_template: JobTemplate = field(default_factory=JobTemplate)
    concurrency_policy: str = ""
    starting_deadline_seconds: int | None = None
    suspend: bool | None = None
    successful_jobs_history_limit: int | None = None
    failed_jobs_history_limit: int | None = None


class SimulatedCronJob(Resource, group="batch", version="v1", kind="CronJob"):
    """Jobs by the clock."""

    spec: SimulatedCronJobSpec = field(default_factory=SimulatedCronJobSpec)
    status: CronJobStatus = field(default_factory=CronJobStatus)
