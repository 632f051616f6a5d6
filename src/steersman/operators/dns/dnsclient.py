"""Talking DNS to one server, over TCP: questions, signed updates and transfers, on connections that are kept.

A connection carries one exchange at a time and returns to the pool only after a whole one. A kept connection may have
been closed by the server, so an exchange that fails on one is tried once more on a new one; updates carry a
precondition, so a second try can never apply a change twice.
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
from typing import TYPE_CHECKING, Any, Final

from steersman.clock import Deadline
from steersman.errors import DriverError
from steersman.operators.dns.driver import fault_of
from steersman.operators.dns.messages import AXFR, RCODES, Message, Row, parse, question, rrsets_of, update
from steersman.operators.dns.names import text_of
from steersman.operators.dns.rrsets import SOA
from steersman.operators.dns.tsig import BadSignature, Key, Signer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.clock import Clock
    from steersman.operators.dns.messages import Change
    from steersman.operators.dns.rrsets import Key as RRKey
    from steersman.operators.dns.rrsets import RRset

__all__ = ["DnsClient", "DnsError", "NoAnswer"]

LONGEST: Final = 0xFFFF  # bytes of a message: its length has two
KEPT: Final = 16  # connections
TRANSFER_FACTOR: Final = 12  # a transfer may take that much longer than a question


class DnsError(DriverError):
    """A server did not do it: `.rcode` is its word for why, or empty when it said nothing."""

    def __init__(self, message: str, *, server: str, rcode: str = "", retryable: bool = True) -> None:
        super().__init__(message, server=server, retryable=retryable)
        self.rcode = rcode


class NoAnswer(DnsError):  # noqa: N818  what happened
    """A server took a question and said nothing for as long as one waits."""


class DnsClient:
    """One server's DNS port."""

    def __init__(self, address: str, port: int, *, clock: Clock, timeout: float) -> None:
        self.server = f"{address}:{port}"
        self._address, self._port = address, port
        self._clock, self._timeout = clock, timeout
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._permits = asyncio.Semaphore(KEPT)
        self._closed = False

    async def ask(self, name: bytes, kind: int, key: Key | None = None) -> Message:
        """The answer to a question, whatever it is; DnsError when it is signed and the server does not know the key."""
        (answer,) = await self._exchange(question(_number(), name, kind), key)
        return answer

    async def soa(self, zone: bytes) -> bytes | None:
        """The start of authority that is served; None when this server does not serve the zone."""
        answer = await self.ask(zone, SOA)
        if answer.rcode == 0 and answer.flags & 0x0400:
            return next((row.value for row in answer.rows if row.kind == SOA and row.name == zone), None)
        if answer.rcode in (0, 2, 3, 5, 9):  # a referral; or no such zone, not loaded, or not for us
            return None
        raise self._error(answer.rcode, f"the question for {text_of(zone)} SOA")

    async def update(
        self, zone: bytes, expected: bytes | None, soa: bytes | None, ttl: int, changes: Sequence[Change], key: Key
    ) -> None:
        """Change a zone that still has the start of authority `expected`; DnsError NXRRSET when it has not."""
        message = update(_number(), zone, expected, soa, ttl, changes)
        (answer,) = await self._exchange(message, key)
        if answer.rcode:
            raise self._error(answer.rcode, f"an update of {text_of(zone)} with key {key.name}")

    async def transfer(self, zone: bytes, key: Key | None, skip: frozenset[int]) -> tuple[bytes, Mapping[RRKey, RRset]]:
        """The whole zone: its start of authority, and its RRsets without the types in `skip`."""
        answers = await self._exchange(question(_number(), zone, AXFR), key)
        rows: list[Row] = [row for answer in answers for row in answer.rows]
        if answers[0].rcode:
            signed = "without a key" if key is None else f"with key {key.name}"
            raise self._error(answers[0].rcode, f"a transfer of {text_of(zone)} {signed}")
        soa, rrsets = (
            await asyncio.to_thread(rrsets_of, rows, zone, skip) if len(rows) > 5000 else rrsets_of(rows, zone, skip)
        )
        if soa is None:
            raise DnsError("the transfer holds no start of authority", server=self.server)
        return soa, rrsets

    def close(self) -> None:
        """Hang up."""
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
                    raise  # waiting once more would take as long
                except DnsError as error:
                    if error.rcode or not error.retryable:
                        raise
            return await self._attempt(None, message, key)

    async def _attempt(self, streams: Any, message: bytes, key: Key | None) -> list[Message]:
        transfer = int.from_bytes(message[2:4]) & 0x7800 == 0 and message.endswith(struct.pack("!HH", AXFR, 1))
        signer = None if key is None else Signer(key, time.time())
        writer = None
        try:
            async with Deadline(self._clock, self._timeout * (TRANSFER_FACTOR if transfer else 1)):
                reader, writer = streams or await asyncio.open_connection(self._address, self._port)
                data = message if signer is None else signer.sign(message)
                writer.write(self._framed(data))
                answers = await self._answers(reader, message, signer, transfer=transfer)
        except BaseException as error:
            if writer is not None:
                writer.close()
            if isinstance(error, TimeoutError):
                raise NoAnswer(f"no answer within {self._timeout:g} s", server=self.server) from None
            if isinstance(error, BadSignature):
                rcode = RCODES.get(error.code) or {16: "BADSIG", 17: "BADKEY", 18: "BADTIME"}.get(error.code, "BADSIG")
                raise DnsError(str(error), server=self.server, rcode=rcode) from None
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
            text = f"a message of {len(data)} bytes is longer than any can be"
            raise DnsError(text, server=self.server, retryable=False)
        return len(data).to_bytes(2) + data

    async def _answers(
        self, reader: asyncio.StreamReader, message: bytes, signer: Signer | None, *, transfer: bool
    ) -> list[Message]:
        """One message; of a transfer all, until the start of authority comes a second time."""
        answers: list[Message] = []
        starts = 0
        while True:
            wire = await reader.readexactly(int.from_bytes(await reader.readexactly(2)))
            answer = parse(wire)
            if answer.number != int.from_bytes(message[:2]):
                raise ValueError("the answer is to another question")
            if signer is not None and not (answer.signature is None and answer.rcode in (1, 4)):
                signer.check(wire, answer.signature, answer.rcode)
            answers.append(answer)
            starts += sum(row.kind == SOA for row in answer.rows)
            if not transfer or answer.rcode or starts >= 2:
                return answers

    def _error(self, rcode: int, asked: str) -> DnsError:
        name = RCODES.get(rcode, str(rcode))
        return DnsError(f"the server answered {name} to {asked}", server=self.server, rcode=name)


def _number() -> int:
    return random.getrandbits(16)  # TCP and signatures protect the exchange, not this number
