"""Which data of a server's copy is ours, and what becomes of the rest. Pure.

A copy is *managed* when we added the zone, when it was adopted, or when nothing in it is foreign, that is, declared by
no resource. Until then nothing is removed from it: what is missing is added, and an RRset with other values than
desired stays as it is, as does the start of authority. An RRset that agrees but for its TTL keeps that TTL. Name
servers of the zone and their addresses are never foreign: every zone has some, and resources declare which. Names that
the drift-ignore annotation lists belong to others always.

A new process reads every copy once and cannot see whose data it finds. Statuses in the cluster say which instances
held nothing foreign and where records were published; records that are being deleted say what is to be removed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from steersman.errors import FormatError, PlanError
from steersman.kube.api.gvk import NamespacedName
from steersman.operators.dns.api.records import RECORD_KINDS, AAAARecord, ARecord
from steersman.operators.dns.zone.conflicts import ADDRESSES
from steersman.operators.dns.zone.names import owner_in, owner_of, short_text
from steersman.operators.dns.zone.ptr import contributions_to, is_reverse, named_in, pointers_of, wants_ptr
from steersman.operators.dns.zone.rdata import CNAME, GENERATED, NS, TYPE_OF, Contribution, Key, RRset, contribution_of
from steersman.operators.dns.zone.selection import EVERY, may_adopt, source_of, zone_of
from steersman.operators.dns.zone.soa import zone_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from steersman.operators.dns.api.servers import Bind9Instance
    from steersman.operators.dns.api.zone import DNSZone, InstanceState
    from steersman.operators.dns.bind.servers import Server

Values = dict[Key, frozenset[bytes]]


# -- foreign data of a copy --------------------------------------------------------------------------------------------


def unmanaged_values(
    diff: Mapping[Key, RRset | None], desired: Mapping[Key, RRset], *declared: Mapping[Key, frozenset[bytes]]
) -> Values:
    """What a server has and no resource declares; `declared` is what resources declared before, and may be removed."""
    found: Values = {}
    for key, have in diff.items():
        if have is None or key[1] in GENERATED:
            continue
        left = have.values - desired[key].values if key in desired else have.values
        for values in declared:
            left -= values.get(key, frozenset())
        if left:
            found[key] = left
    return found


def is_bare(keys: Iterable[Key], servers: RRset | None, zone: bytes) -> bool:
    """Whether this is nothing but name servers of the zone and their addresses; `servers` are those it has."""
    owners = {owner_in(value, zone) for value in (servers.values if servers is not None else ())}
    return all((not owner and kind == NS) or (kind in ADDRESSES and owner in owners) for owner, kind in keys)


def keeps_ttl(have: RRset, want: RRset) -> bool:
    """Whether an RRset was there before with some of the desired values, so that its TTL stays."""
    return have.ttl != want.ttl and not have.values.isdisjoint(want.values)


def blocked_keys(diff: Iterable[Key], desired: Mapping[Key, RRset], foreign: Iterable[Key]) -> frozenset[Key]:
    """The desired RRsets that cannot exist beside foreign data.

    Beside a CNAME a server silently ignores every update, as it ignores a CNAME beside other data.
    """
    kinds: dict[bytes, set[int]] = {}
    for owner, kind in foreign:
        kinds.setdefault(owner, set()).add(kind)
    found = set()
    for key in diff:
        there = kinds.get(key[0])
        if there and key in desired and (key[1] in there or CNAME in there or key[1] == CNAME):
            found.add(key)
    return frozenset(found)


def kept_keys(
    diff: Mapping[Key, RRset | None],
    desired: Mapping[Key, RRset],
    zone: bytes,
    *,
    owned: Iterable[Key] = (),
    declared: Mapping[Key, frozenset[bytes]],
) -> frozenset[Key] | None:
    """Of what differs, what stays as it is in a copy that was not adopted; None when nothing in it is foreign."""
    ours = frozenset(owned)
    foreign = unmanaged_values({key: have for key, have in diff.items() if key not in ours}, desired, declared)
    if is_bare(foreign, diff.get((b"", NS)) or desired.get((b"", NS)), zone):
        return None
    agreeing = {
        key for key, have in diff.items() if have is not None and key in desired and have.values == desired[key].values
    }
    return blocked_keys(diff, desired, foreign) | foreign.keys() | agreeing


def names_in(keys: Iterable[Key], zone: bytes) -> list[str]:
    """The names of data, as people write them."""
    return sorted({short_text(owner, zone) for owner, _ in keys})


# -- what the cluster says of earlier processes ------------------------------------------------------------------------


def is_adopted(row: InstanceState | None) -> bool:
    """Whether a zone's status says that an instance has nothing foreign; an old status says so by its serial."""
    return row is not None and (bool(row.adopted) if row.adopted is not None else bool(row.serial))


def adopted_servers(zone: DNSZone, servers: Iterable[Server]) -> frozenset[str]:
    """The servers whose copy is managed, as the zone's status says."""
    rows = (zone.status.bind9_instances if zone.status is not None else None) or ()
    adopted = {NamespacedName(row.name, row.namespace) for row in rows if is_adopted(row)}
    return frozenset(server.id for server in servers if server.instance in adopted)


def trusted_servers(zone: DNSZone, servers: Iterable[Server], instances: Iterable[Bind9Instance]) -> list[Server]:
    """The servers for which annotations and status of the zone may say what is managed."""
    hosts = {instance.ref for instance in instances if may_adopt(zone, instance)}
    return [server for server in servers if server.instance in hosts]


def owned_keys(zone: DNSZone, name: bytes, cache: Any, trusted: Iterable[Server]) -> dict[str, frozenset[Key]]:
    """By instance, where it held what records declare and nothing else: a difference there is ours to change."""
    believed = {str(server.instance) for server in trusted}
    found: dict[str, set[Key]] = {}
    for kind in RECORD_KINDS:
        for record in cache[kind].by_index("dns-published", f"{zone.namespace}/{zone.name}"):
            status = record.status
            with suppress(FormatError):
                key = (owner_of(f"{status.published_name}.", name), TYPE_OF[kind])
                for row in status.endpoints or ():
                    if row.state == "Published" and row.instance in believed:
                        found.setdefault(row.instance, set()).add(key)
    return {instance: frozenset(keys) for instance, keys in found.items()}


def deleted_contributions(zone: DNSZone, name: bytes, cache: Any) -> list[Contribution]:
    """What records contribute that are being deleted: it is removed whatever the drift mode."""
    found = []
    for kind in RECORD_KINDS:
        for record in cache[kind].by_index("dns-leaving", zone.namespace):
            with suppress(PlanError):
                found.append(contribution_of(record, source_of(record), name))
    if is_reverse(name):
        found += _deleted_ptr_records(zone, name, cache)
    return found


def _deleted_ptr_records(zone: DNSZone, name: bytes, cache: Any) -> Iterator[Contribution]:
    for kind in (ARecord, AAAARecord):
        for record in cache[kind].by_index("dns-leaving", EVERY):
            owner = zone_of(record, cache)
            if owner is None or not wants_ptr(record, owner.spec.ptr):
                continue
            origin = (record.namespace, source_of(record))
            with suppress(PlanError):
                pointers = pointers_of([contribution_of(record, origin[1], zone_name(owner))], zone_name(owner))
                yield from contributions_to(zone, name, origin, pointers, named_in(cache))


def values_of(contributions: Iterable[Contribution]) -> Values:
    """All values of contributions, by RRset."""
    found: Values = {}
    for contribution in contributions:
        found[contribution.key] = found.get(contribution.key, frozenset()) | contribution.values
    return found
