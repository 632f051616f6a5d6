"""What is done with the pods of a workload one by one, when no rollout does it: calls, and evictions.

Both begin with a plan and end with the state on the workload. A call comes before its state is written, so a crash in
between calls again: reloading twice is harmless. An eviction comes after, with the time before which pods are old, and
is carried on from there by whoever looks next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from steersman.kube.errors import Conflict, KubeError, NotFound, TooManyRequests
from steersman.operators.reload.apply import describe
from steersman.operators.reload.calls import call_pods
from steersman.operators.reload.eviction import BUDGET_SECONDS, POLL_SECONDS, next_step
from steersman.operators.reload.plan import Action
from steersman.operators.reload.rollouts import Rollouts
from steersman.operators.reload.state import read_state, write_state
from steersman.operators.reload.types import APPLIED
from steersman.operators.reload.workloadpods import living, pods_of
from steersman.operators.reload.workloads import workload_id

if TYPE_CHECKING:
    from steersman.operators.reload.look import Look
    from steersman.operators.reload.state import Applied
    from steersman.operators.reload.workloads import Workload
    from steersman.runtime.context import Context

__all__ = ["CALL_AGAIN_SECONDS", "PodKeeper"]

CALL_AGAIN_SECONDS: Final = 60.0  # after pods did not take a call, however often they were asked
CALLING: Final = 16  # workloads of one kind at once: a call may take long, and holds one of the workers of all
_TROUBLE_SECONDS: Final = 30.0  # after the server would not answer


class PodKeeper:
    """Calls and evicts pods of the workloads of one kind."""

    def __init__(self, rollouts: Rollouts | None = None) -> None:
        """`rollouts` hear how it goes."""
        self._rollouts = rollouts or Rollouts()
        self._told: dict[str, str] = {}  # by uid of the workload: what people were last told
        self._calling = 0

    async def call(self, ctx: Context, look: Look) -> bool:
        """Call every pod of a workload; returns whether all of them took it. When too many are called, it waits."""
        if self._calling >= CALLING:
            return False
        self._calling += 1
        try:
            return await self._call(ctx, look)
        finally:
            self._calling -= 1

    async def _call(self, ctx: Context, look: Look) -> bool:
        workload = look.workload
        told = describe(look.plan.changes, workload.namespace)
        pods = [pod for pod in living(await pods_of(ctx.client, workload)) if pod.status.phase == "Running"]
        made = await call_pods(pods, look.policy.means, clock=ctx.clock)
        if made.failed:
            self._tell(ctx, workload, "ReloadCallFailed", f"for {told}: {made}", warning=True)
            self._rollouts.going_on(workload_id(workload), f"for its pods to take the call: {made}")
            return False
        self._told.pop(workload.metadata.uid, None)
        ctx.log.info("pods called", workload=workload.title, sources=told, pods=len(made.called))
        ctx.event(workload, "Reloaded", f"for {told}: {made}")
        return True

    async def carry_on(self, ctx: Context, look: Look) -> float | None:
        """The next step of an eviction, if there is one; returns when to look again, in seconds since the epoch."""
        workload, me = look.workload, workload_id(look.workload)
        if look.plan.action is Action.EVICT:
            return ctx.clock.time() + POLL_SECONDS  # it has just been written
        state = read_state(workload.annotations.get(APPLIED)).applied
        if state is None or not state.evict:
            return None
        try:
            step = next_step(await pods_of(ctx.client, workload), state.evict, ctx.clock.time())
            if step.evict:
                await ctx.client.evict(step.evict, namespace=workload.namespace, uid=step.uid)
                ctx.log.info("pod evicted", workload=workload.title, pod=step.evict)
                self._rollouts.going_on(me, f"for pod {step.evict} to go", moved=ctx.clock.time())
            elif step.finished:
                await self._finish(ctx, workload, state)
                return None
            else:
                self._rollouts.going_on(me, step.waits)
        except TooManyRequests as error:
            self._rollouts.going_on(me, f"for a disruption budget: {error.message}")
            self._tell(ctx, workload, "EvictionWaits", f"a disruption budget does not allow it now: {error.message}")
            return ctx.clock.time() + (error.retry_after or BUDGET_SECONDS)
        except (NotFound, Conflict):
            return ctx.clock.time() + POLL_SECONDS  # the pod went by itself, or the workload moved on
        except KubeError as error:
            self._tell(ctx, workload, "EvictionFailed", error.message, warning=True)
            return ctx.clock.time() + _TROUBLE_SECONDS
        return ctx.clock.time() + POLL_SECONDS

    async def _finish(self, ctx: Context, workload: Workload, state: Applied) -> None:
        """Write down that no pod is old any more."""
        meta = workload.metadata
        patch = {
            "metadata": {
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
                "annotations": {APPLIED: write_state(replace(state, evict=0))},
            }
        }
        await ctx.patch(workload, patch)
        self._told.pop(workload.metadata.uid, None)
        ctx.log.info("all pods replaced", workload=workload.title)
        ctx.event(workload, "Evicted", "every pod that was older than the change has been replaced")

    def _tell(self, ctx: Context, workload: Workload, reason: str, message: str, *, warning: bool = False) -> None:
        """Tell people once, for as long as it stays the same."""
        if self._told.get(workload.metadata.uid) == message:
            return
        self._told[workload.metadata.uid] = message
        ctx.log.warning("told", workload=workload.title, reason=reason, message=message)
        ctx.event(workload, reason, message, warning=warning)
