"""The action `evict`: replace pods one by one by eviction, as disruption budgets allow.

The decision is written to the workload first, with a time: every pod created before it has to go. So after a crash the
next process knows what is left to do, and a pod created later is never evicted for the same change.

    next step, from the pods alone:   no pod is old           ──► finished
                                      a new one is not ready  ──► wait for it
                                      otherwise               ──► evict one: unready first, then the highest name
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from steersman.kube.api.errors import Conflict, KubeError, NotFound, TooManyRequests
from steersman.operators.reload.api.annotations import APPLIED
from steersman.operators.reload.planning.plan import Notice
from steersman.operators.reload.planning.state import read_state, write_state
from steersman.operators.reload.workloads.pods import created, pods_of
from steersman.runtime.workloads import is_active, is_ready

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.kube.api.types.pods import Pod
    from steersman.operators.reload.planning.state import Applied
    from steersman.operators.reload.workloads.workload import Workload
    from steersman.runtime.reconcile.context import Context

POLL_SECONDS: Final = 2.0  # between two reads of the pods
BUDGET_SECONDS: Final = 10.0  # after a disruption budget refused an eviction
ERROR_SECONDS: Final = 30.0  # after another error


class EvictionStep(msgspec.Struct, frozen=True):
    """What to do now."""

    evict: str = ""  # the name of a pod…
    uid: str = ""  # …and which one of that name
    finished: bool = False
    waits: str = ""  # for what, when there is nothing to do


class EvictionProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How an eviction goes."""

    waits: str = ""  # for what
    after_seconds: float | None = None  # until the next step; None: it is over
    evicted: bool = False  # a pod was just evicted
    notices: tuple[Notice, ...] = ()


def next_step(pods: Sequence[Pod], since: float, now: float) -> EvictionStep:
    """What to do so that every pod created before `since` is replaced."""
    old = [pod for pod in pods if is_active(pod) and created(pod) < since]
    if not old:
        return EvictionStep(finished=True)
    if now < since:  # pods created from now on must not count as older than the decision
        return EvictionStep(waits="for the clock")
    going = [pod for pod in pods if pod.metadata.deletion_timestamp]
    if going:
        return EvictionStep(waits=f"for pod {going[0].name} to go")
    unready = [pod for pod in pods if is_active(pod) and created(pod) >= since and not is_ready(pod)]
    if unready:
        return EvictionStep(waits=f"for pod {unready[0].name} to be ready")
    chosen = max(old, key=lambda pod: (not is_ready(pod), _ordinal(pod.name), pod.name))
    return EvictionStep(evict=chosen.name, uid=chosen.metadata.uid)


async def continue_eviction(ctx: Context, workload: Workload) -> EvictionProgress | None:
    """Take the next step of an eviction; None: there is none."""
    state = read_state(workload.annotations.get(APPLIED)).applied
    if state is None or not state.evict:
        return None
    try:
        return await _continue(ctx, workload, state)
    except TooManyRequests as error:
        return EvictionProgress(
            waits=f"for a disruption budget: {error.message}",
            after_seconds=error.retry_after or BUDGET_SECONDS,
            notices=(Notice("EvictionWaits", f"a disruption budget does not allow it now: {error.message}", False),),
        )
    except (NotFound, Conflict):
        return EvictionProgress(after_seconds=POLL_SECONDS)  # the pod is gone already, or the workload changed
    except KubeError as error:
        return EvictionProgress(after_seconds=ERROR_SECONDS, notices=(Notice("EvictionFailed", error.message),))


async def _continue(ctx: Context, workload: Workload, state: Applied) -> EvictionProgress:
    found = await pods_of(ctx.client, workload)
    if found.unknown:
        failed = Notice("EvictionFailed", found.unknown)
        return EvictionProgress(waits=f"for its pods: {found.unknown}", after_seconds=ERROR_SECONDS, notices=(failed,))
    step = next_step(found.own, state.evict, ctx.clock.time())
    if step.finished:
        await _finish(ctx, workload, state, has_pods=bool(found.own))
        return EvictionProgress()
    if not step.evict:
        return EvictionProgress(waits=step.waits, after_seconds=POLL_SECONDS)
    await ctx.client.evict(step.evict, namespace=workload.namespace, uid=step.uid)
    if not ctx.dry_run:
        ctx.log.info("pod evicted", workload=workload.title, pod=step.evict)
    return EvictionProgress(waits=f"for pod {step.evict} to go", after_seconds=POLL_SECONDS, evicted=True)


async def _finish(ctx: Context, workload: Workload, state: Applied, *, has_pods: bool) -> None:
    """Record that no pod is old any more."""
    meta = workload.metadata
    annotations = {APPLIED: write_state(replace(state, evict=0))}
    await ctx.patch(
        workload, {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version, "annotations": annotations}}
    )
    message = "every pod older than the change has been replaced"
    if not has_pods:
        message = "the workload has no pods; pods that start later read the current sources"
    ctx.log.info("eviction finished", workload=workload.title, message=message)
    ctx.event(workload, "Evicted", message)


def _ordinal(name: str) -> int:
    """The number of a StatefulSet's pod: the highest goes first, as in its own rollouts."""
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() and len(number) < 9 else -1
