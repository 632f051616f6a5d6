"""PTR records: which names the addresses of zones point back to, and which reverse zone gets each of them.

    forward zone ─► pointers of its A and AAAA records ─► PtrIndex ─► contributions to reverse zones

A pointer exists exactly while its address is published by its own zone and the record or its zone asks for it, so no
PTR record points to a missing name. It goes to the nearest DNSZone above the address that allows the record's
namespace. Placement is a pure function of the zones there are; the index is memory, filled by a new process before the
first reverse zone is published.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.operators.dns.api.config import PTR_NAMESPACES
from steersman.operators.dns.api.records import AAAARecord, ARecord
from steersman.operators.dns.api.zone import DNSZone
from steersman.operators.dns.zone.catalog import Catalogs
from steersman.operators.dns.zone.conflicts import WILDCARD
from steersman.operators.dns.zone.names import owner_in, reverse_name, text_of
from steersman.operators.dns.zone.rdata import AAAA, PTR, A, Contribution
from steersman.operators.dns.zone.selection import is_overlap_allowed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from steersman.kube.api.gvk import NamespacedName
    from steersman.operators.dns.api.records import Record

ARPA: Final = (b"\x07in-addr\x04arpa\0", b"\x03ip6\x04arpa\0")

Origin = tuple[str, str]  # namespace and source (arecord/NAME) of the record with the address


class Pointer(msgspec.Struct, frozen=True):
    """One address and the name it points back to."""

    name: bytes  # of the address, below in-addr.arpa or ip6.arpa
    target: bytes
    ttl: int | None = None
    since: str = ""


class PtrPlacement(msgspec.Struct, frozen=True):
    """Where a pointer goes."""

    zone: DNSZone | None
    denied: tuple[str, ...] = ()  # nearer zones that do not allow the record's namespace


def wants_ptr(record: Record, zone_default: bool | None) -> bool:
    """Whether a record gets PTR records: as `spec.ptr` of the record says, else of its zone."""
    if not isinstance(record, (ARecord, AAAARecord)):
        return False
    return bool(zone_default) if record.spec.ptr is None else record.spec.ptr


def pointers_of(parts: Iterable[Contribution], zone: bytes) -> tuple[Pointer, ...]:
    """What the addresses among these contributions to `zone` point back to; a wildcard has none."""
    return tuple(
        Pointer(reverse_name(value), part.key[0] + zone, part.ttl, part.since)
        for part in parts
        if part.key[1] in (A, AAAA) and not part.key[0].startswith(WILDCARD)
        for value in sorted(part.values)
    )


@lru_cache(maxsize=16384)
def is_reverse(zone: bytes) -> bool:
    """Whether a zone can hold PTR records of addresses."""
    return any(zone == root or owner_in(zone, root) is not None or owner_in(root, zone) is not None for root in ARPA)


def zones_above(name: bytes, named: Callable[[str], Iterable[DNSZone]]) -> Iterator[list[DNSZone]]:
    """The zones that could hold `name`, nearest first; those of one name come together."""
    labels = text_of(name).removesuffix(".").split(".")
    for place in range(len(labels)):
        found = [zone for zone in named(".".join(labels[place:])) if not zone.deleting]
        if found:
            yield found


def allows_ptr_records(zone: DNSZone, namespace: str) -> bool:
    """Whether records of a namespace may have PTR records in a zone."""
    allowed = {part.strip() for part in zone.annotations.get(PTR_NAMESPACES, "").split(",")}
    return zone.namespace == namespace or "*" in allowed or namespace in allowed


def place_of(name: bytes, namespace: str, named: Callable[[str], Iterable[DNSZone]]) -> PtrPlacement:
    """The nearest zone that allows PTR records of an address; of zones with one name the record's own or the oldest.

    A zone that allows every namespace does not take PTR records from an older zone, nor from one of the record's own
    namespace, unless that one allows overlap with its namespace.
    """
    denied: list[str] = []
    candidates: list[DNSZone] = []  # nearest first

    def rank(zone: DNSZone) -> tuple[bool, str, str, str]:
        return zone.namespace != namespace, zone.metadata.creation_timestamp or "", zone.namespace, zone.name

    for zones in zones_above(name, named):
        allowing = [zone for zone in zones if allows_ptr_records(zone, namespace)]
        if allowing:
            candidates.append(min(allowing, key=rank))
        elif not candidates:
            denied += [str(zone.ref) for zone in zones]
    for zone in candidates:
        if all(
            other.namespace == zone.namespace or rank(zone) < rank(other) or is_overlap_allowed(other, zone.namespace)
            for other in candidates
        ):
            return PtrPlacement(zone)
    return PtrPlacement(None, tuple(denied))


def source_in_reverse(origin: Origin) -> str:
    """The name of a record among the sources of a reverse zone, which may have records of many namespaces."""
    namespace, source = origin
    kind, _, name = source.partition("/")
    return f"{kind}/{namespace}/{name}"


def contributions_to(
    zone: DNSZone, name: bytes, origin: Origin, pointers: Iterable[Pointer], named: Callable[[str], Iterable[DNSZone]]
) -> list[Contribution]:
    """What a record contributes to one reverse zone."""
    rows: dict[bytes, list[Pointer]] = {}
    for pointer in pointers:
        owner = owner_in(pointer.name, name)
        if owner is None:
            continue
        where = place_of(pointer.name, origin[0], named).zone
        if where is not None and where.ref == zone.ref:
            rows.setdefault(owner, []).append(pointer)
    source = source_in_reverse(origin)
    return [
        Contribution(
            source,
            (owner, PTR),
            min((row.ttl for row in found if row.ttl is not None), default=None),
            frozenset(row.target for row in found),
            min(row.since for row in found),
        )
        for owner, found in sorted(rows.items())
    ]


class PtrIndex:
    """What zones contribute to other zones: pointers, by record, and members of catalogs."""

    def __init__(self) -> None:
        self._rows: dict[Origin, dict[NamespacedName, tuple[Pointer, ...]]] = {}
        self._by_zone: dict[NamespacedName, set[str]] = {}
        self.catalogs = Catalogs()

    def put(self, zone: NamespacedName, source: str, pointers: tuple[Pointer, ...]) -> set[bytes]:
        """A record of a zone has exactly these pointers; returns the names of addresses whose pointer changed."""
        origin = (zone.namespace, source)
        before = self._rows.get(origin, {}).get(zone, ())
        if before == pointers:
            return set()
        if pointers:
            self._rows.setdefault(origin, {})[zone] = pointers
            self._by_zone.setdefault(zone, set()).add(source)
        else:
            self._rows[origin].pop(zone)
            if not self._rows[origin]:
                del self._rows[origin]
            self._by_zone[zone].discard(source)
        return {row.name for row in set(before) ^ set(pointers)}

    def sources(self, zone: NamespacedName) -> set[str]:
        """The records of a zone that have pointers."""
        return set(self._by_zone.get(zone, ()))

    def of(self, origin: Origin) -> list[Pointer]:
        """The pointers of one record."""
        return [pointer for rows in self._rows.get(origin, {}).values() for pointer in rows]

    def below(self, zone: bytes) -> set[tuple[Origin, bytes]]:
        """The addresses below a zone, each with the record that has it."""
        return {
            (origin, pointer.name)
            for origin, rows in self._rows.items()
            for found in rows.values()
            for pointer in found
            if owner_in(pointer.name, zone) is not None
        }


def named_in(cache: Any) -> Callable[[str], Iterable[DNSZone]]:
    """Zones by name, as a cache has them."""
    zones = cache[DNSZone]
    return lambda text: zones.by_index("dns-zone-name", text)
