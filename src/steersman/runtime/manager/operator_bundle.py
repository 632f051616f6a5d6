"""An operator, configured: its controllers, tasks, checks, routes and tables.

The manager includes an `OperatorBundle` as a whole: it runs the controllers and tasks, counts the checks into
readiness, serves the routes, and shows the tables on the page and in `steersman status`. The headline and the problems
of an operator follow from its tables (`operator_report`); an operator without tables gets one per kind it reconciles,
made of the conditions of its objects.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.clock import SYSTEM_CLOCK, Clock
from steersman.runtime.cluster import Cluster
from steersman.runtime.controller.builder import Controller

if TYPE_CHECKING:
    from steersman.runtime.reconcile.conditions import Condition

__all__ = [
    "OperatorBundle",
    "Row",
    "RowProblem",
    "RowState",
    "RuntimeEnvironment",
    "Table",
    "Task",
    "cached_objects",
    "condition_state",
]


class RowState(StrEnum):
    """How a row is doing; each has one colour and one word, wherever it is shown."""

    GOOD = "good"
    BUSY = "busy"  # under way
    WAITING = "waiting"  # for a user, a time, or another controller
    BAD = "bad"
    OFF = "off"  # takes no part
    UNKNOWN = "unknown"  # it cannot be read now

    @property
    def word(self) -> str:
        """What users read, unless the row has a more precise word."""
        return _WORDS[self]


_WORDS = {
    RowState.GOOD: "Ready",
    RowState.BUSY: "Progressing",
    RowState.WAITING: "Waiting",
    RowState.BAD: "Failing",
    RowState.OFF: "Off",
    RowState.UNKNOWN: "Unknown",
}


class RowProblem(msgspec.Struct, frozen=True, kw_only=True):
    """What needs attention, and the next step. Rows whose problems have the same cause are one problem."""

    objects: Sequence[str]  # that have it, as KIND/NAMESPACE/NAME
    message: str
    cause: str = ""  # what makes two problems the same one; empty: the message
    command: str = ""  # the next step, to copy
    runbook: str = ""  # the name of a page below docs/runbooks
    state: RowState = RowState.BAD
    word: str = ""  # empty: that of the state


class Row(msgspec.Struct, frozen=True):
    """One line: a cell per column, plain text or numbers, never a secret and never a value of a source."""

    cells: Sequence[str | int | float | None]
    state: RowState = RowState.GOOD
    note: str = ""  # why it is in that state
    word: str = ""  # the state in one or two words; empty: that of the state
    problem: RowProblem | None = None  # BAD and UNKNOWN rows have one anyway: first cell and note


class Table(msgspec.Struct, frozen=True):
    """What an operator shows of itself: zones and serials, performers, toolsets."""

    title: str  # a plural, such as Zones
    columns: Sequence[str]
    rows: Sequence[Row] = ()
    total: int | None = None  # of objects, where those in state GOOD are not all listed; None: one per row
    good: str = "ready"  # what an object in state GOOD is, in the headline
    counted: bool = True  # False: rows are not objects (a history, say): no part of the headline, never a problem


def condition_state(condition: Condition | None) -> tuple[RowState, str]:
    """The state and note of a row for an object with this condition, such as Ready, as it is stored; None: not yet."""
    if condition is None or condition.status == "Unknown":
        return RowState.BUSY, "" if condition is None else condition.message
    return (RowState.GOOD if condition.status == "True" else RowState.BAD), condition.message


def cached_objects(cluster: Cluster, target: Any) -> list[Any]:
    """The objects of a kind that a controller's watch has; a table watches nothing for itself."""
    for informer in cluster.caches:
        if informer.target is target:
            with informer.snapshot() as snapshot:
                return list(snapshot)
    return []


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Background work that never ends; restarted when it fails."""

    name: str
    run: Callable[[Cluster], Awaitable[Any]]
    leader_only: bool = True  # False: also on a standby


class RuntimeEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator may know of the process it is made for."""

    namespaces: Sequence[str] | None = None  # rights end there; None: all
    served: frozenset[Any] | None = None  # the kinds (`Kind`) the cluster has; None: not asked
    own_namespace: str = "default"  # where the process itself runs
    dry_run: bool = False
    shadow: bool = False  # decide, write nothing, and compare with another program that acts
    lease: str | None = None  # NAMESPACE/NAME of the Lease this process stands for
    clock: Clock = SYSTEM_CLOCK


class OperatorBundle(msgspec.Struct, frozen=True, kw_only=True):
    """A configured operator."""

    controllers: Sequence[Controller]
    tasks: Sequence[Task] = ()
    checks: Mapping[str, Callable[[], str | None]] = {}  # None while all is well, else why not
    tables: Callable[[Cluster], Sequence[Table]] | None = None  # from caches alone; None: made of conditions
    headline: Callable[[Sequence[Table]], str] | None = None  # one sentence for the landing page; None: counts of rows
    routes: Callable[[Cluster], Sequence[Any]] | None = None  # aiohttp's route definitions, below /api/NAME of operator
