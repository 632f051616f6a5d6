"""dns: records are edited, deleted and created again on two real name servers, which are killed, wiped and lied about.

An act is a new serial in the status of the zone. A cause is a change of a record, or of what a server has. Every record
holds a number that only grows, so an answer from the past shows itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from steersman.kube.api.errors import AlreadyExists, NotFound
from steersman.operators.dns.api.config import DnsOptions
from steersman.operators.dns.api.records import TXTRecord
from steersman.operators.dns.api.zone import DNSZone
from steersman.operators.dns.controllers.setup import parts_of
from tests.support.chaos.checkers import Act, Cause
from tests.support.chaos.history import Answer
from tests.support.chaos.name_servers import HoldingLiar, NameServer, new_key
from tests.support.chaos.operators import Subject
from tests.support.chaos.schedule import Choice
from tests.support.dns.liar import LIES
from tests.support.dns.zones import API, Site, install_crds, rogue

if TYPE_CHECKING:
    from steersman.clock import Clock
    from steersman.kube.client.client import Client
    from steersman.runtime.manager.operator_bundle import OperatorBundle
    from tests.support.chaos.history import History
    from tests.support.chaos.schedule import Step

__all__ = ["DnsSubject"]

ZONE = "example.org"
NAMES = tuple(f"t{number}" for number in range(4))
RECORDS = tuple(f"txtrecord/{name}" for name in NAMES)
RESOLVED = ("NOERROR", "NXDOMAIN")
SERVERS = ("name-server/0", "name-server/1")
WITNESS_SECONDS = 1.0  # between two questions to a server


class DnsSubject(Subject):
    """The operator dns with one zone, two primaries and up to four records, the first of which is never deleted."""

    name = "dns"
    churn = ("create", "delete", "txtrecord")
    actions = (
        Choice("edit", RECORDS, weight=6),
        Choice("delete", RECORDS[1:], weight=2),
        Choice("create", RECORDS[1:], weight=3),
        Choice("drift", SERVERS[:1]),
    )
    faults = (
        Choice("named-kill", SERVERS, weight=2),
        Choice("named-wipe", SERVERS, weight=2),
        Choice("named-key", SERVERS),
        Choice("named-lie", SERVERS),
    )

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._causes: list[int] = []  # places at which a server was changed
        self._stack = contextlib.AsyncExitStack()

    async def install(self, client: Client) -> None:
        await install_crds(client, str(uuid4()))

    async def prepare(self, client: Client) -> None:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="steersman-chaos-")))
        key = new_key()
        self._named = [NameServer(folder / f"ns{number}", secret=key) for number in range(2)]
        self._liars = []
        for named in self._named:
            await self._stack.enter_async_context(named)
            self._liars.append(await self._stack.enter_async_context(HoldingLiar(named)))
        servers: list[Any] = self._liars
        self._site = Site(client, self.namespace, servers)
        await self._site.instances()
        await self._site.zone(ZONE)
        for record in RECORDS[:3]:
            await client.create(self._record(record))
        self._witness = asyncio.create_task(self._ask_all_the_time())

    async def close(self) -> None:
        self._witness.cancel()
        await asyncio.gather(self._witness, return_exceptions=True)
        await self._stack.aclose()

    def bundle(self, clock: Clock, registry: Any) -> OperatorBundle:
        return parts_of(DnsOptions(), clock=clock, registry=registry)

    def settings(self) -> str:
        return f"namespaces: [{self.namespace}]\n"

    async def act(self, client: Client, step: Step) -> bool:
        name = step.target.partition("/")[2]
        try:
            match step.name:
                case "edit":
                    spec = {"spec": self._record(step.target)["spec"]}
                    await client.patch(TXTRecord, name, spec, namespace=self.namespace)
                case "create":
                    await client.create(self._record(step.target))
                case "delete":
                    await client.delete(TXTRecord, name, namespace=self.namespace)
                case _:
                    return await self._drift()
        except (NotFound, AlreadyExists):
            return False
        return True

    async def _drift(self) -> bool:
        """Another client adds a record on the primary."""
        value = f'"{next(self._numbers)}"'
        self._causes.append(self.history.place)
        try:
            await asyncio.to_thread(asyncio.run, rogue(self._named[0], ZONE, ("add", "rogue", 60, "TXT", value)))
        except (OSError, EOFError, AssertionError):  # the server is down, or does not have the zone
            return False
        return True

    async def disturb(self, step: Step, seconds: float) -> None:
        number = int(step.target.partition("/")[2])
        named, liar = self._named[number], self._liars[number]
        self._causes.append(self.history.place)
        match step.name:
            case "named-lie":
                liar.lie = LIES[int(step.amount * len(LIES)) % len(LIES)]
                await self.clock.sleep(seconds)
                liar.lie = ""
                return
            case "named-key":
                await named.kill()
                named.secret = new_key()
                await named.start()
                await self.clock.sleep(seconds)
                await self._site.key(f"primary-{number}-key", named)
                return
            case "named-wipe":
                await named.kill()
                named.wipe()
            case _:
                await named.kill()
        await self.clock.sleep(seconds)
        await named.start()

    async def touch(self, client: Client) -> None:
        note = {"metadata": {"annotations": {"note": str(next(self._numbers))}}}
        for found in (await client.list(TXTRecord, namespace=self.namespace)).items:
            await client.patch(TXTRecord, found.name, note, namespace=self.namespace)

    async def unmet(self, client: Client, history: History) -> list[str]:
        wanted = {
            found.name: found.spec.text for found in (await client.list(TXTRecord, namespace=self.namespace)).items
        }
        found = [f"txtrecord/{name} is not ready" for name in wanted if not await self._site.is_ready("TXT", name)]
        zone = await client.get(DNSZone, ZONE, namespace=self.namespace)
        serial = zone.status.serial if zone.status else None
        for number, named in enumerate(self._named):
            soa, *answers = await named.ask((ZONE, "SOA"), *((f"{name}.{ZONE}", "TXT") for name in (*NAMES, "rogue")))
            if _serial(soa) != serial:
                found.append(f"name-server/{number} answers {soa}, the status says serial {serial}")
            for name, answer in zip((*NAMES, "rogue"), answers, strict=True):
                values = {f'"{text}"' for text in wanted.get(name, ())}
                if answer is None or answer[0] not in RESOLVED or answer[1] != values:
                    found.append(f"name-server/{number} answers {answer} for {name}, not {values or 'nothing'}")
        return found

    def acts(self, history: History) -> list[Act]:
        found, serial = [], None
        for version in history.of("dnszones.bindy.firestoned.io"):
            now = version.object.get("status", {}).get("serial")
            if now != serial and history.by_operator(version.writer):
                found.append(Act(ZONE, version.place, str(now), f"serial {now}"))
            serial = now
        return found

    def causes(self, history: History) -> list[Cause]:
        changed = [
            version.place
            for version in history.of("txtrecords.bindy.firestoned.io", "dnszones.bindy.firestoned.io")
            if not history.by_operator(version.writer)
        ]
        return [Cause(ZONE, place) for place in (0, *changed, *self._causes)]

    def _record(self, target: str) -> dict[str, Any]:
        name = target.partition("/")[2]
        return {
            "apiVersion": API,
            "kind": "TXTRecord",
            "metadata": {"name": name, "namespace": self.namespace, "labels": {"zone": ZONE}},
            "spec": {"name": name, "text": [str(next(self._numbers))]},
        }

    async def _ask_all_the_time(self) -> None:
        while True:
            for server, named in zip(SERVERS, self._named, strict=True):
                soa, *answers = await named.ask((ZONE, "SOA"), *((f"{name}.{ZONE}", "TXT") for name in NAMES))
                serial = _serial(soa)
                if serial is None:
                    continue  # no answer is not a wrong answer
                self.history.answers.append(Answer(self.history.place, server, "serial", serial))
                for name, answer in zip(NAMES, answers, strict=True):
                    if answer is not None and answer[0] in RESOLVED:
                        value = int(next(iter(answer[1])).strip('"')) if answer[1] else None
                        if value is not None or name == NAMES[0]:
                            self.history.answers.append(Answer(self.history.place, server, name, value))
            await self.clock.sleep(WITNESS_SECONDS)


def _serial(soa: tuple[str, set[str]] | None) -> int | None:
    return int(next(iter(soa[1])).split()[2]) if soa is not None and soa[1] else None
