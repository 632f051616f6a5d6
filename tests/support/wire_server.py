"""A server made of one function: for everything that can come over a wire, and never comes from a well-behaved server.

    async with Wire([reply(503, Retry_After="1"), reply(200, {"kind": "Status"})]) as server: ...   # server.url

Answers are bytes and sent as they are, so they can be truncated, too long, HTML, or nothing. A function in place of
the list sees each request and may write to the connection itself: drip, hang, reset. It speaks HTTP/1.1 on loopback,
with TLS if it gets a context, and keeps every request it received.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from dataclasses import dataclass
from socket import SO_LINGER, SOL_SOCKET
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType
    from typing import Self

__all__ = ["END", "HANG_UP", "STREAM", "Received", "Wire", "chunk", "reply", "reset"]

STREAM: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
END: Final = b"0\r\n\r\n"  # ends what STREAM began
HANG_UP: Final = b""  # an answer that is none: the connection is closed


@dataclass(frozen=True, slots=True)
class Received:
    """A request, header names in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, which must be JSON."""
        return msgspec.json.decode(self.body)


def reply(status: int = 200, body: Any = b"", *, kind: str = "application/json", **headers: str) -> bytes:
    """A whole answer. A body that is not bytes is sent as JSON; underscores in header names become dashes."""
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


def chunk(data: bytes) -> bytes:
    """A piece of what STREAM began."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def reset(writer: asyncio.StreamWriter) -> None:
    """End the connection with a reset instead of a goodbye."""
    writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Wire:
    """The server. Of several answers each is given once, the last one again and again."""

    def __init__(
        self,
        answer: bytes | Sequence[bytes] | Callable[[Received, asyncio.StreamWriter], Awaitable[bytes]],
        *,
        tls: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        self.requests: list[Received] = []
        self.connections = 0
        self.arrived = asyncio.Event()  # a request has come in; clear it to wait for the next
        self._answers = [answer] if isinstance(answer, bytes) else answer
        self._tls = tls
        self._port = port
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port, ssl=self._tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Where it listens, as a URL."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            if not line.endswith(b" HTTP/1.1\r\n"):
                writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")  # such as the start of a TLS handshake
                return
            received = await _read(line, reader)
            self.requests.append(received)
            self.arrived.set()
            if not (answer := await self._answer(received, writer)):
                return
            writer.write(answer)
            await writer.drain()

    async def _answer(self, received: Received, writer: asyncio.StreamWriter) -> bytes:
        if callable(self._answers):
            return await self._answers(received, writer)
        return self._answers[min(len(self.requests), len(self._answers)) - 1]


async def _read(line: bytes, reader: asyncio.StreamReader) -> Received:
    method, target, _ = line.decode().split()
    headers: dict[str, str] = {}
    while header := (await reader.readline()).decode().strip():
        name, _, value = header.partition(":")
        name, value = name.lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    parts = urlsplit(target)
    return Received(method, parts.path, dict(parse_qsl(parts.query, keep_blank_values=True)), headers, body)
