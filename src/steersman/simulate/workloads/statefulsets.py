"""StatefulSets: pods with numbers, started from the first, replaced and removed from the last.

Invariant: with the ordered policy there is at most one pod at a time that is not ready on its way up, down or through
an update. Pods below the partition keep the revision before the update. Volume claims are named in the pods, but not
made: nothing is stored. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from steersman.simulate.plan import Plan
from steersman.simulate.workloads.pods import REVISION_LABEL, count_pods, is_active, is_ready, pod_from
from steersman.simulate.workloads.revisions import RevisionHistory, history, template_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.kube.api.types.apps import ControllerRevision, StatefulSetStatus
    from steersman.simulate.kinds import JSON, SimulatedPod, SimulatedStatefulSet


def plan_stateful_set(
    owner: SimulatedStatefulSet, pods: Sequence[SimulatedPod], revisions: Sequence[ControllerRevision], *, now: float
) -> Plan:
    """The next step: fill gaps upwards, remove downwards, then update downwards."""
    used = {owner.status.current_revision, *(pod.labels.get(REVISION_LABEL, "") for pod in pods)}
    past = history(owner, revisions, used)
    update = past.present
    current = next((revision for revision in revisions if revision.name == owner.status.current_revision), update)
    numbered = {number: pod for pod in pods if (number := _number(owner, pod)) is not None}
    create, delete, settled = _fill(owner, numbered, current, update)
    if settled:
        delete, settled = _condemned(owner, numbered)
    if settled:
        delete = _outdated(owner, numbered, update)
    count = count_pods([pod for pod in numbered.values() if is_active(pod)], owner.spec.min_ready_seconds, now)
    return Plan(
        create=(*past.create, *create),
        change=past.change,
        delete=(*delete, *past.forget),
        status=_status(owner, numbered, current, past, available=count.available),
        again=count.again,
    )


Pods = dict[int, "SimulatedPod"]


def _fill(
    owner: SimulatedStatefulSet, pods: Pods, current: ControllerRevision, update: ControllerRevision
) -> tuple[list[SimulatedPod], list[SimulatedPod], bool]:
    """Missing pods from the first number on; a pod that failed makes room for a new one."""
    ordered = _ordered(owner)
    create: list[SimulatedPod] = []
    delete: list[SimulatedPod] = []
    for number in _numbers(owner):
        pod = pods.get(number)
        if pod is None:
            create.append(_new_pod(owner, number, current if number < _partition(owner) else update))
        elif not pod.deleting and pod.status.phase in {"Failed", "Succeeded"}:
            delete.append(pod)
        elif not ordered or (is_ready(pod) and not pod.deleting):
            continue
        if ordered:
            return create, delete, not create and not delete and _may_replace(owner, pod, update)
    return create, delete, not create and not delete


def _may_replace(owner: SimulatedStatefulSet, pod: SimulatedPod | None, update: ControllerRevision) -> bool:
    """A pod that is not ready holds everything up, except a removal or an update that would replace that very pod."""
    return pod is not None and not pod.deleting and _revision(pod) != update.name and _rolls(owner)


def _condemned(owner: SimulatedStatefulSet, pods: Pods) -> tuple[list[SimulatedPod], bool]:
    """Pods beyond the wanted number, the last one first."""
    wanted = set(_numbers(owner))
    surplus = [pods[number] for number in sorted(pods, reverse=True) if number not in wanted]
    if not surplus:
        return [], True
    step = surplus[:1] if _ordered(owner) else surplus
    return [pod for pod in step if not pod.deleting], False


def _outdated(owner: SimulatedStatefulSet, pods: Pods, update: ControllerRevision) -> list[SimulatedPod]:
    """The next pod to be replaced: the last one of another revision, once all after it are ready."""
    if not _rolls(owner):
        return []
    for number in sorted(pods, reverse=True):
        pod = pods[number]
        if number < _partition(owner) or pod.deleting:
            return []
        if _revision(pod) != update.name:
            return [pod]
        if not is_ready(pod):
            return []
    return []


def _status(
    owner: SimulatedStatefulSet,
    pods: Mapping[int, SimulatedPod],
    current: ControllerRevision,
    past: RevisionHistory,
    *,
    available: int,
) -> StatefulSetStatus:
    update = past.present
    alive = [pod for pod in pods.values() if is_active(pod)]
    updated = sum(_revision(pod) == update.name for pod in alive)
    ready = sum(map(is_ready, alive))
    wanted = len(_numbers(owner))
    if len(alive) == len(pods) == wanted == updated == ready and _rolls(owner):
        current = update
    return replace(
        owner.status,
        observed_generation=owner.metadata.generation,
        replicas=len(alive),
        ready_replicas=ready,
        available_replicas=available,
        current_replicas=sum(_revision(pod) == current.name for pod in alive),
        updated_replicas=updated,
        current_revision=current.name,
        update_revision=update.name,
        collision_count=owner.status.collision_count or 0,
    )


def _new_pod(owner: SimulatedStatefulSet, number: int, revision: ControllerRevision) -> SimulatedPod:
    template = template_of(revision)
    name = f"{owner.name}-{number}"
    labels = {
        REVISION_LABEL: revision.name,
        "statefulset.kubernetes.io/pod-name": name,
        "apps.kubernetes.io/pod-index": str(number),
    }
    claims = [_claim(claim["metadata"]["name"], name) for claim in owner.spec.volume_claim_templates]
    claimed = {volume["name"] for volume in claims}
    volumes = [volume for volume in (template.get("spec") or {}).get("volumes") or () if volume["name"] not in claimed]
    spec = {"hostname": name, "subdomain": owner.spec.service_name, "volumes": [*volumes, *claims]}
    return pod_from(template, owner, name=name, labels=labels, spec=spec)


def _claim(volume: str, pod: str) -> JSON:
    return {"name": volume, "persistentVolumeClaim": {"claimName": f"{volume}-{pod}"}}


def _numbers(owner: SimulatedStatefulSet) -> range:
    start = (owner.spec.ordinals or {}).get("start", 0)
    return range(start, start + (1 if owner.spec.replicas is None else owner.spec.replicas))


def _number(owner: SimulatedStatefulSet, pod: SimulatedPod) -> int | None:
    prefix, _, digits = pod.name.rpartition("-")
    return int(digits) if prefix == owner.name and digits.isdecimal() else None


def _ordered(owner: SimulatedStatefulSet) -> bool:
    return owner.spec.pod_management_policy != "Parallel"


def _rolls(owner: SimulatedStatefulSet) -> bool:
    strategy = owner.spec.update_strategy
    return strategy is None or strategy.type in {"", "RollingUpdate"}


def _partition(owner: SimulatedStatefulSet) -> int:
    strategy = owner.spec.update_strategy
    rolling = strategy.rolling_update if strategy is not None else None
    return (rolling.partition or 0) + _numbers(owner).start if rolling is not None else 0


def _revision(pod: SimulatedPod) -> str:
    return pod.labels.get(REVISION_LABEL, "")
