"""Whose pod it is: the workload at the end of the chain of controllers. Pure.

A selector finds whatever carries its labels, also pods of others; what is done to a pod is done to those of one's own.
The controller in between is known by its name alone, so nothing but the pod is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.kube.types.pods import Pod
    from steersman.operators.reload.workloads import Workload

__all__ = ["belongs_to", "owner_of"]


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
