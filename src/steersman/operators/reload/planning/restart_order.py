"""The restart coordinator: the order of restarts among all workloads of all kinds. One per process.

Every evaluation leaves its `WorkloadState` here: the policy of a workload, its edges, and the gate that blocks it. From
these follow approvals, halts, dependencies, waves and limits. Evaluations of two workloads come in any order, so a
change first *marks* every workload it affects as not evaluated; while a mark stands, nothing is concluded from that
workload's state. A marked workload is in the queue, and its mark goes when its reconcile ends, however that ends. A
mark set meanwhile stays, since another reconcile is due.

Namespaces belong to different people: waves, halts and guards count workloads of another namespace only where both
sides name each other (`order-with`, or an administrator for all). Otherwise a tenant who may use a shared source could
block everyone else who does.

Waiting has no cycles. A dependency that leads back to the workload itself is ignored, and a workload that others depend
on goes no later than they do, whatever its own wave (`_rank`): along a chain of waiting workloads the wave never rises,
and within a wave only dependencies count.

Nothing here must survive a restart: states come back with the first evaluations, rollouts with the first list.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.clock import WallSteps
from steersman.operators.reload.api.annotations import APPROVE, DEPENDS_ON
from steersman.operators.reload.api.config import OnFailure, SourceRef, WorkloadId
from steersman.operators.reload.planning.diff import SourceChange, describe
from steersman.operators.reload.planning.edges import DependencyEdge
from steersman.operators.reload.planning.gates import Blocked, Moment, Policy, change_digest
from steersman.operators.reload.planning.plan import UNDER_WAY, Action
from steersman.operators.reload.planning.rollouts import Rollouts
from steersman.operators.reload.planning.state import Applied, Past
from steersman.operators.reload.workloads.rollout_status import Phase
from steersman.operators.reload.workloads.workload import workload_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from steersman.clock import Clock
    from steersman.kube.api.gvk import NamespacedName
    from steersman.operators.reload.planning.evaluate import Evaluation
    from steersman.operators.reload.workloads.workload import Workload

RECHECK: Final = 5.0  # seconds until a workload that waits for others is evaluated again, in case nothing wakes it
SOON: Final = 0.25  # seconds, while another workload is about to be evaluated
LISTED: Final = 30.0  # seconds after which every kind that the cluster serves has been listed
WOKEN: Final = 32  # workloads at once: many may wait, and few of them may go
SOFT: Final = frozenset({"window", "wave", "depends-on", "concurrency"})  # gates that open by themselves
WAITING: Final = frozenset({"halt", "wave", "depends-on", "concurrency"})  # gates that other workloads open


class WorkloadState(msgspec.Struct, frozen=True, kw_only=True):
    """What the last evaluation of a workload found."""

    policy: Policy
    edges: tuple[DependencyEdge, ...] = ()
    changes: tuple[SourceChange, ...] = ()  # pending
    digests: dict[SourceRef, str] = {}  # of these, as an approval names them
    gate: str = ""
    reason: str = ""
    waits_for: WorkloadId | None = None  # the workload that goes first
    due: float | None = None
    since: float = 0.0  # when the first of the changes was seen, in seconds since the epoch
    history: tuple[Past, ...] = ()

    @classmethod
    def of(cls, evaluation: Evaluation, now: Moment) -> WorkloadState:
        """The state that an evaluation leaves."""
        plan, sources = evaluation.plan, evaluation.sources
        waits = plan.action in (Action.WAIT, Action.RESTART)
        return cls(
            policy=evaluation.policy,
            edges=evaluation.edges.tracked,
            changes=plan.changes if plan.action is Action.WAIT else (),
            digests={
                change.source: change_digest(sources[change.source], evaluation.keys.newest)
                for change in (plan.changes if waits else ())
                if change.source in sources
            },
            gate=plan.gate,
            reason=plan.reason if plan.gate else "",
            waits_for=plan.waits_for,
            due=plan.due,
            since=now.wall - max(0.0, now.tick - plan.observed.first) if plan.gate else 0.0,
            history=(plan.state or plan.observed.applied or Applied()).history,
        )


class _Mark(msgspec.Struct, frozen=True, gc=False):
    """Not evaluated since a change."""

    number: int
    source: SourceRef | None = None  # that changed; None: anything may have


class RestartCoordinator:
    """See the module."""

    def __init__(self) -> None:
        self.rollouts = Rollouts()
        self._steps = WallSteps()
        self.wakers: dict[str, Callable[[NamespacedName], None]] = {}  # by kind: have a workload reconciled
        self._states: dict[str, dict[WorkloadId, WorkloadState]] = {}  # by namespace
        self._marked: dict[str, dict[WorkloadId, _Mark]] = {}  # by namespace
        self._marks = 0
        self._seen: set[WorkloadId] = set()  # every workload that a watch has shown, enrolled or not
        self._began: float | None = None  # when the first evaluation was, on the monotonic clock
        self._waves: Counter[int] = Counter()
        self._dependents: dict[WorkloadId, set[WorkloadId]] = {}  # the workloads that name it in depends-on
        self._refs: dict[WorkloadId, NamespacedName] = {}
        self._affected: dict[SourceRef, tuple[str, set[WorkloadId]]] = {}  # by a change with this digest

    # -- events --------------------------------------------------------------------------------------------------------

    def moment(self, clock: Clock) -> Moment:
        """Now; deadlines of rollouts in progress are shifted when the wall clock was set since the last call."""
        wall, tick = clock.time(), clock.monotonic()
        if step := self._steps.notice(wall, tick):
            self.rollouts.clock_set(step, self._steps.forward)
        return Moment(wall=wall, tick=tick, steps=self._steps.forward)

    def observe(self, me: WorkloadId, workload: Workload, *, is_new: bool) -> bool:
        """A watch has shown a workload; returns whether its rollout reached another phase."""
        self._seen.add(me)
        if is_new:
            self._mark(me)
        state = self.state_of(me)
        deadline = state.policy.deadline if state is not None else Policy().deadline
        return self.rollouts.observe(me, workload, deadline_seconds=deadline.total_seconds())

    def mark(self, workloads: Iterable[WorkloadId], source: SourceRef | None = None) -> None:
        """Something changed that these workloads depend on, a source or anything else: all will be evaluated."""
        for workload in workloads:
            self._mark(workload, source)

    def mark_of(self, me: WorkloadId) -> int | None:
        """The number of its mark; None when it is evaluated."""
        mark = self._marked.get(me.namespace, {}).get(me)
        return None if mark is None else mark.number

    def unmark(self, me: WorkloadId, mark: int | None) -> None:
        """The reconcile that began under this mark is over, with or without an evaluation."""
        if mark is not None and self.mark_of(me) == mark:
            self._unmark(me)

    def record(self, evaluation: Evaluation, now: Moment, *, acts: bool = True) -> None:
        """Keep what an evaluation found, and claim the restart it asks for; `acts`: the restart will be made."""
        me, plan = workload_id(evaluation.workload), evaluation.plan
        before = self.state_of(me)
        self._put(me, evaluation.workload.ref, WorkloadState.of(evaluation, now) if evaluation.edges.tracked else None)
        if acts and plan.action in UNDER_WAY:
            self.rollouts.claim(
                me,
                now=now.wall,
                cause=describe(plan.changes, me.namespace),
                sources=[change.source for change in plan.changes],
                deadline_seconds=evaluation.policy.deadline.total_seconds(),
            )
            return
        self.rollouts.release(me)
        if before is not None and before.gate and not plan.gate:
            self.wake()  # no workload has to wait for its restart any more

    def record_nothing(self, workload: Workload) -> None:
        """An evaluation came to no result: no workload waits for this one."""
        self._put(workload_id(workload), workload.ref, None)

    def restarted(self, me: WorkloadId, seen: Workload | None) -> None:
        """The claimed restart was made; `seen` is the workload as it was written, None where nothing follows."""
        self.rollouts.start(me, seen)
        rollout = self.rollouts.get(me)
        if rollout is not None and rollout.progress.phase is Phase.AVAILABLE:
            self.wake()

    def gone(self, me: WorkloadId) -> None:
        """A workload no longer exists."""
        self._unmark(me)
        self._drop(me)
        self._refs.pop(me, None)
        self._seen.discard(me)
        self.rollouts.forget(me)
        for source, (_, affected) in list(self._affected.items()):
            affected.discard(me)
            if not affected:
                del self._affected[source]

    def wake(self) -> None:
        """Have the workloads reconciled that wait for others, the lowest waves first."""
        waiting = [
            (state.policy.wave, me)
            for members in self._states.values()
            for me, state in members.items()
            if state.gate in WAITING
        ]
        for _, me in sorted(waiting)[:WOKEN]:
            waker = self.wakers.get(me.kind)
            if waker is not None:
                waker(self._refs[me])

    # -- what is known -------------------------------------------------------------------------------------------------

    def state_of(self, me: WorkloadId) -> WorkloadState | None:
        """What its last evaluation found; None for a workload that is not enrolled."""
        return self._states.get(me.namespace, {}).get(me)

    def states(self) -> list[tuple[WorkloadId, WorkloadState]]:
        """All of them, in order."""
        return sorted(
            ((me, state) for members in self._states.values() for me, state in members.items()),
            key=lambda row: row[0],
        )

    def concerned(self, source: SourceRef, digest: str) -> frozenset[WorkloadId]:
        """The workloads that the change of a source to content with this digest restarts, or has restarted."""
        known = self._affected.get(source)
        return frozenset(known[1]) if known is not None and known[0] == digest else frozenset()

    def problems(self, me: WorkloadId, policy: Policy, now: Moment) -> tuple[str, ...]:
        """What is wrong with its dependencies: those that do not exist, lead back to itself, or have a later wave."""
        if not policy.depends:
            return ()
        listed = self.in_doubt(me, policy, now) is None
        return tuple(text for other in policy.depends if (text := self._problem(me, policy, other, listed=listed)))

    def in_doubt(self, me: WorkloadId, policy: Policy, now: Moment) -> float | None:
        """When it will be known whether all dependencies exist, in seconds since the epoch; None: it is known.

        Kinds are listed one after another; what no list has shown a while after the first evaluation does not exist.
        """
        if self._began is None:
            self._began = now.tick
        known = self._began + LISTED <= now.tick or me not in self._seen or self._seen.issuperset(policy.depends)
        return None if known else now.wall + self._began + LISTED - now.tick

    def _problem(self, me: WorkloadId, policy: Policy, other: WorkloadId, *, listed: bool) -> str:
        if other == me:
            return f"{DEPENDS_ON}: the workload depends on itself; dependency ignored"
        if self._leads_to(other, me):
            return f"{DEPENDS_ON}: {other.title} depends on {me.title} in turn; dependency ignored"
        if listed and me in self._seen and other not in self._seen:
            return f"{DEPENDS_ON}: {other.title} does not exist, or its kind is not watched; dependency ignored"
        state = self.state_of(other)
        if state is not None and state.policy.wave > policy.wave:
            late, early = state.policy.wave, policy.wave
            return (
                f"{DEPENDS_ON}: {other.title} has wave {late}, after wave {early} of {me.title}; "
                f"it goes with wave {early}"
            )
        return ""

    # -- the gates that other workloads close -----------------------------------------------------------------------

    def needs_approval(
        self, me: WorkloadId, policy: Policy, digests: Mapping[SourceRef, str], now: Moment
    ) -> Blocked | None:
        """Whether the changes with these digests restart more workloads than the guard lets pass."""
        if not digests:
            return None
        if self._may_be_affected(me, policy, digests):
            return Blocked(
                gate="window", reason="waiting until all affected workloads are evaluated", due=now.wall + SOON
            )
        guard = policy.guard
        for source, digest in sorted(digests.items()):
            concerned = self.concerned(source, digest)
            affected = {other for other in concerned if self._agreed(me, policy, other)} | {me}
            here = sum(workload.namespace == me.namespace for workload in affected)
            share = 100.0 * here / max(1, len({*self._states.get(me.namespace, ()), me}))
            many = bool(guard.workloads) and len(affected) > guard.workloads
            much = bool(guard.percent) and here > 1 and share > guard.percent
            if many or much:
                count = f"{len(affected)} workloads" if many else f"{share:.0f}% of namespace {me.namespace}"
                name = source.seen_from(me.namespace)
                return Blocked(
                    gate="approval",
                    reason=f"{name} restarts {count}, more than {guard}: approve it with {APPROVE}: {digest}",
                )
        return None

    def no_room(self, me: WorkloadId, policy: Policy, now: Moment) -> Blocked | None:
        """Whether as many rollouts are in progress as may be."""
        for limit, where, namespace, longest in (
            (policy.max_concurrent, f"in namespace {me.namespace}", me.namespace, inf),
            (policy.max_concurrent_cluster, "in the cluster", None, policy.cluster_deadline.total_seconds()),
        ):
            if limit and self.rollouts.under_way(now.wall, namespace, besides=me, longest=longest) >= limit:
                reason = f"at most {limit} rollouts at once {where}"
                return Blocked(gate="concurrency", reason=reason, due=now.wall + RECHECK)
        return None

    def outcome(self, me: WorkloadId, now: Moment) -> tuple[str, int | None]:
        """How the last restart of a workload ended: available, failed: REASON, or replaced by the next one."""
        rollout = self.rollouts.get(me)
        if rollout is None:
            return "", None
        phase = rollout.phase(now.wall)
        seconds = None if rollout.ended is None else round(rollout.ended - rollout.began)
        if phase is Phase.FAILED:
            return f"failed: {rollout.reason(now.wall)}", seconds
        return ("available", seconds) if phase is Phase.AVAILABLE else ("replaced", None)

    # -- who goes first ------------------------------------------------------------------------------------------------

    def _agreed(self, me: WorkloadId, policy: Policy, other: WorkloadId) -> bool:
        """Whether another workload may hold this one back; one of another namespace may agree until it is evaluated."""
        if other.namespace == me.namespace:
            return True
        state = self.state_of(other)
        return policy.orders_with(other.namespace) and (state is None or state.policy.orders_with(me.namespace))

    def failed_elsewhere(
        self, me: WorkloadId, policy: Policy, sources: Collection[SourceRef], now: Moment
    ) -> Blocked | None:
        """Whether the same change failed on another workload."""
        for source in sources:
            for other in self.rollouts.failed_for(source, now.wall):
                failed = self._failure(other, now)
                if other == me or failed is None or self._waits_for(other, source):
                    continue
                if not self._agreed(me, policy, other):
                    continue
                name = other.seen_from(me.namespace)
                return Blocked(
                    gate="halt", reason=f"{name} failed for the same change: {failed}", due=now.wall + RECHECK
                )
        return None

    def unfinished_dependency(self, me: WorkloadId, policy: Policy, now: Moment) -> Blocked | None:
        """Whether a workload that it depends on has not finished its restart."""
        for other in policy.depends:
            if self._leads_to(other, me):
                continue
            why = self._unfinished(other, now)
            if why is not None:
                due = now.wall + (SOON if self._is_marked(other) else RECHECK)
                reason = f"{other.seen_from(me.namespace)} goes first: {why}"
                return Blocked(gate="depends-on", reason=reason, due=due, waits_for=other)
        return None

    def unfinished_wave(
        self, me: WorkloadId, policy: Policy, changed: Collection[SourceRef], now: Moment
    ) -> Blocked | None:
        """Whether a workload of a lower wave has not finished its restart."""
        sources, wave = frozenset(changed), self._rank(me, policy.wave)
        lower = any(count and number < wave for number, count in self._waves.items())
        if not lower and wave <= 0:
            return None  # a workload that is not evaluated yet counts as wave 0
        for other in self._marked_before(me, policy, sources):
            state = self.state_of(other)
            if self._rank(other, 0 if state is None else state.policy.wave) < wave:
                reason = f"waiting until {other.seen_from(me.namespace)} is evaluated"
                return Blocked(gate="wave", reason=reason, due=now.wall + SOON, waits_for=other)
        if not lower:
            return None
        for other, state in self._others(me, policy, sources):
            rank = self._rank(other, state.policy.wave)
            if rank >= wave:
                continue
            same_change = not sources.isdisjoint(change.source for change in state.changes)
            if state.gate and state.gate not in SOFT and not same_change:
                continue  # it is blocked for a reason that has nothing to do with this change
            failed = self._failure(other, now)
            why = None if failed is not None else self._unfinished(other, now)
            if why is not None:
                reason = f"wave {rank} goes first: {other.seen_from(me.namespace)}: {why}"
                return Blocked(gate="wave", reason=reason, due=now.wall + RECHECK, waits_for=other)
        return None

    def _rank(self, workload: WorkloadId, wave: int) -> int:
        """The wave with which it goes: its own, or the lowest of those that depend on it, if that is lower."""
        seen, ahead = {workload}, [*self._dependents.get(workload, ())]
        while ahead:
            here = ahead.pop()
            state = self.state_of(here)
            if here not in seen and state is not None:
                seen.add(here)
                wave = min(wave, state.policy.wave)
                ahead.extend(self._dependents.get(here, ()))
        return wave

    def _others(
        self, me: WorkloadId, policy: Policy, sources: frozenset[SourceRef]
    ) -> Iterable[tuple[WorkloadId, WorkloadState]]:
        """The workloads of its namespace, and those of agreed namespaces that wait or restart for the same sources."""
        yield from self._states.get(me.namespace, {}).items()
        elsewhere = {other for source in sources for other in self.rollouts.open_for(source)}
        elsewhere |= {other for source in sources for other in self._affected.get(source, ("", set()))[1]}
        for other in sorted(elsewhere):
            state = self.state_of(other)
            if other.namespace != me.namespace and state is not None and self._agreed(me, policy, other):
                yield other, state

    def _unfinished(self, other: WorkloadId, now: Moment) -> str | None:
        """Why another workload has not finished its restart; None when it has."""
        if self._is_marked(other):
            return "not evaluated yet"
        state, rollout = self.state_of(other), self.rollouts.get(other)
        if state is not None and state.gate:
            goal = state.waits_for
            reason = state.reason if goal is None else f"for {goal.seen_from(other.namespace)}"
            return f"its restart waits ({reason})"
        if rollout is None or rollout.phase(now.wall) is Phase.AVAILABLE:
            return None
        failed = rollout.reason(now.wall)
        if not failed:
            return "it is being restarted"
        return None if self._failure(other, now) is None else f"its restart failed: {failed}"

    def _failure(self, other: WorkloadId, now: Moment) -> str | None:
        """Why the restart of another workload failed, if that stops others."""
        rollout, state = self.rollouts.get(other), self.state_of(other)
        if rollout is None or state is None or state.policy.on_failure is OnFailure.CONTINUE:
            return None
        return rollout.reason(now.wall) or None

    def _waits_for(self, other: WorkloadId, source: SourceRef) -> bool:
        """Whether the other workload has not restarted for the source's current content: it failed before."""
        state = self.state_of(other)
        waits = state is not None and any(change.source == source for change in state.changes)
        return waits or self._is_marked(other)

    def _leads_to(self, workload: WorkloadId, goal: WorkloadId) -> bool:
        """Whether `workload` is `goal`, or depends on it."""
        seen, ahead = set(), [workload]
        while ahead:
            here = ahead.pop()
            if here == goal:
                return True
            if here not in seen:
                seen.add(here)
                state = self.state_of(here)
                ahead.extend(state.policy.depends if state is not None else ())
        return False

    def _put(self, me: WorkloadId, ref: NamespacedName, state: WorkloadState | None) -> None:
        self._unmark(me)
        self._drop(me)
        if state is None:
            return
        self._refs[me] = ref
        self._states.setdefault(me.namespace, {})[me] = state
        self._waves[state.policy.wave] += 1
        for dependency in state.policy.depends:
            self._dependents.setdefault(dependency, set()).add(me)
        for source, digest in state.digests.items():
            known = self._affected.get(source)
            if known is None or known[0] != digest:
                known = self._affected[source] = (digest, set())
            known[1].add(me)

    def _drop(self, me: WorkloadId) -> None:
        before = self._states.get(me.namespace, {}).pop(me, None)
        if before is not None:
            self._waves[before.policy.wave] -= 1
            for other in set(before.policy.depends):
                self._dependents[other].discard(me)
                if not self._dependents[other]:
                    del self._dependents[other]

    def _is_marked(self, workload: WorkloadId) -> bool:
        return self.mark_of(workload) is not None

    def _marked_before(self, me: WorkloadId, policy: Policy, sources: Collection[SourceRef]) -> Iterable[WorkloadId]:
        """Those not evaluated yet: all of its namespace, and those of agreed ones that may use the same sources."""
        shared = any(source.namespace != me.namespace for source in sources)
        for namespace, marked in self._marked.items():
            for other, mark in marked.items():
                same = shared if mark.source is None else mark.source in sources
                if other != me and (namespace == me.namespace or (same and self._agreed(me, policy, other))):
                    yield other

    def _may_be_affected(self, me: WorkloadId, policy: Policy, sources: Collection[SourceRef]) -> bool:
        """Whether another workload that counts is not evaluated yet and may use one of these sources."""
        return any(
            other != me
            and (namespace == me.namespace or mark.source is None or mark.source in sources)
            and self._agreed(me, policy, other)
            for namespace, marked in self._marked.items()
            for other, mark in marked.items()
        )

    def _mark(self, workload: WorkloadId, source: SourceRef | None = None) -> None:
        self._marks += 1
        known = self._marked.setdefault(workload.namespace, {})
        if workload in known and known[workload].source != source:
            source = None  # more than one change
        known[workload] = _Mark(self._marks, source)

    def _unmark(self, workload: WorkloadId) -> None:
        marked = self._marked.get(workload.namespace)
        if marked is not None:
            marked.pop(workload, None)
            if not marked:
                del self._marked[workload.namespace]
