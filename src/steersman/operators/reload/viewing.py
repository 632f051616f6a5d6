"""From the fleet to a view: what the operator knows right now, as one value. Pure; costs no request and no look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.operators.reload.progress import Phase
from steersman.operators.reload.types import OnFailure
from steersman.operators.reload.view import (
    Approval,
    Circuit,
    EdgeView,
    Outcome,
    Pending,
    ReloadView,
    Restart,
    RolloutView,
    WorkloadView,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.operators.reload.fleet import Fleet, Standing
    from steersman.operators.reload.rollouts import Rollout
    from steersman.operators.reload.state import Past
    from steersman.operators.reload.types import WorkloadId

__all__ = ["view_of"]


def view_of(fleet: Fleet, now: float) -> ReloadView:
    """What `fleet` knows at `now`, in seconds since the epoch."""
    standings = fleet.standings()
    return ReloadView(
        at=now,
        pending=tuple(_pending(me, one) for me, one in standings if one.gate),
        rollouts=tuple(_rollout(fleet, me, one, now) for me, one in sorted(fleet.rollouts.open())),
        circuits=tuple(
            Circuit(workload=me, changes=one.changes, budget=str(one.policy.budget), closes=one.due)
            for me, one in standings
            if one.gate == "budget"
        ),
        approvals=tuple(_approvals(fleet, standings)),
        workloads=tuple(_workload(me, one) for me, one in standings),
        history=tuple(sorted(_history(fleet, standings, now), key=lambda one: (-one.at, one.workload))),
    )


def _pending(me: WorkloadId, standing: Standing) -> Pending:
    return Pending(
        workload=me,
        changes=standing.changes,
        gate=standing.gate,
        reason=standing.reason,
        since=standing.since,
        due=standing.due,
        wave=standing.policy.wave,
    )


def _rollout(fleet: Fleet, me: WorkloadId, rollout: Rollout, now: float) -> RolloutView:
    standing = fleet.standing(me)
    failed = rollout.phase(now) is Phase.FAILED
    return RolloutView(
        workload=me,
        started=rollout.started,
        sources=rollout.told,
        outcome=_live_outcome(rollout, now),
        updated=rollout.progress.updated,
        available=rollout.progress.available,
        wanted=rollout.progress.wanted,
        halts=failed and standing is not None and standing.policy.on_failure is OnFailure.HALT,
        wave=0 if standing is None else standing.policy.wave,
    )


def _approvals(fleet: Fleet, standings: list[tuple[WorkloadId, Standing]]) -> Iterator[Approval]:
    waiting = {
        (source, digest): str(one.policy.guard)
        for _, one in standings
        if one.gate == "approval"
        for source, digest in one.digests.items()
    }
    for (source, digest), guard in sorted(waiting.items()):
        concerned = tuple(sorted(fleet.concerned(source, digest)))
        yield Approval(source=source, digest=digest, guard=guard, workloads=concerned)


def _workload(me: WorkloadId, standing: Standing) -> WorkloadView:
    edges = tuple(
        EdgeView(
            source=edge.source,
            keys=None if edge.keys is None else tuple(sorted(edge.keys)),
            optional=edge.optional,
            rules=edge.rules,
        )
        for edge in standing.edges
    )
    return WorkloadView(workload=me, edges=edges, wave=standing.policy.wave, gate=standing.gate)


def _history(fleet: Fleet, standings: list[tuple[WorkloadId, Standing]], now: float) -> Iterator[Restart]:
    for me, standing in standings:
        for past in standing.history:
            last = past is standing.history[-1]
            live = fleet.rollouts.get(me) if last and not past.outcome else None
            outcome = _past_outcome(past) if live is None else _live_outcome(live, now)
            yield Restart(workload=me, at=float(past.at), sources=past.told, outcome=outcome)


def _past_outcome(past: Past) -> Outcome:
    phase, _, reason = past.outcome.partition(": ")
    return Outcome(phase or "unknown", reason, past.seconds)


def _live_outcome(rollout: Rollout, now: float) -> Outcome:
    seconds = None if rollout.ended is None else rollout.ended - rollout.started
    return Outcome(rollout.phase(now).value, rollout.reason(now), seconds)
