"""A DNS client of one server over TCP: questions, signed updates and transfers, on pooled connections.

A connection carries one exchange at a time and returns to the pool only after a complete one. The server may have
closed a pooled connection, so an exchange that fails on one is retried once on a new connection; updates have a
prerequisite, so a retry never applies a change twice.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import struct
from typing import TYPE_CHECKING, Any, Final

import dns.rcode

from steersman.clock import Deadline
from steersman.errors import DriverError
from steersman.operators.dns.wire.messages import AXFR, AnswerRecord, Message, parse, question, rrsets_of, update
from steersman.operators.dns.wire.tsig import BadSignature, Key, Signer
from steersman.operators.dns.zone.names import text_of
from steersman.operators.dns.zone.rdata import SOA
from steersman.runtime.reconcile.write_guard import effect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.clock import Clock
    from steersman.operators.dns.wire.messages import RRsetChange
    from steersman.operators.dns.zone.rdata import Key as RRKey
    from steersman.operators.dns.zone.rdata import RRset

RESPONSE: Final = 0x8000  # the QR flag
LONGEST: Final = 0xFFFF  # bytes of a message over TCP
POOL_SIZE: Final = 16  # connections
UPDATE: Final = 5  # the opcode
TRANSFER_FACTOR: Final = 12  # a transfer gets this many times the timeout of a question


def fault_of(error: Exception, place: str) -> str:
    """What is wrong with a connection, and where, without the error numbers of Python's texts."""
    if isinstance(error, socket.gaierror):
        return f"{place}: {error.strerror}"
    if isinstance(error, OSError) and error.errno:
        return f"{place}: {os.strerror(error.errno)}"
    return str(error) or type(error).__name__


class Withheld(DriverError):  # noqa: N818  a state, not a fault
    """A change that is not sent because this is a dry run."""


def ask_guard(change: str, server: str) -> None:
    """Call before every attempt to change something on a server; raises when the change is not allowed.

    Withheld in a dry run, NotLeading when this process is not the leader. Without a manager every change is allowed.
    """
    if not effect(change, server):
        raise Withheld(f"{change}: not sent, because this is a dry run", server=server, retryable=False)


class DnsError(DriverError):
    """A server rejected a request or did not answer it: `.rcode` is the response code, empty without an answer."""

    def __init__(self, message: str, *, server: str, rcode: str = "", retryable: bool = True) -> None:
        super().__init__(message, server=server, retryable=retryable)
        self.rcode = rcode


class NoAnswer(DnsError):  # noqa: N818  what happened
    """A server accepted the connection and did not answer within the timeout."""


class DnsClient:
    """One server's DNS port."""

    def __init__(self, address: str, port: int, *, clock: Clock, timeout: float) -> None:
        self.server = f"{address}:{port}"
        self._address, self._port = address, port
        self._clock, self._timeout = clock, timeout
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._permits = asyncio.Semaphore(POOL_SIZE)
        self._closed = False

    async def ask(self, name: bytes, kind: int, key: Key | None = None) -> Message:
        """The answer to a question, with any response code; DnsError when the server does not know the key."""
        (answer,) = await self._exchange(question(_number(), name, kind), key)
        return answer

    async def soa(self, zone: bytes, key: Key | None = None) -> bytes | None:
        """The SOA value that is served; None when this server does not serve the zone."""
        answer = await self.ask(zone, SOA, key)
        if answer.rcode == 0 and answer.flags & 0x0400:
            return next((row.value for row in answer.rows if row.kind == SOA and row.name == zone), None)
        if answer.rcode in (0, 2, 3, 5, 9):  # a referral; or the zone is unknown, not loaded, or refused to us
            return None
        raise self._error(answer.rcode, f"the query for {text_of(zone)} SOA")

    async def update(
        self, zone: bytes, expected: bytes | None, soa: bytes | None, ttl: int, changes: Sequence[RRsetChange], key: Key
    ) -> None:
        """Change a zone whose SOA still is `expected`; DnsError NXRRSET when it is another."""
        message = update(_number(), zone, expected, soa, ttl, changes)
        (answer,) = await self._exchange(message, key)
        if answer.rcode:
            raise self._error(answer.rcode, f"an update of {text_of(zone)} with TSIG key {key.name}")

    async def transfer(self, zone: bytes, key: Key | None, skip: frozenset[int]) -> tuple[bytes, Mapping[RRKey, RRset]]:
        """The whole zone: its SOA value, and its RRsets without the types in `skip`."""
        answers = await self._exchange(question(_number(), zone, AXFR), key)
        rows: list[AnswerRecord] = [row for answer in answers for row in answer.rows]
        if rcode := answers[-1].rcode:  # a transfer may fail after its first message
            signed = "without a TSIG key" if key is None else f"with TSIG key {key.name}"
            raise self._error(rcode, f"a transfer of {text_of(zone)} {signed}")
        soa, rrsets = (
            await asyncio.to_thread(rrsets_of, rows, zone, skip) if len(rows) > 5000 else rrsets_of(rows, zone, skip)
        )
        if soa is None:
            raise DnsError("the transfer has no SOA record", server=self.server)
        return soa, rrsets

    def close(self) -> None:
        """Close all connections."""
        self._closed = True
        while self._idle:
            self._idle.pop()[1].close()

    # -- the machinery -------------------------------------------------------------------------------------------------

    async def _exchange(self, message: bytes, key: Key | None) -> list[Message]:
        async with self._permits:
            if self._idle:
                try:
                    return await self._attempt(self._idle.pop(), message, key)
                except NoAnswer:
                    raise  # a retry would wait as long again
                except DnsError as error:
                    if error.rcode or not error.retryable:
                        raise
            return await self._attempt(None, message, key)

    async def _attempt(self, streams: Any, message: bytes, key: Key | None) -> list[Message]:
        transfer = int.from_bytes(message[2:4]) & 0x7800 == 0 and message.endswith(struct.pack("!HH", AXFR, 1))
        signer = None if key is None else Signer(key)
        writer = None
        try:
            async with Deadline(self._clock, self._timeout * (TRANSFER_FACTOR if transfer else 1)):
                reader, writer = streams or await asyncio.open_connection(self._address, self._port)
                if message[2] >> 3 & 15 == UPDATE:
                    ask_guard("DNS update", self.server)
                data = message if signer is None else signer.sign(message)
                writer.write(self._framed(data))
                answers = await self._answers(reader, message, signer, transfer=transfer)
        except BaseException as error:
            if writer is not None:
                writer.close()
            if isinstance(error, TimeoutError):
                raise NoAnswer(f"no answer within {self._timeout:g} s", server=self.server) from None
            if isinstance(error, BadSignature):
                raise DnsError(str(error), server=self.server, rcode=error.name) from None
            if isinstance(error, asyncio.IncompleteReadError):
                raise DnsError("the connection was closed", server=self.server) from None
            if isinstance(error, (OSError, ValueError, IndexError, struct.error)):
                raise DnsError(fault_of(error, self.server), server=self.server) from None
            raise
        if self._closed:
            writer.close()
        else:
            self._idle.append((reader, writer))
        return answers

    def _framed(self, data: bytes) -> bytes:
        if len(data) > LONGEST:
            text = f"a message of {len(data)} bytes exceeds the limit of {LONGEST}"
            raise DnsError(text, server=self.server, retryable=False)
        return len(data).to_bytes(2) + data

    async def _answers(
        self, reader: asyncio.StreamReader, message: bytes, signer: Signer | None, *, transfer: bool
    ) -> list[Message]:
        """One message; of a transfer all messages until the second SOA. Every signature is verified first."""
        answers: list[Message] = []
        starts = 0
        while True:
            wire = await reader.readexactly(int.from_bytes(await reader.readexactly(2)))
            answer = parse(wire)
            if answer.number != int.from_bytes(message[:2]) or not answer.flags & RESPONSE:
                raise ValueError("the answer belongs to another query")
            if signer is not None:
                signer.check(wire, answer.signature, answer.rcode)
            answers.append(answer)
            starts += sum(row.kind == SOA for row in answer.rows)
            if not transfer or answer.rcode or starts >= 2:
                if signer is not None:
                    signer.finish()
                return answers

    def _error(self, rcode: int, asked: str) -> DnsError:
        name = dns.rcode.to_text(dns.rcode.Rcode.make(rcode))
        return DnsError(f"the server answered {name} to {asked}", server=self.server, rcode=name)


def _number() -> int:
    return secrets.randbits(16)
