"""Which of several zones with overlapping names a server gets: the oldest. Pure.

A zone claims its name and every name below it. Two zones on a common instance overlap when they have the same name, or
when one lies below the other and they belong to different namespaces. The older one is served; the other is refused,
and both report it. The older side can allow the overlap: a zone above delegates the name to its own servers (an
NSRecord), or the older zone or every common instance names the other namespace (`OVERLAP_NAMESPACES`). A zone that is
refused claims nothing, so it never blocks another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.errors import FormatError, PlanError
from steersman.operators.dns.api.config import OVERLAP_NAMESPACES
from steersman.operators.dns.api.records import NSRecord
from steersman.operators.dns.api.zone import DNSZone
from steersman.operators.dns.zone.names import index_name, name_of, owner_in, owner_of
from steersman.operators.dns.zone.selection import is_overlap_allowed, related_zones, selected_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from steersman.kube.api.gvk import NamespacedName
    from steersman.operators.dns.api.servers import Bind9Instance
    from steersman.operators.dns.zone.selection import InstanceSelector


def check_overlap(selector: InstanceSelector, zone: DNSZone) -> None:
    """PlanError when an older zone claims the name on the same servers."""
    older = blocker_of(selector, zone)
    if older is None:
        return
    if _is_namesake(zone, older):
        raise PlanError(
            f"DNSZone {older.ref} is older and has the same zoneName on the same servers",
            reason="DuplicateZone",
            field="spec.zoneName",
        )
    raise PlanError(
        f"DNSZone {older.ref} is older and serves {index_name(older.spec.zone_name)} on the same servers: "
        f"{_how_to_allow(zone, older)}",
        reason="ZoneOverlap",
        field="spec.zoneName",
    )


def blocker_of(selector: InstanceSelector, zone: DNSZone) -> DNSZone | None:
    """The zone because of which this one is refused; None when it is not."""
    return _blocker(selector, zone, {})


def refused_zones(selector: InstanceSelector, zone: DNSZone) -> tuple[str, ...]:
    """The younger zones that are refused because of this one, each with the way to allow it."""
    found: list[str] = []
    known: dict[NamespacedName, DNSZone | None] = {}
    for other in sorted(_overlapping(zone, selector.cache), key=_age):
        if _age(other) < _age(zone) or other.deleting:
            continue
        blocker = _blocker(selector, other, known)
        if blocker is not None and blocker.ref == zone.ref:
            hint = "" if _is_namesake(zone, other) else f", unless allowed: {_how_to_allow(other, zone)}"
            found.append(f"{other.ref} ({index_name(other.spec.zone_name)}) is refused{hint}")
    return tuple(found)


def _blocker(selector: InstanceSelector, zone: DNSZone, known: dict[NamespacedName, DNSZone | None]) -> DNSZone | None:
    """See `blocker_of`; `known` are results for other zones. The recursion ends: it goes to older zones only."""
    if zone.ref in known:
        return known[zone.ref]
    instances = {instance.metadata.uid: instance for instance in selector.of(zone).instances}
    found = None
    older = (other for other in _overlapping(zone, selector.cache) if _age(other) < _age(zone))
    for other in sorted(older, key=_age):
        common = [
            instances[instance.metadata.uid]
            for instance in selector.of(other).instances
            if instance.metadata.uid in instances
        ]
        if not common or _is_allowed(zone, other, common, selector.cache):
            continue
        if _blocker(selector, other, known) is None:
            found = other
            break
    known[zone.ref] = found
    return found


def _overlapping(zone: DNSZone, cache: Any) -> Iterator[DNSZone]:
    """The other zones that claim some of the same names."""
    for other in cache[DNSZone].by_index("dns-zone-name", index_name(zone.spec.zone_name)):
        if other.ref != zone.ref:
            yield other
    yield from related_zones(zone, cache)


def _is_namesake(zone: DNSZone, other: DNSZone) -> bool:
    return index_name(zone.spec.zone_name) == index_name(other.spec.zone_name)


def _is_allowed(zone: DNSZone, older: DNSZone, common: Sequence[Bind9Instance], cache: Any) -> bool:
    """Whether the older zone's side allows the other one."""
    if _is_namesake(zone, older):
        return False
    return (
        is_overlap_allowed(older, zone.namespace)
        or all(is_overlap_allowed(instance, zone.namespace) for instance in common)
        or _is_delegated(zone, older, cache)
    )


def _is_delegated(zone: DNSZone, above: DNSZone, cache: Any) -> bool:
    """Whether a zone above delegates the name, or one between the two, to its own name servers.

    A name that it delegates elsewhere is not free: a zone of that name here would answer in place of those servers.
    """
    try:
        parent, child = name_of(above.spec.zone_name), name_of(zone.spec.zone_name)
        owner = owner_in(child, parent)
        if not owner:
            return False
        hosts = [above.spec.soa_record.primary_ns, *(row.hostname for row in above.spec.name_servers or ())]
        servers = {name_of(host) for host in [*hosts, *(above.spec.name_server_ips or {})]}
    except FormatError:
        return False
    for record in selected_records(above, cache[NSRecord]):
        if not isinstance(record, NSRecord) or record.deleting:
            continue
        try:
            cut, target = owner_of(record.spec.name, parent), name_of(record.spec.nameserver)
        except FormatError:
            continue
        if cut and target in servers and owner_in(child, cut + parent) is not None:
            return True
    return False


def _how_to_allow(zone: DNSZone, older: DNSZone) -> str:
    """How the older zone's side can allow the overlap."""
    below = index_name(zone.spec.zone_name).endswith(f".{index_name(older.spec.zone_name)}")
    first = f"delegate the name to its own servers with an NSRecord in {older.ref}, or " if below else ""
    return f"{first}add {zone.namespace} to the annotation {OVERLAP_NAMESPACES} of {older.ref} or of the instances"


def _age(zone: DNSZone) -> tuple[str, str, str]:
    return zone.metadata.creation_timestamp or "", zone.namespace, zone.name
