"""What the dns operator counts. A zone that is gone leaves no series behind: an alert on it could never end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, Counter, Gauge

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from steersman.kube.resources import ObjectRef
    from steersman.operators.dns.publisher import Report
    from steersman.operators.dns.zonekinds import DNSZone

__all__ = ["DnsMetrics"]


class DnsMetrics:
    """Series of one process."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        where = REGISTRY if registry is None else registry
        self.updates = Counter("steersman_dns_updates", "Zones created and updates sent to servers.", registry=where)
        self.errors = Counter("steersman_dns_server_errors", "Failures by server.", ["server"], registry=where)
        self.drift = Counter("steersman_dns_drift_found", "Names that were not as they should be.", registry=where)
        self.repaired = Counter("steersman_dns_drift_repaired", "Names that were put right.", registry=where)
        self.serial = Gauge("steersman_dns_zone_serial", "The serial being served.", ["zone"], registry=where)
        self.behind = Gauge(
            "steersman_dns_secondaries_behind", "Secondaries that have not caught up.", ["zone"], registry=where
        )
        self.ready = Gauge(
            "steersman_dns_zone_ready",
            "1 while every server has the zone as it should be.",
            ["namespace", "zone"],
            registry=where,
        )
        self._names: dict[ObjectRef, str] = {}  # zones that have series

    def published(self, zone: DNSZone, report: Report) -> None:
        """One pass over a zone."""
        if report.written:
            self.updates.inc(report.written)
        for server in report.errors:
            self.errors.labels(server).inc()
        name = _name(zone)
        self.serial.labels(name).set(report.serial)
        self.behind.labels(name).set(len(report.behind))

    def told(self, zone: DNSZone, *, ready: bool) -> None:
        """A pass over a zone came to this."""
        name = _name(zone)
        if self._names.get(zone.ref, name) != name:
            self.forget(zone.ref)
        self._names[zone.ref] = name
        self.ready.labels(zone.namespace, name).set(ready)

    def forget(self, zone: ObjectRef) -> None:
        """A zone is gone."""
        name = self._names.pop(zone, None)
        if name is None:
            return
        self.ready.remove(zone.namespace, name)
        if name not in self._names.values():  # else another namespace serves the name, from other servers
            self.serial.remove(name)
            self.behind.remove(name)

    def drifted(self, names: int, *, repaired: bool) -> None:
        """Drift was found."""
        self.drift.inc(names)
        if repaired:
            self.repaired.inc(names)


def _name(zone: DNSZone) -> str:
    return zone.spec.zone_name.lower()
