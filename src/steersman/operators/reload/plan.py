"""The plan: what to do about one workload now, and which rule says so. Pure.

    nothing    everything it uses is applied, or it does not take part
    seed       write down what it uses, without a restart
    wait       something changed; a gate holds the restart back until `due`
    restart    something changed: new state and new pods, in one patch
    track      something changed, and the app reloads by itself: write down what it uses now
    call       something changed: call each pod, then write it down
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
from steersman.operators.reload.changes import Change, Wanted, changed_keys, wanted
from steersman.operators.reload.gates import Moment, Policy, first_closed
from steersman.operators.reload.ledger import Observed
from steersman.operators.reload.means import RESTART, Means
from steersman.operators.reload.state import Applied, Entry, Found, next_history, read_state, total_of, write_state
from steersman.operators.reload.types import ACTION, APPLIED, SourceRef
from steersman.operators.reload.workloads import workload_id

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from steersman.operators.reload.dialect import Dialect
    from steersman.operators.reload.edges import Edges, Sources
    from steersman.operators.reload.gates import Company
    from steersman.operators.reload.workloads import Workload

UNKNOWN: Final = "?"  # a digest that no source has: the pods may have been started for something else
TOLERATED_WIPES: Final = 5  # after which we stop to write what somebody else removes

__all__ = ["APPLYING", "Action", "Moment", "Plan", "Policy", "make_plan"]


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


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do about one workload."""

    action: Action
    reason: str  # the rule that says so
    changes: tuple[Change, ...] = ()
    state: Applied | None = None  # to write now; with FORGET and NOTHING there is none
    gate: str = ""  # what holds a restart back, one of `gates.GATES`
    due: float | None = None  # when to look again, in seconds since the epoch; None: when something changes
    problems: tuple[str, ...] = ()
    observed: Observed = Observed()

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
    seen: dict[SourceRef, str]
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
    if not edges.tracked:
        action = Action.NOTHING if text is None else Action.FORGET
        return Plan(action=action, reason=edges.reason, problems=problems, observed=Observed(uid=observed.uid))
    found = read_state(text)
    if found.problem:
        problems = (*problems, f"{APPLIED}: {found.problem}")
    if found.newer:
        reason = f"{APPLIED} is of a later version"
        return Plan(action=Action.NOTHING, reason=reason, problems=problems, observed=observed)
    wiped = found.applied is None and observed.applied is not None and bool(observed.applied.sources)
    applied = found.applied or observed.applied or Applied()
    wants = [wanted(edge, sources.get(edge.source)) for edge in edges.tracked]
    compared = _compare(workload, wants, applied, sources, observed, moved or {}, settled, dialects)
    pending = {change.source: _digest_of(change.source, compared.target, workload) for change in compared.changes}
    observed = _observe(observed, pending, compared.seen, applied, now)
    if wiped:
        observed = replace(observed, wiped=observed.wiped + 1)
    if not compared.changes:
        if observed.wiped > TOLERATED_WIPES:
            problems = (*problems, f"{APPLIED}: somebody keeps removing it; it is not written again until a restart")
            return Plan(
                action=Action.NOTHING, reason="somebody removes our state", problems=problems, observed=observed
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
            due=closed.due,
            state=kept if compared.kept and _differs(kept, found) and applied.total is None else None,
            problems=problems,
            observed=observed,
        )
    if policy.means.kind != RESTART.kind:
        return _by_other_means(
            Plan(
                action=Action.TRACK,
                reason=f"{ACTION}: {policy.means}",
                changes=compared.changes,
                state=replace(applied, sources=compared.target, total=None),
                problems=problems,
                observed=observed,
            ),
            policy.means,
            restarted=_restarted(workload, compared, applied, now, company),
            now=now,
        )
    return Plan(
        action=Action.RESTART,
        reason="sources changed",
        changes=compared.changes,
        state=_restarted(workload, compared, applied, now, company),
        problems=problems,
        observed=observed,
    )


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
    seen: dict[SourceRef, str] = {}
    missing: list[str] = []
    if applied.total is not None:
        applied = _expanded(applied, wants, workload.namespace)
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
            seen[source] = observed.seen.get(source, want.entry.digest)
            if before is None:
                kept[name] = want.entry
                continue
        keys = changed_keys(before, want.entry, want.plain)
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
    if first is not None and first != entry.digest and (first or want.edge.optional):
        return unknown
    if source in moved and entry.digest and (not moved[source] or want.edge.optional):
        return unknown
    return None


def _expanded(applied: Applied, wants: Sequence[Wanted], namespace: str) -> Applied:
    """A summarised state, as entries: all as they are now when the sum is right, all unknown when it is not.

    When the set of sources is another one the sum says nothing, and all of them count as new.
    """
    entries = {want.edge.source.seen_from(namespace): want.entry or Entry() for want in wants}
    now = total_of(entries)
    if applied.total is None or now.use != applied.total.use:
        return replace(applied, total=None)
    if now.digest == applied.total.digest:
        return replace(applied, sources=entries, total=None)
    unknown = {name: Entry(digest=UNKNOWN, use=entry.use) for name, entry in entries.items()}
    return replace(applied, sources=unknown, total=None)


def _observe(
    observed: Observed, pending: dict[SourceRef, str], seen: dict[SourceRef, str], applied: Applied, now: Moment
) -> Observed:
    known = observed if observed.pending else replace(observed, first=now.tick)
    last = known.last if pending and pending == known.pending else now.tick
    return replace(known, pending=pending, last=last, seen=seen, applied=applied)


def _settled(
    compared: _Comparison, applied: Applied, found: Found, problems: tuple[str, ...], observed: Observed
) -> Plan:
    state = replace(applied, sources=compared.kept, total=None)
    if not _differs(state, found):
        reason = compared.missing or "everything it uses is applied"
        return Plan(action=Action.NOTHING, reason=reason, problems=problems, observed=observed)
    reason = "first sight" if found.applied is None else "what it uses has changed"
    return Plan(action=Action.SEED, reason=reason, state=state, problems=problems, observed=observed)


def _restarted(
    workload: Workload, compared: _Comparison, applied: Applied, now: Moment, company: Company | None
) -> Applied:
    told = " ".join(change.seen_from(workload.namespace) for change in compared.changes)
    outcome = ("", None) if company is None else company.outcome(workload_id(workload), now)
    return Applied(
        sources=compared.target,
        restarts=(*applied.restarts, int(now.wall)),
        history=next_history(applied.history, int(now.wall), told, outcome),
    )


def _by_other_means(plan: Plan, means: Means, *, restarted: Applied, now: Moment) -> Plan:
    """The plan for a workload whose pods do not get their configuration by a rollout."""
    if means.off:
        reason = f"{ACTION}: {means.kind} is not switched on (configuration: reload.actions: [{means.kind}])"
        return replace(plan, action=Action.WAIT, gate="action", reason=reason, state=None)
    if means.kind == "evict":  # a second later, when no new pod can look as old as the decision
        return replace(plan, action=Action.EVICT, state=replace(restarted, evict=int(now.wall) + 1))
    if means.kind == "http":
        due = plan.observed.last + means.after.total_seconds() - now.tick
        if due > 0:
            reason = f"kubelets bring a change within {format_duration(means.after)}"
            return replace(plan, action=Action.WAIT, gate="window", reason=reason, due=now.wall + due, state=None)
        return replace(plan, action=Action.CALL)
    return plan


def _differs(state: Applied, found: Found) -> bool:
    """Whether writing `state` would change the annotation; a state that says nothing is not written."""
    if found.applied is None:
        return bool(state.sources)
    return write_state(state) != write_state(found.applied)


def _digest_of(source: SourceRef, target: Mapping[str, Entry], workload: Workload) -> str:
    return target[source.seen_from(workload.namespace)].digest
