"""The answer to "why did it restart" and "why did it not", about one workload. Pure.

Made from the operator's own look: nothing here decides anything. Digests are shown short; values are never seen.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.errors import FormatError
from steersman.kube.durations import format_duration
from steersman.kube.times import format_time, parse_time
from steersman.operators.reload.changes import told_ways, wanted
from steersman.operators.reload.forecast import WorkloadName
from steersman.operators.reload.plan import APPLIED_BY, Action
from steersman.operators.reload.progress import Phase
from steersman.operators.reload.state import Past, read_state
from steersman.operators.reload.telling import REASONS, TROUBLES
from steersman.operators.reload.types import APPLIED, FREEZE, RESTARTED_AT, RESTARTED_FOR

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.operators.reload.dialect import Dialect
    from steersman.operators.reload.look import Look

__all__ = ["Answer", "EdgeAnswer", "HistoryEntry", "NotWatched", "Pending", "RestartRecord", "answer", "history_of"]

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


class Pending(msgspec.Struct, frozen=True, kw_only=True):
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


class HistoryEntry(RestartRecord, frozen=True, kw_only=True):
    """One restart, and of which workload."""

    workload: WorkloadName


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one workload."""

    workload: WorkloadName
    wave: int
    edges: tuple[EdgeAnswer, ...]
    not_watched: tuple[NotWatched, ...] = msgspec.field(name="notWatched")
    pending: Pending | None
    circuit: str  # closed, or open with the time it closes
    verdict: str  # what happens next, or the first rule that stands against a restart
    restarts: tuple[RestartRecord, ...]
    problems: tuple[str, ...]
    told: str = ""  # what the operator last said about a change that waits, and how long ago
    closed: tuple[str, ...] = ()  # what would hold a change back now: freezes and windows, and until when


def answer(
    look: Look,
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
    workload, plan = look.workload, look.plan
    found = read_state(workload.annotations.get(APPLIED))
    applied = found.applied.sources if found.applied else {}
    spoken = {claim.rule: dialect.name for dialect in dialects for claim in dialect.claims(workload, sources)}
    edges = []
    for edge in look.edges.tracked:
        entry = wanted(edge, sources.get(edge.source)).entry
        name = edge.source.seen_from(workload.namespace)
        edges.append(
            EdgeAnswer(
                source=name,
                keys=None if edge.keys is None else tuple(sorted(filter(edge.uses, edge.keys))),
                digest=entry.digest[:SHORT] if entry is not None else "",
                applied=applied[name].digest[:SHORT] if name in applied else None,
                dialects=tuple(dict.fromkeys(spoken.get(rule, "native") for rule in edge.rules)),
                rules=edge.rules,
                compared=told_ways(edge, sources.get(edge.source)),
            )
        )
    return Answer(
        workload=WorkloadName(type(workload).KIND.kind, workload.namespace, workload.name),
        wave=look.policy.wave,
        edges=tuple(edges),
        not_watched=tuple(
            NotWatched(one.source.seen_from(workload.namespace), one.rule) for one in look.edges.untracked
        ),
        pending=_pending(look),
        circuit=f"open until {format_time(plan.due)}" if plan.gate == "budget" and plan.due else "closed",
        verdict=_verdict(look),
        restarts=_restarts(look, found.applied.restarts if found.applied else (), events, status),
        problems=(*plan.problems, *dict.fromkeys(unseen)),
        told=_held(look, events, now),
        closed=tuple(_closed(look, now)) if now is not None else (),
    )


def history_of(look: Look, events: Iterable[Any], status: str = "") -> list[HistoryEntry]:
    """The restarts of one workload, the latest first, as far as it carries them itself."""
    workload, progress = look.workload, look.workload.facts.progress
    name = WorkloadName(type(workload).KIND.kind, workload.namespace, workload.name)
    if not status and progress.wanted:
        status = f"{progress.phase.value}: {progress}"
    found = read_state(workload.annotations.get(APPLIED)).applied
    return [
        HistoryEntry(workload=name, at=one.at, cause=one.cause, outcome=one.outcome)
        for one in _restarts(look, found.restarts if found else (), events, status)
    ]


def _pending(look: Look) -> Pending | None:
    plan = look.plan
    if not plan.changes:
        return None
    return Pending(
        sources=tuple(change.seen_from(look.workload.namespace) for change in plan.changes),
        gate=plan.gate or "none",
        reason=plan.reason,
        due=None if plan.due is None else format_time(plan.due),
    )


def _verdict(look: Look) -> str:
    plan = look.plan
    if plan.action is Action.WAIT:
        return f"a restart waits: {plan.reason}"
    if plan.changes:
        return "it is about to restart"
    if plan.action is Action.SEED:
        return f"no restart: {plan.reason}, so what it uses is only written down"
    return f"no restart: {plan.reason}"


def _closed(look: Look, now: float) -> Iterable[str]:
    """What would hold a change back now, and until when."""
    for where, freeze in look.policy.freezes:
        if freeze.holds(now):
            until = f"until {format_time(freeze.until)}" if freeze.until is not None else "until it is thawed"
            yield f"{FREEZE} on {where} {until}"
    opens = look.policy.timetable.opens(now)
    if opens is not None and opens > now:
        yield f"outside of its windows ({look.policy.timetable}) until {format_time(opens)}"


def _held(look: Look, events: Iterable[Any], now: float | None) -> str:
    """What the operator last said about a change that waits: it knows the other workloads, which are not read here."""
    applied = read_state(look.workload.annotations.get(APPLIED)).applied
    last = max(applied.restarts, default=0) if applied else 0
    ours = {*REASONS.values(), *TROUBLES}
    said = [(when, text) for when, reason, text in _told(events) if reason in ours and when >= last]
    if not said or not look.plan.changes:
        return ""
    when, text = max(said)
    if now is None:
        return text
    return f"{text} (said {format_duration(timedelta(seconds=max(0, int(now - when))))} ago)"


def _restarts(look: Look, times: Sequence[int], events: Iterable[Any], status: str) -> tuple[RestartRecord, ...]:
    told = sorted(_told(events))
    stamps = look.workload.facts.template_annotations
    stamped = _seconds(stamps.get(RESTARTED_AT, ""))
    applied = read_state(look.workload.annotations.get(APPLIED)).applied
    past = {one.at: one for one in (applied.history if applied else ())}
    every = sorted({*times, *past, *([int(stamped)] if stamped else [])}, reverse=True)
    found: list[RestartRecord] = []
    for place, at in enumerate(every):
        if found and abs(_seconds(found[-1].at) - at) <= 1:
            continue  # the stamp and the state of one restart may fall on two sides of a second
        last = place == 0
        known = past.get(at)
        stamped_for = last and (known is None or not known.outcome.startswith(APPLIED_BY))
        cause = stamps.get(RESTARTED_FOR, "") if stamped_for else ""
        cause = cause or (known.told if known is not None else "")
        until = every[place - 1] if place else float("inf")
        ended = [text for when, reason, text in told if reason in _OUTCOMES and at - 2 <= when < until]
        if not cause:
            cause = next((text for when, reason, text in told if reason == "Restarted" and abs(when - at) <= 2), "")
        found.append(
            RestartRecord(
                at=format_time(at),
                cause=cause.removeprefix("restarted for "),
                outcome=_with_recovery(_outcome(known) or (ended[-1] if ended else status if last else ""), look, last),
            )
        )
    return tuple(found)


def _with_recovery(outcome: str, look: Look, last: bool) -> str:
    """How a restart ended; of the last one, if it failed, also that its pods are well by now."""
    progress = look.workload.facts.progress
    failed = outcome.startswith("failed") or " failed: " in outcome
    if not (last and failed and progress.wanted and progress.phase is Phase.AVAILABLE):
        return outcome
    return f"{outcome}; recovered since: {progress}"


def _outcome(past: Past | None) -> str:
    if past is None or not past.outcome:
        return ""
    return past.outcome if past.seconds is None else f"{past.outcome} after {past.seconds} s"


_OUTCOMES = ("RolloutFinished", "RolloutComplete", "RolloutFailed", "RolloutAvailable", "RestartRefused")


def _told(events: Iterable[Any]) -> Iterable[tuple[float, str, str]]:
    for event in events:
        when = _seconds(event.get("lastTimestamp") or event.get("eventTime") or "")
        if when:
            yield when, str(event.get("reason", "")), str(event.get("message", ""))


def _seconds(text: str) -> float:
    try:
        return parse_time(text).timestamp()
    except FormatError:
        return 0.0
