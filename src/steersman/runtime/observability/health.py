"""Health over HTTP: is the process alive, is it ready, and what is it doing.

    /livez              200 while the event loop keeps up and no check of the process itself fails
    /readyz             200 while every source is synced and every task runs; ?verbose says which and why, how far
                        every source has come, what is unknown, and warnings although the process is ready
    /healthz            the same as /livez, for those who know no other
    /metrics            Prometheus; with a `reviewer`, to callers whose token may `get` this path
    /debug/queue        what every controller works on        } to callers on this machine only, by a local name
    /debug/caches       what every source knows               }
    /debug/profile      where CPU time goes                   } the same, and only with `profiling`
    /debug/heap         what fills the memory                 }

A check answers None when all is well, else the reason. `?exclude=NAME` leaves checks out. One listener serves it all,
and the routes that other parts add (the JSON API, the page). With `certificates` it serves TLS. A second listener,
`probes`, answers the paths of `PROBES` alone, without TLS.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import web
from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import ConfigError
from steersman.kube.api.types.authorization import NonResourceAttributes
from steersman.logger import Logger
from steersman.runtime.http.authentication import AccessDenied, bearer_token
from steersman.runtime.http.server import HttpServer, is_local_caller, peer_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from steersman.clock import Clock
    from steersman.runtime.http.authentication import TokenAuthenticator
    from steersman.runtime.http.server import ServerLimits
    from steersman.runtime.webhook.cert_watcher import CertWatcher

    Checks = Callable[[], Mapping[str, str | None]]
    Handler = Callable[[web.Request], Awaitable[web.Response]]

__all__ = ["HealthServer", "parse_address"]

PROBES: Final = frozenset({"/livez", "/healthz", "/readyz", "/health", "/ready", "/leadz", "/live"})  # always answered

log = Logger(__name__)


class HealthServer:
    """The listener. `listen` is ADDRESS:PORT; port 0 takes a free one, which `port` then is."""

    def __init__(
        self,
        listen: str,
        *,
        alive: Checks,
        ready: Checks,
        queues: Callable[[], Iterable[dict[str, Any]]] = tuple,
        caches: Callable[[], Iterable[Any]] = tuple,
        warnings: Callable[[], Iterable[str]] = tuple,
        details: Callable[[], Mapping[str, str]] = dict,
        unknown: Callable[[], Mapping[str, str]] = dict,
        routes: Iterable[web.AbstractRouteDef] = (),
        registry: CollectorRegistry | None = None,
        certificates: CertWatcher | None = None,
        probes: str | None = None,
        reviewer: TokenAuthenticator | None = None,
        profiling: bool = False,
        limits: ServerLimits | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._address = parse_address(listen)
        self._probe_address = None if probes is None else parse_address(probes, field="probeListen")
        self._certificates, self._reviewer, self._profiling = certificates, reviewer, profiling
        self._limits, self._clock = limits, clock
        self._alive = alive
        self._ready = ready
        self._queues = queues
        self._caches = caches
        self._warnings = warnings
        self._details = details
        self._unknown = unknown
        self._routes = list(routes)
        self._registry = REGISTRY if registry is None else registry
        self._servers: list[HttpServer] = []
        self.port: int | None = None
        self.probe_port: int | None = None

    def add_routes(self, routes: Iterable[web.AbstractRouteDef]) -> None:
        """Serve these too; before it starts."""
        self._routes += routes

    @property
    def paths(self) -> set[str]:
        """The paths of the routes that were added."""
        return {route.path for route in self._routes if isinstance(route, web.RouteDef)}

    async def start(self) -> None:
        """Listen; ConfigError when the address cannot be had."""
        ours = [
            web.get("/livez", self._checks(self._alive)),
            web.get("/healthz", self._checks(self._alive)),
            web.get("/readyz", self._checks(self._ready, self._warnings, self._details, self._unknown)),
            web.get("/metrics", self._metrics),
            web.get("/debug/queue", _local_only(_json(lambda: list(self._queues())))),
            web.get("/debug/caches", _local_only(_json(lambda: list(self._caches())))),
        ]
        if self._profiling:
            from steersman.runtime.observability.profile import Profiler

            profiler = Profiler()
            ours += [
                web.get("/debug/profile", _local_only(profiler.cpu)),
                web.get("/debug/heap", _local_only(profiler.heap)),
            ]
        taken = self.paths  # others' word stands
        routes = [*(route for route in ours if route.path not in taken), *self._routes]
        if self._certificates is not None:
            await _load(self._certificates)
        tls = self._certificates.context if self._certificates is not None else None
        self.port = await self._listen(self._address, routes, tls)
        if self._probe_address is not None:
            probes = [route for route in routes if isinstance(route, web.RouteDef) and route.path in PROBES]
            self.probe_port = await self._listen(self._probe_address, probes)
        log.info("listening", address=self._address[0], port=self.port, tls=tls is not None, probes=self.probe_port)

    async def _listen(
        self, address: tuple[str, int], routes: Iterable[web.AbstractRouteDef], tls: ssl.SSLContext | None = None
    ) -> int:
        server = HttpServer(
            *address,
            routes=routes,
            probes=PROBES,
            limits=self._limits,
            tls=tls,
            shutdown_seconds=1.0,
            clock=self._clock,
        )
        await server.start()
        self._servers.append(server)
        return server.port

    async def stop(self) -> None:
        """Close the listeners and every connection."""
        await asyncio.gather(*(server.stop() for server in self._servers))
        self._servers = []

    def _checks(
        self,
        checks: Checks,
        warnings: Callable[[], Iterable[str]] = tuple,
        details: Callable[[], Mapping[str, str]] = dict,
        unknown: Callable[[], Mapping[str, str]] = dict,
    ) -> Handler:
        async def answer(request: web.Request) -> web.Response:
            left_out = set(request.query.getall("exclude", []))
            results = {name: problem for name, problem in checks().items() if name not in left_out}
            failed = any(problem is not None for problem in results.values())
            if not failed and "verbose" not in request.query:
                return web.Response(text="ok")
            more, unread = {name: f" ({text})" for name, text in details().items()}, unknown()
            lines = [
                f"[-]{name} failed: {problem}"
                if problem is not None
                else f"[!]{name} unknown: {unread[name]}"
                if name in unread
                else f"[+]{name} ok{more.get(name, '')}"
                for name, problem in results.items()
            ]
            lines += [f"[!]{warning}" for warning in warnings()]
            lines.append(f"{request.path.strip('/')} check {'failed' if failed else 'passed'}")
            return web.Response(text="\n".join(lines) + "\n", status=503 if failed else 200)

        return answer

    async def _metrics(self, request: web.Request) -> web.Response:
        if self._reviewer is not None:
            try:
                token = bearer_token(request.headers.get("Authorization", ""))
                user = await self._reviewer.authenticate(token, peer=peer_of(request))
                await self._reviewer.authorize(user, path=NonResourceAttributes(path="/metrics", verb="get"))
            except AccessDenied as error:
                return web.Response(text=f"{error}\n", status=error.status, headers=error.headers)
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        collected = _Collected(self._registry.collect())  # here, where nothing changes meanwhile
        body = await asyncio.to_thread(encode, collected)  # elsewhere, since writing many series takes its time
        return web.Response(body=body, headers={"Content-Type": content_type})


class _Collected:
    """The families of one scrape, in the place of their registry."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = tuple(families)

    def collect(self) -> tuple[Metric, ...]:
        return self._families


async def _load(certificates: CertWatcher) -> None:
    try:
        await certificates.load()
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(
            f"tls.crt and tls.key are not a certificate and its key: {error}", field="tlsCerts"
        ) from error


def parse_address(listen: str, *, field: str = "listen", usual: str = "0.0.0.0") -> tuple[str, int]:  # noqa: S104  see below
    """ADDRESS:PORT in two parts; a port alone is one of the `usual` address.

    >>> parse_address("127.0.0.1:8080"), parse_address("[::1]:0")
    (('127.0.0.1', 8080), ('::1', 0))
    """
    host, colon, port = listen.rpartition(":")
    if not (port.isdecimal() and int(port) < 65536):
        raise ConfigError(f'"{listen}" is not an address and a port (try 127.0.0.1:8080)', field=field)
    every = "0.0.0.0"  # noqa: S104  ":8080" means every address, as everywhere
    return host.strip("[]") or (every if colon else usual), int(port)


def _json(content: Callable[[], Any]) -> Handler:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(content()), content_type="application/json")

    return answer


def _local_only(handler: Handler) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        if not is_local_caller(request):
            raise web.HTTPNotFound
        return await handler(request)

    return answer
