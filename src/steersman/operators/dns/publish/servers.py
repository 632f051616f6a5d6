"""The servers and catalogs of instances, as pods, endpoints and Secrets have them now. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.errors import PlanError
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.types.core import Secret
from steersman.kube.api.types.pods import Pod
from steersman.operators.dns.api.servers import Bind9Cluster
from steersman.operators.dns.bind.servers import catalog_of, keys_of, servers_of
from steersman.operators.dns.zone.catalog import catalogs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.operators.dns.api.servers import Bind9Instance
    from steersman.operators.dns.api.zone import DNSZone
    from steersman.operators.dns.bind.servers import Server


def cluster_of(instance: Bind9Instance, cache: Any) -> Bind9Cluster | None:
    """The Bind9Cluster that an instance refers to."""
    found: Bind9Cluster | None = cache[Bind9Cluster].get(NamespacedName(instance.spec.cluster_ref, instance.namespace))
    return found


def pods_of(instance: Bind9Instance, cache: Any) -> Sequence[Pod]:
    """The pods of an instance; none when its servers exist already."""
    if instance.spec.endpoints:
        return ()
    found: Sequence[Pod] = cache[Pod].by_index("dns-instance", f"{instance.namespace}/{instance.name}")
    return found


def resolve_servers(instances: Iterable[Bind9Instance], cache: Any) -> tuple[list[Server], dict[str, PlanError]]:
    """The servers of instances; and by instance why its servers are not known."""
    found: list[Server] = []
    problems: dict[str, PlanError] = {}
    for instance in instances:
        cluster = cluster_of(instance, cache)
        try:
            keys = keys_of(instance, cluster, cache[Secret])
            found += servers_of(instance, cluster, keys, pods_of(instance, cache))
        except PlanError as error:
            problems[str(instance.ref)] = error
    return found, problems


def catalogs_for(
    zone: DNSZone, instances: Iterable[Bind9Instance], cache: Any
) -> dict[tuple[str, str], NamespacedName]:
    """The catalogs that a zone should be in, each with an instance that takes its zones from there."""
    return catalogs_of(
        zone, [(instance.ref, catalog_of(instance, cluster_of(instance, cache))) for instance in instances]
    )
