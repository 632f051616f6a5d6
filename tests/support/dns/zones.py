"""Objects of the dns operator in few words, a place for them, and questions to servers.

site = Site(client, namespace, [ns1])
await site.instances()
await site.zone("example.org")
await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.1"}))
"""

from __future__ import annotations

import asyncio
import contextlib
from base64 import b64encode
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from steersman.clock import SYSTEM_CLOCK
from steersman.kube.api.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from steersman.clock import Clock
    from steersman.kube.client.client import Client
    from steersman.runtime.manager.manager import Manager
    from tests.support.dns.named import Named

__all__ = ["PATIENCE", "Site", "ask", "exchange", "install_crds", "rogue", "serial", "values"]

GROUP = "bindy.firestoned.io"
API = f"{GROUP}/v1beta1"
SOA = {"refresh": 3600, "retry": 600, "expire": 604800, "negativeTtl": 60}
PATIENCE = 60.0  # seconds for one exchange with a server that runs; one that does not refuses at once

_installed: set[str] = set()


async def install_crds(client: Client, server: str) -> None:
    """The twelve kinds, served; once per server."""
    if server in _installed:
        return
    from steersman.crd import crd_manifest
    from steersman.operators.dns.controllers.setup import KINDS
    from steersman.testing.waiting import eventually

    for kind in KINDS:
        await client.apply(crd_manifest(kind), field_manager="test", force=True)
    for kind in KINDS:
        await eventually(lambda kind=kind: _served(client, kind), f"{kind.KIND} is served", timeout=120)  # type: ignore[misc]
    _installed.add(server)


async def _served(client: Client, kind: Any) -> bool:
    await client.list(kind)
    return True


async def ask(server: Named, name: str, kind: str) -> Any:
    """A server's answer, as dnspython has it."""
    import dns.message

    question = dns.message.make_query(name, kind)
    question.flags = 0
    return await exchange(server, question)


async def exchange(server: Named, message: Any) -> Any:
    """A server's answer to a message of dnspython; TimeoutError when there is none.

    dnspython's own limit is `asyncio.wait_for`, and on Python 3.11 a task that is cancelled just when that has its
    answer goes on as if nothing had happened: one in ten of the loops that ask all the time never ended.
    """
    import dns.asyncquery

    async with asyncio.timeout(PATIENCE):
        return await dns.asyncquery.tcp(message, server.address, port=server.dns_port)


async def values(server: Named, name: str, kind: str) -> set[str] | None:
    """The values that a server has for a name and type; None when it gives no answer at all."""
    import dns.exception
    import dns.rdatatype

    try:
        answer = await ask(server, name, kind)
    except (OSError, dns.exception.DNSException, EOFError):
        return None
    if answer.rcode() not in (0, 3):
        return None
    wanted = dns.rdatatype.from_text(kind)
    return {row.to_text() for rrset in answer.answer if rrset.rdtype == wanted for row in rrset}


async def serial(server: Named, zone: str) -> int | None:
    """The serial that a server serves."""
    found = await values(server, zone, "SOA")
    return int(next(iter(found)).split()[2]) if found else None


async def rogue(server: Named, zone: str, *changes: tuple[Any, ...]) -> None:
    """Somebody else changes a zone: `("add", "www", 60, "A", "192.0.2.1")`, `("delete", "www")`."""
    import dns.tsig
    import dns.tsigkeyring
    import dns.update

    ring = dns.tsigkeyring.from_text({server.key_name: server.secret})
    update = dns.update.Update(zone, keyring=ring, keyalgorithm=dns.tsig.HMAC_SHA256)
    for verb, *arguments in changes:
        getattr(update, verb)(*arguments)
    answer = await exchange(server, update)
    assert answer.rcode() == 0, answer


class Site:
    """A namespace with servers."""

    def __init__(
        self, client: Client, namespace: str, primaries: Sequence[Named], secondaries: Sequence[Named] = ()
    ) -> None:
        self.client = client
        self.namespace = namespace
        self.primaries = list(primaries)
        self.secondaries = list(secondaries)

    @property
    def servers(self) -> list[Named]:
        """All of them."""
        return [*self.primaries, *self.secondaries]

    @asynccontextmanager
    async def running(
        self, *, namespaces: Iterable[str] = (), clock: Clock = SYSTEM_CLOCK, dry_run: bool = False, **options: Any
    ) -> AsyncIterator[Manager]:
        """The operator at work in this namespace, in this process."""
        from prometheus_client import CollectorRegistry

        from steersman.operators.dns.api.config import DnsOptions
        from steersman.operators.dns.controllers.setup import parts_of
        from steersman.runtime.manager.manager import Manager

        registry = CollectorRegistry()
        options.setdefault("request_timeout", timedelta(seconds=PATIENCE))
        parts = parts_of(DnsOptions(**options), clock=clock, registry=registry)
        within = {self.namespace, *namespaces}
        import msgspec

        parts = msgspec.structs.replace(
            parts, controllers=[controller.within(within) for controller in parts.controllers]
        )
        manager = Manager(self.client, registry=registry, clock=clock, dry_run=dry_run)
        manager.include("dns", parts)
        task = asyncio.create_task(manager.run())
        try:
            yield manager
        finally:
            manager.stop()
            await task

    async def apply(self, kind: str, name: str, spec: dict[str, Any], *, api: str = API, **meta: Any) -> dict[str, Any]:
        """Make an object so."""
        space = {"namespace": meta.pop("namespace", self.namespace)} if kind != "ClusterBind9Provider" else {}
        body = {"apiVersion": api, "kind": kind, "metadata": {"name": name, **space, **meta}, "spec": spec}
        made: dict[str, Any] = await self.client.apply(body, field_manager="test", force=True)
        return made

    async def instances(self, **spec: Any) -> None:
        """An instance per server, each with the Secret of its key."""
        for role, servers in (("primary", self.primaries), ("secondary", self.secondaries)):
            for number, server in enumerate(servers):
                await self.instance(f"{role}-{number}", role, server, **spec)

    async def instance(self, name: str, role: str, server: Named, *, labels: Any = None, **spec: Any) -> None:
        """One instance for a server that exists."""
        await self.key(f"{name}-key", server)
        wanted = {
            "clusterRef": "",
            "role": role,
            "endpoints": [server.endpoint],
            "rndcKey": {"secretRef": {"name": f"{name}-key"}},
            **spec,
        }
        await self.apply("Bind9Instance", name, wanted, labels={"dns": "test", **(labels or {})})

    async def key(self, secret: str, server: Named, *, name: str = "") -> None:
        """The Secret of a server's key, perhaps under a wrong name."""
        data = {"key-name": name or server.key_name, "algorithm": "hmac-sha256", "secret": server.secret}
        await self.secret(secret, data)

    async def secret(self, name: str, texts: dict[str, str]) -> None:
        """A Secret with exactly these fields."""
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": self.namespace},
            "data": {field: b64encode(value.encode()).decode() for field, value in texts.items()},
        }
        await self.client.apply(body, field_manager="test", force=True)

    async def zone(self, zone: str, name: str = "", *, annotations: Any = None, **spec: Any) -> None:
        """A zone served by all servers, with records of the same label."""
        name = name or zone.replace("_", "u").replace("/", "-")
        soa = {
            "primaryNs": f"ns1.{zone}.",
            "adminEmail": f"hostmaster.{zone}.",
            "serial": 1,
            **SOA,
            **spec.pop("soa", {}),
        }
        wanted = {
            "zoneName": zone,
            "soaRecord": soa,
            "ttl": 300,
            "nameServers": [{"hostname": f"ns1.{zone}.", "ipv4Address": "192.0.2.53"}],
            "recordsFrom": [{"selector": {"matchLabels": {"zone": name}}}],
            "bind9InstancesFrom": [{"selector": {"matchLabels": {"dns": "test"}}}],
            **spec,
        }
        await self.apply("DNSZone", name, wanted, **({"annotations": annotations} if annotations else {}))

    async def record(
        self, kind: str, name: str, /, *, zone: str = "example.org", owner: str | None = None, **spec: Any
    ) -> None:
        """A record of a zone; its DNS name is its own name unless told otherwise."""
        wanted = {"name": name if owner is None else owner, **spec}
        await self.apply(f"{kind}Record", name, wanted, labels={"zone": zone})

    async def get(self, kind: str, name: str) -> Any:
        """An object as it is."""
        return await self.client.get(_kind(kind), name, namespace=self.namespace)

    async def delete(self, kind: str, name: str) -> None:
        """Delete an object."""
        with contextlib.suppress(NotFound):
            await self.client.delete(_kind(kind), name, namespace=self.namespace)

    async def gone(self, kind: str, name: str) -> bool:
        """Whether an object is gone."""
        try:
            await self.get(kind, name)
        except NotFound:
            return True
        return False

    async def ready(self, kind: str, name: str) -> tuple[str, str, str]:
        """Status, reason and message of an object's condition Ready."""
        found = await self.get(kind, name)
        for row in (found.status.conditions if found.status else None) or ():
            if row.type == "Ready":
                fresh = row.observed_generation == found.metadata.generation
                return (row.status, row.reason, row.message) if fresh else ("", "", "")
        return ("", "", "")

    async def is_ready(self, kind: str, name: str, reason: str = "") -> bool:
        """Whether an object is ready, or for the reason given not."""
        status, why, _ = await self.ready(kind, name)
        return why == reason and status == "False" if reason else status == "True"

    async def answers(
        self, name: str, kind: str, wanted: Iterable[str], servers: Sequence[Named] | None = None
    ) -> bool:
        """Whether every server answers exactly that."""
        found = [await values(server, name, kind) for server in servers or self.servers]
        assert all(item == set(wanted) for item in found), f"{name} {kind}: {found}"
        return True


def _kind(name: str) -> Any:
    from steersman.operators.dns.controllers.setup import KINDS

    return next(kind for kind in KINDS if kind.KIND.kind in (name, f"{name}Record"))
