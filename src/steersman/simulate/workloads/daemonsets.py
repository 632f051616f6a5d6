"""DaemonSets: one pod on every node that takes it. An update replaces pods where maxUnavailable allows. Pure.

Pods name their node from the start, so nothing has to schedule them. maxSurge is not known here: a node never has two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from steersman.simulate.nodes import fits
from steersman.simulate.plan import Plan
from steersman.simulate.workloads.pods import (
    REVISION_LABEL,
    count_pods,
    is_active,
    is_ready,
    limit,
    pod_from,
    until_available,
)
from steersman.simulate.workloads.revisions import history, template_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.kube.api.types.apps import ControllerRevision
    from steersman.kube.api.types.core import Node
    from steersman.simulate.kinds import SimulatedDaemonSet, SimulatedPod

TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_TOLERATED = ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")


def plan_daemon_set(
    owner: SimulatedDaemonSet,
    pods: Sequence[SimulatedPod],
    nodes: Sequence[Node],
    revisions: Sequence[ControllerRevision],
    *,
    now: float,
) -> Plan:
    """A pod for every node without one, none for others, and the next ones to be replaced."""
    past = history(owner, revisions, {pod.labels.get(REVISION_LABEL, "") for pod in pods})
    digest = past.present.labels[REVISION_LABEL]
    spec = owner.spec.template.get("spec") or {}
    wanted = [node.name for node in nodes if not node.deleting and fits(spec, node, daemon=True)]
    finished = [pod for pod in pods if not is_active(pod) and not pod.deleting]
    alive = {pod.spec.get("nodeName", ""): pod for pod in pods if is_active(pod)}
    occupied = {pod.spec.get("nodeName", "") for pod in pods}
    create = [_new_pod(owner, past.present, node) for node in wanted if node not in occupied]
    stray = [pod for node, pod in alive.items() if node not in wanted]
    placed = [alive[node] for node in wanted if node in alive]
    count = count_pods(placed, owner.spec.min_ready_seconds, now)
    status = replace(
        owner.status,
        observed_generation=owner.metadata.generation,
        desired_number_scheduled=len(wanted),
        current_number_scheduled=len(placed),
        updated_number_scheduled=sum(pod.labels.get(REVISION_LABEL) == digest for pod in placed),
        number_ready=count.ready,
        number_available=count.available,
        number_unavailable=len(wanted) - count.available,
        number_misscheduled=len(stray),
    )
    return Plan(
        create=(*past.create, *create),
        change=past.change,
        delete=(*finished, *stray, *_outdated(owner, placed, len(wanted), digest, now), *past.forget),
        status=status,
        again=count.again,
    )


def _new_pod(owner: SimulatedDaemonSet, revision: ControllerRevision, node: str) -> SimulatedPod:
    """A pod for one node: it tolerates what may be wrong with the node, and fits no other."""
    template = template_of(revision)
    spec = template.get("spec") or {}
    effects = dict.fromkeys(_TOLERATED, "NoSchedule") | dict.fromkeys(("not-ready", "unreachable"), "NoExecute")
    if spec.get("hostNetwork"):
        effects["network-unavailable"] = "NoSchedule"
    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect} for key, effect in effects.items()
    ]
    known = spec.get("tolerations") or []
    more = [toleration for toleration in tolerations if toleration not in known]
    affinity = spec.get("affinity") or {}
    here = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}
    placed = {**(affinity.get("nodeAffinity") or {}), "requiredDuringSchedulingIgnoredDuringExecution": here}
    labels = {REVISION_LABEL: revision.labels[REVISION_LABEL]}
    if generation := owner.annotations.get(TEMPLATE_GENERATION):
        labels["pod-template-generation"] = generation
    return pod_from(
        template,
        owner,
        labels=labels,
        spec={
            "nodeName": node,
            "tolerations": [*known, *more],
            "affinity": {**affinity, "nodeAffinity": placed},
        },
    )


def _outdated(
    owner: SimulatedDaemonSet, placed: Sequence[SimulatedPod], wanted: int, digest: str, now: float
) -> list[SimulatedPod]:
    """Pods of an old template that go now: those of no use at once, the others as far as the limit allows."""
    strategy = owner.spec.update_strategy
    if strategy is not None and strategy.type == "OnDelete":
        return []
    rolling = strategy.rolling_update if strategy is not None else None
    allowed = max(1, limit(rolling.max_unavailable if rolling else None, wanted, up=True, default=1))
    old = [pod for pod in placed if pod.labels.get(REVISION_LABEL) != digest]
    useless = [pod for pod in old if not is_ready(pod)]
    available = sum(until_available(pod, owner.spec.min_ready_seconds, now) == 0 for pod in placed)
    spare = allowed - (wanted - available)
    return [*useless, *[pod for pod in old if is_ready(pod)][: max(0, spare)]]
