"""The report of a chaos run: one row per operator, and what was found. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from tests.support.chaos.schedule import FAULTS, Schedule

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


__all__ = ["Outcome", "render", "render_faults"]

COLUMNS = ("operator", "schedules", "faults injected", "changes made", "processes", "acts", "lost", "doubled", "other")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one schedule came to."""

    schedule: Schedule
    findings: dict[str, list[str]] = {}  # by the name of the checker
    faults: int = 0
    changes: int = 0
    processes: int = 0  # of the operator that were started
    acts: int = 0
    recovery: float | None = None  # seconds of the operators' clock; None: the expected state did not come


def render(outcomes: Sequence[Outcome]) -> str:
    """The table, as Markdown."""
    rows = [[*COLUMNS, "worst recovery"], ["---"] * (len(COLUMNS) + 1)]
    names = sorted({outcome.schedule.operator for outcome in outcomes})
    rows += [_row(name, [outcome for outcome in outcomes if outcome.schedule.operator == name]) for name in names]
    if len(names) > 1:
        rows.append(_row("all", outcomes))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def render_faults(outcomes: Sequence[Outcome]) -> str:
    """How often each fault was injected, as Markdown."""
    counted = Counter(step.name for outcome in outcomes for step in outcome.schedule.steps if step.is_fault)
    rows = [f"| {name} | {counted[name]:,} | {what} |" for name, what in FAULTS.items() if counted[name]]
    return "\n".join(["| fault | injected | what happens |", "| --- | --- | --- |", *rows])


def _row(name: str, outcomes: Sequence[Outcome]) -> list[str]:
    lost = _count(outcomes, {"nothing_lost"})
    doubled = _count(outcomes, {"nothing_done_twice", "no_act_without_cause"})
    other = sum(len(found) for outcome in outcomes for found in outcome.findings.values()) - lost - doubled
    numbers = (
        len(outcomes),
        sum(outcome.faults for outcome in outcomes),
        sum(outcome.changes for outcome in outcomes),
        sum(outcome.processes for outcome in outcomes),
        sum(outcome.acts for outcome in outcomes),
        lost,
        doubled,
        other,
    )
    worst = max((outcome.recovery for outcome in outcomes if outcome.recovery is not None), default=0.0)
    return [name, *(f"{number:,}" for number in numbers), f"{worst:.0f} s"]


def _count(outcomes: Iterable[Outcome], checkers: set[str]) -> int:
    return sum(len(outcome.findings.get(name, ())) for outcome in outcomes for name in checkers)
