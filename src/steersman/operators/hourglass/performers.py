"""A performer's reconcile: look, decide, do, tell. What is decided is in `replacement`, `pod` and `report`.

The order of writes makes every crash harmless: a replacement is announced in the status before the first pod goes, the
Service turns before old pods go, and a finalizer is let go after the last child.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from steersman.kube.errors import Conflict
from steersman.kube.resources import ObjectRef
from steersman.kube.types.pods import Pod
from steersman.operators.hourglass.apply import (
    REFUSED,
    Taken,
    apply_child,
    create_pod,
    drained,
    mark_pod,
    remove_child,
    slow_delay,
    take_along,
)
from steersman.operators.hourglass.pod import pod_template
from steersman.operators.hourglass.replacement import Memory, Wish, is_ready, next_steps
from steersman.operators.hourglass.report import Facts, Trouble, memory_of, performer_status, trouble_of
from steersman.operators.hourglass.service import network_policy_for, performer_budget, service_for
from steersman.operators.hourglass.turns import Turns
from steersman.operators.hourglass.types import (
    ORPHAN,
    PERFORMER,
    REVISION,
    TEMPLATE_HASH,
    StoredExecutor,
    StoredPerformer,
    pod_name,
)
from steersman.operators.hourglass.validation import read_executor, read_performer, shown
from steersman.operators.hourglass.watched import BudgetMeta, PolicyMeta, ServiceView
from steersman.runtime.result import Result, done, requeue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.operators.hourglass.metrics import HourglassMetrics
    from steersman.operators.hourglass.pod import PodTemplate
    from steersman.operators.hourglass.replacement import Steps
    from steersman.operators.hourglass.settings import HourglassOptions
    from steersman.operators.hourglass.types import ExecutorSpec, PerformerSpec
    from steersman.runtime.context import Context

__all__ = ["PerformerKeeper", "pod_owners", "pods_of"]

OWNER: Final = "hourglass-owner"  # the index of pods by whose they are
PHASE: Final = "hourglass-phase"  # the index of performers by phase
EXECUTOR: Final = "hourglass-executor"  # the index of performers by executor
FIRST_WORD: Final = 2.0  # seconds in which a new performer may become ready before it says anything
LOOK_AGAIN: Final = 15.0  # seconds, while waiting for something that is watched anyway


def pod_owners(pod: Pod) -> Iterable[str]:
    """By whom a pod is found: its controller, or by its label when it has none."""
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


class PerformerKeeper:
    """Keeps performers as their specs ask."""

    def __init__(self, options: HourglassOptions, metrics: HourglassMetrics | None = None) -> None:
        self.options = options
        self.metrics = metrics
        self.turns = Turns(options.max_replacements)
        self._refused: dict[ObjectRef, int] = {}  # how often in a row
        self._unsaid: dict[ObjectRef, float] = {}  # since when a new performer has no status yet

    # -- whose keys a change touches -----------------------------------------------------------------------------------

    def refused_in(self, obj: Any) -> Iterable[ObjectRef]:
        """The performers whose pods were refused, and might not be now.

        Their patience begins anew: the server's own admission may learn of the change a moment after us, and then the
        next try must not be minutes away.
        """
        found = [key for key in self._refused if not obj.namespace or key.namespace == obj.namespace]
        self._refused |= dict.fromkeys(found, 0)
        return found

    def of_executor(self, executor: StoredExecutor, cache: Any) -> Iterable[ObjectRef]:
        """The performers that refer to an executor."""
        users = cache[StoredPerformer].by_index(EXECUTOR, f"{executor.namespace}/{executor.name}")
        return [performer.ref for performer in users]

    # -- the look ------------------------------------------------------------------------------------------------------

    async def reconcile(self, ctx: Context, performer: StoredPerformer) -> Result:
        """Make it so."""
        spec, problems = read_performer(performer)
        executor, warning = self._executor(ctx, performer)
        template: PodTemplate | None = None
        if spec is not None:
            inherited = (
                executor.config.kubernetes.default_scheduling if executor and executor.config.kubernetes else None
            )
            template, more = pod_template(performer.name, spec, self.options.hardware, inherited)
            problems += more
        facts = Facts(
            replicas=spec.replicas if spec is not None else 1,
            cluster_domain=self.options.cluster_domain,
            warning=warning,
            memory=memory_of(performer),
        )
        if spec is None or template is None or problems:
            blocked = Trouble("InvalidSpec", shown(problems))
            await self._tell(ctx, performer, replace(facts, blocked=blocked, hash=facts.memory.hash))
            self.turns.settle(performer.ref, upgrading=False)  # it can use no turn, and must keep none from others
            return done
        facts = replace(facts, hash=template.hash, image=template.image, resources=_extended(template))
        return await self._carry_out(ctx, performer, spec, executor, template, facts)

    async def _carry_out(
        self,
        ctx: Context,
        performer: StoredPerformer,
        spec: PerformerSpec,
        executor: ExecutorSpec | None,
        template: PodTemplate,
        facts: Facts,
    ) -> Result:
        wish = Wish(
            performer=performer.name,
            hash=template.hash,
            image=template.image,
            replicas=spec.replicas,
            strategy=spec.strategy,
            pending_seconds=self.options.pending_seconds,
        )
        steps, queued = await self._decide(ctx, performer, executor, wish)
        facts = replace(facts, upgrading=steps.upgrading, queued=queued, memory=steps.memory)
        try:
            await self._write(ctx, performer, spec, template, steps, facts)
        except Taken as error:
            return await self._blocked(ctx, performer, facts, Trouble("NameConflict", str(error)))
        except Conflict:
            return requeue()  # a pod is another one by now: look again
        except REFUSED as error:
            self._count("refusals", error.reason)
            return await self._blocked(ctx, performer, facts, Trouble("AdmissionRejected", str(error)))
        self._refused.pop(performer.ref, None)
        if self._postpones(ctx, performer, facts):
            return requeue(after=FIRST_WORD)
        waiting = steps.again or 0.0
        await self._tell(ctx, performer, replace(facts, waiting_seconds=waiting))
        self.turns.settle(performer.ref, upgrading=steps.upgrading or bool(queued))
        if steps.again is not None:
            return requeue(after=max(steps.again, 0.1))
        return requeue(after=LOOK_AGAIN) if queued else done

    async def _decide(
        self, ctx: Context, performer: StoredPerformer, executor: ExecutorSpec | None, wish: Wish
    ) -> tuple[Steps, str]:
        """The next steps, with a turn when one is needed and to be had; and why not."""
        pods = pods_of(ctx, performer)
        service = ctx.cache[ServiceView].get(ObjectRef(pod_name(performer.name), performer.namespace))
        served = (service.spec.selector or {}).get(REVISION, "") if service is not None else ""
        now = ctx.clock.time()
        empty = True
        if wish.strategy == "BlueGreen" and served == wish.revision:
            new = [pod for pod in pods if pod.annotations.get(TEMPLATE_HASH) == wish.hash]
            old = [pod for pod in pods if pod not in new and not pod.deleting]
            if old and any(map(is_ready, new)):
                empty = await drained(ctx, performer.namespace, pod_name(performer.name), old, new)
        memory = memory_of(performer)
        steps = next_steps(wish, pods, memory, now=now, served=served, drained=empty)
        if not steps.wants_turn:
            return steps, ""
        cache = ctx.cache[StoredPerformer]
        reference = next(iter(executor_of(performer)), "")
        queued = self.turns.ask(
            performer,
            cache.by_index(PHASE, "Upgrading"),
            cache.by_index(EXECUTOR, reference) if reference else (),
            executor.performers.max_unavailable if executor is not None and executor.performers else None,
            surge=wish.strategy == "BlueGreen",
            now=now,
        )
        if queued:
            return steps, queued
        return next_steps(wish, pods, memory, now=now, served=served, drained=empty, turn=True), ""

    # -- doing ---------------------------------------------------------------------------------------------------------

    async def _write(
        self,
        ctx: Context,
        performer: StoredPerformer,
        spec: PerformerSpec,
        template: PodTemplate,
        steps: Steps,
        facts: Facts,
    ) -> None:
        name, namespace = performer.name, performer.namespace
        for pod in steps.mark:
            await mark_pod(ctx, performer, pod, template)
        for pod in pods_of(ctx, performer):
            if not pod.deleting and _lost_marks(pod, template):
                await mark_pod(ctx, performer, pod, template)
        service = service_for(name, namespace, spec, steps.revision)
        await apply_child(ctx, performer, service, ServiceView, PERFORMER)
        for child, view in (
            (performer_budget(name, namespace, spec), BudgetMeta),
            (network_policy_for(name, namespace, spec), PolicyMeta),
        ):
            if child is not None:
                await apply_child(ctx, performer, child, view, PERFORMER)
            else:
                await remove_child(ctx, performer, view, pod_name(name), PERFORMER)
        if steps.upgrading and (performer.status or {}).get("phase") != "Upgrading":
            await self._announce(ctx, performer, facts)
        for number, pod_to_make in enumerate(steps.create):
            if await create_pod(ctx, performer, template, pod_to_make, PERFORMER) is None:
                continue
            again = number >= len(steps.create) - steps.recreated
            what = "made again" if again else "made"
            ctx.event(performer, "PodRecreated" if again else "PodCreated", f"pod {pod_to_make} {what}")
            if again and self.metrics is not None:
                self.metrics.recreations.inc()
        for removal in steps.remove:
            if await ctx.delete(removal.pod):
                self._count("removals", removal.reason)
                self._say_removal(ctx, performer, removal.pod, removal.reason)

    async def _announce(self, ctx: Context, performer: StoredPerformer, facts: Facts) -> None:
        """Say that a replacement begins, before anything goes: whoever crashes now goes on with it later."""
        images = (performer.status or {}).get("observedImage") or "another template"
        text = f"from {images} to {facts.image}" if images != facts.image else f"{facts.image} with another template"
        ctx.event(performer, "UpgradeInProgress", text)
        begun = replace(facts, memory=Memory(upgrading=True))  # what goes now was not lost
        await ctx.status(performer, self._status(ctx, performer, begun))

    def _say_removal(self, ctx: Context, performer: StoredPerformer, pod: Pod, reason: str) -> None:
        failed = reason in ("Failed", "PendingTooLong")
        trouble = trouble_of([pod])
        detail = f": {trouble.message}" if failed and trouble is not None else ""
        ctx.event(performer, f"Pod{reason}", f"pod {pod.name} removed{detail}", warning=failed)

    # -- telling -------------------------------------------------------------------------------------------------------

    def _status(self, ctx: Context, performer: StoredPerformer, facts: Facts) -> dict[str, Any]:
        live = ctx.cache[StoredPerformer].get(performer.ref) or performer
        status = performer_status(live, pods_of(ctx, performer), facts, now=ctx.clock.time())
        known = live.status or {}
        return {field: value for field, value in status.items() if value is not None or field in known}

    async def _tell(self, ctx: Context, performer: StoredPerformer, facts: Facts) -> None:
        status = self._status(ctx, performer, facts)
        before = {one.get("type"): one.get("status") for one in (performer.status or {}).get("conditions") or ()}
        degraded = next(one for one in status["conditions"] if one["type"] == "Degraded")
        if degraded["status"] == "True" and before.get("Degraded") != "True":
            ctx.event(performer, degraded["reason"], degraded["message"], warning=True)
        await ctx.status(performer, status)
        if self.metrics is not None:
            self.metrics.saw("performer", performer.ref, status["phase"])

    async def _blocked(self, ctx: Context, performer: StoredPerformer, facts: Facts, trouble: Trouble) -> Result:
        """Nothing can be made for now: say so, and try again slowly, or when what it waits for appears."""
        times = self._refused.get(performer.ref, 0)
        self._refused[performer.ref] = times + 1
        facts = replace(facts, blocked=trouble, memory=replace(memory_of(performer), upgrading=facts.upgrading))
        await self._tell(ctx, performer, facts)
        self.turns.settle(performer.ref, upgrading=facts.upgrading)
        return requeue(after=slow_delay(times))

    def _postpones(self, ctx: Context, performer: StoredPerformer, facts: Facts) -> bool:
        """Whether the first status may wait a moment: most pods are ready soon, and then one write says it all."""
        pods = pods_of(ctx, performer)
        eventful = facts.warning or facts.upgrading or facts.queued or any(map(is_ready, pods)) or trouble_of(pods)
        if (performer.status or {}).get("phase") or not pods or eventful:
            self._unsaid.pop(performer.ref, None)
            return False
        now = ctx.clock.monotonic()
        return now - self._unsaid.setdefault(performer.ref, now) < FIRST_WORD

    def _executor(self, ctx: Context, performer: StoredPerformer) -> tuple[ExecutorSpec | None, Trouble | None]:
        """The executor it refers to; a missing one is a warning and nothing more."""
        name = (performer.spec or {}).get("executorRef")
        if not isinstance(name, str) or not name:
            return None, None
        found = ctx.cache[StoredExecutor].get(ObjectRef(name, performer.namespace))
        if found is None:
            return None, Trouble("ExecutorNotFound", f"spec.executorRef: there is no HourglassExecutor {name}")
        spec, problems = read_executor(found)
        if spec is None:
            return None, Trouble("ExecutorInvalid", f"HourglassExecutor {name}: {shown(problems)}")
        return spec, None

    # -- the end -------------------------------------------------------------------------------------------------------

    async def clean_up(self, ctx: Context, performer: StoredPerformer) -> Result:
        """The Service first, so that nobody is sent to pods that go; then the pods; then the resource may go."""
        if ORPHAN in (performer.metadata.finalizers or ()):
            return done
        facts = Facts(cluster_domain=self.options.cluster_domain, memory=memory_of(performer))
        await self._tell(ctx, performer, replace(facts, hash=facts.memory.hash))
        name = pod_name(performer.name)
        ref = ObjectRef(name, performer.namespace)
        left = await take_along(ctx, performer, ctx.cache[ServiceView].get(ref))
        for pod in pods_of(ctx, performer):
            left |= await take_along(ctx, performer, pod)
        for view in (BudgetMeta, PolicyMeta):
            left |= await take_along(ctx, performer, ctx.cache[view].get(ref))
        if left:
            ctx.event(performer, "Terminating", "waits until its pods are gone")
            return requeue(after=LOOK_AGAIN)
        return done

    def gone(self, _ctx: Context, key: ObjectRef) -> None:
        """Forget what was kept in memory."""
        self._refused.pop(key, None)
        self._unsaid.pop(key, None)
        self.turns.settle(key, upgrading=False)
        if self.metrics is not None:
            self.metrics.forget("performer", key)

    def _count(self, counter: str, reason: str) -> None:
        if self.metrics is not None:
            getattr(self.metrics, counter).labels(reason).inc()


def _extended(template: PodTemplate) -> frozenset[str]:
    """The extended resources that a template asks for."""
    requests = (template.spec["containers"][0].get("resources") or {}).get("requests") or {}
    return frozenset(name for name in requests if "/" in name)


def _lost_marks(pod: Pod, template: PodTemplate) -> bool:
    """Whether a pod of this template misses a label or its owner."""
    if pod.annotations.get(TEMPLATE_HASH) != template.hash:
        return False
    labels = template.labels | {REVISION: template.revision}
    return pod.controller is None or any(pod.labels.get(key) != value for key, value in labels.items())
