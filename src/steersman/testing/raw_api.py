"""An API server seen as plain HTTP: what a test sends, and exactly what comes back.

`RawApi` knows paths, JSON and watch streams, and nothing else: no retries, no types, no decoding of errors into
exceptions. A test that states what a *server* does must see status, headers and body untouched; a test that states what
*our client* does uses `steersman.kube.Client`.

    async with RawApi(server.url, token=server.token, ca_pem=server.ca_pem) as api:
        answer = await api.get("/api/v1/namespaces", limit=2)
        assert answer.status == 200
        async with api.watch("/api/v1/namespaces", resourceVersion="0") as stream:
            first = await stream.next()
"""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self

import aiohttp
import msgspec

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

__all__ = [
    "APPLY",
    "JSON_PATCH",
    "MERGE_PATCH",
    "STRATEGIC_PATCH",
    "ApiServer",
    "RawApi",
    "RawResponse",
    "WatchStream",
    "ssl_context",
]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

PATIENCE = 60.0  # seconds a test waits for a fact before it fails; generous, because nothing is asserted about time


class ApiServer(Protocol):
    """A running API server, embedded or real, and full access to it."""

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end."""

    @property
    def token(self) -> str:
        """A bearer token that may do everything."""

    @property
    def ca_pem(self) -> str:
        """The authority that signed its certificate."""

    def kubeconfig(self) -> str:
        """Full access, as YAML."""

    def write_kubeconfig(self, path: Path, /) -> object:
        """Write full access to a file."""


class RawResponse(msgspec.Struct, frozen=True):
    """One response: `body` is the decoded JSON, or the text when it is not JSON."""

    status: int
    headers: Mapping[str, str]
    body: Any
    warnings: tuple[str, ...] = ()
    raw: bytes = b""  # the body as it came

    @property
    def name(self) -> str:
        """The name of the object in the body."""
        return str(self.body["metadata"]["name"])

    @property
    def revision(self) -> str:
        """The resourceVersion of the object or list in the body."""
        return str(self.body["metadata"]["resourceVersion"])

    @property
    def names(self) -> list[str]:
        """The names of the items of a list, in its order."""
        return [item["metadata"]["name"] for item in self.body["items"]]

    @property
    def causes(self) -> list[tuple[str, str, str]]:
        """Reason, field and message of every cause of a Status."""
        causes = self.body.get("details", {}).get("causes", [])
        return [(cause.get("reason", ""), cause.get("field", ""), cause.get("message", "")) for cause in causes]


class WatchStream:
    """The events of one watch, read one by one. Reading past the end of the stream returns None."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._buffer = bytearray()

    @property
    def status(self) -> int:
        """The HTTP status of the response that carries the stream."""
        return self._response.status

    async def next(self, timeout: float = PATIENCE) -> dict[str, Any] | None:
        """The next event, or None when the server has closed the stream."""
        async with asyncio.timeout(timeout):
            searched = 0
            while (end := self._buffer.find(b"\n", searched)) < 0:
                searched = len(self._buffer)
                chunk = await self._response.content.readany()
                if not chunk:
                    return None
                self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        event: dict[str, Any] = msgspec.json.decode(line)
        return event

    async def take(self, count: int) -> list[tuple[str, str]]:
        """Type and object name of the next `count` events that are not bookmarks."""
        seen: list[tuple[str, str]] = []
        while len(seen) < count:
            event = await self.next()
            if event is None:
                raise AssertionError(f"the stream ended after {seen}")
            if event["type"] != "BOOKMARK":
                seen.append((event["type"], event["object"]["metadata"]["name"]))
        return seen

    async def until(self, type_: str) -> dict[str, Any]:
        """The next event of this type; the ones before it are dropped."""
        while (event := await self.next()) is not None:
            if event["type"] == type_:
                return event
        raise AssertionError(f"the stream ended without {type_}")


class _Watching:
    """Opens a watch and closes its connection."""

    def __init__(self, request: Any) -> None:
        self._request = request

    async def __aenter__(self) -> WatchStream:
        self._response: aiohttp.ClientResponse = await self._request.__aenter__()
        return WatchStream(self._response)

    async def __aexit__(self, *_: object) -> None:
        self._response.close()


class RawApi:
    """One server and one identity. `token=None` sends no credentials."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
        user_agent: str = "contract/1.0",
        headers: Mapping[str, str] | None = None,  # sent with every request
    ) -> None:
        self.url = url.rstrip("/")
        self.token = token
        self._ssl = ssl_context
        self._user_agent = user_agent
        self._always = dict(headers or {})

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._ssl if self._ssl is not None else True, limit=0)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, connect=PATIENCE),
            auto_decompress=True,
            read_bufsize=2**20,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
    ) -> RawResponse:
        """Send one request. A dict or list body is sent as JSON, bytes and str as they are."""
        async with (
            asyncio.timeout(2 * PATIENCE),
            self._session.request(
                method, self.url + path, params=_query(query), data=_payload(body), headers=self._headers(headers)
            ) as response,
        ):
            raw = await response.read()
            return RawResponse(response.status, response.headers, _decode(response, raw), _warnings(response), raw)

    async def get(self, path: str, *, headers: Mapping[str, str] | None = None, **query: Any) -> RawResponse:
        """GET; keyword arguments are query parameters (`continue_` for continue)."""
        return await self.request("GET", path, headers=headers, query=query)

    async def post(
        self, path: str, body: Any, *, headers: Mapping[str, str] | None = None, **query: Any
    ) -> RawResponse:
        """POST `body`."""
        return await self.request("POST", path, body, headers=headers, query=query)

    async def put(self, path: str, body: Any, *, headers: Mapping[str, str] | None = None, **query: Any) -> RawResponse:
        """PUT `body`."""
        return await self.request("PUT", path, body, headers=headers, query=query)

    async def patch(
        self, path: str, body: Any, type_: str = MERGE_PATCH, *, headers: Mapping[str, str] | None = None, **query: Any
    ) -> RawResponse:
        """PATCH with the content type of one of the patch kinds."""
        headers = {**(headers or {}), "Content-Type": type_}
        return await self.request("PATCH", path, body, headers=headers, query=query)

    async def apply(
        self, path: str, body: Any, *, manager: str = "alpha", force: bool = False, **query: Any
    ) -> RawResponse:
        """Server-side apply as `manager`."""
        if force:
            query["force"] = "true"
        return await self.patch(path, body, APPLY, fieldManager=manager, **query)

    async def delete(
        self, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None, **query: Any
    ) -> RawResponse:
        """DELETE with optional DeleteOptions."""
        return await self.request("DELETE", path, body, headers=headers, query=query)

    def watch(self, path: str, *, headers: Mapping[str, str] | None = None, **query: Any) -> _Watching:
        """Open a watch: `async with api.watch(path, resourceVersion=…) as stream`."""
        query["watch"] = "true"
        return _Watching(self._session.get(self.url + path, params=_query(query), headers=self._headers(headers)))

    async def eventually(self, path: str, accept: Any, **query: Any) -> RawResponse:
        """GET until `accept(answer)` holds. For what a controller does in its own time."""
        async with asyncio.timeout(2 * PATIENCE):
            while True:
                answer = await self.get(path, **query)
                if accept(answer):
                    return answer
                await asyncio.sleep(0.05)

    def _headers(self, extra: Mapping[str, str] | None) -> dict[str, str]:
        headers = {"User-Agent": self._user_agent, "Content-Type": "application/json", "Accept": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers | self._always | dict(extra or {})


def ssl_context(ca_pem: str | bytes) -> ssl.SSLContext:
    """A context that trusts this authority only."""
    return ssl.create_default_context(cadata=ca_pem if isinstance(ca_pem, str) else ca_pem.decode())


def _query(query: Mapping[str, Any] | None) -> dict[str, str]:
    return {key.rstrip("_"): _text(value) for key, value in (query or {}).items()}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _payload(body: Any) -> io.BytesIO | None:
    match body:
        case None:
            return None
        case bytes():
            return io.BytesIO(body)
        case str():
            return io.BytesIO(body.encode())
        case _:
            return io.BytesIO(msgspec.json.encode(body, enc_hook=str))


def _decode(response: aiohttp.ClientResponse, raw: bytes) -> Any:
    if "json" in response.headers.get("Content-Type", ""):
        return msgspec.json.decode(raw)
    return raw.decode(errors="replace")


def _warnings(response: aiohttp.ClientResponse) -> tuple[str, ...]:
    """The texts of `Warning: 299 - "text"` headers."""
    return tuple(
        value.removeprefix('299 - "').removesuffix('"').replace('\\"', '"').replace("\\\\", "\\")
        for value in response.headers.getall("Warning", [])
    )
