"""Who serves a zone, and which zone a record is part of: pure functions of what the caches hold.

An instance serves a zone when any of three says so: the zone's `bind9InstancesFrom`, the zone's `clusterRef`, or the
instance's (or its cluster's) `zonesFrom`. Instances of another namespace take part only when they
carry the annotation that lets the zone's namespace in, and when their namespace is trusted by the settings (by default
all are, as in the original) or asked for by the zone: where it is not, anybody with a namespace could be sent zones by
giving an instance the right labels. A record that several zones select belongs to the oldest of them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.errors import FormatError, PlanError
from steersman.kube.selectors import Selector
from steersman.operators.dns.parts import selector_of
from steersman.operators.dns.serverkinds import Bind9Instance
from steersman.operators.dns.types import ALLOW_NAMESPACES, SERVED_BY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from steersman.operators.dns.recordkinds import Record
    from steersman.operators.dns.serverkinds import Bind9Cluster, ClusterBind9Provider
    from steersman.operators.dns.zonekinds import DNSZone

__all__ = [
    "Choice",
    "check_selectors",
    "choose_instances",
    "empty_selectors",
    "label_values",
    "leaving_values",
    "published_values",
    "record_selectors",
    "records_wanted",
    "selector_values",
    "selects",
    "source_of",
    "zone_of",
]

EVERY = "*"  # the index value of selectors that name no exact label


class Choice(msgspec.Struct, frozen=True):
    """The instances of a zone."""

    instances: tuple[Bind9Instance, ...]
    methods: tuple[str, ...] = ()  # by which of the three
    denied: tuple[str, ...] = ()  # instances that would be, had they let the zone's namespace in
    uninvited: tuple[str, ...] = ()  # and those that would be, had anybody asked for their namespace


def choose_instances(
    zone: DNSZone,
    instances: Iterable[Bind9Instance],
    clusters: Mapping[tuple[str, str], Bind9Cluster],
    providers: Mapping[str, ClusterBind9Provider],
    trusted: frozenset[str] = frozenset({"*"}),
) -> Choice:
    """The union of the three ways, in the order of namespace and name. `trusted` are namespaces of servers for all."""
    chosen: dict[str, Bind9Instance] = {}
    methods: dict[str, None] = {}
    denied: list[str] = []
    uninvited: list[str] = []
    selectors = _selectors(tuple(row.selector for row in zone.spec.bind9_instances_from or ()))
    for instance in instances:
        if instance.deleting:
            continue
        method = (
            ("bind9InstancesFrom" if any(one.matches(instance.labels) for one in selectors) else "")
            or _by_cluster(zone, instance, clusters, providers)
            or _by_zones_from(zone, instance, clusters)
        )
        if not method:
            continue
        if instance.namespace != zone.namespace and not _lets_in(instance, zone.namespace):
            denied.append(str(instance.ref))
            continue
        if instance.namespace != zone.namespace and not _invited(instance, zone, providers, trusted):
            uninvited.append(str(instance.ref))
            continue
        chosen[instance.metadata.uid or str(instance.ref)] = instance
        methods[method] = None
    ordered = sorted(chosen.values(), key=lambda one: (one.namespace, one.name))
    return Choice(tuple(ordered), tuple(methods), tuple(sorted(denied)), tuple(sorted(uninvited)))


def _by_cluster(
    zone: DNSZone,
    instance: Bind9Instance,
    clusters: Mapping[tuple[str, str], Bind9Cluster],
    providers: Mapping[str, ClusterBind9Provider],
) -> str:
    reference = instance.spec.cluster_ref
    if not reference:
        return ""
    if reference == zone.spec.cluster_provider_ref and reference in providers:
        return "clusterProviderRef"
    if reference != zone.spec.cluster_ref:
        return ""
    own = (zone.namespace, reference) in clusters or reference not in providers
    return "clusterRef" if not own or instance.namespace == zone.namespace else ""


def _by_zones_from(zone: DNSZone, instance: Bind9Instance, clusters: Mapping[tuple[str, str], Bind9Cluster]) -> str:
    if instance.namespace != zone.namespace:
        return ""
    cluster = clusters.get((instance.namespace, instance.spec.cluster_ref))
    rows = [*(instance.spec.zones_from or ()), *((cluster.spec.zones_from or ()) if cluster is not None else ())]
    return "zonesFrom" if any(one.matches(zone.labels) for one in _selectors(tuple(r.selector for r in rows))) else ""


def _lets_in(instance: Bind9Instance, namespace: str) -> bool:
    return not {"*", namespace}.isdisjoint(_listed(instance.annotations.get(ALLOW_NAMESPACES, "")))


def _invited(
    instance: Bind9Instance, zone: DNSZone, providers: Mapping[str, ClusterBind9Provider], trusted: frozenset[str]
) -> bool:
    """Whether somebody who may speak for the zone wants it on servers of that namespace."""
    wanted = trusted | _listed(zone.annotations.get(SERVED_BY, ""))
    provider = providers.get(instance.spec.cluster_ref)
    if provider is not None and provider.spec.namespace:  # who may make providers chose where their servers are
        wanted |= {provider.spec.namespace}
    return not {"*", instance.namespace}.isdisjoint(wanted)


def _listed(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def _selectors(rows: Sequence[object]) -> list[Selector]:
    return [_compiled(msgspec.json.encode(row)) for row in rows]


@lru_cache(maxsize=16384)
def _compiled(wire: bytes) -> Selector:
    """A selector; one that cannot be read selects nothing."""
    from steersman.operators.dns.parts import LabelSelector

    try:
        return selector_of(msgspec.json.decode(wire, type=LabelSelector))
    except FormatError:
        return Selector.NOTHING


# ------------------------------------------------------------------------------------------------ records and zones


_read: dict[int, tuple[object, list[Selector]]] = {}
KEPT = 16384


def record_selectors(zone: DNSZone) -> list[Selector]:
    """What `recordsFrom` means; kept with the spec it was read from, because it is asked for every record."""
    known = _read.get(id(zone.spec))
    if known is not None and known[0] is zone.spec:
        return known[1]
    made = _selectors(tuple(row.selector for row in zone.spec.records_from or ()))
    if len(_read) >= KEPT:
        _read.clear()
    _read[id(zone.spec)] = (zone.spec, made)
    return made


def selects(zone: DNSZone, record: Record) -> bool:
    """Whether a zone wants a record."""
    return zone.namespace == record.namespace and any(one.matches(record.labels) for one in record_selectors(zone))


def records_wanted(zone: DNSZone, shelf: Any) -> Iterator[Record]:
    """The records of one kind that a zone selects, found by a label where its selectors name one."""
    seen: set[str] = set()
    for selector in record_selectors(zone):
        exact = next(((row.key, value) for row in selector.requirements if (value := selector.exact(row.key))), None)
        rows = (
            shelf.list(namespace=zone.namespace)
            if exact is None
            else shelf.by_index("dns-labels", f"{zone.namespace}/{exact[0]}={exact[1]}")
        )
        for record in rows:
            if record.name not in seen and selector.matches(record.labels):
                seen.add(record.name)
                yield record


def zone_of(record: Record, candidates: Iterable[DNSZone]) -> DNSZone | None:
    """The zone that gets a record, of those that may want it: the oldest."""
    wanting = [zone for zone in candidates if selects(zone, record)]
    return min(wanting, key=lambda one: (one.metadata.creation_timestamp or "", one.name), default=None)


def label_values(record: Record) -> list[str]:
    """A record under each of its labels, for an index."""
    return [f"{record.namespace}/{name}={value}" for name, value in record.labels.items()]


def leaving_values(record: Record) -> list[str]:
    """A record that is being deleted under its namespace and among all of them, for an index; others nowhere."""
    return [record.namespace, EVERY] if record.deleting else []


def published_values(record: Record) -> list[str]:
    """A record that was published under the zone it says it was published in, for an index."""
    said = record.status
    if said is None or said.zone_ref is None or not said.published_name:
        return []
    return [f"{record.namespace}/{said.zone_ref.name}"]


def selector_values(zone: DNSZone) -> list[str]:
    """A zone under the labels that its records must have, one per selector, for an index."""
    found = []
    for selector in record_selectors(zone):
        exact = next(((row.key, value) for row in selector.requirements if (value := selector.exact(row.key))), None)
        found.append(f"{zone.namespace}/{EVERY if exact is None else f'{exact[0]}={exact[1]}'}")
    return found


def source_of(record: Record) -> str:
    """What a record is called in a draft: its kind and name, as kubectl takes them."""
    return f"{type(record).KIND.kind.lower()}/{record.name}"


def check_selectors(zone: DNSZone) -> None:
    """PlanError names a selector that cannot be read: it is a slip of the pen, and no wish to select nothing."""
    rows = [(f"recordsFrom[{number}]", one.selector) for number, one in enumerate(zone.spec.records_from or ())]
    chosen = enumerate(zone.spec.bind9_instances_from or ())
    rows += [(f"bind9InstancesFrom[{number}]", one.selector) for number, one in chosen]
    for field, selector in rows:
        if _selectors((selector,)) == [Selector.NOTHING]:
            text = "a label in it cannot exist, or an expression lacks its values; nothing is changed meanwhile"
            raise PlanError(text, reason="InvalidSelector", field=f"spec.{field}.selector")


def empty_selectors(zone: DNSZone) -> list[str]:
    """The fields of a zone whose selector names no label, and so means every object of the namespace."""
    rows = [("recordsFrom", one.selector) for one in zone.spec.records_from or ()]
    rows += [("bind9InstancesFrom", one.selector) for one in zone.spec.bind9_instances_from or ()]
    return [f"spec.{field}" for field, one in rows if not (one.match_labels or one.match_expressions)]
