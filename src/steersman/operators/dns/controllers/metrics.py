"""What the dns operator counts. A zone or server that is gone leaves no series: an alert on it could never end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, Counter, Gauge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import CollectorRegistry

    from steersman.kube.api.gvk import NamespacedName
    from steersman.operators.dns.api.zone import DNSZone
    from steersman.operators.dns.bind.servers import Server
    from steersman.operators.dns.publish.copy_inspector import PublishReport


class DnsMetrics:
    """Series of one process."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        where = REGISTRY if registry is None else registry
        self.updates = Counter("steersman_dns_updates", "Zones created and updates sent to servers.", registry=where)
        self.errors = Counter("steersman_dns_server_errors", "Failures by server.", ["server"], registry=where)
        self.drift = Counter("steersman_dns_drift_found", "Names that were not as they should be.", registry=where)
        self.repaired = Counter("steersman_dns_drift_repaired", "Names that were repaired.", registry=where)
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
        self._names: dict[NamespacedName, str] = {}  # zones that have series
        self._servers: dict[NamespacedName, set[str]] = {}  # servers that have series, by instance

    def published(self, zone: DNSZone, report: PublishReport, servers: Iterable[Server] = ()) -> None:
        """One pass over a zone on these servers."""
        if report.written:
            self.updates.inc(report.written)
        for server in servers:
            if server.title in report.errors:
                self._servers.setdefault(server.instance, set()).add(server.title)
                self.errors.labels(server.title).inc()
        name = _name(zone)
        self.serial.labels(name).set(report.serial)
        self.behind.labels(name).set(len(report.behind))

    def reconciled(self, zone: DNSZone, *, ready: bool) -> None:
        """A pass over a zone ended."""
        name = _name(zone)
        if self._names.get(zone.ref, name) != name:
            self.forget(zone.ref)
        self._names[zone.ref] = name
        self.ready.labels(zone.namespace, name).set(ready)

    def forget(self, zone: NamespacedName) -> None:
        """A zone is gone."""
        name = self._names.pop(zone, None)
        if name is None:
            return
        self.ready.remove(zone.namespace, name)
        if name not in self._names.values():  # else another namespace serves the name, from other servers
            self.serial.remove(name)
            self.behind.remove(name)

    def keep(self, instance: NamespacedName, servers: Iterable[Server]) -> None:
        """These are the servers of an instance: drop the series of others, like a pod that was replaced."""
        kept = {server.title for server in servers}
        gone = self._servers.get(instance, set()) - kept
        self._servers[instance] = self._servers.get(instance, set()) & kept
        if not self._servers[instance]:
            del self._servers[instance]
        for title in gone:
            if not any(title in titles for titles in self._servers.values()):  # else another namespace has one too
                self.errors.remove(title)

    def drifted(self, names: int, *, repaired: bool) -> None:
        """Drift was found."""
        self.drift.inc(names)
        if repaired:
            self.repaired.inc(names)


def _name(zone: DNSZone) -> str:
    return zone.spec.zone_name.lower()
