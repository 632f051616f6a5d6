"""The page's snapshot of the reload operator: every workload, its sources and its restarts.

The only module of the page that imports the operator. Each workload is evaluated by the code that decides about
restarts, so the page cannot disagree with what is done.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from steersman.errors import FormatError
from steersman.operators.reload.api.annotations import APPLIED
from steersman.operators.reload.api.config import SourceRef, WorkloadId
from steersman.operators.reload.controllers.reconciler import WorkloadReconciler
from steersman.operators.reload.inspect.restart_state import TIMED, RestartState, state_of_gate
from steersman.operators.reload.planning.diff import wanted
from steersman.operators.reload.planning.gates import Moment
from steersman.operators.reload.planning.plan import Action
from steersman.operators.reload.planning.state import Applied, Past, read_state
from steersman.operators.reload.workloads.rollout_status import Phase
from steersman.web.model import (
    Approval,
    ChangedSource,
    Edge,
    HistoryEntry,
    Outcome,
    PageSnapshot,
    Restart,
    Rollout,
    SourceNode,
    Unwatched,
    WorkloadNode,
    WorkloadView,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.operators.reload.planning.diff import SourceChange as Changed
    from steersman.operators.reload.planning.evaluate import Evaluation
    from steersman.operators.reload.planning.restart_order import RestartCoordinator
    from steersman.operators.reload.sources.digest import Source
    from steersman.operators.reload.workloads.workload import Workload
    from steersman.runtime.controller.runner import ControllerRunner
    from steersman.runtime.manager.manager import Manager

SHORT: Final = 12  # characters of a digest
_OBSERVED: Final = frozenset({RestartState.CURRENT, RestartState.ROLLING})  # states that only reading can confirm


def reload_snapshot(manager: Manager) -> PageSnapshot:
    """What the reload operator of this manager knows; empty when it does not run."""
    found = [
        (engine, engine.controller.reconcile.__self__)
        for engine in manager.runners.values()
        if isinstance(getattr(engine.controller.reconcile, "__self__", None), WorkloadReconciler)
    ]
    sources: dict[str, SourceNode] = {}
    views = [view for engine, reconciler in found for view in _views(engine, reconciler, sources)]
    views.sort(key=lambda view: view.workload.id)
    history = [entry for view in views for entry in _entries(view)]
    history.sort(key=lambda entry: (entry.at, entry.id), reverse=True)
    changed = {edge.source for view in views for edge in view.edges if edge.changed}
    return PageSnapshot(
        workloads=views,
        sources=[replace(source, changed=source.id in changed) for _, source in sorted(sources.items())],
        history=history,
        running=bool(found),
    )


def _unreadable(engine: ControllerRunner) -> str:
    """Why what was last seen may no longer be true: a source of this controller cannot be read at all."""
    found = (source.informer.health() for source in engine.sources)
    problems = [f"{health.name}: {health.problem}" for health in found if health.problem and not health.partial]
    return problems[0] if problems else ""


def _views(
    engine: ControllerRunner, reconciler: WorkloadReconciler, sources: dict[str, SourceNode]
) -> Iterable[WorkloadView]:
    now, unreadable = Moment(wall=time.time(), tick=time.monotonic()), _unreadable(engine)
    with engine.snapshot() as cache:
        for workload in cache[engine.controller.target]:
            try:
                evaluation = reconciler.evaluate(workload, cache, now)
                view = as_far_as_known(_view(evaluation, reconciler.coordinator, now), unreadable)
                sources |= {
                    str(edge.source): _source(edge.source, evaluation.sources.get(edge.source))
                    for edge in evaluation.edges.tracked
                }
            except Exception as error:  # noqa: BLE001  the reconcile of this workload logs it; the others are shown
                view = _unknown(workload, error)
            yield view


def as_far_as_known(view: WorkloadView, unreadable: str) -> WorkloadView:
    """The same; a state that is only the last one seen is unknown. `unreadable` says why, empty when all is read."""
    node = view.workload
    if not unreadable or node.standing not in _OBSERVED:
        return view
    reason = f"last seen {node.standing.value}; {unreadable}"
    return replace(view, workload=replace(node, standing=RestartState.UNKNOWN, reason=reason))


def _unknown(workload: Workload, error: Exception) -> WorkloadView:
    """A workload whose evaluation failed: it is not restarted either."""
    me = WorkloadId(type(workload).KIND.kind, workload.namespace, workload.name)
    reason = f"evaluation failed ({type(error).__name__}); see the log"
    node = WorkloadNode(
        id=str(me),
        kind=me.kind.lower(),
        namespace=me.namespace,
        name=me.name,
        standing=RestartState.HELD,
        reason=reason,
        gate="defect",
    )
    return WorkloadView(workload=node, problems=[reason])


def _source(ref: SourceRef, found: Source | None) -> SourceNode:
    return SourceNode(
        id=str(ref),
        kind=ref.kind.value,
        namespace=ref.namespace,
        name=ref.name,
        keys=[] if found is None else sorted(found.digests),
        missing=found is None,
    )


def _view(evaluation: Evaluation, coordinator: RestartCoordinator, now: Moment) -> WorkloadView:
    workload, plan = evaluation.workload, evaluation.plan
    me = WorkloadId(type(workload).KIND.kind, workload.namespace, workload.name)
    applied = read_state(workload.annotations.get(APPLIED)).applied or Applied()
    rollout = _rollout(coordinator, me, now)
    restarts = _restarts(applied, coordinator, me, now)
    known, standing = coordinator.state_of(me), _standing(evaluation, rollout)
    changes = _changes(plan.changes)
    if not changes and standing in {RestartState.ROLLING, RestartState.FAILED} and restarts:
        changes = restarts[0].changes  # what it is being restarted for
    node = WorkloadNode(
        id=str(me),
        kind=me.kind.lower(),
        namespace=me.namespace,
        name=me.name,
        standing=standing,
        reason=plan.reason,
        gate=plan.gate,
        due=_time(plan.due) if plan.due is not None and plan.gate in TIMED else None,
        changes=changes,
        rollout=rollout,
        approval=_approval(evaluation, coordinator, me),
        wave=known.policy.wave if known is not None and known.policy.wave else None,
        last_restart=restarts[0].at if restarts else None,
    )
    return WorkloadView(
        workload=node,
        edges=_edges(evaluation, applied),
        unwatched=[
            Unwatched(source=str(untracked.source), rule=untracked.rule) for untracked in evaluation.edges.untracked
        ],
        restarts=restarts,
        problems=list(plan.problems),
        enrolled=evaluation.edges.reason or _enrolled(evaluation),
    )


def _edges(evaluation: Evaluation, applied: Applied) -> list[Edge]:
    changed = {change.source for change in evaluation.plan.changes}
    made = []
    for edge in evaluation.edges.tracked:
        old = applied.sources.get(edge.source.seen_from(evaluation.workload.namespace))
        key = evaluation.keys.newest if old is None else evaluation.keys.find(old.key) or evaluation.keys.newest
        entry = wanted(edge, evaluation.sources.get(edge.source), key).entry
        made.append(
            Edge(
                source=str(edge.source),
                keys=None if edge.keys is None else sorted(edge.keys),
                ignored=[str(pattern) for pattern in edge.ignored],
                optional=edge.optional,
                rules=list(edge.rules),
                digest="" if entry is None else entry.digest[:SHORT],
                applied="" if old is None else old.digest[:SHORT],
                changed=edge.source in changed,
            )
        )
    return made


def _enrolled(evaluation: Evaluation) -> str:
    """What makes it take part: rules say it in brackets, after where the source is used."""
    reasons = {rule.rpartition(" (")[2].rstrip(")") if rule.endswith(")") else rule for rule in _rules(evaluation)}
    return ", ".join(sorted(reasons))


def _rules(evaluation: Evaluation) -> Iterable[str]:
    return (rule for edge in evaluation.edges.tracked for rule in edge.rules)


def _standing(evaluation: Evaluation, rollout: Rollout | None) -> RestartState:
    if not evaluation.edges.tracked:
        return RestartState.OFF
    if evaluation.plan.action is Action.RESTART:
        return RestartState.PENDING
    if evaluation.plan.action is Action.WAIT:
        return state_of_gate(evaluation.plan.gate, evaluation.plan.due)
    if rollout is None:
        return RestartState.CURRENT
    return RestartState.FAILED if rollout.note else RestartState.ROLLING


def _rollout(coordinator: RestartCoordinator, me: WorkloadId, now: Moment) -> Rollout | None:
    """The last restart, unless it is over and well."""
    found = coordinator.rollouts.get(me)
    if found is None or found.phase(now.wall) is Phase.AVAILABLE:
        return None
    progress = found.progress
    return Rollout(
        wanted=progress.wanted,
        updated=progress.updated,
        ready=min(progress.available, progress.updated),
        since=_time(found.started),
        note=found.reason(now.wall),
    )


def _approval(evaluation: Evaluation, coordinator: RestartCoordinator, me: WorkloadId) -> Approval | None:
    if evaluation.plan.gate != "approval":
        return None
    known = coordinator.state_of(me)
    source, digest = next(iter(sorted(known.digests.items())), (None, "")) if known is not None else (None, "")
    command = ""
    if source is not None:
        command = f"steersman reload approve {source.kind.value}/{source.name} -n {source.namespace}"
    return Approval(digest=digest, reason=evaluation.plan.reason, command=command)


def _changes(changes: Sequence[Changed]) -> list[ChangedSource]:
    return [ChangedSource(source=str(change.source), keys=list(change.keys)) for change in changes]


def _restarts(applied: Applied, coordinator: RestartCoordinator, me: WorkloadId, now: Moment) -> list[Restart]:
    """The restarts that are written down, the latest first; how the latest goes is known here."""
    past = list(applied.history)
    known = {restart.at for restart in past}
    past += [Past(at) for at in applied.restarts if at not in known]
    past.sort(key=lambda restart: restart.at)
    found = [_restart(restart, me.namespace) for restart in past]
    last = coordinator.rollouts.get(me)
    if found and last is not None and abs(last.started - past[-1].at) < 2:
        phase = last.phase(now.wall)
        found[-1] = replace(
            found[-1],
            at=_time(last.started),
            outcome=_PHASES[phase],
            seconds=None if last.ended is None or phase is Phase.PROGRESSING else round(last.ended - last.began, 1),
            note=last.reason(now.wall),
        )
    return found[::-1]


_PHASES: Final = {
    Phase.PROGRESSING: Outcome.ROLLING,
    Phase.AVAILABLE: Outcome.SUCCEEDED,
    Phase.FAILED: Outcome.FAILED,
}


def _restart(past: Past, namespace: str) -> Restart:
    word, _, note = past.outcome.partition(": ")
    outcomes = {
        "available": Outcome.SUCCEEDED,
        "applied": Outcome.SUCCEEDED,
        "failed": Outcome.FAILED,
        "replaced": Outcome.REPLACED,
    }
    return Restart(
        at=_time(past.at),
        changes=_changes_in(past.cause, namespace),
        outcome=outcomes.get(word, Outcome.UNKNOWN),
        seconds=past.seconds,
        note=note,
    )


def _changes_in(text: str, namespace: str) -> list[ChangedSource]:
    """The changes that a restart names, as `configmap/app#mode,level secret/db`."""
    found = []
    for word in text.split():
        name, _, keys = word.partition("#")
        with suppress(FormatError):
            found.append(
                ChangedSource(source=str(SourceRef.parse(name, namespace)), keys=keys.split(",") if keys else [])
            )
    return found


def _entries(view: WorkloadView) -> Iterable[HistoryEntry]:
    for restart in view.restarts:
        yield HistoryEntry(
            id=f"{int(restart.at.timestamp())}-{view.workload.id.replace('/', '-')}",
            at=restart.at,
            workload=view.workload.id,
            changes=restart.changes,
            outcome=restart.outcome,
            seconds=restart.seconds,
            note=restart.note,
        )


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(round(seconds, 1), UTC)
