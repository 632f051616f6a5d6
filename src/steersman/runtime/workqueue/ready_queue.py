"""The ready queue: which of the ready keys is next.

Keys stand in *lanes*: one lane per priority and partition (namespace), first come first served. The next key comes from

    the highest priority that has keys ─► the partition served least recently ─► the key that has stood longest

so that a namespace with ten thousand changes does not delay the one change of another. Priorities alone would starve
the lowest one; therefore every `TURN`th choice asks the other priorities too, and the one whose next key has waited
longest, if longer than `patience`, is served instead. Invariant: a ready key is chosen after finitely many choices,
whatever else is added. All operations are O(1) amortised in the number of keys.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from operator import neg
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

__all__ = ["TURN", "QueueEntry", "ReadyQueue"]

TURN = 4  # every fourth choice may go to a starved priority
INFINITY = float("inf")
_COMPACT = 64  # withdrawn entries a level may hold before it is worth sweeping them out

K = TypeVar("K", bound="Hashable")


class QueueEntry(Generic[K]):
    """One request to run a key. It belongs to the queue; `lane` is set while it stands here."""

    __slots__ = ("asked", "at", "due", "key", "lane", "priority", "quiet", "since", "ticket")

    def __init__(self, key: K, priority: int) -> None:
        self.key = key
        self.priority = priority
        self.lane: _Lane[K] | None = None
        self.since = 0.0  # when it became ready
        self.at = INFINITY  # the earliest time that was asked for explicitly
        self.quiet = INFINITY  # when it will have been still for long enough
        self.asked: float | None = None  # when the first of the requests being debounced came in
        self.due = INFINITY  # when it may run: the earlier of `at` and `quiet`
        self.ticket: tuple[float, int] | None = None  # its place among those that wait for their time


class _Lane(Generic[K]):
    """The keys of one partition at one priority. Entries that left early stay behind until they reach the front."""

    __slots__ = ("entries", "partition")

    def __init__(self, partition: Hashable) -> None:
        self.partition = partition
        self.entries: deque[QueueEntry[K]] = deque()


class _Level(Generic[K]):
    """The lanes of one priority, in the order in which they will be served."""

    __slots__ = ("lanes", "left", "ring", "size")

    def __init__(self) -> None:
        self.lanes: dict[Hashable, _Lane[K]] = {}
        self.ring: deque[_Lane[K]] = deque()
        self.size = 0  # entries that really stand here
        self.left = 0  # entries that left early and were not swept out yet

    def append(self, entry: QueueEntry[K], partition: Hashable) -> None:
        lane = self.lanes.get(partition)
        if lane is None:
            lane = self.lanes[partition] = _Lane(partition)
            self.ring.append(lane)
        lane.entries.append(entry)
        entry.lane = lane
        self.size += 1

    def withdraw(self, entry: QueueEntry[K]) -> None:
        entry.lane = None
        self.size -= 1
        self.left += 1
        if not self.size:
            self._clear()
        elif self.left > _COMPACT and self.left > self.size:
            for lane in self.ring:
                lane.entries = deque(entry for entry in lane.entries if entry.lane is lane)
            self.left = 0

    def head(self) -> QueueEntry[K]:
        """The next entry; lanes that turn out to be empty are dropped. Only called while `size` > 0."""
        while True:
            lane = self.ring[0]
            entries = lane.entries
            while entries:
                if entries[0].lane is lane:
                    return entries[0]
                entries.popleft()
                self.left -= 1
            self.ring.popleft()
            del self.lanes[lane.partition]

    def pop(self) -> QueueEntry[K]:
        entry = self.head()
        lane = self.ring.popleft()
        lane.entries.popleft()
        if lane.entries:
            self.ring.append(lane)
        else:
            del self.lanes[lane.partition]
        entry.lane = None
        self.size -= 1
        if not self.size:
            self._clear()
        return entry

    def _clear(self) -> None:
        """The lane is empty: keep no state of it."""
        self.lanes.clear()
        self.ring.clear()
        self.left = 0


class ReadyQueue(Generic[K]):
    """The ready keys."""

    __slots__ = ("_choices", "_levels", "_order", "_patience", "_size")

    def __init__(self, *, patience_seconds: float | None = 30.0) -> None:
        """`patience_seconds`: how long a key waits for higher priorities before it is let in between; None: forever."""
        self._patience = patience_seconds
        self._levels: dict[int, _Level[K]] = {}
        self._order: list[int] = []  # priorities that have a level, highest first
        self._choices = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[QueueEntry[K]]:
        """Every entry, highest priority first; for people who look, not for choosing."""
        for priority in self._order:
            for lane in self._levels[priority].ring:
                yield from (entry for entry in lane.entries if entry.lane is lane)

    def depths(self) -> dict[int, int]:
        """How many keys stand at each priority."""
        return {priority: self._levels[priority].size for priority in self._order if self._levels[priority].size}

    def append(self, entry: QueueEntry[K], partition: Hashable, now: float) -> None:
        """Let `entry` stand at the end of its lane; it has been ready since `now`."""
        entry.since = now
        self._enter(entry, partition)

    def promote(self, entry: QueueEntry[K], priority: int) -> None:
        """Move `entry` to the end of its partition's lane at a higher priority; how long it has waited stays."""
        lane = entry.lane
        assert lane is not None
        self.remove(entry)
        entry.priority = priority
        self._enter(entry, lane.partition)

    def pop(self, now: float) -> QueueEntry[K] | None:
        """Choose the next entry and remove it; None when there is none."""
        if not self._size:
            return None
        level = self._choose(now)
        self._size -= 1
        return level.pop()

    def remove(self, entry: QueueEntry[K]) -> None:
        """Let `entry` leave without having had its turn."""
        self._levels[entry.priority].withdraw(entry)
        self._size -= 1

    def clear(self) -> None:
        self._levels.clear()
        self._order.clear()
        self._size = 0

    def _enter(self, entry: QueueEntry[K], partition: Hashable) -> None:
        level = self._levels.get(entry.priority)
        if level is None:
            level = self._levels[entry.priority] = _Level()
            insort(self._order, entry.priority, key=neg)
        level.append(entry, partition)
        self._size += 1

    def _choose(self, now: float) -> _Level[K]:
        order, levels = self._order, self._levels
        while not levels[order[0]].size:
            del levels[order.pop(0)]
        top = levels[order[0]]
        self._choices += 1
        if len(order) == 1 or self._patience is None or self._choices % TURN:
            return top
        starved, waiting_since = top, now - self._patience
        for priority in order[1:]:
            level = levels[priority]
            if level.size and (since := level.head().since) < waiting_since:
                starved, waiting_since = level, since
        return starved
