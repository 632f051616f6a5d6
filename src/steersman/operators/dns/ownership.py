"""What servers have that was ours before this process began, by the word of objects in the cluster. Pure.

A process reads every copy once, and cannot tell by looking whose data it finds. Statuses say which instances had
nothing but what resources say, and where records were published; records that are being deleted say what is to go.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from steersman.errors import FormatError, PlanError
from steersman.kube.resources import ObjectRef
from steersman.operators.dns.book import zones_wanting
from steersman.operators.dns.names import owner_of
from steersman.operators.dns.pointers import asks, contributions_to, is_reverse, named_in, pointers_of
from steersman.operators.dns.recordkinds import RECORD_KINDS, AAAARecord, ARecord
from steersman.operators.dns.rrsets import TYPE_OF, Contribution, Key, contribution_of
from steersman.operators.dns.selection import EVERY, source_of, zone_of
from steersman.operators.dns.zoneplan import zone_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from steersman.operators.dns.servers import Server
    from steersman.operators.dns.zonekinds import DNSZone, InstanceState

__all__ = ["adopted_servers", "is_adopted", "leaving_parts", "owned_places", "values_of"]


def is_adopted(row: InstanceState | None) -> bool:
    """Whether all that an instance has of a zone is ours; who was never asked had published it."""
    return row is not None and (bool(row.adopted) if row.adopted is not None else bool(row.serial))


def adopted_servers(zone: DNSZone, servers: Iterable[Server]) -> frozenset[str]:
    """The servers of instances whose copy of a zone is ours."""
    rows = (zone.status.bind9_instances if zone.status is not None else None) or ()
    mine = {ObjectRef(row.name, row.namespace) for row in rows if is_adopted(row)}
    return frozenset(server.id for server in servers if server.instance in mine)


def owned_places(zone: DNSZone, name: bytes, cache: Any) -> dict[str, frozenset[Key]]:
    """Where instances had what records say, and nothing else: what differs there now is ours to change."""
    found: dict[str, set[Key]] = {}
    for kind in RECORD_KINDS:
        for record in cache[kind].by_index("dns-published", f"{zone.namespace}/{zone.name}"):
            said = record.status
            with suppress(FormatError):
                key = (owner_of(f"{said.published_name}.", name), TYPE_OF[kind])
                for row in said.endpoints or ():
                    if row.state == "Published":
                        found.setdefault(row.instance, set()).add(key)
    return {instance: frozenset(keys) for instance, keys in found.items()}


def leaving_parts(zone: DNSZone, name: bytes, cache: Any) -> list[Contribution]:
    """What records say that are being deleted: that data is ours to remove, whatever happens to drift."""
    parts = []
    for kind in RECORD_KINDS:
        for record in cache[kind].by_index("dns-leaving", zone.namespace):
            with suppress(PlanError):
                parts.append(contribution_of(record, source_of(record), name))
    if is_reverse(name):
        parts += _leaving_pointers(zone, name, cache)
    return parts


def _leaving_pointers(zone: DNSZone, name: bytes, cache: Any) -> Iterator[Contribution]:
    for kind in (ARecord, AAAARecord):
        for record in cache[kind].by_index("dns-leaving", EVERY):
            owner = zone_of(record, zones_wanting(record, cache))
            if owner is None or not asks(record, owner.spec.ptr):
                continue
            origin = (record.namespace, source_of(record))
            with suppress(PlanError):
                pointers = pointers_of([contribution_of(record, origin[1], zone_name(owner))], zone_name(owner))
                yield from contributions_to(zone, name, origin, pointers, named_in(cache))


def values_of(parts: Iterable[Contribution]) -> dict[Key, frozenset[bytes]]:
    """What contributions say together."""
    found: dict[Key, frozenset[bytes]] = {}
    for part in parts:
        found[part.key] = found.get(part.key, frozenset()) | part.values
    return found
