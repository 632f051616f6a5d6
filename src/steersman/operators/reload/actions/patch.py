"""The patch of a plan: the only write of this operator to workloads, but for recreated Jobs and finished evictions.

One patch per plan. It names the uid and the resourceVersion of the workload the plan was made for, so it changes that
very workload as it was seen, or nothing: after a conflict it is evaluated again. The patch holds our
annotation, the annotations of dialects and, for a restart, the stamps on the pod template; nothing else. Environment
variables of other kinds than those of apps/v1 need all containers in the patch, which are read for it.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from steersman.kube.api.patches import PatchType
from steersman.kube.api.times import format_micro_time
from steersman.operators.reload.api.annotations import APPLIED, RESTARTED_AT, RESTARTED_FOR
from steersman.operators.reload.compat.dialect import CompatAnnotations
from steersman.operators.reload.planning.diff import describe
from steersman.operators.reload.planning.plan import Action, WorkloadPlan
from steersman.operators.reload.planning.state import write_state
from steersman.operators.reload.workloads.kinds import RUN, KindRule, restart_patch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.operators.reload.sources.references import Variable
    from steersman.operators.reload.workloads.workload import Workload
    from steersman.runtime.reconcile.context import Context

NO_MARKS: Final = CompatAnnotations()
_MERGED_BY_NAME: Final = ("apps", "batch")  # groups whose lists a strategic patch merges by name


async def apply_plan(
    ctx: Context, rule: KindRule, workload: Workload, plan: WorkloadPlan, *, marks: CompatAnnotations = NO_MARKS
) -> Workload | None:
    """Write what the plan asks for; returns the answer of the server, None when there was nothing to write."""
    containers = None
    if plan.action is Action.RESTART:
        containers = await read_containers(ctx.client, rule, workload, marks)
    patch = patch_for(rule, workload, plan, at=ctx.clock.time(), marks=marks, containers=containers)
    if patch is None:
        return None
    written: Workload = await ctx.patch(workload, patch, kind=patch_type(rule, marks))
    return written


def patch_type(rule: KindRule, marks: CompatAnnotations) -> PatchType:
    """How the patch is merged: variables by name, where the API server can do that."""
    return PatchType.STRATEGIC if marks.variables and _merges_by_name(rule) else PatchType.MERGE


async def read_containers(
    client: Any, rule: KindRule, workload: Workload, marks: CompatAnnotations
) -> list[dict[str, Any]] | None:
    """The containers of the template, where a patch with variables has to hold all of them; else None."""
    if not marks.variables or _merges_by_name(rule):
        return None
    found = await client.get(rule.kind, workload.name, namespace=workload.namespace)
    for part in (*rule.template, "spec", "containers"):
        found = found[part]
    containers: list[dict[str, Any]] = found
    return containers


def _merges_by_name(rule: KindRule) -> bool:
    return rule.kind.group in _MERGED_BY_NAME


def patch_for(
    rule: KindRule,
    workload: Workload,
    plan: WorkloadPlan,
    *,
    at: float,
    marks: CompatAnnotations = NO_MARKS,
    containers: Iterable[Mapping[str, Any]] | None = None,
) -> dict[str, Any] | None:
    """The merge patch for a plan; None when it writes nothing. `containers`: those of `read_containers`."""
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
    if plan.action is Action.RESTART and rule.restart != RUN:
        stamp = format_micro_time(at)
        stamps = stamps_for(plan, workload.namespace, at, marks)
        patch |= restart_patch(rule, stamps, stamp, has_template=workload.facts.has_template and not marks.by_time)
        if marks.variables:
            variables = _variables_by_container(marks.variables)
            pod = variables if containers is None else set_variables(containers, marks.variables)
            _at(patch, rule.template)["spec"] = {"containers": pod}
        if marks.paused:
            _at(patch, ("spec",))["paused"] = True
    return patch


def stamps_for(plan: WorkloadPlan, namespace: str, at: float, marks: CompatAnnotations) -> dict[str, str | None]:
    """The annotations of a pod template that is restarted."""
    return {RESTARTED_AT: format_micro_time(at), RESTARTED_FOR: describe(plan.changes, namespace), **marks.template}


def set_variables(containers: Iterable[Mapping[str, Any]], variables: Iterable[Variable]) -> list[dict[str, Any]]:
    """All containers of a template, with these environment variables, or without those that have no value."""
    made = [dict(copy.deepcopy(container)) for container in containers]
    for variable in variables:
        for container in made:
            if container["name"] == variable.container:
                others = [row for row in container.get("env") or () if row["name"] != variable.name]
                own = [] if variable.value is None else [{"name": variable.name, "value": variable.value}]
                container["env"] = [*others, *own]
    return made


def _variables_by_container(variables: Iterable[Variable]) -> list[dict[str, Any]]:
    containers: dict[str, list[dict[str, str]]] = {}
    for variable in variables:
        said = {"$patch": "delete"} if variable.value is None else {"value": variable.value}
        containers.setdefault(variable.container, []).append({"name": variable.name, **said})
    return [{"name": name, "env": env} for name, env in containers.items()]


def _at(patch: dict[str, Any], path: Iterable[str]) -> dict[str, Any]:
    for part in path:
        patch = patch.setdefault(part, {})
    return patch
