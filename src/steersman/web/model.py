"""What the page and the JSON API show: plain values, and nothing that could hold a value of a source.

    PageSnapshot   what the reload operator knows at one moment: workloads, sources, past restarts
    Vitals         the state of the process: leadership, watches, queues, checks, and samples of the last minutes

Views are made from these two by pure functions. `web.reload_snapshot` and `web.health` fill them and are the only code
that knows where the values come from. Names, keys and short digests only: no type here has a field for data.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from steersman.cache.informer import NOT_INSTALLED
from steersman.operators.reload.inspect.restart_state import RestartState
from steersman.runtime.manager.operator_bundle import RowProblem, RowState
from steersman.runtime.manager.operator_report import OperatorReport

API_VERSION = "v1"


class _Value(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A value of the API: camelCase on the wire."""


class Outcome(StrEnum):
    """What became of a restart."""

    ROLLING = "rolling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REPLACED = "replaced"  # the next restart came first
    UNKNOWN = "unknown"  # not observed to its end


class ChangedSource(_Value, frozen=True, kw_only=True):
    """A source that says something new."""

    source: str  # KIND/NAMESPACE/NAME
    keys: list[str] = []  # empty: not known
    by: list[str] = []  # field managers that own those keys


class Edge(_Value, frozen=True, kw_only=True):
    """A workload depends on a source."""

    source: str
    keys: list[str] | None = None  # None: every key
    ignored: list[str] = []
    optional: bool = False
    rules: list[str] = []  # which rule, of which dialect, says so
    digest: str = ""  # a short one, of what the source says now; empty: it does not exist
    applied: str = ""  # a short one, of what the pods were started for
    changed: bool = False


class Unwatched(_Value, frozen=True, kw_only=True):
    """A source that the workload uses and that is not watched for it."""

    source: str
    rule: str  # the first rule that said no


class Restart(_Value, frozen=True, kw_only=True):
    """One restart of one workload."""

    at: datetime
    changes: list[ChangedSource] = []
    outcome: Outcome = Outcome.UNKNOWN
    seconds: float | None = None  # from the restart to its outcome
    note: str = ""


class Rollout(_Value, frozen=True, kw_only=True):
    """How far the pods of the last restart are."""

    wanted: int = 0
    updated: int = 0
    ready: int = 0
    since: datetime | None = None
    note: str = ""


class Approval(_Value, frozen=True, kw_only=True):
    """A restart that waits for a person."""

    digest: str  # what an approval has to name
    reason: str = ""
    command: str = ""  # how to give it


class WorkloadNode(_Value, frozen=True, kw_only=True):
    """A workload in short: enough for lists and the map."""

    id: str  # KIND/NAMESPACE/NAME
    kind: str
    namespace: str
    name: str
    standing: RestartState
    reason: str = ""  # the rule that says so
    gate: str = ""  # what holds a restart back
    due: datetime | None = None  # the next evaluation; None: when something changes
    changes: list[ChangedSource] = []
    rollout: Rollout | None = None
    approval: Approval | None = None
    wave: int | None = None
    last_restart: datetime | None = None


class WorkloadView(_Value, frozen=True, kw_only=True):
    """All about one workload: what `steersman why` says."""

    workload: WorkloadNode
    edges: list[Edge] = []
    unwatched: list[Unwatched] = []
    restarts: list[Restart] = []
    problems: list[str] = []
    enrolled: str = ""  # why reload is enabled for it, or why not


class SourceNode(_Value, frozen=True, kw_only=True):
    """A ConfigMap, Secret or the like: its name and keys, never its values."""

    id: str
    kind: str
    namespace: str
    name: str
    keys: list[str] = []
    missing: bool = False  # a workload uses it, and it does not exist
    changed: bool = False  # some workload has not taken up what it says


class MapEdge(_Value, frozen=True, kw_only=True):
    """A line of the map."""

    source: str
    workload: str
    changed: bool = False


class HistoryEntry(_Value, frozen=True, kw_only=True):
    """A change and what followed from it."""

    id: str  # of the permalink
    at: datetime
    workload: str
    changes: list[ChangedSource] = []
    outcome: Outcome = Outcome.UNKNOWN
    seconds: float | None = None
    note: str = ""


class PageSnapshot(_Value, frozen=True, kw_only=True):
    """Everything the reload operator knows at one moment."""

    workloads: list[WorkloadView] = []
    sources: list[SourceNode] = []
    history: list[HistoryEntry] = []  # newest first
    running: bool = False  # the operator runs in this process


class Check(_Value, frozen=True, kw_only=True):
    """One condition of readiness."""

    name: str
    problem: str | None = None


class WatchHealth(_Value, frozen=True, kw_only=True):
    """One watch."""

    name: str
    synced: bool
    objects: int
    age_seconds: float | None = None  # of the last event or bookmark
    revision: str = ""
    problem: str | None = None
    unknown: str | None = None  # why nothing is known of its objects, where that stops nothing
    unseen: list[str] = []  # namespaces that have never been listed
    coverage: str = ""  # what its objects are, where they are not the whole collection

    @property
    def state(self) -> tuple[RowState, str]:
        """Its state in the words of the page, and what is to be said about it."""
        if self.problem:
            return RowState.BAD, self.problem
        if self.unknown or self.unseen:
            return RowState.UNKNOWN, self.unknown or self.coverage
        if self.coverage == NOT_INSTALLED:
            return RowState.OFF, self.coverage
        return (RowState.GOOD, self.coverage) if self.synced else (RowState.BUSY, "the first list is under way")


class ControllerHealth(_Value, frozen=True, kw_only=True):
    """One controller and its queue."""

    name: str
    synced: bool
    ready: int
    waiting: int
    running: int
    workers: int
    succeeded: int = 0
    failed: int = 0
    retries: int = 0
    mean_seconds: float | None = None  # of a reconcile
    mean_queue_seconds: float | None = None  # from ready to running


class Leadership(_Value, frozen=True, kw_only=True):
    """Who acts."""

    elected: bool  # leader election is on
    leading: bool  # this process acts
    identity: str = ""
    leader: str = ""
    namespace: str = ""  # of this process, and so of the leader's pod


class Series(_Value, frozen=True, kw_only=True):
    """Numbers over time, oldest first, one every `step_seconds`."""

    name: str
    unit: str
    step_seconds: float
    values: list[float] = []


class Vitals(_Value, frozen=True, kw_only=True):
    """How the process is."""

    version: str
    started: datetime
    leadership: Leadership
    checks: list[Check] = []
    watches: list[WatchHealth] = []
    controllers: list[ControllerHealth] = []
    series: list[Series] = []
    warnings: list[str] = []  # what needs attention although the process is ready


class ApiProblem(_Value, frozen=True, kw_only=True):
    """An error, as every path of the API answers it."""

    error: str
    status: int


class OperatorSummary(_Value, frozen=True, kw_only=True):
    """One operator in one line."""

    name: str
    state: RowState
    headline: str


class Now(_Value, frozen=True, kw_only=True):
    """Is everything all right? What needs attention, what every operator says, and which restarts wait or roll out."""

    at: datetime
    leadership: Leadership
    ready: bool
    problems: list[RowProblem] = []  # one per cause, of the process and of every operator, the worst first
    operators: list[OperatorSummary] = []
    counts: dict[str, int] = {}  # workloads by standing
    pending: list[WorkloadNode] = []
    rollouts: list[WorkloadNode] = []
    circuits: list[WorkloadNode] = []
    approvals: list[WorkloadNode] = []
    held: list[WorkloadNode] = []
    failed: list[WorkloadNode] = []
    recent: list[HistoryEntry] = []


class Map(_Value, frozen=True, kw_only=True):
    """Sources and workloads, and which uses which."""

    at: datetime
    sources: list[SourceNode] = []
    workloads: list[WorkloadNode] = []
    edges: list[MapEdge] = []


class History(_Value, frozen=True, kw_only=True):
    """What happened, newest first."""

    at: datetime
    entries: list[HistoryEntry] = []
    total: int = 0  # that the filters let through
    next: str | None = None  # the `before` of the next page
    namespaces: list[str] = []  # that occur at all


class Operators(_Value, frozen=True, kw_only=True):
    """What every operator shows of itself."""

    at: datetime
    operators: list[OperatorReport] = []


class ProcessHealth(_Value, frozen=True, kw_only=True):
    """The process."""

    at: datetime
    vitals: Vitals
    ready: bool


class StatusReport(_Value, frozen=True, kw_only=True):
    """All of it in one answer, for `steersman status`."""

    now: Now
    health: ProcessHealth
    operators: Operators
