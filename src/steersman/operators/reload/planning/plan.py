"""The plan: what to do about one workload now, and which rule says so. Pure.

    nothing    everything it uses is applied, or it is not enrolled
    seed       record what it uses, without a restart
    wait       something changed; a gate holds the restart back until `due`
    ask        something changed, and every other gate is open: ask the user's hook
    restart    something changed: new state and new pods, in one patch
    track      something changed, and the app reloads by itself: record what it uses now
    call       something changed: call each pod, then record it, unless more has changed in the meantime
    evict      something changed: record it with the time before which pods are old, then evict these
    forget     it is no longer enrolled: remove what we wrote

`gates` lists what can hold a restart back. A plan that waits may still carry state to write, for new edges: recording
them must not wait for a gate.

A plan is a value: commands, the page and tests all show the same one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from steersman.kube.api.times import format_time
from steersman.operators.reload.api.action import RESTART
from steersman.operators.reload.api.annotations import ACTION, APPLIED
from steersman.operators.reload.api.config import SourceKind, SourceRef, WorkloadId
from steersman.operators.reload.planning.diff import UNKNOWN, SourceChange, Wanted, changed_since, wanted
from steersman.operators.reload.planning.gates import Moment, Policy, RestartRequest, first_blocking_gate
from steersman.operators.reload.planning.state import (
    Applied,
    AppliedSource,
    Found,
    next_history,
    read_state,
    total_of,
    write_state,
)
from steersman.operators.reload.sources.compare import parse_compare_rules
from steersman.operators.reload.workloads.workload import workload_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.operators.reload.compat.dialect import Dialect
    from steersman.operators.reload.planning.edges import Edges
    from steersman.operators.reload.planning.hooks import HookRunner
    from steersman.operators.reload.planning.restart_order import RestartCoordinator
    from steersman.operators.reload.planning.snapshot import WorkloadSnapshot
    from steersman.operators.reload.sources.digest_keys import Keyring
    from steersman.operators.reload.workloads.workload import Workload

APPLIED_BY: Final = "applied"  # the outcome in a history of what has none: `applied: none`
REMEMBERED: Final = 20  # restarts, or as many as the budget has to count
TOLERATED_WIPES: Final = 5  # within WIPES_SECONDS; then we pause writing what another client removes
WIPES_SECONDS: Final = 3600.0
APPLIED_ALREADY: Final = "everything it uses is applied"
UNCOMPARABLE: Final = "unknown: the key of its digests cannot be read"
KEY_LOST: Final = "the key of its digests is gone, so the current content of its sources counts as applied"


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What this process remembers of one workload; a plan makes the next one of it."""

    uid: str = ""
    pending: dict[SourceRef, str] = {}  # the digests that wait to be applied
    first: float = 0.0  # when the first of them was seen, on the monotonic clock
    last: float = 0.0  # when one of them last changed
    seen: dict[SourceRef, AppliedSource] = {}  # new edges, until they are recorded in the state
    applied: Applied | None = None  # the last state read or written, in case another client removes the annotation
    unrecorded: bool = False  # `applied` is only here: there is no right to write it
    wiped: tuple[float, ...] = ()  # when another client removed our annotation since the last restart, monotonic
    refusals: int = 0  # how often the API server rejected the pending restart
    reported: tuple[str, ...] = ()  # messages of the Events that stand
    failures: tuple[str, ...] = ()  # messages of Events about calls or evictions that are not finished


class Notice(NamedTuple):
    """Something people should know about a workload: an Event, recorded once for as long as it stays the same."""

    reason: str
    message: str
    warning: bool = True


class Action(StrEnum):
    """What a plan does."""

    NOTHING = "nothing"
    SEED = "seed"
    WAIT = "wait"
    RESTART = "restart"
    FORGET = "forget"
    TRACK = "track"
    CALL = "call"
    ASK = "ask"
    EVICT = "evict"


APPLYING: Final = frozenset(
    {Action.RESTART, Action.TRACK, Action.CALL, Action.EVICT}
)  # after which the current content of the sources counts as applied


UNDER_WAY: Final = APPLYING - {Action.TRACK}  # followed by a rollout, for which other workloads may have to wait


class WorkloadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do about one workload."""

    action: Action
    reason: str  # the rule that says so
    changes: tuple[SourceChange, ...] = ()
    state: Applied | None = None  # to write now; none with FORGET and NOTHING
    gate: str = ""  # that holds the restart back, one of `gates.GATES`
    waits_for: WorkloadId | None = None  # the workload that goes first, where the gate names one
    due: float | None = None  # when to evaluate again, in seconds since the epoch; None: when something changes
    problems: tuple[str, ...] = ()
    observed: Observed = Observed()

    def remembered(self, *, written: bool, recorded: bool = True) -> Observed:
        """What to remember once it is applied; `written`: its state is on the workload now, or `recorded` nowhere."""
        observed = self.observed if recorded else replace(self.observed, unrecorded=True)
        if self.action in APPLYING:
            observed = replace(observed, pending={}, refusals=0, wiped=())
        if written and self.state is not None:
            observed = replace(observed, applied=self.state, seen={})
        return observed

    def remembered_in_shadow(self) -> Observed:
        """What to remember when nothing is ever written: as if the state had been written, and not removed."""
        return self.observed if self.state is None else replace(self.remembered(written=True), wiped=())

    def __str__(self) -> str:
        """`wait until 2026-11-15T10:00:05Z: window (5s quiet, at most 30s) for configmap/shop/app#mode`."""
        words = [self.action.value]
        if self.action is Action.WAIT:
            words.append("for a change" if self.due is None else f"until {format_time(self.due)}")
        text = f"{' '.join(words)}: {self.reason}"
        return f"{text} for {' '.join(change.seen_from('') for change in self.changes)}" if self.changes else text


class _Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Applied against wanted."""

    kept: dict[str, AppliedSource]  # the state without anything that changed
    target: dict[str, AppliedSource]  # the state after a restart
    changes: tuple[SourceChange, ...]
    seen: dict[SourceRef, AppliedSource]
    missing: str | None  # what a restart would fail for


def make_plan(
    snapshot: WorkloadSnapshot,
    policy: Policy,
    *,
    dialects: Sequence[Dialect] = (),
    coordinator: RestartCoordinator | None = None,
    hook: HookRunner | None = None,
) -> WorkloadPlan:
    """What to do about a workload.

    The state is written with the newest key of digests, and compared with the key it names.
    """
    workload, edges, observed, keys, now = (
        snapshot.workload,
        snapshot.edges,
        snapshot.observed,
        snapshot.keys,
        snapshot.now,
    )
    found = read_state(workload.annotations.get(APPLIED))
    if found.applied is None and observed.unrecorded:
        found = replace(found, applied=observed.applied)
    problems = edges.problems
    if not edges.tracked and not _withheld(workload, edges, found.applied):
        action = Action.FORGET if APPLIED in workload.annotations else Action.NOTHING
        fresh = Observed(uid=observed.uid, reported=observed.reported)
        return WorkloadPlan(action=action, reason=edges.reason, problems=problems, observed=fresh)
    left_alone, wrong = _uncomparable(found, keys)
    problems = (*problems, *(f"{APPLIED}: {problem}" for problem in wrong))
    if left_alone:
        return WorkloadPlan(action=Action.NOTHING, reason=left_alone, problems=problems, observed=observed)
    is_wiped = found.applied is None and observed.applied is not None and bool(observed.applied.sources)
    applied = found.applied or observed.applied or Applied()
    wants = [wanted(edge, snapshot.sources.get(edge.source), keys.newest) for edge in edges.tracked]
    is_summed = applied.total is not None
    if is_summed:
        applied = _expanded(applied, observed.applied, wants, snapshot)
    compared = _compare(wants, applied, snapshot, dialects)
    if withheld := _withheld(workload, edges, applied):
        compared = replace(compared, kept=compared.kept | withheld, target=compared.target | withheld)
    pending = {change.source: _digest_of(change.source, compared.target, workload) for change in compared.changes}
    observed = _observe(observed, pending, compared.seen, applied, snapshot)
    if is_wiped:
        observed = replace(observed, wiped=_wiped(observed, now))
    if not compared.changes:
        return _without_changes(compared, applied, found, problems, observed, snapshot)
    plan = WorkloadPlan(
        action=Action.WAIT, reason="sources changed", changes=compared.changes, problems=problems, observed=observed
    )
    blocked = first_blocking_gate(
        RestartRequest(
            workload=workload_id(workload),
            uid=workload.metadata.uid,
            policy=policy,
            changes=compared.changes,
            sources={change.source: snapshot.sources.get(change.source) for change in compared.changes},
            missing=compared.missing,
            restarts=applied.restarts,
            observed=observed,
            now=now,
            coordinator=coordinator,
            keys=keys,
            hook=hook,
        )
    )
    if blocked is not None:
        kept = replace(applied, sources=compared.kept, total=None)
        is_written = bool(compared.kept) and _differs(kept, found) and not is_summed
        return replace(
            plan,
            action=Action.ASK if blocked.unanswered else Action.WAIT,
            reason=blocked.reason,
            gate=blocked.gate,
            waits_for=blocked.waits_for,
            due=blocked.due,
            state=kept if is_written and not blocked.unanswered else None,
        )
    outcome = ("", None) if coordinator is None else coordinator.outcome(workload_id(workload), now)
    return _applying(plan, compared.target, applied, policy, now, outcome, workload.namespace)


def _applying(
    plan: WorkloadPlan,
    target: dict[str, AppliedSource],
    applied: Applied,
    policy: Policy,
    now: Moment,
    outcome: tuple[str, int | None],
    namespace: str,
) -> WorkloadPlan:
    """The plan once every gate is open; `outcome`: of the restart before this one."""
    action = policy.action
    cause = " ".join(change.seen_from(namespace) for change in plan.changes)
    done = "" if action.kind == RESTART.kind else f"{APPLIED_BY}: {action.kind}"
    history = next_history(applied.history, int(now.wall), cause, outcome, done=done)
    restarts = (*applied.restarts, int(now.wall))[-max(REMEMBERED, policy.budget.restarts) :]
    if action.kind == RESTART.kind:
        state = Applied(sources=target, restarts=restarts, history=history)
        return replace(plan, action=Action.RESTART, state=state)
    state = replace(applied, sources=target, total=None, history=history)
    plan = replace(plan, action=Action.TRACK, reason=f"{ACTION}: {action}", state=state)
    if action.kind == "evict":  # a second later, when no new pod looks as old as the decision
        return replace(plan, action=Action.EVICT, state=replace(state, restarts=restarts, evict=int(now.wall) + 1))
    if action.kind != "http":
        return plan
    if now.tick < plan.observed.last + action.after.total_seconds():
        # While sources keep changing, pods are called now and then for what they have by then. Only a call after the
        # last change completes it: what the kubelet may still be updating must not count as applied.
        reason = f"{plan.reason}; more has changed since"
        return replace(plan, action=Action.CALL, reason=reason, state=None, due=now.wall)
    return replace(plan, action=Action.CALL)


def _withheld(workload: Workload, edges: Edges, applied: Applied | None) -> dict[str, AppliedSource]:
    """The entries of sources that were granted once: if they are granted again, they are compared with these."""
    names = (source.seen_from(workload.namespace) for source in edges.withheld)
    return {name: applied.sources[name] for name in names if applied is not None and name in applied.sources}


def _compare(
    wants: Sequence[Wanted], applied: Applied, snapshot: WorkloadSnapshot, dialects: Sequence[Dialect]
) -> _Comparison:
    keyring, namespace = snapshot.keys, snapshot.workload.namespace
    kept: dict[str, AppliedSource] = {}
    target: dict[str, AppliedSource] = {}
    changes: list[SourceChange] = []
    seen: dict[SourceRef, AppliedSource] = {}
    missing: list[str] = []
    for want in wants:
        source = want.edge.source
        name = source.seen_from(namespace)
        before = applied.sources.get(name)
        if before is not None and not before.digest and not (want.edge.optional and snapshot.reload_on_create):
            before = None  # earlier pods ran without it; those of the present template need it, or it does not count
        if before is not None and before.digest and _is_deletion(want, snapshot):
            kept[name], target[name] = before, AppliedSource(use=before.use)
            changes.append(SourceChange(source))
            continue
        if name not in applied.sources and source in snapshot.deleted and _is_deletion(want, snapshot):
            target[name] = AppliedSource()  # it was deleted before it was recorded
            changes.append(SourceChange(source))
            continue
        if want.missing:
            missing.append(f"pods need {name} to start, but {want.missing}")
        if want.entry is None or (before is not None and not want.entry.digest):
            if before is not None:  # deleted for now: once back, it is compared with what the pods were started for
                kept[name] = target[name] = before
            continue
        if before is not None and keyring.unreadable and keyring.find(before.key) is None:
            kept[name] = target[name] = before  # unknown: it can be compared when its key can be read
            continue
        target[name] = want.entry
        if before is None:
            before = _started_for(want, want.entry, snapshot, dialects)
            seen[source] = snapshot.observed.seen.get(source, want.entry)
            if before is None:
                kept[name] = want.entry
                continue
        keys = _changed(before, want, snapshot)
        if keys is None or source in snapshot.settled:
            kept[name] = want.entry
        else:
            kept[name] = before
            changes.append(SourceChange(source, keys))
    return _Comparison(
        kept=kept, target=target, changes=tuple(sorted(changes)), seen=seen, missing="; ".join(missing) or None
    )


def _is_deletion(want: Wanted, snapshot: WorkloadSnapshot) -> bool:
    """Whether a source is gone and that is a change. A provider class without a mounted pod says nothing."""
    ref = want.edge.source
    is_gone = ref not in snapshot.sources and ref.kind is not SourceKind.PROVIDER_CLASS
    return is_gone and snapshot.reload_on_delete


def _started_for(
    want: Wanted, entry: AppliedSource, snapshot: WorkloadSnapshot, dialects: Sequence[Dialect]
) -> AppliedSource | None:
    """What the pods may have been started for, when that is not the source's current content; None: no sign of it.

    Either another program recorded something else, or the source changed after the workload began to use it.
    """
    ref = want.edge.source
    unknown = AppliedSource(digest=UNKNOWN, use=entry.use)
    source = snapshot.sources.get(ref)
    if source is not None:
        known = (dialect.known(snapshot.workload, want.edge, source) for dialect in dialects)
        if verdicts := [verdict for verdict in known if verdict is not None]:
            return None if all(verdicts) else unknown
    first = snapshot.observed.seen.get(ref)
    appears = want.edge.optional and snapshot.reload_on_create  # whether its appearance is a change
    if first is not None and (first.digest or appears) and _changed(first, want, snapshot) is not None:
        return unknown
    moved = snapshot.moved
    if ref in moved and entry.digest and (not moved[ref] or appears):
        return unknown
    return None


def _uncomparable(found: Found, keys: Keyring) -> tuple[str, list[str]]:
    """Why nothing at all is concluded from a state, if so; and what is wrong with it."""
    problems = [found.problem] if found.problem else []
    unknown = unknown_keys(found.applied, keys) if keys.unreadable else []
    if unknown:
        unclear = f"whether its sources have changed is unknown: its digests need key {unknown[0]}"
        problems.append(f"{unclear}, and {keys.unreadable}")
    if found.newer:
        return f"{APPLIED} was written by a later version", problems
    summed = found.applied is not None and found.applied.total is not None
    return UNCOMPARABLE if unknown and summed else "", problems


def unknown_keys(applied: Applied | None, keys: Keyring) -> list[str]:
    """The identifiers of keys that a state names and that are not here."""
    return sorted(name for name in (applied or Applied()).key_names() if keys.find(name) is None)


def _changed(before: AppliedSource, want: Wanted, snapshot: WorkloadSnapshot) -> tuple[str, ...] | None:
    """The keys that changed, compared by the rules and with the key that were recorded; None: none did."""
    source = snapshot.sources.get(want.edge.source)
    if source is not None and source.lacks(parse_compare_rules(before.compare_rules)):
        return None  # unknown: an incomplete snapshot is not acted on, and shows no change
    key = snapshot.keys.find(before.key)
    if key is None:
        return None  # its key is gone, and with it what could be compared: never a reason to restart
    return changed_since(before, want, source, key)


def _expanded(applied: Applied, memory: Applied | None, wants: Sequence[Wanted], snapshot: WorkloadSnapshot) -> Applied:
    """A summarised state, as entries: those it is the sum of when they are still in memory.

    Otherwise all as they are now when the sum matches or its key is gone, and all unknown when it does not match. About
    another set of sources it says nothing: one of them may have changed, and one restart too many is better than a
    lost change.
    """
    if memory is not None and memory.sources and total_of(memory.sources) == (applied.total, applied.compare_rules):
        return replace(applied, sources=memory.sources, total=None, compare_rules=())
    keys, total = snapshot.keys, applied.total
    by_name = {want.edge.source.seen_from(snapshot.workload.namespace): want for want in wants}
    rules: dict[str, str] = {}
    if total is not None and total.count == len(by_name):
        rules = total.compare_rules_by_source(applied.compare_rules, by_name)
    key = keys.find(total.key if total is not None else "")
    entries, is_lacking = {}, False
    for name, want in by_name.items():
        edge = replace(want.edge, compare_rules=parse_compare_rules(rules.get(name, "")))
        source = snapshot.sources.get(edge.source)
        entries[name] = wanted(edge, source, key or keys.newest).entry or AppliedSource()
        is_lacking = is_lacking or (source is not None and source.lacks(edge.compare_rules))
    now, _ = total_of(entries)
    matches = total is not None and (now.use, now.digest) == (total.use, total.digest)
    if not matches and not is_lacking and key is not None:
        entries = {
            name: AppliedSource(digest=UNKNOWN if entry.digest else "", use=entry.use)
            for name, entry in entries.items()
        }
    return replace(applied, sources=entries, total=None, compare_rules=())


def _observe(
    observed: Observed,
    pending: dict[SourceRef, str],
    seen: dict[SourceRef, AppliedSource],
    applied: Applied,
    snapshot: WorkloadSnapshot,
) -> Observed:
    """What to remember of pending changes; they may be older than this evaluation, where one stands for many."""
    tick, before = snapshot.now.tick, observed.pending
    first, last = observed.first, observed.last
    if not before:
        first = last = tick
    for source in before.keys() | pending.keys() if before else ():
        last = max(last, snapshot.changed_at.get(source, last if before.get(source) == pending.get(source) else tick))
    return replace(observed, first=first, pending=pending, last=last, seen=seen, applied=applied)


def _wiped(observed: Observed, now: Moment) -> tuple[float, ...]:
    """The times of removals that still count, and of the one just found."""
    if len(observed.wiped) > TOLERATED_WIPES:  # nothing was written since that could have been removed
        return observed.wiped if now.tick < observed.wiped[-1] + WIPES_SECONDS else (now.tick,)
    return (*(at for at in observed.wiped if now.tick < at + WIPES_SECONDS), now.tick)


def _without_changes(
    compared: _Comparison,
    applied: Applied,
    found: Found,
    problems: tuple[str, ...],
    observed: Observed,
    snapshot: WorkloadSnapshot,
) -> WorkloadPlan:
    keys, now = snapshot.keys, snapshot.now
    plan = WorkloadPlan(action=Action.NOTHING, reason=APPLIED_ALREADY, problems=problems, observed=observed)
    if len(observed.wiped) > TOLERATED_WIPES:
        removed = f"{APPLIED}: another client keeps removing our annotation; next write in 1 h, or at a restart"
        due = now.wall + observed.wiped[-1] + WIPES_SECONDS - now.tick
        return replace(plan, reason="another client removes our state", due=due, problems=(*problems, removed))
    has_unknown_keys = bool(unknown_keys(found.applied, keys))
    state = replace(applied, sources=compared.kept, total=None)
    if not _differs(state, found):
        is_unknown = bool(keys.unreadable) and has_unknown_keys
        return replace(plan, reason=UNCOMPARABLE if is_unknown else compared.missing or APPLIED_ALREADY)
    reason = "first evaluation" if found.applied is None else "what it uses, or how that is compared, has changed"
    if has_unknown_keys and not keys.unreadable:
        reason = KEY_LOST
    return replace(plan, action=Action.SEED, reason=reason, state=state)


def _differs(state: Applied, found: Found) -> bool:
    """Whether writing `state` would change the annotation; a state that says nothing is not written."""
    if found.applied is None:
        return bool(state.sources)
    return write_state(state) != write_state(found.applied)


def _digest_of(source: SourceRef, target: Mapping[str, AppliedSource], workload: Workload) -> str:
    return target[source.seen_from(workload.namespace)].digest
