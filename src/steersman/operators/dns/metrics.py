"""What the dns operator counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, Counter, Gauge

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

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

    def published(self, zone: DNSZone, report: Report) -> None:
        """One pass over a zone."""
        if report.written:
            self.updates.inc(report.written)
        for server in report.errors:
            self.errors.labels(server).inc()
        name = zone.spec.zone_name.lower()
        self.serial.labels(name).set(report.serial)
        self.behind.labels(name).set(len(report.behind))

    def drifted(self, names: int, *, repaired: bool) -> None:
        """Drift was found."""
        self.drift.inc(names)
        if repaired:
            self.repaired.inc(names)
