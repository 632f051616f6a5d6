"""The server's mouth and ears: HTTP in, answers out.

One coroutine per request: who is it, what is wanted, does a fault apply, answer. There is no router and no middleware,
because the paths of the Kubernetes API are a grammar, not a list. Everything that decides is called from here and is
synchronous; the only things awaited are the body, the clock of a fault, and the socket.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from typing import TYPE_CHECKING

import msgspec
import yaml
from aiohttp import web
from multidict import CIMultiDict

from steersman.apiserver import statuses
from steersman.apiserver.api import Reply
from steersman.apiserver.decoding import MAX_BODY
from steersman.apiserver.handlers import dispatch
from steersman.apiserver.negotiation import negotiate
from steersman.apiserver.pages import PUBLIC, Pages
from steersman.apiserver.requests import Query, Request, Route, route, verb_of
from steersman.apiserver.watch import Watch

if TYPE_CHECKING:
    from typing import NoReturn

    from steersman.apiserver.api import Api
    from steersman.apiserver.faults import Fault, Faults

__all__ = ["Frontend", "LogEntry"]

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


class _Exchange:
    """One request while it is being answered."""

    __slots__ = ("agent", "http", "path", "query", "route", "status", "user", "verb", "warnings")

    def __init__(self, http: web.BaseRequest) -> None:
        self.http = http
        self.path, _, text = http.raw_path.partition("?")
        self.query = Query(text)
        self.agent = http.headers.get("User-Agent", "")
        self.route: Route | None = None
        self.user = ""
        self.verb = http.method.lower()
        self.status = 0
        self.warnings: list[str] = []

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
            self.user,
            self.agent,
            self.status,
        )


class Frontend:
    """Answers HTTP requests from an `Api`."""

    def __init__(self, api: Api, faults: Faults, *, log_size: int = 100_000) -> None:
        self.pages = Pages(api)
        self.log: deque[LogEntry] = deque(maxlen=log_size)
        self._api = api
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
        except statuses.StatusError as error:
            return self._response(exchange, _refusal(error))
        except (asyncio.CancelledError, ConnectionError):
            raise  # the client is gone
        except Exception as error:  # a bug: the client gets an answer it understands, the log says where
            _logger.exception("request failed", extra={"method": http.method, "path": exchange.path})
            why = f"Internal error occurred: {type(error).__name__}"
            return self._response(exchange, _refusal(statuses.StatusError(500, why, reason="InternalError")))
        finally:
            self.log.append(exchange.entry())

    async def _answer(self, exchange: _Exchange) -> web.StreamResponse:
        http, query = exchange.http, exchange.query
        exchange.user = self._api.identities.identify(http)
        if exchange.is_page:
            _authorize_page(exchange)
            return self._response(exchange, self.pages.page(exchange.path, query, http.headers))
        found = exchange.route = route(self._api.registry, exchange.path)
        exchange.verb = verb_of(http.method, found, query)
        if not exchange.user:
            raise _anonymous(exchange.verb, found)
        fault = self._fault(exchange, found) if self._faults else None
        if fault is not None:
            await self._before(http, fault)
        request = Request(
            http.method,
            found,
            query,
            headers=http.headers,
            body=await _body(http),
            media=negotiate(http.headers.get("Accept", ""), custom=found.info.custom is not None),
            user=exchange.user,
            warnings=exchange.warnings,
        )
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

    def _fault(self, exchange: _Exchange, found: Route) -> Fault | None:
        kind = found.info.kind
        return self._faults.meet(
            verb=exchange.verb,
            resource=kind.plural,
            qualified=kind.qualified,
            name=found.name,
            namespace=found.namespace,
            subresource=found.subresource,
            user_agent=exchange.agent,
        )

    async def _before(self, http: web.BaseRequest, fault: Fault) -> None:
        """What a fault does before the request is looked at."""
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


def _faulty(fault: Fault) -> statuses.StatusError:
    if fault.effect == "error":
        why = "a fault was asked for"
        details = {"causes": [{"message": why}]}
        return statuses.StatusError(500, f"Internal error occurred: {why}", reason="InternalError", details=details)
    seconds = max(math.ceil(fault.seconds), 1)
    code, reason, message = (
        (429, "TooManyRequests", "Too many requests, please try again later.")
        if fault.effect == "throttle"
        else (503, "ServiceUnavailable", "the server is currently unable to handle the request")
    )
    return statuses.StatusError(
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
        raise statuses.StatusError(
            413, f"Request entity too large: limit is {MAX_BODY}", reason="RequestEntityTooLarge"
        ) from None


def _anonymous(verb: str, found: Route) -> statuses.StatusError:
    info = found.info
    where = f' in the namespace "{found.namespace}"' if found.namespace else " at the cluster scope"
    resource = f"{info.kind.plural}/{found.subresource}" if found.subresource else info.kind.plural
    why = f'User "system:anonymous" cannot {verb} resource "{resource}" in API group "{info.kind.group}"{where}'
    return statuses.forbidden(info.kind, found.name, why)


def _authorize_page(exchange: _Exchange) -> None:
    if exchange.user or exchange.path.startswith(PUBLIC):
        return
    why = f'forbidden: User "system:anonymous" cannot {exchange.verb} path "{exchange.path}"'
    raise statuses.StatusError(403, why, reason="Forbidden", details={})


def _refusal(error: statuses.StatusError) -> Reply:
    if error.text is not None:
        headers = {"X-Content-Type-Options": "nosniff", **error.headers}
        return Reply(error.code, error.text.encode(), "text/plain; charset=utf-8", headers)
    return Reply(error.code, _encode(error.status()) + b"\n", "application/json", error.headers)


def _pretty(exchange: _Exchange) -> bool:
    if "pretty" in exchange.query:
        return exchange.query.flag("pretty")
    return exchange.agent.startswith(_PRETTY_AGENTS)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
