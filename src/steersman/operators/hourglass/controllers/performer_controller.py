"""The performer reconciler: read → decide → write → status. Decisions are made in `replacement`, `pod` and `status`.

The order of writes makes every crash harmless: a replacement is announced in the status before the first pod is
deleted, the Service switches before old pods are deleted, and the finalizer is removed after the last child.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from steersman.clock import Ages
from steersman.kube.api.errors import Conflict
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.types.pods import Pod
from steersman.operators.hourglass.api.types import (
    ORPHAN,
    PERFORMER,
    REVISION,
    TEMPLATE_HASH,
    StoredExecutor,
    StoredPerformer,
    pod_name,
)
from steersman.operators.hourglass.api.validation import (
    NOT_ALLOWED,
    account_rejections,
    read_executor,
    read_performer,
    shown,
)
from steersman.operators.hourglass.children.pod import pod_template
from steersman.operators.hourglass.children.replacement import DesiredPods, PodHistory, is_ready, needs_slot, next_steps
from steersman.operators.hourglass.children.service import network_policy_for, performer_budget, service_for
from steersman.operators.hourglass.controllers.apply import (
    adopt_pod,
    apply_child,
    create_pod,
    delete_owned,
    is_drained,
    remove_child,
)
from steersman.operators.hourglass.controllers.replacement_limit import ReplacementLimiter
from steersman.operators.hourglass.controllers.status import (
    Issue,
    PerformerFacts,
    history_of,
    performer_status,
    pod_issue,
    report_degraded,
)
from steersman.operators.hourglass.controllers.views import BudgetMeta, PerformerService, PolicyMeta
from steersman.runtime.controller.result import REJECTED, Result, done, requeue, slow_retry
from steersman.runtime.reconcile.ownership import NotOwned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from steersman.operators.hourglass.api.config import HourglassOptions
    from steersman.operators.hourglass.api.types import ExecutorSpec, PerformerSpec
    from steersman.operators.hourglass.children.pod import PodTemplate
    from steersman.operators.hourglass.children.replacement import Steps
    from steersman.operators.hourglass.controllers.metrics import HourglassMetrics
    from steersman.runtime.reconcile.context import Context

OWNER: Final = "hourglass-owner"  # index of pods by owner
PHASE: Final = "hourglass-phase"  # index of performers by phase
EXECUTOR: Final = "hourglass-executor"  # index of performers by executor
STATUS_DELAY_SECONDS: Final = 2.0  # a new performer may become ready this long before its first status
RECHECK_SECONDS: Final = 15.0  # while waiting for something that is watched anyway


def pod_owners(pod: Pod) -> Iterable[str]:
    """The owner a pod is indexed by: its controller, or its label when it has none."""
    if pod.controller is not None:
        return (pod.controller.uid,)
    return (f"{pod.namespace}/{pod.labels[PERFORMER]}",) if PERFORMER in pod.labels else ()


def phase_of(performer: StoredPerformer) -> Iterable[str]:
    """The phase in the status."""
    return (str((performer.status or {}).get("phase") or ""),)


def executor_of(performer: StoredPerformer) -> Iterable[str]:
    """The executor that the performer refers to."""
    name = (performer.spec or {}).get("executorRef")
    return (f"{performer.namespace}/{name}",) if isinstance(name, str) and name else ()


def pods_of(ctx: Context, performer: StoredPerformer) -> list[Pod]:
    """The pods that belong to a performer, those it may adopt included."""
    pods = ctx.cache[Pod]
    return [
        *pods.by_index(OWNER, performer.metadata.uid),
        *pods.by_index(OWNER, f"{performer.namespace}/{performer.name}"),
    ]


class PerformerReconciler:
    """Reconciles performers."""

    def __init__(self, options: HourglassOptions, metrics: HourglassMetrics | None = None) -> None:
        self.options = options
        self.metrics = metrics
        self.limiter = ReplacementLimiter(options.max_replacements)
        self._rejections: dict[NamespacedName, int] = {}  # how often in a row
        self._status_deferred_since: dict[NamespacedName, float] = {}  # of new performers
        self._ages: Ages | None = None

    # -- which keys a change enqueues ----------------------------------------------------------------------------------

    def rejected_in(self, obj: Any) -> Iterable[NamespacedName]:
        """The performers whose pods the API server rejected, and may accept now."""
        return [key for key in self._rejections if not obj.namespace or key.namespace == obj.namespace]

    def restart_retry_delay(self, _obj: Any, keys: Iterable[NamespacedName]) -> None:
        """Retry these performers soon again if their next attempt is rejected too.

        Admission may see a change a moment after us; then the attempt that follows must not be minutes away.
        """
        self._rejections |= dict.fromkeys((key for key in keys if key in self._rejections), 0)

    def with_executor(self, executor: StoredExecutor, cache: Any) -> Iterable[NamespacedName]:
        """The performers that refer to an executor."""
        users = cache[StoredPerformer].by_index(EXECUTOR, f"{executor.namespace}/{executor.name}")
        return [performer.ref for performer in users]

    # -- a reconcile ---------------------------------------------------------------------------------------------------

    async def reconcile(self, ctx: Context, performer: StoredPerformer) -> Result:
        """Reconcile one performer, or report why its spec cannot be used."""
        spec, problems = read_performer(performer)
        executor, warning = self._executor(ctx, performer)
        template: PodTemplate | None = None
        if spec is not None:
            kubernetes = executor.config.kubernetes if executor is not None else None
            inherited = kubernetes.default_scheduling if kubernetes is not None else None
            template, more = pod_template(performer.name, spec, self.options.hardware, inherited)
            problems += more
        facts = PerformerFacts(
            replicas=spec.replicas if spec is not None else 1,
            cluster_domain=self.options.cluster_domain,
            warning=warning,
            history=history_of(performer),
        )
        accounts = self.options.service_accounts
        rejected = account_rejections(performer.namespace, spec, accounts) if spec is not None else ()
        if spec is None or template is None or problems or rejected:
            blocked = Issue("InvalidSpec", shown(problems)) if problems else Issue(NOT_ALLOWED, shown(rejected))
            await self._write_status(ctx, performer, replace(facts, blocked=blocked, hash=facts.history.hash))
            self.limiter.release(performer.ref, upgrading=False)  # it cannot use a slot, and must not block others
            return done
        facts = replace(facts, hash=template.hash, image=template.image, resources=_extended(template))
        desired = DesiredPods(
            performer=performer.name,
            hash=template.hash,
            image=template.image,
            replicas=spec.replicas,
            strategy=spec.strategy,
            pending_seconds=self.options.pending_seconds,
        )
        steps, queued = await self._decide(ctx, performer, executor, desired)
        facts = replace(facts, upgrading=steps.upgrading, queued=queued, history=steps.history)
        try:
            await self._write(ctx, performer, spec, template, steps, facts)
        except NotOwned as error:
            return await self._blocked(ctx, performer, facts, Issue("NameConflict", str(error)))
        except Conflict:
            return requeue()  # another object has the name of a pod by now
        except REJECTED as error:
            self._count("refusals", error.reason)
            return await self._blocked(ctx, performer, facts, Issue("AdmissionRejected", str(error)))
        self._rejections.pop(performer.ref, None)
        if self._defers_status(ctx, performer, facts):
            return requeue(after=STATUS_DELAY_SECONDS)
        await self._write_status(ctx, performer, replace(facts, waiting_seconds=steps.requeue_after or 0.0))
        self.limiter.release(performer.ref, upgrading=steps.upgrading or bool(queued))
        if steps.requeue_after is not None:
            return requeue(after=max(steps.requeue_after, 0.1))
        return requeue(after=RECHECK_SECONDS) if queued else done

    async def _decide(
        self, ctx: Context, performer: StoredPerformer, executor: ExecutorSpec | None, desired: DesiredPods
    ) -> tuple[Steps, str]:
        """The next steps, and why a replacement has to wait. A slot is taken first, when one is needed."""
        pods, history, now = pods_of(ctx, performer), history_of(performer), ctx.clock.time()
        self._ages = self._ages or Ages(ctx.clock)
        age = self._ages.since
        service = ctx.cache[PerformerService].get(NamespacedName(pod_name(performer.name), performer.namespace))
        served = (service.spec.selector or {}).get(REVISION, "") if service is not None else ""
        drained = await self._is_drained(ctx, performer, desired, pods, served)
        slot = needs_slot(desired, pods, history, now=now, age=age)
        queued = self._acquire_slot(ctx, performer, executor, desired, age) if slot else ""
        slot = slot and not queued
        steps = next_steps(desired, pods, history, now=now, served=served, drained=drained, slot=slot, age=age)
        return steps, queued

    async def _is_drained(
        self, ctx: Context, performer: StoredPerformer, desired: DesiredPods, pods: list[Pod], served: str
    ) -> bool:
        """Whether a Service that has switched sends no more traffic to old pods."""
        if desired.strategy != "BlueGreen" or served != desired.revision:
            return True
        new = [pod for pod in pods if pod.annotations.get(TEMPLATE_HASH) == desired.hash]
        old = [pod for pod in pods if pod not in new and not pod.deleting]
        if not old or not any(map(is_ready, new)):
            return True
        return await is_drained(ctx, performer.namespace, pod_name(performer.name), old, new)

    def _acquire_slot(
        self,
        ctx: Context,
        performer: StoredPerformer,
        executor: ExecutorSpec | None,
        desired: DesiredPods,
        age: Callable[[float], float],
    ) -> str:
        cache = ctx.cache[StoredPerformer]
        reference = next(iter(executor_of(performer)), "")
        return self.limiter.acquire(
            performer,
            cache.by_index(PHASE, "Upgrading"),
            cache.by_index(EXECUTOR, reference) if reference else (),
            executor.performers.max_unavailable if executor is not None and executor.performers else None,
            surge=desired.strategy == "BlueGreen",
            age=age,
        )

    # -- writing -------------------------------------------------------------------------------------------------------

    async def _write(
        self,
        ctx: Context,
        performer: StoredPerformer,
        spec: PerformerSpec,
        template: PodTemplate,
        steps: Steps,
        facts: PerformerFacts,
    ) -> None:
        name, namespace = performer.name, performer.namespace
        for pod in steps.adopt:
            await adopt_pod(ctx, performer, pod, template)
        for pod in pods_of(ctx, performer):
            if not pod.deleting and _lost_labels(pod, template):
                await adopt_pod(ctx, performer, pod, template)
        service = service_for(name, namespace, spec, steps.revision)
        await apply_child(ctx, performer, service, PERFORMER)
        for child, view in (
            (performer_budget(name, namespace, spec), BudgetMeta),
            (network_policy_for(name, namespace, spec), PolicyMeta),
        ):
            if child is not None:
                await apply_child(ctx, performer, child, PERFORMER)
            else:
                await remove_child(ctx, performer, view, pod_name(name), PERFORMER)
        if steps.upgrading and (performer.status or {}).get("phase") != "Upgrading":
            await self._announce_upgrade(ctx, performer, facts)
        for number, name_of_pod in enumerate(steps.create):
            if await create_pod(ctx, performer, template, name_of_pod, PERFORMER) is not None:
                recreated = number >= len(steps.create) - steps.recreated
                self._report_creation(ctx, performer, name_of_pod, recreated=recreated)
        for removal in steps.remove:
            if await ctx.delete(removal.pod):
                self._count("removals", removal.reason)
                self._report_removal(ctx, performer, removal.pod, removal.reason)

    def _report_creation(self, ctx: Context, performer: StoredPerformer, pod: str, *, recreated: bool) -> None:
        if not recreated:
            ctx.event(performer, "PodCreated", f"Created pod {pod}")
            return
        ctx.event(performer, "PodRecreated", f"Created pod {pod} again")
        if self.metrics is not None:
            self.metrics.recreations.inc()

    async def _announce_upgrade(self, ctx: Context, performer: StoredPerformer, facts: PerformerFacts) -> None:
        """Record that a replacement begins before a pod is deleted: after a crash the next process continues it."""
        image = (performer.status or {}).get("observedImage") or "an unknown image"
        text = f"Replacing {image} by {facts.image}" if image != facts.image else f"{facts.image} with a new template"
        ctx.event(performer, "UpgradeInProgress", text)
        begun = replace(facts, history=PodHistory(upgrading=True))  # pods deleted from now on were not lost
        await ctx.status(performer, self._status(ctx, performer, begun))

    def _report_removal(self, ctx: Context, performer: StoredPerformer, pod: Pod, reason: str) -> None:
        failed = reason in ("Failed", "PendingTooLong")
        issue = pod_issue([pod])
        detail = f": {issue.message}" if failed and issue is not None else ""
        ctx.event(performer, f"Pod{reason}", f"Deleted pod {pod.name}{detail}", warning=failed)

    # -- status --------------------------------------------------------------------------------------------------------

    def _status(self, ctx: Context, performer: StoredPerformer, facts: PerformerFacts) -> dict[str, Any]:
        live = ctx.cache[StoredPerformer].get(performer.ref) or performer
        status = performer_status(live, pods_of(ctx, performer), facts, now=ctx.clock.time())
        known = live.status or {}
        return {field: value for field, value in status.items() if value is not None or field in known}

    async def _write_status(self, ctx: Context, performer: StoredPerformer, facts: PerformerFacts) -> None:
        status = self._status(ctx, performer, facts)
        report_degraded(ctx, performer, performer.status, status)
        await ctx.status(performer, status)
        if self.metrics is not None:
            self.metrics.set_phase("performer", performer.ref, status["phase"])

    async def _blocked(self, ctx: Context, performer: StoredPerformer, facts: PerformerFacts, issue: Issue) -> Result:
        """Nothing can be made for now: say so, and try again slowly, or when what it waits for appears."""
        times = self._rejections.get(performer.ref, 0)
        self._rejections[performer.ref] = times + 1
        facts = replace(facts, blocked=issue, history=replace(history_of(performer), upgrading=facts.upgrading))
        await self._write_status(ctx, performer, facts)
        self.limiter.release(performer.ref, upgrading=facts.upgrading)
        return slow_retry(times)

    def _defers_status(self, ctx: Context, performer: StoredPerformer, facts: PerformerFacts) -> bool:
        """Whether the first status may wait a moment: most pods are ready soon, and one write is enough."""
        pods = pods_of(ctx, performer)
        reportable = facts.warning or facts.upgrading or facts.queued or any(map(is_ready, pods)) or pod_issue(pods)
        if (performer.status or {}).get("phase") or not pods or reportable:
            self._status_deferred_since.pop(performer.ref, None)
            return False
        now = ctx.clock.monotonic()
        return now - self._status_deferred_since.setdefault(performer.ref, now) < STATUS_DELAY_SECONDS

    def _executor(self, ctx: Context, performer: StoredPerformer) -> tuple[ExecutorSpec | None, Issue | None]:
        """The executor it refers to; a missing one is only a warning."""
        name = (performer.spec or {}).get("executorRef")
        if not isinstance(name, str) or not name:
            return None, None
        found = ctx.cache[StoredExecutor].get(NamespacedName(name, performer.namespace))
        if found is None:
            return None, Issue("ExecutorNotFound", f"spec.executorRef: HourglassExecutor {name} not found")
        spec, problems = read_executor(found)
        if spec is None:
            return None, Issue("ExecutorInvalid", f"HourglassExecutor {name}: {shown(problems)}")
        return spec, None

    # -- deletion ------------------------------------------------------------------------------------------------------

    async def clean_up(self, ctx: Context, performer: StoredPerformer) -> Result:
        """Delete the Service first, so that no traffic reaches deleted pods; then the pods; then the resource."""
        if ORPHAN in (performer.metadata.finalizers or ()):
            return done
        facts = PerformerFacts(cluster_domain=self.options.cluster_domain, history=history_of(performer))
        await self._write_status(ctx, performer, replace(facts, hash=facts.history.hash))
        name = pod_name(performer.name)
        ref = NamespacedName(name, performer.namespace)
        remaining = await delete_owned(ctx, performer, ctx.cache[PerformerService].get(ref))
        for pod in pods_of(ctx, performer):
            remaining |= await delete_owned(ctx, performer, pod)
        for view in (BudgetMeta, PolicyMeta):
            remaining |= await delete_owned(ctx, performer, ctx.cache[view].get(ref))
        if remaining:
            ctx.event(performer, "Terminating", "Waiting until its pods are gone")
            return requeue(after=RECHECK_SECONDS)
        return done

    def forget(self, _ctx: Context, key: NamespacedName) -> None:
        """Forget a performer that no longer exists."""
        self._rejections.pop(key, None)
        self._status_deferred_since.pop(key, None)
        self.limiter.release(key, upgrading=False)
        if self.metrics is not None:
            self.metrics.forget("performer", key)

    def _count(self, counter: str, reason: str) -> None:
        if self.metrics is not None:
            getattr(self.metrics, counter).labels(reason).inc()


def _extended(template: PodTemplate) -> frozenset[str]:
    """The extended resources that a template asks for."""
    requests = (template.spec["containers"][0].get("resources") or {}).get("requests") or {}
    return frozenset(name for name in requests if "/" in name)


def _lost_labels(pod: Pod, template: PodTemplate) -> bool:
    """Whether a pod of this template lacks a label or its owner."""
    if pod.annotations.get(TEMPLATE_HASH) != template.hash:
        return False
    labels = template.labels | {REVISION: template.revision}
    return pod.controller is None or any(pod.labels.get(key) != value for key, value in labels.items())
