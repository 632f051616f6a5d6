"""The HTTP server of every listener: one that slow, half-sent and too many requests cannot take down.

    server = HttpServer("0.0.0.0", 8080, routes=[web.get("/", hello)], probes=["/livez"])
    await server.start()                               # ConfigError when the address cannot be had

- A TLS handshake and a complete header must arrive within `header_seconds`, a body within `body_seconds`. A connection
  is closed after `idle_seconds` without a request, or without the caller reading what it asked for.
- Connections are capped in total and per peer (`steersman.runtime.http.connections` says which go).
- `probes` are answered while every place for other requests is taken; those get 503.
- Without free descriptors it closes waiting connections, pauses, and goes on; one descriptor is reserved for a probe.
- What callers can cause is logged once per flood, in the log's own format.

What a handler does with its request is not its business: neither rates nor rights. Connections are accepted here, by
asyncio's public calls, because `loop.create_server` writes a traceback for every connection it has no descriptor for.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from steersman.clock import SYSTEM_CLOCK, Deadline
from steersman.errors import ConfigError, traceback_of
from steersman.logger import FloodLog, Logger
from steersman.runtime.http.connections import ConnectionTable

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterable

    from steersman.clock import Clock, Timer

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

__all__ = ["HttpServer", "ServerLimits", "is_local_caller", "peer_of"]

EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
BACKLOG: Final = 1024  # connections that the kernel holds for us while accepting pauses
PAUSE_SECONDS: Final = 0.1  # of accepting, while the system gives no descriptor
SHARE: Final = 4  # a listener takes at most a quarter of the descriptors a process may have

log = Logger(__name__)


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a listener grants its callers."""

    header_seconds: float = 10.0  # for a TLS handshake, and for a complete header
    idle_seconds: float = 75.0  # between two requests of one connection, or until a caller reads on
    body_seconds: float = 30.0  # for a complete body, from its header on
    body_bytes: int = 2**20
    connections: int = 512  # and at most a quarter of the descriptors that the process may have
    per_peer: int = 256  # and at most half of all


class HttpServer:
    """One listener. `port` 0 takes a free one, which `port` then says."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        routes: Iterable[web.AbstractRouteDef],
        probes: Iterable[str] = (),
        limits: ServerLimits | None = None,
        tls: ssl.SSLContext | None = None,
        shutdown_seconds: float = 5.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`probes` are paths that are always answered; `shutdown_seconds` is the time that running requests get."""
        self._host, self.port = host, port
        self._probes = frozenset(probes)
        self._limits = limits or ServerLimits()
        self._tls = tls
        self._clock = clock
        self._floods = FloodLog(log, clock=clock)
        total = max(8, min(self._limits.connections, _descriptors() // SHARE))
        self._table: ConnectionTable[_Connection] = ConnectionTable(
            total=total, per_peer=max(4, min(self._limits.per_peer, total // 2))
        )
        self._open: dict[Any, _Connection] = {}  # by aiohttp's protocol, which a request names
        app = web.Application(middlewares=[self._guard], client_max_size=self._limits.body_bytes)
        app.add_routes(routes)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_RequestLog(self._floods),
            keepalive_timeout=self._limits.idle_seconds,
            shutdown_timeout=shutdown_seconds,
        )
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._spare: int | None = None  # a descriptor to give up when the process has no other

    async def start(self) -> None:
        """Listen; ConfigError when the address cannot be had."""
        try:
            self._listeners = await _listen(self._host, self.port)
        except OSError as error:
            raise ConfigError(f"cannot listen on {self._host}:{self.port}: {error.strerror}") from error
        self.port = self._listeners[0].getsockname()[1]
        await self._runner.setup()
        self._keep_spare()
        for listener in self._listeners:
            self._run(self._accept(listener), f"listener {self._host}:{self.port}")

    async def stop(self) -> None:
        """Close the listener, let running requests end for a while, and close every connection."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listener in self._listeners:
            listener.close()
        self._listeners = []
        await self._runner.cleanup()
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._table)

    @property
    def serving(self) -> int:
        """For how many of them a handler works now."""
        return self._table.serving

    @property
    def stalls(self) -> int:
        """How many callers do not read what they asked for."""
        return sum(connection.unread is not None for connection in self._open.values())

    # -- accepting ----------------------------------------------------------------------------------------------------

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listener)
            except ConnectionError:
                continue  # the caller has left already
            except OSError as error:
                self._floods.warning("connections cannot be accepted", kind=error.errno, why=error.strerror)
                await asyncio.sleep(PAUSE_SECONDS)  # first, so that those accepted last can send their requests
                if error.errno in EXHAUSTED:
                    self._make_room()
            else:
                self._admit(accepted, str(address[0]))
            await asyncio.sleep(0)  # other work goes on, however many callers there are

    def _make_room(self) -> None:
        """Close some of the oldest waiting connections; if there is none, give up the spare descriptor."""
        for _ in range(1 + len(self._table) // 8):
            oldest = self._table.oldest_waiting()
            if oldest is not None:
                self._close(oldest)
            elif self._spare is not None:
                os.close(self._spare)
                self._spare = None

    def _keep_spare(self) -> None:
        if self._spare is None:
            try:
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return  # asked again when the next connection is closed

    def _admit(self, accepted: socket.socket, peer: str) -> None:
        connection = _Connection()
        evicted = self._table.add(connection, peer)
        if evicted is not None:
            self._floods.warning("too many connections: the oldest without a request is closed", peer=peer)
        if evicted is connection:
            accepted.close()
            return
        if evicted is not None:
            evicted.close()
        self._expire_after(connection, self._limits.header_seconds)
        connection.opening = self._run(self._connect(connection, accepted), f"connection of {peer}")

    async def _connect(self, connection: _Connection, accepted: socket.socket) -> None:
        """Hand the socket to aiohttp, after the TLS handshake if there is one."""
        loop = asyncio.get_running_loop()
        assert self._runner.server is not None
        protocol = _Protocol(self, connection, self._runner.server())
        try:
            await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=self._tls)
        except (OSError, asyncio.CancelledError):
            pass  # the caller left, does not use TLS, or took too long: not a fault of ours
        finally:
            connection.opening = None
            if connection.transport is None:
                accepted.close()
                self.closed(connection)

    def _run(self, work: Any, name: str) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- the life of a connection -------------------------------------------------------------------------------------

    def opened(self, connection: _Connection, key: Any, transport: asyncio.BaseTransport) -> None:
        """The connection can be read from."""
        connection.transport = cast("asyncio.Transport", transport)
        self._open[key] = connection

    def closed(self, connection: _Connection, key: Any = None) -> None:
        """The connection is over, for whatever reason."""
        connection.stop_timer()
        connection.stop_waiting()
        self._table.remove(connection)
        self._open.pop(key, None)
        self._keep_spare()

    def stalled(self, connection: _Connection) -> None:
        """The caller does not read: what is to be sent waits in memory."""
        connection.stop_waiting()
        when = self._clock.monotonic() + self._limits.idle_seconds
        connection.unread = self._clock.call_at(when, partial(self._close, connection))

    def _close(self, connection: _Connection) -> None:
        self._table.remove(connection)
        connection.close()

    def _expire_after(self, connection: _Connection, seconds: float) -> None:
        connection.stop_timer()
        connection.timer = self._clock.call_at(self._clock.monotonic() + seconds, partial(self._close, connection))

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = self._open.get(request.protocol)
        if connection is None or not self._table.begin(connection, reserved=request.path in self._probes):
            self._floods.warning("too many requests at once", peer=peer_of(request), path=request.path)
            refusal = web.Response(status=503, text="too many requests at once\n", headers={"Retry-After": "1"})
            refusal.force_close()
            return refusal
        connection.stop_timer()
        try:
            return await self._with_body_in_time(request, handler)
        finally:
            if self._table.end(connection):
                self._expire_after(connection, self._limits.idle_seconds)  # the time to read the answer included

    async def _with_body_in_time(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.body_exists or request.content.is_eof():
            return await handler(request)
        deadline = Deadline(self._clock, self._limits.body_seconds)
        request.content.on_eof(deadline.lift)
        try:
            async with deadline:
                return await handler(request)
        except TimeoutError:
            if not deadline.expired:
                raise
        response = web.Response(status=408, text=f"the body took longer than {self._limits.body_seconds:g} s\n")
        response.force_close()
        return response


class _Connection:
    """What is kept of a connection."""

    __slots__ = ("opening", "timer", "transport", "unread")

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.opening: asyncio.Task[None] | None = None  # until the handshake is over
        self.timer: Timer | None = None  # until the next complete header
        self.unread: Timer | None = None  # until the caller reads on

    def stop_waiting(self) -> None:
        if self.unread is not None:
            self.unread.cancel()
            self.unread = None

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def close(self) -> None:
        """At once; what was not sent yet is lost."""
        self.stop_timer()
        self.stop_waiting()
        if self.transport is not None:
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()


class _Protocol(asyncio.Protocol):
    """aiohttp's protocol, and a server that knows when its connection begins and ends."""

    def __init__(self, server: HttpServer, connection: _Connection, inner: Any) -> None:
        self._server, self._connection, self._inner = server, connection, inner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._server.opened(self._connection, self._inner, transport)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        kept: bool | None = self._inner.eof_received()
        return kept

    def pause_writing(self) -> None:
        self._server.stalled(self._connection)
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._connection.stop_waiting()
        self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._server.closed(self._connection, self._inner)
        self._inner.connection_lost(error)


class _RequestLog(logging.Logger):
    """What aiohttp complains about, as lines of our own log, once per flood."""

    def __init__(self, floods: FloodLog) -> None:
        super().__init__(__name__, logging.WARNING)
        self._floods = floods

    def handle(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            self._floods.warning("malformed request", why=error.message.partition("\n")[0])
        elif error is not None:
            self._floods.error("request failed", kind=type(error).__name__, traceback=traceback_of(error))
        else:
            self._floods.warning(record.getMessage())


async def _listen(host: str, port: int) -> list[socket.socket]:
    """A socket per address of `host`."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listeners: list[socket.socket] = []
    try:
        for family, kind, number, _, (name, _, *scope) in dict.fromkeys(found):
            listener = socket.socket(family, kind, number)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.setblocking(False)
            listener.bind((name, port, *scope))
            listener.listen(BACKLOG)
            port = listener.getsockname()[1]  # the same for every address, if it was for us to choose
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _descriptors() -> int:
    """How many this process may have open."""
    try:
        import resource
    except ImportError:  # not a Unix
        return 2**16
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**16 if soft == resource.RLIM_INFINITY else soft


def peer_of(request: web.BaseRequest) -> str:
    """The address of the caller, or of the proxy before it; empty when the connection is closed."""
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return str(peer[0]) if peer else ""


def is_local_caller(request: web.BaseRequest) -> bool:
    """Whether the caller is on this machine and calls us by a local name.

    The name matters because a page on the internet may have one that leads to 127.0.0.1 in the user's browser.
    """
    return _loopback(peer_of(request)) and _loopback(_host(request.headers.get("Host", "")))


def _host(header: str) -> str:
    """The name in a Host header.

    >>> _host("127.0.0.1:8080"), _host("[::1]:8080"), _host("localhost")
    ('127.0.0.1', '::1', 'localhost')
    """
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _loopback(name: str) -> bool:
    if name.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
