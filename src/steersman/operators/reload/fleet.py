"""The fleet: all workloads of all kinds together, as far as one must know of another. One per process.

Every look leaves its *standing* here: the policy of a workload, its edges, and what holds it back. Who goes before whom
is decided from these. Two looks at different workloads come in any order, so a change marks everybody it touches as
*not looked at*, before any of them is looked at; until the marks are gone nobody concludes anything from the standings
of others. Whoever is marked is in the queue, and a mark goes when its reconcile ends, however that ends: a look that
came to nothing must hold up nobody. A mark that came meanwhile stays, since another look is due for it.

Waiting has no circles. A dependency that leads back to whoever asks is left out, and whom others depend on goes no
later than they do, whatever wave it has itself (`_rank`): so along a chain of those that wait for each other the wave
never rises, and within a wave only dependencies are followed. Nobody's reason repeats another's: it names who is waited
for.

Nothing here must survive: standings come back with the first looks, rollouts with the first list.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.operators.reload.changes import Change
from steersman.operators.reload.edges import Edge
from steersman.operators.reload.gates import Closed, Moment, Policy
from steersman.operators.reload.progress import Phase
from steersman.operators.reload.rollouts import Rollouts
from steersman.operators.reload.state import Past
from steersman.operators.reload.types import APPROVE, DEPENDS_ON, OnFailure, SourceRef, WorkloadId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from steersman.kube.resources import ObjectRef
    from steersman.operators.reload.workloads import Workload

__all__ = ["Fleet", "Standing"]

RECHECK: Final = 5.0  # seconds between two looks of one that waits for others, in case nobody wakes it
SOON: Final = 0.25  # seconds, while somebody else is just being looked at
LISTED: Final = 30.0  # seconds after which every kind that is there has been listed
WOKEN: Final = 32  # at once: those that wait are many, and few of them may go
SOFT: Final = frozenset({"window", "wave", "depends-on", "concurrency"})  # gates that open by themselves
WAITING: Final = frozenset({"halt", "wave", "depends-on", "concurrency"})  # gates that others open


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What the last look at a workload found."""

    policy: Policy
    edges: tuple[Edge, ...] = ()
    changes: tuple[Change, ...] = ()  # that wait
    digests: dict[SourceRef, str] = {}  # of these, as an approval names them
    gate: str = ""
    reason: str = ""
    waits_for: WorkloadId | None = None  # when the gate is about another one
    due: float | None = None
    since: float = 0.0  # when the first of the changes was seen, in seconds since the epoch
    history: tuple[Past, ...] = ()


class _Mark(msgspec.Struct, frozen=True, gc=False):
    """Not looked at yet."""

    number: int
    source: SourceRef | None = None  # what touched it; None: it may use anything


class Fleet:
    """See the module; it is the `gates.Company` of every workload."""

    def __init__(self) -> None:
        self.rollouts = Rollouts()
        self.wakers: dict[str, Callable[[ObjectRef], None]] = {}  # by kind: have it looked at
        self._standings: dict[str, dict[WorkloadId, Standing]] = {}  # by namespace
        self._unlooked: dict[str, dict[WorkloadId, _Mark]] = {}  # by namespace
        self._marks = 0
        self._seen: set[WorkloadId] = set()  # whatever a watch has shown, whether or not it takes part
        self._began: float | None = None  # when the first look was, on the monotonic clock
        self._waves: Counter[int] = Counter()
        self._dependents: dict[WorkloadId, set[WorkloadId]] = {}  # who names it as a dependency
        self._refs: dict[WorkloadId, ObjectRef] = {}
        self._touched: dict[SourceRef, tuple[str, set[WorkloadId]]] = {}  # whom a change with this digest concerns

    # -- what happens --------------------------------------------------------------------------------------------------

    def saw(self, me: WorkloadId, workload: Workload, *, fresh: bool) -> bool:
        """A watch has shown a workload; returns whether its rollout ended or began to be something else."""
        self._seen.add(me)
        if fresh:
            self._mark(me)
        standing = self.standing(me)
        deadline = standing.policy.deadline if standing is not None else Policy().deadline
        return self.rollouts.saw(me, workload, deadline_seconds=deadline.total_seconds())

    def touched(self, workloads: Iterable[WorkloadId], source: SourceRef | None = None) -> None:
        """Something changed that these depend on, a source or anything else: all of them will be looked at."""
        for one in workloads:
            self._mark(one, source)

    def looked(self, me: WorkloadId, ref: ObjectRef, standing: Standing | None) -> None:
        """A look is over; None: the workload takes no part."""
        self._unmark(me)
        self._drop(me)
        if standing is None:
            return
        self._refs[me] = ref
        self._standings.setdefault(me.namespace, {})[me] = standing
        self._waves[standing.policy.wave] += 1
        for one in standing.policy.depends:
            self._dependents.setdefault(one, set()).add(me)
        for source, digest in standing.digests.items():
            known = self._touched.get(source)
            if known is None or known[0] != digest:
                known = self._touched[source] = (digest, set())
            known[1].add(me)

    def mark_of(self, me: WorkloadId) -> int | None:
        """The number of its mark, when it is not looked at yet."""
        mark = self._unlooked.get(me.namespace, {}).get(me)
        return None if mark is None else mark.number

    def settled(self, me: WorkloadId, mark: int | None) -> None:
        """The reconcile that began under this mark is over, with or without a look."""
        if mark is not None and self.mark_of(me) == mark:
            self._unmark(me)

    def gone(self, me: WorkloadId) -> None:
        """A workload no longer exists."""
        self._unmark(me)
        self._drop(me)
        self._refs.pop(me, None)
        self._seen.discard(me)
        self.rollouts.forget(me)
        for source, (_, concerned) in list(self._touched.items()):
            concerned.discard(me)
            if not concerned:
                del self._touched[source]

    def wake(self) -> None:
        """Have those looked at that wait for others, the lowest waves first."""
        waiting = [
            (standing.policy.wave, me)
            for members in self._standings.values()
            for me, standing in members.items()
            if standing.gate in WAITING
        ]
        for _, me in sorted(waiting)[:WOKEN]:
            waker = self.wakers.get(me.kind)
            if waker is not None:
                waker(self._refs[me])

    # -- what is known -------------------------------------------------------------------------------------------------

    def standing(self, me: WorkloadId) -> Standing | None:
        """What the last look at it found; None for one that takes no part."""
        return self._standings.get(me.namespace, {}).get(me)

    def standings(self) -> list[tuple[WorkloadId, Standing]]:
        """All of them, in order."""
        return sorted(
            ((me, standing) for members in self._standings.values() for me, standing in members.items()),
            key=lambda row: row[0],
        )

    def concerned(self, source: SourceRef, digest: str) -> frozenset[WorkloadId]:
        """Whom the change of a source to what has this digest restarts, or has restarted."""
        known = self._touched.get(source)
        return frozenset(known[1]) if known is not None and known[0] == digest else frozenset()

    def problems(self, me: WorkloadId, policy: Policy, now: Moment) -> tuple[str, ...]:
        """What is wrong with its dependencies: those that do not exist, lead back to itself, or have a later wave."""
        if not policy.depends:
            return ()
        listed = self.in_doubt(me, policy, now) is None
        return tuple(text for one in policy.depends if (text := self._problem(me, policy, one, listed=listed)))

    def in_doubt(self, me: WorkloadId, policy: Policy, now: Moment) -> float | None:
        """When it will be known whether all dependencies exist, in seconds since the epoch; None: it is known.

        Kinds are listed one by one, and those that nobody has seen a while after the first look are not there.
        """
        if self._began is None:
            self._began = now.tick
        known = self._began + LISTED <= now.tick or me not in self._seen or self._seen.issuperset(policy.depends)
        return None if known else now.wall + self._began + LISTED - now.tick

    def _problem(self, me: WorkloadId, policy: Policy, one: WorkloadId, *, listed: bool) -> str:
        if one == me:
            return f"{DEPENDS_ON}: it depends on itself; this dependency is left out"
        if self._leads_to(one, me):
            return f"{DEPENDS_ON}: {one.title} depends on {me.title} in turn; this dependency is left out"
        if listed and me in self._seen and one not in self._seen:
            return f"{DEPENDS_ON}: {one.title} does not exist, or its kind is not watched; nobody waits for it"
        standing = self.standing(one)
        if standing is not None and standing.policy.wave > policy.wave:
            late, early = standing.policy.wave, policy.wave
            return (
                f"{DEPENDS_ON}: {one.title} has wave {late}, after wave {early} of {me.title}; it goes with the earlier"
            )
        return ""

    # -- the company of one workload -----------------------------------------------------------------------------------

    def needs_approval(
        self, me: WorkloadId, policy: Policy, digests: Mapping[SourceRef, str], now: Moment
    ) -> Closed | None:
        """See `gates.Company`."""
        if not digests:
            return None
        if self._may_touch(me, digests):
            return Closed(gate="window", reason="others that may be touched are looked at", due=now.wall + SOON)
        guard = policy.guard
        for source, digest in sorted(digests.items()):
            touched = self.concerned(source, digest) | {me}
            here = sum(one.namespace == me.namespace for one in touched)
            share = 100.0 * here / max(1, len({*self._standings.get(me.namespace, ()), me}))
            many = bool(guard.workloads) and len(touched) > guard.workloads
            much = bool(guard.percent) and here > 1 and share > guard.percent
            if many or much:
                told = f"{len(touched)} workloads" if many else f"{share:.0f}% of namespace {me.namespace}"
                name = source.seen_from(me.namespace)
                return Closed(
                    gate="approval",
                    reason=f"{name} restarts {told}, more than {guard}: approve it with {APPROVE}: {digest}",
                )
        return None

    def goes_before(self, me: WorkloadId, policy: Policy, sources: Collection[SourceRef], now: Moment) -> Closed | None:
        """See `gates.Company`."""
        return (
            self._halted(me, sources, now)
            or self._dependency(me, policy, now)
            or self._lower_wave(me, policy, frozenset(sources), now)
        )

    def has_room(self, me: WorkloadId, policy: Policy, now: Moment) -> Closed | None:
        """See `gates.Company`."""
        for limit, where, namespace in (
            (policy.max_concurrent, f"in namespace {me.namespace}", me.namespace),
            (policy.max_concurrent_cluster, "in the cluster", None),
        ):
            if limit and self.rollouts.under_way(now.wall, namespace, besides=me) >= limit:
                reason = f"at most {limit} rollouts at once {where}"
                return Closed(gate="concurrency", reason=reason, due=now.wall + RECHECK)
        return None

    def outcome(self, me: WorkloadId, now: Moment) -> tuple[str, int | None]:
        """How the last restart of a workload ended: available, failed: REASON, or replaced by the next one."""
        rollout = self.rollouts.get(me)
        if rollout is None:
            return "", None
        phase = rollout.phase(now.wall)
        seconds = None if rollout.ended is None else round(rollout.ended - rollout.started)
        if phase is Phase.FAILED:
            return f"failed: {rollout.reason(now.wall)}", seconds
        return ("available", seconds) if phase is Phase.AVAILABLE else ("replaced", None)

    # -- who goes first ------------------------------------------------------------------------------------------------

    def _halted(self, me: WorkloadId, sources: Collection[SourceRef], now: Moment) -> Closed | None:
        for source in sources:
            for other in self.rollouts.failed_for(source, now.wall):
                failed = self._failure(other, now)
                if other == me or failed is None or self._waits_for(other, source):
                    continue
                name = other.seen_from(me.namespace)
                return Closed(
                    gate="halt", reason=f"{name} failed for the same change: {failed}", due=now.wall + RECHECK
                )
        return None

    def _dependency(self, me: WorkloadId, policy: Policy, now: Moment) -> Closed | None:
        for other in policy.depends:
            if self._leads_to(other, me):
                continue
            why = self._unfinished(other, now)
            if why is not None:
                due = now.wall + (SOON if self._is_unlooked(other) else RECHECK)
                reason = f"{other.seen_from(me.namespace)} goes first: {why}"
                return Closed(gate="depends-on", reason=reason, due=due, waits_for=other)
        return None

    def _lower_wave(self, me: WorkloadId, policy: Policy, sources: frozenset[SourceRef], now: Moment) -> Closed | None:
        wave = self._rank(me, policy.wave)
        lower = any(count and one < wave for one, count in self._waves.items())
        if not lower and wave <= 0:
            return None  # whoever has not been looked at yet has wave 0 as far as anybody knows
        for other in self._yet_to_look(me, sources):
            standing = self.standing(other)
            if self._rank(other, 0 if standing is None else standing.policy.wave) < wave:
                reason = f"{other.seen_from(me.namespace)} is looked at first"
                return Closed(gate="wave", reason=reason, due=now.wall + SOON, waits_for=other)
        if not lower:
            return None
        for other, standing in self._others(me, sources):
            rank = self._rank(other, standing.policy.wave)
            if rank >= wave:
                continue
            same_change = not sources.isdisjoint(change.source for change in standing.changes)
            if standing.gate and standing.gate not in SOFT and not same_change:
                continue  # it cannot go, and that is no business of this change
            failed = self._failure(other, now)
            why = None if failed is not None else self._unfinished(other, now)
            if why is not None:
                reason = f"wave {rank} goes first: {other.seen_from(me.namespace)}: {why}"
                return Closed(gate="wave", reason=reason, due=now.wall + RECHECK, waits_for=other)
        return None

    def _rank(self, one: WorkloadId, wave: int) -> int:
        """The wave with which it goes: its own, or the lowest of those that depend on it, if that is lower."""
        seen, ahead = {one}, [*self._dependents.get(one, ())]
        while ahead:
            here = ahead.pop()
            standing = self.standing(here)
            if here not in seen and standing is not None:
                seen.add(here)
                wave = min(wave, standing.policy.wave)
                ahead.extend(self._dependents.get(here, ()))
        return wave

    def _others(self, me: WorkloadId, sources: frozenset[SourceRef]) -> Iterable[tuple[WorkloadId, Standing]]:
        """The workloads of its namespace, and those elsewhere that wait or are restarted for the same sources."""
        yield from self._standings.get(me.namespace, {}).items()
        elsewhere = {one for source in sources for one in self.rollouts.open_for(source)}
        elsewhere |= {one for source in sources for one in self._touched.get(source, ("", set()))[1]}
        for one in sorted(elsewhere):
            standing = self.standing(one)
            if one.namespace != me.namespace and standing is not None:
                yield one, standing

    def _unfinished(self, other: WorkloadId, now: Moment) -> str | None:
        """Why another one is not where it should be; None when it is."""
        if self._is_unlooked(other):
            return "it is looked at first"
        standing, rollout = self.standing(other), self.rollouts.get(other)
        if standing is not None and standing.gate:
            goal = standing.waits_for
            told = standing.reason if goal is None else f"for {goal.seen_from(other.namespace)}"
            return f"its restart waits ({told})"
        if rollout is None or rollout.phase(now.wall) is Phase.AVAILABLE:
            return None
        failed = rollout.reason(now.wall)
        if not failed:
            return "it is being restarted"
        return None if self._failure(other, now) is None else f"its restart failed: {failed}"

    def _failure(self, other: WorkloadId, now: Moment) -> str | None:
        """Why the restart of another one failed, if that should stop anybody."""
        rollout, standing = self.rollouts.get(other), self.standing(other)
        if rollout is None or standing is None or standing.policy.on_failure is OnFailure.CONTINUE:
            return None
        return rollout.reason(now.wall) or None

    def _waits_for(self, other: WorkloadId, source: SourceRef) -> bool:
        """Whether the other one has not seen what the source says now: its failure was about something else."""
        standing = self.standing(other)
        waits = standing is not None and any(change.source == source for change in standing.changes)
        return waits or self._is_unlooked(other)

    def _leads_to(self, one: WorkloadId, goal: WorkloadId) -> bool:
        """Whether `one` is `goal`, or depends on it."""
        seen, ahead = set(), [one]
        while ahead:
            here = ahead.pop()
            if here == goal:
                return True
            if here not in seen:
                seen.add(here)
                standing = self.standing(here)
                ahead.extend(standing.policy.depends if standing is not None else ())
        return False

    def _drop(self, me: WorkloadId) -> None:
        before = self._standings.get(me.namespace, {}).pop(me, None)
        if before is not None:
            self._waves[before.policy.wave] -= 1
            for one in before.policy.depends:
                self._dependents[one].discard(me)
                if not self._dependents[one]:
                    del self._dependents[one]

    def _is_unlooked(self, one: WorkloadId) -> bool:
        return self.mark_of(one) is not None

    def _yet_to_look(self, me: WorkloadId, sources: Collection[SourceRef]) -> Iterable[WorkloadId]:
        """Those not looked at yet: all others of its namespace, and whoever elsewhere may use the same sources."""
        shared = any(source.namespace != me.namespace for source in sources)
        for namespace, marked in self._unlooked.items():
            for one, mark in marked.items():
                same = shared if mark.source is None else mark.source in sources
                if one != me and (namespace == me.namespace or same):
                    yield one

    def _may_touch(self, me: WorkloadId, sources: Collection[SourceRef]) -> bool:
        """Whether anybody else, wherever, is not looked at yet and may use one of these sources."""
        return any(
            one != me and (namespace == me.namespace or mark.source is None or mark.source in sources)
            for namespace, marked in self._unlooked.items()
            for one, mark in marked.items()
        )

    def _mark(self, one: WorkloadId, source: SourceRef | None = None) -> None:
        self._marks += 1
        known = self._unlooked.setdefault(one.namespace, {})
        if one in known and known[one].source != source:
            source = None  # by more than one thing
        known[one] = _Mark(self._marks, source)

    def _unmark(self, one: WorkloadId) -> None:
        marked = self._unlooked.get(one.namespace)
        if marked is not None:
            marked.pop(one, None)
            if not marked:
                del self._unlooked[one.namespace]
