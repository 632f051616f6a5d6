"""The sidecar's listener: the original's paths, bodies and statuses, for the named next door.

    rate ──► who (not for health, readiness and metrics) ──► body ──► named ──► answer

Where the original was wrong this is right instead (docs/dns.md has the list). Texts of answers from 500 on say nothing
about the inside; the log does. Nothing is kept between two requests, so it may be killed and started at any time.
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
from steersman.errors import ConfigError, DriverError, traceback_of
from steersman.operators.dns.bindcar import wire
from steersman.operators.dns.bindcar.access import Problem
from steersman.operators.dns.bindcar.neighbour import zone_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from steersman.clock import Clock
    from steersman.operators.dns.bindcar.access import Access
    from steersman.operators.dns.bindcar.neighbour import Neighbour

__all__ = ["Limits", "Sidecar"]

log = structlog.get_logger(__name__)
Answer = tuple[int, Any]
DONE: Final = {
    "reload": "Zone {} reloaded successfully",
    "freeze": "Zone {} frozen successfully",
    "thaw": "Zone {} thawed successfully",
    "notify": "Notify sent for zone {}",
    "retransfer": "Retransfer initiated for zone {}",
}
GENERIC: Final = {500: "Internal server error", 503: "named is not available", 504: "named took too long"}


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one caller may ask of us."""

    per_second: float = 100.0  # requests, of all callers together; a busy operator makes a few dozen
    burst: int = 400
    body: int = 64 * 2**20  # bytes; a zone of half a million records
    seconds: float = 60.0  # for a request as a whole, its body included
    at_once: int = 64


class Sidecar:
    """See the module."""

    def __init__(
        self,
        neighbour: Neighbour,
        access: Access,
        *,
        clock: Clock,
        limits: Limits | None = None,
        listen: tuple[str, int],
    ) -> None:
        self._named, self._access, self._clock = neighbour, access, clock
        self._limits = limits or Limits()
        self._listen = listen
        self._tokens, self._refilled = float(self._limits.burst), clock.monotonic()
        self._permits = asyncio.Semaphore(self._limits.at_once)
        self._runner: web.AppRunner | None = None
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "bindcar_http_requests", "Requests.", ["method", "path", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "bindcar_http_request_duration_seconds", "How long they took.", ["method", "path"], registry=self.registry
        )
        self._operations = Counter(
            "bindcar_zone_operations", "What was done to zones.", ["operation", "result"], registry=self.registry
        )
        self.port = 0

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen; ConfigError when the address cannot be had."""
        app = web.Application(client_max_size=self._limits.body)
        app.add_routes(self._routes())
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=5.0, keepalive_timeout=30.0)
        await self._runner.setup()
        host, port = self._listen
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            await self.stop()
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}") from None
        self.port = self._runner.addresses[0][1]
        log.info("listening", address=host, port=self.port)

    async def stop(self) -> None:
        """Finish what has begun, and close."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _routes(self) -> list[web.AbstractRouteDef]:
        zone = f"{wire.PREFIX}/zones/{{name}}"
        table: list[tuple[str, str, str, type[wire.Body] | None, Callable[[Any, Any], Awaitable[Answer]]]] = [
            ("POST", f"{wire.PREFIX}/zones", "create", wire.CreateZone, self._create),
            ("GET", f"{wire.PREFIX}/zones", "", None, self._list),
            ("GET", zone, "", None, self._get),
            ("PATCH", zone, "modify", wire.ModifyZone, self._modify),
            ("DELETE", zone, "delete", None, self._delete),
            ("GET", f"{zone}/status", "", None, self._status),
            *(("POST", f"{zone}/{verb}", verb, None, self._verb(verb)) for verb in DONE),
            ("POST", f"{zone}/records", "record_add", wire.AddRecord, self._add_record),
            ("DELETE", f"{zone}/records", "record_remove", wire.RemoveRecord, self._remove_record),
            ("PUT", f"{zone}/records", "record_update", wire.ReplaceRecord, self._replace_record),
            ("GET", f"{wire.PREFIX}/server/status", "", None, self._server_status),
            ("POST", f"{wire.PREFIX}/server/reconfig", "reconfig", None, self._reconfigure),
        ]
        routes: list[web.AbstractRouteDef] = [
            web.route(method, path, self._handler(path, operation, shape, answer))
            for method, path, operation, shape, answer in table
        ]
        open_to_all = [
            (f"{wire.PREFIX}/health", self._health),
            (f"{wire.PREFIX}/ready", self._ready),
            ("/metrics", self._metrics),
        ]
        return [*routes, *(web.get(path, answer) for path, answer in open_to_all)]

    # -- every request -------------------------------------------------------------------------------------------------

    def _handler(
        self,
        path: str,
        operation: str,
        shape: type[wire.Body] | None,
        answer: Callable[[Any, Any], Awaitable[Answer]],
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            began = self._clock.monotonic()
            body: Any = None
            try:
                self._limit()
                async with Deadline(self._clock, self._limits.seconds):
                    await self._access.check(request.headers.get("Authorization", ""))
                    async with self._permits:
                        if shape is not None:
                            body = await _body(request, shape, self._limits.body)
                        status, value = await answer(request, body)
                response = _json(status, value)
            except Problem as problem:
                response = self._refusal(request, problem)
            except TimeoutError:
                response = self._refusal(request, Problem(504, f"no end within {self._limits.seconds:g} s"))
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

    def _limit(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._limits.burst, self._tokens + (now - self._refilled) * self._limits.per_second)
        self._refilled = now
        if self._tokens < 1:
            raise Problem(429, f"Too many requests: at most {self._limits.per_second:g} a second", retry_after=1)
        self._tokens -= 1

    def _refusal(self, request: web.Request, problem: Problem) -> web.Response:
        error, details = problem.error, problem.details
        if problem.status >= 500:
            log.warning("refused", method=request.method, path=request.path, status=problem.status, why=problem.error)
            error, details = GENERIC.get(problem.status, GENERIC[500]), None
        headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else {}
        if problem.retry_after is not None:
            headers["Retry-After"] = str(problem.retry_after)
        return _json(problem.status, {"error": error, "details": details}, headers)

    # -- what there is to ask ------------------------------------------------------------------------------------------

    async def _create(self, _request: web.Request, body: wire.CreateZone) -> Answer:
        await self._named.create(body)
        return 201, wire.Done(success=True, message=f"Zone {body.zone_name} created successfully", applied=True)

    async def _list(self, _request: web.Request, _body: None) -> Answer:
        names = await self._named.names()
        return 200, wire.ZoneList(names, len(names))

    async def _get(self, request: web.Request, _body: None) -> Answer:
        return 200, await self._named.info(_zone(request))

    async def _modify(self, request: web.Request, body: wire.ModifyZone) -> Answer:
        await self._named.modify(_zone(request), body)
        return 200, wire.Done(success=True, message=f"Zone {_name(request)} modified successfully", applied=True)

    async def _delete(self, request: web.Request, _body: None) -> Answer:
        await self._named.delete(_zone(request))
        return 200, wire.Done(success=True, message=f"Zone {_name(request)} deleted successfully")

    async def _status(self, request: web.Request, _body: None) -> Answer:
        text = await self._named.command(_zone(request), "zonestatus")
        return 200, wire.Done(success=True, message=f"Zone {_name(request)} status retrieved", details=text)

    def _verb(self, verb: str) -> Callable[[web.Request, None], Awaitable[Answer]]:
        async def run(request: web.Request, _body: None) -> Answer:
            gentle = verb == "retransfer" and request.query.get("ifNewer") == "true"
            text = await self._named.command(_zone(request), "refresh" if gentle else verb)
            return 200, wire.Done(success=True, message=DONE[verb].format(_name(request)), details=text)

        return run

    async def _add_record(self, request: web.Request, body: wire.AddRecord) -> Answer:
        await self._named.add_record(_zone(request), body)
        return 201, self._record(request, body, "added to")

    async def _remove_record(self, request: web.Request, body: wire.RemoveRecord) -> Answer:
        await self._named.remove_record(_zone(request), body)
        return 200, self._record(request, body, "removed from")

    async def _replace_record(self, request: web.Request, body: wire.ReplaceRecord) -> Answer:
        await self._named.replace_record(_zone(request), body)
        return 200, self._record(request, body, "updated in")

    @staticmethod
    def _record(request: web.Request, body: wire.Body, done: str) -> wire.Done:
        fields = (field for field in msgspec.structs.fields(body) if field.name != "priority")
        said = {field.encode_name: getattr(body, field.name) for field in fields}
        details: dict[str, object] = {"zone": _name(request), "record": said}
        return wire.Done(success=True, message=f"Record {done} zone {_name(request)}", details=details)

    async def _server_status(self, _request: web.Request, _body: None) -> Answer:
        return 200, wire.ServerStatus(status=await self._named.server("status"))

    async def _reconfigure(self, _request: web.Request, _body: None) -> Answer:
        return 200, wire.Done(success=True, message="reconfigured", applied=await self._named.renew())

    async def _health(self, _request: web.Request) -> web.Response:
        return _json(200, wire.Health(status="healthy", version=version("steersman")))

    async def _ready(self, _request: web.Request) -> web.Response:
        ready, checks = await self._named.checks()
        return _json(200 if ready else 503, wire.Ready(ready, checks))

    async def _metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self.registry), headers={"Content-Type": content_type})


def _name(request: web.Request) -> str:
    return str(request.match_info["name"])


def _zone(request: web.Request) -> bytes:
    return zone_of(_name(request))


async def _body(request: web.Request, shape: type[wire.Body], limit: int) -> wire.Body:
    media_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Problem(415, "Expected request with `Content-Type: application/json`")
    try:
        data = await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise Problem(413, f"the body is larger than {limit} bytes") from None
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"Invalid request: {error}") from None


def _json(status: int, value: object, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode(value), content_type="application/json", headers=headers or {}
    )
