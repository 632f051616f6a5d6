"""CronJobs: a Job for each minute that is due, and not too many old ones. Pure.

The name of a Job follows from the minute it is for, so the same minute never starts two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from steersman.kube.objects import ObjectMeta, Resource, owner_reference
from steersman.kube.times import format_time, parse_time
from steersman.kube.types.core import ObjectReference
from steersman.simulate.jobs import is_finished
from steersman.simulate.kinds import JSON
from steersman.simulate.plan import Plan
from steersman.simulate.schedule import last_due

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.simulate.kinds import CronJob, Job

__all__ = ["ScheduledJob", "plan_cron_job"]

_SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"


class ScheduledJob(Resource, group="batch", version="v1", kind="Job"):
    """A Job that is about to be created: its spec is copied whole, which is more than is ever read of it."""

    spec: JSON


def plan_cron_job(owner: CronJob, jobs: Sequence[Job], *, now: float) -> Plan:
    """The Job that is due, if any."""
    active = [job for job in jobs if not is_finished(job)]
    last = owner.status.last_schedule_time or owner.metadata.creation_timestamp or format_time(now)
    due = None
    if not owner.spec.suspend:
        due = last_due(owner.spec.schedule, owner.spec.time_zone, parse_time(last).timestamp(), now)
    policy = owner.spec.concurrency_policy
    if policy == "Forbid" and active:
        due = None
    create = () if due is None else (_job(owner, due),)
    replaced = active if create and policy == "Replace" else []
    status = replace(
        owner.status,
        active=[_reference(job) for job in active],
        last_schedule_time=owner.status.last_schedule_time if due is None else format_time(due),
        last_successful_time=_last_success(jobs) or owner.status.last_successful_time,
    )
    return Plan(
        create=create,
        delete=(*replaced, *_surplus(owner, jobs)),
        status=status,
        again=None if owner.spec.suspend else 60.0 - now % 60,
    )


def _job(owner: CronJob, due: float) -> ScheduledJob:
    template = owner.spec.job_template
    return ScheduledJob(
        metadata=ObjectMeta(
            name=f"{owner.name}-{int(due) // 60}",
            namespace=owner.namespace,
            labels=template.metadata.labels,
            annotations={**(template.metadata.annotations or {}), _SCHEDULED: format_time(due)},
            owner_references=[owner_reference(owner)],
        ),
        spec=template.spec,
    )


def _reference(job: Job) -> ObjectReference:
    return ObjectReference(
        api_version="batch/v1", kind="Job", namespace=job.namespace, name=job.name, uid=job.metadata.uid
    )


def _last_success(jobs: Sequence[Job]) -> str | None:
    return max((job.status.completion_time for job in jobs if job.status.completion_time), default=None)


def _surplus(owner: CronJob, jobs: Sequence[Job]) -> list[Job]:
    """Finished Jobs beyond what is to be kept of each sort, the oldest first."""
    finished = sorted((job for job in jobs if is_finished(job)), key=lambda job: job.metadata.creation_timestamp or "")
    good = [job for job in finished if job.status.completion_time]
    bad = [job for job in finished if not job.status.completion_time]
    kept_good, kept_bad = owner.spec.successful_jobs_history_limit, owner.spec.failed_jobs_history_limit
    return [
        *good[: max(0, len(good) - (3 if kept_good is None else kept_good))],
        *bad[: max(0, len(bad) - (1 if kept_bad is None else kept_bad))],
    ]
