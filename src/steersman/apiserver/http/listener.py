"""HTTP requests in, responses out.

One coroutine per request: authenticate, authorize, parse, apply a fault if one matches, dispatch, respond. There is no
router and no middleware, because the paths of the Kubernetes API are a grammar, not a list. Everything that decides is
called from here and is synchronous; the only things awaited are the body, webhooks, the clock of a fault, and the
socket.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
import yaml
from aiohttp import web
from multidict import CIMultiDict

from steersman.apiserver import status_errors
from steersman.apiserver.admission.replay import dispatch_converted, dispatch_reviewed, is_reviewed
from steersman.apiserver.authorization.authorizer import forbidden_request
from steersman.apiserver.authorization.request_attributes import request_attributes
from steersman.apiserver.http.authenticator import ANONYMOUS
from steersman.apiserver.http.dispatch import dispatch
from steersman.apiserver.http.non_resource_endpoints import PUBLIC, NonResourceEndpoints
from steersman.apiserver.http.requests import Query, Request, Route, negotiate, route, verb_of
from steersman.apiserver.http.state import Reply
from steersman.apiserver.storage.watch import Watch
from steersman.apiserver.subresources.pod_streams import PodStreams
from steersman.apiserver.write.decoding import MAX_BODY

if TYPE_CHECKING:
    from typing import NoReturn

    from steersman.apiserver.admission.caller import WebhookCaller
    from steersman.apiserver.http.faults import Fault, Faults
    from steersman.apiserver.http.state import Api
    from steersman.kube.api.types.authorization import UserInfo

_logger = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode
_PRETTY_AGENTS = ("curl", "Wget", "Mozilla/5.0")
_HEADERS = {"Audit-Id": "", "Cache-Control": "no-cache, private", "Content-Type": "application/json"}


class LogEntry(msgspec.Struct, frozen=True, gc=False):
    """One request that was answered; what an audit log at metadata level would say."""

    method: str
    path: str  # with the query
    verb: str
    resource: str  # plural.group; empty for pages such as /version
    namespace: str
    name: str
    subresource: str
    user: str
    user_agent: str
    status: int  # 0 when the connection was cut instead
    annotations: Mapping[str, str] = {}  # what admission webhooks want to be known, under the real server's keys


class _Exchange:
    """One request while it is being answered."""

    __slots__ = ("agent", "annotations", "http", "path", "query", "route", "status", "user", "verb", "warnings")

    def __init__(self, http: web.BaseRequest) -> None:
        self.http = http
        self.path, _, text = http.raw_path.partition("?")
        self.query = Query(text)
        self.agent = http.headers.get("User-Agent", "")
        self.route: Route | None = None
        self.user: UserInfo | None = None  # once it is authenticated
        self.verb = http.method.lower()
        self.status = 0
        self.warnings: list[str] = []
        self.annotations: dict[str, str] | None = None

    @property
    def is_page(self) -> bool:
        """Whether the path is too short to name a resource."""
        if self.path.startswith("/api/"):
            return self.path.rstrip("/").count("/") < 3
        return not self.path.startswith("/apis/") or self.path.rstrip("/").count("/") < 4

    def entry(self) -> LogEntry:
        """What the log says about it."""
        found, http = self.route, self.http
        return LogEntry(
            http.method,
            http.raw_path,
            self.verb,
            found.info.kind.qualified if found else "",
            found.namespace if found else "",
            found.name if found else "",
            found.subresource if found else "",
            self.user.username if self.user else "",
            self.agent,
            self.status,
            self.annotations or {},
        )


class Listener:
    """Answers HTTP requests from an `Api`."""

    def __init__(self, api: Api, faults: Faults, caller: WebhookCaller, *, log_size: int = 100_000) -> None:
        self.pages = NonResourceEndpoints(api)
        self.pods = PodStreams(api)
        self.log: deque[LogEntry] = deque(maxlen=log_size)
        self._api = api
        self._caller = caller
        self._faults = faults
        self._closing = asyncio.Event()

    def close(self) -> None:
        """Let go of frozen requests and end the watches."""
        self._closing.set()
        self._api.hub.close()

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        exchange = _Exchange(http)
        try:
            return await self._answer(exchange)
        except status_errors.StatusError as error:
            return self._response(exchange, _refusal(error))
        except (asyncio.CancelledError, ConnectionError):
            raise  # the client is gone
        except Exception as error:  # a bug: the client gets an answer it understands, the log says where
            _logger.exception("request failed", extra={"method": http.method, "path": exchange.path})
            why = f"Internal error occurred: {type(error).__name__}"
            return self._response(exchange, _refusal(status_errors.StatusError(500, why, reason="InternalError")))
        finally:
            self.log.append(exchange.entry())

    async def _answer(self, exchange: _Exchange) -> web.StreamResponse:
        http, query = exchange.http, exchange.query
        user = exchange.user = self._api.authenticator.identify(http)
        if self._api.authorizer is not None:
            user = exchange.user = self._api.authorizer.impersonate(user, http.headers)
            self._api.authorizer.check(user, http.method, exchange.path, query)
        elif user is ANONYMOUS and not exchange.path.startswith(PUBLIC):
            raise forbidden_request(user, request_attributes(http.method, exchange.path, query))
        if exchange.is_page:
            return self._response(exchange, self.pages.page(exchange.path, query, http.headers))
        stream = self.pods.route(exchange.path)
        found = exchange.route = stream or route(self._api.registry, exchange.path)
        exchange.verb = verb_of(http.method, found, query)
        fault = self._faults.match(exchange.verb, found, exchange.agent) if self._faults else None
        if fault is not None:
            await self._before(http, fault)
        if stream is not None:
            spoken = await self.pods.respond(http, stream)
            exchange.status = 101
            return self._response(exchange, spoken) if isinstance(spoken, Reply) else spoken
        request = Request(
            http.method,
            found,
            query,
            headers=http.headers,
            body=await _body(http),
            media=negotiate(http.headers.get("Accept", ""), custom=found.info.custom is not None),
            user=user,
            warnings=exchange.warnings,
        )
        converts = found.info.converts
        if (self._api.webhooks or self._api.policies or converts) and is_reviewed(request):
            exchange.annotations = {}
            answer = await dispatch_reviewed(self._api, request, dispatch, self._caller, exchange.annotations)
        elif converts:
            answer = await dispatch_converted(self._api, request, dispatch, self._caller)
        else:
            answer = dispatch(self._api, request)
        if isinstance(answer, Watch):
            exchange.status = 200
            return await self._stream(http, answer, fault)
        if fault is not None and fault.effect in {"drop-after", "truncate"}:
            await _cut(http, answer, fault)
        return self._response(exchange, answer)

    def _response(self, exchange: _Exchange, reply: Reply) -> web.Response:
        exchange.status = reply.status
        body, content_type = reply.body, reply.content_type
        if content_type == "application/yaml" and body[:1] == b"{":
            body = yaml.safe_dump(msgspec.json.decode(body), allow_unicode=True).encode()
        elif content_type == "application/json" and _pretty(exchange):
            body = msgspec.json.format(body, indent=2) + b"\n"
        headers: CIMultiDict[str] = CIMultiDict(_HEADERS)
        headers["Audit-Id"] = self._api.uid()
        headers["Content-Type"] = content_type
        if reply.headers:
            headers.update(reply.headers)
        for warning in dict.fromkeys(exchange.warnings):
            headers.add("Warning", f"299 - {_quoted(warning)}")
        return web.Response(status=reply.status, body=body, headers=headers)

    async def _stream(self, http: web.BaseRequest, watch: Watch, fault: Fault | None) -> web.StreamResponse:
        response = web.StreamResponse(headers={**_HEADERS, "Audit-Id": self._api.uid()})
        response.enable_chunked_encoding()
        await response.prepare(http)
        left = fault.bytes if fault is not None and fault.effect == "truncate" else None
        stream = watch.stream()
        try:
            async for chunk in stream:
                if left is None:
                    await response.write(chunk)
                    continue
                await response.write(chunk[:left])
                left -= len(chunk)
                if left <= 0:
                    _hang_up(http)
        finally:
            await stream.aclose()
        await response.write_eof()
        return response

    async def _before(self, http: web.BaseRequest, fault: Fault) -> None:
        """What a fault does before the request is handled."""
        match fault.effect:
            case "delay":
                await self._api.clock.sleep(fault.seconds)
            case "drop":
                _abort(http)
            case "freeze":
                await self._closing.wait()
                _abort(http)
            case "expire":
                self._api.store.compact()
            case "throttle" | "error" | "unavailable":
                raise _faulty(fault)


def _faulty(fault: Fault) -> status_errors.StatusError:
    if fault.effect == "error":
        why = "a fault was asked for"
        details = {"causes": [{"message": why}]}
        return status_errors.StatusError(
            500, f"Internal error occurred: {why}", reason="InternalError", details=details
        )
    seconds = max(math.ceil(fault.seconds), 1)
    code, reason, message = (
        (429, "TooManyRequests", "Too many requests, please try again later.")
        if fault.effect == "throttle"
        else (503, "ServiceUnavailable", "the server is currently unable to handle the request")
    )
    return status_errors.StatusError(
        code,
        message,
        reason=reason,
        details={"retryAfterSeconds": seconds},
        headers={"Retry-After": str(seconds)},
    )


def _abort(http: web.BaseRequest) -> NoReturn:
    """Cut the connection at once."""
    if http.transport is not None:
        http.transport.abort()
    raise ConnectionResetError("cut by a fault")


def _hang_up(http: web.BaseRequest) -> NoReturn:
    """Close the connection after what is in its buffer."""
    if http.transport is not None:
        http.transport.close()
    raise ConnectionResetError("cut by a fault")


async def _cut(http: web.BaseRequest, answer: Reply, fault: Fault) -> NoReturn:
    """Do not send an answer, or only the beginning of it."""
    if fault.effect == "truncate":
        response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
        response.content_length = len(answer.body)
        await response.prepare(http)
        await response.write(answer.body[: fault.bytes])
    _hang_up(http)


async def _body(http: web.BaseRequest) -> bytes:
    if not http.can_read_body:
        return b""
    try:
        return await http.read()
    except web.HTTPRequestEntityTooLarge:
        raise status_errors.StatusError(
            413, f"Request entity too large: limit is {MAX_BODY}", reason="RequestEntityTooLarge"
        ) from None


def _refusal(error: status_errors.StatusError) -> Reply:
    if error.text is not None:
        headers = {"X-Content-Type-Options": "nosniff", **error.headers}
        return Reply(error.code, error.text.encode(), "text/plain; charset=utf-8", headers)
    return Reply(error.code, _encode(error.status()) + b"\n", "application/json", error.headers)


def _pretty(exchange: _Exchange) -> bool:
    if "pretty" in exchange.query:
        return exchange.query.flag("pretty")
    return exchange.agent.startswith(_PRETTY_AGENTS)


def _quoted(text: str) -> str:
    text = "".join(char if char.isprintable() else " " for char in text)  # a line break would end the header
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
