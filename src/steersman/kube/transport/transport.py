"""HTTP to one API server: requests, streams, and nothing else.

    request   credentials + TLS ──► send ──► read, bounded ──► Response
                 ▲                    │ 401: once more with fresh credentials
                 └── backoff ◄────────┘ 429, 5xx, no answer: again where that is safe (`retries`)
    stream    the same opening, then lines as they come, with a limit on the silence between them
    websocket the same opening, then a connection in both directions

Invariant: everything ends, in a value or in one KubeError that names the request. No secret leaves this module except
to the server itself; redirects are not followed, so credentials never travel to another host.
"""

from __future__ import annotations

import random as randomness
import socket
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from steersman.clock import SYSTEM_CLOCK, Clock, Deadline
from steersman.errors import ConfigError
from steersman.kube.api.errors import (
    CredentialsFailed,
    KubeError,
    RequestInfo,
    ResponseTooLarge,
    Unauthorized,
)
from steersman.kube.api.rbac_hint import with_rbac_hint
from steersman.kube.config.credentials import Credentials, credentials_for
from steersman.kube.transport.error_mapping import RequestFailure, error_from_response, map_exception
from steersman.kube.transport.metrics import ClientMetrics
from steersman.kube.transport.request_headers import trace_headers
from steersman.kube.transport.request_headers import user_agent as default_user_agent
from steersman.kube.transport.retry import RetryPolicy, is_retryable
from steersman.kube.transport.server_warnings import WarningLog
from steersman.kube.transport.stream import LineStream
from steersman.kube.transport.tls import TLS
from steersman.kube.transport.tracing import active_tracer, traced_request

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence

    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.connector import AddrInfoType, Connection
    from prometheus_client import CollectorRegistry, Histogram

    from steersman.kube.config.config import Config

__all__ = ["AdmittedRequest", "Response", "Transport", "TransportOptions", "admitted"]

T = TypeVar("T")

JSON: Final = "application/json"
_REFUSAL_BYTES: Final = 2**20  # of the answer to a request for a WebSocket
_IDEMPOTENT: Final = frozenset({"GET", "HEAD"})


class TransportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to talk to the server. Durations are seconds."""

    timeout: float = 60.0  # for one attempt of a request, body included; for a stream, until its headers
    connect_timeout: float = 10.0
    pool_size: int = 64  # connections for requests; streams have their own and do not count
    keepalive: float = 60.0  # how long an idle connection is kept; less than the 90 s after which API servers close it
    max_response_bytes: int = 64 * 2**20
    max_line_bytes: int = 16 * 2**20  # one watch event; an object is at most a few MB
    retry: RetryPolicy = RetryPolicy()
    # Measured on loopback only: 9.3 MB of ConfigMaps in pages of 500 from kube-apiserver 1.36 over TLS took 0.14 s
    # plain and 0.16 s compressed (best of 8 on a busy machine; medians 0.18 and 0.20), the server's CPU rose by 10 to
    # 30 %. By arithmetic (1.4 MB on the wire) it pays for the client below about 3 Gbit/s, so a 1 Gbit/s network
    # would gain some 40 ms here. Off, because the API server's CPU is shared by all clients; turn it on for slow links.
    compression: bool = False


class Response(NamedTuple):
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    request: RequestInfo


class _Call(NamedTuple):
    """One request, as often as it is sent."""

    method: str
    path: str
    params: Mapping[str, str]
    url: URL
    body: bytes | None
    headers: Mapping[str, str]
    info: RequestInfo


_ADMIT: ContextVar[Callable[[], object] | None] = ContextVar("admit", default=None)  # of the request being sent


class AdmittedRequest(aiohttp.ClientRequest):
    """Asks when the connection is there and the first byte is about to be written, and not before.

    Waiting for a connection, or for a turn of the event loop, takes long enough for a lease to end. It is the
    `request_class` of a session whose requests are made within `admitted`.
    """

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        if (admit := _ADMIT.get()) is not None and not self.body:
            admit()
        return await super().send(conn)

    async def write_bytes(
        self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
    ) -> None:
        if (admit := _ADMIT.get()) is not None:
            try:
                admit()
            except Exception as error:  # noqa: BLE001  raised where the answer is awaited
                assert conn.protocol is not None
                conn.protocol.set_exception(error)
                return
        await super().write_bytes(writer, conn, content_length)


@contextmanager
def admitted(admit: Callable[[], object] | None) -> Iterator[None]:
    """Call `admit`, which may raise, before the first byte of each request that is made within."""
    asked = _ADMIT.set(admit)
    try:
        yield
    finally:
        _ADMIT.reset(asked)


class _Series:
    """What one kind of answer is counted in."""

    def __init__(self, metrics: ClientMetrics, code: str, method: str, host: str) -> None:
        self.requests = metrics.requests.labels(code, method, host)
        self.duration = metrics.duration.labels(method, host)
        self._metrics, self._labels = metrics, (method, host)

    @cached_property
    def request_size(self) -> Histogram:
        return self._metrics.request_size.labels(*self._labels)

    @cached_property
    def response_size(self) -> Histogram:
        return self._metrics.response_size.labels(*self._labels)


class Transport:
    """HTTP to the API server of one `Config`. Closes with `close`; raises nothing but KubeError."""

    def __init__(
        self,
        config: Config,
        *,
        options: TransportOptions | None = None,
        credentials: Credentials | None = None,
        user_agent: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
        random: randomness.Random | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self.config = config
        self.options = options or TransportOptions()
        self._clock = clock
        self._random = random or randomness.Random()  # noqa: S311  # jitter need not be secret
        self._metrics = ClientMetrics.of(registry)
        self._series: dict[tuple[str, str], _Series] = {}  # by code and method: finding them costs more than counting
        self._credentials = credentials or credentials_for(config, clock=clock, metrics=self._metrics)
        self._tls = TLS(config, clock)
        self._warnings = WarningLog()
        base = URL(config.server)
        self._base = config.server
        self._host = f"{base.host}:{base.port}"
        self._headers = CIMultiDict(
            {
                "Accept": JSON,
                "User-Agent": default_user_agent(user_agent),
                "Accept-Encoding": "gzip"
                if self.options.compression and not config.disable_compression
                else "identity",
            }
        )
        self._headers.extend(config.auth.impersonate)
        self._pooled: aiohttp.ClientSession | None = None
        self._streaming: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close every connection. The transport may be used again afterwards and opens new ones."""
        sessions, self._pooled, self._streaming = (self._pooled, self._streaming), None, None
        for session in sessions:
            if session is not None:
                await session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        retry: bool = True,
        admit: Callable[[], None] | None = None,
    ) -> Response:
        """Send a request and read the answer; `timeout` is per attempt, `retry=False` makes it the only attempt.

        `admit` is called before every attempt, when nothing is left to wait for, and raises to keep it from being sent.
        """
        call = self._call(method, path, params, body, headers)
        limit = timeout if timeout is not None else self.options.timeout
        attempt, refreshed = 1, False
        while True:
            outcome = await self._traced(call, self._attempt(call, limit, admit))
            if isinstance(outcome, Response):
                return outcome
            if outcome.renewed and not refreshed:  # does not count: the server has not processed the request yet
                refreshed = True
                continue
            delay = self._delay(call, attempt, outcome) if retry else None
            if delay is None:
                raise outcome.error
            attempt += 1
            await self._clock.sleep(delay)

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        idle_timeout: float | None = None,
    ) -> AsyncIterator[LineStream]:
        """Open a stream of lines. Not repeated, except once with fresh credentials: what to do is the reader's policy.

        `timeout` is for the opening, `idle_timeout` for the silence between two pieces of data; None waits for ever,
        so a caller without one must have asked the server to end the stream.
        """
        call = self._call("GET", path, params, None, headers)
        limit = timeout if timeout is not None else self.options.timeout
        opened = await self._traced(call, self._open(call, limit))
        if isinstance(opened, RequestFailure) and opened.renewed:
            opened = await self._traced(call, self._open(call, limit))
        if isinstance(opened, RequestFailure):
            raise opened.error
        try:
            yield LineStream(
                opened,
                call.info,
                self.config,
                clock=self._clock,
                idle_timeout=idle_timeout,
                max_line_bytes=self.options.max_line_bytes,
            )
        finally:
            opened.close()

    @asynccontextmanager
    async def websocket(
        self,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        protocols: Sequence[str],
        timeout: float | None = None,
        admit: Callable[[], None] | None = None,
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a connection with one of `protocols`. Not repeated, except once with fresh credentials.

        `query` may hold what must not be logged, such as a command: errors name the path only.
        """
        call = self._call("GET", path, None, None, None)
        call = call._replace(url=URL(f"{call.url}?{urlencode(query)}", encoded=True))
        limit = timeout if timeout is not None else self.options.timeout
        opened = await self._traced(call, self._upgrade(call, protocols, limit, admit))
        if isinstance(opened, RequestFailure) and opened.renewed:
            opened = await self._traced(call, self._upgrade(call, protocols, limit, admit))
        if isinstance(opened, RequestFailure):
            raise opened.error
        try:
            yield opened
        finally:
            await opened.close()

    def admission(self, path: str) -> Callable[[], None] | None:  # noqa: ARG002  a guarded transport decides by it
        """What to ask before each message of a WebSocket to `path`; None: nothing guards this transport."""
        return None

    def _call(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> _Call:
        joint = "&" if "?" in path else "?"
        url = f"{self._base}{path}{joint}{urlencode(params)}" if params else self._base + path
        return _Call(method, path, params or {}, URL(url, encoded=True), body, headers or {}, RequestInfo(method, url))

    def _traced(self, call: _Call, attempt: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """The same attempt, within a span when the program traces."""
        tracer = active_tracer()
        return attempt if tracer is None else traced_request(tracer, call.method, call.path, self._host, attempt)

    async def _attempt(
        self, call: _Call, limit: float, admit: Callable[[], None] | None = None
    ) -> Response | RequestFailure:
        started = self._clock.monotonic()
        used: Mapping[str, str] = {}
        try:
            used, context = await self._identity()
            async with (
                Deadline(self._clock, limit),
                await self._send(call, used, context, self._pool(), admit) as answer,
            ):
                body = await self._read(answer, call)
            if "Warning" in answer.headers:
                self._warnings.note(answer.headers.getall("Warning"), call.method, call.path)
            outcome: Response | RequestFailure = Response(answer.status, answer.headers, body, call.info)
        except (aiohttp.ClientError, TimeoutError, OSError, KubeError, ConfigError) as error:
            outcome = self._explain(error, call, limit)
        if isinstance(outcome, Response) and outcome.status >= 300:
            outcome = self._refused(outcome, call, used)
        self._count(call, outcome, started)
        return outcome

    async def _open(self, call: _Call, limit: float) -> aiohttp.ClientResponse | RequestFailure:
        started = self._clock.monotonic()
        used: Mapping[str, str] = {}
        answer: aiohttp.ClientResponse | None = None
        outcome: aiohttp.ClientResponse | RequestFailure
        try:
            used, context = await self._identity()
            async with Deadline(self._clock, limit):
                outcome = answer = await self._send(call, used, context, self._streams())
                if "Warning" in answer.headers:
                    self._warnings.note(answer.headers.getall("Warning"), call.method, call.path)
                if answer.status >= 300:
                    body = await self._read(answer, call)
                    outcome = self._refused(Response(answer.status, answer.headers, body, call.info), call, used)
        except (aiohttp.ClientError, TimeoutError, OSError, KubeError, ConfigError) as error:
            outcome = self._explain(error, call, limit)
        if isinstance(outcome, RequestFailure) and answer is not None:
            answer.close()
        self._count(call, outcome, started)
        return outcome

    async def _upgrade(
        self, call: _Call, protocols: Sequence[str], limit: float, admit: Callable[[], None] | None
    ) -> aiohttp.ClientWebSocketResponse | RequestFailure:
        started = self._clock.monotonic()
        used: Mapping[str, str] = {}
        outcome: aiohttp.ClientWebSocketResponse | RequestFailure
        try:
            used, context = await self._identity()
            async with Deadline(self._clock, limit):
                with admitted(admit):
                    outcome = await self._streams().ws_connect(
                        call.url,
                        protocols=protocols,
                        headers=self._all_headers(call, used),
                        ssl=context if context is not None else True,
                        server_hostname=self.config.tls_server_name,
                        proxy=self.config.proxy_url,
                        max_msg_size=self.options.max_response_bytes,
                    )
        except _NotUpgraded as refused:
            response = Response(refused.status, refused.headers, refused.body, call.info)
            outcome = self._refused(response, call, used)
        except (aiohttp.ClientError, TimeoutError, OSError, KubeError, ConfigError) as error:
            outcome = self._explain(error, call, limit)
        code = outcome.code if isinstance(outcome, RequestFailure) else "101"
        self._count(call, RequestFailure(KubeError(""), code=code), started)
        return outcome

    async def _identity(self) -> tuple[Mapping[str, str], ssl.SSLContext | None]:
        """What shows who we are. It has limits of its own: a person who logs in takes longer than a request may."""
        headers = await self._credentials.headers()
        return headers, self._tls.context(await self._credentials.certificate())

    async def _send(
        self,
        call: _Call,
        credentials: Mapping[str, str],
        context: ssl.SSLContext | None,
        session: aiohttp.ClientSession,
        admit: Callable[[], None] | None = None,
    ) -> aiohttp.ClientResponse:
        with admitted(admit):
            return await session.request(
                call.method,
                call.url,
                data=call.body,
                headers=self._all_headers(call, credentials),
                ssl=context if context is not None else True,
                server_hostname=self.config.tls_server_name,
                proxy=self.config.proxy_url,
                allow_redirects=False,
            )

    def _all_headers(self, call: _Call, credentials: Mapping[str, str]) -> CIMultiDict[str]:
        headers = self._headers.copy()
        headers.update(credentials)
        headers.update(trace_headers())
        headers.update(call.headers)
        return headers

    async def _read(self, answer: aiohttp.ClientResponse, call: _Call) -> bytes:
        """The body, unless it is larger than allowed: then it is not read to the end and the connection is dropped."""
        limit = self.options.max_response_bytes
        if (answer.content_length or 0) <= limit:
            parts, size = [], 0
            async for part in answer.content.iter_any():
                parts.append(part)
                size += len(part)
                if size > limit:
                    break
            else:
                return b"".join(parts)
        answer.close()
        raise ResponseTooLarge(
            f"the answer is larger than {limit} bytes: ask for less (pages, a selector) or raise max_response_bytes",
            request=call.info,
        )

    def _refused(self, response: Response, call: _Call, used: Mapping[str, str]) -> RequestFailure:
        now = self._clock.time()
        error = error_from_response(response.status, response.headers, response.body, call.info, self.config, now=now)
        renewed = False
        if isinstance(error, Unauthorized):
            renewed = self._credentials.invalidate(used)
            error = Unauthorized(
                f"{error.message}; {self._credentials.hint()} ({self.config.source})",
                request=call.info,
                reason=error.reason,
                code=error.code,
                details=error.details,
            )
        error = with_rbac_hint(error, call.method, call.path, call.params)
        return RequestFailure(error, code=str(response.status), processed=True, renewed=renewed)

    def _explain(self, error: Exception, call: _Call, limit: float) -> RequestFailure:
        error = error.error if isinstance(error, _NotRepeated) else error
        if isinstance(error, ConfigError):
            return RequestFailure(CredentialsFailed(str(error), request=call.info), processed=False)
        if isinstance(error, CredentialsFailed):
            return RequestFailure(CredentialsFailed(error.message, request=call.info), processed=False)
        if isinstance(error, KubeError):
            return RequestFailure(error, processed=True)
        failure = map_exception(error, call.info, self.config, limit)
        if failure.distrusted and self._tls.reload():
            return failure._replace(renewed=True)
        return failure

    def _delay(self, call: _Call, attempt: int, failure: RequestFailure) -> float | None:
        idempotent = call.method in _IDEMPOTENT
        if failure.distrusted or not is_retryable(failure.error, idempotent=idempotent, processed=failure.processed):
            return None
        delay = self.options.retry.delay(attempt, failure.error, self._random)
        if delay is None:
            return None
        self._metrics.retries.labels(failure.code, call.method, self._host).inc()
        # A connection that the server closed while it lay idle says nothing about the server's health.
        return 0.0 if failure.disconnected and attempt == 1 else delay

    def _count(self, call: _Call, outcome: object, started: float) -> None:
        code = outcome.code if isinstance(outcome, RequestFailure) else str(getattr(outcome, "status", ""))
        series = self._series.get((code, call.method))
        if series is None:
            series = self._series[code, call.method] = _Series(self._metrics, code, call.method, self._host)
        series.requests.inc()
        series.duration.observe(self._clock.monotonic() - started)
        if call.body is not None:
            series.request_size.observe(len(call.body))
        if isinstance(outcome, Response):
            series.response_size.observe(len(outcome.body))

    def _pool(self) -> aiohttp.ClientSession:
        if self._pooled is None:
            self._pooled = self._session(self.options.pool_size, buffer=2**18)  # fewer wake-ups for a large list
        return self._pooled

    def _streams(self) -> aiohttp.ClientSession:
        if self._streaming is None:
            # One connection each: a bound would be a deadlock between watches.
            self._streaming = self._session(0, buffer=2**18)
        return self._streaming

    def _session(self, limit: int, *, buffer: int) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=limit, keepalive_timeout=self.options.keepalive, socket_factory=keepalive_socket
        )
        return aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self.options.connect_timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=buffer,
            request_class=AdmittedRequest,
            middlewares=[_send_once, _upgraded],
        )


class _NotRepeated(aiohttp.ClientError):
    """A connection broke, as `error` says."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


async def _send_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keep aiohttp from repeating a GET, PUT or DELETE when its connection breaks: `is_retryable` alone decides that.

    aiohttp recognizes such an error by its type, so it gets another one.
    """
    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _NotRepeated(error) from error


class _NotUpgraded(aiohttp.ClientError):
    """The server answered a request for a WebSocket with something else, mostly with a Status."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__()
        self.status, self.headers, self.body = status, headers, body


async def _upgraded(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Read why a server does not open a WebSocket: aiohttp drops the answer, and would follow a redirect."""
    answer = await handler(request)
    if "Upgrade" in request.headers and answer.status != 101:
        body = await answer.content.read(_REFUSAL_BYTES)
        answer.close()
        raise _NotUpgraded(max(answer.status, 300), answer.headers, body)
    return answer


# Names that some systems do not have are skipped.
_KEEPALIVE: Final = {
    "TCP_KEEPIDLE": 30,  # seconds of silence before the first probe
    "TCP_KEEPINTVL": 10,  # seconds between probes
    "TCP_KEEPCNT": 3,  # probes without an answer that end the connection
    "TCP_USER_TIMEOUT": 60_000,  # milliseconds that data we sent may stay unacknowledged
}


def keepalive_socket(address: AddrInfoType) -> socket.socket:
    """A socket for `address` that notices when the other side has vanished.

    Without keepalive a watch through a dead NAT entry or a lost node stays open and silent for ever; with these values
    the kernel gives such a connection up after about a minute.
    """
    family, kind, protocol, *_ = address
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    return sock
