"""Writing: the only module of this operator that changes the cluster.

Our keys are written by server-side apply, so that no field of another owner is touched. An apply carries the
resourceVersion its plan was made for: it changes what was read, or nothing. A ConfigMap that only this operator uses is
created empty before it is filled. Keys that apply cannot remove, because another manager owns them too, are removed by
a merge patch with the same precondition. After a conflict the caller reads and plans again (`retry_on_conflict`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from steersman.errors import SteersmanError
from steersman.kube.api.errors import AlreadyExists, Conflict, NotFound
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import OwnedMeta
from steersman.kube.api.types.apps import Deployment
from steersman.operators.toolset.api.crd import TargetConfigMap, with_key_owners
from steersman.operators.toolset.reconcile.plan import ObjectPlan, Operation
from steersman.operators.toolset.render.layout import size_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from steersman.clock import Clock
    from steersman.operators.toolset.api.config import TargetSettings
    from steersman.operators.toolset.reconcile.current import ConfigMapWatches, CurrentState
    from steersman.operators.toolset.reconcile.metrics import ToolsetMetrics
    from steersman.operators.toolset.reconcile.plan import DesiredConfigMap, PlanStep, TargetPlan
    from steersman.runtime.reconcile.context import Context

RETRY_WAITS: Final = (1.0, 2.0)  # seconds between attempts; there is one attempt more than waits
RETRY_LATER_SECONDS: Final = 4.0  # after the last attempt, without occupying a worker

T = TypeVar("T")


class ConflictsExhausted(SteersmanError):  # noqa: N818  what happened
    """Another client wrote between every read and write of ours."""


async def retry_on_conflict(clock: Clock, attempt: Callable[[int], Awaitable[T]], *, met: Callable[[], object]) -> T:
    """Call `attempt(1)`, and again after 1 s and 2 s when it meets a conflict; `met` is called for each conflict.

    Every attempt reads and plans again. After the last conflict ConflictsExhausted is raised without a further wait.
    """
    for number in range(1, len(RETRY_WAITS) + 2):
        try:
            return await attempt(number)
        except Conflict as error:
            met()
            if number > len(RETRY_WAITS):
                raise ConflictsExhausted(f"{number} conflicts in a row: {error.message}") from error
            await clock.sleep(RETRY_WAITS[number - 1])
    raise AssertionError("unreachable")  # the last attempt returns or raises


class Applier:
    """Writes the ConfigMaps of one target in one pass."""

    def __init__(
        self,
        ctx: Context,
        target: NamespacedName,
        settings: TargetSettings,
        watches: ConfigMapWatches,
        metrics: ToolsetMetrics,
        *,
        adopt_base: bool,
    ) -> None:
        """`adopt_base`: the base may be an object of another owner, because the administrator named it."""
        self._ctx = ctx
        self._target = target
        self._settings = settings
        self._watches = watches
        self._metrics = metrics
        self._adopt_base = adopt_base

    async def restore_deleted(self, current: CurrentState) -> TargetConfigMap | None:
        """Create a deleted base again with the keys of other owners; None when there is nothing to restore."""
        wanted = (current.foreign or current.foreign_binary) and self._settings.preserve_overrides
        if current.base is not None or not wanted:
            return None
        restored = await self._restore_foreign(current)
        if self._ctx.dry_run:
            return None
        self._watches.record_write(restored)
        return restored

    async def apply(self, plan: TargetPlan, current: CurrentState) -> list[TargetConfigMap]:
        """Write what the plan says; returns immutable ConfigMaps that were created again."""
        recreated: list[TargetConfigMap] = []
        sizes: dict[str, int] = {}
        for step in plan.steps:
            operation, desired = step.plan.operation, step.desired
            blocked = step.plan.blocked and not self._settings.allow_recreate
            if desired.name in current.taken or blocked:
                self._metrics.reconciles.labels(operation, "failure").inc()
                continue
            if step.plan.blocked:
                if (made := await self._recreate(step, current)) is not None:
                    recreated.append(made)
            else:
                await self._write(step)
            self._metrics.reconciles.labels(operation, "success").inc()
            foreign = size_of(current.foreign) if desired.name == self._target.name else 0
            sizes[desired.name.removeprefix(self._target.name) or "0"] = size_of(desired.data) + foreign
        self._metrics.set_sizes(self._target, sizes)
        if not self._ctx.dry_run:
            for step in plan.steps:
                if step.plan.operation is not Operation.DELETE:
                    await self._watch(step.desired)
        if plan.backup is not None:
            await self._write(plan.backup)
        return recreated

    async def _write(self, step: PlanStep) -> None:
        plan, desired, current = step.plan, step.desired, step.current
        if plan.operation is Operation.DELETE and current is not None:
            await self._delete(current)
            return
        if plan.operation is Operation.CREATE and not (self._adopt_base and desired.name == self._target.name):
            current = await self._create_empty(desired)
        await self._apply(plan, desired, current)

    async def _apply(
        self, plan: ObjectPlan, desired: DesiredConfigMap, current: TargetConfigMap | None
    ) -> TargetConfigMap | None:
        """Apply our keys and prune; None when nothing was written."""
        ctx = self._ctx
        written: TargetConfigMap | None = None
        if plan.write:
            meta = OwnedMeta(
                name=desired.name,
                namespace=desired.namespace,
                labels=dict(desired.labels),
                annotations=dict(desired.annotations),
            )
            if current is not None:
                meta.resource_version = current.metadata.resource_version
            obj = TargetConfigMap(metadata=meta, data=dict(desired.data))
            written = with_key_owners(await ctx.apply(obj, owner=None))
        if ctx.dry_run:
            return None
        known = written or current
        remaining = [key for key in plan.prune if known is not None and key in (known.data or {})]
        if known is not None and remaining:
            precondition = {"resourceVersion": known.metadata.resource_version, "uid": known.metadata.uid}
            patch = {"metadata": precondition, "data": dict.fromkeys(remaining)}
            written = with_key_owners(await ctx.patch(known, patch))
        if written is not None:
            self._watches.record_write(written)
        return written

    async def _create_empty(self, desired: DesiredConfigMap) -> TargetConfigMap | None:
        """Create an empty ConfigMap of ours: an apply alone would write into an object that another client created."""
        meta = OwnedMeta(name=desired.name, namespace=desired.namespace, labels=dict(desired.labels))
        try:
            created = await self._ctx.create(TargetConfigMap(metadata=meta), owner=None)
        except AlreadyExists:
            await self._watch(desired)  # the next pass sees whose it is
            raise
        return None if self._ctx.dry_run else with_key_owners(created)

    async def _recreate(self, step: PlanStep, current: CurrentState) -> TargetConfigMap | None:
        """Delete an immutable ConfigMap and create it again, with the keys of other owners."""
        if step.current is not None:
            await self._delete(step.current)
        if step.desired.name == self._target.name and (current.foreign or current.foreign_binary):
            await self._restore_foreign(current)
        return await self._apply(ObjectPlan(operation=Operation.CREATE, write=True), step.desired, None)

    async def _restore_foreign(self, current: CurrentState) -> TargetConfigMap:
        """Apply the keys of other owners under a field manager of their own: they do not become ours."""
        ctx = self._ctx
        obj = TargetConfigMap(
            metadata=OwnedMeta(name=self._target.name, namespace=self._target.namespace),
            data=dict(current.foreign) or None,
            binary_data=dict(current.foreign_binary) or None,
        )
        made: TargetConfigMap = await ctx.client.apply(
            obj, field_manager=f"{ctx.field_manager}-restore", force=False, dry_run=ctx.dry_run
        )
        return with_key_owners(made)

    async def _delete(self, obj: TargetConfigMap) -> None:
        await self._ctx.delete(obj)
        self._watches.record_delete(obj)

    async def _watch(self, desired: DesiredConfigMap) -> None:
        await self._watches.get(self._ctx, NamespacedName(desired.name, desired.namespace), self._target)


async def annotate(ctx: Context, target: TargetConfigMap, annotation: str, value: str) -> TargetConfigMap:
    """Write an annotation to a ConfigMap, if it still is the object that was read."""
    metadata = {"uid": target.metadata.uid, "annotations": {annotation: value}}
    return with_key_owners(await ctx.patch(target, {"metadata": metadata}))


async def write_template_hash(ctx: Context, deployment: str, annotation: str, digest: str) -> bool:
    """Roll out new pods of a Deployment by a hash on its pod template; False when it does not exist."""
    namespace, _, name = deployment.partition("/")
    patch: dict[str, Any] = {"spec": {"template": {"metadata": {"annotations": {annotation: digest}}}}}
    try:
        await ctx.client.patch(
            Deployment, name, patch, namespace=namespace, field_manager=ctx.field_manager, dry_run=ctx.dry_run
        )
    except NotFound:
        return False
    return True
