"""The driver interface: what the operator asks of a server, whatever channel leads to it.

`rndc_driver` uses the control channel of named, `http_driver` the HTTP sidecar. A driver belongs to one server, keeps
no state about zones, and raises DriverError for every failure (`.retryable` says whether a retry may help).

`DataPath` is the half that is the same for every server: DNS itself, by signed questions, updates and transfers, and
the gate that every request to the server passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from steersman.clock import Deadline
from steersman.errors import DriverError
from steersman.operators.dns.bind.breaker import PAUSE, QUICK, Gate
from steersman.operators.dns.wire.client import DnsClient, DnsError, NoAnswer
from steersman.operators.dns.wire.rndc import ControlRefused
from steersman.operators.dns.zone.rdata import SOA

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from steersman.clock import Clock
    from steersman.operators.dns.bind.servers import Server
    from steersman.operators.dns.bind.statements import Statement
    from steersman.operators.dns.wire.messages import RRsetChange
    from steersman.operators.dns.zone.rdata import Key, RRset, Soa


class Stale(DriverError):  # noqa: N818  a state
    """The zone has changed since it was read: read it again."""


class Refused(DriverError):  # noqa: N818  an answer
    """The server rejected an update without a reason; nothing of it was applied."""


class BadZone(DriverError):  # noqa: N818  an answer
    """The server rejected the data of a new zone."""


class Static(DriverError):  # noqa: N818  a state
    """The zone is part of the server's own configuration or of a catalog, and cannot be removed."""


class ZoneFileAccess(DriverError):  # noqa: N818  the reason of a condition
    """The server cannot get the first copy of a zone: neither by its directory nor by a transfer from us."""


class Driver(Protocol):
    """One server."""

    server: Server

    async def configuration(self, zone: bytes) -> tuple[Statement, ...] | None:
        """The zone's configuration on the server; None when the server does not have the zone."""

    async def create_primary(
        self, zone: bytes, config: tuple[Statement, ...], soa: Soa, rrsets: Mapping[Key, RRset], ttl: int
    ) -> None:
        """Add a primary zone with all of its data; BadZone when the server rejects the data."""

    async def create_secondary(self, zone: bytes, config: tuple[Statement, ...]) -> None:
        """Add a secondary zone."""

    async def configure(self, zone: bytes, config: tuple[Statement, ...]) -> None:
        """Change the configuration of a zone."""

    async def added(self, zone: bytes) -> bool | None:
        """Whether this operator added the zone, as recorded on the server itself.

        None: the server has the zone, and its origin cannot be determined.
        """

    async def remove(self, zone: bytes) -> None:
        """Remove a zone and its files; no error when it is absent, Static when it is part of the configuration."""

    async def soa(self, zone: bytes) -> bytes | None:
        """The SOA value that is served; None when the zone is not served."""

    async def soa_ttl(self, zone: bytes) -> int | None:
        """The TTL of the SOA record that is served."""

    async def values(self, zone: bytes, kind: int) -> list[bytes]:
        """The values of a type at the apex of the zone."""

    async def read(self, zone: bytes, skip: frozenset[int]) -> tuple[bytes, Mapping[Key, RRset]]:
        """The whole zone as it is served: SOA value and RRsets without the types in `skip`."""

    async def write(
        self, zone: bytes, expected: bytes | None, soa: bytes | None, ttl: int, changes: Sequence[RRsetChange]
    ) -> None:
        """Apply all changes or none; Stale when the SOA of the zone no longer is `expected`.

        Refused when the server rejects the update, because of one change or of all.
        """

    async def refresh(self, zone: bytes) -> None:
        """Have a secondary query its primaries now."""

    async def signing(self, zone: bytes) -> str:
        """The output of `rndc dnssec -status`."""

    async def load_keys(self, zone: bytes) -> None:
        """Have the server load the keys of a signed zone now, if the channel has a command for it."""

    async def reconfigure(self) -> None:
        """Have the server reload its configuration."""

    async def renew(self) -> bool:
        """Have the server load new TSIG keys if it does not know them; returns whether it knows them now."""

    async def ready(self) -> None:
        """Return when the control channel answers."""

    async def probe(self) -> None:
        """Ask whether the server answers at all; the one question that is sent while its breaker is open."""

    def close(self) -> None:
        """Close all connections."""


T = TypeVar("T")

PROBE_SHARE: Final = 5  # a probe gets this part of the time of a request, so that the next one follows soon
UNKNOWN_KEY: Final = frozenset({"BADSIG", "BADKEY", "NOTAUTH"})


class DataPath:
    """The part of `Driver` that is plain DNS. Drivers add how zones are added and removed.

    Every query is signed too: a forged serial would be overtaken, and a forged DNSKEY reported as DS record.
    """

    on_attempt: Callable[[Server, str, str], None] | None = None  # called with the result of every request

    def __init__(self, server: Server, *, clock: Clock, timeout: float, pause: float = PAUSE) -> None:
        self.server = server
        self._clock, self._timeout = clock, timeout
        self._gate = Gate(server.title, clock, pause)
        self._dns = DnsClient(server.address, server.dns_port, clock=clock, timeout=timeout)

    async def soa(self, zone: bytes) -> bytes | None:
        """The SOA value that is served; None when the zone is not served."""
        return await self._guarded(lambda: self._dns.soa(zone, self.server.keys.transfer))

    async def soa_ttl(self, zone: bytes) -> int | None:
        """The TTL of the SOA record that is served."""
        answer = await self._guarded(lambda: self._dns.ask(zone, SOA, self.server.keys.transfer))
        return next((row.ttl for row in answer.rows if row.kind == SOA and row.name == zone), None)

    async def values(self, zone: bytes, kind: int) -> list[bytes]:
        """The values of a type at the apex of the zone."""
        answer = await self._guarded(lambda: self._dns.ask(zone, kind, self.server.keys.transfer))
        return [row.value for row in answer.rows if row.kind == kind and row.name == zone]

    async def read(self, zone: bytes, skip: frozenset[int]) -> tuple[bytes, Mapping[Key, RRset]]:
        """The whole zone as it is served: SOA value and RRsets without the types in `skip`."""
        return await self._guarded(lambda: self._dns.transfer(zone, self.server.keys.transfer, skip))

    async def write(
        self, zone: bytes, expected: bytes | None, soa: bytes | None, ttl: int, changes: Sequence[RRsetChange]
    ) -> None:
        """Apply all changes or none; Stale when the SOA of the zone no longer is `expected`.

        Refused when the server rejects the update, because of one change or of all.
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
        """Whether the server knows the transfer key: it verifies the signature before it reads the query."""
        try:
            await self._guarded(lambda: self._dns.ask(b"\0", SOA, self.server.keys.transfer))
        except DnsError as error:
            if error.rcode in UNKNOWN_KEY:
                return False
            raise
        return True

    async def probe(self) -> None:
        """One question past the breaker. An answer, be it a rejection, closes it; silence is not counted."""
        try:
            async with Deadline(self._clock, self._timeout / PROBE_SHARE):
                await self._dns.ask(b"\0", SOA, self.server.keys.transfer)
        except TimeoutError:
            raise NoAnswer("no answer to a probe", server=self.server.title) from None
        except DnsError as error:
            if not error.rcode:
                raise
        self._gate.breaker.succeeded()
        if self.on_attempt is not None:
            self.on_attempt(self.server, "DNS", "")

    def close(self) -> None:
        """Close all connections."""
        self._dns.close()

    async def _guarded(self, ask: Callable[[], Awaitable[T]], channel: str = "DNS") -> T:
        """Send a request through the gate and record whether the server answered; a rejection is an answer too."""
        await self._gate.enter()
        began = self._clock.monotonic()
        try:
            answer = await ask()
        except DriverError as error:
            answered = getattr(error, "rcode", "") or getattr(error, "text", "")
            if answered or error.retryable:  # otherwise the request was never sent
                if self.on_attempt is not None and not isinstance(error, ControlRefused):  # that may be the key alone
                    self.on_attempt(self.server, channel, "" if answered else error.message)
                if answered:
                    self._gate.breaker.succeeded()
                else:
                    self._gate.breaker.failed(quickly=self._clock.monotonic() - began < QUICK)
            self._gate.why = error.message
            raise
        self._gate.breaker.succeeded()
        if self.on_attempt is not None:
            self.on_attempt(self.server, channel, "")
        return answer
