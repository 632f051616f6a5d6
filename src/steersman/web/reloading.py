"""The scene: what the reload operator knows, in the words of the page.

The only module of the page that knows the operator. It asks the operator's own code for every workload (the same look
that decides about restarts), so the page cannot disagree with what is done.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from steersman.errors import FormatError
from steersman.operators.reload.changes import wanted
from steersman.operators.reload.gates import Moment
from steersman.operators.reload.keeper import WorkloadKeeper
from steersman.operators.reload.plan import Action
from steersman.operators.reload.progress import Phase
from steersman.operators.reload.state import Applied, Past, read_state
from steersman.operators.reload.types import APPLIED, SourceRef, WorkloadId
from steersman.web.model import (
    Approval,
    Change,
    Edge,
    HistoryEntry,
    Outcome,
    Restart,
    Rollout,
    Scene,
    SourceNode,
    Standing,
    Unwatched,
    WorkloadNode,
    WorkloadView,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.operators.reload.changes import Change as Changed
    from steersman.operators.reload.digest import Source
    from steersman.operators.reload.fleet import Fleet
    from steersman.operators.reload.look import Look
    from steersman.operators.reload.workloads import Workload
    from steersman.runtime.engine import Engine
    from steersman.runtime.manager import Manager

__all__ = ["scene_of"]

SHORT: Final = 12  # characters of a digest
_TIMED: Final = frozenset({"window", "schedule", "freeze", "budget"})  # gates whose due time means something to people
_STANDINGS: Final = {"window": Standing.PENDING, "schedule": Standing.PENDING, "budget": Standing.OPEN}


def scene_of(manager: Manager) -> Scene:
    """What the reload operator of this manager knows; an empty scene when it does not run."""
    found = [
        (engine, engine.controller.reconcile.__self__)
        for engine in manager.engines.values()
        if isinstance(getattr(engine.controller.reconcile, "__self__", None), WorkloadKeeper)
    ]
    sources: dict[str, SourceNode] = {}
    views = [view for engine, keeper in found for view in _views(engine, keeper, sources)]
    views.sort(key=lambda view: view.workload.id)
    history = [entry for view in views for entry in _entries(view)]
    history.sort(key=lambda entry: (entry.at, entry.id), reverse=True)
    changed = {edge.source for view in views for edge in view.edges if edge.changed}
    return Scene(
        workloads=views,
        sources=[replace(one, changed=one.id in changed) for _, one in sorted(sources.items())],
        history=history,
        running=bool(found),
    )


def _views(engine: Engine, keeper: WorkloadKeeper, sources: dict[str, SourceNode]) -> Iterable[WorkloadView]:
    now = Moment(wall=time.time(), tick=time.monotonic())
    with engine.snapshots() as cache:
        for workload in cache[engine.controller.target]:
            try:
                look = keeper.look(workload, cache, now)
                view = _view(look, keeper.fleet, now)
                sources |= {
                    str(edge.source): _source(edge.source, look.sources.get(edge.source)) for edge in look.edges.tracked
                }
            except Exception as error:  # noqa: BLE001  the reconcile of this workload logs it; the others are shown
                view = _unknown(workload, error)
            yield view


def _unknown(workload: Workload, error: Exception) -> WorkloadView:
    """A workload about which nothing can be worked out: nothing restarts it either."""
    me = WorkloadId(type(workload).KIND.kind, workload.namespace, workload.name)
    reason = f"it cannot be worked out ({type(error).__name__}); the log says more"
    node = WorkloadNode(
        id=str(me),
        kind=me.kind.lower(),
        namespace=me.namespace,
        name=me.name,
        standing=Standing.HELD,
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


def _view(look: Look, fleet: Fleet, now: Moment) -> WorkloadView:
    workload, plan = look.workload, look.plan
    me = WorkloadId(type(workload).KIND.kind, workload.namespace, workload.name)
    applied = read_state(workload.annotations.get(APPLIED)).applied or Applied()
    rollout = _rollout(fleet, me, now)
    restarts = _restarts(applied, fleet, me, now)
    known, standing = fleet.standing(me), _standing(look, rollout)
    changes = _changes(plan.changes)
    if not changes and standing in {Standing.ROLLING, Standing.FAILED} and restarts:
        changes = restarts[0].changes  # what it is being restarted for
    node = WorkloadNode(
        id=str(me),
        kind=me.kind.lower(),
        namespace=me.namespace,
        name=me.name,
        standing=standing,
        reason=plan.reason,
        gate=plan.gate,
        due=_time(plan.due) if plan.due is not None and plan.gate in _TIMED else None,
        changes=changes,
        rollout=rollout,
        approval=_approval(look, fleet, me),
        wave=known.policy.wave if known is not None and known.policy.wave else None,
        last_restart=restarts[0].at if restarts else None,
    )
    return WorkloadView(
        workload=node,
        edges=_edges(look, applied),
        unwatched=[Unwatched(source=str(one.source), rule=one.rule) for one in look.edges.untracked],
        restarts=restarts,
        problems=list(plan.problems),
        enrolled=look.edges.reason or _enrolled(look),
    )


def _edges(look: Look, applied: Applied) -> list[Edge]:
    changed = {change.source for change in look.plan.changes}
    made = []
    for edge in look.edges.tracked:
        entry = wanted(edge, look.sources.get(edge.source)).entry
        old = applied.sources.get(edge.source.seen_from(look.workload.namespace))
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


def _enrolled(look: Look) -> str:
    """What makes it take part: rules say it in brackets, after where the source is used."""
    told = {rule.rpartition(" (")[2].rstrip(")") if rule.endswith(")") else rule for rule in _rules(look)}
    return ", ".join(sorted(told))


def _rules(look: Look) -> Iterable[str]:
    return (rule for edge in look.edges.tracked for rule in edge.rules)


def _standing(look: Look, rollout: Rollout | None) -> Standing:
    if not look.edges.tracked:
        return Standing.OFF
    if look.plan.action is Action.RESTART:
        return Standing.PENDING
    if look.plan.action is Action.WAIT:
        if look.plan.gate in _TIMED and look.plan.due is None:
            return Standing.HELD  # windows that cannot be read never open by themselves
        return _STANDINGS.get(look.plan.gate, Standing.HELD)
    if rollout is None:
        return Standing.CURRENT
    return Standing.FAILED if rollout.note else Standing.ROLLING


def _rollout(fleet: Fleet, me: WorkloadId, now: Moment) -> Rollout | None:
    """The last restart, unless it is over and well."""
    found = fleet.rollouts.get(me)
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


def _approval(look: Look, fleet: Fleet, me: WorkloadId) -> Approval | None:
    if look.plan.gate != "approval":
        return None
    known = fleet.standing(me)
    source, digest = next(iter(sorted(known.digests.items())), (None, "")) if known is not None else (None, "")
    command = ""
    if source is not None:
        command = f"steersman reload approve {source.kind.value}/{source.name} -n {source.namespace}"
    return Approval(digest=digest, reason=look.plan.reason, command=command)


def _changes(changes: Sequence[Changed]) -> list[Change]:
    return [Change(source=str(one.source), keys=list(one.keys)) for one in changes]


def _restarts(applied: Applied, fleet: Fleet, me: WorkloadId, now: Moment) -> list[Restart]:
    """The restarts that are written down, the latest first; how the latest goes is known here."""
    past = list(applied.history)
    known = {one.at for one in past}
    past += [Past(at) for at in applied.restarts if at not in known]
    past.sort(key=lambda one: one.at)
    found = [_restart(one, me.namespace) for one in past]
    last = fleet.rollouts.get(me)
    if found and last is not None and abs(last.started - past[-1].at) < 2:
        phase = last.phase(now.wall)
        found[-1] = replace(
            found[-1],
            at=_time(last.started),
            outcome=_PHASES[phase],
            seconds=None if last.ended is None or phase is Phase.PROGRESSING else round(last.ended - last.started, 1),
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
        changes=_told(past.told, namespace),
        outcome=outcomes.get(word, Outcome.UNKNOWN),
        seconds=past.seconds,
        note=note,
    )


def _told(text: str, namespace: str) -> list[Change]:
    """The changes that a restart names, as `configmap/app#mode,level secret/db`."""
    found = []
    for word in text.split():
        name, _, keys = word.partition("#")
        with suppress(FormatError):
            found.append(Change(source=str(SourceRef.parse(name, namespace)), keys=keys.split(",") if keys else []))
    return found


def _entries(view: WorkloadView) -> Iterable[HistoryEntry]:
    for one in view.restarts:
        yield HistoryEntry(
            id=f"{int(one.at.timestamp())}-{view.workload.id.replace('/', '-')}",
            at=one.at,
            workload=view.workload.id,
            changes=one.changes,
            outcome=one.outcome,
            seconds=one.seconds,
            note=one.note,
        )


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(round(seconds, 1), UTC)
