"""A TCP proxy that misbehaves on request: what networks do to a connection, done on purpose.

    async with FaultProxy("127.0.0.1", port) as proxy:
        ...                   # clients connect to proxy.address instead
        proxy.freeze()        # bytes stop both ways, connections stay open: a lost route, a paused machine
        proxy.thaw()          # and flow again, nothing lost
        await proxy.cut()     # every connection is closed, on both sides
        await proxy.reset()   # the same, with a TCP reset

Faults that are events (cut, reset, half-close) strike the connections of that moment; faults that are states (frozen,
refusing, slow, throttled) hold for later connections too. Bytes are never changed, reordered or invented: what arrives
is always a prefix of what was sent. TLS passes through untouched. Time is real here, because sockets are.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["FaultProxy"]

_CHUNK = 64 * 1024
_IN_FLIGHT = 64  # chunks one direction holds before it stops reading
_STEPS = 20  # a throttled second is carried in this many pieces
_NO_LINGER = struct.pack("ii", 1, 0)  # closing a socket with this option sends a reset


class FaultProxy:
    """Forwards connections to one address, and disturbs them when told to."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._links: set[_Link] = set()
        self._handlers: set[asyncio.Task[None]] = set()
        self._refusing = False
        self._conditions = _Conditions()
        self.accepted = 0  # connections so far

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.host, self.port = self._server.sockets[0].getsockname()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    @property
    def address(self) -> str:
        """Where clients connect, as host:port."""
        return f"{self.host}:{self.port}"

    @property
    def connections(self) -> int:
        """How many are open now."""
        return len(self._links)

    @property
    def held(self) -> int:
        """How many chunks have arrived and wait for a thaw."""
        return self._conditions.held

    def freeze(self) -> None:
        """Hold back every byte in both directions; connections stay open."""
        self._conditions.flowing.clear()

    def thaw(self) -> None:
        """Let bytes flow again, beginning with those held back."""
        self._conditions.flowing.set()

    def refuse(self) -> None:
        """Close every new connection at once; existing ones stay."""
        self._refusing = True

    def accept(self) -> None:
        """Take new connections again."""
        self._refusing = False

    def delay(self, seconds: float) -> None:
        """Let every byte arrive this much later; 0 ends it."""
        self._conditions.delay = seconds

    def throttle(self, bytes_per_second: float | None) -> None:
        """Let no direction of a connection carry more than this; None ends it."""
        self._conditions.rate = bytes_per_second

    async def cut(self) -> None:
        """Close every connection on both sides, and drop what is in flight."""
        await asyncio.gather(*(link.close() for link in self._links))

    async def reset(self) -> None:
        """Close every connection with a TCP reset on both sides."""
        await asyncio.gather(*(link.close(reset=True) for link in self._links))

    def half_close(self) -> None:
        """Tell every client that the server has finished; what clients send still goes through."""
        for link in self._links:
            link.half_close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        handler = asyncio.current_task()
        assert handler is not None
        self._handlers.add(handler)
        try:
            if not self._refusing:
                await self._forward(reader, writer)
        finally:
            self._handlers.discard(handler)
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._target)
        except OSError:
            return
        link = _Link((reader, writer), (server_reader, server_writer), self._conditions)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)
            server_writer.transport.abort()


class _Conditions:
    """The state of the road."""

    def __init__(self) -> None:
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.held = 0
        self.delay = 0.0
        self.rate: float | None = None

    async def pass_through(self) -> None:
        """Wait while the road is frozen."""
        self.held += 1
        try:
            await self.flowing.wait()
        finally:
            self.held -= 1


_Side = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Link:
    """One connection: a client's side, a server's side, and a lane for each direction."""

    def __init__(self, client: _Side, server: _Side, conditions: _Conditions) -> None:
        self._writers = client[1], server[1]
        self._conditions = conditions
        self._up = asyncio.create_task(self._carry(client[0], server[1]))
        self._down = asyncio.create_task(self._carry(server[0], client[1]))
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Carry bytes both ways until both sides have finished, or until one breaks off."""
        try:
            await asyncio.wait([self._up, self._down], return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for lane in (self._up, self._down):
                lane.cancel()
            await asyncio.wait([self._up, self._down])
            for lane in (self._up, self._down):
                lane.cancelled() or lane.exception()  # retrieved, so that asyncio does not log it
            self._ended.set()

    async def close(self, *, reset: bool = False) -> None:
        """End the connection now."""
        for writer in self._writers:
            if reset:
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            writer.transport.abort()
        self._up.cancel()
        self._down.cancel()
        await self._ended.wait()

    def half_close(self) -> None:
        """The server's side of the conversation is over."""
        self._down.cancel()
        self._writers[0].write_eof()

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Carry bytes one way until the source ends, then tell the sink."""
        lane: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_IN_FLIGHT)
        filling = asyncio.create_task(self._fill(source, lane))
        loop, conditions = asyncio.get_running_loop(), self._conditions
        try:
            while True:
                due, chunk = await lane.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                await conditions.pass_through()
                if not chunk:
                    break
                sink.write(chunk)
                await sink.drain()
            await filling
            sink.write_eof()
        finally:
            filling.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await filling

    async def _fill(self, source: asyncio.StreamReader, lane: asyncio.Queue[tuple[float, bytes]]) -> None:
        """Read, and say when each chunk may arrive; an empty chunk is the end."""
        loop, conditions, free, chunk = asyncio.get_running_loop(), self._conditions, 0.0, b"more"
        try:
            while chunk:
                rate = conditions.rate
                chunk = await source.read(_CHUNK if rate is None else min(_CHUNK, max(1, int(rate / _STEPS))))
                now = loop.time()
                if rate is not None:
                    free = max(free, now) + len(chunk) / rate
                await lane.put((max(now, free) + conditions.delay, chunk))
        except ConnectionError:
            await lane.put((loop.time(), b""))
            raise
