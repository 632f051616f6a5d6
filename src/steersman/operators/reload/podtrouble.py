"""What pods say about a rollout that does not get on: the first reason that will not go away by itself.

Read from the server, only for a rollout that takes long, and dropped again: pods are many and no part of any decision
before that. Who may not read pods still learns from the deadline that a rollout failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from steersman.kube.errors import KubeError
from steersman.operators.reload.types import RESTARTED_AT
from steersman.operators.reload.workloadpods import pods_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.kube.client import Client
    from steersman.kube.types.pods import ContainerStatus, Pod
    from steersman.operators.reload.workloads import Workload

__all__ = ["trouble_in", "trouble_of"]

# Reasons to wait that do not end while nobody changes anything; ContainerCreating and PodInitializing do.
_HOPELESS: Final = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
_LONGEST: Final = 200  # characters of a message


async def trouble_of(client: Client, workload: Workload, stamp: str) -> str:
    """What the pods of the rollout with that stamp say; empty when they say nothing, or nobody may ask them."""
    try:
        return trouble_in(await pods_of(client, workload), stamp)
    except KubeError:
        return ""


def trouble_in(pods: Iterable[Pod], stamp: str) -> str:
    """`pod web-7f-abc: ImagePullBackOff (…)`: the first trouble of a pod that was started by that restart."""
    for pod in sorted(pods, key=lambda one: one.name):
        if (pod.metadata.annotations or {}).get(RESTARTED_AT) != stamp or pod.metadata.deletion_timestamp:
            continue
        status = pod.status
        for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
            reason = _trouble(container)
            if reason:
                return f"pod {pod.name}: {reason}"
    return ""


def _trouble(container: ContainerStatus) -> str:
    waiting = container.state.waiting if container.state is not None else None
    if waiting is None or waiting.reason not in _HOPELESS:
        return ""
    message = f" ({waiting.message[:_LONGEST]})" if waiting.message else ""
    return f"container {container.name}: {waiting.reason}{message}"
