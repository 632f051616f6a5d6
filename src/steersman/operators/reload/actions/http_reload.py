"""The action `http`: call each pod of a workload, so that it reloads its configuration without a restart.

A call comes before the state is written: a crash in between calls again, and reloading twice is harmless. Only the
pod's own address is called, never a node's, and no redirect is followed: a user who may annotate a workload can make
this process talk to the pods of that workload and to nothing else. The body of an answer is not read.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.operators.reload.workloads.pods import pods_of
from steersman.runtime.http.outbound import outbound_session, send
from steersman.runtime.workloads import is_active
from steersman.text import some_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import aiohttp

    from steersman.clock import Clock
    from steersman.kube.api.types.pods import Pod
    from steersman.operators.reload.api.action import ReloadAction
    from steersman.operators.reload.workloads.workload import Workload
    from steersman.runtime.reconcile.context import Context

AT_ONCE: Final = 8  # pods
_SHOWN: Final = 3  # failed calls that a message names


class Calls(msgspec.Struct, frozen=True):
    """Which pods accepted the call."""

    called: tuple[str, ...] = ()  # names of pods
    failed: tuple[str, ...] = ()  # `pod web-1: answered 500`
    unknown: str = ""  # why the pods of the workload are not known

    @property
    def succeeded(self) -> bool:
        """Whether every pod accepted the call."""
        return not self.failed and not self.unknown

    def __str__(self) -> str:
        if self.unknown:
            return self.unknown
        total = len(self.called) + len(self.failed)
        if not total:
            return "no pods are running; pods that start later read the current sources"
        called = f"{len(self.called)} of {total} pods called"
        return f"{called}; {some_of(self.failed, _SHOWN, separator='; ')}" if self.failed else called


async def call_workload(ctx: Context, workload: Workload, action: ReloadAction) -> Calls:
    """Call every running pod of a workload."""
    found = await pods_of(ctx.client, workload)
    if found.unknown:
        return Calls(unknown=found.unknown)
    pods = [pod for pod in found.own if is_active(pod) and pod.status.phase == "Running"]
    return await call_pods(pods, action, clock=ctx.clock)


async def call_pods(pods: Iterable[Pod], action: ReloadAction, *, clock: Clock) -> Calls:
    """Call each pod until it answers with success, or `action.tries` times."""
    limit = asyncio.Semaphore(AT_ONCE)
    async with outbound_session() as session:

        async def call(pod: Pod) -> str:
            async with limit:
                return await _call(session, pod, action, clock)

        ordered = sorted(pods, key=lambda pod: pod.name)
        errors = await asyncio.gather(*map(call, ordered))
    return Calls(
        called=tuple(pod.name for pod, error in zip(ordered, errors, strict=True) if not error),
        failed=tuple(f"pod {pod.name}: {error}" for pod, error in zip(ordered, errors, strict=True) if error),
    )


async def _call(session: aiohttp.ClientSession, pod: Pod, action: ReloadAction, clock: Clock) -> str:
    """Why the pod did not accept the call; empty when it did, or when a dry run withheld it."""
    if pod.spec.host_network:
        return "it uses its node's network, and nodes are not called"
    address = pod.status.pod_ip
    if not address:
        return "it has no address"
    host = f"[{address}]" if ":" in address else address
    sent = await send(
        session,
        f"{action.scheme}://{host}:{action.port}{action.path}",
        effect="http reload",
        target=f"pod {pod.namespace}/{pod.name}",
        method=action.method,
        timeout_seconds=action.timeout.total_seconds(),
        attempts=action.tries,
        final=(),
        clock=clock,
        ssl=False,  # a pod's certificate is for a name, and this is an address inside the cluster
    )
    return sent.error
