"""The pods of a workload: which are its own, which are ready, and why they do not start.

Pods are read from the API server only when an action or a slow rollout needs them; none stay in memory. A selector may
also match pods of other workloads, so a pod counts only when its controller leads back to the workload. A ReplicaSet in
between is recognized by its name and the pod's labels, without another read.

Finding no pods does not prove that there are none: without a selector, or for a configured kind whose pods may have an
unknown controller in between, `pods_of` reports them as unknown, and callers conclude nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from steersman.errors import FormatError
from steersman.kube.api.errors import KubeError
from steersman.kube.api.times import parse_time
from steersman.kube.api.types.pods import Pod
from steersman.operators.reload.api.annotations import RESTARTED_AT
from steersman.runtime.workloads import stuck_containers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.kube.client.client import Client
    from steersman.operators.reload.api.config import WorkloadId
    from steersman.operators.reload.workloads.workload import Workload

_LONGEST: Final = 200  # characters of a message
_READ_SECONDS: Final = 1.0  # between two reads for stuck rollouts, over all workloads


class Pods(msgspec.Struct, frozen=True):
    """The pods of a workload, or why they are not known."""

    own: tuple[Pod, ...] = ()
    unknown: str = ""  # why not


class PodReads:
    """Spreads the reads of pods for stuck rollouts: one a second over all workloads, in the order they asked."""

    def __init__(self) -> None:
        self._waiting: dict[WorkloadId, None] = {}
        self._free = 0.0  # when the next read may be, on the monotonic clock

    def wait(self, workload: WorkloadId, now: float) -> float:
        """Seconds until the turn of a workload; 0: it reads now."""
        self._waiting.setdefault(workload)
        place = next(place for place, waiting in enumerate(self._waiting) if waiting == workload)
        seconds = self._free + place * _READ_SECONDS - now
        if seconds > 0:
            return seconds
        del self._waiting[workload]
        self._free = now + _READ_SECONDS
        return 0.0

    def leave(self, workload: WorkloadId) -> None:
        """The workload has nothing to read any more."""
        self._waiting.pop(workload, None)


async def pods_of(client: Client, workload: Workload) -> Pods:
    """The workload's own pods among those that its selector finds."""
    selector = workload.facts.selector
    if not selector:
        return Pods(unknown="the workload has no selector that finds its pods")
    found = (await client.list(Pod, namespace=workload.namespace, label_selector=selector)).items
    own = tuple(pod for pod in found if belongs_to(pod, workload))
    if not own and not workload.facts.may_lack_pods:
        none = f"the workload controls none of the {len(found)} pods that its selector finds"
        return Pods(unknown=f"{none}, and spec.replicas is not 0")
    return Pods(own)


def created(pod: Pod) -> float:
    """When it was created, in seconds since the epoch."""
    try:
        return parse_time(pod.metadata.creation_timestamp or "").timestamp()
    except FormatError:
        return 0.0


def owner_of(kind: str, name: str, labels: Mapping[str, str] | None) -> tuple[str, str]:
    """The workload of a pod with this controller and these labels, which may be behind a ReplicaSet."""
    labels = labels or {}
    if kind == "ReplicaSet":
        for label, above in (("pod-template-hash", "Deployment"), ("rollouts-pod-template-hash", "Rollout")):
            mark = labels.get(label)
            if mark and name.endswith(f"-{mark}"):
                return above, name.removesuffix(f"-{mark}")
    if kind == "ReplicationController" and "deploymentconfig" in labels:
        return "DeploymentConfig", labels["deploymentconfig"]
    return kind, name


def belongs_to(pod: Pod, workload: Workload) -> bool:
    """Whether a pod is this workload's own."""
    owner = pod.controller
    if owner is None:
        return False
    me = (type(workload).KIND.kind, workload.name)
    if (owner.kind, owner.name) == me:
        return owner.uid == workload.metadata.uid
    return owner_of(owner.kind, owner.name, pod.metadata.labels) == me


async def issue_of(client: Client, workload: Workload, stamp: str) -> str:
    """Why the pods of the rollout with that stamp do not start; empty when they do, or may not be read."""
    try:
        return issue_in((await pods_of(client, workload)).own, stamp)
    except KubeError:
        return ""


def issue_in(pods: Iterable[Pod], stamp: str) -> str:
    """`pod web-7f-abc: container app: ImagePullBackOff (…)`, of the first stuck pod that this restart started."""
    for pod in sorted(pods, key=lambda pod: pod.name):
        if (pod.metadata.annotations or {}).get(RESTARTED_AT) != stamp or pod.metadata.deletion_timestamp:
            continue
        for container, waiting in stuck_containers(pod):
            message = f" ({waiting.message[:_LONGEST]})" if waiting.message else ""
            return f"pod {pod.name}: container {container.name}: {waiting.reason}{message}"
    return ""
