"""Calling pods: one request to each, bounded in time, number and place.

Only the pod's own address is called, never a node's, and no redirect is followed: who may annotate a workload can make
this process talk to the pods of that workload and to nobody else. What a pod answers is not kept.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import aiohttp
import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.clock import Clock
    from steersman.kube.types.pods import Pod
    from steersman.operators.reload.means import Means

__all__ = ["Calls", "call_pods"]

AT_ONCE: Final = 8
PAUSE_SECONDS: Final = 1.0  # before the second try; doubles


class Calls(msgspec.Struct, frozen=True):
    """What came of it."""

    called: tuple[str, ...] = ()  # names of pods that took it
    failed: tuple[str, ...] = ()  # `pod web-1: answered 500`

    def __str__(self) -> str:
        total = len(self.called) + len(self.failed)
        told = f"{len(self.called)} of {total} pods called"
        return f"{told}; {'; '.join(self.failed[:3])}" if self.failed else told


async def call_pods(pods: Iterable[Pod], means: Means, *, clock: Clock) -> Calls:
    """Call each pod until it answers with success, or has been asked as often as it may be."""
    timeout = aiohttp.ClientTimeout(total=means.timeout.total_seconds())
    room = asyncio.Semaphore(AT_ONCE)
    async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def one(pod: Pod) -> str | None:
            async with room:
                return await _call(session, pod, means, clock)

        ordered = sorted(pods, key=lambda pod: pod.name)
        answers = await asyncio.gather(*(one(pod) for pod in ordered))
    return Calls(
        called=tuple(pod.name for pod, why in zip(ordered, answers, strict=True) if why is None),
        failed=tuple(f"pod {pod.name}: {why}" for pod, why in zip(ordered, answers, strict=True) if why is not None),
    )


async def _call(session: aiohttp.ClientSession, pod: Pod, means: Means, clock: Clock) -> str | None:
    """Why it did not work; None when it did."""
    if pod.spec.host_network:
        return "it uses its node's network, and nodes are not called"
    address = pod.status.pod_ip
    if not address:
        return "it has no address"
    host = f"[{address}]" if ":" in address else address
    why, pause = "", PAUSE_SECONDS
    for number in range(means.tries):
        if number:
            await clock.sleep(pause)
            pause *= 2
        try:
            async with session.request(
                means.method,
                f"{means.scheme}://{host}:{means.port}{means.path}",
                allow_redirects=False,
                ssl=False,  # a pod's certificate is for a name, and we call an address inside the cluster
            ) as answer:
                if answer.status < 300:
                    return None
                why = f"answered {answer.status}"
        except TimeoutError:
            why = f"no answer within {means.timeout.total_seconds():g} s"
        except aiohttp.ClientError as error:
            why = f"cannot be reached ({type(error).__name__})"
    return why
