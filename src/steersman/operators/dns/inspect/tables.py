"""The tables of the page and of `steersman status`: zones and servers, from the caches of the controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.operators.dns.api.servers import Bind9Instance
from steersman.operators.dns.api.zone import DNSZone
from steersman.runtime.controller.watches import WatchSelection
from steersman.runtime.manager.operator_bundle import Row, RowProblem, RowState, Table, condition_state
from steersman.runtime.reconcile.conditions import find_condition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.runtime.cluster import Cluster


def tables_of(cluster: Cluster, namespaces: Sequence[str] | None) -> list[Table]:
    """Zones with serial, secondaries that are behind, and drift; servers with the number of their zones."""
    where = WatchSelection(namespaces=None if namespaces is None else frozenset(namespaces))
    with where.informer(cluster.caches, DNSZone).snapshot() as zones:
        zone_rows = [_zone(zone) for zone in zones]
    with where.informer(cluster.caches, Bind9Instance).snapshot() as instances:
        server_rows = [_instance(instance) for instance in instances]
    return [
        Table("Zones", ("zone", "namespace", "serial", "records", "instances", "behind", "drift", "reason"), zone_rows),
        Table("Servers", ("instance", "namespace", "role", "ready", "zones", "reason"), server_rows),
    ]


def _state(status: Any) -> tuple[RowState, str, str]:
    ready = find_condition(status.conditions if status is not None else None, "Ready")
    state, note = condition_state(ready)
    return state, "Pending" if ready is None else ready.reason, note


def _zone(zone: DNSZone) -> Row:
    state, word, note = _state(zone.status)
    status = zone.status
    rows = (status.bind9_instances if status is not None else None) or ()
    serial = status.serial if status is not None else 0
    behind = sum(row.role == "secondary" and row.serial != serial for row in rows)
    drift = status.drift_count if status is not None else 0
    if state is RowState.GOOD and behind:
        state, note = RowState.BUSY, f"{behind} secondaries have not reached serial {serial}"
    count = status.records_count if status is not None else 0
    cells = (zone.spec.zone_name, zone.namespace, serial, count, len(rows), behind, drift, word)
    return Row(cells, state, note, problem=_problem(zone, state, word, note, "SteersmanDnsZoneNotReady"))


def _instance(instance: Bind9Instance) -> Row:
    state, word, note = _state(instance.status)
    status = instance.status
    ready = f"{status.ready_replicas}/{status.replicas}" if status is not None else ""
    zones = status.zones_count if status is not None else 0
    cells = (instance.name, instance.namespace, instance.spec.role, ready, zones, word)
    return Row(cells, state, note, problem=_problem(instance, state, word, note, "SteersmanDnsServerFailing"))


def _problem(found: DNSZone | Bind9Instance, state: RowState, word: str, note: str, runbook: str) -> RowProblem | None:
    if state is not RowState.BAD:
        return None
    kind = type(found).KIND.kind.lower()
    return RowProblem(
        objects=[f"{kind}/{found.namespace}/{found.name}"],
        message=f"{word}: {note}" if note else word,
        command=f"steersman why {kind}/{found.name} -n {found.namespace}",
        runbook=runbook,
    )
