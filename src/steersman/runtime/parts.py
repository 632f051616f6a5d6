"""What runs together under one name: controllers, and what stands beside them.

An operator, configured, is one `Parts`. The manager takes it in whole: it runs the controllers and tasks, counts the
checks into readiness, serves the routes, and hands the tables to whoever shows them (the page, `steersman status`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from steersman.runtime.cluster import Cluster
from steersman.runtime.controller import Controller

__all__ = ["Parts", "Row", "State", "Surroundings", "Table", "Task"]


class State(StrEnum):
    """How a row is doing; the page gives each a colour and a word."""

    GOOD = "good"
    BUSY = "busy"  # under way
    WAITING = "waiting"  # for a person, a time, or somebody else
    BAD = "bad"
    OFF = "off"  # takes no part


class Row(msgspec.Struct, frozen=True):
    """One line: a cell per column, plain text or numbers, never a secret and never a value of a source."""

    cells: Sequence[str | int | float | None]
    state: State = State.GOOD
    note: str = ""  # why it is in that state


class Table(msgspec.Struct, frozen=True):
    """What an operator shows of itself: zones and serials, performers, toolsets."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Row] = ()


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Background work for ever; started again when it fails."""

    name: str
    run: Callable[[Cluster], Awaitable[Any]]
    leader_only: bool = True  # False: also on a standby


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator may know of the process it is made for."""

    namespaces: Sequence[str] | None = None  # rights end there; None: all
    served: frozenset[Any] | None = None  # the kinds (`Kind`) the cluster has; None: not asked
    own_namespace: str = "default"  # where the process itself is at home
    dry_run: bool = False
    shadow: bool = False  # decide, write nothing, and compare with another program that acts
    lease: str | None = None  # NAMESPACE/NAME of the Lease this process stands for


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """A configured operator."""

    controllers: Sequence[Controller]
    tasks: Sequence[Task] = ()
    checks: Mapping[str, Callable[[], str | None]] = {}  # None while all is well, else why not
    tables: Callable[[Cluster], Sequence[Table]] | None = None  # from caches alone; called for every look at the page
    routes: Callable[[Cluster], Sequence[Any]] | None = None  # aiohttp's route definitions, below /api/NAME of operator
