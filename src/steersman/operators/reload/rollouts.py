"""Restarts that are followed: what was begun, for which sources, and how it goes. Pure values, one book.

A restart is known by its stamp on the pod template, and its progress by the workload's own status, so a process that
starts anew knows from its first list which rollouts are under way. An eviction is known by its second in the applied
state, and is over when that is gone; a call is one while it is claimed, however often it is tried. What is kept in
memory only makes that exact: a restart counts from the moment it is decided, and one that became available stays so,
whatever happens to its pods later.

    claimed ──patch answered──► started ──status──► available | failed (deadline passed, or what pods say)
       └──patch refused, or no longer wanted──► as before
"""

from __future__ import annotations

import re
from contextlib import suppress
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from steersman.errors import FormatError
from steersman.kube.times import parse_time
from steersman.operators.reload.progress import Phase, Progress
from steersman.operators.reload.state import read_state
from steersman.operators.reload.types import APPLIED, RESTARTED_AT, RESTARTED_FOR, SourceRef, WorkloadId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from steersman.operators.reload.workloads import Workload

__all__ = ["Rollout", "Rollouts"]

PROGRESSING: Final = Progress(Phase.PROGRESSING)
EVICTION: Final = "evicting pods of before "  # the stamp of one
_ROUNDING: Final = 0.001  # seconds; stamps have microseconds


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """One restart."""

    stamp: str = ""  # when it was made, as it is written; "" while the patch is on its way
    started: float = 0.0  # seconds since the epoch
    told: str = ""  # the sources it was for: `configmap/app#mode secret/db`
    sources: frozenset[SourceRef] = frozenset()
    progress: Progress = PROGRESSING
    deadline_seconds: float = 600.0
    moved: float = 0.0  # when the last of its pods went, where they go one by one: its deadline counts from there
    waits: str = ""  # what it waits for now, where somebody knows
    trouble: str = ""  # what its pods say
    revision: int = 0  # of the workload as the restart left it; older news are no news
    ended: float | None = None  # when its outcome was noticed
    reported: Phase | None = None  # the outcome that people were told; one of before this process is taken as told

    @property
    def evicts(self) -> bool:
        """Whether its pods are evicted one by one."""
        return self.stamp.startswith(EVICTION)

    @property
    def expires(self) -> float:
        """When it has failed, if nothing moves until then."""
        return max(self.started, self.moved) + self.deadline_seconds

    def phase(self, now: float) -> Phase:
        """Where it stands."""
        said = self.progress.phase
        if said is Phase.PROGRESSING and (self.trouble or now >= self.expires):
            return Phase.FAILED
        return said

    def reason(self, now: float) -> str:
        """Why it failed; empty when it did not."""
        if self.phase(now) is not Phase.FAILED:
            return ""
        if self.trouble:
            return self.trouble
        stands = f"it waits {self.waits}" if self.waits else self.progress
        return self.progress.reason or f"not available after {self.deadline_seconds:g} s ({stands})"


class Rollouts:
    """The book of them, by workload."""

    def __init__(self) -> None:
        self._all: dict[WorkloadId, Rollout] = {}
        self._before: dict[WorkloadId, Rollout | None] = {}  # of those claimed, in case the patch is refused
        self._open: dict[WorkloadId, Rollout] = {}  # those that are not available
        self._by_source: dict[SourceRef, set[WorkloadId]] = {}  # the open ones
        self._failed: set[WorkloadId] = set()  # those of the open ones that say so, or whose deadline has passed
        self._deadlines: list[tuple[float, WorkloadId]] = []  # a heap; of restarts that have ended too
        self._due: dict[WorkloadId, float] = {}  # which of them is already in there

    def get(self, workload: WorkloadId) -> Rollout | None:
        """The last restart of a workload."""
        return self._all.get(workload)

    def open(self) -> Iterator[tuple[WorkloadId, Rollout]]:
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

    def under_way(self, now: float, namespace: str | None = None, *, besides: WorkloadId | None = None) -> int:
        """How many there are at once, not counting that of one workload."""
        return sum(
            one.phase(now) is Phase.PROGRESSING
            for workload, one in self._open.items()
            if workload != besides and (namespace is None or workload.namespace == namespace)
        )

    # -- what happens --------------------------------------------------------------------------------------------------

    def claim(
        self, workload: WorkloadId, *, now: float, told: str, sources: Iterable[SourceRef], deadline_seconds: float
    ) -> None:
        """A restart is about to be made, or is tried again."""
        known = self._all.get(workload)
        if workload not in self._before:
            self._before[workload] = known
        elif known is not None:
            now = known.started
        self._put(
            workload,
            Rollout(started=now, told=told, sources=frozenset(sources), deadline_seconds=deadline_seconds),
        )

    def started(self, workload: WorkloadId, seen: Workload | None) -> None:
        """The restart was made; `seen` is the workload as it was written, None where nothing can be followed."""
        self._before.pop(workload, None)
        claimed = self._all.get(workload)
        if claimed is None or claimed.stamp:
            return  # the watch was faster than the answer
        sign = None if seen is None else _sign(seen)
        if seen is None or sign is None or not sign.stamp:
            self._put(workload, replace(claimed, progress=Progress(), reported=Phase.AVAILABLE))
        else:
            self._put(workload, replace(claimed, stamp=sign.stamp, revision=_number(seen), progress=sign.progress))

    def released(self, workload: WorkloadId) -> None:
        """The restart was not made, or is no longer wanted; nothing when there is no claim."""
        if workload in self._before:
            before = self._before.pop(workload)
            if before is None:
                self.forget(workload)
            else:
                self._put(workload, before)

    def going_on(self, workload: WorkloadId, waits: str, moved: float | None = None) -> None:
        """What one that is under way waits for, and when something moved if it just did."""
        known = self._open.get(workload)
        if known is not None:
            self._put(workload, replace(known, waits=waits, moved=known.moved if moved is None else moved))

    def saw(self, workload: WorkloadId, seen: Workload, *, deadline_seconds: float) -> bool:
        """A watch has shown the workload; returns whether that changes where its restart stands."""
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
                self._put(workload, replace(known, progress=Progress()))
            return over
        if not sign.stamp:
            self.forget(workload)
            return known is not None
        if known is None or known.stamp != sign.stamp:
            made = Rollout(
                stamp=sign.stamp,
                started=sign.started,
                told=sign.told,
                sources=_sources(sign.told, seen),
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

    def troubled(self, workload: WorkloadId, trouble: str) -> None:
        """Its pods say why it will not become available; empty: they no longer do."""
        known = self._all.get(workload)
        if known is not None:
            self._put(workload, replace(known, trouble=trouble))

    def outcome(self, workload: WorkloadId, now: float) -> Rollout | None:
        """A restart that has ended, once per outcome; one that failed may become available yet."""
        known = self._all.get(workload)
        phase = Phase.PROGRESSING if known is None else known.phase(now)
        if known is None or phase in (Phase.PROGRESSING, known.reported):
            return None
        ended = replace(known, ended=now, reported=phase)
        self._put(workload, ended)
        return ended

    def forget(self, workload: WorkloadId) -> None:
        """Nothing is known of it any more."""
        self._close(workload)
        self._all.pop(workload, None)

    # -- the machinery -------------------------------------------------------------------------------------------------

    def _put(self, workload: WorkloadId, rollout: Rollout) -> None:
        self._close(workload)
        self._all[workload] = rollout
        if rollout.progress.phase is not Phase.AVAILABLE:
            self._open[workload] = rollout
            if rollout.phase(rollout.started) is Phase.FAILED:
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
    told: str
    progress: Progress


def _sign(seen: Workload) -> _Sign:
    text = seen.annotations.get(APPLIED, "")
    state = read_state(text).applied if '"e":' in text else None  # all but the few that are being evicted cost nothing
    if state is not None and state.evict:
        told = state.history[-1].told if state.history else ""
        return _Sign(f"{EVICTION}{state.evict}", float(state.evict), told, PROGRESSING)
    stamp = seen.facts.template_annotations.get(RESTARTED_AT, "") or seen.facts.restart_at
    told = seen.facts.template_annotations.get(RESTARTED_FOR, "")
    return _Sign(stamp, _time(stamp) if stamp else 0.0, told, seen.facts.progress)


_CUT: Final = re.compile(r"(…|\band \d+ more)$")  # a list that did not fit


def _sources(told: str, seen: Workload) -> frozenset[SourceRef]:
    """The sources that a rollout is for; where the list was cut, all that the workload is known to use."""
    words = [word.partition("#")[0] for word in told.split()]
    if _CUT.search(told):
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
