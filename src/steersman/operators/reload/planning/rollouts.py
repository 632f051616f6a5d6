"""Rollouts: the last restart of every workload, for which sources it was made, and how far it is. Pure.

    claimed ──patch answered──► started ──status──► available | failed (deadline passed, or its pods cannot start)
       └──patch rejected, or no longer wanted──► as before

A restart is identified by its stamp on the pod template, and its progress by the workload's own status; so a process
that starts knows from its first list which rollouts are in progress. An eviction is identified by its second in the
applied state, and ends when that is gone; a call to pods is a claim for as long as it is tried. Memory only makes this
exact: a restart counts from the moment it is decided, and one that became available stays so, whatever happens to its
pods later.
"""

from __future__ import annotations

import re
from contextlib import suppress
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from steersman.clock import moved_along
from steersman.errors import FormatError
from steersman.kube.api.times import parse_time
from steersman.operators.reload.api.annotations import APPLIED, RESTARTED_AT, RESTARTED_FOR
from steersman.operators.reload.api.config import SourceRef, WorkloadId
from steersman.operators.reload.planning.state import read_state
from steersman.operators.reload.workloads.rollout_status import Phase, RolloutProgress

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from steersman.operators.reload.workloads.workload import Workload

PROGRESSING: Final = RolloutProgress(Phase.PROGRESSING)
EVICTION: Final = "evicting pods of before "  # the stamp of one
FIRST_READ: Final = 30.0  # seconds from a restart to the first read of its pods
_ROUNDING: Final = 0.001  # seconds; stamps have microseconds


class TrackedRollout(msgspec.Struct, frozen=True, kw_only=True):
    """One restart."""

    stamp: str = ""  # when it was made, as it is written; "" while the patch is on its way
    started: float = 0.0  # seconds since the epoch
    cause: str = ""  # the sources it was for: `configmap/app#mode secret/db`
    sources: frozenset[SourceRef] = frozenset()
    progress: RolloutProgress = PROGRESSING
    deadline_seconds: float = 600.0
    moved: float = 0.0  # when the last pod was evicted: the deadline counts from there
    shift: float = 0.0  # by how much the wall clock was set since: durations stay right
    waits: str = ""  # what it waits for now, where known
    issue: str = ""  # why its pods do not start
    pods_read: float = 0.0  # how many seconds after its start its pods were last considered…
    pods_version: str = ""  # …and the resourceVersion of the workload then
    revision: int = 0  # resourceVersion of the workload as the restart left it; older objects are ignored
    ended: float | None = None  # when its outcome was noticed
    reported: Phase | None = None  # the outcome that was reported; that of an earlier process counts as reported

    @property
    def evicts(self) -> bool:
        """Whether its pods are evicted one by one."""
        return self.stamp.startswith(EVICTION)

    @property
    def began(self) -> float:
        """When it was made, by the wall clock as it is set now."""
        return self.started + self.shift

    @property
    def expires(self) -> float:
        """When it has failed, if nothing moves until then."""
        return max(self.started, self.moved) + self.shift + self.deadline_seconds

    @property
    def pods_due(self) -> float:
        """When its pods are considered next: each pause is as long as the rollout has taken by then."""
        return self.began + max(FIRST_READ, 2 * self.pods_read)

    def phase(self, now: float) -> Phase:
        """Its phase."""
        said = self.progress.phase
        if said is Phase.PROGRESSING and (self.issue or now >= self.expires):
            return Phase.FAILED
        return said

    def reason(self, now: float) -> str:
        """Why it failed; empty when it did not."""
        if self.phase(now) is not Phase.FAILED:
            return ""
        if self.issue:
            return self.issue
        detail = f"waiting {self.waits}" if self.waits else self.progress
        return self.progress.reason or f"not available after {self.deadline_seconds:g} s ({detail})"


class Rollouts:
    """All rollouts, by workload."""

    def __init__(self) -> None:
        self._all: dict[WorkloadId, TrackedRollout] = {}
        self._before: dict[WorkloadId, TrackedRollout | None] = {}  # of those claimed, in case the patch is refused
        self._open: dict[WorkloadId, TrackedRollout] = {}  # those that are not available
        self._by_source: dict[SourceRef, set[WorkloadId]] = {}  # the open ones
        self._failed: set[WorkloadId] = set()  # those of the open ones that say so, or whose deadline has passed
        self._deadlines: list[tuple[float, WorkloadId]] = []  # a heap; of restarts that have ended too
        self._due: dict[WorkloadId, float] = {}  # which of them is already in there
        self._steps: tuple[tuple[float, float], ...] = ()  # by which the wall clock was set forward

    def get(self, workload: WorkloadId) -> TrackedRollout | None:
        """The last restart of a workload."""
        return self._all.get(workload)

    def open(self) -> Iterator[tuple[WorkloadId, TrackedRollout]]:
        """Those that are not available: under way, or failed."""
        return iter(tuple(self._open.items()))

    def open_for(self, source: SourceRef) -> Iterable[WorkloadId]:
        """Whose restart for that source is not available."""
        return sorted(self._by_source.get(source, ()))

    def failed_for(self, source: SourceRef, now: float) -> Iterable[WorkloadId]:
        """Whose restart for that source has failed; costs next to nothing while none has, however many there are."""
        while self._deadlines and self._deadlines[0][0] <= now:
            due, workload = heappop(self._deadlines)
            if self._due.get(workload) == due:
                del self._due[workload]
            late = self._open.get(workload)
            if late is not None and late.phase(now) is Phase.FAILED:
                self._failed.add(workload)
        return sorted(self._failed & self._by_source.get(source, set())) if self._failed else ()

    def under_way(
        self, now: float, namespace: str | None = None, *, besides: WorkloadId | None = None, longest: float = inf
    ) -> int:
        """How many there are at once, not counting that of one workload, nor those that take longer than `longest`."""
        return sum(
            rollout.phase(now) is Phase.PROGRESSING
            and now < max(rollout.began, rollout.moved + rollout.shift) + longest
            for workload, rollout in self._open.items()
            if workload != besides and (namespace is None or workload.namespace == namespace)
        )

    # -- events ----------------------------------------------------------------------------------------------------

    def clock_set(self, seconds: float, steps: tuple[tuple[float, float], ...]) -> None:
        """The wall clock was set, of all `steps` forward: what is under way has the time left that it had."""
        self._steps = steps
        for workload, rollout in self.open():
            ended = None if rollout.ended is None else rollout.ended + seconds
            self._put(workload, replace(rollout, shift=rollout.shift + seconds, ended=ended))

    def claim(
        self, workload: WorkloadId, *, now: float, cause: str, sources: Iterable[SourceRef], deadline_seconds: float
    ) -> None:
        """A restart is about to be made, or is tried again."""
        known, again = self._all.get(workload), workload in self._before
        if not again:
            self._before[workload] = known
        shift = 0.0
        if again and known is not None:
            now, shift = known.started, known.shift
        self._put(
            workload,
            TrackedRollout(
                started=now, shift=shift, cause=cause, sources=frozenset(sources), deadline_seconds=deadline_seconds
            ),
        )

    def start(self, workload: WorkloadId, seen: Workload | None) -> None:
        """The restart was made; `seen` is the workload as it was written, None where nothing can be followed."""
        self._before.pop(workload, None)
        claimed = self._all.get(workload)
        if claimed is None or claimed.stamp:
            return  # the watch was faster than the answer
        sign = None if seen is None else _sign(seen)
        if seen is None or sign is None or not sign.stamp:
            self._put(workload, replace(claimed, progress=RolloutProgress(), reported=Phase.AVAILABLE))
        else:
            self._put(workload, replace(claimed, stamp=sign.stamp, revision=_number(seen), progress=sign.progress))

    def release(self, workload: WorkloadId) -> None:
        """The restart was not made, or is no longer wanted; nothing when there is no claim."""
        if workload in self._before:
            before = self._before.pop(workload)
            if before is None:
                self.forget(workload)
            else:
                self._put(workload, before)

    def set_waiting(self, workload: WorkloadId, waits: str, moved: float | None = None) -> None:
        """What a rollout in progress waits for, and when something moved if it just did."""
        known = self._open.get(workload)
        if known is not None:
            moved = known.moved if moved is None else moved - known.shift
            self._put(workload, replace(known, waits=waits, moved=moved))

    def observe(self, workload: WorkloadId, seen: Workload, *, deadline_seconds: float) -> bool:
        """A watch has shown the workload; returns whether its rollout reached another phase."""
        known, sign = self._all.get(workload), _sign(seen)
        if known is not None and workload in self._before:
            if sign.stamp and sign.started >= known.started - _ROUNDING:
                self._put(workload, replace(known, stamp=sign.stamp, revision=_number(seen), progress=sign.progress))
            return False
        if known is not None and known.stamp != sign.stamp and _number(seen) < known.revision:
            return False  # older than the restart
        if known is not None and known.evicts and sign.stamp != known.stamp and sign.started <= known.started:
            over = known.progress.phase is not Phase.AVAILABLE
            if over:
                self._put(workload, replace(known, progress=RolloutProgress()))
            return over
        if not sign.stamp:
            self.forget(workload)
            return known is not None
        if known is None or known.stamp != sign.stamp:
            made = TrackedRollout(
                stamp=sign.stamp,
                started=sign.started,
                shift=moved_along(sign.started, self._steps) - sign.started,
                cause=sign.cause,
                sources=_sources(sign.cause, seen),
                progress=sign.progress,
                deadline_seconds=deadline_seconds,
                revision=_number(seen),
            )
            available = made.progress.phase is Phase.AVAILABLE
            self._put(workload, replace(made, reported=Phase.AVAILABLE) if available else made)
            return not available
        if known.progress.phase is Phase.AVAILABLE or known.progress == sign.progress:
            return False
        self._put(workload, replace(known, progress=sign.progress))
        return known.progress.phase is not sign.progress.phase

    def set_issue(self, workload: WorkloadId, issue: str) -> None:
        """Why its pods do not start; empty: they do."""
        known = self._all.get(workload)
        if known is not None:
            self._put(workload, replace(known, issue=issue))

    def set_pods_read(self, workload: WorkloadId, now: float, version: str) -> None:
        """Its pods were considered when the workload had that resourceVersion."""
        known = self._all.get(workload)
        if known is not None:
            self._put(workload, replace(known, pods_read=now - known.began, pods_version=version))

    def outcome(self, workload: WorkloadId, now: float) -> TrackedRollout | None:
        """A restart that has ended, once per outcome; one that failed may become available yet."""
        known = self._all.get(workload)
        phase = Phase.PROGRESSING if known is None else known.phase(now)
        if known is None or phase in (Phase.PROGRESSING, known.reported):
            return None
        ended = replace(known, ended=now, reported=phase)
        self._put(workload, ended)
        return ended

    def forget(self, workload: WorkloadId) -> None:
        """The workload no longer exists."""
        self._close(workload)
        self._all.pop(workload, None)

    # -- the machinery -------------------------------------------------------------------------------------------------

    def _put(self, workload: WorkloadId, rollout: TrackedRollout) -> None:
        self._close(workload)
        self._all[workload] = rollout
        if rollout.progress.phase is not Phase.AVAILABLE:
            self._open[workload] = rollout
            if rollout.phase(rollout.began) is Phase.FAILED:
                self._failed.add(workload)
            elif self._due.get(workload) != (due := rollout.expires):
                self._due[workload] = due
                heappush(self._deadlines, (due, workload))
            for source in rollout.sources:
                self._by_source.setdefault(source, set()).add(workload)

    def _close(self, workload: WorkloadId) -> None:
        self._failed.discard(workload)
        for source in getattr(self._open.pop(workload, None), "sources", ()):
            users = self._by_source[source]
            users.discard(workload)
            if not users:
                del self._by_source[source]


class _Sign(msgspec.Struct, frozen=True):
    """What a workload shows of its last restart."""

    stamp: str  # "": there was none
    started: float
    cause: str
    progress: RolloutProgress


def _sign(seen: Workload) -> _Sign:
    text = seen.annotations.get(APPLIED, "")
    state = read_state(text).applied if '"e":' in text else None  # all but the few that are being evicted cost nothing
    if state is not None and state.evict:
        cause = state.history[-1].cause if state.history else ""
        return _Sign(f"{EVICTION}{state.evict}", float(state.evict), cause, PROGRESSING)
    stamp = seen.facts.template_annotations.get(RESTARTED_AT, "") or seen.facts.restart_at
    cause = seen.facts.template_annotations.get(RESTARTED_FOR, "")
    return _Sign(stamp, _time(stamp) if stamp else 0.0, cause, seen.facts.progress)


_CUT: Final = re.compile(r"(…|\band \d+ more)$")  # a list that did not fit


def _sources(cause: str, seen: Workload) -> frozenset[SourceRef]:
    """The sources that a rollout is for; where the list was cut, all that the workload is known to use."""
    words = [word.partition("#")[0] for word in cause.split()]
    if _CUT.search(cause):
        state = read_state(seen.annotations.get(APPLIED)).applied
        words += () if state is None else state.sources
    found = set()
    for word in words:
        with suppress(FormatError):  # "and 3 more"
            found.add(SourceRef.parse(word, seen.namespace))
    return frozenset(found)


def _time(stamp: str) -> float:
    try:
        return parse_time(stamp).timestamp()
    except FormatError:
        return 0.0


def _number(seen: Workload) -> int:
    revision = seen.metadata.resource_version
    return int(revision) if revision.isdecimal() else 0
