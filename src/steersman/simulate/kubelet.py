"""The life of a pod, as scheduler and kubelet would lead it.

    no node ──bind──► on a node ──► Running ──ready-after──► Ready        (restartPolicy Always)
                                       └─────complete-after──► Succeeded  (restartPolicy Never, OnFailure)
    deleted ──terminate-after──► gone

Invariant: what a pod should look like follows from its spec, its annotations and when it started, so an annotation
that is changed later changes the pod, and reconciling again changes nothing. Nothing runs, and restarts do not count
up: a crashing container shows one restart. Pure.
"""

from __future__ import annotations

import zlib
from enum import Enum
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from steersman.errors import PlanError
from steersman.kube.api.times import format_time, parse_time
from steersman.kube.api.types.pods import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    PodCondition,
    PodIP,
    PodStatus,
)
from steersman.simulate.annotations import PodBehavior, behavior_of
from steersman.simulate.nodes import address_of, choose_node
from steersman.simulate.plan import Plan, earliest, with_conditions
from steersman.simulate.workloads.pods import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from steersman.kube.api.types.core import Node
    from steersman.simulate.kinds import JSON, SimulatedPod


class PodPlan(Plan, frozen=True, kw_only=True):
    """A plan for a pod: it may also be bound to a node, or be let go."""

    bind: str = ""
    finish: bool = False


def plan_pod(pod: SimulatedPod, nodes: Sequence[Node], taken: Callable[[str], bool], *, now: float) -> PodPlan:
    """The next step in the life of a pod. `taken` tells whether another pod has an address."""
    try:
        behavior = behavior_of(pod.annotations)
    except PlanError as error:
        return PodPlan(status=_stuck(pod, error.reason, str(error), now))
    if pod.deleting:
        return _ending(pod, behavior, now)
    if pod.status.phase in {"Succeeded", "Failed"} or pod.spec.get("schedulingGates"):
        return PodPlan()
    if not pod.spec.get("nodeName"):
        node = choose_node(pod, nodes)
        if node is None:
            message = f"0/{len(nodes)} nodes are available."
            return PodPlan(status=_stuck(pod, "Unschedulable", message, now, "PodScheduled"))
        return PodPlan(bind=node)
    return _living(pod, behavior, taken, now)


def free_address(uid: str, taken: Callable[[str], bool]) -> str:
    """A free address, found from the uid."""
    start = zlib.crc32(uid.encode())
    for step in range(1 << 16):
        number = (start + step) & 0xFFFF
        address = f"10.244.{number >> 8}.{number & 255}"
        if number & 255 not in {0, 255} and not taken(address):
            return address
    raise PlanError("every address of the pod network is taken", reason="NoAddress")


def _ending(pod: SimulatedPod, behavior: PodBehavior, now: float) -> PodPlan:
    grace = pod.metadata.deletion_grace_period_seconds or 0
    if grace == 0:  # only finalizers hold it now
        return PodPlan()
    assert pod.metadata.deletion_timestamp is not None
    asked = parse_time(pod.metadata.deletion_timestamp).timestamp() - grace
    left = asked + min(behavior.terminate_after, grace) - now
    if behavior.terminate_after and left > 0:
        return PodPlan(again=earliest(left))
    return PodPlan(finish=True)


def _living(pod: SimulatedPod, behavior: PodBehavior, taken: Callable[[str], bool], now: float) -> PodPlan:
    start = pod.status.start_time or format_time(now)
    state, again = _state(pod, behavior, parse_time(start).timestamp(), now)
    ip = pod.status.pod_ip or _address(pod, taken)
    starting = state is PodState.PULLING
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


def _address(pod: SimulatedPod, taken: Callable[[str], bool]) -> str:
    if pod.spec.get("hostNetwork"):
        return address_of(pod.spec["nodeName"])
    return free_address(pod.metadata.uid, taken)


def _state(pod: SimulatedPod, behavior: PodBehavior, started: float, now: float) -> tuple[PodState, float | None]:
    """What the pod is now, and the seconds until it is something else by itself."""
    ends = pod.spec.get("restartPolicy", "Always") != "Always"
    if behavior.failure == "image-pull":
        return PodState.PULLING, None
    if behavior.failure == "crash":
        return PodState.FAILED if pod.spec.get("restartPolicy") == "Never" else PodState.CRASHING, None
    if behavior.failure == "never-ready":
        return PodState.RUNNING, None
    if ends:
        left = started + behavior.complete_after - now
        return (PodState.READY, earliest(left)) if behavior.complete_after and left > 0 else (PodState.SUCCEEDED, None)
    left = started + behavior.ready_after - now
    return (PodState.RUNNING, earliest(left)) if behavior.ready_after and left > 0 else (PodState.READY, None)


def _conditions(pod: SimulatedPod, state: PodState, now: float) -> list[PodCondition]:
    done = state is PodState.SUCCEEDED
    why = "PodCompleted" if done else "" if state is PodState.READY else "ContainersNotReady"
    initialized = state is not PodState.PULLING or not pod.spec.get("initContainers")
    gates = {gate["conditionType"] for gate in pod.spec.get("readinessGates") or ()}
    passed = {known.type for known in pod.status.conditions if known.status == "True"}
    closed = state is PodState.READY and not gates <= passed
    fresh = [
        _condition(pod, "PodReadyToStartContainers", not state.over),
        _condition(pod, "Initialized", initialized, "" if initialized else "ContainersNotInitialized"),
        _condition(pod, "Ready", state is PodState.READY and not closed, "ReadinessGatesNotReady" if closed else why),
        _condition(pod, "ContainersReady", state is PodState.READY, why),
        _condition(pod, "PodScheduled", True),
    ]
    return with_conditions(pod.status.conditions, fresh, now=now)


def _condition(pod: SimulatedPod, kind: str, holds: bool, reason: str = "") -> PodCondition:
    return PodCondition(
        type=kind,
        status="True" if holds else "False",
        reason=reason,
        observed_generation=pod.metadata.generation,
    )


def _stuck(pod: SimulatedPod, reason: str, message: str, now: float, kind: str = "Ready") -> PodStatus:
    """Pending, and why."""
    fresh = msgspec.structs.replace(_condition(pod, kind, False, reason), message=message)
    conditions = with_conditions(pod.status.conditions, [fresh], now=now)
    return replace(pod.status, phase="Pending", conditions=conditions)


class PodState(Enum):
    """How far a pod has come; the value is its phase and a word that tells states of one phase apart."""

    PULLING = ("Pending", "image cannot be pulled")
    RUNNING = ("Running", "not ready")
    READY = ("Running", "ready")
    CRASHING = ("Running", "crashing")
    SUCCEEDED = ("Succeeded", "")
    FAILED = ("Failed", "")

    @property
    def phase(self) -> str:
        """The phase of the pod."""
        return self.value[0]

    @property
    def over(self) -> bool:
        """Whether nothing will happen any more."""
        return self.phase in {"Succeeded", "Failed"}


def container_statuses(
    pod: SimulatedPod, state: PodState, now: float, *, init: bool = False
) -> Sequence[ContainerStatus]:
    """One per container, in the order of the spec. Init containers have ended well before the others begin."""
    reported = pod.status.init_container_statuses if init else pod.status.container_statuses
    known = {status.name: status for status in reported}
    containers: list[JSON] = pod.spec.get("initContainers" if init else "containers") or []
    if init and state is not PodState.PULLING:
        state = PodState.SUCCEEDED
    return [_status(pod, container, state, known.get(container["name"]), now) for container in containers] or ()


def _status(
    pod: SimulatedPod, container: JSON, state: PodState, known: ContainerStatus | None, now: float
) -> ContainerStatus:
    image = container.get("image", "")
    since = _since(known) or format_time(now)
    status = ContainerStatus(
        name=container["name"], image=image, ready=state is PodState.READY, started=False, last_state=ContainerState()
    )
    if state is PodState.PULLING:
        waiting = ContainerStateWaiting(reason="ImagePullBackOff", message=f'Back-off pulling image "{image}"')
        status.state = ContainerState(waiting=waiting)
        return status
    status.image_id = f"simulated://{fingerprint(image, 20)}"
    status.container_id = f"simulated://{fingerprint([pod.metadata.uid, container['name']], 20)}"
    if state in {PodState.RUNNING, PodState.READY}:
        status.started = True
        status.state = ContainerState(running=ContainerStateRunning(started_at=since))
    elif state is PodState.CRASHING:
        message = f"back-off 10s restarting failed container={container['name']} pod={pod.name}"
        status.restart_count = 1
        status.state = ContainerState(waiting=ContainerStateWaiting(reason="CrashLoopBackOff", message=message))
        status.last_state = ContainerState(terminated=_ended(1, since))
    else:
        status.state = ContainerState(terminated=_ended(1 if state is PodState.FAILED else 0, since))
    return status


def _ended(code: int, since: str) -> ContainerStateTerminated:
    reason = "Error" if code else "Completed"
    return ContainerStateTerminated(exit_code=code, reason=reason, started_at=since, finished_at=since)


def _since(known: ContainerStatus | None) -> str | None:
    """When the container started, as it said itself; so that saying it again changes nothing."""
    for state in (known.state, known.last_state) if known is not None else ():
        if state is not None and state.running is not None:
            return state.running.started_at
        if state is not None and state.terminated is not None:
            return state.terminated.started_at
    return None
