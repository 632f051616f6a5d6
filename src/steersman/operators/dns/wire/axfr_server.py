"""A server for AXFR of a single zone: how a new zone reaches a named whose zone directory we cannot write.

named adds a primary zone only when its file exists. So the zone is first added as a secondary of this process, which
answers signed SOA and AXFR queries for it; then named has the file, and the zone is added again as a primary.

Anyone who reaches this machine may connect. Only a signed query is answered, a new connection takes the place of the
oldest when there are `CONNECTIONS`, and none is left when the zone has been transferred.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any, Final

from steersman.operators.dns.wire.messages import AXFR, parse
from steersman.operators.dns.wire.tsig import BadSignature, Signer
from steersman.operators.dns.zone.rdata import SOA

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.operators.dns.wire.tsig import Key
    from steersman.operators.dns.zone.rdata import Key as RRKey
    from steersman.operators.dns.zone.rdata import RRset, Soa

_POINTER: Final = b"\xc0\x0c"
CHUNK: Final = 30_000
CONNECTIONS: Final = 16  # named uses one or two


class AxfrServer:
    """Serves one zone on a local address until `close`."""

    def __init__(self, zone: bytes, soa: Soa, rrsets: Mapping[RRKey, RRset], ttl: int, key: Key) -> None:
        self._zone, self._key = zone, key
        value = soa.value()
        self._soa = _POINTER + struct.pack("!HHIH", SOA, 1, ttl, len(value)) + value
        self._rows = [
            owner + _POINTER + struct.pack("!HHIH", kind, 1, rrset.ttl, len(data)) + data
            for (owner, kind), rrset in rrsets.items()
            for data in sorted(rrset.values)
        ]
        self._server: asyncio.Server | None = None
        self._datagrams: asyncio.DatagramTransport | None = None
        self._connections: dict[asyncio.StreamWriter, None] = {}  # the oldest first
        self._closed = False
        self.port = 0

    async def open(self, address: str) -> None:
        """Listen on a free port of `address`, over UDP and TCP."""
        for _ in range(20):
            server = await asyncio.start_server(self._serve, address, 0)
            port = server.sockets[0].getsockname()[1]
            try:
                transport, _protocol = await asyncio.get_running_loop().create_datagram_endpoint(
                    lambda: _Datagrams(self), local_addr=(address, port)
                )
            except OSError:
                server.close()
                await server.wait_closed()
                continue
            self._server, self._datagrams, self.port = server, transport, port
            return
        raise OSError(f"no port of {address} is free for both UDP and TCP")

    async def close(self) -> None:
        """Stop serving, and close every connection."""
        if self._datagrams is not None:
            self._datagrams.close()
        if self._server is not None:
            self._server.close()
            await asyncio.sleep(0)
        self._closed = True
        for writer in list(self._connections):
            self._drop(writer)

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        self._connections.pop(writer, None)
        writer.close()

    def answers(self, wire: bytes) -> list[bytes]:
        """The messages that answer a query; none for a query without our signature or for anything else."""
        try:
            asked = parse(wire)
            kind = _kind(wire)
        except (ValueError, IndexError, struct.error):
            return []
        if asked.signature is None or not wire[12:].lower().startswith(self._zone) or kind not in (SOA, AXFR):
            return []
        signer = Signer(self._key)
        try:
            signer.accept(wire, asked.signature)
        except BadSignature:
            return []
        groups = [[self._soa]] if kind == SOA else self._transfer()
        found = []
        for rows in groups:
            head = wire[:2] + struct.pack("!5H", 0x8400, 1, len(rows), 0, 0)
            found.append(signer.answer(head + self._zone + struct.pack("!HH", kind, 1) + b"".join(rows)))
        return found

    def _transfer(self) -> list[list[bytes]]:
        groups: list[list[bytes]] = [[]]
        size = 0
        for row in [self._soa, *self._rows, self._soa]:
            if size + len(row) > CHUNK:
                groups.append([])
                size = 0
            groups[-1].append(row)
            size += len(row)
        return groups

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections[writer] = None
        if len(self._connections) > (0 if self._closed else CONNECTIONS):
            self._drop(next(iter(self._connections)))
        try:
            while True:
                wire = await reader.readexactly(int.from_bytes(await reader.readexactly(2)))
                for answer in self.answers(wire):
                    writer.write(len(answer).to_bytes(2) + answer)
                    await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            self._drop(writer)


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, source: AxfrServer) -> None:
        self._source = source
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        answers = self._source.answers(data)
        if len(answers) == 1:
            self._transport.sendto(answers[0], addr)


def _kind(wire: bytes) -> int:
    place = 12
    while wire[place]:
        place += wire[place] + 1
    return int.from_bytes(wire[place + 1 : place + 3])
