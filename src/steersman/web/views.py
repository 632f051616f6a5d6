"""Views: what each part of the page shows, made from a snapshot and the vitals. Pure."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.operators import OPERATORS
from steersman.operators.reload.inspect.restart_state import RestartState
from steersman.runtime.manager.operator_bundle import RowProblem, RowState
from steersman.runtime.manager.operator_report import merged
from steersman.web.model import (
    History,
    Map,
    MapEdge,
    Now,
    Operators,
    OperatorSummary,
    Outcome,
    ProcessHealth,
    StatusReport,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from steersman.runtime.manager.operator_report import OperatorReport
    from steersman.web.model import HistoryEntry, PageSnapshot, Vitals, WorkloadNode, WorkloadView

RECENT = 8  # entries of the history that the first view shows
MOST = 500  # entries in one answer


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of the history is wanted."""

    namespace: str = ""
    text: str = ""  # part of the name of a workload, a source, a key or a manager
    outcome: Outcome | None = None
    before: str = ""  # entries older than the one of this id
    limit: int = 100


def now_of(snapshot: PageSnapshot, vitals: Vitals, reports: Sequence[OperatorReport], at: datetime) -> Now:
    """What goes on."""
    nodes = [view.workload for view in snapshot.workloads]
    return Now(
        at=at,
        leadership=vitals.leadership,
        ready=all(check.problem is None for check in vitals.checks),
        problems=[
            *process_problems(vitals, [report.name for report in reports]),
            *merged(problem for report in reports for problem in report.problems),
        ],
        operators=[
            OperatorSummary(name=report.name, state=report.state, headline=report.headline) for report in reports
        ],
        counts=dict(sorted(Counter(node.standing.value for node in nodes).items())),
        pending=sorted(_standing(nodes, RestartState.PENDING), key=lambda node: (node.due or at, node.id)),
        rollouts=_standing(nodes, RestartState.ROLLING),
        circuits=_standing(nodes, RestartState.OPEN),
        approvals=[node for node in _standing(nodes, RestartState.HELD) if node.approval is not None],
        held=[node for node in _standing(nodes, RestartState.HELD) if node.approval is None],
        failed=_standing(nodes, RestartState.FAILED),
        recent=list(snapshot.history[:RECENT]),
    )


def _standing(nodes: Iterable[WorkloadNode], standing: RestartState) -> list[WorkloadNode]:
    return sorted((node for node in nodes if node.standing is standing), key=lambda node: node.id)


def map_of(snapshot: PageSnapshot, at: datetime) -> Map:
    """Sources and workloads, and which uses which; workloads that use nothing are left out."""
    taking_part = [view for view in snapshot.workloads if view.edges]
    return Map(
        at=at,
        sources=snapshot.sources,
        workloads=[view.workload for view in taking_part],
        edges=[
            MapEdge(source=edge.source, workload=view.workload.id, changed=edge.changed)
            for view in taking_part
            for edge in view.edges
        ],
    )


def history_of(snapshot: PageSnapshot, filters: Filters, at: datetime) -> History:
    """What happened, as far as the filters let through."""
    passed = [entry for entry in snapshot.history if _passes(entry, filters)]
    rest = passed
    if filters.before:
        older = [place for place, entry in enumerate(passed) if entry.id == filters.before]
        rest = passed[older[0] + 1 :] if older else []
    shown = rest[: min(filters.limit, MOST)]
    return History(
        at=at,
        entries=shown,
        total=len(passed),
        next=shown[-1].id if shown and len(rest) > len(shown) else None,
        namespaces=sorted({entry.workload.split("/")[1] for entry in snapshot.history}),
    )


def _passes(entry: HistoryEntry, filters: Filters) -> bool:
    if filters.namespace and entry.workload.split("/")[1] != filters.namespace:
        return False
    if filters.outcome is not None and entry.outcome is not filters.outcome:
        return False
    wanted = filters.text.strip().casefold()
    if not wanted:
        return True
    searched = [
        entry.workload,
        *(word for change in entry.changes for word in (change.source, *change.keys, *change.by)),
    ]
    return any(wanted in word.casefold() for word in searched)


def entry_of(snapshot: PageSnapshot, wanted: str) -> HistoryEntry | None:
    """One entry of the history."""
    return next((entry for entry in snapshot.history if entry.id == wanted), None)


def workload_of(snapshot: PageSnapshot, kind: str, namespace: str, name: str) -> WorkloadView | None:
    """One workload."""
    wanted = f"{kind.lower()}/{namespace}/{name}"
    return next((view for view in snapshot.workloads if view.workload.id == wanted), None)


def operators_of(reports: Sequence[OperatorReport], at: datetime) -> Operators:
    """What every operator shows of itself."""
    return Operators(at=at, operators=list(reports))


def health_of(vitals: Vitals, at: datetime) -> ProcessHealth:
    """The process."""
    return ProcessHealth(at=at, vitals=vitals, ready=all(check.problem is None for check in vitals.checks))


def status_of(snapshot: PageSnapshot, vitals: Vitals, reports: Sequence[OperatorReport], at: datetime) -> StatusReport:
    """All of it."""
    return StatusReport(
        now=now_of(snapshot, vitals, reports, at), health=health_of(vitals, at), operators=operators_of(reports, at)
    )


# -- the process itself ----------------------------------------------------------------------------------------------


def process_problems(vitals: Vitals, operators: Sequence[str]) -> list[RowProblem]:
    """Failing checks and warnings, one problem per cause: a lost API server is one, however many sources it has."""
    failing = [
        _check_problem(check.name, _REQUEST.sub("", check.problem), operators)
        for check in vitals.checks
        if check.problem is not None
    ]
    return merged([*failing, *(_warning(warning) for warning in vitals.warnings)])


_REQUEST: Final = re.compile(r" \([A-Z]+ [^)]*\)")  # what an error says about the request it belongs to
_RUNBOOKS: Final = {
    "election": "SteersmanNoLeader",
    "tasks": "SteersmanTaskRestarting",
    "loop": "SteersmanReconcileStuck",
}


def _check_problem(name: str, message: str, operators: Sequence[str]) -> RowProblem:
    is_source = name.startswith("source ")
    command, ours = "", [operator for operator in operators if operator in OPERATORS]
    if is_source and ours and "forbidden" in message.casefold():
        command = f"steersman rbac --operators {','.join(ours)} | kubectl apply -f -"
    elif is_source and ours and "no such kind" in message:
        command = f"steersman crds --operators {','.join(ours)} | kubectl apply -f -"
    return RowProblem(
        objects=[name],
        message=message,
        cause=message,
        command=command,
        runbook="SteersmanSourceFailing" if is_source else _RUNBOOKS.get(name, ""),
        word="Not ready",
    )


def _warning(warning: str) -> RowProblem:
    subject, _, message = warning.partition(": ")
    runbook = "SteersmanReconcileStuck" if subject.startswith("controller ") else ""
    return RowProblem(objects=[subject], message=message, cause=warning, runbook=runbook, word=RowState.BAD.word)
