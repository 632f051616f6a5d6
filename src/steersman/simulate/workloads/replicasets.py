"""ReplicaSets: as many pods as asked for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from steersman.simulate.plan import Plan
from steersman.simulate.workloads.pods import count_pods, is_active, is_ready, is_terminating, pod_from

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.simulate.kinds import SimulatedPod, SimulatedReplicaSet


def plan_replica_set(owner: SimulatedReplicaSet, pods: Sequence[SimulatedPod], *, now: float) -> Plan:
    """Create what is missing; of too many, delete those that would be missed least."""
    active = [pod for pod in pods if is_active(pod)]
    wanted = _replicas(owner)
    surplus = sorted(active, key=_usefulness)[: max(0, len(active) - wanted)]
    missing = max(0, wanted - len(active))
    count = count_pods(active, owner.spec.min_ready_seconds, now)
    expected = (owner.spec.template.get("metadata") or {}).get("labels") or {}
    status = replace(
        owner.status,
        observed_generation=owner.metadata.generation,
        replicas=count.total,
        fully_labeled_replicas=sum(expected.items() <= pod.labels.items() for pod in active),
        ready_replicas=count.ready,
        available_replicas=count.available,
        terminating_replicas=sum(map(is_terminating, pods)),
    )
    return Plan(
        create=tuple(pod_from(owner.spec.template, owner) for _ in range(missing)),
        delete=tuple(surplus),
        status=None if missing else status,  # the new pods bring us back here at once
        again=count.again,
    )


def _replicas(owner: SimulatedReplicaSet) -> int:
    return 1 if owner.spec.replicas is None else owner.spec.replicas


def _usefulness(pod: SimulatedPod) -> tuple[bool, bool, bool, float, str]:
    """Least useful first: not scheduled, not running, not ready, then the youngest."""
    born = pod.created
    return (
        bool(pod.spec.get("nodeName")),
        pod.status.phase == "Running",
        is_ready(pod),
        -born.timestamp() if born else 0.0,
        pod.name,
    )
