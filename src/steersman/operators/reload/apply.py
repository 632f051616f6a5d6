"""Carrying out a plan: the only place of this operator that writes.

One patch per plan. It names the uid and the resourceVersion of the workload the plan was made for, so it changes that
very workload as it was seen, or nothing: a conflict means to look again. It holds our annotation, the marks of the
dialects and, for a restart, the stamps on the pod template; nothing else is ever written to a workload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from steersman.kube.patches import PatchType
from steersman.kube.times import format_micro_time
from steersman.operators.reload.dialect import Marks
from steersman.operators.reload.kinds import KindRule, restart_patch
from steersman.operators.reload.plan import Action, Plan
from steersman.operators.reload.state import write_state
from steersman.operators.reload.types import APPLIED, RESTARTED_AT, RESTARTED_FOR

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.operators.reload.changes import Change
    from steersman.operators.reload.workloads import Workload
    from steersman.runtime.context import Context

NO_MARKS: Final = Marks()

__all__ = ["carry_out", "describe", "patch_for"]

_LONGEST: Final = 1000  # characters of the list of sources on a template


async def carry_out(
    ctx: Context, rule: KindRule, workload: Workload, plan: Plan, *, marks: Marks = NO_MARKS
) -> Workload | None:
    """Write what the plan asks for; returns the answer of the server, None when there was nothing to write."""
    patch = patch_for(rule, workload, plan, at=ctx.clock.time(), marks=marks)
    if patch is None:
        return None
    written: Workload = await ctx.patch(
        workload, patch, kind=PatchType.STRATEGIC if marks.variables else PatchType.MERGE
    )
    return written


def patch_for(
    rule: KindRule, workload: Workload, plan: Plan, *, at: float, marks: Marks = NO_MARKS
) -> dict[str, Any] | None:
    """The merge patch for a plan; None when it writes nothing."""
    annotations: dict[str, str | None] = {}
    if plan.action is Action.FORGET:
        annotations[APPLIED] = None
    elif plan.state is not None:
        annotations |= {APPLIED: write_state(plan.state), **marks.metadata}
    elif plan.action is Action.NOTHING:
        annotations |= marks.metadata
    if not annotations:
        return None
    meta = workload.metadata
    patch: dict[str, Any] = {
        "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version, "annotations": annotations}
    }
    if plan.action is Action.RESTART:
        stamp = format_micro_time(at)
        told = describe(plan.changes, workload.namespace)
        stamps = {RESTARTED_AT: stamp, RESTARTED_FOR: told, **marks.template}
        restart = restart_patch(rule, stamps, stamp, has_template=workload.facts.has_template and not marks.by_time)
        patch |= _with_variables(restart, rule, marks) if marks.variables else restart
    return patch


def _with_variables(restart: dict[str, Any], rule: KindRule, marks: Marks) -> dict[str, Any]:
    """The same with environment variables: a strategic patch merges containers and variables by name."""
    found = restart
    for part in rule.template:
        found = found.setdefault(part, {})
    containers: dict[str, list[dict[str, str]]] = {}
    for one in marks.variables:
        containers.setdefault(one.container, []).append({"name": one.name, "value": one.value})
    found["spec"] = {"containers": [{"name": name, "env": env} for name, env in containers.items()]}
    return restart


def describe(changes: Sequence[Change], namespace: str) -> str:
    """The changed sources and keys in one line of bounded length: `configmap/app#mode secret/db`."""
    return _bounded([change.seen_from(namespace) for change in changes])


def _bounded(words: Iterable[str]) -> str:
    told: list[str] = []
    length = 0
    words = list(words)
    for word in words:
        length += len(word) + 1
        if length > _LONGEST:
            told.append(f"and {len(words) - len(told)} more")
            break
        told.append(word)
    return " ".join(told)
