"""The plan: what to do about one workload now, and which rule says so. Pure.

    nothing    everything it uses is applied, or it does not take part
    seed       write down what it uses, without a restart
    wait       something changed; a gate holds the restart back until `due`
    restart    something changed: new state and new pods, in one patch
    track      something changed, and the app reloads by itself: write down what it uses now
    call       something changed: call each pod, then write it down, unless more has changed in the meantime
    evict      something changed: write it down with the time before which pods are old, then evict these
    forget     it no longer takes part: remove what we wrote about it

`gates` says what can hold a restart back. A plan that waits may still carry state to write, for edges that are new:
their first sight must not wait for others.

A plan is a value: commands, the page and tests all show the same one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from steersman.kube.durations import format_duration
from steersman.kube.times import format_time
from steersman.operators.reload.changes import UNKNOWN, Change, Wanted, changed_since, wanted
from steersman.operators.reload.comparison import read_ways, ways_text
from steersman.operators.reload.gates import Moment, Policy, first_closed
from steersman.operators.reload.ledger import Observed
from steersman.operators.reload.means import RESTART
from steersman.operators.reload.state import (
    Applied,
    Entry,
    Found,
    Past,
    next_history,
    read_state,
    total_of,
    write_state,
)
from steersman.operators.reload.types import ACTION, APPLIED, SourceRef, WorkloadId
from steersman.operators.reload.workloads import workload_id

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from steersman.operators.reload.dialect import Dialect
    from steersman.operators.reload.edges import Edges, Sources
    from steersman.operators.reload.gates import Company
    from steersman.operators.reload.types import Budget
    from steersman.operators.reload.workloads import Workload

APPLIED_BY: Final = "applied"  # the outcome in a history of what has none: `applied: none`
REMEMBERED: Final = 20  # restarts, or as many as the budget has to count
TOLERATED_WIPES: Final = 5  # within WIPES_SECONDS, after which we stop for a while to write what somebody else removes
WIPES_SECONDS: Final = 3600.0

__all__ = ["APPLYING", "UNDER_WAY", "Action", "Moment", "Plan", "Policy", "make_plan"]


class Action(StrEnum):
    """What a plan does."""

    NOTHING = "nothing"
    SEED = "seed"
    WAIT = "wait"
    RESTART = "restart"
    FORGET = "forget"
    TRACK = "track"
    CALL = "call"
    EVICT = "evict"


APPLYING: Final = frozenset(
    {Action.RESTART, Action.TRACK, Action.CALL, Action.EVICT}
)  # what the sources say is applied


UNDER_WAY: Final = APPLYING - {Action.TRACK}  # what takes its time with pods: others may have to wait for it


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do about one workload."""

    action: Action
    reason: str  # the rule that says so
    changes: tuple[Change, ...] = ()
    state: Applied | None = None  # to write now; with FORGET and NOTHING there is none
    gate: str = ""  # what holds a restart back, one of `gates.GATES`
    waits_for: WorkloadId | None = None  # the workload that goes first, where the gate is about one
    due: float | None = None  # when to look again, in seconds since the epoch; None: when something changes
    problems: tuple[str, ...] = ()
    observed: Observed = Observed()

    def remembered(self, *, written: bool) -> Observed:
        """What to remember once it is carried out; `written`: its state is on the workload now."""
        observed = self.observed
        if self.action in APPLYING:
            observed = replace(observed, pending={}, refusals=0, wiped=())
        if written and self.state is not None:
            observed = replace(observed, applied=self.state, seen={})
        return observed

    def __str__(self) -> str:
        """`wait until 2026-11-15T10:00:05Z: window (5s quiet, at most 30s) for configmap/shop/app#mode`."""
        words = [self.action.value]
        if self.action is Action.WAIT:
            words.append("for a change" if self.due is None else f"until {format_time(self.due)}")
        text = f"{' '.join(words)}: {self.reason}"
        return f"{text} for {' '.join(change.seen_from('') for change in self.changes)}" if self.changes else text


class _Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Applied against wanted."""

    kept: dict[str, Entry]  # the state without anything that changed
    target: dict[str, Entry]  # the state after a restart
    changes: tuple[Change, ...]
    seen: dict[SourceRef, Entry]
    missing: str | None  # what a restart would fail for


def make_plan(
    workload: Workload,
    edges: Edges,
    sources: Sources,
    *,
    policy: Policy,
    observed: Observed,
    now: Moment,
    company: Company | None = None,
    moved: Mapping[SourceRef, bool] | None = None,
    settled: Collection[SourceRef] = (),
    dialects: Sequence[Dialect] = (),
) -> Plan:
    """What to do about `workload`.

    From the ledger: `moved` are the sources that changed after it took its edges, `settled` those that changed last
    before it was created, so that its pods cannot have anything older.
    """
    text = workload.annotations.get(APPLIED)
    problems = edges.problems
    if not edges.tracked and not _withheld(workload, edges, read_state(text).applied):
        action = Action.NOTHING if text is None else Action.FORGET
        afresh = Observed(uid=observed.uid, reported=observed.reported)
        return Plan(action=action, reason=edges.reason, problems=problems, observed=afresh)
    found = read_state(text)
    if found.problem:
        problems = (*problems, f"{APPLIED}: {found.problem}")
    if found.newer:
        reason = f"{APPLIED} is of a later version"
        return Plan(action=Action.NOTHING, reason=reason, problems=problems, observed=observed)
    wiped = found.applied is None and observed.applied is not None and bool(observed.applied.sources)
    applied = found.applied or observed.applied or Applied()
    wants = [wanted(edge, sources.get(edge.source)) for edge in edges.tracked]
    for edge in edges.tracked:
        sources.compares(edge.source, ways_text(edge.ways))
    summed = applied.total is not None
    if summed:
        applied = _expanded(applied, observed.applied, wants, workload.namespace, sources)
    compared = _compare(workload, wants, applied, sources, observed, moved or {}, settled, dialects)
    if held := _withheld(workload, edges, applied):
        compared = replace(compared, kept=compared.kept | held, target=compared.target | held)
    pending = {change.source: _digest_of(change.source, compared.target, workload) for change in compared.changes}
    observed = _observe(observed, pending, compared.seen, applied, now)
    if wiped:
        observed = replace(observed, wiped=_wiped(observed, now))
    if not compared.changes:
        if len(observed.wiped) > TOLERATED_WIPES:
            told = "somebody keeps removing it; it is not written again within an hour"
            return Plan(
                action=Action.NOTHING,
                reason="somebody removes our state",
                due=now.wall + observed.wiped[-1] + WIPES_SECONDS - now.tick,
                problems=(*problems, f"{APPLIED}: {told} unless it is restarted"),
                observed=observed,
            )
        return _settled(compared, applied, found, problems, observed)
    closed = first_closed(
        workload_id(workload),
        changes=compared.changes,
        held={change.source: sources.get(change.source) for change in compared.changes},
        missing=compared.missing,
        restarts=applied.restarts,
        policy=policy,
        observed=observed,
        now=now,
        company=company,
    )
    if closed is not None:
        kept = replace(applied, sources=compared.kept, total=None)
        return Plan(
            action=Action.WAIT,
            reason=closed.reason,
            changes=compared.changes,
            gate=closed.gate,
            waits_for=closed.waits_for,
            due=closed.due,
            state=kept if compared.kept and _differs(kept, found) and not summed else None,
            problems=problems,
            observed=observed,
        )
    if policy.means.kind != RESTART.kind:
        return _by_other_means(
            Plan(
                action=Action.TRACK,
                reason=f"{ACTION}: {policy.means}",
                changes=compared.changes,
                state=replace(
                    applied,
                    sources=compared.target,
                    total=None,
                    history=_history(
                        workload, compared, applied, now, company, done=f"{APPLIED_BY}: {policy.means.kind}"
                    ),
                ),
                problems=problems,
                observed=observed,
            ),
            policy,
            now=now,
        )
    return Plan(
        action=Action.RESTART,
        reason="sources changed",
        changes=compared.changes,
        state=_restarted(workload, compared, applied, policy.budget, now, company),
        problems=problems,
        observed=observed,
    )


def _withheld(workload: Workload, edges: Edges, applied: Applied | None) -> dict[str, Entry]:
    """What is known of sources that were granted once: should they be again, this is what they are compared with."""
    names = (source.seen_from(workload.namespace) for source in edges.withheld)
    return {name: applied.sources[name] for name in names if applied is not None and name in applied.sources}


def _compare(
    workload: Workload,
    wants: Sequence[Wanted],
    applied: Applied,
    sources: Sources,
    observed: Observed,
    moved: Mapping[SourceRef, bool],
    settled: Collection[SourceRef],
    dialects: Sequence[Dialect],
) -> _Comparison:
    kept: dict[str, Entry] = {}
    target: dict[str, Entry] = {}
    changes: list[Change] = []
    seen: dict[SourceRef, Entry] = {}
    missing: list[str] = []
    for want in wants:
        source = want.edge.source
        name = source.seen_from(workload.namespace)
        before = applied.sources.get(name)
        if before is not None and not before.digest and not want.edge.optional:
            before = None  # pods did without it once; those of the present template wait for it
        if want.missing:
            missing.append(f"{name} is needed to start pods, but {want.missing}")
        if want.entry is None or (before is not None and not want.entry.digest):
            if before is not None:  # gone for now: what the pods were started for stays what they are compared with
                kept[name] = target[name] = before
            continue
        target[name] = want.entry
        if before is None:
            before = _first_sight(workload, want, want.entry, sources, observed, moved, dialects)
            seen[source] = observed.seen.get(source, want.entry)
            if before is None:
                kept[name] = want.entry
                continue
        keys = _changed(before, want, sources)
        if keys is None or source in settled:
            kept[name] = want.entry
        else:
            kept[name] = before
            changes.append(Change(source, keys))
    return _Comparison(
        kept=kept, target=target, changes=tuple(sorted(changes)), seen=seen, missing="; ".join(missing) or None
    )


def _first_sight(
    workload: Workload,
    want: Wanted,
    entry: Entry,
    sources: Sources,
    observed: Observed,
    moved: Mapping[SourceRef, bool],
    dialects: Sequence[Dialect],
) -> Entry | None:
    """What the pods may have been started for, when that is not what the source says now; None: nothing speaks for it.

    Either another program wrote down something else, or the source changed after the workload began to use it.
    """
    source = want.edge.source
    unknown = Entry(digest=UNKNOWN, use=entry.use)
    held = sources.get(source)
    if held is not None:
        verdicts = [known for dialect in dialects if (known := dialect.known(workload, want.edge, held)) is not None]
        if verdicts:
            return None if all(verdicts) else unknown
    first = observed.seen.get(source)
    if first is not None and (first.digest or want.edge.optional) and _changed(first, want, sources) is not None:
        return unknown
    if source in moved and entry.digest and (not moved[source] or want.edge.optional):
        return unknown
    return None


def _changed(before: Entry, want: Wanted, sources: Sources) -> tuple[str, ...] | None:
    """The keys that changed, compared as they were; whoever reads sources is told that they are compared so."""
    source = want.edge.source
    sources.compares(source, before.ways)
    held = sources.get(source)
    if held is not None and held.lacks(read_ways(before.ways)):
        return None  # nobody can tell yet: such a look is not acted on, and whoever shows it shows no change
    return changed_since(before, want, held)


def _expanded(
    applied: Applied, memory: Applied | None, wants: Sequence[Wanted], namespace: str, sources: Sources
) -> Applied:
    """A summarised state, as entries: those it is the sum of when they are still held in memory.

    Otherwise all as they are now when the sum is right, and all unknown when it is not. Of another set of sources it
    says nothing: one of them may have changed, and rather one restart too many than a change that is lost.
    """
    if memory is not None and memory.sources and total_of(memory.sources) == (applied.total, applied.ways):
        return replace(applied, sources=memory.sources, total=None, ways=())
    by_name = {want.edge.source.seen_from(namespace): want for want in wants}
    total = applied.total
    ways = total.ways_of(applied.ways, by_name) if total is not None and total.count == len(by_name) else {}
    entries, lacking = {}, False
    for name, want in by_name.items():
        sources.compares(want.edge.source, ways.get(name, ""))
        edge, held = replace(want.edge, ways=read_ways(ways.get(name, ""))), sources.get(want.edge.source)
        entries[name] = wanted(edge, held).entry or Entry()
        lacking = lacking or (held is not None and held.lacks(edge.ways))
    now, _ = total_of(entries)
    right = total is not None and (now.use, now.digest) == (total.use, total.digest)
    if not right and not lacking:
        entries = {
            name: Entry(digest=UNKNOWN if entry.digest else "", use=entry.use) for name, entry in entries.items()
        }
    return replace(applied, sources=entries, total=None, ways=())


def _observe(
    observed: Observed, pending: dict[SourceRef, str], seen: dict[SourceRef, Entry], applied: Applied, now: Moment
) -> Observed:
    known = observed if observed.pending else replace(observed, first=now.tick)
    last = known.last if pending and pending == known.pending else now.tick
    return replace(known, pending=pending, last=last, seen=seen, applied=applied)


def _wiped(observed: Observed, now: Moment) -> tuple[float, ...]:
    """The times of removals that still count, with one that is just found."""
    if len(observed.wiped) > TOLERATED_WIPES:  # nothing was written since that could have been removed
        return observed.wiped if now.tick < observed.wiped[-1] + WIPES_SECONDS else (now.tick,)
    return (*(at for at in observed.wiped if now.tick < at + WIPES_SECONDS), now.tick)


def _settled(
    compared: _Comparison, applied: Applied, found: Found, problems: tuple[str, ...], observed: Observed
) -> Plan:
    state = replace(applied, sources=compared.kept, total=None)
    if not _differs(state, found):
        reason = compared.missing or "everything it uses is applied"
        return Plan(action=Action.NOTHING, reason=reason, problems=problems, observed=observed)
    reason = "first sight" if found.applied is None else "what it uses, or how that is compared, has changed"
    return Plan(action=Action.SEED, reason=reason, state=state, problems=problems, observed=observed)


def _restarted(
    workload: Workload, compared: _Comparison, applied: Applied, budget: Budget, now: Moment, company: Company | None
) -> Applied:
    return Applied(
        sources=compared.target,
        restarts=_restarts(applied, budget, now),
        history=_history(workload, compared, applied, now, company),
    )


def _restarts(applied: Applied, budget: Budget, now: Moment) -> tuple[int, ...]:
    return (*applied.restarts, int(now.wall))[-max(REMEMBERED, budget.restarts) :]


def _history(
    workload: Workload, compared: _Comparison, applied: Applied, now: Moment, company: Company | None, done: str = ""
) -> tuple[Past, ...]:
    told = " ".join(change.seen_from(workload.namespace) for change in compared.changes)
    outcome = ("", None) if company is None else company.outcome(workload_id(workload), now)
    return next_history(applied.history, int(now.wall), told, outcome, done=done)


def _by_other_means(plan: Plan, policy: Policy, *, now: Moment) -> Plan:
    """The plan for a workload whose pods do not get their configuration by a rollout."""
    means = policy.means
    if means.off:
        reason = f"{ACTION}: {means.kind} is not switched on (configuration: reload.actions: [{means.kind}])"
        return replace(plan, action=Action.WAIT, gate="action", reason=reason, state=None)
    if means.kind == "evict" and plan.state is not None:  # a second later, when no new pod looks as old as the decision
        state = replace(plan.state, restarts=_restarts(plan.state, policy.budget, now), evict=int(now.wall) + 1)
        return replace(plan, action=Action.EVICT, state=state)
    return _called(plan, policy, now) if means.kind == "http" else plan


def _called(plan: Plan, policy: Policy, now: Moment) -> Plan:
    """A call, once kubelets have brought the change.

    While sources keep changing pods are called every now and then for what they have by then. Only a call that comes
    after the last change is the end of it: what a kubelet may still be bringing must not count as applied.
    """
    after, observed = policy.means.after, plan.observed
    due = policy.window.due(first=observed.first, last=observed.last, after=after)
    if now.tick < due:
        reason = f"kubelets bring a change within {format_duration(after)}"
        due = now.wall + due - now.tick
        return replace(plan, action=Action.WAIT, gate="window", reason=reason, due=due, state=None)
    if now.tick < observed.last + after.total_seconds():
        return replace(
            plan, action=Action.CALL, reason=f"{plan.reason}; more has changed since", state=None, due=now.wall
        )
    return replace(plan, action=Action.CALL)


def _differs(state: Applied, found: Found) -> bool:
    """Whether writing `state` would change the annotation; a state that says nothing is not written."""
    if found.applied is None:
        return bool(state.sources)
    return write_state(state) != write_state(found.applied)


def _digest_of(source: SourceRef, target: Mapping[str, Entry], workload: Workload) -> str:
    return target[source.seen_from(workload.namespace)].digest
