"""Deployments: one ReplicaSet per template, and how pods move from the old ones to the new one.

Invariant: while rolling, there are never more than replicas + maxSurge pods asked for, and no available pod is given
up below replicas - maxUnavailable. A template that never becomes ready therefore stops its own rollout. Pods added
while rolling go to the new ReplicaSet; they are not shared out among all of them. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from steersman.kube.api.objects import ObjectMeta, owner_reference
from steersman.kube.api.times import format_time, parse_time
from steersman.simulate.kinds import Progress, RolloutStatus, SimulatedReplicaSet, SimulatedReplicaSetSpec
from steersman.simulate.plan import Change, Plan, with_conditions
from steersman.simulate.workloads.pods import HASH_LABEL, fingerprint, limit, unhashed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.simulate.kinds import SimulatedDeployment

REVISION = "deployment.kubernetes.io/revision"
DESIRED_REPLICAS = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS = "deployment.kubernetes.io/max-replicas"
_OWN_ANNOTATIONS = {
    REVISION,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    "kubectl.kubernetes.io/last-applied-configuration",
    "deprecated.deployment.rollback.to",
}
_HISTORY = 10  # revisionHistoryLimit, the default


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How many pods there should be, may be and must be."""

    replicas: int
    most: int  # asked for at once
    least: int  # available at any time


def bounds_of(deployment: SimulatedDeployment) -> Bounds:
    """The bounds of a rolling update; when both limits round to nothing, one pod may be missing."""
    replicas = 1 if deployment.spec.replicas is None else deployment.spec.replicas
    strategy = deployment.spec.strategy
    rolling = strategy.rolling_update if strategy is not None else None
    surge = limit(rolling.max_surge if rolling else None, replicas, up=True, default="25%")
    unavailable = limit(rolling.max_unavailable if rolling else None, replicas, up=False, default="25%")
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return Bounds(replicas=replicas, most=replicas + surge, least=max(0, replicas - unavailable))


def plan_deployment(deployment: SimulatedDeployment, owned: Sequence[SimulatedReplicaSet], *, now: float) -> Plan:
    """The next step, which is also the last one when nothing is left to do."""
    ordered = sorted(owned, key=_age)
    new = _matching(deployment, ordered)
    olds = [replica_set for replica_set in ordered if replica_set is not new]
    bounds = bounds_of(deployment)
    revision = 1 + max((_revision(old) for old in olds), default=0)
    if new is not None:
        revision = max(revision, _revision(new))
    sizes = _paused_sizes(new, olds, bounds) if deployment.spec.paused else _sizes(deployment, new, olds, bounds)
    create: tuple[SimulatedReplicaSet, ...] = ()
    scale = _scale_annotations(deployment, bounds)
    changes = [_resized(old, sizes[old.name], scale) for old in olds if sizes[old.name] != size_of(old)]
    if new is not None:
        changes += _new_changes(deployment, new, sizes[new.name], {**scale, REVISION: str(revision)})
    elif not deployment.spec.paused:
        create = (_new_replica_set(deployment, sizes[""], {**scale, REVISION: str(revision)}),)
    if (new is not None or create) and deployment.annotations.get(REVISION) != str(revision):
        # through the status, as the real controller does: an annotation of the spec's own would be a new generation
        patch = _annotations_patch(deployment, {REVISION: str(revision)})
        changes.append(Change(deployment, patch, subresource="status"))
    if create:  # it brings us back here at once, with something to report
        return Plan(create=create, change=tuple(changes))
    status, again = rollout_status(deployment, new, olds, bounds.least, now=now)
    return Plan(
        change=tuple(changes),
        delete=() if deployment.spec.paused else _forgotten(deployment, olds),
        status=status,
        again=again,
    )


def size_of(replica_set: SimulatedReplicaSet) -> int:
    """How many pods it asks for."""
    return 1 if replica_set.spec.replicas is None else replica_set.spec.replicas


# ------------------------------------------------------------------------------------------------------------- sizes
Sizes = dict[str, int]  # replicas by name of the ReplicaSet; "" is the one that does not exist yet


def _sizes(
    deployment: SimulatedDeployment,
    new: SimulatedReplicaSet | None,
    olds: Sequence[SimulatedReplicaSet],
    bounds: Bounds,
) -> Sizes:
    if deployment.spec.strategy is not None and deployment.spec.strategy.type == "Recreate":
        waiting = any(size_of(old) or old.status.replicas for old in olds)
        kept = size_of(new) if new is not None else 0
        return {old.name: 0 for old in olds} | {_name(new): kept if waiting else bounds.replicas}
    grown = _grown(new, olds, bounds)
    return _shrunk(new, grown, olds, bounds) | {_name(new): grown}


def _paused_sizes(new: SimulatedReplicaSet | None, olds: Sequence[SimulatedReplicaSet], bounds: Bounds) -> Sizes:
    """Nothing rolls, but who scales a paused Deployment gets what was asked for, from the one that has most."""
    replica_sets = [*olds, *([new] if new is not None else [])]
    sizes = {replica_set.name: size_of(replica_set) for replica_set in replica_sets}
    if active := [replica_set for replica_set in replica_sets if size_of(replica_set)]:
        largest = max(active, key=size_of)
        sizes[largest.name] = max(
            0, bounds.replicas - sum(size for name, size in sizes.items() if name != largest.name)
        )
    return sizes


def _grown(new: SimulatedReplicaSet | None, olds: Sequence[SimulatedReplicaSet], bounds: Bounds) -> int:
    size = size_of(new) if new is not None else 0
    room = bounds.most - size - sum(map(size_of, olds))
    return min(bounds.replicas, size + max(0, room))


def _shrunk(new: SimulatedReplicaSet | None, grown: int, olds: Sequence[SimulatedReplicaSet], bounds: Bounds) -> Sizes:
    """Old ReplicaSets, first without pods that are of no use anyway, then as far as availability allows."""
    sizes = {old.name: size_of(old) for old in olds}
    new_available = new.status.available_replicas if new is not None else 0
    spare = grown + sum(sizes.values()) - bounds.least - max(0, grown - new_available)
    for old in olds:
        useless = min(max(0, sizes[old.name] - old.status.available_replicas), max(0, spare))
        sizes[old.name] -= useless
        spare -= useless
    available = new_available + sum(min(sizes[old.name], old.status.available_replicas) for old in olds)
    spare = min(spare, available - bounds.least)
    for old in olds:
        step = min(sizes[old.name], max(0, spare))
        sizes[old.name] -= step
        spare -= step
    return sizes


# ----------------------------------------------------------------------------------------------------------- objects
def _matching(deployment: SimulatedDeployment, ordered: Sequence[SimulatedReplicaSet]) -> SimulatedReplicaSet | None:
    wanted = unhashed(deployment.spec.template)
    return next((replica_set for replica_set in ordered if unhashed(replica_set.spec.template) == wanted), None)


def _scale_annotations(deployment: SimulatedDeployment, bounds: Bounds) -> dict[str, str]:
    """What a ReplicaSet says about the Deployment it is part of."""
    recreated = deployment.spec.strategy is not None and deployment.spec.strategy.type == "Recreate"
    most = bounds.replicas if recreated else bounds.most
    return {DESIRED_REPLICAS: str(bounds.replicas), MAX_REPLICAS: str(most)}


def _new_replica_set(
    deployment: SimulatedDeployment, replicas: int, annotations: Mapping[str, str]
) -> SimulatedReplicaSet:
    template = deployment.spec.template
    digest = fingerprint(unhashed(template))
    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), HASH_LABEL: digest}
    selector = deployment.spec.selector
    return SimulatedReplicaSet(
        metadata=ObjectMeta(
            name=f"{deployment.name}-{digest}",
            namespace=deployment.namespace,
            labels=labels,
            annotations={**_passed_on(deployment), **annotations},
            owner_references=[owner_reference(deployment)],
        ),
        spec=SimulatedReplicaSetSpec(
            replicas=replicas,
            min_ready_seconds=deployment.spec.min_ready_seconds,
            selector={**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH_LABEL: digest}},
            template={**template, "metadata": {**metadata, "labels": labels}},
        ),
    )


def _new_changes(
    deployment: SimulatedDeployment, new: SimulatedReplicaSet, replicas: int, annotations: Mapping[str, str]
) -> list[Change]:
    wanted = {**_passed_on(deployment), **annotations}
    patch: dict[str, Any] = {}
    if not wanted.items() <= new.annotations.items():
        patch |= _annotations_patch(new, wanted)
    spec: dict[str, Any] = {}
    if replicas != size_of(new):
        spec["replicas"] = replicas
    if new.spec.min_ready_seconds != deployment.spec.min_ready_seconds:
        spec["minReadySeconds"] = deployment.spec.min_ready_seconds
    if spec:
        patch |= {"spec": spec}
    return [Change(new, patch)] if patch else []


def _resized(replica_set: SimulatedReplicaSet, replicas: int, annotations: Mapping[str, str]) -> Change:
    return Change(replica_set, {**_annotations_patch(replica_set, annotations), "spec": {"replicas": replicas}})


def _annotations_patch(obj: SimulatedDeployment | SimulatedReplicaSet, wanted: Mapping[str, str]) -> dict[str, Any]:
    differing = {name: value for name, value in wanted.items() if obj.annotations.get(name) != value}
    return {"metadata": {"annotations": differing}}


def _passed_on(deployment: SimulatedDeployment) -> dict[str, str]:
    """The annotations a ReplicaSet takes over: the cause of a change, and whatever people write."""
    return {name: value for name, value in deployment.annotations.items() if name not in _OWN_ANNOTATIONS}


def _forgotten(deployment: SimulatedDeployment, olds: Sequence[SimulatedReplicaSet]) -> tuple[SimulatedReplicaSet, ...]:
    """Old templates beyond the history that is to be kept, the oldest first."""
    kept = deployment.spec.revision_history_limit
    empty = [old for old in olds if not size_of(old) and not old.status.replicas and not old.deleting]
    empty = [old for old in empty if old.status.observed_generation >= old.metadata.generation]
    surplus = max(0, len(empty) - (_HISTORY if kept is None else kept))
    return tuple(sorted(empty, key=_revision)[:surplus])


def _revision(replica_set: SimulatedReplicaSet) -> int:
    text = replica_set.annotations.get(REVISION, "")
    return int(text) if text.isdigit() else 0


def _age(replica_set: SimulatedReplicaSet) -> tuple[str, str]:
    return (replica_set.metadata.creation_timestamp or "", replica_set.name)


def _name(replica_set: SimulatedReplicaSet | None) -> str:
    return replica_set.name if replica_set is not None else ""


_NO_DEADLINE = 2**31 - 1
_DEADLINE = 600  # seconds, the default


def rollout_status(
    deployment: SimulatedDeployment,
    new: SimulatedReplicaSet | None,
    olds: Sequence[SimulatedReplicaSet],
    least: int,
    *,
    now: float,
) -> tuple[RolloutStatus, float | None]:
    """The status, and the seconds until the deadline when one is running."""
    replica_sets = [*olds, *([new] if new is not None else [])]
    replicas = sum(replica_set.status.replicas for replica_set in replica_sets)
    available = sum(replica_set.status.available_replicas for replica_set in replica_sets)
    counted = replace(
        deployment.status,
        observed_generation=deployment.metadata.generation,
        replicas=replicas,
        updated_replicas=new.status.replicas if new is not None else 0,
        ready_replicas=sum(replica_set.status.ready_replicas for replica_set in replica_sets),
        available_replicas=available,
        terminating_replicas=sum(replica_set.status.terminating_replicas or 0 for replica_set in replica_sets),
        unavailable_replicas=max(0, sum(replica_set.spec.replicas or 0 for replica_set in replica_sets) - available),
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
    deployment: SimulatedDeployment, counted: RolloutStatus, new: SimulatedReplicaSet | None, *, now: float
) -> tuple[list[Progress], float | None]:
    spec, before = deployment.spec, deployment.status
    deadline = _DEADLINE if spec.progress_deadline_seconds is None else spec.progress_deadline_seconds
    current = next((known for known in before.conditions if known.type == "Progressing"), None)
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
    deployment: SimulatedDeployment, counted: RolloutStatus, current: Progress, name: str, deadline: int, now: float
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
            return [], None  # pods come and go after a rollout; that is not a rollout
        return [_progress(before, "True", "ReplicaSetUpdated", message, now)], float(deadline)
    left = parse_time(current.last_update_time or format_time(now)).timestamp() + deadline - now
    if left > 0 and current.reason != "ProgressDeadlineExceeded":
        return [], left
    message = f'ReplicaSet "{name}" has timed out progressing.'
    return [_progress(before, "False", "ProgressDeadlineExceeded", message, now)], None


def _complete(deployment: SimulatedDeployment, counted: RolloutStatus) -> bool:
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
    same = next((condition for condition in known if condition.type == fresh.type), None)
    if same is not None and (same.status, same.reason) == (fresh.status, fresh.reason):
        return replace(fresh, last_update_time=same.last_update_time)
    return replace(fresh, last_update_time=format_time(now))
