"""Name servers that are pods: who they are now, what each of them says, and a witness of what none may ever say.

pods = Pods(site)
servers = await eventually(lambda: pods.ready(4))       # something to ask, as `site.answers` wants it
async with PodWitness(pods, "example.org", limit=5.0) as witness:
    ...
assert witness.lies == []
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Self

from steersman.kube.api.types import Pod
from tests.support.dns.zones import ask

if TYPE_CHECKING:
    from tests.support.dns.zones import Site

__all__ = ["PodServer", "PodWitness", "Pods", "is_pod_ready"]


class PodServer:
    """A pod, as something to ask."""

    dns_port = 5353

    def __init__(self, pod: Pod) -> None:
        self.name, self.address, self.uid = pod.name, pod.status.pod_ip, pod.metadata.uid


class Pods:
    """The servers of a namespace, as their pods are now."""

    def __init__(self, site: Site) -> None:
        self.site = site

    async def all(self) -> list[Pod]:
        """Every pod that is not on its way out."""
        found = (await self.site.client.list(Pod, namespace=self.site.namespace)).items
        return [pod for pod in found if not pod.deleting]

    async def of(self, instance: str) -> Pod:
        """The pod of an instance."""
        found = [pod for pod in await self.all() if pod.labels["instance"] == instance]
        assert found, f"{instance} has no pod"
        return found[0]

    async def ready(self, count: int) -> list[PodServer] | None:
        """The servers, once `count` pods are Ready."""
        found = [PodServer(pod) for pod in await self.all() if is_pod_ready(pod)]
        return found if len(found) == count else None


def is_pod_ready(pod: Pod) -> bool:
    """Whether a pod gets traffic."""
    return any(row.type == "Ready" and row.status == "True" for row in pod.status.conditions or ())


class PodWitness:
    """Asks every pod all the time, and remembers what no server may ever say.

    Each pod is asked by its own address, so also while it gets no traffic; the serials of an instance are those of all
    the pods it had. `strict`: also that one which is Ready does not know the zone.
    """

    def __init__(self, pods: Pods, zone: str, *, limit: float) -> None:
        self.pods, self.zone, self.limit = pods, zone, limit
        self.serials: dict[str, int] = {}
        self.lies: list[str] = []
        self.answers, self.strict = 0, True

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _work(self) -> None:
        while True:
            for pod in await self.pods.all():
                if pod.status.pod_ip:
                    await self._ask(pod)
            await asyncio.sleep(0.02)

    async def _ask(self, pod: Pod) -> None:
        import dns.exception
        import dns.rcode

        server: Any = PodServer(pod)
        try:
            async with asyncio.timeout(self.limit):  # an address that is gone says nothing for long
                soa = await ask(server, self.zone, "SOA")
                www = await ask(server, f"www.{self.zone}", "A")
        except (OSError, EOFError, dns.exception.DNSException):
            return  # silence is no lie
        who = pod.labels["instance"]
        if soa.rcode() == dns.rcode.NOERROR and www.rcode() in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
            self.answers += 1
            number = soa.answer[0][0].serial if soa.answer else 0
            if number < self.serials.setdefault(who, number):
                self.lies.append(f"{pod.name} went from serial {self.serials[who]} back to {number}")
            self.serials[who] = max(number, self.serials[who])
            if not www.answer:
                self.lies.append(f"{pod.name} knows nothing of www at serial {number}")
        elif self.strict and is_pod_ready(pod):
            now = [one for one in await self.pods.all() if one.metadata.uid == pod.metadata.uid]
            if now and is_pod_ready(now[0]):
                self.lies.append(f"{pod.name} is Ready and says {dns.rcode.to_text(soa.rcode())}")
