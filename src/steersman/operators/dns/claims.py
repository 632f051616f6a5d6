"""Who may serve a zone: somebody who lets it in, and on whose servers no other zone has its name. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.errors import PlanError
from steersman.kube.resources import ObjectRef
from steersman.operators.dns.serverkinds import Bind9Cluster, ClusterBind9Provider
from steersman.operators.dns.types import SERVED_BY
from steersman.operators.dns.zonekinds import DNSZone

if TYPE_CHECKING:
    from steersman.operators.dns.desk import Desk
    from steersman.operators.dns.selection import Choice

__all__ = ["check_choice", "check_holder", "holder_of", "lost_cluster"]


def check_choice(desk: Desk, zone: DNSZone, choice: Choice, cache: Any) -> None:
    """PlanError when a zone has no servers, or none of its own."""
    if not choice.instances:
        if choice.denied:
            raise PlanError(
                f"{', '.join(choice.denied)} does not let namespace {zone.namespace} in "
                "(annotation bindy.firestoned.io/allow-zone-namespaces)",
                reason="CrossNamespaceDenied",
            )
        if choice.uninvited:
            raise PlanError(
                f"{', '.join(choice.uninvited)} is of another namespace, which nobody asked for: name it in the "
                f"annotation {SERVED_BY} of the zone, or in dns.serverNamespaces",
                reason="CrossNamespaceDenied",
            )
        raise PlanError(
            "no Bind9Instance serves it (bind9InstancesFrom, clusterRef and zonesFrom select none)",
            reason="NoInstances",
        )
    check_holder(desk, zone, choice, cache)


def lost_cluster(name: str, namespace: str, cache: Any) -> str:
    """What to say of a `clusterRef` that names nothing; empty when there is nothing to say."""
    known = (
        not name
        or cache[Bind9Cluster].get(ObjectRef(name, namespace))
        or cache[ClusterBind9Provider].get(ObjectRef(name))
    )
    return "" if known else f"spec.clusterRef: there is no Bind9Cluster or ClusterBind9Provider {name}"


def check_holder(desk: Desk, zone: DNSZone, choice: Choice, cache: Any) -> None:
    """PlanError when an older zone has the name on these servers."""
    holder = holder_of(desk, zone, choice, cache)
    if holder is not None:
        raise PlanError(
            f"{holder.ref} is older and serves the same name there", reason="DuplicateZone", field="spec.zoneName"
        )


def holder_of(desk: Desk, zone: DNSZone, choice: Choice, cache: Any) -> DNSZone | None:
    """The zone that has the name already, on an instance that both want."""
    mine = {instance.metadata.uid for instance in choice.instances}
    for other in cache[DNSZone].by_index("dns-zone-name", zone.spec.zone_name.lower()):
        if other.ref == zone.ref or _age(other) > _age(zone):
            continue
        if mine & {instance.metadata.uid for instance in desk.choose(other, cache).instances}:
            return other  # type: ignore[no-any-return]  # the shelf of zones holds zones
    return None


def _age(zone: DNSZone) -> tuple[str, str, str]:
    return zone.metadata.creation_timestamp or "", zone.namespace, zone.name
