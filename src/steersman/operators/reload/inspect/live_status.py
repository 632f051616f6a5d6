"""The live status of the operator as one value, and as tables for the status page and `steersman status`. Pure.

    pending      changes that wait: since when, for what, until when, and which gate holds them
    rollouts     restarts that are under way or failed
    circuits     workloads whose budget is used up
    approvals    changes that need approval, with the digest to approve
    workloads    who takes part, and the edges of each
    history      restarts with cause and outcome, the latest first

Times are seconds since the epoch. Names and digests only, never a value of a source. Lists are in a stable order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from steersman.kube.api.times import format_time
from steersman.operators.reload.api.config import OnFailure, SourceRef, WorkloadId
from steersman.operators.reload.inspect.restart_state import TIMED, RestartState, state_of_gate
from steersman.operators.reload.planning.diff import SourceChange
from steersman.operators.reload.workloads.rollout_status import Phase
from steersman.runtime.manager.operator_bundle import Row, RowProblem, RowState, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from steersman.operators.reload.planning.restart_order import RestartCoordinator, WorkloadState
    from steersman.operators.reload.planning.rollouts import TrackedRollout
    from steersman.operators.reload.planning.state import Past


class RestartOutcome(msgspec.Struct, frozen=True):
    """How a restart ended."""

    phase: str  # progressing | available | failed | replaced (by the next restart before it ended) | applied | unknown
    reason: str = ""  # of a failure; of what was applied without a restart, by which action
    seconds: float | None = None  # from the restart to the outcome, if it was observed


class PendingView(msgspec.Struct, frozen=True, kw_only=True):
    """A restart that waits."""

    workload: WorkloadId
    changes: tuple[SourceChange, ...]
    gate: str  # one of `gates.GATES`
    reason: str
    since: float  # when this process saw the first of the changes
    due: float | None = None  # None: when something changes
    wave: int = 0


class RolloutView(msgspec.Struct, frozen=True, kw_only=True):
    """A restart that is being followed."""

    workload: WorkloadId
    started: float
    sources: str  # `configmap/app#mode secret/db`
    outcome: RestartOutcome
    updated: int = 0  # pods of the new template
    available: int = 0
    wanted: int = 0
    halts: bool = False  # it failed, and others wait for it
    wave: int = 0


class Circuit(msgspec.Struct, frozen=True, kw_only=True):
    """A workload that was restarted too often."""

    workload: WorkloadId
    changes: tuple[SourceChange, ...]
    budget: str  # `5 restarts in 1h`
    closes: float | None  # by itself


class ApprovalView(msgspec.Struct, frozen=True, kw_only=True):
    """A change that needs approval: `steersman.dev/approve: DIGEST` on source, workload or namespace."""

    source: SourceRef
    digest: str
    guard: str  # `10,30%`
    workloads: tuple[WorkloadId, ...]  # whom it would restart


class EdgeView(msgspec.Struct, frozen=True, kw_only=True):
    """One source that a workload is restarted for."""

    source: SourceRef
    keys: tuple[str, ...] | None = None  # None: every key
    optional: bool = False
    rules: tuple[str, ...] = ()  # who says so


class ManagedWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload that takes part."""

    workload: WorkloadId
    edges: tuple[EdgeView, ...]
    wave: int = 0
    gate: str = ""  # what holds a change back, when one waits


class RestartView(msgspec.Struct, frozen=True, kw_only=True):
    """One restart of the past."""

    workload: WorkloadId
    at: float
    sources: str
    outcome: RestartOutcome


class ReloadView(msgspec.Struct, frozen=True, kw_only=True):
    """The live status; see the module."""

    at: float
    pending: tuple[PendingView, ...] = ()
    rollouts: tuple[RolloutView, ...] = ()
    circuits: tuple[Circuit, ...] = ()
    approvals: tuple[ApprovalView, ...] = ()
    workloads: tuple[ManagedWorkload, ...] = ()
    history: tuple[RestartView, ...] = ()


def view_of(coordinator: RestartCoordinator, now: float) -> ReloadView:
    """What `coordinator` knows at `now`, in seconds since the epoch."""
    states = coordinator.states()
    return ReloadView(
        at=now,
        pending=tuple(_pending(me, state) for me, state in states if state.gate),
        rollouts=tuple(_rollout(coordinator, me, rollout, now) for me, rollout in sorted(coordinator.rollouts.open())),
        circuits=tuple(
            Circuit(workload=me, changes=state.changes, budget=str(state.policy.budget), closes=state.due)
            for me, state in states
            if state.gate == "budget"
        ),
        approvals=tuple(_approvals(coordinator, states)),
        workloads=tuple(_workload(me, state) for me, state in states),
        history=tuple(sorted(_history(coordinator, states, now), key=lambda restart: (-restart.at, restart.workload))),
    )


def _pending(me: WorkloadId, state: WorkloadState) -> PendingView:
    return PendingView(
        workload=me,
        changes=state.changes,
        gate=state.gate,
        reason=state.reason,
        since=state.since,
        due=state.due,
        wave=state.policy.wave,
    )


def _rollout(coordinator: RestartCoordinator, me: WorkloadId, rollout: TrackedRollout, now: float) -> RolloutView:
    state = coordinator.state_of(me)
    failed = rollout.phase(now) is Phase.FAILED
    return RolloutView(
        workload=me,
        started=rollout.started,
        sources=rollout.cause,
        outcome=_live_outcome(rollout, now),
        updated=rollout.progress.updated,
        available=rollout.progress.available,
        wanted=rollout.progress.wanted,
        halts=failed and state is not None and state.policy.on_failure is OnFailure.HALT,
        wave=0 if state is None else state.policy.wave,
    )


def _approvals(
    coordinator: RestartCoordinator, states: list[tuple[WorkloadId, WorkloadState]]
) -> Iterator[ApprovalView]:
    waiting = {
        (source, digest): str(state.policy.guard)
        for _, state in states
        if state.gate == "approval"
        for source, digest in state.digests.items()
    }
    for (source, digest), guard in sorted(waiting.items()):
        concerned = tuple(sorted(coordinator.concerned(source, digest)))
        yield ApprovalView(source=source, digest=digest, guard=guard, workloads=concerned)


def _workload(me: WorkloadId, state: WorkloadState) -> ManagedWorkload:
    edges = tuple(
        EdgeView(
            source=edge.source,
            keys=None if edge.keys is None else tuple(sorted(edge.keys)),
            optional=edge.optional,
            rules=edge.rules,
        )
        for edge in state.edges
    )
    return ManagedWorkload(workload=me, edges=edges, wave=state.policy.wave, gate=state.gate)


def _history(
    coordinator: RestartCoordinator, states: list[tuple[WorkloadId, WorkloadState]], now: float
) -> Iterator[RestartView]:
    for me, state in states:
        for past in state.history:
            last = past is state.history[-1]
            live = coordinator.rollouts.get(me) if last and not past.outcome else None
            outcome = _past_outcome(past) if live is None else _live_outcome(live, now)
            yield RestartView(workload=me, at=float(past.at), sources=past.cause, outcome=outcome)


def _past_outcome(past: Past) -> RestartOutcome:
    phase, _, reason = past.outcome.partition(": ")
    return RestartOutcome(phase or "unknown", reason, past.seconds)


def _live_outcome(rollout: TrackedRollout, now: float) -> RestartOutcome:
    seconds = None if rollout.ended is None else rollout.ended - rollout.began
    return RestartOutcome(rollout.phase(now).value, rollout.reason(now), seconds)


_SHOWN: Final = 50  # restarts of the past


def tables_of(view: ReloadView) -> list[Table]:
    """Workloads that are not current, the changes that need approval, and the history."""
    return [
        Table(
            "Workloads",
            ("workload", "sources", "pods", "due", "why"),
            _workload_rows(view),
            total=len(view.workloads),
            good="current",
        ),
        Table("Waiting for approval", ("source", "digest", "limit", "workloads"), _approval_rows(view), counted=False),
        Table("Last restarts", ("workload", "at", "sources", "seconds"), _history_rows(view), counted=False),
    ]


def _workload_rows(view: ReloadView) -> list[Row]:
    """What needs attention first, then what waits, then what is under way."""
    waiting = {pending.workload for pending in view.pending}
    failed = {str(rollout.workload): rollout for rollout in view.rollouts if rollout.outcome.phase == "failed"}
    rows = [_rollout_row(rollout) for rollout in view.rollouts if rollout.workload not in waiting]
    guarded = {me: approval for approval in view.approvals for me in approval.workloads}
    rows += [_pending_row(pending, guarded.get(pending.workload), failed) for pending in view.pending]
    return sorted(rows, key=lambda row: (_ORDER.index(row.state), row.cells[0]))


_ORDER: Final = (RowState.BAD, RowState.WAITING, RowState.BUSY)


def _halting(pending: PendingView, failed: Mapping[str, RolloutView]) -> RolloutView | None:
    """The failed rollout that a halted restart waits for; the reason begins with its name."""
    if pending.gate != "halt":
        return None
    name = pending.reason.partition(" failed")[0]
    kind, _, rest = name.partition("/")
    return failed.get(name) or failed.get(f"{kind}/{pending.workload.namespace}/{rest}")


def _pending_row(pending: PendingView, approval: ApprovalView | None, failed: Mapping[str, RolloutView]) -> Row:
    me, state = pending.workload, state_of_gate(pending.gate, pending.due)
    problem = None
    if state is RestartState.OPEN:
        sources = _describe(pending.changes, me.namespace)
        problem = RowProblem(
            objects=[str(me)],
            message=f"{pending.reason}: {sources} keeps changing",
            cause=f"circuit {me.namespace} {sources}",  # one source that flaps opens the circuits of all its users
            command=_why(me),
            runbook="SteersmanReloadCircuitOpen",
        )
    elif pending.gate == "approval" and approval is not None:
        problem = _approval_problem(approval, me)
    elif pending.gate == "missing":
        problem = RowProblem(
            objects=[str(me)], message=pending.reason, command=_why(me), runbook="SteersmanReloadMisconfigured"
        )
    elif (other := _halting(pending, failed)) is not None:
        problem = _failure(other, me)
    due = "" if pending.due is None or pending.gate not in TIMED else format_time(pending.due)
    cells = (str(me), _describe(pending.changes, me.namespace), "", due, pending.reason)
    return Row(cells, state.row_state, pending.reason, word=state.word, problem=problem)


def _rollout_row(rollout: RolloutView) -> Row:
    is_failed = rollout.outcome.phase == "failed"
    state = RestartState.FAILED if is_failed else RestartState.ROLLING
    pods = f"{rollout.updated} of {rollout.wanted} updated"
    cells = (str(rollout.workload), rollout.sources, pods, "", rollout.outcome.reason)
    note = "others wait for it" if rollout.halts else rollout.outcome.reason
    problem = _failure(rollout) if is_failed else None
    return Row(cells, state.row_state, note, word=state.word, problem=problem)


def _failure(rollout: RolloutView, *halted: WorkloadId) -> RowProblem:
    """One failed rollout; the workloads that wait because of it have the same problem."""
    return RowProblem(
        objects=[str(rollout.workload), *map(str, halted)],
        message=f"{rollout.outcome.reason}, after a restart for {rollout.sources}",
        cause=f"rollout {rollout.workload}",
        command=f"kubectl rollout status {_name(rollout.workload)} -n {rollout.workload.namespace}",
        runbook="SteersmanReloadPendingLong",
    )


def _approval_problem(approval: ApprovalView, me: WorkloadId) -> RowProblem:
    source = approval.source
    return RowProblem(
        objects=[str(me)],
        message=f"{source} changed, which restarts {len(approval.workloads)} workloads (limit {approval.guard})",
        cause=f"approval {source} {approval.digest}",
        command=f"steersman reload approve {source.kind.value}/{source.name} -n {source.namespace}",
        runbook="SteersmanReloadPendingLong",
    )


def _why(me: WorkloadId) -> str:
    return f"steersman why {_name(me)} -n {me.namespace}"


def _name(me: WorkloadId) -> str:
    return f"{me.kind.lower()}/{me.name}"


def _approval_rows(view: ReloadView) -> list[Row]:
    return [
        Row(
            (str(approval.source), approval.digest, approval.guard, len(approval.workloads)),
            RowState.WAITING,
            "needs approval",
            word=RestartState.HELD.word,
        )
        for approval in view.approvals
    ]


def _history_rows(view: ReloadView) -> list[Row]:
    states = {
        "available": RowState.GOOD,
        "applied": RowState.GOOD,
        "progressing": RowState.BUSY,
        "failed": RowState.BAD,
    }
    words = {"available": "Succeeded", "applied": "Succeeded", "progressing": "Rolling out", "replaced": "Replaced"}
    return [
        Row(
            (
                str(restart.workload),
                format_time(restart.at),
                restart.sources,
                None if restart.outcome.seconds is None else round(restart.outcome.seconds),
            ),
            states.get(restart.outcome.phase, RowState.OFF),
            restart.outcome.reason,
            word=words.get(restart.outcome.phase, restart.outcome.phase.capitalize()),
        )
        for restart in view.history[:_SHOWN]
    ]


def _describe(changes: Iterable[SourceChange], namespace: str) -> str:
    return " ".join(change.seen_from(namespace) for change in changes)
