"""Explains one workload: why it restarted, why it did not, and what it waits for. Pure.

Built from the operator's own evaluation: nothing here decides anything. Digests are shortened; values are never shown.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.errors import FormatError
from steersman.kube.api.durations import format_duration
from steersman.kube.api.times import format_time, parse_time
from steersman.operators.reload.api.annotations import APPLIED, FREEZE, RESTARTED_AT, RESTARTED_FOR
from steersman.operators.reload.controllers.report import FAILURES, REASONS
from steersman.operators.reload.planning.diff import describe_compare_rules, wanted
from steersman.operators.reload.planning.plan import APPLIED_BY, UNCOMPARABLE, Action
from steersman.operators.reload.planning.state import Past, read_state
from steersman.operators.reload.workloads.rollout_status import Phase
from steersman.operators.reload.workloads.workload import WorkloadName

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.operators.reload.compat.dialect import Dialect
    from steersman.operators.reload.planning.evaluate import Evaluation

UNKNOWN = "unknown"  # what cannot be compared, since its key cannot be read
SHORT = 12  # characters of a digest that people can compare


class EdgeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One source that it restarts for."""

    source: str
    keys: tuple[str, ...] | None  # None: every key
    digest: str  # what the source says now
    applied: str | None  # what the pods were started for; None: not written down yet
    dialects: tuple[str, ...]
    rules: tuple[str, ...]
    compared: tuple[str, ...] = ()  # how its keys are compared, and who says so, where not byte by byte


class NotWatched(msgspec.Struct, frozen=True):
    """One source that it uses and does not restart for."""

    source: str
    rule: str


class PendingAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A restart that waits."""

    sources: tuple[str, ...]
    gate: str
    reason: str
    due: str | None


class RestartRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One restart: when, for what, and how it ended, as far as the cluster still knows."""

    at: str
    cause: str = ""
    outcome: str = ""


class WorkloadRestartRecord(RestartRecord, frozen=True, kw_only=True):
    """One restart, and of which workload."""

    workload: WorkloadName


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one workload."""

    workload: WorkloadName
    wave: int
    edges: tuple[EdgeAnswer, ...]
    not_watched: tuple[NotWatched, ...] = msgspec.field(name="notWatched")
    pending: PendingAnswer | None
    circuit: str  # closed, or open with the time it closes
    verdict: str  # what happens next, or the first rule that prevents a restart
    restarts: tuple[RestartRecord, ...]
    problems: tuple[str, ...]
    reported: str = msgspec.field(default="", name="told")  # what the operator last reported, and how long ago
    closed: tuple[str, ...] = ()  # what would hold a change back now: freezes and windows, and until when


def answer(
    evaluation: Evaluation,
    dialects: Sequence[Dialect],
    sources: Any,
    *,
    events: Iterable[Any] = (),
    status: str = "",
    unseen: Iterable[str] = (),
    now: float | None = None,
) -> Answer:
    """What there is to say; `events` are those of the workload, `status` says how its pods are doing now.

    `unseen`: what could not be seen that may hold it back, and why.
    """
    workload, plan = evaluation.workload, evaluation.plan
    found = read_state(workload.annotations.get(APPLIED))
    applied = found.applied.sources if found.applied else {}
    dialect_of = {claim.rule: dialect.name for dialect in dialects for claim in dialect.claims(workload, sources)}
    edges = []
    for edge in evaluation.edges.tracked:
        name = edge.source.seen_from(workload.namespace)
        key = evaluation.keys.find(applied[name].key) if name in applied else evaluation.keys.newest
        entry = wanted(edge, sources.get(edge.source), key or evaluation.keys.newest).entry
        edges.append(
            EdgeAnswer(
                source=name,
                keys=None if edge.keys is None else tuple(sorted(filter(edge.uses, edge.keys))),
                digest=UNKNOWN if key is None else entry.digest[:SHORT] if entry is not None else "",
                applied=applied[name].digest[:SHORT] if name in applied else None,
                dialects=tuple(dict.fromkeys(dialect_of.get(rule, "native") for rule in edge.rules)),
                rules=edge.rules,
                compared=describe_compare_rules(edge, sources.get(edge.source)),
            )
        )
    return Answer(
        workload=WorkloadName(type(workload).KIND.kind, workload.namespace, workload.name),
        wave=evaluation.policy.wave,
        edges=tuple(edges),
        not_watched=tuple(
            NotWatched(source.source.seen_from(workload.namespace), source.rule)
            for source in evaluation.edges.untracked
        ),
        pending=_pending(evaluation),
        circuit=f"open until {format_time(plan.due)}" if plan.gate == "budget" and plan.due else "closed",
        verdict=_verdict(evaluation),
        restarts=_restarts(evaluation, found.applied.restarts if found.applied else (), events, status),
        problems=(*plan.problems, *dict.fromkeys(unseen)),
        reported=_last_report(evaluation, events, now),
        closed=tuple(_closed(evaluation, now)) if now is not None else (),
    )


def history_of(evaluation: Evaluation, events: Iterable[Any], status: str = "") -> list[WorkloadRestartRecord]:
    """The restarts of one workload, the latest first, as far as it carries them itself."""
    workload, progress = evaluation.workload, evaluation.workload.facts.progress
    name = WorkloadName(type(workload).KIND.kind, workload.namespace, workload.name)
    if not status and progress.wanted:
        status = f"{progress.phase.value}: {progress}"
    found = read_state(workload.annotations.get(APPLIED)).applied
    return [
        WorkloadRestartRecord(workload=name, at=restart.at, cause=restart.cause, outcome=restart.outcome)
        for restart in _restarts(evaluation, found.restarts if found else (), events, status)
    ]


def _pending(evaluation: Evaluation) -> PendingAnswer | None:
    plan = evaluation.plan
    if not plan.changes:
        return None
    return PendingAnswer(
        sources=tuple(change.seen_from(evaluation.workload.namespace) for change in plan.changes),
        gate=plan.gate or "none",
        reason=plan.reason,
        due=None if plan.due is None else format_time(plan.due),
    )


def _verdict(evaluation: Evaluation) -> str:
    plan = evaluation.plan
    if plan.reason == UNCOMPARABLE:
        return plan.reason
    if plan.action is Action.WAIT:
        return f"restart pending: {plan.reason}"
    if plan.changes:
        return "about to restart"
    if plan.action is Action.SEED:
        return f"no restart: {plan.reason}, so its sources are only recorded"
    return f"no restart: {plan.reason}"


def _closed(evaluation: Evaluation, now: float) -> Iterable[str]:
    """What would hold a change back now, and until when."""
    for where, freeze in evaluation.policy.freezes:
        if freeze.holds(now):
            until = f"until {format_time(freeze.until)}" if freeze.until is not None else "until it is removed"
            yield f"{FREEZE} on {where} {until}"
    opens = evaluation.policy.maintenance_windows.opens(now)
    if opens is not None and opens > now:
        yield f"outside of its windows ({evaluation.policy.maintenance_windows}) until {format_time(opens)}"


def _last_report(evaluation: Evaluation, events: Iterable[Any], now: float | None) -> str:
    """What the operator last said about a change that waits: it knows the other workloads, which are not read here."""
    applied = read_state(evaluation.workload.annotations.get(APPLIED)).applied
    last = max(applied.restarts, default=0) if applied else 0
    ours = {*REASONS.values(), *FAILURES}
    said = [(when, text) for when, reason, text in _reported(events) if reason in ours and when >= last]
    if not said or not evaluation.plan.changes:
        return ""
    when, text = max(said)
    if now is None:
        return text
    return f"{text} (reported {format_duration(timedelta(seconds=max(0, int(now - when))))} ago)"


def _restarts(
    evaluation: Evaluation, times: Sequence[int], events: Iterable[Any], status: str
) -> tuple[RestartRecord, ...]:
    reported = sorted(_reported(events))
    stamps = evaluation.workload.facts.template_annotations
    stamped = _seconds(stamps.get(RESTARTED_AT, ""))
    applied = read_state(evaluation.workload.annotations.get(APPLIED)).applied
    past = {past.at: past for past in (applied.history if applied else ())}
    every = sorted({*times, *past, *([int(stamped)] if stamped else [])}, reverse=True)
    found: list[RestartRecord] = []
    for place, at in enumerate(every):
        if found and abs(_seconds(found[-1].at) - at) <= 1:
            continue  # the stamp and the state of one restart may fall on two sides of a second
        last = place == 0
        known = past.get(at)
        stamped_for = last and (known is None or not known.outcome.startswith(APPLIED_BY))
        cause = stamps.get(RESTARTED_FOR, "") if stamped_for else ""
        cause = cause or (known.cause if known is not None else "")
        until = every[place - 1] if place else float("inf")
        ended = [text for when, reason, text in reported if reason in _OUTCOMES and at - 2 <= when < until]
        if not cause:
            cause = next((text for when, reason, text in reported if reason == "Restarted" and abs(when - at) <= 2), "")
        found.append(
            RestartRecord(
                at=format_time(at),
                cause=cause.removeprefix("restarted for "),
                outcome=_with_recovery(
                    _outcome(known) or (ended[-1] if ended else status if last else ""), evaluation, last
                ),
            )
        )
    return tuple(found)


def _with_recovery(outcome: str, evaluation: Evaluation, last: bool) -> str:
    """How a restart ended; of the last one, if it failed, also that its pods are well by now."""
    progress = evaluation.workload.facts.progress
    failed = outcome.startswith("failed") or " failed: " in outcome
    if not (last and failed and progress.wanted and progress.phase is Phase.AVAILABLE):
        return outcome
    return f"{outcome}; recovered since: {progress}"


def _outcome(past: Past | None) -> str:
    if past is None or not past.outcome:
        return ""
    return past.outcome if past.seconds is None else f"{past.outcome} after {past.seconds} s"


_OUTCOMES = ("RolloutFinished", "RolloutComplete", "RolloutFailed", "RolloutAvailable", "RestartRefused")


def _reported(events: Iterable[Any]) -> Iterable[tuple[float, str, str]]:
    for event in events:
        when = _seconds(event.get("lastTimestamp") or event.get("eventTime") or "")
        if when:
            yield when, str(event.get("reason", "")), str(event.get("message", ""))


def _seconds(text: str) -> float:
    try:
        return parse_time(text).timestamp()
    except FormatError:
        return 0.0
