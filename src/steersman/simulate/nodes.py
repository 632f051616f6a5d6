"""Nodes: what one looks like, and which of them a pod can go to. Pure."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from msgspec.structs import replace

from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types.core import Node, NodeAddress, NodeCondition, NodeSystemInfo
from steersman.simulate.annotations import FAIL
from steersman.simulate.plan import Plan, with_conditions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.kube.api.types.core import Taint
    from steersman.simulate.kinds import JSON, SimulatedPod

_CAPACITY = {"cpu": "64", "memory": "256Gi", "pods": "10000", "ephemeral-storage": "1Ti"}
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
_DAEMON_TAINTS = {  # what every pod of a DaemonSet lives with
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/pid-pressure",
}


def new_node(number: int) -> Node:
    """The node of that number, from 1."""
    name = f"node-{number}"
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return Node(metadata=ObjectMeta(name=name, labels=labels))


def plan_node(node: Node, *, now: float) -> Plan:
    """Ready, unless asked not to be."""
    ready = node.annotations.get(FAIL) != "not-ready"
    reason, message = ("KubeletReady", "simulated") if ready else ("KubeletNotReady", f"asked for by {FAIL}")
    conditions = [
        *(NodeCondition(type=kind, status="False", reason="KubeletHasNo" + kind) for kind in _PRESSURES),
        NodeCondition(type="Ready", status="True" if ready else "False", reason=reason, message=message),
    ]
    status = replace(
        node.status,
        capacity=node.status.capacity or _CAPACITY,
        allocatable=node.status.allocatable or _CAPACITY,
        conditions=with_conditions(node.status.conditions, conditions, now=now),
        addresses=[
            NodeAddress(type="InternalIP", address=address_of(node.name)),
            NodeAddress(type="Hostname", address=node.name),
        ],
        node_info=NodeSystemInfo(
            machine_id=node.name,
            system_uuid=node.name,
            boot_id=node.name,
            kernel_version="simulated",
            os_image="simulated",
            container_runtime_version="simulated://1",
            kubelet_version="v1.36.3",
            kube_proxy_version="v1.36.3",
            operating_system="linux",
            architecture="amd64",
        ),
    )
    return Plan(status=status)


def address_of(node: str) -> str:
    """The address of a node; the same name always has the same one."""
    number = zlib.crc32(node.encode())
    return f"172.18.{number >> 8 & 255}.{number & 255}"


def choose_node(pod: SimulatedPod, nodes: Sequence[Node]) -> str | None:
    """One of the nodes that the pod can go to, chosen by its uid; None when there is none."""
    names = [node.name for node in nodes if not node.deleting and fits(pod.spec, node)]
    return names[zlib.crc32(pod.metadata.uid.encode()) % len(names)] if names else None


def fits(spec: JSON, node: Node, *, daemon: bool = False) -> bool:
    """Whether a pod with this spec can go there: by node selector, and by taints it does not tolerate.

    Affinity and resources are not considered.
    """
    if node.spec.unschedulable and not daemon:
        return False
    selector = spec.get("nodeSelector") or {}
    if not selector.items() <= node.labels.items():
        return False
    hard = [taint for taint in node.spec.taints if taint.effect in {"NoSchedule", "NoExecute"}]
    tolerations = spec.get("tolerations") or ()
    return all(
        (daemon and taint.key in _DAEMON_TAINTS) or any(_tolerates(toleration, taint) for toleration in tolerations)
        for taint in hard
    )


def _tolerates(toleration: JSON, taint: Taint) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.effect:
        return False
    if not toleration.get("key"):
        return bool(toleration.get("operator") == "Exists")
    if toleration["key"] != taint.key:
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.value
