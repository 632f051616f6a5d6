"""The half of a driver that is the same for every server: DNS itself, by signed updates and transfers.

Also the gate that every request to the server passes, of whatever kind: the breaker learns from all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from steersman.errors import DriverError
from steersman.operators.dns.dnsclient import DnsClient, DnsError
from steersman.operators.dns.driver import Refused, Stale
from steersman.operators.dns.rndc import ControlRefused
from steersman.operators.dns.rrsets import SOA
from steersman.operators.dns.servers import PAUSE, QUICK, Gate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from steersman.clock import Clock
    from steersman.operators.dns.messages import Change
    from steersman.operators.dns.rrsets import Key, RRset
    from steersman.operators.dns.servers import Server

__all__ = ["UNKNOWN_KEY", "DataPath"]

T = TypeVar("T")

UNKNOWN_KEY: Final = frozenset({"BADSIG", "BADKEY", "NOTAUTH"})


class DataPath:
    """See `driver.Driver`; drivers add how zones come and go."""

    heard: Callable[[Server, str, str], None] | None = None  # who is told of every try; see `outages`

    def __init__(self, server: Server, *, clock: Clock, timeout: float, pause: float = PAUSE) -> None:
        self.server = server
        self._clock, self._timeout = clock, timeout
        self._gate = Gate(server.title, clock, pause)
        self._dns = DnsClient(server.address, server.dns_port, clock=clock, timeout=timeout)

    async def soa(self, zone: bytes) -> bytes | None:
        """The start of authority that is being served; None when the zone is not."""
        return await self._guarded(lambda: self._dns.soa(zone))

    async def soa_ttl(self, zone: bytes) -> int | None:
        """The TTL of the start of authority that is being served."""
        answer = await self._guarded(lambda: self._dns.ask(zone, SOA))
        return next((row.ttl for row in answer.rows if row.kind == SOA and row.name == zone), None)

    async def values(self, zone: bytes, kind: int) -> list[bytes]:
        """The values of a type at the zone's own name."""
        answer = await self._guarded(lambda: self._dns.ask(zone, kind))
        return [row.value for row in answer.rows if row.kind == kind and row.name == zone]

    async def read(self, zone: bytes, skip: frozenset[int]) -> tuple[bytes, Mapping[Key, RRset]]:
        """Everything that is being served."""
        return await self._guarded(lambda: self._dns.transfer(zone, self.server.keys.transfer, skip))

    async def write(
        self, zone: bytes, expected: bytes | None, soa: bytes | None, ttl: int, changes: Sequence[Change]
    ) -> None:
        """Change a zone as a whole or not at all; Stale when it no longer has the start of authority `expected`.

        Refused when the server would not have it, be it for one of the changes or for all.
        """
        keys = self.server.keys
        try:
            try:
                await self._guarded(lambda: self._dns.update(zone, expected, soa, ttl, changes, keys.update))
            except DnsError as error:
                older = keys.previous_update
                if older is None or error.rcode not in UNKNOWN_KEY:
                    raise
                await self._guarded(lambda: self._dns.update(zone, expected, soa, ttl, changes, older))
        except DnsError as error:
            if error.rcode == "NXRRSET":
                raise Stale("the zone has changed since it was read", server=self.server.title) from None
            if error.rcode in {"REFUSED", "SERVFAIL"}:
                raise Refused(error.message, server=self.server.title) from None
            raise

    async def _transfers(self) -> bool:
        """Whether the server knows the key of transfers: it looks at a signature before it looks at the question."""
        try:
            await self._guarded(lambda: self._dns.ask(b"\0", SOA, self.server.keys.transfer))
        except DnsError as error:
            if error.rcode in UNKNOWN_KEY:
                return False
            raise
        return True

    def close(self) -> None:
        """Hang up."""
        self._dns.close()

    async def _guarded(self, ask: Callable[[], Awaitable[T]], way: str = "DNS") -> T:
        """Ask, and learn from the answer whether the server is alive: a refusal is a sign of life."""
        await self._gate.enter()
        began = self._clock.monotonic()
        try:
            answer = await ask()
        except DriverError as error:
            alive = getattr(error, "rcode", "") or getattr(error, "text", "")
            if alive or error.retryable:  # else it is our own fault, and says nothing about the server
                if self.heard is not None and not isinstance(error, ControlRefused):  # which may be for a key only
                    self.heard(self.server, way, "" if alive else error.message)
                if alive:
                    self._gate.breaker.succeeded()
                else:
                    self._gate.breaker.failed(quickly=self._clock.monotonic() - began < QUICK)
            self._gate.why = error.message
            raise
        self._gate.breaker.succeeded()
        if self.heard is not None:
            self.heard(self.server, way, "")
        return answer
