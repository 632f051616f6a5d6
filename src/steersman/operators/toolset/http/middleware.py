"""How requests to the API are admitted: authentication, authorization, rate limits, and RFC 7807 errors.

    method ──► token ──► rights ──► rate of this caller ──► media type ──► body ──► answer

Public paths are limited per address; probes are not limited. Every answer carries `X-Request-ID`, the caller's own or a
new one. Nothing here knows the handlers.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog
from aiohttp import web

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import traceback_of
from steersman.kube.api.types.authorization import ResourceAttributes
from steersman.runtime.http.authentication import AccessDenied, CallerRates, TokenAuthenticator, bearer_token
from steersman.runtime.http.server import peer_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from steersman.clock import Clock
    from steersman.kube.client.client import Client
    from steersman.operators.toolset.reconcile.metrics import ToolsetMetrics

    Answer = Callable[[web.Request, Any], Awaitable[tuple[int, Any]]]

RATE: Final = 100.0  # requests a second, of one caller
BURST: Final = 150
REVIEW_SECONDS: Final = 5.0
BODY_LIMIT: Final = 1024 * 1024  # bytes that the listener accepts
_DENIALS: Final = {  # by the status of AccessDenied: status and kind of the answer
    401: (401, "unauthorized"),
    403: (403, "forbidden"),
    429: (429, "rate-limited"),
    503: (500, "internal-error"),
}
PROBLEMS: Final = "https://kubernaut.io/errors/"
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_JSON: Final = re.compile(r"application/json\s*(;\s*charset\s*=\s*\"?utf-?8\"?\s*)?", re.IGNORECASE)
_MEDIA_TYPE: Final = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+\s*(;.*)?")

log = structlog.get_logger(__name__)


class HttpProblem(Exception):  # noqa: N818  RFC 7807 calls it that
    """An error answer."""

    def __init__(self, status: int, kind: str, detail: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.headers = dict(headers or {})


class ApiMiddleware:
    """Admits requests and encodes answers."""

    def __init__(
        self,
        client: Client,
        metrics: ToolsetMetrics,
        *,
        authenticate: bool,
        namespace: str,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`namespace`: where callers need the right to get or create `toolsets.steersman.dev`."""
        self._namespace = namespace
        self._authenticator = TokenAuthenticator(client.with_options(timeout=REVIEW_SECONDS, retry=False), clock=clock)
        self._metrics = metrics
        self._authenticate = authenticate
        self._clock = clock
        self._rates = CallerRates(per_second=RATE, burst=BURST, clock=clock)

    def route(
        self,
        path: str,
        methods: Mapping[str, tuple[Answer, type[msgspec.Struct] | None]],
        *,
        public: bool = False,
        probe: bool = False,
    ) -> web.RouteDef:
        """One path with what answers each method, and the shape of the body it takes.

        `public`: without a token. `probe`: without a token and without a rate limit.
        """

        async def admit(request: web.Request) -> None:
            if not probe:
                caller = await self._caller(request) if self._authenticate and not public else ""
                self._limit(caller or f"peer {peer_of(request)}")

        async def handle(request: web.Request) -> web.Response:
            return await self._handle(request, path, methods, admit)

        return web.route("*", path, handle)

    async def _handle(
        self,
        request: web.Request,
        path: str,
        methods: Mapping[str, tuple[Answer, type[msgspec.Struct] | None]],
        admit: Callable[[web.Request], Awaitable[None]],
    ) -> web.Response:
        began = self._clock.monotonic()
        sent = request.headers.get("X-Request-ID", "")
        request_id = sent if _REQUEST_ID.fullmatch(sent) else str(uuid.uuid4())
        try:
            answer, shape = _chosen(request, methods)
            await admit(request)
            body = await _body(request, shape) if request.method == "POST" else None
            status, value = await answer(request, body)
            response = web.Response(status=status, body=msgspec.json.encode(value), content_type="application/json")
        except HttpProblem as problem:
            response = _refusal(request, problem, request_id)
        except ConnectionError:
            raise  # the caller has left
        except Exception as error:
            log.exception("request failed", component="api", request_id=request_id, traceback=traceback_of(error))
            response = _refusal(request, HttpProblem(500, "internal-error", "see the log for request_id"), request_id)
        response.headers["X-Request-ID"] = request_id
        labels = (path, request.method if request.method in methods else "other", str(response.status))
        self._metrics.requests.labels(*labels).inc()
        self._metrics.request_duration.labels(*labels).observe(self._clock.monotonic() - began)
        return response

    def _limit(self, caller: str) -> None:
        if not self._rates.take(caller):
            raise HttpProblem(429, "rate-limited", f"at most {RATE:g} requests a second", headers={"Retry-After": "1"})

    async def _caller(self, request: web.Request) -> str:
        """The user who sent the request, if they may."""
        # Not by path: every cluster lets every authenticated user get /api/*, for discovery.
        resource = ResourceAttributes(
            verb="get" if request.method == "GET" else "create",
            group="steersman.dev",
            resource="toolsets",
            namespace=self._namespace,
        )
        token = bearer_token(request.headers.get("Authorization", ""))
        try:
            user = await self._authenticator.authenticate(token, peer=peer_of(request))
            await self._authenticator.authorize(user, resource=resource)
        except AccessDenied as denied:
            status, kind = _DENIALS[denied.status]
            raise HttpProblem(status, kind, str(denied), headers=denied.headers) from denied
        return f"user {user.username}"


def _chosen(
    request: web.Request, methods: Mapping[str, tuple[Answer, type[msgspec.Struct] | None]]
) -> tuple[Answer, type[msgspec.Struct] | None]:
    found = methods.get(request.method)
    if found is None:
        allowed = ", ".join(sorted(methods))
        raise HttpProblem(405, "method-not-allowed", f"use {allowed}", headers={"Allow": allowed})
    return found


async def _body(request: web.Request, shape: type[msgspec.Struct] | None) -> Any:
    if shape is None:
        return None
    media_type = request.headers.get("Content-Type", "").strip()
    if not _JSON.fullmatch(media_type):
        if media_type and not _MEDIA_TYPE.fullmatch(media_type):
            raise HttpProblem(400, "validation-error", "the Content-Type header is malformed")
        raise HttpProblem(415, "unsupported-media-type", "send application/json")
    if (request.content_length or 0) > BODY_LIMIT:
        raise HttpProblem(413, "validation-error", f"the body is larger than {BODY_LIMIT} bytes")
    try:
        data = await request.read()  # all of it, in any number of chunks
    except web.HTTPRequestEntityTooLarge:
        raise HttpProblem(413, "validation-error", f"the body is larger than {BODY_LIMIT} bytes") from None
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HttpProblem(400, "validation-error", str(error)) from None


def _refusal(request: web.Request, problem: HttpProblem, request_id: str) -> web.Response:
    value = {
        "type": f"{PROBLEMS}{problem.kind}",
        "title": problem.kind.replace("-", " ").capitalize(),
        "detail": problem.detail,
        "status": problem.status,
        "instance": request.path,
        "request_id": request_id,
    }
    return web.Response(
        status=problem.status,
        body=msgspec.json.encode(value),
        content_type="application/problem+json",
        headers=problem.headers,
    )
