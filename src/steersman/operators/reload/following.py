"""Following: from looks to the fleet, and from rollouts to people.

A look leaves its standing in the fleet, and a restart, a call or an eviction is claimed there before it is made. A
claim that the next look no longer wants is released. Afterwards the rollout is followed by the workload's own status,
which the watch brings anyway; pods are asked only when it takes long. An outcome is told once: a failure by an Event,
both by log and metric.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from steersman.operators.reload.apply import describe
from steersman.operators.reload.fleet import Standing
from steersman.operators.reload.gates import change_digest
from steersman.operators.reload.plan import UNDER_WAY, Action
from steersman.operators.reload.podtrouble import trouble_of
from steersman.operators.reload.progress import Phase
from steersman.operators.reload.state import Applied
from steersman.operators.reload.workloads import workload_id

if TYPE_CHECKING:
    from steersman.operators.reload.fleet import Fleet
    from steersman.operators.reload.gates import Moment
    from steersman.operators.reload.look import Look
    from steersman.operators.reload.metrics import ReloadMetrics
    from steersman.operators.reload.rollouts import Rollout
    from steersman.operators.reload.workloads import Workload
    from steersman.runtime.context import Context

__all__ = ["Follower"]

ASK_PODS_SECONDS: Final = 30.0  # after a restart, and between two questions


class Follower:
    """Keeps the fleet informed of the workloads of one kind, and people of their rollouts."""

    def __init__(self, fleet: Fleet, metrics: ReloadMetrics | None = None, *, ask_pods: bool = True) -> None:
        self.fleet = fleet
        self._ask_pods = ask_pods
        self._metrics = metrics

    def looked(self, look: Look, now: Moment, *, acts: bool = True) -> None:
        """Note what a look found, and claim the restart it asks for; `acts`: it will be made."""
        me, plan = workload_id(look.workload), look.plan
        standing = None
        if look.edges.tracked:
            waits = plan.action in (Action.WAIT, Action.RESTART)
            sources = look.sources
            standing = Standing(
                policy=look.policy,
                edges=look.edges.tracked,
                changes=plan.changes if plan.action is Action.WAIT else (),
                digests={
                    one.source: change_digest(sources[one.source])
                    for one in (plan.changes if waits else ())
                    if one.source in sources
                },
                gate=plan.gate,
                reason=plan.reason if plan.gate else "",
                waits_for=plan.waits_for,
                due=plan.due,
                since=now.wall - max(0.0, now.tick - plan.observed.first) if plan.gate else 0.0,
                history=(plan.state or plan.observed.applied or Applied()).history,
            )
        before = self.fleet.standing(me)
        self.fleet.looked(me, look.workload.ref, standing)
        if acts and plan.action in UNDER_WAY:
            self.fleet.rollouts.claim(
                me,
                now=now.wall,
                told=describe(plan.changes, look.workload.namespace),
                sources=[change.source for change in plan.changes],
                deadline_seconds=look.policy.deadline.total_seconds(),
            )
            return
        self.fleet.rollouts.released(me)
        if before is not None and before.gate and not plan.gate:
            self.fleet.wake()  # whoever waited for its restart waits for nothing now

    def made(self, look: Look, seen: Workload | None) -> None:
        """What was claimed is made; `seen` is the workload as it was written, None where that was the end of it."""
        me = workload_id(look.workload)
        self.fleet.rollouts.started(me, seen)
        rollout = self.fleet.rollouts.get(me)
        if rollout is not None and rollout.progress.phase is Phase.AVAILABLE:
            self.fleet.wake()

    def not_made(self, look: Look) -> None:
        """The restart could not be made."""
        self.fleet.rollouts.released(workload_id(look.workload))

    async def follow(self, ctx: Context, look: Look) -> float | None:
        """Tell how the last restart of a workload goes; returns when to ask again, in seconds since the epoch."""
        me, now = workload_id(look.workload), ctx.clock.time()
        rollout = self.fleet.rollouts.get(me)
        if rollout is None or not rollout.stamp:
            return None
        asks = self._ask_pods and not rollout.evicts  # who evicts looks at them anyway
        if asks and rollout.phase(now) is Phase.PROGRESSING and now >= rollout.started + ASK_PODS_SECONDS:
            self.fleet.rollouts.troubled(me, await trouble_of(ctx.client, look.workload, rollout.stamp))
            now = ctx.clock.time()
        ended = self.fleet.rollouts.outcome(me, now)
        if ended is not None:
            self._tell(ctx, look.workload, ended, now)
            self.fleet.wake()
        rollout = self.fleet.rollouts.get(me)
        if rollout is None or rollout.phase(now) is not Phase.PROGRESSING:
            return None
        asked = now - rollout.started
        question = rollout.started + ASK_PODS_SECONDS * (1 + int(asked // ASK_PODS_SECONDS))
        return min(question, rollout.expires)

    def _tell(self, ctx: Context, workload: Workload, ended: Rollout, now: float) -> None:
        phase, seconds = ended.phase(now), round(now - ended.started)
        if self._metrics is not None:
            self._metrics.ended(type(workload).KIND.kind, phase.value, seconds)
        if phase is Phase.FAILED:
            reason = ended.reason(now)
            ctx.log.warning("rollout failed", workload=workload.title, sources=ended.told, reason=reason)
            ctx.event(workload, "RolloutFailed", f"the restart for {ended.told} failed: {reason}", warning=True)
        else:
            ctx.log.info("rollout available", workload=workload.title, sources=ended.told, seconds=seconds)
