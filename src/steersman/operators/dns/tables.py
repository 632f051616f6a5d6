"""What the page and `steersman status` show of this operator: zones and servers, from caches alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.operators.dns.serverkinds import Bind9Instance
from steersman.operators.dns.zonekinds import DNSZone
from steersman.runtime.conditions import find_condition
from steersman.runtime.parts import Row, State, Table
from steersman.runtime.sources import Selection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.runtime.cluster import Cluster

__all__ = ["tables_of"]


def tables_of(cluster: Cluster, namespaces: Sequence[str] | None) -> list[Table]:
    """Zones with serials, lag and drift; servers with what they serve."""
    where = Selection(namespaces=None if namespaces is None else frozenset(namespaces))
    with where.informer(cluster.caches, DNSZone).snapshot() as zones:
        zone_rows = [_zone(zone) for zone in zones]
    with where.informer(cluster.caches, Bind9Instance).snapshot() as instances:
        server_rows = [_instance(instance) for instance in instances]
    return [
        Table("Zones", ("zone", "namespace", "serial", "records", "instances", "behind", "drift", "reason"), zone_rows),
        Table("Servers", ("instance", "namespace", "role", "ready", "zones", "reason"), server_rows),
    ]


def _state(status: Any) -> tuple[State, str, str]:
    ready = find_condition(status.conditions if status is not None else None, "Ready")
    if ready is None:
        return State.BUSY, "Pending", ""
    return (State.GOOD if ready.status == "True" else State.BAD), ready.reason, ready.message


def _zone(zone: DNSZone) -> Row:
    state, word, note = _state(zone.status)
    status = zone.status
    rows = (status.bind9_instances if status is not None else None) or ()
    serial = status.serial if status is not None else 0
    behind = sum(row.role == "secondary" and row.serial != serial for row in rows)
    drift = status.drift_count if status is not None else 0
    if state is State.GOOD and behind:
        state, note = State.BUSY, f"{behind} secondaries have not reached serial {serial}"
    count = status.records_count if status is not None else 0
    return Row((zone.spec.zone_name, zone.namespace, serial, count, len(rows), behind, drift, word), state, note)


def _instance(instance: Bind9Instance) -> Row:
    state, word, note = _state(instance.status)
    status = instance.status
    ready = f"{status.ready_replicas}/{status.replicas}" if status is not None else ""
    zones = status.zones_count if status is not None else 0
    return Row((instance.name, instance.namespace, instance.spec.role, ready, zones, word), state, note)
