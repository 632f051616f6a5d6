"""What the operator knows right now, as one value: for the page, `status`, and whoever asks. Pure data.

    pending      changes that wait: since when, for what, until when, and which gate holds them
    rollouts     restarts that are under way or failed
    circuits     workloads whose budget is used up
    approvals    changes that wait for somebody's word, with the digest to name
    workloads    who takes part, and the edges of each
    history      restarts with cause and outcome, the latest first

Times are seconds since the epoch. Names and digests only, never a value of a source. Lists are in a stable order.
"""

from __future__ import annotations

import msgspec

from steersman.operators.reload.changes import Change
from steersman.operators.reload.types import SourceRef, WorkloadId

__all__ = [
    "Approval",
    "Circuit",
    "EdgeView",
    "Outcome",
    "Pending",
    "ReloadView",
    "Restart",
    "RolloutView",
    "WorkloadView",
]


class Outcome(msgspec.Struct, frozen=True):
    """How a restart ended."""

    phase: str  # progressing | available | failed | replaced (by the next restart before it ended) | applied | unknown
    reason: str = ""  # of a failure; of what was applied without a restart, by which action
    seconds: float | None = None  # from the restart to the outcome, where somebody watched


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """A restart that waits."""

    workload: WorkloadId
    changes: tuple[Change, ...]
    gate: str  # one of `gates.GATES`
    reason: str
    since: float  # when this process saw the first of the changes
    due: float | None = None  # None: when something changes
    wave: int = 0


class RolloutView(msgspec.Struct, frozen=True, kw_only=True):
    """A restart that is being followed."""

    workload: WorkloadId
    started: float
    sources: str  # `configmap/app#mode secret/db`
    outcome: Outcome
    updated: int = 0  # pods of the new template
    available: int = 0
    wanted: int = 0
    halts: bool = False  # it failed, and others wait for it
    wave: int = 0


class Circuit(msgspec.Struct, frozen=True, kw_only=True):
    """A workload that was restarted too often."""

    workload: WorkloadId
    changes: tuple[Change, ...]
    budget: str  # `5 restarts in 1h`
    closes: float | None  # by itself


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A change that waits for somebody's word: `steersman.dev/approve: DIGEST` on source, workload or namespace."""

    source: SourceRef
    digest: str
    guard: str  # `10,30%`
    workloads: tuple[WorkloadId, ...]  # whom it would restart


class EdgeView(msgspec.Struct, frozen=True, kw_only=True):
    """One source that a workload is restarted for."""

    source: SourceRef
    keys: tuple[str, ...] | None = None  # None: every key
    optional: bool = False
    rules: tuple[str, ...] = ()  # who says so


class WorkloadView(msgspec.Struct, frozen=True, kw_only=True):
    """A workload that takes part."""

    workload: WorkloadId
    edges: tuple[EdgeView, ...]
    wave: int = 0
    gate: str = ""  # what holds a change back, when one waits


class Restart(msgspec.Struct, frozen=True, kw_only=True):
    """One restart of the past."""

    workload: WorkloadId
    at: float
    sources: str
    outcome: Outcome


class ReloadView(msgspec.Struct, frozen=True, kw_only=True):
    """See the module."""

    at: float
    pending: tuple[Pending, ...] = ()
    rollouts: tuple[RolloutView, ...] = ()
    circuits: tuple[Circuit, ...] = ()
    approvals: tuple[Approval, ...] = ()
    workloads: tuple[WorkloadView, ...] = ()
    history: tuple[Restart, ...] = ()
