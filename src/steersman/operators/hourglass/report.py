"""What a performer says about itself: phase, readiness and conditions, from its pods and from what stands in the way.

The last condition is `Available`, because clients show its message to people. `Degraded` is true while somebody should
look; a pod that merely waits for its turn or for its image is not that. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.kube.times import format_time, parse_time
from steersman.operators.hourglass.replacement import Memory, is_ready
from steersman.operators.hourglass.types import PERFORMER, TEMPLATE_HASH, pod_name
from steersman.runtime.conditions import Condition, condition, find_condition, with_conditions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.kube.types.pods import Pod
    from steersman.operators.hourglass.types import StoredPerformer

__all__ = ["Facts", "Trouble", "memory_of", "performer_status", "stored_conditions", "trouble_of"]

Wire = dict[str, Any]

IMAGE_REASONS: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
CRASH_REASONS: Final = frozenset({"CrashLoopBackOff", "RunContainerError", "CreateContainerError"})
CONFIG_REASONS: Final = frozenset({"CreateContainerConfigError"})


class Trouble(msgspec.Struct, frozen=True):
    """What keeps a performer from being available."""

    reason: str
    message: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a performer besides its pods."""

    hash: str = ""
    image: str = ""
    replicas: int = 1
    resources: frozenset[str] = frozenset()  # extended resources that its hardware needs
    cluster_domain: str = "cluster.local"
    blocked: Trouble | None = None  # InvalidSpec, NameConflict, AdmissionRejected: nothing can be made
    warning: Trouble | None = None  # something to look at that blocks nothing
    upgrading: bool = False
    queued: str = ""  # why a replacement has not begun
    waiting_seconds: float = 0.0  # until a lost pod is made again
    memory: Memory = Memory()


def memory_of(performer: StoredPerformer) -> Memory:
    """What the status remembers; nonsense in it is forgotten."""
    status = performer.status or {}
    last = status.get("lastRecreation")
    try:
        when = parse_time(last).timestamp() if isinstance(last, str) else 0.0
    except ValueError:
        when = 0.0
    return Memory(
        hash=_text(status.get("templateHash")),
        created=_number(status.get("createdReplicas")),
        recreations=_number(status.get("recreations")),
        last_recreation=when,
        upgrading=status.get("phase") == "Upgrading",
    )


def stored_conditions(status: Wire | None) -> list[Condition]:
    """The conditions an object has, those that can be read."""
    found = []
    for one in (status or {}).get("conditions") or ():
        try:
            found.append(msgspec.convert(one, Condition))
        except msgspec.ValidationError:
            continue
    return found


def performer_status(performer: StoredPerformer, pods: Sequence[Pod], facts: Facts, *, now: float) -> Wire:
    """The whole status, as it should be written."""
    before = performer.status or {}
    current = [pod for pod in pods if pod.annotations.get(TEMPLATE_HASH) == facts.hash]
    ready = [pod for pod in pods if is_ready(pod)]
    new_ready = [pod for pod in current if is_ready(pod)]
    shown = next(iter([*new_ready, *ready, *(pod for pod in current if not pod.deleting), *pods]), None)
    available = bool(ready) and len(ready) >= min(facts.replicas, 1)
    phase = _phase(performer, pods, facts)
    finished = before.get("phase") == "Upgrading" and phase == "Running"
    memory = facts.memory
    status: Wire = {
        "phase": phase,
        "ready": available and not performer.deleting,
        "podName": "" if shown is None else shown.name,
        "serviceName": pod_name(performer.name),
        "grpcEndpoint": f"{pod_name(performer.name)}.{performer.namespace}.svc.{facts.cluster_domain}",
        "replicas": len([pod for pod in pods if not pod.deleting]),
        "readyReplicas": len(ready),
        "selector": f"{PERFORMER}={performer.name}",
        "observedGeneration": performer.metadata.generation,
        "observedImage": _observed_image(before, facts),
        "templateHash": memory.hash,
        "createdReplicas": memory.created,
        "recreations": memory.recreations,
        "readyTime": format_time(now) if finished else _ready_time(before, ready, now),
    }
    if memory.last_recreation:
        status["lastRecreation"] = format_time(memory.last_recreation)
    if finished:
        status["lastUpgrade"] = format_time(now)
    status["conditions"] = _conditions(performer, pods, ready, facts, phase, now)
    return status


def trouble_of(pods: Sequence[Pod], resources: frozenset[str] = frozenset()) -> Trouble | None:
    """What keeps pods from serving, as scheduler and kubelet tell it; None when they just need time."""
    for pod in pods:
        if pod.deleting or is_ready(pod):
            continue
        if pod.status.phase in ("Failed", "Succeeded"):
            what = pod.status.reason or ("Completed" if pod.status.phase == "Succeeded" else "Failed")
            detail = f": {pod.status.message}" if pod.status.message else ""
            return Trouble("PodFailed", f"pod {pod.name} ended ({what}){detail}")
        if pod.status.phase == "Unknown":
            return Trouble("NodeLost", f"the node of pod {pod.name} does not answer")
        if found := _waiting(pod) or _unscheduled(pod, resources):
            return found
    return None


# ---------------------------------------------------------------------------------------------------------- inside
def _waiting(pod: Pod) -> Trouble | None:
    for container in pod.status.container_statuses:
        waiting = container.state.waiting if container.state else None
        if waiting is None:
            continue
        if waiting.reason in IMAGE_REASONS:
            return Trouble("ImagePullFailed", f"{container.image or 'the image'}: {waiting.message or waiting.reason}")
        if waiting.reason in CRASH_REASONS:
            ended = container.last_state.terminated if container.last_state else None
            code = f", exit code {ended.exit_code}" if ended is not None else ""
            return Trouble("CrashLoop", f"container {container.name} restarted {container.restart_count} times{code}")
        if waiting.reason in CONFIG_REASONS:
            return Trouble("InvalidSpec", f"container {container.name}: {waiting.message or waiting.reason}")
    return None


def _unscheduled(pod: Pod, resources: frozenset[str]) -> Trouble | None:
    for one in pod.status.conditions:
        if one.type == "PodScheduled" and one.status == "False":
            lacking = any(f"Insufficient {name}" in one.message for name in resources)
            return Trouble("HardwareUnavailable" if lacking else "SchedulingFailed", one.message or one.reason)
    return None


def _phase(performer: StoredPerformer, pods: Sequence[Pod], facts: Facts) -> str:
    if performer.deleting:
        return "Terminating"
    if facts.upgrading:
        return "Upgrading"
    staying = [pod for pod in pods if not pod.deleting]
    if any(pod.status.phase == "Running" for pod in staying):
        return "Running"
    return "Failed" if any(pod.status.phase in ("Failed", "Succeeded") for pod in staying) else "Pending"


def _observed_image(before: Wire, facts: Facts) -> str:
    """The image that runs: the new one only when the replacement is over."""
    known = _text(before.get("observedImage"))
    return (known or facts.image) if facts.upgrading or facts.queued or not facts.image else facts.image


def _ready_time(before: Wire, ready: Sequence[Pod], now: float) -> str | None:
    """When it became ready: kept while it is, gone when it is not."""
    if not ready:
        return None
    known = before.get("readyTime")
    return known if before.get("ready") and isinstance(known, str) else format_time(now)


def _conditions(
    performer: StoredPerformer, pods: Sequence[Pod], ready: Sequence[Pod], facts: Facts, phase: str, now: float
) -> list[Wire]:
    generation = performer.metadata.generation
    trouble = facts.blocked or trouble_of(pods, facts.resources)
    new = [
        _progressing(performer, facts, phase, generation),
        _degraded(trouble, facts, generation),
        _available(performer, pods, ready, facts, trouble, generation),
    ]
    known = stored_conditions(performer.status)
    fresh = with_conditions([one for one in known if find_condition(new, one.type)], *new, now=now)
    by_type = {one.type: one for one in fresh}
    return [msgspec.to_builtins(by_type[one.type]) for one in new]


def _progressing(performer: StoredPerformer, facts: Facts, phase: str, generation: int) -> Condition:
    if performer.deleting:
        return condition("Progressing", True, "Terminating", "waits until its pods are gone", generation=generation)
    if phase == "Upgrading":
        text = f"pods are being replaced; the new image is {facts.image}"
        return condition("Progressing", True, "UpgradeInProgress", text, generation=generation)
    if facts.queued:
        return condition("Progressing", True, "UpgradeQueued", facts.queued, generation=generation)
    return condition("Progressing", False, "Complete", "pods are as the spec asks", generation=generation)


def _degraded(trouble: Trouble | None, facts: Facts, generation: int) -> Condition:
    found = trouble or facts.warning
    if found is None:
        return condition("Degraded", False, "AsExpected", "", generation=generation)
    return condition("Degraded", True, found.reason, found.message, generation=generation)


def _available(
    performer: StoredPerformer,
    pods: Sequence[Pod],
    ready: Sequence[Pod],
    facts: Facts,
    trouble: Trouble | None,
    generation: int,
) -> Condition:
    def made(status: bool | None, reason: str, message: str) -> Condition:
        return condition("Available", status, reason, message, generation=generation)

    if performer.deleting:
        return made(False, "Terminating", "is being deleted")
    if facts.blocked is not None and (not ready or facts.blocked.reason == "InvalidSpec"):
        return made(bool(ready), facts.blocked.reason, facts.blocked.message)
    if ready:
        return made(True, "PodReady", f"{len(ready)} of {facts.replicas} pods ready")
    if facts.replicas == 0:
        return made(False, "ScaledToZero", "no pods are asked for")
    if trouble is not None:
        return made(None if trouble.reason == "NodeLost" else False, trouble.reason, trouble.message)
    return made(False, *_still_coming(pods, facts))


def _still_coming(pods: Sequence[Pod], facts: Facts) -> tuple[str, str]:
    """Why there is no ready pod yet, when nothing is wrong."""
    if facts.waiting_seconds > 0 and not any(not pod.deleting for pod in pods):
        return "RecreationDelayed", f"a pod was lost {facts.memory.recreations} times; made again after a pause"
    if facts.upgrading:
        return "UpgradeInProgress", "the old pod is gone, the new one is not ready yet"
    placed = [pod for pod in pods if pod.spec.node_name and not pod.deleting]
    if placed:
        return "Scheduled", f"pod {placed[0].name} starts on node {placed[0].spec.node_name}"
    return "PodPending", "the pod waits for a node" if pods else "the pod is not there yet"


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
