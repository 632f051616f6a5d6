"""The controllers of the simulation: what is watched, which plan is made, and the one way plans are carried out.

Every reconcile is the same three steps: children from the snapshot, plan, carry out. Nothing is kept in memory, so the
simulation can be stopped and started at any time.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from prometheus_client import CollectorRegistry

from steersman.kube.api.errors import AlreadyExists, Conflict, NotFound
from steersman.kube.api.objects import Resource
from steersman.kube.api.types.apps import ControllerRevision
from steersman.kube.api.types.core import Node, Service
from steersman.kube.api.types.discovery import EndpointSlice
from steersman.runtime.controller.builder import Controller
from steersman.runtime.controller.predicates import Predicate, created, deletion_started, generation
from steersman.runtime.controller.result import Result, done, requeue
from steersman.runtime.manager.manager import Manager
from steersman.runtime.workqueue.queue import Debounce
from steersman.simulate.endpoints import plan_endpoints, selects
from steersman.simulate.kinds import (
    SimulatedCronJob,
    SimulatedDaemonSet,
    SimulatedDeployment,
    SimulatedJob,
    SimulatedPod,
    SimulatedReplicaSet,
    SimulatedStatefulSet,
)
from steersman.simulate.kubelet import plan_pod
from steersman.simulate.nodes import new_node, plan_node
from steersman.simulate.workloads.cronjobs import plan_cron_job
from steersman.simulate.workloads.daemonsets import plan_daemon_set
from steersman.simulate.workloads.deployments import plan_deployment
from steersman.simulate.workloads.jobs import plan_job
from steersman.simulate.workloads.replicasets import plan_replica_set
from steersman.simulate.workloads.statefulsets import plan_stateful_set

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from steersman.kube.api.gvk import NamespacedName
    from steersman.kube.client.client import Client
    from steersman.runtime.cluster import ClusterSnapshot
    from steersman.runtime.reconcile.context import Context
    from steersman.simulate.plan import Plan

R = TypeVar("R", bound=Resource)

_OWNER, _ADDRESS = "simulate.owner", "simulate.address"
_SETTLE = Debounce(quiet_seconds=0.05, limit_seconds=1.0)  # pods of one workload change together: count them once
_CONCURRENCY = 16


# -------------------------------------------------------------------------------------------------------- reconcilers
async def reconcile_deployment(ctx: Context, deployment: SimulatedDeployment) -> Result:
    """Deployment → ReplicaSets."""
    owned = children(ctx, SimulatedReplicaSet, deployment)
    return await carry_out(ctx, deployment, plan_deployment(deployment, owned, now=ctx.clock.time()))


async def reconcile_replica_set(ctx: Context, owner: SimulatedReplicaSet) -> Result:
    """ReplicaSet → Pods."""
    return await carry_out(
        ctx, owner, plan_replica_set(owner, children(ctx, SimulatedPod, owner), now=ctx.clock.time())
    )


async def reconcile_stateful_set(ctx: Context, owner: SimulatedStatefulSet) -> Result:
    """StatefulSet → Pods and ControllerRevisions."""
    pods, revisions = children(ctx, SimulatedPod, owner), children(ctx, ControllerRevision, owner)
    return await carry_out(ctx, owner, plan_stateful_set(owner, pods, revisions, now=ctx.clock.time()))


async def reconcile_daemon_set(ctx: Context, owner: SimulatedDaemonSet) -> Result:
    """DaemonSet → Pods and ControllerRevisions."""
    pods, revisions = children(ctx, SimulatedPod, owner), children(ctx, ControllerRevision, owner)
    plan = plan_daemon_set(owner, pods, ctx.cache[Node].list(), revisions, now=ctx.clock.time())
    return await carry_out(ctx, owner, plan)


async def reconcile_job(ctx: Context, job: SimulatedJob) -> Result:
    """Job → Pods."""
    return await carry_out(ctx, job, plan_job(job, children(ctx, SimulatedPod, job), now=ctx.clock.time()))


async def reconcile_cron_job(ctx: Context, owner: SimulatedCronJob) -> Result:
    """CronJob → Jobs."""
    return await carry_out(ctx, owner, plan_cron_job(owner, children(ctx, SimulatedJob, owner), now=ctx.clock.time()))


async def reconcile_service(ctx: Context, service: Service) -> Result:
    """Service → EndpointSlice."""
    pods = ctx.cache[SimulatedPod].list(namespace=service.namespace)
    return await carry_out(ctx, service, plan_endpoints(service, pods, children(ctx, EndpointSlice, service)))


async def reconcile_node(ctx: Context, node: Node) -> Result:
    """Node → its status."""
    return await carry_out(ctx, node, plan_node(node, now=ctx.clock.time()))


async def reconcile_pod(ctx: Context, pod: SimulatedPod) -> Result:
    """Pod → a node, a status, and its end."""
    indexed(ctx, SimulatedPod)

    def taken(address: str) -> bool:
        return bool(ctx.cache[SimulatedPod].by_index(_ADDRESS, address))

    plan = plan_pod(pod, ctx.cache[Node].list(), taken, now=ctx.clock.time())
    if plan.bind:
        await bind(ctx, pod, plan.bind)
    if plan.finish:
        await finish(ctx, pod)
    return await carry_out(ctx, pod, plan)


# ------------------------------------------------------------------------------------------------------------ effects
async def carry_out(ctx: Context, obj: Resource, plan: Plan) -> Result:
    """Do what a plan says. What others did first, or deleted meanwhile, is fine: the watch brings it back here."""
    taken = False
    for new in plan.create:
        try:
            await ctx.create(new, owner=None)
        except AlreadyExists:
            ctx.log.info("the name is taken; waiting until it is free", name=new.name)
            taken = True
    for change in plan.change:
        try:
            await ctx.patch(change.obj, change.patch, subresource=change.subresource)
        except NotFound:
            continue
    for old in plan.delete:
        try:
            await ctx.delete(old, propagation="Background")
        except Conflict:
            continue  # another one of that name
    if plan.status is not None:
        await ctx.status(obj, plan.status)
    if taken:
        return requeue()
    return done if plan.again is None else requeue(after=plan.again)


async def bind(ctx: Context, pod: SimulatedPod, node: str) -> None:
    """Give a pod its node; fine when it has one or is gone."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.metadata.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    try:
        await ctx.client.raw_post(SimulatedPod.KIND.path(pod.namespace, pod.name, "binding"), body)
    except (Conflict, NotFound):
        return


async def finish(ctx: Context, pod: SimulatedPod) -> None:
    """The last word of a kubelet: everything has ended, the object may go."""
    try:
        await ctx.client.delete(
            SimulatedPod, pod.name, namespace=pod.namespace, uid=pod.metadata.uid, grace_period_seconds=0
        )
    except (Conflict, NotFound):
        return


# ------------------------------------------------------------------------------------------------------------ reading
def children(ctx: Context, target: type[R], owner: Resource) -> Sequence[R]:
    """The objects that `owner` controls."""
    indexed(ctx, target)
    return ctx.cache[target].by_index(_OWNER, owner.metadata.uid)


def indexed(ctx: Context, target: type[Resource]) -> None:
    """Make sure that objects can be found by their owner; costs nothing when they can."""
    watched = ctx.cache.watched(target)
    assert watched is not None
    watched.informer.add_index(_OWNER, _controller_uid)
    if target is SimulatedPod:
        watched.informer.add_index(_ADDRESS, _addresses)


def _controller_uid(obj: Resource) -> Iterable[str]:
    return () if obj.controller is None else (obj.controller.uid,)


def _addresses(pod: SimulatedPod) -> Iterable[str]:
    return (pod.status.pod_ip,) if pod.status.pod_ip else ()


# ------------------------------------------------------------------------------------------------------------ mapping
def services_of(pod: SimulatedPod, cache: ClusterSnapshot) -> Iterable[NamespacedName]:
    """The services that a pod is behind."""
    return [service.ref for service in cache[Service].list(namespace=pod.namespace) if selects(service, pod)]


def every_daemon_set(_: Node, cache: ClusterSnapshot) -> Iterable[NamespacedName]:
    """A node concerns all of them."""
    return [daemon_set.ref for daemon_set in cache[SimulatedDaemonSet].list()]


def unscheduled_pods(_: Node, cache: ClusterSnapshot) -> Iterable[NamespacedName]:
    """Pods that wait for a node."""
    return [pod.ref for pod in cache[SimulatedPod].list() if not pod.spec.get("nodeName")]


def _visible(old: SimulatedPod, new: SimulatedPod) -> bool:
    """Whether anything differs that a service shows of a pod."""
    return (old.labels, old.deleting, old.status.pod_ip, old.status.phase, _ready(old)) != (
        new.labels,
        new.deleting,
        new.status.pod_ip,
        new.status.phase,
        _ready(new),
    )


def _ready(pod: SimulatedPod) -> list[str]:
    return [known.status for known in pod.status.conditions if known.type == "Ready"]


def _placement(old: Node, new: Node) -> bool:
    return (old.spec, old.labels, old.deleting) != (new.spec, new.labels, new.deleting)


def _either_way(name: str, differs: Any) -> Predicate:
    """Creations, deletions, and the updates for which `differs` holds."""
    return Predicate(name, lambda old, new: old is None or new is None or differs(old, new))


def _annotated(old: Resource, new: Resource) -> bool:
    return old.annotations != new.annotations


def controllers() -> list[Controller]:
    """Everything that makes an API server behave like a cluster."""
    changed = generation | deletion_started | created | _either_way("annotations", _annotated)
    shown, placement = _either_way("shown", _visible), _either_way("placement", _placement)
    table = [
        Controller(SimulatedDeployment, reconcile_deployment).when(changed).owns(SimulatedReplicaSet),
        Controller(SimulatedReplicaSet, reconcile_replica_set).when(changed).owns(SimulatedPod, when=shown),
        Controller(SimulatedStatefulSet, reconcile_stateful_set)
        .when(changed)
        .owns(SimulatedPod, when=shown)
        .reads(ControllerRevision),
        Controller(SimulatedDaemonSet, reconcile_daemon_set)
        .when(changed)
        .owns(SimulatedPod, when=shown)
        .watches(Node, to=every_daemon_set, when=placement)
        .reads(ControllerRevision),
        Controller(SimulatedJob, reconcile_job).when(changed).owns(SimulatedPod, when=shown),
        Controller(SimulatedCronJob, reconcile_cron_job).when(changed).owns(SimulatedJob),
        Controller(Service, reconcile_service).owns(EndpointSlice).watches(SimulatedPod, to=services_of, when=shown),
    ]
    return [
        *(
            controller.named(f"simulate-{controller.name}").with_options(
                concurrency=_CONCURRENCY, debounce=_SETTLE, shared_objects=True
            )
            for controller in table
        ),
        Controller(Node, reconcile_node).with_options(shared_objects=True).named("simulate-node"),
        Controller(SimulatedPod, reconcile_pod)
        .watches(Node, to=unscheduled_pods, when=placement)
        .with_options(concurrency=2 * _CONCURRENCY, while_terminating=True, shared_objects=True)
        .named("simulate-pod"),
    ]


@asynccontextmanager
async def simulation(client: Client, *, nodes: int = 2, **options: Any) -> AsyncIterator[Manager]:
    """Simulate a cluster with so many nodes behind `client` until the block ends; `options` are the manager's.

    The block begins when the controllers work; when they fail, leaving it raises the error.
    """
    for number in range(1, nodes + 1):
        with suppress(AlreadyExists):
            await client.create(new_node(number))
    options.setdefault("registry", CollectorRegistry())
    options.setdefault("component", "steersman-simulation")
    manager = Manager(client, controllers(), **options)
    running = asyncio.create_task(manager.run())
    ready = asyncio.create_task(_synced(manager))
    try:
        await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            yield manager
    finally:
        ready.cancel()
        manager.stop()
        await running


async def _synced(manager: Manager) -> None:
    await manager.working.wait()
    for controller in controllers():
        await manager.runner(controller.name).wait_synced()
