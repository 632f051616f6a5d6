"""The view as tables, for the status page and `steersman status`. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from steersman.kube.times import format_time
from steersman.runtime.parts import Row, State, Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.operators.reload.changes import Change
    from steersman.operators.reload.view import ReloadView

__all__ = ["tables_of"]

_TIMED: Final = frozenset({"freeze", "budget", "schedule", "window"})  # gates that open at a time that is known
_BAD: Final = frozenset({"missing", "budget", "halt"})  # gates behind which somebody should look
_SHOWN: Final = 50  # restarts of the past


def tables_of(view: ReloadView) -> list[Table]:
    """Counts first, then what waits, what is under way, what needs somebody, and what was."""
    return [
        Table("Reload", ("what", "how many"), _counts(view)),
        Table("Pending restarts", ("workload", "sources", "waits for", "due", "why"), _pending(view)),
        Table("Rollouts", ("workload", "sources", "since", "phase", "pods", "why"), _rollouts(view)),
        Table("Open circuits", ("workload", "sources", "budget", "closes"), _circuits(view)),
        Table("Waiting for approval", ("source", "digest", "limit", "workloads"), _approvals(view)),
        Table("Last restarts", ("workload", "at", "sources", "outcome", "seconds"), _history(view)),
    ]


def _counts(view: ReloadView) -> list[Row]:
    failed = sum(one.outcome.phase == "failed" for one in view.rollouts)
    halted = sum(one.gate == "halt" for one in view.pending)
    waiting = State.WAITING if view.pending else State.GOOD
    moving = len(view.rollouts) - failed
    return [
        Row(("workloads that take part", len(view.workloads))),
        Row(("sources they use", len({edge.source for one in view.workloads for edge in one.edges}))),
        Row(("pending restarts", len(view.pending)), waiting),
        Row(("rollouts under way", moving), State.BUSY if moving else State.GOOD),
        Row(("failed rollouts", failed), State.BAD if failed else State.GOOD),
        Row(("halted by a failure", halted), State.BAD if halted else State.GOOD),
        Row(("open circuits", len(view.circuits)), State.BAD if view.circuits else State.GOOD),
        Row(("waiting for approval", len(view.approvals)), State.WAITING if view.approvals else State.GOOD),
    ]


def _pending(view: ReloadView) -> list[Row]:
    return [
        Row(
            (
                str(one.workload),
                _told(one.changes, one.workload.namespace),
                f"wave {one.wave}" if one.gate == "wave" else one.gate,
                "" if one.due is None or one.gate not in _TIMED else format_time(one.due),
                one.reason,
            ),
            State.BAD if one.gate in _BAD else State.WAITING,
            one.reason,
        )
        for one in view.pending
    ]


def _rollouts(view: ReloadView) -> list[Row]:
    return [
        Row(
            (
                str(one.workload),
                one.sources,
                format_time(one.started),
                one.outcome.phase,
                f"{one.available} of {one.wanted}",
                one.outcome.reason,
            ),
            State.BAD if one.outcome.phase == "failed" else State.BUSY,
            "others wait for it" if one.halts else one.outcome.reason,
        )
        for one in view.rollouts
    ]


def _circuits(view: ReloadView) -> list[Row]:
    return [
        Row(
            (
                str(one.workload),
                _told(one.changes, one.workload.namespace),
                one.budget,
                "" if one.closes is None else format_time(one.closes),
            ),
            State.BAD,
            "restarted too often; it closes by itself",
        )
        for one in view.circuits
    ]


def _approvals(view: ReloadView) -> list[Row]:
    return [
        Row((str(one.source), one.digest, one.guard, len(one.workloads)), State.WAITING, "needs somebody's word")
        for one in view.approvals
    ]


def _history(view: ReloadView) -> list[Row]:
    states = {"available": State.GOOD, "applied": State.GOOD, "progressing": State.BUSY, "failed": State.BAD}
    return [
        Row(
            (
                str(one.workload),
                format_time(one.at),
                one.sources,
                one.outcome.phase,
                None if one.outcome.seconds is None else round(one.outcome.seconds),
            ),
            states.get(one.outcome.phase, State.OFF),
            one.outcome.reason,
        )
        for one in view.history[:_SHOWN]
    ]


def _told(changes: Iterable[Change], namespace: str) -> str:
    return " ".join(change.seen_from(namespace) for change in changes)
