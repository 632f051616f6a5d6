"""A restart that a person asks for, as a plan like any other. Pure.

Gates do not count: somebody has decided. What the sources say now is what the new pods start with, so it is applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from steersman.operators.reload.changes import wanted
from steersman.operators.reload.gates import Moment
from steersman.operators.reload.plan import Action, Plan
from steersman.operators.reload.state import Applied, next_history, read_state
from steersman.operators.reload.types import APPLIED, RESTARTED_FOR
from steersman.operators.reload.workloads import workload_id

if TYPE_CHECKING:
    from steersman.operators.reload.kinds import KindRule
    from steersman.operators.reload.look import Look
    from steersman.operators.reload.survey import Survey

__all__ = ["BY_HAND", "signed", "triggered"]

BY_HAND: Final = "steersman reload trigger"


def triggered(look: Look, survey: Survey, now: float) -> Plan:
    """The plan to restart the workload of `look` at once."""
    found = read_state(look.workload.annotations.get(APPLIED)).applied
    before = found.sources if found is not None else {}
    withheld = (source.seen_from(look.workload.namespace) for source in look.edges.withheld)
    target = {name: before[name] for name in withheld if name in before}
    for edge in look.edges.tracked:
        name = edge.source.seen_from(look.workload.namespace)
        entry = wanted(edge, survey.source(edge.source)).entry
        kept = entry if entry is not None and entry.digest else before.get(name, entry)
        if kept is not None:
            target[name] = kept
    me = workload_id(look.workload)
    survey.fleet.saw(me, look.workload, fresh=False)  # how the restart before this one ended is written with this one
    outcome = survey.fleet.outcome(me, Moment(wall=now, tick=now))
    restarts = (*(found.restarts if found is not None else ()), int(now))
    told = " ".join(change.seen_from(look.workload.namespace) for change in look.plan.changes) or BY_HAND
    return Plan(
        action=Action.RESTART,
        reason="somebody asked for it",
        changes=look.plan.changes,
        state=Applied(
            sources=target,
            restarts=restarts,
            history=next_history(found.history if found is not None else (), int(now), told, outcome),
        ),
        observed=look.plan.observed,
    )


def signed(patch: dict[str, Any], rule: KindRule) -> dict[str, Any]:
    """The patch, with a person as the cause on the template where no source is."""
    found: Any = patch
    for part in (*rule.template, "metadata", "annotations"):
        found = found.get(part) if isinstance(found, dict) else None
    if isinstance(found, dict) and not found.get(RESTARTED_FOR):
        found[RESTARTED_FOR] = BY_HAND
    return patch
