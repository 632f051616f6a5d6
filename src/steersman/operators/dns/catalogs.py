"""Catalog zones (RFC 9432): secondaries that learn which zones to serve from a zone, instead of being told one by one.

A catalog is a DNSZone like any other (`catalog: true`), in the namespace of the secondaries whose configuration names
it. Its members are the zones that such a secondary serves; each is one PTR record below `zones`, so a thousand zones
are added to any number of secondaries by updates of one. Members are memory, filled again by a new process before a
catalog is published for the first time.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from steersman.operators.dns.compiler import ZONE
from steersman.operators.dns.rrsets import PTR, TXT, Contribution

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.kube.resources import ObjectRef
    from steersman.operators.dns.zonekinds import DNSZone

__all__ = ["Catalogs", "catalog_parts", "catalogs_of", "member_key", "member_source"]

ZONES: Final = b"\x05zones"
VERSION: Final = Contribution(ZONE, (b"\x07version", TXT), 0, frozenset({b"\x012"}))

Catalog = tuple[str, str]  # namespace and zone name


def member_key(zone: bytes) -> tuple[bytes, int]:
    """Where a member stands: under a label of its own that stays the same."""
    label = hashlib.sha1(zone, usedforsecurity=False).hexdigest().encode()
    return bytes([len(label)]) + label + ZONES, PTR


def member_source(zone: ObjectRef) -> str:
    """What a member is called in the draft of a catalog."""
    return f"dnszone/{zone.namespace}/{zone.name}"


def catalogs_of(zone: DNSZone, secondaries: Iterable[tuple[ObjectRef, str]]) -> dict[Catalog, ObjectRef]:
    """The catalogs that a zone should be in, each with an instance that takes its zones from there.

    Whether that instance can be asked just now is of no account: what is not listed it serves no more.
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
        self._rows: dict[Catalog, dict[ObjectRef, bytes]] = {}
        self._of: dict[ObjectRef, frozenset[Catalog]] = {}

    def put(self, zone: ObjectRef, name: bytes, catalogs: frozenset[Catalog]) -> frozenset[Catalog]:
        """A zone is in exactly these; returns those for which that is news."""
        before = self._of.get(zone, frozenset())
        changed = set(before ^ catalogs)
        changed |= {one for one in catalogs if self._rows.get(one, {}).get(zone) != name}
        for one in before - catalogs:
            del self._rows[one][zone]
        for one in catalogs:
            self._rows.setdefault(one, {})[zone] = name
        if catalogs:
            self._of[zone] = catalogs
        else:
            self._of.pop(zone, None)
        return frozenset(changed)

    def members(self, catalog: Catalog) -> dict[str, Contribution]:
        """What a catalog holds, by who is in it. Of two zones of one name one entry is left, as RFC 9432 wants it."""
        rows = self._rows.get(catalog, {})
        return {
            member_source(ref): Contribution(member_source(ref), member_key(name), 0, frozenset({name}))
            for ref, name in rows.items()
        }
