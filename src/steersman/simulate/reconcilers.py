"""The controllers of the simulation: what is watched, which plan is made, and the one way plans are carried out.

Every reconcile is the same three steps: children from the snapshot, plan, carry out. Nothing is kept in memory, so the
simulation can be stopped and started at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from steersman.kube.errors import AlreadyExists, Conflict, NotFound
from steersman.kube.objects import Resource
from steersman.runtime.controller import Controller
from steersman.runtime.predicates import Predicate, created, deletion_started, generation
from steersman.runtime.queue import Debounce
from steersman.runtime.result import Result, done, requeue
from steersman.simulate.cronjobs import plan_cron_job
from steersman.simulate.daemons import plan_daemon_set
from steersman.simulate.endpoints import plan_endpoints, selects
from steersman.simulate.jobs import plan_job
from steersman.simulate.kinds import (
    ControllerRevision,
    CronJob,
    DaemonSet,
    Deployment,
    EndpointSlice,
    Job,
    Node,
    Pod,
    ReplicaSet,
    Service,
    StatefulSet,
)
from steersman.simulate.nodes import plan_node
from steersman.simulate.ordinals import plan_stateful_set
from steersman.simulate.podlife import plan_pod
from steersman.simulate.replicas import plan_replica_set
from steersman.simulate.rollout import plan_deployment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.kube.resources import ObjectRef
    from steersman.runtime.cluster import Snapshots
    from steersman.runtime.context import Context
    from steersman.simulate.plan import Plan

__all__ = ["controllers"]

R = TypeVar("R", bound=Resource)

_OWNER, _ADDRESS = "simulate.owner", "simulate.address"
_SETTLE = Debounce(quiet_seconds=0.05, limit_seconds=1.0)  # pods of one workload change together: count them once
_CONCURRENCY = 16


# -------------------------------------------------------------------------------------------------------- reconcilers
async def reconcile_deployment(ctx: Context, deployment: Deployment) -> Result:
    """Deployment → ReplicaSets."""
    owned = children(ctx, ReplicaSet, deployment)
    return await carry_out(ctx, deployment, plan_deployment(deployment, owned, now=ctx.clock.time()))


async def reconcile_replica_set(ctx: Context, owner: ReplicaSet) -> Result:
    """ReplicaSet → Pods."""
    return await carry_out(ctx, owner, plan_replica_set(owner, children(ctx, Pod, owner), now=ctx.clock.time()))


async def reconcile_stateful_set(ctx: Context, owner: StatefulSet) -> Result:
    """StatefulSet → Pods and ControllerRevisions."""
    pods, revisions = children(ctx, Pod, owner), children(ctx, ControllerRevision, owner)
    return await carry_out(ctx, owner, plan_stateful_set(owner, pods, revisions, now=ctx.clock.time()))


async def reconcile_daemon_set(ctx: Context, owner: DaemonSet) -> Result:
    """DaemonSet → Pods and ControllerRevisions."""
    pods, revisions = children(ctx, Pod, owner), children(ctx, ControllerRevision, owner)
    plan = plan_daemon_set(owner, pods, ctx.cache[Node].list(), revisions, now=ctx.clock.time())
    return await carry_out(ctx, owner, plan)


async def reconcile_job(ctx: Context, job: Job) -> Result:
    """Job → Pods."""
    return await carry_out(ctx, job, plan_job(job, children(ctx, Pod, job), now=ctx.clock.time()))


async def reconcile_cron_job(ctx: Context, owner: CronJob) -> Result:
    """CronJob → Jobs."""
    return await carry_out(ctx, owner, plan_cron_job(owner, children(ctx, Job, owner), now=ctx.clock.time()))


async def reconcile_service(ctx: Context, service: Service) -> Result:
    """Service → EndpointSlice."""
    pods = ctx.cache[Pod].list(namespace=service.namespace)
    return await carry_out(ctx, service, plan_endpoints(service, pods, children(ctx, EndpointSlice, service)))


async def reconcile_node(ctx: Context, node: Node) -> Result:
    """Node → its status."""
    return await carry_out(ctx, node, plan_node(node, now=ctx.clock.time()))


async def reconcile_pod(ctx: Context, pod: Pod) -> Result:
    """Pod → a node, a status, and its end."""
    indexed(ctx, Pod)

    def taken(address: str) -> bool:
        return bool(ctx.cache[Pod].by_index(_ADDRESS, address))

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
            await ctx.patch(change.obj, change.patch)
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


async def bind(ctx: Context, pod: Pod, node: str) -> None:
    """Give a pod its node; fine when it has one or is gone."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.metadata.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    try:
        await ctx.client.post(Pod.KIND.path(pod.namespace, pod.name, "binding"), body)
    except (Conflict, NotFound):
        return


async def finish(ctx: Context, pod: Pod) -> None:
    """The last word of a kubelet: everything has ended, the object may go."""
    try:
        await ctx.client.delete(Pod, pod.name, namespace=pod.namespace, uid=pod.metadata.uid, grace_period_seconds=0)
    except (Conflict, NotFound):
        return


# ------------------------------------------------------------------------------------------------------------ reading
def children(ctx: Context, target: type[R], owner: Resource) -> Sequence[R]:
    """The objects that `owner` controls."""
    indexed(ctx, target)
    return ctx.cache[target].by_index(_OWNER, owner.metadata.uid)


def indexed(ctx: Context, target: type[Resource]) -> None:
    """Make sure that objects can be found by their owner; costs nothing when they can."""
    shelf = ctx.cache.shelf(target)
    assert shelf is not None
    shelf.informer.add_index(_OWNER, _controller_uid)
    if target is Pod:
        shelf.informer.add_index(_ADDRESS, _addresses)


def _controller_uid(obj: Resource) -> Iterable[str]:
    return () if obj.controller is None else (obj.controller.uid,)


def _addresses(pod: Pod) -> Iterable[str]:
    return (pod.status.pod_ip,) if pod.status.pod_ip else ()


# ------------------------------------------------------------------------------------------------------------ mapping
def services_of(pod: Pod, cache: Snapshots) -> Iterable[ObjectRef]:
    """The services that a pod is behind."""
    return [one.ref for one in cache[Service].list(namespace=pod.namespace) if selects(one, pod)]


def every_daemon_set(_: Node, cache: Snapshots) -> Iterable[ObjectRef]:
    """A node concerns all of them."""
    return [one.ref for one in cache[DaemonSet].list()]


def homeless_pods(_: Node, cache: Snapshots) -> Iterable[ObjectRef]:
    """Pods that wait for a node."""
    return [pod.ref for pod in cache[Pod].list() if not pod.spec.get("nodeName")]


def _visible(old: Pod, new: Pod) -> bool:
    """Whether anything differs that a service shows of a pod."""
    return (old.labels, old.deleting, old.status.pod_ip, old.status.phase, _ready(old)) != (
        new.labels,
        new.deleting,
        new.status.pod_ip,
        new.status.phase,
        _ready(new),
    )


def _ready(pod: Pod) -> list[str]:
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
    told = generation | deletion_started | created | _either_way("annotations", _annotated)
    shown, placement = _either_way("shown", _visible), _either_way("placement", _placement)
    table = [
        Controller(Deployment, reconcile_deployment).when(told).owns(ReplicaSet),
        Controller(ReplicaSet, reconcile_replica_set).when(told).owns(Pod, when=shown),
        Controller(StatefulSet, reconcile_stateful_set).when(told).owns(Pod, when=shown).reads(ControllerRevision),
        Controller(DaemonSet, reconcile_daemon_set)
        .when(told)
        .owns(Pod, when=shown)
        .watches(Node, to=every_daemon_set, when=placement)
        .reads(ControllerRevision),
        Controller(Job, reconcile_job).when(told).owns(Pod, when=shown),
        Controller(CronJob, reconcile_cron_job).when(told).owns(Job),
        Controller(Service, reconcile_service).owns(EndpointSlice).watches(Pod, to=services_of, when=shown),
    ]
    return [
        *(one.named(f"simulate-{one.name}").configured(concurrency=_CONCURRENCY, debounce=_SETTLE) for one in table),
        Controller(Node, reconcile_node).named("simulate-node"),
        Controller(Pod, reconcile_pod)
        .watches(Node, to=homeless_pods, when=placement)
        .configured(concurrency=2 * _CONCURRENCY, while_terminating=True)
        .named("simulate-pod"),
    ]
