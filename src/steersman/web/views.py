"""Views: what each part of the page shows, from a scene and the vitals. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from steersman.web.model import Health, History, Map, MapEdge, Now, Operators, OperatorTables, Outcome, Standing, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from steersman.runtime.parts import Table
    from steersman.web.model import HistoryEntry, Scene, Vitals, WorkloadNode, WorkloadView

__all__ = [
    "Filters",
    "entry_of",
    "health_of",
    "history_of",
    "map_of",
    "now_of",
    "operators_of",
    "status_of",
    "workload_of",
]

RECENT = 8  # entries of the history that the first view shows
MOST = 500  # entries in one answer


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of the history is wanted."""

    namespace: str = ""
    text: str = ""  # part of the name of a workload, a source, a key or a manager
    outcome: Outcome | None = None
    before: str = ""  # entries older than the one of this id
    limit: int = 100


def now_of(scene: Scene, vitals: Vitals, at: datetime) -> Now:
    """What goes on."""
    nodes = [view.workload for view in scene.workloads]
    problems = [check for check in vitals.checks if check.problem is not None]
    return Now(
        at=at,
        leadership=vitals.leadership,
        ready=not problems,
        problems=problems,
        counts=dict(sorted(Counter(node.standing.value for node in nodes).items())),
        pending=sorted(_standing(nodes, Standing.PENDING), key=lambda node: (node.due or at, node.id)),
        rollouts=_standing(nodes, Standing.ROLLING),
        circuits=_standing(nodes, Standing.OPEN),
        approvals=[node for node in _standing(nodes, Standing.HELD) if node.approval is not None],
        held=[node for node in _standing(nodes, Standing.HELD) if node.approval is None],
        failed=_standing(nodes, Standing.FAILED),
        recent=list(scene.history[:RECENT]),
    )


def _standing(nodes: Iterable[WorkloadNode], standing: Standing) -> list[WorkloadNode]:
    return sorted((node for node in nodes if node.standing is standing), key=lambda node: node.id)


def map_of(scene: Scene, at: datetime) -> Map:
    """Sources and workloads, and which uses which; workloads that use nothing are left out."""
    taking_part = [view for view in scene.workloads if view.edges]
    return Map(
        at=at,
        sources=scene.sources,
        workloads=[view.workload for view in taking_part],
        edges=[
            MapEdge(source=edge.source, workload=view.workload.id, changed=edge.changed)
            for view in taking_part
            for edge in view.edges
        ],
    )


def history_of(scene: Scene, filters: Filters, at: datetime) -> History:
    """What happened, as far as the filters let through."""
    passed = [entry for entry in scene.history if _passes(entry, filters)]
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
        namespaces=sorted({entry.workload.split("/")[1] for entry in scene.history}),
    )


def _passes(entry: HistoryEntry, filters: Filters) -> bool:
    if filters.namespace and entry.workload.split("/")[1] != filters.namespace:
        return False
    if filters.outcome is not None and entry.outcome is not filters.outcome:
        return False
    wanted = filters.text.strip().casefold()
    if not wanted:
        return True
    told = [entry.workload, *(word for one in entry.changes for word in (one.source, *one.keys, *one.by))]
    return any(wanted in word.casefold() for word in told)


def entry_of(scene: Scene, wanted: str) -> HistoryEntry | None:
    """One entry of the history."""
    return next((entry for entry in scene.history if entry.id == wanted), None)


def workload_of(scene: Scene, kind: str, namespace: str, name: str) -> WorkloadView | None:
    """One workload."""
    wanted = f"{kind.lower()}/{namespace}/{name}"
    return next((view for view in scene.workloads if view.workload.id == wanted), None)


def operators_of(tables: Mapping[str, Sequence[Table]], at: datetime) -> Operators:
    """What every operator shows of itself."""
    return Operators(at=at, operators=[OperatorTables(name=name, tables=list(all_)) for name, all_ in tables.items()])


def health_of(vitals: Vitals, at: datetime) -> Health:
    """The process."""
    return Health(at=at, vitals=vitals, ready=all(check.problem is None for check in vitals.checks))


def status_of(scene: Scene, vitals: Vitals, tables: Mapping[str, Sequence[Table]], at: datetime) -> Status:
    """All of it."""
    return Status(now=now_of(scene, vitals, at), health=health_of(vitals, at), operators=operators_of(tables, at))
