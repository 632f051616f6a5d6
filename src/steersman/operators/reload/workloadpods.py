"""The pods of a workload, read from the server when something is done with each of them, and dropped again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.errors import FormatError
from steersman.kube.times import parse_time
from steersman.kube.types.pods import Pod
from steersman.operators.reload.podowners import belongs_to

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.kube.client import Client
    from steersman.operators.reload.workloads import Workload

__all__ = ["created", "is_ready", "living", "pods_of"]


async def pods_of(client: Client, workload: Workload) -> list[Pod]:
    """The workload's own pods among those that its selector finds; none when it has no selector."""
    selector = workload.facts.selector
    if not selector:
        return []
    found = await client.list(Pod, namespace=workload.namespace, label_selector=selector)
    return [pod for pod in found.items if belongs_to(pod, workload)]


def living(pods: Iterable[Pod]) -> list[Pod]:
    """Those that run or are about to."""
    return [
        pod for pod in pods if not pod.metadata.deletion_timestamp and pod.status.phase not in ("Succeeded", "Failed")
    ]


def is_ready(pod: Pod) -> bool:
    """Whether it takes part."""
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions or ())


def created(pod: Pod) -> float:
    """When it was created, in seconds since the epoch."""
    try:
        return parse_time(pod.metadata.creation_timestamp or "").timestamp()
    except FormatError:
        return 0.0
