"""What a Deployment says about itself: counters, Available, and Progressing with its deadline.

A rollout makes progress when more pods are updated, ready or available than before, or fewer old ones are left. The
deadline counts from the last progress; passing it is reported and changes nothing else. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from steersman.kube.times import format_time, parse_time
from steersman.simulate.kinds import Progress, RolloutStatus
from steersman.simulate.plan import with_conditions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.simulate.kinds import Deployment, ReplicaSet

__all__ = ["rollout_status"]

_NO_DEADLINE = 2**31 - 1
_DEADLINE = 600  # seconds, when nobody set one


def rollout_status(
    deployment: Deployment,
    new: ReplicaSet | None,
    olds: Sequence[ReplicaSet],
    least: int,
    *,
    now: float,
) -> tuple[RolloutStatus, float | None]:
    """The status, and the seconds until the deadline when one is running."""
    everyone = [*olds, *([new] if new is not None else [])]
    replicas = sum(one.status.replicas for one in everyone)
    available = sum(one.status.available_replicas for one in everyone)
    counted = replace(
        deployment.status,
        observed_generation=deployment.metadata.generation,
        replicas=replicas,
        updated_replicas=new.status.replicas if new is not None else 0,
        ready_replicas=sum(one.status.ready_replicas for one in everyone),
        available_replicas=available,
        unavailable_replicas=max(0, sum(one.spec.replicas or 0 for one in everyone) - available),
    )
    progressing, again = _progressing(deployment, counted, new, now=now)
    known = deployment.status.conditions
    conditions = with_conditions(known, [_available(known, available >= least, now), *progressing], now=now)
    return replace(counted, conditions=conditions), again


def _available(known: Sequence[Progress], enough: bool, now: float) -> Progress:
    fresh = Progress(
        type="Available",
        status="True" if enough else "False",
        reason="MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
        message=f"Deployment {'has' if enough else 'does not have'} minimum availability.",
    )
    return _confirmed(known, fresh, now)


def _progressing(
    deployment: Deployment, counted: RolloutStatus, new: ReplicaSet | None, *, now: float
) -> tuple[list[Progress], float | None]:
    spec, before = deployment.spec, deployment.status
    deadline = _DEADLINE if spec.progress_deadline_seconds is None else spec.progress_deadline_seconds
    current = next((one for one in before.conditions if one.type == "Progressing"), None)
    if deadline == _NO_DEADLINE:
        return [], None
    if spec.paused:
        return [_progress(before, "Unknown", "DeploymentPaused", "Deployment is paused", now)], None
    if current is not None and current.reason == "DeploymentPaused":
        return [_progress(before, "Unknown", "DeploymentResumed", "Deployment is resumed", now)], float(deadline)
    if current is None:
        message = f'Created new replica set "{new.name if new is not None else deployment.name}"'
        return [_progress(before, "True", "NewReplicaSetCreated", message, now)], float(deadline)
    return _measured(deployment, counted, current, new.name if new is not None else deployment.name, deadline, now)


def _measured(
    deployment: Deployment, counted: RolloutStatus, current: Progress, name: str, deadline: int, now: float
) -> tuple[list[Progress], float | None]:
    """By what has changed since the last look, and how long ago that was."""
    before = deployment.status
    if _complete(deployment, counted):
        message = f'ReplicaSet "{name}" has successfully progressed.'
        return [_progress(before, "True", "NewReplicaSetAvailable", message, now)], None
    if _moved(before, counted):
        message = f'ReplicaSet "{name}" is progressing.'
        fresh = Progress(type="Progressing", status="True", reason="ReplicaSetUpdated", message=message)
        return [replace(fresh, last_update_time=format_time(now))], float(deadline)
    if current.reason == "NewReplicaSetAvailable":
        message = f'ReplicaSet "{name}" is progressing.'
        if before.observed_generation == deployment.metadata.generation:
            return [], None  # pods come and go after a rollout; that is no rollout
        return [_progress(before, "True", "ReplicaSetUpdated", message, now)], float(deadline)
    left = parse_time(current.last_update_time or format_time(now)).timestamp() + deadline - now
    if left > 0 and current.reason != "ProgressDeadlineExceeded":
        return [], left
    message = f'ReplicaSet "{name}" has timed out progressing.'
    return [_progress(before, "False", "ProgressDeadlineExceeded", message, now)], None


def _complete(deployment: Deployment, counted: RolloutStatus) -> bool:
    wanted = 1 if deployment.spec.replicas is None else deployment.spec.replicas
    return counted.updated_replicas == counted.replicas == counted.available_replicas == wanted


def _moved(before: RolloutStatus, after: RolloutStatus) -> bool:
    return (
        after.updated_replicas > before.updated_replicas
        or after.replicas - after.updated_replicas < before.replicas - before.updated_replicas
        or after.ready_replicas > before.ready_replicas
        or after.available_replicas > before.available_replicas
    )


def _progress(before: RolloutStatus, status: str, reason: str, message: str, now: float) -> Progress:
    fresh = Progress(type="Progressing", status=status, reason=reason, message=message)
    return _confirmed(before.conditions, fresh, now)


def _confirmed(known: Sequence[Progress], fresh: Progress, now: float) -> Progress:
    """With the time of the last news: the known one, unless status or reason are new."""
    same = next((one for one in known if one.type == fresh.type), None)
    if same is not None and (same.status, same.reason) == (fresh.status, fresh.reason):
        return replace(fresh, last_update_time=same.last_update_time)
    return replace(fresh, last_update_time=format_time(now))
