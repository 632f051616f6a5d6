"""CronJobs: a Job for the latest time that is due, and not too many old ones. Pure.

Of several times that were missed only the latest starts a Job, however long ago it was, unless the deadline for
starting has passed. The name of a Job follows from the minute it is for, so the same minute never starts two.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec.structs import replace

from steersman.kube.api.durations import parse_go_duration
from steersman.kube.api.objects import ObjectMeta, Resource, owner_reference
from steersman.kube.api.times import format_time, parse_time
from steersman.kube.api.types.core import ObjectReference
from steersman.simulate.kinds import JSON
from steersman.simulate.plan import Plan
from steersman.simulate.workloads.jobs import is_finished

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.simulate.kinds import SimulatedCronJob, SimulatedJob

_SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_EVERY = "@every "
_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class ScheduledJob(Resource, group="batch", version="v1", kind="Job"):
    """A Job that is about to be created: its spec is copied whole, which is more than is ever read of it."""

    spec: JSON


def plan_cron_job(owner: SimulatedCronJob, jobs: Sequence[SimulatedJob], *, now: float) -> Plan:
    """The Job that is due, if any."""
    active = [job for job in jobs if not is_finished(job)]
    last = owner.status.last_schedule_time or owner.metadata.creation_timestamp or format_time(now)
    since = parse_time(last).timestamp()
    deadline = owner.spec.starting_deadline_seconds
    due = None
    if not owner.spec.suspend:
        due = last_due(owner.spec.schedule, owner.spec.time_zone, since, now)
    if due is not None and deadline is not None and due + deadline < now:
        due = None
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
        again=None if owner.spec.suspend else _wait(owner.spec.schedule, since, now),
    )


def _wait(schedule: str, since: float, now: float) -> float:
    """Seconds until something may be due: the next minute, or the next end of an interval."""
    every = _interval(schedule)
    return 60.0 - now % 60 if every is None else every - (now - since) % every


def _interval(schedule: str) -> int | None:
    """The whole seconds of an `@every` schedule, at least one; None for other schedules."""
    if not schedule.startswith(_EVERY):
        return None
    return max(1, int(parse_go_duration(schedule.removeprefix(_EVERY)).total_seconds()))


def last_due(schedule: str, zone: str | None, since: float, now: float) -> float | None:
    """The latest time after `since` and not after `now` that matches the schedule, in seconds since the epoch.

    None for a day that never comes: February has no 31st.
    """
    if (every := _interval(schedule)) is not None:
        return since + (now - since) // every * every if now - since >= every else None
    expression = _DESCRIPTORS.get(schedule, schedule).replace("?", "*")
    moment = datetime.fromtimestamp(now, ZoneInfo(zone) if zone else UTC)
    try:
        due = next(CronSim(expression, moment.replace(microsecond=0) + timedelta(seconds=1), reverse=True))
    except CronSimError:
        return None
    return due.timestamp() if due.timestamp() > since else None


def _job(owner: SimulatedCronJob, due: float) -> ScheduledJob:
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


def _reference(job: SimulatedJob) -> ObjectReference:
    return ObjectReference(
        api_version="batch/v1", kind="Job", namespace=job.namespace, name=job.name, uid=job.metadata.uid
    )


def _last_success(jobs: Sequence[SimulatedJob]) -> str | None:
    return max((job.status.completion_time for job in jobs if job.status.completion_time), default=None)


def _surplus(owner: SimulatedCronJob, jobs: Sequence[SimulatedJob]) -> list[SimulatedJob]:
    """Finished Jobs beyond what is to be kept of each sort, the oldest first."""
    finished = sorted((job for job in jobs if is_finished(job)), key=lambda job: job.metadata.creation_timestamp or "")
    good = [job for job in finished if job.status.completion_time]
    bad = [job for job in finished if not job.status.completion_time]
    kept_good, kept_bad = owner.spec.successful_jobs_history_limit, owner.spec.failed_jobs_history_limit
    return [
        *good[: max(0, len(good) - (3 if kept_good is None else kept_good))],
        *bad[: max(0, len(bad) - (1 if kept_bad is None else kept_bad))],
    ]
