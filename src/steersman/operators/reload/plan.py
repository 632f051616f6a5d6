"""The plan: what to do about one workload now, and which rule says so. Pure.

    nothing    everything it uses is applied, or it does not take part
    seed       write down what it uses, without a restart
    wait       something changed; a gate holds the restart back until `due`
    restart    something changed: new state and new pods, in one patch
    forget     it no longer takes part: remove what we wrote about it

Gates, in this order: a source that pods cannot start without is missing; a freeze; the budget; the window. A plan that
waits may still carry state to write, for edges that are new: their first sight must not wait for others.

A plan is a value: commands, the page and tests all show the same one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from steersman.kube.times import format_time
from steersman.operators.reload.changes import Change, Wanted, changed_keys, wanted
from steersman.operators.reload.ledger import Observed
from steersman.operators.reload.settings import Settings
from steersman.operators.reload.state import Applied, Entry, Found, read_state, total_of, write_state
from steersman.operators.reload.types import APPLIED, FREEZE, Budget, SourceRef, Window

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from steersman.operators.reload.dialect import Dialect
    from steersman.operators.reload.edges import Edges, Sources
    from steersman.operators.reload.workloads import Workload

UNKNOWN: Final = "?"  # a digest that no source has: the pods may have been started for something else
TOLERATED_WIPES: Final = 5  # after which we stop to write what somebody else removes

__all__ = ["Action", "Moment", "Plan", "Policy", "make_plan"]


class Action(StrEnum):
    """What a plan does."""

    NOTHING = "nothing"
    SEED = "seed"
    WAIT = "wait"
    RESTART = "restart"
    FORGET = "forget"


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """Now, on both clocks."""

    wall: float  # seconds since the epoch: budgets and freezes
    tick: float  # on the monotonic clock: windows


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for one workload, after the workload, its namespace and the configuration have spoken."""

    window: Window = Window()
    budget: Budget = Budget()
    namespace: Settings = Settings()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do about one workload."""

    action: Action
    reason: str  # the rule that says so
    changes: tuple[Change, ...] = ()
    state: Applied | None = None  # to write now; with FORGET and NOTHING there is none
    gate: str = ""  # what holds a restart back: missing, freeze, budget, window
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
    gate, reason, due = _gate(workload, sources, compared, applied, policy, observed, now)
    if gate:
        kept = Applied(sources=compared.kept, restarts=applied.restarts)
        return Plan(
            action=Action.WAIT,
            reason=reason,
            changes=compared.changes,
            gate=gate,
            due=due,
            state=kept if compared.kept and _differs(kept, found) and applied.total is None else None,
            problems=problems,
            observed=observed,
        )
    return Plan(
        action=Action.RESTART,
        reason="sources changed",
        changes=compared.changes,
        state=Applied(sources=compared.target, restarts=(*applied.restarts, int(now.wall))),
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
        keys = changed_keys(before, want.entry)
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
        return Applied(sources=entries, restarts=applied.restarts)
    unknown = {name: Entry(digest=UNKNOWN, use=entry.use) for name, entry in entries.items()}
    return Applied(sources=unknown, restarts=applied.restarts)


def _observe(
    observed: Observed, pending: dict[SourceRef, str], seen: dict[SourceRef, str], applied: Applied, now: Moment
) -> Observed:
    known = observed if observed.pending else replace(observed, first=now.tick)
    last = known.last if pending and pending == known.pending else now.tick
    return replace(known, pending=pending, last=last, seen=seen, applied=applied)


def _settled(
    compared: _Comparison, applied: Applied, found: Found, problems: tuple[str, ...], observed: Observed
) -> Plan:
    state = Applied(sources=compared.kept, restarts=applied.restarts)
    if not _differs(state, found):
        reason = compared.missing or "everything it uses is applied"
        return Plan(action=Action.NOTHING, reason=reason, problems=problems, observed=observed)
    reason = "first sight" if found.applied is None else "what it uses has changed"
    return Plan(action=Action.SEED, reason=reason, state=state, problems=problems, observed=observed)


def _differs(state: Applied, found: Found) -> bool:
    """Whether writing `state` would change the annotation; a state that says nothing is not written."""
    if found.applied is None:
        return bool(state.sources)
    return write_state(state) != write_state(found.applied)


def _gate(
    workload: Workload,
    sources: Sources,
    compared: _Comparison,
    applied: Applied,
    policy: Policy,
    observed: Observed,
    now: Moment,
) -> tuple[str, str, float | None]:
    """The first gate that is closed: its name, its reason, and when it opens."""
    if compared.missing:
        return "missing", compared.missing, None
    held = {change.source: sources.get(change.source) for change in compared.changes}
    freezes = [("the workload", workload.facts.settings.freeze), ("the namespace", policy.namespace.freeze)]
    freezes += [(ref.seen_from(workload.namespace), one.settings.freeze) for ref, one in held.items() if one]
    for where, freeze in freezes:
        if freeze is not None and freeze.holds(now.wall):
            return "freeze", f"{FREEZE} on {where}", freeze.until
    due = _affordable(applied.restarts, policy.budget, now.wall)
    if due is not None:
        return "budget", f"budget used up ({policy.budget})", due
    if not any(one is not None and one.settings.urgent for one in held.values()):
        tick = policy.window.due(first=observed.first, last=observed.last)
        if tick > now.tick:
            return "window", f"window ({policy.window})", now.wall + tick - now.tick
    return "", "", None


def _affordable(restarts: Collection[int], budget: Budget, now: float) -> float | None:
    """When the next restart is within the budget; None: now."""
    per = budget.per.total_seconds()
    recent = sorted(at for at in restarts if now - per < at <= now)
    if not budget.restarts or len(recent) < budget.restarts:
        return None
    return recent[-budget.restarts] + per


def _digest_of(source: SourceRef, target: Mapping[str, Entry], workload: Workload) -> str:
    return target[source.seen_from(workload.namespace)].digest
