"""Work that ends: Job and CronJob. Pure data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import field

from steersman.kube.api.objects import LabelSelector, ObjectMeta, Resource, Struct
from steersman.kube.api.types.core import ObjectReference
from steersman.kube.api.types.meta import BaseCondition
from steersman.kube.api.types.pods import PodTemplateSpec

__all__ = ["CronJob", "CronJobSpec", "CronJobStatus", "Job", "JobCondition", "JobSpec", "JobStatus", "JobTemplateSpec"]


class JobSpec(Struct):
    """What a Job should be."""

    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool | None = None
    selector: LabelSelector | None = None
    manual_selector: bool | None = None
    managed_by: str | None = None
    pod_failure_policy: dict[str, Any] | None = None
    pod_replacement_policy: str | None = None
    success_policy: dict[str, Any] | None = None


class JobCondition(BaseCondition):
    """One aspect of a Job's state: Complete, Failed, Suspended, FailureTarget, SuccessCriteriaMet."""

    last_probe_time: str | None = None


class JobStatus(Struct):
    """What a Job is."""

    start_time: str | None = None
    completion_time: str | None = None
    active: int = 0
    ready: int | None = None
    succeeded: int = 0
    failed: int = 0
    terminating: int | None = None
    completed_indexes: str = ""
    failed_indexes: str | None = None
    conditions: Sequence[JobCondition] = ()


class Job(Resource, group="batch", version="v1"):
    """Pods that run until they have succeeded."""

    spec: JobSpec = field(default_factory=JobSpec)
    status: JobStatus = field(default_factory=JobStatus)


class JobTemplateSpec(Struct):
    """What the Jobs of a CronJob should be."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: JobSpec = field(default_factory=JobSpec)


class CronJobSpec(Struct):
    """What a CronJob should be."""

    schedule: str = ""
    time_zone: str | None = None
    job_template: JobTemplateSpec = field(default_factory=JobTemplateSpec)
    concurrency_policy: str = ""
    suspend: bool | None = None
    starting_deadline_seconds: int | None = None
    successful_jobs_history_limit: int | None = None
    failed_jobs_history_limit: int | None = None


class CronJobStatus(Struct):
    """What a CronJob is."""

    active: Sequence[ObjectReference] = ()
    last_schedule_time: str | None = None
    last_successful_time: str | None = None


class CronJob(Resource, group="batch", version="v1"):
    """Jobs by the clock."""

    spec: CronJobSpec = field(default_factory=CronJobSpec)
    status: CronJobStatus = field(default_factory=CronJobStatus)
