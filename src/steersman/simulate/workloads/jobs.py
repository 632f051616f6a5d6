"""Jobs: pods until enough have succeeded, or too many have failed. A finished Job is left as it is. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from steersman.kube.api.times import format_time, parse_time
from steersman.kube.api.types.batch import JobCondition
from steersman.simulate.plan import Plan, earliest, with_conditions
from steersman.simulate.workloads.pods import is_active, is_ready, pod_from

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.kube.api.types.batch import JobStatus
    from steersman.simulate.kinds import SimulatedJob, SimulatedPod

_INDEX = "batch.kubernetes.io/job-completion-index"
_BACKOFF_LIMIT = 6


def is_finished(job: SimulatedJob) -> bool:
    """Complete or Failed."""
    return _ended(job) is not None


def plan_job(job: SimulatedJob, pods: Sequence[SimulatedPod], *, now: float) -> Plan:
    """The next pods to start, or the end."""
    ended = _ended(job)
    if ended is not None:
        return _after(job, ended, now)
    active = [pod for pod in pods if is_active(pod)]
    if job.spec.suspend:
        return Plan(delete=tuple(active), status=_suspended(job, now))
    succeeded = [pod for pod in pods if pod.status.phase == "Succeeded"]
    failed = sum(pod.status.phase == "Failed" for pod in pods)
    done = _indexes(succeeded) if _indexed(job) else None
    count = len(succeeded) if done is None else len(done)
    status = replace(
        job.status,
        start_time=job.status.start_time or format_time(now),
        active=len(active),
        ready=sum(map(is_ready, active)),
        succeeded=count,
        failed=failed,
        completed_indexes=_ranges(done or set()),
        conditions=_resumed(job, now),
    )
    if failed > (_BACKOFF_LIMIT if job.spec.backoff_limit is None else job.spec.backoff_limit):
        message = "Job has reached the specified backoff limit"
        return _end(job, active, status, "Failed", "BackoffLimitExceeded", message, now)
    if count >= _completions(job) or (job.spec.completions is None and count and not active):
        message = "Reached expected number of succeeded pods"
        return _end(job, active, status, "Complete", "CompletionsReached", message, now)
    return Plan(create=tuple(_next_pods(job, active, count, done)), status=status)


def _next_pods(
    job: SimulatedJob, active: Sequence[SimulatedPod], succeeded: int, done: set[int] | None
) -> list[SimulatedPod]:
    parallel = 1 if job.spec.parallelism is None else job.spec.parallelism
    if job.spec.completions is None and succeeded:
        return []  # a work queue: once a pod has succeeded, none is started any more
    missing = min(parallel, max(parallel, 1) if job.spec.completions is None else _completions(job) - succeeded)
    wanted = max(0, missing - len(active))
    if done is None:
        return [pod_from(job.spec.template, job) for _ in range(wanted)]
    busy = done | _indexes(active)
    free = [number for number in range(_completions(job)) if number not in busy][:wanted]
    return [
        pod_from(job.spec.template, job, labels={_INDEX: str(number)}, annotations={_INDEX: str(number)})
        for number in free
    ]


def _after(job: SimulatedJob, ended: JobCondition, now: float) -> Plan:
    """A finished Job goes when its time is over, if it has one."""
    if job.spec.ttl_seconds_after_finished is None or ended.last_transition_time is None:
        return Plan()
    left = parse_time(ended.last_transition_time).timestamp() + job.spec.ttl_seconds_after_finished - now
    return Plan(again=earliest(left)) if left > 0 else Plan(delete=(job,))


def _end(
    job: SimulatedJob,
    active: Sequence[SimulatedPod],
    status: JobStatus,
    kind: str,
    reason: str,
    message: str,
    now: float,
) -> Plan:
    """Two writes, as of the real controller: the condition that announces the end, then the one that is the end."""
    target = "SuccessCriteriaMet" if kind == "Complete" else "FailureTarget"
    announced = any(known.type == target for known in status.conditions)
    fresh = JobCondition(type=kind if announced else target, status="True", reason=reason, message=message)
    conditions = with_conditions(status.conditions, [fresh], now=now)
    status = replace(status, active=0, ready=0, terminating=0, conditions=conditions)
    if not announced:
        return Plan(delete=tuple(active), status=status, again=earliest(0))
    if kind == "Complete":
        status = replace(status, completion_time=format_time(now))
    return Plan(status=status, again=earliest(job.spec.ttl_seconds_after_finished))


def _suspended(job: SimulatedJob, now: float) -> JobStatus:
    fresh = JobCondition(type="Suspended", status="True", reason="JobSuspended", message="Job suspended")
    conditions = with_conditions(job.status.conditions, [fresh], now=now)
    return replace(job.status, active=0, ready=0, start_time=None, conditions=conditions)


def _resumed(job: SimulatedJob, now: float) -> Sequence[JobCondition]:
    if not any(known.type == "Suspended" for known in job.status.conditions):
        return job.status.conditions
    fresh = JobCondition(type="Suspended", status="False", reason="JobResumed", message="Job resumed")
    return with_conditions(job.status.conditions, [fresh], now=now)


def _ended(job: SimulatedJob) -> JobCondition | None:
    over = {"Complete", "Failed"}
    return next((known for known in job.status.conditions if known.type in over and known.status == "True"), None)


def _completions(job: SimulatedJob) -> int:
    """How many pods must succeed; without a number, all that run at once."""
    if job.spec.completions is not None:
        return job.spec.completions
    return max(1, 1 if job.spec.parallelism is None else job.spec.parallelism)


def _indexed(job: SimulatedJob) -> bool:
    return job.spec.completion_mode == "Indexed"


def _indexes(pods: Sequence[SimulatedPod]) -> set[int]:
    return {int(pod.annotations[_INDEX]) for pod in pods if pod.annotations.get(_INDEX, "").isdecimal()}


def _ranges(numbers: set[int]) -> str:
    """Numbers as text: `0-2,5`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
