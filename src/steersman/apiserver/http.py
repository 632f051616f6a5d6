"""The server's mouth and ears: HTTP in, answers out.

One coroutine per request: who is it, what is wanted, does a fault apply, answer. There is no router and no middleware,
because the paths of the Kubernetes API are a grammar, not a list. Everything that decides is called from here and is
synchronous; the only things awaited are the body, the clock of a fault, and the socket.
"""

from __future__ import annotations

import asyncio
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
from steersman.apiserver.openapi import Documents
from steersman.apiserver.pages import PUBLIC, page
from steersman.apiserver.requests import Query, Request, Route, route, verb_of
from steersman.apiserver.watch import Watch

if TYPE_CHECKING:
    from steersman.apiserver.api import Api
    from steersman.apiserver.faults import Fault, Faults

__all__ = ["Frontend", "LogEntry"]

_encode = msgspec.json.Encoder().encode
_PRETTY_AGENTS = ("curl", "Wget", "Mozilla/5.0")
_HEADERS = {"Audit-Id": "", "Cache-Control": "no-cache, private", "Content-Type": "application/json"}


class LogEntry(msgspec.Struct, frozen=True, gc=False):
    """One request that was answered; what an audit log at metadata level would say."""

    method: str
    path: str
    verb: str
    resource: str  # plural.group; empty for pages such as /version
    namespace: str
    name: str
    subresource: str
    user: str
    user_agent: str
    status: int


class Frontend:
    """Answers HTTP requests from an `Api`."""

    def __init__(self, api: Api, faults: Faults, *, log_size: int = 100_000) -> None:
        self.api = api
        self.faults = faults
        self.address = ""
        self.documents = Documents(api.registry)
        self.log: deque[LogEntry] = deque(maxlen=log_size)
        self._closing = asyncio.Event()

    def close(self) -> None:
        """Let go of frozen requests and end the watches."""
        self._closing.set()
        self.api.hub.close()

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        method, target = http.method, http.raw_path
        path, _, text = target.partition("?")
        query = Query(text)
        agent = http.headers.get("User-Agent", "")
        user, verb, found = "", "", None
        try:
            user = self.api.identities.identify(http)
            if not path.startswith(("/api/", "/apis/")) or path.count("/") < (3 if path[4] == "/" else 4):
                self._authorize_page(user, method, path)
                reply = await page(self, http, path, query)
                status = reply.status
                return await self._send(http, reply, query, agent, [])
            found = route(self.api.registry, path)
            verb = verb_of(method, found, query)
            self._authorize(user, verb, found)
            fault = self._fault(verb, found, agent) if self.faults else None
            if fault is not None:
                await self._before(http, fault)
            request = Request(
                method,
                found,
                query,
                headers=http.headers,
                body=await self._body(http),
                media=negotiate(http.headers.get("Accept", ""), custom=found.info.custom is not None),
                user=user,
            )
            try:
                answer = dispatch(self.api, request)
            except statuses.StatusError as error:
                status = error.code
                return await self._send(http, self._refusal(error, verb), query, agent, request.warnings)
            if isinstance(answer, Watch):
                status = 200
                return await self._stream(http, answer, fault)
            status = answer.status
            if fault is not None and fault.effect in {"drop-after", "truncate"}:
                await self._cut(http, answer, fault)
            return await self._send(http, answer, query, agent, request.warnings)
        except statuses.StatusError as error:
            status = error.code
            return await self._send(http, self._refusal(error, verb), query, agent, [])
        finally:
            self._log(method, target, verb, found, user, agent, locals().get("status", 0))

    def _log(self, method: str, path: str, verb: str, found: Route | None, user: str, agent: str, status: int) -> None:
        if found is None:
            entry = LogEntry(method, path, method.lower(), "", "", "", "", user, agent, status)
        else:
            kind = found.info.kind.qualified
            entry = LogEntry(
                method, path, verb, kind, found.namespace, found.name, found.subresource, user, agent, status
            )
        self.log.append(entry)

    async def _body(self, http: web.BaseRequest) -> bytes:
        if not http.can_read_body:
            return b""
        try:
            return await http.read()
        except web.HTTPRequestEntityTooLarge:
            raise statuses.StatusError(
                413, f"Request entity too large: limit is {MAX_BODY}", reason="RequestEntityTooLarge"
            ) from None

    def _authorize(self, user: str, verb: str, found: Route) -> None:
        if user:
            return
        info = found.info
        where = f' in the namespace "{found.namespace}"' if found.namespace else " at the cluster scope"
        resource = f"{info.kind.plural}/{found.subresource}" if found.subresource else info.kind.plural
        raise statuses.forbidden(
            info.kind,
            found.name,
            f'User "system:anonymous" cannot {verb} resource "{resource}" in API group "{info.kind.group}"{where}',
        )

    def _authorize_page(self, user: str, method: str, path: str) -> None:
        if not user and not path.startswith(PUBLIC):
            raise statuses.StatusError(
                403,
                f'forbidden: User "system:anonymous" cannot {method.lower()} path "{path}"',
                reason="Forbidden",
                details={},
            )

    def _fault(self, verb: str, found: Route, agent: str) -> Fault | None:
        kind = found.info.kind
        return self.faults.meet(
            verb=verb,
            resource=kind.plural,
            qualified=kind.qualified,
            name=found.name,
            namespace=found.namespace,
            subresource=found.subresource,
            user_agent=agent,
        )

    async def _before(self, http: web.BaseRequest, fault: Fault) -> None:
        """What a fault does before the request is looked at."""
        seconds = str(math.ceil(fault.seconds) or 1)
        match fault.effect:
            case "delay":
                await self.api.clock.sleep(fault.seconds)
            case "drop":
                self._abort(http)
            case "freeze":
                await self._closing.wait()
                self._abort(http)
            case "expire":
                self.api.store.compact()
            case "throttle":
                raise statuses.StatusError(
                    429,
                    "Too many requests, please try again later.",
                    reason="TooManyRequests",
                    details={"retryAfterSeconds": int(seconds)},
                    headers={"Retry-After": seconds},
                )
            case "error":
                raise statuses.StatusError(
                    500,
                    "Internal error occurred: a fault was asked for",
                    reason="InternalError",
                    details={"causes": [{"message": "a fault was asked for"}]},
                )
            case "unavailable":
                raise statuses.StatusError(
                    503,
                    "the server is currently unable to handle the request",
                    reason="ServiceUnavailable",
                    details={"retryAfterSeconds": int(seconds)},
                    headers={"Retry-After": seconds},
                )

    def _abort(self, http: web.BaseRequest) -> None:
        if http.transport is not None:
            http.transport.abort()
        raise ConnectionResetError("cut by a fault")

    async def _cut(self, http: web.BaseRequest, answer: Reply, fault: Fault) -> None:
        if fault.effect == "truncate":
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            response.content_length = len(answer.body)
            await response.prepare(http)
            await response.write(answer.body[: fault.bytes])
        if http.transport is not None:
            http.transport.close()  # after what is in the buffer
        raise ConnectionResetError("cut by a fault")

    def _refusal(self, error: statuses.StatusError, verb: str) -> Reply:
        if error.text is not None:
            headers = {"X-Content-Type-Options": "nosniff", **error.headers}
            return Reply(error.code, error.text.encode(), "text/plain; charset=utf-8", headers)
        return Reply(error.code, _encode(error.status()) + b"\n", "application/json", error.headers)

    async def _send(
        self, http: web.BaseRequest, reply: Reply, query: Query, agent: str, warnings: list[str]
    ) -> web.StreamResponse:
        body, content_type = reply.body, reply.content_type
        if content_type == "application/yaml" and body[:1] == b"{":
            body = yaml.safe_dump(msgspec.json.decode(body), allow_unicode=True).encode()
        elif content_type == "application/json" and _pretty(query, agent):
            body = msgspec.json.format(body, indent=2) + b"\n"
        headers: CIMultiDict[str] = CIMultiDict(_HEADERS)
        headers["Audit-Id"] = self.api.uid()
        headers["Content-Type"] = content_type
        headers.update(reply.headers or {})
        for warning in dict.fromkeys(warnings):
            headers.add("Warning", f"299 - {_quoted(warning)}")
        return web.Response(status=reply.status, body=body, headers=headers)

    async def _stream(self, http: web.BaseRequest, watch: Watch, fault: Fault | None) -> web.StreamResponse:
        response = web.StreamResponse(headers={**_HEADERS, "Audit-Id": self.api.uid()})
        response.enable_chunked_encoding()
        await response.prepare(http)
        left = fault.bytes if fault is not None and fault.effect == "truncate" else None
        stream = watch.stream()
        try:
            async for chunk in stream:
                if left is not None:
                    await response.write(chunk[:left])
                    left -= len(chunk)
                    if left <= 0:
                        self._hang_up(http)
                else:
                    await response.write(chunk)
        finally:
            await stream.aclose()
        await response.write_eof()
        return response

    def _hang_up(self, http: web.BaseRequest) -> None:
        if http.transport is not None:
            http.transport.close()
        raise ConnectionResetError("cut by a fault")


def _pretty(query: Query, agent: str) -> bool:
    if "pretty" in query:
        return query.flag("pretty")
    return agent.startswith(_PRETTY_AGENTS)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
