"""Catalog zones (RFC 9432): secondaries learn from a zone which zones to serve.

A catalog is a DNSZone with `catalog: true`, in the namespace of the secondaries whose configuration names it. Its
members are the zones that such a secondary serves; each is one PTR record below `zones`, so updates of one zone add a
thousand zones to any number of secondaries. Members are memory, filled by a new process before it publishes a catalog
for the first time.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from steersman.operators.dns.zone.conflicts import ZONE
from steersman.operators.dns.zone.rdata import PTR, TXT, Contribution

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.kube.api.gvk import NamespacedName
    from steersman.operators.dns.api.zone import DNSZone

ZONES: Final = b"\x05zones"
VERSION: Final = Contribution(ZONE, (b"\x07version", TXT), 0, frozenset({b"\x012"}))

Catalog = tuple[str, str]  # namespace and zone name


def member_key(zone: bytes) -> tuple[bytes, int]:
    """The RRset of a member: its label is a hash of its name, so it never changes."""
    label = hashlib.sha1(zone, usedforsecurity=False).hexdigest().encode()
    return bytes([len(label)]) + label + ZONES, PTR


def member_source(zone: NamespacedName) -> str:
    """The name of a member among the sources of a catalog."""
    return f"dnszone/{zone.namespace}/{zone.name}"


def catalogs_of(zone: DNSZone, secondaries: Iterable[tuple[NamespacedName, str]]) -> dict[Catalog, NamespacedName]:
    """The catalogs that a zone should be in, each with an instance that takes its zones from there.

    Instances that do not answer count too: they would stop serving a zone that is not listed.
    """
    if zone.spec.catalog:
        return {}
    return {(instance.namespace, catalog): instance for instance, catalog in secondaries if catalog}


def catalog_parts(is_catalog: bool) -> list[Contribution]:
    """What makes a zone a catalog."""
    return [VERSION] if is_catalog else []


class Catalogs:
    """Which zones are in which catalogs."""

    def __init__(self) -> None:
        self._rows: dict[Catalog, dict[NamespacedName, bytes]] = {}
        self._of: dict[NamespacedName, frozenset[Catalog]] = {}

    def put(self, zone: NamespacedName, name: bytes, catalogs: frozenset[Catalog]) -> frozenset[Catalog]:
        """A zone is in exactly these catalogs; returns those whose members changed."""
        before = self._of.get(zone, frozenset())
        changed = set(before ^ catalogs)
        changed |= {catalog for catalog in catalogs if self._rows.get(catalog, {}).get(zone) != name}
        for catalog in before - catalogs:
            del self._rows[catalog][zone]
        for catalog in catalogs:
            self._rows.setdefault(catalog, {})[zone] = name
        if catalogs:
            self._of[zone] = catalogs
        else:
            self._of.pop(zone, None)
        return frozenset(changed)

    def members(self, catalog: Catalog) -> dict[str, Contribution]:
        """The members of a catalog, by source. Two zones of one name are one entry, as RFC 9432 requires."""
        rows = self._rows.get(catalog, {})
        return {
            member_source(ref): Contribution(member_source(ref), member_key(name), 0, frozenset({name}))
            for ref, name in rows.items()
        }
