"""The controllers of clusters and providers: instances from a cluster, clusters from a provider.

A cluster has one instance per replica, numbered within its role; scaling down removes the highest numbers first. A
provider has one cluster of its own name in its namespace and in every namespace where an instance refers to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from steersman.kube.errors import KubeError, NotFound
from steersman.kube.objects import ObjectMeta
from steersman.operators.dns.denials import denial_of
from steersman.operators.dns.serverkinds import (
    Bind9Cluster,
    Bind9Instance,
    ClusterBind9Provider,
    ClusterSpec,
    ClusterStatus,
    InstanceEntry,
)
from steersman.operators.dns.types import INDEX, LABEL_CLUSTER, LABEL_MANAGED_BY, LABEL_ROLE
from steersman.runtime.conditions import condition, find_condition, with_conditions
from steersman.runtime.metadata import owner_reference
from steersman.runtime.result import Result, done, requeue

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.operators.dns.desk import Desk
    from steersman.runtime.context import Context

__all__ = ["ClusterKeeper", "ProviderKeeper", "instances_of"]

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


class ClusterKeeper:
    """Keeps clusters at what they should be."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    async def reconcile(self, ctx: Context, cluster: Bind9Cluster) -> Result:
        """Make the instances that are missing, remove those that are too many, and say how they are."""
        wanted = instances_of(cluster)
        denied = await _applied(ctx, wanted)
        names = {instance.name for instance in wanted}
        mine = [one for one in ctx.cache[Bind9Instance].list(namespace=cluster.namespace) if _is_made_by(one, cluster)]
        for extra in sorted((one for one in mine if one.name not in names), key=_number, reverse=True):
            if not extra.deleting:
                await ctx.delete(extra)
        members = [
            one
            for one in ctx.cache[Bind9Instance].list(namespace=cluster.namespace)
            if one.spec.cluster_ref == cluster.name and not one.deleting
        ]
        status = _status(cluster, members, ctx.clock.time(), lambda one: one.name, denied)
        await ctx.status(cluster, status)
        return _again(self.desk, status)

    async def clean_up(self, ctx: Context, cluster: Bind9Cluster) -> Result:
        """A deleted cluster takes its instances along."""
        left = [
            one
            for one in ctx.cache[Bind9Instance].list(namespace=cluster.namespace)
            if one.spec.cluster_ref == cluster.name and (_is_made_by(one, cluster) or not one.spec.endpoints)
        ]
        for instance in left:
            if not instance.deleting:
                await ctx.delete(instance)
        return requeue(after=1.0) if left else done


class ProviderKeeper:
    """Keeps providers at what they should be."""

    def __init__(self, desk: Desk, home: str) -> None:
        self.desk, self.home = desk, home

    async def reconcile(self, ctx: Context, provider: ClusterBind9Provider) -> Result:
        """Make the clusters that are missing, and say how all are."""
        fields = {name: getattr(provider.spec, name) for name in ClusterSpec.__struct_fields__}
        wanted = []
        for namespace in self._namespaces(ctx, provider):
            meta = ObjectMeta(
                name=provider.name,
                namespace=namespace,
                labels={LABEL_MANAGED_BY: "ClusterBind9Provider", LABEL_CLUSTER: provider.name},
                owner_references=[owner_reference(provider, ClusterBind9Provider.KIND)],
            )
            wanted.append(Bind9Cluster(metadata=meta, spec=ClusterSpec(**fields)))
        denied = await _applied(ctx, wanted)
        clusters = [one for one in ctx.cache[Bind9Cluster] if one.name == provider.name and not one.deleting]
        status = _status(provider, clusters, ctx.clock.time(), lambda one: str(one.ref), denied)
        await ctx.status(provider, status)
        return _again(self.desk, status)

    def _namespaces(self, ctx: Context, provider: ClusterBind9Provider) -> list[str]:
        used = {
            one.namespace
            for one in ctx.cache[Bind9Instance]
            if one.spec.cluster_ref == provider.name and one.labels.get(LABEL_MANAGED_BY) != "Bind9Cluster"
        }
        return sorted({provider.spec.namespace or self.home, *used})

    async def clean_up(self, ctx: Context, provider: ClusterBind9Provider) -> Result:
        """A deleted provider takes its clusters along."""
        left = [
            one
            for one in ctx.cache[Bind9Cluster]
            if one.name == provider.name and one.labels.get(LABEL_MANAGED_BY) == "ClusterBind9Provider"
        ]
        for cluster in left:
            if not cluster.deleting:
                await ctx.delete(cluster)
        return requeue(after=1.0) if left else done


async def _applied(ctx: Context, wanted: Sequence[Any]) -> tuple[str, str] | None:
    """Have these; says what the API server would not have, if there is anything. The others need not wait for it."""
    found = None
    for child in wanted:
        try:
            await ctx.apply(child)
        except KubeError as error:
            denied = denial_of(error)
            if isinstance(error, NotFound):
                denied = "NamespaceMissing", f"there is no namespace {child.namespace}"
            if denied is None:
                raise
            found = found or (denied[0], f"{child.ref}: {denied[1]}")
    return found


def _is_made_by(instance: Bind9Instance, cluster: Bind9Cluster) -> bool:
    return any(owner.uid == cluster.metadata.uid for owner in instance.metadata.owner_references or ())


def _number(instance: Bind9Instance) -> tuple[str, int]:
    return instance.spec.role, int(instance.annotations.get(INDEX, "0"))


def _status(
    owner: Any, members: Sequence[Any], now: float, name_of: Any, denied: tuple[str, str] | None
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
    good = sum(row.ready for row in rows)
    if not rows:
        nothing_wanted = isinstance(owner, Bind9Cluster) and not instances_of(owner)
        reason, ready_now = ("NoChildren", nothing_wanted)
    else:
        ready_now = good == len(rows)
        reason = "AllReady" if ready_now else ("PartiallyReady" if good else "NotReady")
    message = _message(rows)
    if denied is not None:
        ready_now, (reason, message) = False, denied
    known = owner.status.conditions if owner.status is not None else None
    fresh = condition("Ready", ready_now, reason, message, generation=owner.metadata.generation)
    return ClusterStatus(
        conditions=with_conditions(known, fresh, now=now),
        observed_generation=owner.metadata.generation,
        instance_count=len(rows),
        ready_instances=good,
        instances=rows or None,
    )


def _message(rows: Iterable[InstanceEntry]) -> str:
    waiting = [row.name for row in rows if not row.ready]
    return f"not ready: {', '.join(waiting)}" if waiting else ""


def _again(desk: Desk, status: ClusterStatus) -> Result:
    ready = find_condition(status.conditions, "Ready")
    good = ready is not None and ready.status == "True"
    period = desk.options.drift_period if good else desk.options.not_ready
    return requeue(after=desk.later(period.total_seconds()))
