"""Deployments: one ReplicaSet per template, and how pods move from the old ones to the new one.

Invariant: while rolling, there are never more than replicas + maxSurge pods asked for, and no available pod is given
up below replicas - maxUnavailable. A template that never becomes ready therefore stops its own rollout. Pods added
while rolling go to the new ReplicaSet; they are not shared out among all of them. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.kube.objects import ObjectMeta, owner_reference
from steersman.simulate.kinds import ReplicaSet, ReplicaSetSpec
from steersman.simulate.plan import Change, Plan
from steersman.simulate.rolloutstatus import rollout_status
from steersman.simulate.templates import HASH_LABEL, fingerprint, limit, unhashed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.simulate.kinds import Deployment

__all__ = ["REVISION", "Bounds", "bounds_of", "plan_deployment"]

REVISION = "deployment.kubernetes.io/revision"
_OWN_ANNOTATIONS = {REVISION, "kubectl.kubernetes.io/last-applied-configuration", "deprecated.deployment.rollback.to"}
_HISTORY = 10  # revisionHistoryLimit, when nobody set it


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How many pods there should be, may be and must be."""

    replicas: int
    most: int  # asked for at once
    least: int  # available at any time


def bounds_of(deployment: Deployment) -> Bounds:
    """The bounds of a rolling update; when both limits round to nothing, one pod may be missing."""
    replicas = 1 if deployment.spec.replicas is None else deployment.spec.replicas
    strategy = deployment.spec.strategy
    rolling = strategy.rolling_update if strategy is not None else None
    surge = limit(rolling.max_surge if rolling else None, replicas, up=True, default="25%")
    unavailable = limit(rolling.max_unavailable if rolling else None, replicas, up=False, default="25%")
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return Bounds(replicas=replicas, most=replicas + surge, least=max(0, replicas - unavailable))


def plan_deployment(deployment: Deployment, owned: Sequence[ReplicaSet], *, now: float) -> Plan:
    """The next step, which is also the last one when nothing is left to do."""
    ordered = sorted(owned, key=_age)
    new = _matching(deployment, ordered)
    olds = [one for one in ordered if one is not new]
    bounds = bounds_of(deployment)
    revision = 1 + max((_revision(old) for old in olds), default=0)
    if new is not None:
        revision = max(revision, _revision(new))
    sizes = _paused_sizes(new, olds, bounds) if deployment.spec.paused else _sizes(deployment, new, olds, bounds)
    create: tuple[ReplicaSet, ...] = ()
    changes = [_resized(old, sizes[old.name]) for old in olds if sizes[old.name] != size_of(old)]
    if new is not None:
        changes += _new_changes(deployment, new, sizes[new.name], revision)
    elif not deployment.spec.paused:
        create = (_new_replica_set(deployment, sizes[""], revision),)
    if (new is not None or create) and deployment.annotations.get(REVISION) != str(revision):
        changes.append(Change(deployment, _annotations_patch(deployment, {REVISION: str(revision)})))
    if create:  # it brings us back here at once, with something to report
        return Plan(create=create, change=tuple(changes))
    status, again = rollout_status(deployment, new, olds, bounds.least, now=now)
    return Plan(
        change=tuple(changes),
        delete=() if deployment.spec.paused else _forgotten(deployment, olds),
        status=status,
        again=again,
    )


def size_of(one: ReplicaSet) -> int:
    """How many pods it asks for."""
    return 1 if one.spec.replicas is None else one.spec.replicas


# ------------------------------------------------------------------------------------------------------------- sizes
Sizes = dict[str, int]  # replicas by name of the ReplicaSet; "" is the one that does not exist yet


def _sizes(deployment: Deployment, new: ReplicaSet | None, olds: Sequence[ReplicaSet], bounds: Bounds) -> Sizes:
    if deployment.spec.strategy is not None and deployment.spec.strategy.type == "Recreate":
        waiting = any(size_of(old) or old.status.replicas for old in olds)
        kept = size_of(new) if new is not None else 0
        return {old.name: 0 for old in olds} | {_name(new): kept if waiting else bounds.replicas}
    grown = _grown(new, olds, bounds)
    return _shrunk(new, grown, olds, bounds) | {_name(new): grown}


def _paused_sizes(new: ReplicaSet | None, olds: Sequence[ReplicaSet], bounds: Bounds) -> Sizes:
    """Nothing rolls, but who scales a paused Deployment gets what was asked for, from the one that has most."""
    everyone = [*olds, *([new] if new is not None else [])]
    sizes = {one.name: size_of(one) for one in everyone}
    if active := [one for one in everyone if size_of(one)]:
        largest = max(active, key=size_of)
        sizes[largest.name] = max(
            0, bounds.replicas - sum(size for name, size in sizes.items() if name != largest.name)
        )
    return sizes


def _grown(new: ReplicaSet | None, olds: Sequence[ReplicaSet], bounds: Bounds) -> int:
    size = size_of(new) if new is not None else 0
    room = bounds.most - size - sum(map(size_of, olds))
    return min(bounds.replicas, size + max(0, room))


def _shrunk(new: ReplicaSet | None, grown: int, olds: Sequence[ReplicaSet], bounds: Bounds) -> Sizes:
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
def _matching(deployment: Deployment, ordered: Sequence[ReplicaSet]) -> ReplicaSet | None:
    wanted = unhashed(deployment.spec.template)
    return next((one for one in ordered if unhashed(one.spec.template) == wanted), None)


def _new_replica_set(deployment: Deployment, replicas: int, revision: int) -> ReplicaSet:
    template = deployment.spec.template
    digest = fingerprint(unhashed(template))
    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), HASH_LABEL: digest}
    selector = deployment.spec.selector
    return ReplicaSet(
        metadata=ObjectMeta(
            name=f"{deployment.name}-{digest}",
            namespace=deployment.namespace,
            labels=labels,
            annotations={**_passed_on(deployment), REVISION: str(revision)},
            owner_references=[owner_reference(deployment)],
        ),
        spec=ReplicaSetSpec(
            replicas=replicas,
            min_ready_seconds=deployment.spec.min_ready_seconds,
            selector={**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH_LABEL: digest}},
            template={**template, "metadata": {**metadata, "labels": labels}},
        ),
    )


def _new_changes(deployment: Deployment, new: ReplicaSet, replicas: int, revision: int) -> list[Change]:
    wanted = {**_passed_on(deployment), REVISION: str(revision)}
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


def _resized(one: ReplicaSet, replicas: int) -> Change:
    return Change(one, {"spec": {"replicas": replicas}})


def _annotations_patch(obj: Deployment | ReplicaSet, wanted: Mapping[str, str]) -> dict[str, Any]:
    differing = {name: value for name, value in wanted.items() if obj.annotations.get(name) != value}
    return {"metadata": {"annotations": differing}}


def _passed_on(deployment: Deployment) -> dict[str, str]:
    """The annotations a ReplicaSet takes over: the cause of a change, and whatever people write."""
    return {name: value for name, value in deployment.annotations.items() if name not in _OWN_ANNOTATIONS}


def _forgotten(deployment: Deployment, olds: Sequence[ReplicaSet]) -> tuple[ReplicaSet, ...]:
    """Old templates beyond the history that is to be kept, the oldest first."""
    kept = deployment.spec.revision_history_limit
    empty = [old for old in olds if not size_of(old) and not old.status.replicas and not old.deleting]
    empty = [old for old in empty if old.status.observed_generation >= old.metadata.generation]
    surplus = max(0, len(empty) - (_HISTORY if kept is None else kept))
    return tuple(sorted(empty, key=_revision)[:surplus])


def _revision(one: ReplicaSet) -> int:
    text = one.annotations.get(REVISION, "")
    return int(text) if text.isdigit() else 0


def _age(one: ReplicaSet) -> tuple[str, str]:
    return (one.metadata.creation_timestamp or "", one.name)


def _name(one: ReplicaSet | None) -> str:
    return one.name if one is not None else ""
