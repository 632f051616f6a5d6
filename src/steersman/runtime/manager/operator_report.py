"""The report of an operator: a headline, what needs attention, and its tables. Pure, except that it reads caches.

    tables of rows, each with a state ──► headline   "2 of 3 zones ready, 1 failing; 2 servers ready"
                                      └─► problems   one per cause, with its objects and the next step

Invariant: the report says nothing that is not in the tables, so the landing page, the operators' page and `steersman
status` never disagree. While a source of the operator cannot be read, its state is unknown and its headline says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from steersman.runtime.manager.operator_bundle import Row, RowProblem, RowState, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from steersman.runtime.controller.runner import ControllerRunner

__all__ = ["OperatorReport", "merged", "report_of", "state_by_conditions", "tables_of_kinds", "unreadable"]

LISTED: Final = 500  # rows in state GOOD of a table that is made of conditions
NAMED: Final = 200  # objects of one problem
POSITIVE: Final = ("Ready", "Available", "Succeeded", "Complete")  # conditions that are True when all is well
UNDER_WAY: Final = ("Progressing", "Reconciling")  # conditions that are True while the others may still become so
NEGATIVE: Final = ("Failed", "Degraded", "Stalled")  # conditions that are True when something is wrong
_SEVERITY: Final = {
    state: place
    for place, state in enumerate(
        (RowState.OFF, RowState.GOOD, RowState.BUSY, RowState.WAITING, RowState.UNKNOWN, RowState.BAD)
    )
}


class OperatorReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one operator shows of itself."""

    name: str
    state: RowState  # the worst of its rows
    headline: str
    problems: Sequence[RowProblem] = ()
    tables: Sequence[Table] = ()


def report_of(
    name: str,
    tables: Sequence[Table],
    *,
    headline: Callable[[Sequence[Table]], str] | None = None,
    unreadable: str = "",
) -> OperatorReport:
    """The report that follows from tables; `unreadable` says why they may no longer be true, empty when all is read."""
    counted = [table for table in tables if table.counted]
    said = headline(tables) if headline is not None else "; ".join(map(_count, counted)) or "nothing to show"
    states = [row.state for table in counted for row in table.rows]
    state = max(states, key=_SEVERITY.__getitem__, default=RowState.GOOD)
    if unreadable:
        state, said = RowState.UNKNOWN, f"unknown: {unreadable}; last seen: {said}"
    problems = merged(problem for table in counted for row in table.rows if (problem := _problem(row)) is not None)
    return OperatorReport(name=name, state=state, headline=said, problems=problems, tables=tables)


def _count(table: Table) -> str:
    """How many of its objects are in which state.

    >>> _count(Table("Zones", ["zone"], [Row(["a"]), Row(["b"], RowState.BAD)]))
    '1 of 2 zones ready, 1 failing'
    """
    total = len(table.rows) if table.total is None else table.total
    noun = table.title if table.title[1:2].isupper() else table.title[:1].lower() + table.title[1:]
    if not total:
        return f"no {noun}"
    noun = noun[:-1] if total == 1 and noun.endswith("s") else noun
    others = sorted(
        (row for row in table.rows if row.state is not RowState.GOOD), key=lambda row: -_SEVERITY[row.state]
    )
    words = Counter((row.word or row.state.word).lower() for row in others)
    good = total - words.total()
    if not words:
        return f"{total} {noun} {table.good}"
    return f"{good} of {total} {noun} {table.good}, " + ", ".join(f"{count} {word}" for word, count in words.items())


def _problem(row: Row) -> RowProblem | None:
    problem = row.problem
    if problem is None and row.state in (RowState.BAD, RowState.UNKNOWN):
        problem = RowProblem(objects=[str(row.cells[0]) if row.cells else ""], message=row.note)
    return None if problem is None else replace(problem, state=row.state, word=row.word or row.state.word)


def merged(problems: Iterable[RowProblem]) -> list[RowProblem]:
    """One problem per cause, the worst first; the first problem of a cause gives message and next step."""
    found: dict[object, RowProblem] = {}
    objects: dict[object, dict[str, None]] = {}
    for problem in problems:
        key = problem.cause or (problem.message and (problem.message, problem.runbook)) or tuple(problem.objects)
        found.setdefault(key, problem)
        objects.setdefault(key, {}).update(dict.fromkeys(problem.objects))
    one_each = [replace(problem, objects=list(objects[key])[:NAMED]) for key, problem in found.items()]
    return sorted(one_each, key=lambda problem: -_SEVERITY[problem.state])


# -- operators without tables of their own ---------------------------------------------------------------------------


def unreadable(runners: Iterable[ControllerRunner]) -> str:
    """Why the objects of these controllers may be other than last seen; empty when every source is read."""
    for runner in runners:
        for source in runner.sources:
            health = source.informer.health()
            if health.problem and not health.partial:
                return f"{health.name} cannot be read"
    return ""


def tables_of_kinds(runners: Iterable[ControllerRunner]) -> list[Table]:
    """A table per kind that these controllers reconcile: every object with what its conditions say."""
    by_kind: dict[Any, list[ControllerRunner]] = {}
    for runner in runners:
        by_kind.setdefault(runner.controller.target, []).append(runner)
    return [_table_of_kind(target, concerned) for target, concerned in by_kind.items()]


def _table_of_kind(target: Any, runners: Sequence[ControllerRunner]) -> Table:
    stuck = {str(found.key): found.text for runner in runners for found in runner.stuck_keys()}
    kind, rows, good = target.KIND, [], 0
    with runners[0].snapshot() as snapshot:
        for found in snapshot[target]:
            row = _row(kind, found, stuck)
            good += row.state is RowState.GOOD
            if row.state is not RowState.GOOD or good <= LISTED:
                rows.append(row)
    total = len(rows) + max(0, good - LISTED)
    return Table(kind.plural, ("name", "namespace", "reason"), rows, total=total)


def _row(kind: Any, found: Any, stuck: dict[str, str]) -> Row:
    where = f"{found.namespace}/{found.name}" if found.namespace else found.name
    deleting = bool(found.metadata.deletion_timestamp)
    state, reason, note = state_by_conditions(getattr(found, "status", None), deleting=deleting)
    if where in stuck:
        state, reason, note = RowState.BAD, "ReconcileStuck", stuck[where]
    problem = None
    if state is RowState.BAD:
        problem = RowProblem(
            objects=[f"{kind.kind.lower()}/{where}"],
            message=f"{reason}: {note}" if note else reason,
            command=f"kubectl describe {kind.qualified} {found.name}"
            + (f" -n {found.namespace}" if found.namespace else ""),
            runbook="SteersmanReconcileStuck" if where in stuck else "",
        )
    return Row((found.name, found.namespace, reason), state, note, problem=problem)


def state_by_conditions(status: Any, *, deleting: bool = False) -> tuple[RowState, str, str]:
    """State, reason and note by the status of an object; one without conditions is as good as its reconciles."""
    if deleting:
        return RowState.BUSY, "Terminating", ""
    conditions = {_of(condition, "type"): condition for condition in _get(status, "conditions") or ()}
    for name in NEGATIVE:
        if _of(conditions.get(name), "status") == "True":
            return RowState.BAD, _of(conditions[name], "reason") or name, _of(conditions[name], "message")
    known = next((conditions[name] for name in POSITIVE if name in conditions), None)
    if known is None:
        return (RowState.BUSY, "NotReady", "") if _get(status, "ready") is False else (RowState.GOOD, "", "")
    state = {"True": RowState.GOOD, "False": RowState.BAD}.get(_of(known, "status"), RowState.BUSY)
    if state is RowState.BAD and any(_of(conditions.get(name), "status") == "True" for name in UNDER_WAY):
        state = RowState.BUSY
    return state, _of(known, "reason"), _of(known, "message")


def _get(value: Any, field: str) -> Any:
    return value.get(field) if isinstance(value, dict) else getattr(value, field, None)


def _of(condition: Any, field: str) -> str:
    value = _get(condition, field)
    return value if isinstance(value, str) else ""
