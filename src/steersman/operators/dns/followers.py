"""Secondaries that the operator makes and that take their zones from a catalog: who they are told to fetch from.

They fetch from the pods of the primaries, as these are now, and else from their Services, which follow the pods while
the files of the secondary do not yet. What a server has read is asked of the server: its files come when they come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.errors import DriverError
from steersman.kube.resources import ObjectRef
from steersman.kube.types.core import ConfigMap, Service
from steersman.operators.dns.catalogconf import catalog_files, catalog_zone, kept_files
from steersman.operators.dns.fleet import catalog_of
from steersman.operators.dns.namedconf import TRANSFER_KEY
from steersman.operators.dns.names import name_of
from steersman.operators.dns.zoneconfig import same_config
from steersman.operators.dns.zonekinds import DNSZone

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.operators.dns.catalogconf import Source
    from steersman.operators.dns.desk import Desk
    from steersman.operators.dns.serverkinds import Bind9Cluster, Bind9Instance
    from steersman.operators.dns.servers import Server

__all__ = ["Followers"]

SERVICE_PORT = 53


class Followers:
    """Keeps such secondaries pointed at the primaries of their zones."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._pointed: dict[ObjectRef, dict[str, tuple[Source, ...]]] = {}  # what servers were seen to have read

    def sources(
        self, instance: Bind9Instance, cluster: Bind9Cluster | None, zones: Iterable[DNSZone], cache: Any
    ) -> tuple[Source, ...]:
        """Where a secondary finds its catalog and every zone of it; nowhere when it has none."""
        catalog = catalog_of(instance, cluster)
        if not catalog:
            return ()
        if instance.spec.primary_servers:
            return tuple((address, SERVICE_PORT) for address in instance.spec.primary_servers)
        rows = [one for one in cache[DNSZone].by_index("dns-zone-name", catalog) if one.namespace == instance.namespace]
        found: dict[ObjectRef, Bind9Instance] = {}
        for zone in [*rows, *zones]:
            found |= {one.ref: one for one in self.desk.choose(zone, cache).instances if one.spec.role == "primary"}
        primaries = [found[ref] for ref in sorted(found)]
        servers = sorted(self.desk.servers(primaries, cache)[0], key=lambda one: (one.instance, one.name, one.address))
        made = [(one.address, one.dns_port) for one in servers]
        for one in primaries:
            service = cache[Service].get(one.ref) if not one.spec.endpoints else None
            if service is not None and service.spec.cluster_ip not in ("", "None"):
                made.append((service.spec.cluster_ip, SERVICE_PORT))
        return tuple(dict.fromkeys(made))

    def files(
        self, instance: Bind9Instance, cluster: Bind9Cluster | None, sources: Sequence[Source], cache: Any
    ) -> dict[str, str]:
        """The files of an instance's catalog; none when it has no catalog."""
        catalog = catalog_of(instance, cluster)
        if not catalog:
            return {}
        held = cache[ConfigMap].get(ObjectRef(f"{instance.name}-config", instance.namespace))
        kept = kept_files(catalog, held.data or {}) if held is not None and not sources else {}
        return kept or catalog_files(catalog, sources, TRANSFER_KEY)

    async def point(
        self, instance: Bind9Instance, cluster: Bind9Cluster | None, sources: tuple[Source, ...], cache: Any
    ) -> bool:
        """Have servers read where to fetch from, if they do not know; says whether all of them do now."""
        catalog = catalog_of(instance, cluster)
        known = self._pointed.get(instance.ref, {})
        # The pod of a server with another catalog is about to be replaced.
        servers = [one for one in self.desk.servers([instance], cache)[0] if one.catalog == catalog] if sources else []
        told = {one.id: one for one in servers if known.get(one.id) != sources}
        missing = {which for which, server in told.items() if not await self._reads(server, catalog, sources)}
        self._pointed[instance.ref] = {one.id: sources for one in servers if one.id not in missing}
        return not any(told[which].since for which in missing)  # one that begins to listen wakes us itself

    async def _reads(self, server: Server, catalog: str, sources: Sequence[Source]) -> bool:
        """Whether a server knows these sources, after it has read its configuration if need be."""
        wanted, zone = catalog_zone(catalog, sources, TRANSFER_KEY), name_of(catalog)
        try:
            driver = self.desk.fleet.driver(server)
            if same_config(await driver.configuration(zone) or (), wanted):
                return True
            await driver.reconfigure()
            return same_config(await driver.configuration(zone) or (), wanted)
        except DriverError:
            return False

    def forget(self, instance: ObjectRef) -> None:
        """It is gone."""
        self._pointed.pop(instance, None)
