"""Writing: the only module of this operator that changes the cluster.

Our keys go in by server-side apply, so that nobody else's field is touched; an apply names the revision its plan was
made for, so it changes what was seen or nothing. An object that is ours alone is created before it is filled. What
apply cannot take out (a key that somebody else owns too) goes by a merge patch with the same condition. A conflict
means: read again, plan again, and try again on the schedule below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from steersman.errors import SteersmanError
from steersman.kube.errors import Conflict, NotFound
from steersman.kube.objects import OwnedMeta
from steersman.kube.types.apps import Deployment
from steersman.operators.toolset.objects import TargetMap, target_look

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from steersman.clock import Clock
    from steersman.operators.toolset.plan import Desired, ObjectPlan
    from steersman.runtime.context import Context

__all__ = [
    "AGAIN_SECONDS",
    "ConflictsExhausted",
    "carry_out",
    "claim",
    "delete",
    "note",
    "on_schedule",
    "restore",
    "write_template_hash",
]

WAITS: Final = (1.0, 2.0)  # seconds between the attempts, of which there are one more
AGAIN_SECONDS: Final = 4.0  # after the last of them, without holding a worker

T = TypeVar("T")


class ConflictsExhausted(SteersmanError):  # noqa: N818  what happened
    """Somebody else wrote between every read and write of ours."""


async def on_schedule(clock: Clock, attempt: Callable[[int], Awaitable[T]], *, met: Callable[[], object]) -> T:
    """`attempt(1)`, and again after 1 s and 2 s when it meets a conflict; `met` is told of each.

    The attempt reads and plans anew every time it is called again. It is never slept through the end: after the last
    conflict ConflictsExhausted is raised at once, for the caller to come back later.
    """
    for number in range(1, len(WAITS) + 2):
        try:
            return await attempt(number)
        except Conflict as error:
            met()
            if number > len(WAITS):
                raise ConflictsExhausted(f"{number} conflicts in a row: {error.message}") from error
            await clock.sleep(WAITS[number - 1])
    raise AssertionError("unreachable")  # the last attempt returns or raises


async def carry_out(ctx: Context, plan: ObjectPlan, desired: Desired, current: TargetMap | None) -> TargetMap | None:
    """Write what the plan asks for; returns the object as it is then, None when nothing was written."""
    written: TargetMap | None = None
    if plan.write:
        meta = OwnedMeta(
            name=desired.name,
            namespace=desired.namespace,
            labels=dict(desired.labels),
            annotations=dict(desired.annotations),
        )
        if current is not None:
            meta.resource_version = current.metadata.resource_version
        written = target_look(await ctx.apply(TargetMap(metadata=meta, data=dict(desired.data)), owner=None))
    known = written or current
    if known is None or ctx.dry_run:
        return written
    left = [key for key in plan.prune if key in (known.data or {})]
    if left:
        condition = {"resourceVersion": known.metadata.resource_version, "uid": known.metadata.uid}
        written = target_look(await ctx.patch(known, {"metadata": condition, "data": dict.fromkeys(left)}))
    return written


async def claim(ctx: Context, desired: Desired) -> TargetMap | None:
    """Take a name for ourselves: AlreadyExists when an object has it, whose ever it is."""
    meta = OwnedMeta(name=desired.name, namespace=desired.namespace, labels=dict(desired.labels))
    made = await ctx.create(TargetMap(metadata=meta), owner=None)
    return None if ctx.dry_run else target_look(made)


async def restore(
    ctx: Context,
    *,
    name: str,
    namespace: str,
    data: Mapping[str, str],
    binary: Mapping[str, str] | None = None,
) -> TargetMap:
    """Give other people's keys back to a ConfigMap that was deleted, under a manager of its own: they are not ours."""
    obj = TargetMap(
        metadata=OwnedMeta(name=name, namespace=namespace),
        data=dict(data) or None,
        binary_data=dict(binary) if binary else None,
    )
    made: TargetMap = await ctx.client.apply(
        obj, field_manager=f"{ctx.field_manager}-restore", force=False, dry_run=ctx.dry_run
    )
    return target_look(made)


async def delete(ctx: Context, current: TargetMap) -> bool:
    """Delete a ConfigMap of ours, if it still is the one that was seen."""
    return await ctx.delete(current)


async def note(ctx: Context, target: TargetMap, annotation: str, value: str) -> TargetMap:
    """Write something down on a ConfigMap, if it still is the one that was seen."""
    condition = {"uid": target.metadata.uid, "annotations": {annotation: value}}
    return target_look(await ctx.patch(target, {"metadata": condition}))


async def write_template_hash(ctx: Context, deployment: str, annotation: str, digest: str) -> bool:
    """Have a Deployment roll out new pods, by a hash on its pod template; False when there is no such Deployment."""
    namespace, _, name = deployment.partition("/")
    patch: dict[str, Any] = {"spec": {"template": {"metadata": {"annotations": {annotation: digest}}}}}
    try:
        await ctx.client.patch(
            Deployment, name, patch, namespace=namespace, field_manager=ctx.field_manager, dry_run=ctx.dry_run
        )
    except NotFound:
        return False
    return True
