"""PTR records: which names the addresses of zones point back to, and which reverse zone gets each of them.

    forward draft ─► pointers of its A and AAAA records ─► directory ─► contributions to reverse drafts

A pointer exists exactly while its address is published by its own zone and somebody asked for it, so nothing points to
a name that is not there. It goes to the nearest zone above the address that is declared and lets the record's namespace
in; a zone that nobody declared is never written. Placement is a pure function of the zones there are; the directory is
memory, filled again by a new process before the first reverse zone is published.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.operators.dns.catalogs import Catalogs
from steersman.operators.dns.compiler import WILDCARD
from steersman.operators.dns.names import owner_in, reverse_name, text_of
from steersman.operators.dns.recordkinds import AAAARecord, ARecord
from steersman.operators.dns.rrsets import AAAA, PTR, A, Contribution
from steersman.operators.dns.types import PTR_NAMESPACES
from steersman.operators.dns.zonekinds import DNSZone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from steersman.kube.resources import ObjectRef
    from steersman.operators.dns.recordkinds import Record

__all__ = [
    "Directory",
    "Origin",
    "Place",
    "Pointer",
    "asks",
    "contributions_to",
    "is_reverse",
    "lets_in",
    "named_in",
    "place_of",
    "pointers_of",
    "source_in_reverse",
    "zones_above",
]

ARPA: Final = (b"\x07in-addr\x04arpa\0", b"\x03ip6\x04arpa\0")

Origin = tuple[str, str]  # namespace and source (arecord/NAME) of the record that asked


class Pointer(msgspec.Struct, frozen=True):
    """One address and the name it points back to."""

    name: bytes  # of the address, below in-addr.arpa or ip6.arpa
    target: bytes
    ttl: int | None = None
    since: str = ""


class Place(msgspec.Struct, frozen=True):
    """Where a pointer goes."""

    zone: DNSZone | None
    denied: tuple[str, ...] = ()  # zones that would have had it, had they let the namespace in


def asks(record: Record, zone_default: bool | None) -> bool:
    """Whether PTR records are wanted for a record: its own word, else its zone's."""
    if not isinstance(record, (ARecord, AAAARecord)):
        return False
    return bool(zone_default) if record.spec.ptr is None else record.spec.ptr


def pointers_of(parts: Iterable[Contribution], zone: bytes) -> tuple[Pointer, ...]:
    """What the addresses among these contributions to `zone` point back to; a wildcard is no name to point to."""
    return tuple(
        Pointer(reverse_name(value), part.key[0] + zone, part.ttl, part.since)
        for part in parts
        if part.key[1] in (A, AAAA) and not part.key[0].startswith(WILDCARD)
        for value in sorted(part.values)
    )


@lru_cache(maxsize=16384)
def is_reverse(zone: bytes) -> bool:
    """Whether a zone can hold names of addresses."""
    return any(zone == root or owner_in(zone, root) is not None or owner_in(root, zone) is not None for root in ARPA)


def zones_above(name: bytes, named: Callable[[str], Iterable[DNSZone]]) -> Iterator[list[DNSZone]]:
    """The zones that could hold `name`, nearest first; those of one name come together."""
    labels = text_of(name).removesuffix(".").split(".")
    for place in range(len(labels)):
        found = [zone for zone in named(".".join(labels[place:])) if not zone.deleting]
        if found:
            yield found


def lets_in(zone: DNSZone, namespace: str) -> bool:
    """Whether records of a namespace may have PTR records in a zone."""
    allowed = {part.strip() for part in zone.annotations.get(PTR_NAMESPACES, "").split(",")}
    return zone.namespace == namespace or "*" in allowed or namespace in allowed


def place_of(name: bytes, namespace: str, named: Callable[[str], Iterable[DNSZone]]) -> Place:
    """The nearest zone that may have PTR records of an address; of namesakes the own namespace's, else the oldest."""
    denied: list[str] = []
    for zones in zones_above(name, named):
        open_ones = [zone for zone in zones if lets_in(zone, namespace)]
        if open_ones:
            return Place(
                min(
                    open_ones,
                    key=lambda one: (
                        one.namespace != namespace,
                        one.metadata.creation_timestamp or "",
                        one.namespace,
                        one.name,
                    ),
                )
            )
        denied += [str(zone.ref) for zone in zones]
    return Place(None, tuple(denied))


def source_in_reverse(origin: Origin) -> str:
    """What a record is called in the draft of a reverse zone, which may have records of many namespaces."""
    namespace, source = origin
    kind, _, name = source.partition("/")
    return f"{kind}/{namespace}/{name}"


def contributions_to(
    zone: DNSZone, name: bytes, origin: Origin, pointers: Iterable[Pointer], named: Callable[[str], Iterable[DNSZone]]
) -> list[Contribution]:
    """What a record adds to one reverse zone."""
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


class Directory:
    """What zones of this process want of other zones: pointers, by the record that asked, and places in catalogs."""

    def __init__(self) -> None:
        self._rows: dict[Origin, dict[ObjectRef, tuple[Pointer, ...]]] = {}
        self._by_zone: dict[ObjectRef, set[str]] = {}
        self.catalogs = Catalogs()

    def put(self, zone: ObjectRef, source: str, pointers: tuple[Pointer, ...]) -> set[bytes]:
        """A record of a zone wants exactly these; returns the names of addresses for which that is news."""
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

    def sources(self, zone: ObjectRef) -> set[str]:
        """The records of a zone that have pointers."""
        return set(self._by_zone.get(zone, ()))

    def of(self, origin: Origin) -> list[Pointer]:
        """What one record wants."""
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
    shelf = cache[DNSZone]
    return lambda text: shelf.by_index("dns-zone-name", text)
