"""The select step: which instances serve a zone, and which zone a record belongs to. Pure functions of the caches.

An instance serves a zone when one of three fields says so: the zone's `bind9InstancesFrom`, the zone's `clusterRef`, or
the `zonesFrom` of the instance or its cluster. An instance of another namespace must also carry the annotation that
allows the zone's namespace, and its namespace must be trusted by the settings (by default all are) or named by the
zone; otherwise any namespace could attract zones by giving an instance the right labels. A record that several zones
select belongs to the oldest of them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.errors import FormatError, PlanError
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.selectors import Selector
from steersman.operators.dns.api.config import ALLOW_NAMESPACES, OVERLAP_NAMESPACES, SERVED_BY
from steersman.operators.dns.api.field_types import LabelSelectorSpec, selector_of
from steersman.operators.dns.api.servers import Bind9Cluster, Bind9Instance, ClusterBind9Provider
from steersman.operators.dns.api.zone import DNSZone
from steersman.operators.dns.zone.names import index_name, names_above

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from steersman.operators.dns.api.records import Record

EVERY = "*"  # the index value of selectors that name no exact label


# -- instances of a zone -----------------------------------------------------------------------------------------------


class Choice(msgspec.Struct, frozen=True):
    """The instances of a zone."""

    instances: tuple[Bind9Instance, ...]
    methods: tuple[str, ...] = ()  # the fields that selected them
    denied: tuple[str, ...] = ()  # selected, but their annotation does not allow the zone's namespace
    unrequested: tuple[str, ...] = ()  # selected, but neither the zone nor the settings name their namespace

    @property
    def has_primary(self) -> bool:
        """Whether any of them is a primary."""
        return any(instance.spec.role == "primary" for instance in self.instances)


class InstanceSelector:
    """Which instances serve which zones, in one snapshot. Every zone is evaluated once."""

    def __init__(self, cache: Any, trusted: frozenset[str] = frozenset({"*"})) -> None:
        """`trusted` are namespaces whose instances any zone may use without naming them."""
        self.cache = cache
        self._trusted = trusted
        self._choices: dict[NamespacedName, Choice] = {}

    def of(self, zone: DNSZone) -> Choice:
        """The instances that serve a zone."""
        if zone.ref not in self._choices:
            self._choices[zone.ref] = self.among(zone, self.cache[Bind9Instance])
        return self._choices[zone.ref]

    def among(self, zone: DNSZone, instances: Iterable[Bind9Instance]) -> Choice:
        """Those of the given instances that serve a zone, in the order of namespace and name."""
        chosen: dict[str, Bind9Instance] = {}
        methods: dict[str, None] = {}
        denied: list[str] = []
        unrequested: list[str] = []
        selectors = _selectors(tuple(row.selector for row in zone.spec.bind9_instances_from or ()))
        for instance in instances:
            if instance.deleting:
                continue
            is_selected = any(selector.matches(instance.labels) for selector in selectors)
            method = (
                ("bind9InstancesFrom" if is_selected else "")
                or self._by_cluster(zone, instance)
                or self._by_zones_from(zone, instance)
            )
            if not method:
                continue
            if not is_namespace_allowed(zone, instance):
                denied.append(str(instance.ref))
            elif instance.namespace != zone.namespace and not self._is_requested(zone, instance):
                unrequested.append(str(instance.ref))
            else:
                chosen[instance.metadata.uid or str(instance.ref)] = instance
                methods[method] = None
        ordered = sorted(chosen.values(), key=lambda instance: (instance.namespace, instance.name))
        return Choice(tuple(ordered), tuple(methods), tuple(sorted(denied)), tuple(sorted(unrequested)))

    def _by_cluster(self, zone: DNSZone, instance: Bind9Instance) -> str:
        reference = instance.spec.cluster_ref
        if not reference:
            return ""
        if reference == zone.spec.cluster_provider_ref and self._provider(reference) is not None:
            return "clusterProviderRef"
        if reference != zone.spec.cluster_ref:
            return ""
        if instance.namespace == zone.namespace:
            return "clusterRef"
        is_own = self._cluster(reference, zone.namespace) is not None or self._provider(reference) is None
        return "" if is_own else "clusterRef"

    def _by_zones_from(self, zone: DNSZone, instance: Bind9Instance) -> str:
        if instance.namespace != zone.namespace:
            return ""
        cluster = self._cluster(instance.spec.cluster_ref, instance.namespace)
        rows = [*(instance.spec.zones_from or ()), *((cluster.spec.zones_from or ()) if cluster is not None else ())]
        selectors = _selectors(tuple(row.selector for row in rows))
        return "zonesFrom" if any(selector.matches(zone.labels) for selector in selectors) else ""

    def _is_requested(self, zone: DNSZone, instance: Bind9Instance) -> bool:
        """Whether the settings, the zone or a provider name the instance's namespace."""
        requested = self._trusted | _listed(zone.annotations.get(SERVED_BY, ""))
        provider = self._provider(instance.spec.cluster_ref)
        if provider is not None and provider.spec.namespace:  # cluster administrators chose where its servers are
            requested |= {provider.spec.namespace}
        return not {"*", instance.namespace}.isdisjoint(requested)

    def _cluster(self, name: str, namespace: str) -> Bind9Cluster | None:
        found: Bind9Cluster | None = self.cache[Bind9Cluster].get(NamespacedName(name, namespace))
        return found

    def _provider(self, name: str) -> ClusterBind9Provider | None:
        found: ClusterBind9Provider | None = self.cache[ClusterBind9Provider].get(NamespacedName(name))
        return found


def check_choice(zone: DNSZone, choice: Choice) -> None:
    """PlanError when no instance serves a zone."""
    if choice.instances:
        return
    if choice.denied:
        raise PlanError(
            f"{', '.join(choice.denied)} does not allow namespace {zone.namespace}: add it to the annotation "
            f"{ALLOW_NAMESPACES} of the instance",
            reason="CrossNamespaceDenied",
        )
    if choice.unrequested:
        raise PlanError(
            f"cross-namespace instance {', '.join(choice.unrequested)} must be named explicitly: add its namespace to "
            f"the annotation {SERVED_BY} of the zone, or to dns.serverNamespaces",
            reason="CrossNamespaceDenied",
        )
    raise PlanError(
        "no Bind9Instance serves the zone: bind9InstancesFrom, clusterRef and zonesFrom select none",
        reason="NoInstances",
    )


def missing_cluster(name: str, namespace: str, cache: Any) -> str:
    """What is wrong with a `clusterRef`; empty when it names an existing object, or nothing."""
    exists = (
        not name
        or cache[Bind9Cluster].get(NamespacedName(name, namespace))
        or cache[ClusterBind9Provider].get(NamespacedName(name))
    )
    return "" if exists else f"spec.clusterRef: no Bind9Cluster or ClusterBind9Provider is called {name}"


def is_namespace_allowed(zone: DNSZone, instance: Bind9Instance) -> bool:
    """Whether the servers of an instance may be changed for a zone."""
    if instance.namespace == zone.namespace:
        return True
    return not {"*", zone.namespace}.isdisjoint(_listed(instance.annotations.get(ALLOW_NAMESPACES, "")))


def may_adopt(zone: DNSZone, instance: Bind9Instance) -> bool:
    """Whether a zone decides about foreign data on the servers of an instance.

    Annotations and status of a zone are written in its own namespace, so they prove nothing about servers of another
    one: there the instance has to name the zone's namespace.
    """
    return instance.namespace == zone.namespace or is_overlap_allowed(instance, zone.namespace)


def is_overlap_allowed(owner: DNSZone | Bind9Instance, namespace: str) -> bool:
    """Whether a zone allows zones of a namespace above or below it; or an instance, above or below any of its zones."""
    return not {"*", namespace}.isdisjoint(_listed(owner.annotations.get(OVERLAP_NAMESPACES, "")))


def _listed(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def _selectors(rows: Sequence[object]) -> list[Selector]:
    return [_compiled(msgspec.json.encode(row)) for row in rows]


@lru_cache(maxsize=16384)
def _compiled(wire: bytes) -> Selector:
    """A selector; one that cannot be read selects nothing."""
    try:
        return selector_of(msgspec.json.decode(wire, type=LabelSelectorSpec))
    except FormatError:
        return Selector.NOTHING


# -- records of a zone -------------------------------------------------------------------------------------------------


_read: dict[int, tuple[object, list[Selector]]] = {}
KEPT = 16384


def record_selectors(zone: DNSZone) -> list[Selector]:
    """The selectors of `recordsFrom`; kept with the spec they were read from, because every record needs them."""
    known = _read.get(id(zone.spec))
    if known is not None and known[0] is zone.spec:
        return known[1]
    made = _selectors(tuple(row.selector for row in zone.spec.records_from or ()))
    if len(_read) >= KEPT:
        _read.clear()
    _read[id(zone.spec)] = (zone.spec, made)
    return made


def selects(zone: DNSZone, record: Record) -> bool:
    """Whether a zone selects a record."""
    if zone.namespace != record.namespace:
        return False
    return any(selector.matches(record.labels) for selector in record_selectors(zone))


def selected_records(zone: DNSZone, snapshot: Any) -> Iterator[Record]:
    """The records of one kind that a zone selects, found by a label where its selectors name one."""
    seen: set[str] = set()
    for selector in record_selectors(zone):
        value = _index_value(zone.namespace, selector)
        is_exact = value != f"{zone.namespace}/{EVERY}"
        rows = snapshot.by_index("dns-labels", value) if is_exact else snapshot.list(namespace=zone.namespace)
        for record in rows:
            if record.name not in seen and selector.matches(record.labels):
                seen.add(record.name)
                yield record


def zones_selecting(record: Record, cache: Any) -> list[DNSZone]:
    """The zones that select a record, oldest first; zones that are being deleted are left out."""
    zones = cache[DNSZone]
    found: dict[str, DNSZone] = {}
    for value in (*label_values(record), f"{record.namespace}/{EVERY}"):
        for zone in zones.by_index("dns-records-from", value):
            if not zone.deleting and selects(zone, record):
                found[zone.name] = zone
    return sorted(found.values(), key=age_of)


def zone_of(record: Record, cache: Any) -> DNSZone | None:
    """The zone that a record belongs to: the oldest that selects it."""
    return next(iter(zones_selecting(record, cache)), None)


def age_of(zone: DNSZone) -> tuple[str, str]:
    """The order of the zones of one namespace, oldest first."""
    return zone.metadata.creation_timestamp or "", zone.name


def zone_names(zone: DNSZone) -> list[str]:
    """A zone under its name, for an index."""
    return [index_name(zone.spec.zone_name)]


def zone_names_above(zone: DNSZone) -> list[str]:
    """A zone under every name above its own, for an index."""
    return names_above(zone.spec.zone_name)


def related_zones(zone: DNSZone, cache: Any) -> Iterator[DNSZone]:
    """The zones of other namespaces that lie above or below a zone."""
    zones = cache[DNSZone]
    for name in names_above(zone.spec.zone_name):
        yield from (other for other in zones.by_index("dns-zone-name", name) if other.namespace != zone.namespace)
    for other in zones.by_index("dns-zone-above", index_name(zone.spec.zone_name)):
        if other.namespace != zone.namespace:
            yield other


def label_values(record: Record) -> list[str]:
    """A record under each of its labels, for an index."""
    return [f"{record.namespace}/{name}={value}" for name, value in record.labels.items()]


def leaving_values(record: Record) -> list[str]:
    """A record that is being deleted under its namespace and among all of them, for an index; others nowhere."""
    return [record.namespace, EVERY] if record.deleting else []


def published_values(record: Record) -> list[str]:
    """A record that was published under the zone it says it was published in, for an index."""
    status = record.status
    if status is None or status.zone_ref is None or not status.published_name:
        return []
    return [f"{record.namespace}/{status.zone_ref.name}"]


def selector_values(zone: DNSZone) -> list[str]:
    """A zone under the labels that its records must have, one per selector, for an index."""
    return [_index_value(zone.namespace, selector) for selector in record_selectors(zone)]


def _index_value(namespace: str, selector: Selector) -> str:
    exact = next(((row.key, value) for row in selector.requirements if (value := selector.exact(row.key))), None)
    return f"{namespace}/{EVERY if exact is None else f'{exact[0]}={exact[1]}'}"


def source_of(record: Record) -> str:
    """The name of a record among the sources of a zone: kind and name, as kubectl takes them."""
    return f"{type(record).KIND.kind.lower()}/{record.name}"


def check_selectors(zone: DNSZone) -> None:
    """PlanError names a selector that is invalid: it is a mistake, and does not mean to select nothing."""
    rows = [(f"recordsFrom[{number}]", row.selector) for number, row in enumerate(zone.spec.records_from or ())]
    chosen = enumerate(zone.spec.bind9_instances_from or ())
    rows += [(f"bind9InstancesFrom[{number}]", row.selector) for number, row in chosen]
    for field, selector in rows:
        if _selectors((selector,)) == [Selector.NOTHING]:
            raise PlanError(
                "invalid label or expression without values; the zone stays as it is until this is corrected",
                reason="InvalidSelector",
                field=f"spec.{field}.selector",
            )


def empty_selectors(zone: DNSZone) -> list[str]:
    """The fields of a zone whose selector names no label, and so selects every object of the namespace."""
    rows = [("recordsFrom", row.selector) for row in zone.spec.records_from or ()]
    rows += [("bind9InstancesFrom", row.selector) for row in zone.spec.bind9_instances_from or ()]
    return [f"spec.{field}" for field, selector in rows if not (selector.match_labels or selector.match_expressions)]
