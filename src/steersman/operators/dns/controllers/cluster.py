"""The controllers of clusters and providers: instances from a cluster, clusters from a provider.

A cluster has one instance per replica, numbered within its role; scaling down removes the highest numbers first. A
provider has one cluster of its own name in its namespace and in every namespace where an instance refers to it; the
cluster of any other namespace is deleted once these exist. The owner reference decides: a cluster of the same name with
another owner is neither counted nor deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.kube.api.errors import KubeError, NotFound
from steersman.kube.api.objects import ObjectMeta
from steersman.operators.dns.api.config import INDEX, LABEL_CLUSTER, LABEL_MANAGED_BY, LABEL_ROLE
from steersman.operators.dns.api.servers import (
    Bind9Cluster,
    Bind9Instance,
    ClusterBind9Provider,
    ClusterSpec,
    ClusterStatus,
    InstanceEntry,
)
from steersman.operators.dns.controllers.context import rejection_of, spread
from steersman.runtime.controller.result import Result, done, requeue
from steersman.runtime.reconcile.conditions import find_condition, new_condition, set_conditions
from steersman.runtime.reconcile.metadata import owner_reference
from steersman.runtime.reconcile.ownership import NotOwned

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.operators.dns.api.config import DnsOptions
    from steersman.runtime.reconcile.context import Context

ROLES: Final = ("primary", "secondary")


def instances_of(cluster: Bind9Cluster) -> list[Bind9Instance]:
    """The instances that a cluster should have. Pure."""
    made = []
    for role in ROLES:
        config = cluster.spec.primary if role == "primary" else cluster.spec.secondary
        for number in range((config.replicas or 0) if config is not None else 0):
            labels = {
                **((config.labels if config is not None else None) or {}),
                LABEL_MANAGED_BY: "Bind9Cluster",
                LABEL_CLUSTER: cluster.name,
                LABEL_ROLE: role,
                "app.kubernetes.io/part-of": "bindy",
            }
            meta = ObjectMeta(
                name=f"{cluster.name}-{role}-{number}",
                namespace=cluster.namespace,
                labels=labels,
                annotations={INDEX: str(number)},
            )
            spec = Bind9Instance.Spec(cluster_ref=cluster.name, role=role, replicas=1, driver=cluster.spec.driver)
            made.append(Bind9Instance(metadata=meta, spec=spec))
    return made


class ClusterReconciler:
    """Applies the instances of clusters."""

    def __init__(self, options: DnsOptions) -> None:
        self.options = options

    async def reconcile(self, ctx: Context, cluster: Bind9Cluster) -> Result:
        """Apply the instances, delete surplus ones, and report on all of them."""
        wanted = instances_of(cluster)
        rejected = await _apply(ctx, wanted)
        names = {instance.name for instance in wanted}
        mine = [
            instance
            for instance in ctx.cache[Bind9Instance].list(namespace=cluster.namespace)
            if _is_made_by(instance, cluster)
        ]
        for extra in sorted((instance for instance in mine if instance.name not in names), key=_number, reverse=True):
            if not extra.deleting:
                await ctx.delete(extra)
        members = [
            instance
            for instance in ctx.cache[Bind9Instance].list(namespace=cluster.namespace)
            if instance.spec.cluster_ref == cluster.name and not instance.deleting
        ]
        status = _status(cluster, members, ctx.clock.time(), lambda instance: instance.name, rejected)
        await ctx.status(cluster, status)
        return _requeue(self.options, status)

    async def clean_up(self, ctx: Context, cluster: Bind9Cluster) -> Result:
        """A deleted cluster takes its instances along."""
        left = [
            instance
            for instance in ctx.cache[Bind9Instance].list(namespace=cluster.namespace)
            if instance.spec.cluster_ref == cluster.name
            and (_is_made_by(instance, cluster) or not instance.spec.endpoints)
        ]
        for instance in left:
            if not instance.deleting:
                await ctx.delete(instance, owner=None)  # also one that people made for this cluster
        return requeue(after=1.0) if left else done


class ProviderReconciler:
    """Applies the clusters of providers."""

    def __init__(self, options: DnsOptions, home: str) -> None:
        self.options, self.home = options, home

    async def reconcile(self, ctx: Context, provider: ClusterBind9Provider) -> Result:
        """Apply the clusters, delete surplus ones, and report on all of them."""
        # what the provider leaves to defaults is left to them in its clusters too
        spec = msgspec.convert(msgspec.to_builtins(provider.spec), ClusterSpec)
        wanted = []
        for namespace in self._namespaces(ctx, provider):
            meta = ObjectMeta(
                name=provider.name,
                namespace=namespace,
                labels={LABEL_MANAGED_BY: "ClusterBind9Provider", LABEL_CLUSTER: provider.name},
                owner_references=[owner_reference(provider, ClusterBind9Provider.KIND)],
            )
            wanted.append(Bind9Cluster(metadata=meta, spec=spec))
        rejected = await _apply(ctx, wanted)
        places = {cluster.ref for cluster in wanted}
        mine = [cluster for cluster in ctx.cache[Bind9Cluster] if _is_made_by(cluster, provider)]
        if rejected is None:  # else the old clusters serve until the new ones can be made
            for extra in mine:
                if extra.ref not in places and not extra.deleting:
                    await ctx.delete(extra)
        clusters = [cluster for cluster in mine if cluster.ref in places and not cluster.deleting]
        status = _status(provider, clusters, ctx.clock.time(), lambda cluster: str(cluster.ref), rejected)
        await ctx.status(provider, status)
        return _requeue(self.options, status)

    def _namespaces(self, ctx: Context, provider: ClusterBind9Provider) -> list[str]:
        used = {
            instance.namespace
            for instance in ctx.cache[Bind9Instance]
            if instance.spec.cluster_ref == provider.name and instance.labels.get(LABEL_MANAGED_BY) != "Bind9Cluster"
        }
        return sorted({provider.spec.namespace or self.home, *used})

    async def clean_up(self, ctx: Context, provider: ClusterBind9Provider) -> Result:
        """A deleted provider takes its clusters along."""
        left = [cluster for cluster in ctx.cache[Bind9Cluster] if _is_made_by(cluster, provider)]
        for cluster in left:
            if not cluster.deleting:
                await ctx.delete(cluster)
        return requeue(after=1.0) if left else done


async def _apply(ctx: Context, wanted: Sequence[Any]) -> tuple[str, str] | None:
    """Apply objects; returns reason and message of the first that was rejected. The others are applied all the same."""
    found = None
    for child in wanted:
        try:
            await ctx.apply(child, adopt=_ours(child))
        except NotOwned as error:
            found = found or (error.reason, str(error))
        except KubeError as error:
            rejected = rejection_of(error)
            if isinstance(error, NotFound):
                rejected = "NamespaceMissing", f"namespace {child.namespace} does not exist"
            if rejected is None:
                raise
            found = found or (rejected[0], f"{child.ref}: {rejected[1]}")
    return found


def _ours(child: Any) -> dict[str, str]:
    """The labels by which a child without a controller is recognised as made for the same owner."""
    return {name: child.labels.get(name, "") for name in (LABEL_MANAGED_BY, LABEL_CLUSTER)}


def _is_made_by(child: Bind9Instance | Bind9Cluster, parent: Bind9Cluster | ClusterBind9Provider) -> bool:
    return any(owner.uid == parent.metadata.uid for owner in child.metadata.owner_references or ())


def _number(instance: Bind9Instance) -> tuple[str, int]:
    return instance.spec.role, int(instance.annotations.get(INDEX, "0"))


def _status(
    owner: Any, members: Sequence[Any], now: float, name_of: Any, rejected: tuple[str, str] | None
) -> ClusterStatus:
    rows = []
    for member in members:
        ready = find_condition(member.status.conditions if member.status else None, "Ready")
        rows.append(
            InstanceEntry(
                name=name_of(member),
                role=getattr(member.spec, "role", ""),
                ready=ready is not None and ready.status == "True",
                reason=ready.reason if ready is not None else "Pending",
            )
        )
    ready_count = sum(row.ready for row in rows)
    if not rows:
        nothing_wanted = isinstance(owner, Bind9Cluster) and not instances_of(owner)
        reason, is_ready = ("NoChildren", nothing_wanted)
    else:
        is_ready = ready_count == len(rows)
        reason = "AllReady" if is_ready else ("PartiallyReady" if ready_count else "NotReady")
    message = _message(rows)
    if rejected is not None:
        is_ready, (reason, message) = False, rejected
    known = owner.status.conditions if owner.status is not None else None
    fresh = new_condition("Ready", is_ready, reason, message, generation=owner.metadata.generation)
    return ClusterStatus(
        conditions=set_conditions(known, fresh, now=now),
        observed_generation=owner.metadata.generation,
        instance_count=len(rows),
        ready_instances=ready_count,
        instances=rows or None,
    )


def _message(rows: Iterable[InstanceEntry]) -> str:
    waiting = [row.name for row in rows if not row.ready]
    return f"not ready: {', '.join(waiting)}" if waiting else ""


def _requeue(options: DnsOptions, status: ClusterStatus) -> Result:
    ready = find_condition(status.conditions, "Ready")
    is_ready = ready is not None and ready.status == "True"
    return requeue(after=spread((options.drift_period if is_ready else options.not_ready).total_seconds()))
