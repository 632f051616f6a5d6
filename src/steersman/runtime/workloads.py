"""What pods and Deployments say about themselves: ready, waiting and why, rolled out. Pure.

Controllers that create pods or Deployments ask the same four questions of them; the answers are those that `kubectl
get pods` and `kubectl rollout status` give.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.kube.api.types.apps import Deployment
    from steersman.kube.api.types.pods import ContainerStateWaiting, ContainerStatus, Pod

__all__ = [
    "CRASHED",
    "IMAGE_UNAVAILABLE",
    "INVALID_CONFIG",
    "is_active",
    "is_ready",
    "is_rolled_out",
    "stuck_containers",
]

# Reasons to wait that do not end while nothing else changes. ContainerCreating and PodInitializing end by themselves.
IMAGE_UNAVAILABLE: Final = frozenset(
    {"ErrImageNeverPull", "ErrImagePull", "ImageInspectError", "ImagePullBackOff", "InvalidImageName"}
)
CRASHED: Final = frozenset({"CrashLoopBackOff", "CreateContainerError", "RunContainerError"})
INVALID_CONFIG: Final = frozenset({"CreateContainerConfigError"})
_STUCK: Final = IMAGE_UNAVAILABLE | CRASHED | INVALID_CONFIG


def is_ready(pod: Pod) -> bool:
    """Whether the kubelet counts the pod as ready: its condition Ready is True."""
    return any(row.type == "Ready" and row.status == "True" for row in pod.status.conditions or ())


def is_active(pod: Pod) -> bool:
    """Whether the pod runs or is about to: it is neither being deleted nor at its end."""
    return not pod.metadata.deletion_timestamp and pod.status.phase not in ("Succeeded", "Failed")


def stuck_containers(pod: Pod) -> Iterator[tuple[ContainerStatus, ContainerStateWaiting]]:
    """The containers, init containers first, that wait for a reason that does not go away by itself."""
    for container in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())):
        waiting = container.state.waiting if container.state is not None else None
        if waiting is not None and waiting.reason in _STUCK:
            yield container, waiting


def is_rolled_out(deployment: Deployment) -> bool:
    """Whether every pod has the newest template and is ready, and none has an older one."""
    wanted = 1 if deployment.spec.replicas is None else deployment.spec.replicas
    status = deployment.status
    counts = {status.replicas or 0, status.updated_replicas or 0, status.ready_replicas or 0}
    return (status.observed_generation or 0) >= deployment.metadata.generation and counts == {wanted}
