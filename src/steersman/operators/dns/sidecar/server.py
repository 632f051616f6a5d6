"""The HTTP interface of the sidecar: the paths, bodies and status codes of the original, for the local named.

    authentication (not for health, readiness and metrics) ──► rate limit of the caller ──► body ──► named ──► answer

Defects of the original are fixed (docs/dns.md has the list). Responses from 500 on contain no internals; the log does.
No state is kept between requests, so the process can be restarted at any time.
"""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import choose_encoder

from steersman.clock import Deadline
from steersman.errors import DriverError, traceback_of
from steersman.operators.dns.sidecar import messages
from steersman.operators.dns.sidecar.access import Problem
from steersman.operators.dns.sidecar.local_named import zone_of
from steersman.runtime.http.authentication import CallerRates
from steersman.runtime.http.server import HttpServer, ServerLimits, peer_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from steersman.clock import Clock
    from steersman.operators.dns.sidecar.access import Access
    from steersman.operators.dns.sidecar.local_named import LocalNamed

log = structlog.get_logger(__name__)
Answer = tuple[int, Any]
DONE: Final = {
    "reload": "Zone {} reloaded successfully",
    "freeze": "Zone {} frozen successfully",
    "thaw": "Zone {} thawed successfully",
    "notify": "Notify sent for zone {}",
    "retransfer": "Retransfer initiated for zone {}",
}
PROBES: Final = frozenset({f"{messages.PREFIX}/health", f"{messages.PREFIX}/ready"})
GENERIC: Final = {500: "Internal server error", 503: "named is not available", 504: "named took too long"}


class RequestLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of requests."""

    per_second: float = 100.0  # requests of one caller; a busy operator sends a few dozen
    burst: int = 400
    body: int = 64 * 2**20  # bytes; a zone of half a million records
    seconds: float = 60.0  # for a whole request, body included
    at_once: int = 64


class Sidecar:
    """See the module."""

    def __init__(
        self,
        named: LocalNamed,
        access: Access,
        *,
        clock: Clock,
        limits: RequestLimits | None = None,
        listen: tuple[str, int],
    ) -> None:
        self._named, self._access, self._clock = named, access, clock
        self._limits = limits or RequestLimits()
        self._listen = listen
        self._rates = CallerRates(per_second=self._limits.per_second, burst=self._limits.burst, clock=clock)
        self._permits = asyncio.Semaphore(self._limits.at_once)
        self._server: HttpServer | None = None
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "bindcar_http_requests", "Requests.", ["method", "path", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "bindcar_http_request_duration_seconds", "Duration of requests.", ["method", "path"], registry=self.registry
        )
        self._operations = Counter(
            "bindcar_zone_operations", "Operations on zones.", ["operation", "result"], registry=self.registry
        )
        self.port = 0

    # -- start ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen; ConfigError when the address is not available."""
        host, port = self._listen
        server = HttpServer(
            host,
            port,
            routes=self._routes(),
            probes=PROBES,
            limits=ServerLimits(body_bytes=self._limits.body, body_seconds=self._limits.seconds, idle_seconds=30.0),
            clock=self._clock,
        )
        await server.start()
        self._server, self.port = server, server.port
        log.info("listening", address=host, port=self.port)

    async def stop(self) -> None:
        """Finish running requests and close."""
        if self._server is not None:
            await self._server.stop()
            self._server = None

    def _routes(self) -> list[web.AbstractRouteDef]:
        zone = f"{messages.PREFIX}/zones/{{name}}"
        table: list[tuple[str, str, str, type[messages.Body] | None, Callable[[Any, Any], Awaitable[Answer]]]] = [
            ("POST", f"{messages.PREFIX}/zones", "create", messages.CreateZone, self._create),
            ("GET", f"{messages.PREFIX}/zones", "", None, self._list),
            ("GET", zone, "", None, self._get),
            ("PATCH", zone, "modify", messages.ModifyZone, self._modify),
            ("DELETE", zone, "delete", None, self._delete),
            ("GET", f"{zone}/status", "", None, self._status),
            *(("POST", f"{zone}/{verb}", verb, None, self._verb(verb)) for verb in DONE),
            ("POST", f"{zone}/records", "record_add", messages.AddRecord, self._add_record),
            ("DELETE", f"{zone}/records", "record_remove", messages.RemoveRecord, self._remove_record),
            ("PUT", f"{zone}/records", "record_update", messages.ReplaceRecord, self._replace_record),
            ("GET", f"{messages.PREFIX}/server/status", "", None, self._server_status),
            ("POST", f"{messages.PREFIX}/server/reconfig", "reconfig", None, self._reconfigure),
        ]
        routes: list[web.AbstractRouteDef] = [
            web.route(method, path, self._handler(path, operation, body_type, answer))
            for method, path, operation, body_type, answer in table
        ]
        unauthenticated = [
            (f"{messages.PREFIX}/health", self._health),
            (f"{messages.PREFIX}/ready", self._ready),
            ("/metrics", self._metrics),
        ]
        return [*routes, *(web.get(path, answer) for path, answer in unauthenticated)]

    # -- all requests --------------------------------------------------------------------------------------------------

    def _handler(
        self,
        path: str,
        operation: str,
        body_type: type[messages.Body] | None,
        answer: Callable[[Any, Any], Awaitable[Answer]],
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            began = self._clock.monotonic()
            body: Any = None
            try:
                async with Deadline(self._clock, self._limits.seconds):
                    caller = await self._access.check(request.headers.get("Authorization", ""), peer_of(request))
                    self._limit(caller)
                    async with self._permits:
                        if body_type is not None:
                            body = await _body(request, body_type, self._limits.body)
                        status, value = await answer(request, body)
                response = _json(status, value)
            except Problem as problem:
                response = self._refusal(request, problem)
            except TimeoutError:
                response = self._refusal(request, Problem(504, f"not finished within {self._limits.seconds:g} s"))
            except DriverError as error:
                response = self._refusal(request, Problem(503, error.message, retry_after=1))
            except Exception as error:  # noqa: BLE001  one request must not end the others
                log.error("request failed", method=request.method, path=path, traceback=traceback_of(error))  # noqa: TRY400
                response = self._refusal(request, Problem(500, type(error).__name__))
            if operation:
                result = "success" if response.status < 400 else "error"
                self._operations.labels(operation, result).inc()
                zone = request.match_info.get("name") or getattr(body, "zone_name", "")
                log.info("zone", operation=operation, zone=zone, status=response.status)
            self._requests.labels(request.method, path, str(response.status)).inc()
            self._seconds.labels(request.method, path).observe(self._clock.monotonic() - began)
            return response

        return handle

    def _limit(self, caller: str) -> None:
        if not self._rates.take(caller):
            raise Problem(429, f"Too many requests: at most {self._limits.per_second:g} a second", retry_after=1)

    def _refusal(self, request: web.Request, problem: Problem) -> web.Response:
        error, details = problem.error, problem.details
        if problem.status >= 500:
            log.warning(
                "refused", method=request.method, path=request.path, status=problem.status, problem=problem.error
            )
            error, details = GENERIC.get(problem.status, GENERIC[500]), None
        headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else {}
        if problem.retry_after is not None:
            headers["Retry-After"] = str(problem.retry_after)
        return _json(problem.status, {"error": error, "details": details}, headers)

    # -- handlers ------------------------------------------------------------------------------------------------------

    async def _create(self, _request: web.Request, body: messages.CreateZone) -> Answer:
        await self._named.create(body)
        return 201, messages.Done(success=True, message=f"Zone {body.zone_name} created successfully", applied=True)

    async def _list(self, _request: web.Request, _body: None) -> Answer:
        names = await self._named.names()
        return 200, messages.ZoneList(names, len(names))

    async def _get(self, request: web.Request, _body: None) -> Answer:
        return 200, await self._named.info(_zone(request))

    async def _modify(self, request: web.Request, body: messages.ModifyZone) -> Answer:
        await self._named.modify(_zone(request), body)
        return 200, messages.Done(success=True, message=f"Zone {_name(request)} modified successfully", applied=True)

    async def _delete(self, request: web.Request, _body: None) -> Answer:
        await self._named.delete(_zone(request))
        return 200, messages.Done(success=True, message=f"Zone {_name(request)} deleted successfully")

    async def _status(self, request: web.Request, _body: None) -> Answer:
        text = await self._named.command(_zone(request), "zonestatus")
        return 200, messages.Done(success=True, message=f"Zone {_name(request)} status retrieved", details=text)

    def _verb(self, verb: str) -> Callable[[web.Request, None], Awaitable[Answer]]:
        async def run(request: web.Request, _body: None) -> Answer:
            only_if_newer = verb == "retransfer" and request.query.get("ifNewer") == "true"
            text = await self._named.command(_zone(request), "refresh" if only_if_newer else verb)
            return 200, messages.Done(success=True, message=DONE[verb].format(_name(request)), details=text)

        return run

    async def _add_record(self, request: web.Request, body: messages.AddRecord) -> Answer:
        await self._named.add_record(_zone(request), body)
        return 201, self._record(request, body, "added to")

    async def _remove_record(self, request: web.Request, body: messages.RemoveRecord) -> Answer:
        await self._named.remove_record(_zone(request), body)
        return 200, self._record(request, body, "removed from")

    async def _replace_record(self, request: web.Request, body: messages.ReplaceRecord) -> Answer:
        await self._named.replace_record(_zone(request), body)
        return 200, self._record(request, body, "updated in")

    @staticmethod
    def _record(request: web.Request, body: messages.Body, done: str) -> messages.Done:
        fields = (field for field in msgspec.structs.fields(body) if field.name != "priority")
        record = {field.encode_name: getattr(body, field.name) for field in fields}
        details: dict[str, object] = {"zone": _name(request), "record": record}
        return messages.Done(success=True, message=f"Record {done} zone {_name(request)}", details=details)

    async def _server_status(self, _request: web.Request, _body: None) -> Answer:
        return 200, messages.ServerStatus(status=await self._named.server("status"))

    async def _reconfigure(self, _request: web.Request, _body: None) -> Answer:
        return 200, messages.Done(success=True, message="reconfigured", applied=await self._named.renew())

    async def _health(self, _request: web.Request) -> web.Response:
        return _json(200, messages.Health(status="healthy", version=version("steersman")))

    async def _ready(self, _request: web.Request) -> web.Response:
        ready, checks = await self._named.checks()
        return _json(200 if ready else 503, messages.Ready(ready, checks))

    async def _metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self.registry), headers={"Content-Type": content_type})


def _name(request: web.Request) -> str:
    return str(request.match_info["name"])


def _zone(request: web.Request) -> bytes:
    return zone_of(_name(request))


async def _body(request: web.Request, body_type: type[messages.Body], limit: int) -> messages.Body:
    media_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Problem(415, "Expected request with `Content-Type: application/json`")
    try:
        data = await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise Problem(413, f"the body is larger than {limit} bytes") from None
    try:
        return msgspec.json.decode(data, type=body_type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"Invalid request: {error}") from None


def _json(status: int, value: object, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode(value), content_type="application/json", headers=headers or {}
    )
