"""A server that lies: a machine between the operator and a name server that has no key.

async with Named(folder) as named, Liar(named) as liar:     # liar.endpoint is that of a server
    liar.lie = "unsigned"                                   # empty: it carries what named says
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any, Self

import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rdatatype
import dns.rrset
import dns.tsig

if TYPE_CHECKING:
    from tests.support.dns.named import Named

__all__ = ["FORGED", "JUMP", "LIES", "Liar", "cut_signature"]

JUMP = 1_000_000_000
FORGED = "203.0.113.66"
LIES = ("unsigned", "empty", "truncated", "stranger", "replayed", "mirrored", "error")


class Liar:
    """A name server as the operator sees it: `named` itself while `lie` is empty."""

    def __init__(self, named: Named) -> None:
        self.named, self.lie = named, ""
        self.told = 0  # lies
        self._servers: list[asyncio.Server] = []
        self._tasks: set[Any] = set()
        self._heard: dict[Any, bytes] = {}
        self.address, self.key_name = named.address, named.key_name
        self.dns_port = self.rndc_port = 0

    async def __aenter__(self) -> Self:
        for port, framed in ((self.named.dns_port, 2), (self.named.rndc_port, 4)):
            serve = self._serving(port, framed)
            self._servers.append(await asyncio.start_server(serve, self.address, 0))
        self.dns_port, self.rndc_port = (server.sockets[0].getsockname()[1] for server in self._servers)
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        await asyncio.sleep(0)  # connections that were accepted become tasks
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks)

    @property
    def secret(self) -> str:
        """The key of the server behind it."""
        return self.named.secret

    @property
    def endpoint(self) -> dict[str, Any]:
        """An entry of `spec.endpoints`."""
        return {"address": self.address, "dnsPort": self.dns_port, "rndcPort": self.rndc_port}

    def _serving(self, port: int, framed: int) -> Any:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._tasks.add(asyncio.current_task())
            closing = [writer]
            try:
                replies, upstream = await asyncio.open_connection(self.address, port)
                closing.append(upstream)
                while True:
                    asked = await _message(reader, framed)
                    if self.lie and (made := self._made(asked, framed)) is not None:
                        self.told += 1
                        writer.write(len(made).to_bytes(framed) + made)
                        continue
                    upstream.write(len(asked).to_bytes(framed) + asked)
                    answer = await self._answer(replies, framed)
                    self._heard[framed, _kind(asked) if framed == 2 else 0] = answer
                    writer.write(len(answer).to_bytes(framed) + answer)
            except (OSError, EOFError, asyncio.CancelledError):  # Python 3.11 logs a stream whose task is cancelled
                pass
            finally:
                for stream in closing:
                    stream.close()

        return serve

    async def _answer(self, replies: asyncio.StreamReader, framed: int) -> bytes:
        return await _message(replies, framed)

    def _made(self, asked: bytes, framed: int) -> bytes | None:
        """The lie, None where this one is told elsewhere."""
        if self.lie == "mirrored":
            return asked if framed == 4 else asked[:2] + bytes([asked[2] | 0x80]) + asked[3:]
        if self.lie == "replayed":
            held = self._heard.get((framed, _kind(asked) if framed == 2 else 0))
            return None if held is None else (held if framed == 4 else asked[:2] + held[2:])
        return self._forged(asked) if framed == 2 else None

    def _forged(self, asked: bytes) -> bytes:
        question = dns.message.from_wire(asked, keyring=False)
        answer = dns.message.Message(question.id)
        answer.flags = dns.flags.QR | dns.flags.AA
        answer.set_opcode(question.opcode())
        answer.question = question.question
        if question.opcode() == dns.opcode.QUERY:
            name = question.question[0].name
            start = f"ns1.{name} hostmaster.{name} {JUMP} 3600 600 604800 60"
            first = dns.rrset.from_text(name, 300, "IN", "SOA", start)
            answer.answer = [first]
            if question.question[0].rdtype == dns.rdatatype.AXFR:
                more = [
                    dns.rrset.from_text(name, 300, "IN", "NS", f"ns1.{name}"),
                    dns.rrset.from_text(f"www.{name}", 300, "IN", "A", FORGED),
                ]
                answer.answer += [*more, dns.rrset.from_text(name, 300, "IN", "SOA", start)]
        if self.lie == "error":  # an error that nobody signed: it would have a record put aside as refused
            answer.set_rcode(dns.rcode.REFUSED)
            answer.answer = []
        wire = answer.to_wire()
        if self.lie in ("unsigned", "error"):
            return wire
        guessed = self.key_name if self.lie != "stranger" else "stranger"
        answer.use_tsig(dns.tsig.Key(guessed, b"a guess", dns.tsig.HMAC_SHA256))
        answer.request_mac = question.mac or b""
        wire = answer.to_wire()
        size = {"empty": 0, "truncated": 1}.get(self.lie)
        return wire if size is None else cut_signature(wire, size)


def cut_signature(wire: bytes, size: int) -> bytes:
    """A message whose signature keeps `size` bytes."""
    found = dns.message.from_wire(wire, keyring=False)
    mac = found.mac
    place = wire.rindex(struct.pack("!H", len(mac)) + mac)
    data = place - 8 - len(dns.tsig.HMAC_SHA256.to_wire()) - 2
    length = int.from_bytes(wire[data : data + 2]) - len(mac) + size
    body = wire[:data] + length.to_bytes(2) + wire[data + 2 : place]
    return body + struct.pack("!H", size) + mac[:size] + wire[place + 2 + len(mac) :]


def _kind(asked: bytes) -> Any:
    question = dns.message.from_wire(asked, keyring=False)
    return question.opcode(), question.question[0].rdtype if question.question else None


async def _message(reader: asyncio.StreamReader, framed: int) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(framed)))
