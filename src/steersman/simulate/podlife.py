"""The life of a pod, as scheduler and kubelet would lead it.

    no node ──bind──► on a node ──► Running ──ready-after──► Ready        (restartPolicy Always)
                                       └─────complete-after──► Succeeded  (restartPolicy Never, OnFailure)
    deleted ──terminate-after──► gone

Invariant: what a pod should look like follows from its spec, its annotations and when it started, so an annotation
that is changed later changes the pod, and looking again changes nothing. Nothing runs, and restarts do not count up:
a crashing container shows one. Pure.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from steersman.errors import PlanError
from steersman.kube.times import format_time, parse_time
from steersman.kube.types.pods import PodCondition, PodIP, PodStatus
from steersman.simulate.annotations import Wishes, wishes_of
from steersman.simulate.containers import State, container_statuses
from steersman.simulate.nodes import address_of, choose_node
from steersman.simulate.plan import Plan, earliest, with_conditions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from steersman.simulate.kinds import Node, Pod

__all__ = ["PodPlan", "free_address", "plan_pod"]


class PodPlan(Plan, frozen=True, kw_only=True):
    """A plan for a pod: it may also be bound to a node, or be let go."""

    bind: str = ""
    finish: bool = False


def plan_pod(pod: Pod, nodes: Sequence[Node], taken: Callable[[str], bool], *, now: float) -> PodPlan:
    """The next step in the life of a pod. `taken` tells whether another pod has an address."""
    try:
        wishes = wishes_of(pod.annotations)
    except PlanError as error:
        return PodPlan(status=_stuck(pod, error.reason, str(error), now))
    if pod.deleting:
        return _ending(pod, wishes, now)
    if pod.status.phase in {"Succeeded", "Failed"} or pod.spec.get("schedulingGates"):
        return PodPlan()
    if not pod.spec.get("nodeName"):
        node = choose_node(pod, nodes)
        if node is None:
            message = f"0/{len(nodes)} nodes are available."
            return PodPlan(status=_stuck(pod, "Unschedulable", message, now, "PodScheduled"))
        return PodPlan(bind=node)
    return _living(pod, wishes, taken, now)


def free_address(uid: str, taken: Callable[[str], bool]) -> str:
    """An address nobody has, found from the uid."""
    start = zlib.crc32(uid.encode())
    for step in range(1 << 16):
        number = (start + step) & 0xFFFF
        address = f"10.244.{number >> 8}.{number & 255}"
        if number & 255 not in {0, 255} and not taken(address):
            return address
    raise PlanError("every address of the pod network is taken", reason="NoAddress")


def _ending(pod: Pod, wishes: Wishes, now: float) -> PodPlan:
    grace = pod.metadata.deletion_grace_period_seconds or 0
    if grace == 0:  # only finalizers hold it now
        return PodPlan()
    assert pod.metadata.deletion_timestamp is not None
    asked = parse_time(pod.metadata.deletion_timestamp).timestamp() - grace
    left = asked + min(wishes.terminate_after, grace) - now
    if wishes.terminate_after and left > 0:
        return PodPlan(again=earliest(left))
    return PodPlan(finish=True)


def _living(pod: Pod, wishes: Wishes, taken: Callable[[str], bool], now: float) -> PodPlan:
    start = pod.status.start_time or format_time(now)
    state, again = _state(pod, wishes, parse_time(start).timestamp(), now)
    ip = pod.status.pod_ip or _address(pod, taken)
    starting = state is State.PULLING
    status = replace(
        pod.status,
        phase=state.phase,
        start_time=start,
        host_ip=address_of(pod.spec["nodeName"]),
        pod_ip="" if starting else ip,
        pod_ips=() if starting else [PodIP(ip=ip)],
        conditions=_conditions(pod, state, now),
        container_statuses=container_statuses(pod, state, now),
        init_container_statuses=container_statuses(pod, state, now, init=True),
    )
    return PodPlan(status=status, again=again)


def _address(pod: Pod, taken: Callable[[str], bool]) -> str:
    if pod.spec.get("hostNetwork"):
        return address_of(pod.spec["nodeName"])
    return free_address(pod.metadata.uid, taken)


def _state(pod: Pod, wishes: Wishes, started: float, now: float) -> tuple[State, float | None]:
    """What the pod is now, and the seconds until it is something else by itself."""
    ends = pod.spec.get("restartPolicy", "Always") != "Always"
    if wishes.failure == "image-pull":
        return State.PULLING, None
    if wishes.failure == "crash":
        return State.FAILED if pod.spec.get("restartPolicy") == "Never" else State.CRASHING, None
    if wishes.failure == "never-ready":
        return State.RUNNING, None
    if ends:
        left = started + wishes.complete_after - now
        return (State.READY, earliest(left)) if wishes.complete_after and left > 0 else (State.SUCCEEDED, None)
    left = started + wishes.ready_after - now
    return (State.RUNNING, earliest(left)) if wishes.ready_after and left > 0 else (State.READY, None)


def _conditions(pod: Pod, state: State, now: float) -> list[PodCondition]:
    done = state is State.SUCCEEDED
    why = "PodCompleted" if done else "" if state is State.READY else "ContainersNotReady"
    initialized = state is not State.PULLING or not pod.spec.get("initContainers")
    gates = {gate["conditionType"] for gate in pod.spec.get("readinessGates") or ()}
    passed = {known.type for known in pod.status.conditions if known.status == "True"}
    closed = state is State.READY and not gates <= passed
    fresh = [
        _condition(pod, "PodReadyToStartContainers", not state.over),
        _condition(pod, "Initialized", initialized, "" if initialized else "ContainersNotInitialized"),
        _condition(pod, "Ready", state is State.READY and not closed, "ReadinessGatesNotReady" if closed else why),
        _condition(pod, "ContainersReady", state is State.READY, why),
        _condition(pod, "PodScheduled", True),
    ]
    return with_conditions(pod.status.conditions, fresh, now=now)


def _condition(pod: Pod, kind: str, holds: bool, reason: str = "") -> PodCondition:
    return PodCondition(
        type=kind,
        status="True" if holds else "False",
        reason=reason,
        observed_generation=pod.metadata.generation,
    )


def _stuck(pod: Pod, reason: str, message: str, now: float, kind: str = "Ready") -> PodStatus:
    """Pending, and why."""
    fresh = msgspec.structs.replace(_condition(pod, kind, False, reason), message=message)
    conditions = with_conditions(pod.status.conditions, [fresh], now=now)
    return replace(pod.status, phase="Pending", conditions=conditions)
