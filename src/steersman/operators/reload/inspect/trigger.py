"""A restart that a person asks for, as a plan like any other. Pure.

Gates do not apply: a person has decided. The new pods start with the sources as they are now, so these are recorded as
applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from steersman.operators.reload.api.annotations import APPLIED, RESTARTED_FOR
from steersman.operators.reload.planning.diff import wanted
from steersman.operators.reload.planning.gates import Moment
from steersman.operators.reload.planning.plan import Action, WorkloadPlan
from steersman.operators.reload.planning.state import Applied, next_history, read_state
from steersman.operators.reload.workloads.workload import workload_id

if TYPE_CHECKING:
    from steersman.operators.reload.inspect.offline import OfflineInspection
    from steersman.operators.reload.planning.evaluate import Evaluation
    from steersman.operators.reload.workloads.kinds import KindRule

BY_HAND: Final = "steersman reload trigger"


def triggered(evaluation: Evaluation, inspection: OfflineInspection, now: float) -> WorkloadPlan:
    """The plan to restart the workload of `evaluation` at once."""
    found = read_state(evaluation.workload.annotations.get(APPLIED)).applied
    before = found.sources if found is not None else {}
    withheld = (source.seen_from(evaluation.workload.namespace) for source in evaluation.edges.withheld)
    target = {name: before[name] for name in withheld if name in before}
    for edge in evaluation.edges.tracked:
        name = edge.source.seen_from(evaluation.workload.namespace)
        entry = wanted(edge, inspection.source(edge.source), evaluation.keys.newest).entry
        known = evaluation.keys.find(before[name].key) if name in before else evaluation.keys.newest
        blind = known is None and bool(evaluation.keys.unreadable)  # a digest without the key would tell too much
        kept = entry if entry is not None and entry.digest and not blind else before.get(name, entry)
        if kept is not None:
            target[name] = kept
    me = workload_id(evaluation.workload)
    inspection.coordinator.observe(
        me, evaluation.workload, is_new=False
    )  # how the restart before this one ended is written with this one
    outcome = inspection.coordinator.outcome(me, Moment(wall=now, tick=now))
    restarts = (*(found.restarts if found is not None else ()), int(now))
    cause = " ".join(change.seen_from(evaluation.workload.namespace) for change in evaluation.plan.changes) or BY_HAND
    return WorkloadPlan(
        action=Action.RESTART,
        reason="requested by a user",
        changes=evaluation.plan.changes,
        state=Applied(
            sources=target,
            restarts=restarts,
            history=next_history(found.history if found is not None else (), int(now), cause, outcome),
        ),
        observed=evaluation.plan.observed,
    )


def with_cause(patch: dict[str, Any], rule: KindRule) -> dict[str, Any]:
    """The patch, with a person as the cause on the template where no source is."""
    found: Any = patch
    for part in (*rule.template, "metadata", "annotations"):
        found = found.get(part) if isinstance(found, dict) else None
    if isinstance(found, dict) and not found.get(RESTARTED_FOR):
        found[RESTARTED_FOR] = BY_HAND
    return patch
