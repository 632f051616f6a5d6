"""The MVCC log: every object, every retained change, one global revision.

A write appends one event and raises the revision by one, exactly as etcd does; the revision is the object's
`resourceVersion`. A table is the current state of one resource plus its own part of the log.
Invariant: undoing the events after revision N, newest first, gives the state at N, for every N not below `compacted`.
Therefore a list can be pinned to a revision, and a watch can start at any retained one.

Stored objects are never changed: a write stores a new value and shares what did not change. The JSON of an object is
made at most once per version and is kept without `apiVersion` and `kind`, so that a list is a join of bytes, and one
encoding serves every version of an API. Nothing here knows HTTP, selectors or what an object means.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from steersman.clock import Clock
    from steersman.kube.api.gvk import Kind

EventType = Literal["ADDED", "MODIFIED", "DELETED"]
_encode = msgspec.json.Encoder().encode
_revision = attrgetter("revision")
SNAPSHOTS = 8  # per table
_AFTER = "\U0010ffff"  # sorts after every key


def key_of(namespace: str, name: str) -> str:
    """Where an object lives in its table. Keys sort as etcd sorts them, so lists come in the real order."""
    return f"{namespace}/{name}" if namespace else name


class Record:
    """One version of one object."""

    __slots__ = ("_body", "key", "obj", "revision")

    def __init__(self, key: str, revision: int, obj: dict[str, Any]) -> None:
        self.key = key
        self.revision = revision
        self.obj = obj
        self._body: bytes | None = None

    @property
    def body(self) -> bytes:
        """The object as JSON, without apiVersion and kind."""
        if self._body is None:
            self._body = _encode({k: v for k, v in self.obj.items() if k not in {"apiVersion", "kind"}})
        return self._body

    def at(self, revision: int) -> Record:
        """This content under another resourceVersion; what a watcher sees of an object that left."""
        metadata = {**self.obj["metadata"], "resourceVersion": str(revision)}
        return Record(self.key, revision, {**self.obj, "metadata": metadata})


class StoreEvent:
    """One change of one object. `previous` is None for ADDED; for DELETED, `record` is the last state."""

    __slots__ = ("lines", "previous", "record", "revision", "type")

    def __init__(self, type: EventType, record: Record, previous: Record | None) -> None:  # noqa: A002  the word of the API
        self.type = type
        self.record = record
        self.previous = previous
        self.revision = record.revision
        self.lines: dict[tuple[str, str], bytes] = {}  # encoded for watchers: (view, event type) -> line


class State:
    """The objects of one resource at one moment, in key order."""

    __slots__ = ("keys", "records")

    def __init__(self, records: dict[str, Record], keys: list[str]) -> None:
        self.records = records
        self.keys = keys

    def scan(self, namespace: str = "", start: str = "") -> Iterator[Record]:
        """The objects of a namespace (all when empty) from key `start` on."""
        records = self.records
        low, high = self.bounds(namespace, start)
        return (records[key] for key in self.keys[low:high])

    def bounds(self, namespace: str = "", start: str = "") -> tuple[int, int]:
        """The index range of the keys that `scan` would visit."""
        if not namespace:
            return (bisect_left(self.keys, start) if start else 0), len(self.keys)
        prefix = f"{namespace}/"
        return bisect_left(self.keys, max(start, prefix)), bisect_left(self.keys, prefix + _AFTER)


class ResourceTable(State):
    """The current state of one resource, and its changes since the last compaction."""

    __slots__ = ("_snapshots", "events", "kind")

    def __init__(self, kind: Kind) -> None:
        super().__init__({}, [])
        self.kind = kind  # the storage version
        self.events: list[StoreEvent] = []
        self._snapshots: dict[int, State] = {}  # the last few that paged lists asked for; they never change

    def at(self, revision: int) -> State:
        """The state as it was at `revision`; the caller has checked that it is retained."""
        first = bisect_right(self.events, revision, key=_revision)
        if first == len(self.events):
            return self
        if (known := self._snapshots.get(revision)) is not None:
            return known
        records = dict(self.records)
        for event in reversed(self.events[first:]):
            if event.previous is None:
                del records[event.record.key]
            else:
                records[event.record.key] = event.previous
        if len(self._snapshots) >= SNAPSHOTS:
            del self._snapshots[next(iter(self._snapshots))]
        state = self._snapshots[revision] = State(records, sorted(records))
        return state

    def forget(self, revision: int) -> None:
        """Drop the changes up to `revision`."""
        del self.events[: bisect_right(self.events, revision, key=_revision)]
        self._snapshots = {at: state for at, state in self._snapshots.items() if at >= revision}

    def since(self, revision: int) -> list[StoreEvent]:
        """Every retained change after `revision`."""
        return self.events[bisect_right(self.events, revision, key=_revision) :]


Change = tuple[ResourceTable, StoreEvent]


class Store:
    """All tables, and the one revision they share."""

    def __init__(
        self,
        clock: Clock,
        *,
        history: int = 50_000,  # changes kept for watches and pinned lists
        compaction_interval: float = 300.0,  # seconds; what a change survives at least, as etcd under kube-apiserver
    ) -> None:
        self._clock = clock
        self._history = history
        self._interval = compaction_interval
        self._tables: dict[str, ResourceTable] = {}
        self._marked = 0  # the revision at the last tick; compacted at the next one
        self._tick = clock.monotonic() + compaction_interval
        self._listeners: list[Callable[[ResourceTable, StoreEvent], None]] = []
        self.revision = 1  # etcd's first
        self.compacted = 0

    def table(self, kind: Kind) -> ResourceTable:
        """The table of a storage kind; made when first asked for."""
        table = self._tables.get(kind.qualified)
        if table is None:
            table = self._tables[kind.qualified] = ResourceTable(kind)
        return table

    def find_table(self, qualified: str) -> ResourceTable | None:
        """The table of a resource by its qualified name, if it exists."""
        return self._tables.get(qualified)

    def tables(self) -> list[ResourceTable]:
        """Every table that exists."""
        return list(self._tables.values())

    def listen(self, listener: Callable[[ResourceTable, StoreEvent], None]) -> None:
        """Call `listener` after every change, in order, before the writer goes on."""
        self._listeners.append(listener)

    def put(self, table: ResourceTable, key: str, obj: dict[str, Any]) -> Record:
        """Store `obj` under a new revision, which becomes its resourceVersion."""
        self.revision = revision = self.revision + 1
        record = Record(key, revision, {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}})
        previous = table.records.get(key)
        if previous is None:
            insort(table.keys, key)
        table.records[key] = record
        self._log(table, StoreEvent("ADDED" if previous is None else "MODIFIED", record, previous))
        return record

    def reread(self, table: ResourceTable, convert: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """See every stored object through `convert` from now on. Revisions stay: nothing was written."""
        for key, record in table.records.items():
            converted = convert(record.obj)
            if converted is not record.obj and converted != record.obj:
                table.records[key] = Record(key, record.revision, converted)

    def remove(self, table: ResourceTable, key: str) -> Record:
        """Delete an object; the answer is its last state under the revision of the deletion."""
        previous = table.records.pop(key)
        del table.keys[bisect_left(table.keys, key)]
        self.revision += 1
        record = previous.at(self.revision)
        self._log(table, StoreEvent("DELETED", record, previous))
        return record

    def _log(self, table: ResourceTable, event: StoreEvent) -> None:
        table.events.append(event)
        if self.revision - self.compacted > self._history * 5 // 4:  # in steps, so that trimming costs nothing
            self.compact(self.revision - self._history)
        self.expire()
        for listener in self._listeners:
            listener(table, event)

    def expire(self) -> None:
        """Compact what is older than the compaction interval, as of now."""
        if self._clock.monotonic() >= self._tick:
            self.compact(self._marked)
            self._marked = self.revision
            self._tick = self._clock.monotonic() + self._interval

    def compact(self, revision: int | None = None) -> None:
        """Forget the changes up to `revision` (all of them by default); the current state stays."""
        revision = self.revision if revision is None else min(revision, self.revision)
        if revision <= self.compacted:
            return
        self.compacted = revision
        for table in self._tables.values():
            table.forget(revision)
