"""HTTP to one API server: requests, streams, and nothing else.

    request   credentials + TLS ──► send ──► read, bounded ──► Response
                 ▲                    │ 401: once more with fresh credentials
                 └── backoff ◄────────┘ 429, 5xx, no answer: again where that is safe (`retries`)
    stream    the same opening, then lines as they come, with a limit on the silence between them

Invariant: everything ends, in a value or in one KubeError that names the request. No secret leaves this module except
to the server itself; redirects are not followed, so credentials never travel to another host.
"""

from __future__ import annotations

import random as randomness
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlencode

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from steersman.clock import SYSTEM_CLOCK, Clock, Deadline
from steersman.errors import ConfigError
from steersman.kube.access import explain_forbidden
from steersman.kube.auth import Credentials, credentials_for
from steersman.kube.errors import (
    AnswerTooLarge,
    CredentialsFailed,
    KubeError,
    RequestInfo,
    Unauthorized,
)
from steersman.kube.failures import Failure, explain, refusal
from steersman.kube.intake import read_into_buffers
from steersman.kube.linestream import LineStream
from steersman.kube.metrics import ClientMetrics
from steersman.kube.retries import RetryPolicy, worth_repeating
from steersman.kube.sockets import keepalive_socket
from steersman.kube.tls import TLS
from steersman.kube.tracing import trace_headers
from steersman.kube.useragent import user_agent as default_user_agent

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Mapping

    from prometheus_client import CollectorRegistry, Histogram

    from steersman.kube.clusterconfig import ClusterConfig

__all__ = ["Response", "Transport", "TransportOptions"]

JSON: Final = "application/json"
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
    # 30 %. By arithmetic (1.4 MB on the wire) it pays for whoever waits below about 3 Gbit/s, so a 1 Gbit/s network
    # would gain some 40 ms here. Off, because the API server's CPU is shared by everybody; turn it on for slow links.
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
    """HTTP to the API server of one `ClusterConfig`. Closes with `close`; raises nothing but KubeError."""

    def __init__(
        self,
        config: ClusterConfig,
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
        self._random = random or randomness.Random()  # noqa: S311  # jitter is no secret
        self._metrics = ClientMetrics.of(registry)
        self._series: dict[tuple[str, str], _Series] = {}  # by code and method: finding them costs more than counting
        self._credentials = credentials or credentials_for(config, clock=clock, metrics=self._metrics)
        self._tls = TLS(config, clock)
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
    ) -> Response:
        """Send a request and read the answer; `timeout` is per attempt, `retry=False` makes it the only attempt."""
        call = self._call(method, path, params, body, headers)
        limit = timeout if timeout is not None else self.options.timeout
        attempt, refreshed = 1, False
        while True:
            outcome = await self._attempt(call, limit)
            if isinstance(outcome, Response):
                return outcome
            if outcome.renewed and not refreshed:  # does not count: the server has not looked at the request yet
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
        opened = await self._open(call, limit)
        if isinstance(opened, Failure) and opened.renewed:
            opened = await self._open(call, limit)
        if isinstance(opened, Failure):
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

    def _call(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> _Call:
        url = f"{self._base}{path}?{urlencode(params)}" if params else self._base + path
        return _Call(method, path, params or {}, URL(url, encoded=True), body, headers or {}, RequestInfo(method, url))

    async def _attempt(self, call: _Call, limit: float) -> Response | Failure:
        started = self._clock.monotonic()
        used: Mapping[str, str] = {}
        try:
            used, context = await self._identity()
            async with Deadline(self._clock, limit), await self._send(call, used, context, self._pool()) as answer:
                body = await self._read(answer, call)
            outcome: Response | Failure = Response(answer.status, answer.headers, body, call.info)
        except (aiohttp.ClientError, TimeoutError, OSError, KubeError, ConfigError) as error:
            outcome = self._explain(error, call, limit)
        if isinstance(outcome, Response) and outcome.status >= 300:
            outcome = self._refused(outcome, call, used)
        self._count(call, outcome, started)
        return outcome

    async def _open(self, call: _Call, limit: float) -> aiohttp.ClientResponse | Failure:
        started = self._clock.monotonic()
        used: Mapping[str, str] = {}
        answer: aiohttp.ClientResponse | None = None
        outcome: aiohttp.ClientResponse | Failure
        try:
            used, context = await self._identity()
            async with Deadline(self._clock, limit):
                outcome = answer = await self._send(call, used, context, self._streams())
                if answer.status >= 300:
                    body = await self._read(answer, call)
                    outcome = self._refused(Response(answer.status, answer.headers, body, call.info), call, used)
        except (aiohttp.ClientError, TimeoutError, OSError, KubeError, ConfigError) as error:
            outcome = self._explain(error, call, limit)
        if isinstance(outcome, Failure) and answer is not None:
            answer.close()
        self._count(call, outcome, started)
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
    ) -> aiohttp.ClientResponse:
        headers = self._headers.copy()
        headers.update(credentials)
        headers.update(trace_headers())
        headers.update(call.headers)
        return await session.request(
            call.method,
            call.url,
            data=call.body,
            headers=headers,
            ssl=context if context is not None else True,
            server_hostname=self.config.tls_server_name,
            proxy=self.config.proxy_url,
            allow_redirects=False,
        )

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
        raise AnswerTooLarge(
            f"the answer is larger than {limit} bytes: ask for less (pages, a selector) or raise max_response_bytes",
            request=call.info,
        )

    def _refused(self, response: Response, call: _Call, used: Mapping[str, str]) -> Failure:
        now = self._clock.time()
        error = refusal(response.status, response.headers, response.body, call.info, self.config, now=now)
        renewed = False
        if isinstance(error, Unauthorized):
            renewed = self._credentials.invalidate(used)
            error = Unauthorized(
                f"{error.message}; {self._credentials.way_out()} ({self.config.source})",
                request=call.info,
                reason=error.reason,
                code=error.code,
                details=error.details,
            )
        error = explain_forbidden(error, call.method, call.path, call.params)
        return Failure(error, code=str(response.status), processed=True, renewed=renewed)

    def _explain(self, error: Exception, call: _Call, limit: float) -> Failure:
        if isinstance(error, ConfigError):
            return Failure(CredentialsFailed(str(error), request=call.info), processed=False)
        if isinstance(error, CredentialsFailed):
            return Failure(CredentialsFailed(error.message, request=call.info), processed=False)
        if isinstance(error, KubeError):
            return Failure(error, processed=True)
        failure = explain(error, call.info, self.config, limit)
        if failure.distrusted and self._tls.reload():
            return failure._replace(renewed=True)
        return failure

    def _delay(self, call: _Call, attempt: int, failure: Failure) -> float | None:
        idempotent = call.method in _IDEMPOTENT
        if failure.distrusted or not worth_repeating(failure.error, idempotent=idempotent, processed=failure.processed):
            return None
        delay = self.options.retry.delay(attempt, failure.error, self._random)
        if delay is None:
            return None
        self._metrics.retries.labels(failure.code, call.method, self._host).inc()
        # A connection that the server closed while it lay idle says nothing about the server's health.
        return 0.0 if failure.disconnected and attempt == 1 else delay

    def _count(self, call: _Call, outcome: object, started: float) -> None:
        code = outcome.code if isinstance(outcome, Failure) else str(getattr(outcome, "status", ""))
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
            assert self._streaming.connector is not None
            read_into_buffers(self._streaming.connector)
        return self._streaming

    def _session(self, limit: int, *, buffer: int) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=limit, keepalive_timeout=self.options.keepalive, socket_factory=keepalive_socket
        )
        session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self.options.connect_timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=buffer,
        )
        # aiohttp repeats PUT and DELETE by itself when a connection breaks; what is repeated is decided here alone.
        session._retry_connection = False  # noqa: SLF001  # there is no public switch
        return session
