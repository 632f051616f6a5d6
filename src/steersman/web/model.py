"""What the page and the JSON API show: plain values, and nothing that could hold a value of a source.

    Scene     everything the reload operator knows, at one moment: workloads, sources, what happened
    Vitals    how the process is: who leads, watches, queues, checks, and how they fared lately

Views are made of these two by pure functions. Whoever fills them (`steersman.web.reloading`, `steersman.web.vitals`) is
the only code that knows where things come from. Names, keys and short digests only: no type here has a field for data.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from steersman.runtime.parts import Table

__all__ = [
    "API_VERSION",
    "Approval",
    "Change",
    "Check",
    "ControllerHealth",
    "Edge",
    "Health",
    "History",
    "HistoryEntry",
    "Leadership",
    "Map",
    "MapEdge",
    "Now",
    "OperatorTables",
    "Operators",
    "Outcome",
    "Problem",
    "Restart",
    "Rollout",
    "Scene",
    "Series",
    "SourceNode",
    "Standing",
    "Status",
    "Unwatched",
    "Vitals",
    "WatchHealth",
    "WorkloadNode",
    "WorkloadView",
]

API_VERSION = "v1"


class _Value(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A value of the API: camelCase on the wire."""


class Standing(StrEnum):
    """How a workload stands; the page gives each a colour, a sign and a word."""

    CURRENT = "current"  # its pods were started for what its sources say
    PENDING = "pending"  # something changed; the restart waits for its time
    HELD = "held"  # something changed; the restart waits for somebody or something
    OPEN = "open"  # restarted too often: the circuit is open
    ROLLING = "rolling"  # restarted, and the rollout is under way
    FAILED = "failed"  # restarted, and the rollout failed
    OFF = "off"  # takes no part


class Outcome(StrEnum):
    """What became of a restart."""

    ROLLING = "rolling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REPLACED = "replaced"  # the next restart came first
    UNKNOWN = "unknown"  # nobody watched it to its end


class Change(_Value, frozen=True, kw_only=True):
    """A source that says something new."""

    source: str  # KIND/NAMESPACE/NAME
    keys: list[str] = []  # none: nobody knows which
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
    changes: list[Change] = []
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
    standing: Standing
    reason: str = ""  # the rule that says so
    gate: str = ""  # what holds a restart back
    due: datetime | None = None  # when it is looked at again; None: when something changes
    changes: list[Change] = []
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
    enrolled: str = ""  # why it takes part, or why not


class SourceNode(_Value, frozen=True, kw_only=True):
    """A ConfigMap, Secret or the like: its name and keys, never its values."""

    id: str
    kind: str
    namespace: str
    name: str
    keys: list[str] = []
    missing: bool = False  # somebody uses it, and it does not exist
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
    changes: list[Change] = []
    outcome: Outcome = Outcome.UNKNOWN
    seconds: float | None = None
    note: str = ""


class Scene(_Value, frozen=True, kw_only=True):
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
    warnings: list[str] = []  # what somebody should look at although the process is ready


class Problem(_Value, frozen=True, kw_only=True):
    """An error, as every path of the API answers it."""

    error: str
    status: int


class Now(_Value, frozen=True, kw_only=True):
    """What goes on."""

    at: datetime
    leadership: Leadership
    ready: bool
    problems: list[Check] = []
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


class OperatorTables(_Value, frozen=True, kw_only=True):
    """What one operator shows of itself."""

    name: str
    tables: list[Table] = []


class Operators(_Value, frozen=True, kw_only=True):
    """What every operator shows of itself."""

    at: datetime
    operators: list[OperatorTables] = []


class Health(_Value, frozen=True, kw_only=True):
    """The process."""

    at: datetime
    vitals: Vitals
    ready: bool


class Status(_Value, frozen=True, kw_only=True):
    """All of it in one answer, for `steersman status`."""

    now: Now
    health: Health
    operators: Operators
