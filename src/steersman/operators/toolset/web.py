"""How requests to the API are received: who asks, how often, in which form; and how they are refused. RFC 7807 errors.

    rate limit ──► method ──► token (TokenReview) ──► rights (SubjectAccessReview) ──► media type ──► body ──► answer

Every answer carries `X-Request-ID`, the caller's own or a new one. Nothing here knows what is answered.
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
from steersman.kube.errors import KubeError
from steersman.kube.types.authorization import (
    ResourceAttributes,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
    TokenReview,
    TokenReviewSpec,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from steersman.clock import Clock
    from steersman.kube.client import Client
    from steersman.kube.types.authorization import UserInfo
    from steersman.operators.toolset.metrics import ToolsetMetrics

    Answer = Callable[[web.Request, Any], Awaitable[tuple[int, Any]]]

__all__ = ["Gate", "Problem"]

RATE: Final = 100.0  # requests a second
BURST: Final = 150.0
REVIEW_SECONDS: Final = 5.0
BODY_LIMIT: Final = 1024 * 1024
PROBLEMS: Final = "https://kubernaut.io/errors/"
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_JSON: Final = re.compile(r"application/json\s*(;\s*charset\s*=\s*\"?utf-?8\"?\s*)?", re.IGNORECASE)
_MEDIA_TYPE: Final = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+\s*(;.*)?")

log = structlog.get_logger(__name__)


class Problem(Exception):  # noqa: N818  RFC 7807 calls it that
    """Why a request is not answered."""

    def __init__(self, status: int, kind: str, detail: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.headers = dict(headers or {})


class Gate:
    """Lets requests in."""

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
        self._client = client.with_options(timeout=REVIEW_SECONDS, retry=False)
        self._metrics = metrics
        self._authenticate = authenticate
        self._clock = clock
        self._tokens = BURST
        self._refilled = clock.monotonic()

    def route(
        self, path: str, methods: Mapping[str, tuple[Answer, type[msgspec.Struct] | None]], *, public: bool = False
    ) -> web.RouteDef:
        """One path with what answers each method, and the shape of the body it takes."""

        async def handle(request: web.Request) -> web.Response:
            return await self._handle(request, path, methods, public)

        return web.route("*", path, handle)

    async def _handle(
        self,
        request: web.Request,
        path: str,
        methods: Mapping[str, tuple[Answer, type[msgspec.Struct] | None]],
        public: bool,
    ) -> web.Response:
        began = self._clock.monotonic()
        sent = request.headers.get("X-Request-ID", "")
        request_id = sent if _REQUEST_ID.fullmatch(sent) else str(uuid.uuid4())
        try:
            self._limit()
            answer, shape = _chosen(request, methods)
            if not public:
                await self._admit(request)
            body = await _body(request, shape) if request.method == "POST" else None
            status, value = await answer(request, body)
            response = web.Response(status=status, body=msgspec.json.encode(value), content_type="application/json")
        except Problem as problem:
            response = _refusal(request, problem, request_id)
        except Exception as error:
            log.exception("request failed", component="api", request_id=request_id, traceback=traceback_of(error))
            response = _refusal(request, Problem(500, "internal-error", "see the log for request_id"), request_id)
        response.headers["X-Request-ID"] = request_id
        labels = (path, request.method if request.method in methods else "other", str(response.status))
        self._metrics.requests.labels(*labels).inc()
        self._metrics.request_duration.labels(*labels).observe(self._clock.monotonic() - began)
        return response

    def _limit(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(BURST, self._tokens + (now - self._refilled) * RATE)
        self._refilled = now
        if self._tokens < 1:
            raise Problem(429, "rate-limited", f"at most {RATE:g} requests a second", headers={"Retry-After": "1"})
        self._tokens -= 1

    async def _admit(self, request: web.Request) -> None:
        """Who asks, and whether they may."""
        if not self._authenticate:
            return
        challenge = {"WWW-Authenticate": "Bearer"}
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or not token.isascii() or " " in token:
            raise Problem(401, "unauthorized", "send a bearer token", headers=challenge)
        try:
            review = await self._client.create(TokenReview(spec=TokenReviewSpec(token=token)))
            user = review.status.user
            if not review.status.authenticated or user is None:
                raise Problem(401, "unauthorized", "the token is not valid", headers=challenge)
            allowed = await self._may(user, request)
        except KubeError as error:
            log.exception("review failed", component="api", error=type(error).__name__)
            raise Problem(500, "internal-error", "the token could not be reviewed") from None
        if not allowed:
            raise Problem(403, "forbidden", f"this user may not do that to toolsets.steersman.dev in {self._namespace}")

    async def _may(self, user: UserInfo, request: web.Request) -> bool:
        # Not by path: every cluster lets every authenticated user get /api/*, for discovery.
        verb = "get" if request.method == "GET" else "create"
        attributes = ResourceAttributes(
            verb=verb, group="steersman.dev", resource="toolsets", namespace=self._namespace
        )
        spec = SubjectAccessReviewSpec(
            user=user.username,
            uid=user.uid,
            groups=list(user.groups),
            extra=user.extra,
            resource_attributes=attributes,
        )
        answer = await self._client.create(SubjectAccessReview(spec=spec))
        return answer.status.allowed


def _chosen(
    request: web.Request, methods: Mapping[str, tuple[Answer, type[msgspec.Struct] | None]]
) -> tuple[Answer, type[msgspec.Struct] | None]:
    found = methods.get(request.method)
    if found is None:
        allowed = ", ".join(sorted(methods))
        raise Problem(405, "method-not-allowed", f"use {allowed}", headers={"Allow": allowed})
    return found


async def _body(request: web.Request, shape: type[msgspec.Struct] | None) -> Any:
    if shape is None:
        return None
    media_type = request.headers.get("Content-Type", "").strip()
    if not _JSON.fullmatch(media_type):
        if media_type and not _MEDIA_TYPE.fullmatch(media_type):
            raise Problem(400, "validation-error", "the Content-Type header is malformed")
        raise Problem(415, "unsupported-media-type", "send application/json")
    if (request.content_length or 0) > BODY_LIMIT:
        raise Problem(413, "validation-error", f"the body is larger than {BODY_LIMIT} bytes")
    data = await request.content.read(BODY_LIMIT + 1)
    if len(data) > BODY_LIMIT:
        raise Problem(413, "validation-error", f"the body is larger than {BODY_LIMIT} bytes")
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, "validation-error", str(error)) from None


def _refusal(request: web.Request, problem: Problem, request_id: str) -> web.Response:
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
