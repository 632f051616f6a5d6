"""The status of performers and executors: phase, readiness and conditions, from pods, Deployment and issues. Pure.

The last condition is `Available`, because clients show its message to people. `Degraded` is true while a person should
act; a pod that only waits for a replacement slot or for its image is not degraded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.kube.api.times import format_time, parse_time
from steersman.operators.hourglass.api.types import ADOPTED, PERFORMER, TEMPLATE_HASH, pod_name
from steersman.operators.hourglass.api.validation import NOT_ALLOWED
from steersman.operators.hourglass.children.executor_children import selector_of
from steersman.operators.hourglass.children.replacement import PodHistory, is_ready
from steersman.runtime.reconcile.conditions import Condition, find_condition, new_condition, set_conditions
from steersman.runtime.workloads import CRASHED, IMAGE_UNAVAILABLE, is_rolled_out, stuck_containers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.kube.api.objects import Resource
    from steersman.kube.api.types.apps import Deployment
    from steersman.kube.api.types.pods import Pod
    from steersman.operators.hourglass.api.types import ExecutorSpec, StoredExecutor, StoredPerformer
    from steersman.runtime.reconcile.context import Context

Wire = dict[str, Any]


class Issue(msgspec.Struct, frozen=True):
    """What keeps a performer or an executor from being available."""

    reason: str
    message: str


class PerformerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a performer besides its pods."""

    hash: str = ""
    image: str = ""
    replicas: int = 1
    resources: frozenset[str] = frozenset()  # extended resources that its hardware needs
    cluster_domain: str = "cluster.local"
    blocked: Issue | None = None  # InvalidSpec, NotAllowed, NameConflict, AdmissionRejected: no child can be written
    warning: Issue | None = None  # an issue that blocks nothing
    upgrading: bool = False
    queued: str = ""  # why a replacement has to wait
    waiting_seconds: float = 0.0  # until a lost pod is created again
    history: PodHistory = PodHistory()


def history_of(performer: StoredPerformer) -> PodHistory:
    """The history that the status records; invalid values count as absent."""
    status = performer.status or {}
    last = status.get("lastRecreation")
    try:
        when = parse_time(last).timestamp() if isinstance(last, str) else 0.0
    except ValueError:
        when = 0.0
    return PodHistory(
        hash=_text(status.get("templateHash")),
        created=_number(status.get("createdReplicas")),
        recreations=_number(status.get("recreations")),
        last_recreation=when,
        upgrading=status.get("phase") == "Upgrading",
    )


def stored_conditions(status: Wire | None) -> list[Condition]:
    """The valid conditions of a status."""
    found = []
    for condition in (status or {}).get("conditions") or ():
        try:
            found.append(msgspec.convert(condition, Condition))
        except msgspec.ValidationError:
            continue
    return found


def performer_status(performer: StoredPerformer, pods: Sequence[Pod], facts: PerformerFacts, *, now: float) -> Wire:
    """The status of a performer."""
    before = performer.status or {}
    current = [pod for pod in pods if pod.annotations.get(TEMPLATE_HASH) == facts.hash]
    ready = [pod for pod in pods if is_ready(pod)]
    new_ready = [pod for pod in current if is_ready(pod)]
    shown = next(iter([*new_ready, *ready, *(pod for pod in current if not pod.deleting), *pods]), None)
    available = bool(ready) and len(ready) >= min(facts.replicas, 1)
    phase = _phase(performer, pods, facts)
    finished = before.get("phase") == "Upgrading" and phase == "Running"
    history = facts.history
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
        "templateHash": history.hash,
        "createdReplicas": history.created,
        "recreations": history.recreations,
        "readyTime": format_time(now) if finished else _ready_time(before, ready, now),
    }
    if history.last_recreation:
        status["lastRecreation"] = format_time(history.last_recreation)
    if finished:
        status["lastUpgrade"] = format_time(now)
    status["conditions"] = _conditions(performer, pods, ready, facts, phase, now)
    return status


def pod_issue(pods: Sequence[Pod], resources: frozenset[str] = frozenset()) -> Issue | None:
    """What keeps pods from becoming ready, as scheduler and kubelet report it; None when they only need time."""
    for pod in pods:
        if pod.deleting or is_ready(pod):
            continue
        if pod.status.phase in ("Failed", "Succeeded"):
            what = pod.status.reason or ("Completed" if pod.status.phase == "Succeeded" else "Failed")
            detail = f": {pod.status.message}" if pod.status.message else ""
            return Issue("PodFailed", f"Pod {pod.name} ended ({what}){detail}")
        if pod.status.phase == "Unknown":
            return Issue("NodeLost", f"The node of pod {pod.name} does not respond")
        if found := _stuck_container(pod) or _unscheduled(pod, resources):
            return found
    return None


def _stuck_container(pod: Pod) -> Issue | None:
    for container, waiting in stuck_containers(pod):
        if waiting.reason in IMAGE_UNAVAILABLE:
            return Issue("ImagePullFailed", f"Image {container.image}: {waiting.message or waiting.reason}")
        if waiting.reason in CRASHED:
            ended = container.last_state.terminated if container.last_state else None
            code = f", exit code {ended.exit_code}" if ended is not None else ""
            return Issue("CrashLoop", f"Container {container.name} restarted {container.restart_count} times{code}")
        return Issue("InvalidSpec", f"Container {container.name}: {waiting.message or waiting.reason}")
    return None


def _unscheduled(pod: Pod, resources: frozenset[str]) -> Issue | None:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            lacking = any(f"Insufficient {name}" in condition.message for name in resources)
            reason = "HardwareUnavailable" if lacking else "SchedulingFailed"
            return Issue(reason, condition.message or condition.reason)
    return None


def _phase(performer: StoredPerformer, pods: Sequence[Pod], facts: PerformerFacts) -> str:
    if performer.deleting:
        return "Terminating"
    if facts.upgrading:
        return "Upgrading"
    staying = [pod for pod in pods if not pod.deleting]
    if any(pod.status.phase == "Running" for pod in staying):
        return "Running"
    return "Failed" if any(pod.status.phase in ("Failed", "Succeeded") for pod in staying) else "Pending"


def _observed_image(before: Wire, facts: PerformerFacts) -> str:
    """The image that runs: the new one only after the replacement."""
    known = _text(before.get("observedImage"))
    return (known or facts.image) if facts.upgrading or facts.queued or not facts.image else facts.image


def _ready_time(before: Wire, ready: Sequence[Pod], now: float) -> str | None:
    """When it became ready: kept while it is ready, removed when it is not."""
    if not ready:
        return None
    known = before.get("readyTime")
    return known if before.get("ready") and isinstance(known, str) else format_time(now)


def _conditions(
    performer: StoredPerformer, pods: Sequence[Pod], ready: Sequence[Pod], facts: PerformerFacts, phase: str, now: float
) -> list[Wire]:
    generation = performer.metadata.generation
    issue = facts.blocked or pod_issue(pods, facts.resources)
    new = [
        _progressing(performer, facts, phase, generation),
        _degraded(issue, facts, generation),
        _available(performer, pods, ready, facts, issue, generation),
    ]
    known = stored_conditions(performer.status)
    kept = [condition for condition in known if find_condition(new, condition.type)]
    by_type = {condition.type: condition for condition in set_conditions(kept, *new, now=now)}
    return [msgspec.to_builtins(by_type[condition.type]) for condition in new]


def _progressing(performer: StoredPerformer, facts: PerformerFacts, phase: str, generation: int) -> Condition:
    if performer.deleting:
        return new_condition(
            "Progressing", True, "Terminating", "Waiting until its pods are gone", generation=generation
        )
    if phase == "Upgrading":
        text = f"Replacing pods; the new image is {facts.image}"
        return new_condition("Progressing", True, "UpgradeInProgress", text, generation=generation)
    if facts.queued:
        return new_condition("Progressing", True, "UpgradeQueued", facts.queued, generation=generation)
    return new_condition("Progressing", False, "Complete", "Pods match the spec", generation=generation)


def _degraded(issue: Issue | None, facts: PerformerFacts, generation: int) -> Condition:
    found = issue or facts.warning
    if found is None:
        return new_condition("Degraded", False, "AsExpected", "", generation=generation)
    return new_condition("Degraded", True, found.reason, found.message, generation=generation)


def _available(
    performer: StoredPerformer,
    pods: Sequence[Pod],
    ready: Sequence[Pod],
    facts: PerformerFacts,
    issue: Issue | None,
    generation: int,
) -> Condition:
    def available(status: bool | None, reason: str, message: str) -> Condition:
        return new_condition("Available", status, reason, message, generation=generation)

    if performer.deleting:
        return available(False, "Terminating", "The performer is being deleted")
    if facts.blocked is not None and (not ready or facts.blocked.reason in ("InvalidSpec", NOT_ALLOWED)):
        return available(bool(ready), facts.blocked.reason, facts.blocked.message)
    if ready:
        return available(True, "PodReady", f"{len(ready)} of {facts.replicas} pods ready")
    if facts.replicas == 0:
        return available(False, "ScaledToZero", "spec.replicas is 0")
    if issue is not None:
        return available(None if issue.reason == "NodeLost" else False, issue.reason, issue.message)
    return available(False, *_not_ready_yet(pods, facts))


def _not_ready_yet(pods: Sequence[Pod], facts: PerformerFacts) -> tuple[str, str]:
    """Why no pod is ready yet, when there is no issue."""
    if facts.waiting_seconds > 0 and not any(not pod.deleting for pod in pods):
        text = f"A pod was lost {facts.history.recreations} times; it is created again after a delay"
        return "RecreationDelayed", text
    if facts.upgrading:
        return "UpgradeInProgress", "The old pod is gone, the new one is not ready yet"
    placed = [pod for pod in pods if pod.spec.node_name and not pod.deleting]
    if placed:
        return "Scheduled", f"Pod {placed[0].name} is starting on node {placed[0].spec.node_name}"
    return "PodPending", "The pod is waiting for a node" if pods else "The pod does not exist yet"


def executor_status(
    executor: StoredExecutor,
    spec: ExecutorSpec | None,
    live: Deployment | None,
    *,
    config_hash: str = "",
    issue: Issue | None = None,
    now: float,
) -> Wire:
    """The status of an executor."""
    before = executor.status or {}
    wanted = spec.replicas if spec is not None else 1
    status: Wire = {
        "replicas": live.status.replicas if live is not None else 0,
        "readyReplicas": live.status.ready_replicas if live is not None else 0,
        "phase": _executor_phase(executor, live, wanted),
        "selector": ",".join(f"{key}={value}" for key, value in selector_of(executor.name).items()),
        "observedGeneration": executor.metadata.generation,
    }
    if spec is not None:
        status["observedImage"] = spec.image
    if config_hash and before.get("configHash") != config_hash:
        status |= {"configHash": config_hash, "lastConfigUpdate": format_time(now)}
    fresh = _executor_conditions(executor, live, wanted, issue)
    merged = {known.type: known for known in set_conditions(stored_conditions(before), *fresh, now=now)}
    status["conditions"] = [msgspec.to_builtins(merged[condition.type]) for condition in fresh]
    return status


def _executor_phase(executor: StoredExecutor, live: Deployment | None, wanted: int) -> str:
    if executor.deleting:
        return "Terminating"
    if wanted == 0:
        return "Stopped"
    return "Running" if live is not None and _is_complete(live, wanted) else "Pending"


def _is_complete(live: Deployment, wanted: int) -> bool:
    return live.status.replicas == wanted and is_rolled_out(live)


def _executor_conditions(
    executor: StoredExecutor, live: Deployment | None, wanted: int, issue: Issue | None
) -> list[Condition]:
    generation = executor.metadata.generation

    def made(kind: str, status: bool, reason: str, message: str) -> Condition:
        return new_condition(kind, status, reason, message, generation=generation)

    ready = live.status.ready_replicas if live is not None else 0
    if executor.deleting:
        progressing = made("Progressing", True, "Terminating", "Waiting until its pods are gone")
    elif live is not None and not issue and not _is_complete(live, wanted):
        updated = f"{live.status.updated_replicas} of {wanted} pods have the latest template"
        progressing = made("Progressing", True, "RollingUpdate", updated)
    elif live is not None and ADOPTED in live.annotations:
        text = "Adopted from another version; the pod template is kept until the spec changes"
        progressing = made("Progressing", False, "Adopted", text)
    else:
        progressing = made("Progressing", False, "ConfigMapReady", "The latest configuration is in use")
    found = issue or _deployment_issue(live)
    degraded = (
        made("Degraded", True, found.reason, found.message) if found else made("Degraded", False, "AsExpected", "")
    )
    available = ready >= wanted > 0
    if executor.deleting:
        summary = made("Available", False, "Terminating", "The executor is being deleted")
    elif found and not available:
        summary = made("Available", False, found.reason, found.message)
    elif wanted == 0:
        summary = made("Available", False, "ScaledToZero", "spec.replicas is 0")
    elif available:
        summary = made("Available", True, "DeploymentAvailable", f"{ready} of {wanted} pods ready")
    else:
        summary = made("Available", False, "DeploymentUnavailable", f"{ready} of {wanted} pods ready")
    return [progressing, degraded, summary]


def _deployment_issue(live: Deployment | None) -> Issue | None:
    for condition in live.status.conditions if live is not None else ():
        if condition.type == "ReplicaFailure" and condition.status == "True":
            return Issue(condition.reason or "ReplicaFailure", condition.message)
        if condition.type == "Progressing" and condition.reason == "ProgressDeadlineExceeded":
            return Issue(condition.reason, condition.message)
    return None


def report_degraded(ctx: Context, obj: Resource, before: Wire | None, status: Wire) -> None:
    """An Event when an object becomes degraded."""
    known = find_condition(stored_conditions(before), "Degraded")
    degraded = next(condition for condition in status["conditions"] if condition["type"] == "Degraded")
    if degraded["status"] == "True" and (known is None or known.status != "True"):
        ctx.event(obj, degraded["reason"], degraded["message"], warning=True)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
