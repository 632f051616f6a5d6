"""Reading from an API server: get, list, watch. All that a cache needs.

A *target* says what to read: a Resource class, which objects decode to, or a `Kind`, which gives plain dicts. `into=`
asks for another shape: any struct, `dict`, or PartialObjectMetadata, for which the server sends nothing but metadata.
`namespace=None` means every namespace where many objects are read, and the client's own where one is.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, Required, TypedDict, TypeVar, overload

from steersman.kube.api.errors import BadResponse, KubeError, ResourceExpired
from steersman.kube.api.gvk import Kind
from steersman.kube.api.objects import Resource
from steersman.kube.client.codec import Codec, ListPage, ObjectList, WatchEvent, codec_for
from steersman.kube.transport.error_mapping import describe_body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from typing import Self, Unpack

    from steersman.kube.api.field_selectors import FieldSelector
    from steersman.kube.api.selectors import Selector
    from steersman.kube.transport.stream import LineStream
    from steersman.kube.transport.transport import Response, Transport

__all__ = ["ListArguments", "Reader", "Target", "WatchArguments"]

R = TypeVar("R", bound=Resource)
T = TypeVar("T")
Target = type[Resource] | Kind


class ListSelection(TypedDict, total=False):
    """Which objects of a kind."""

    namespace: str | None  # None: every namespace
    label_selector: str | Selector | None
    field_selector: str | FieldSelector | None
    resource_version: str | None  # None: the newest; "0": whatever the server has at hand
    resource_version_match: str | None  # "Exact" or "NotOlderThan"


class ListArguments(ListSelection, total=False):
    """What to list."""

    limit: int | None  # objects per page, 500 by default; None asks for all at once


class WatchArguments(ListSelection, total=False):
    """What to watch, and for how long."""

    timeout_seconds: Required[int]  # the server ends the stream after this
    idle_timeout: float | None  # seconds of silence after which the connection is dead; default timeout_seconds + 5
    bookmarks: bool  # ask for BOOKMARK events; the default
    send_initial_events: bool  # begin with every object as ADDED, then a bookmark with initial_events_end


class Reader:
    """Reads objects. Cheap to copy: `with_options` gives one with another timeout on the same connections."""

    def __init__(self, transport: Transport, *, namespace: str = "default") -> None:
        self.transport = transport
        self.namespace = namespace
        self._timeout: float | None = None
        self._retry = True

    def with_options(self, *, timeout: float | None = None, retry: bool = True) -> Self:
        """The same client with another timeout (seconds, per attempt) or without repeats, e.g. for leader election."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__, _timeout=timeout, _retry=retry)
        return other

    @overload
    async def get(
        self,
        target: type[R],
        name: str,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        resource_version: str | None = None,
    ) -> R: ...
    @overload
    async def get(
        self,
        target: Target,
        name: str,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        resource_version: str | None = None,
        into: type[Any] | None = None,
    ) -> Any: ...
    async def get(
        self,
        target: Target,
        name: str,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        resource_version: str | None = None,
        into: type[Any] | None = None,
    ) -> Any:
        """One object; NotFound when there is none. `resource_version="0"` allows an answer from the server's cache."""
        codec = codec_for(target, into)
        path = codec.kind.path(self._namespace_for(codec.kind, namespace), name, subresource)
        params = query(resourceVersion=resource_version)
        return decoded(codec, await self._request("GET", path, params=params, headers={"Accept": codec.accept}))

    @overload
    async def list(self, target: type[R], **options: Unpack[ListArguments]) -> ObjectList[R]: ...
    @overload
    async def list(
        self, target: Target, *, into: type[Any] | None = None, **options: Unpack[ListArguments]
    ) -> ObjectList[Any]: ...
    async def list(
        self, target: Target, *, into: type[Any] | None = None, **options: Unpack[ListArguments]
    ) -> ObjectList[Any]:
        """Every object, over as many pages as it takes; pages that expire on the way are read again in one piece."""
        try:
            return await self._collect(target, into, options)
        except ResourceExpired as error:
            if error.request is None or "continue=" not in error.request.url:
                raise
        return await self._collect(target, into, {**options, "limit": None})

    async def _collect(self, target: Target, into: type[Any] | None, options: ListArguments) -> ObjectList[Any]:
        listing: ObjectList[Any] = ObjectList([], "")
        async for page in self.pages(target, into=into, **options):
            listing.items += page.items
            listing.undecodable += page.undecodable
            listing.resource_version = page.resource_version
        return listing

    @overload
    def pages(self, target: type[R], **options: Unpack[ListArguments]) -> AsyncIterator[ListPage[R]]: ...
    @overload
    def pages(
        self, target: Target, *, into: type[Any] | None = None, **options: Unpack[ListArguments]
    ) -> AsyncIterator[ListPage[Any]]: ...
    async def pages(
        self, target: Target, *, into: type[Any] | None = None, **options: Unpack[ListArguments]
    ) -> AsyncIterator[ListPage[Any]]:
        """The pages of a list, one at a time; raises Gone when the resourceVersion is compacted meanwhile."""
        codec = codec_for(target, into)
        path, params = _list_request(codec.kind, **options)
        while True:
            response = await self._request("GET", path, params=params, headers={"Accept": codec.accept_list})
            page = decoded_page(codec, response)
            yield page
            if not page.continue_token:
                return
            params["continue"] = page.continue_token
            params.pop("resourceVersion", None)  # the token holds the resourceVersion
            params.pop("resourceVersionMatch", None)

    @overload
    def watch(
        self, target: type[R], **options: Unpack[WatchArguments]
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent[R]]]: ...
    @overload
    def watch(
        self, target: Target, *, into: type[Any] | None = None, **options: Unpack[WatchArguments]
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent[Any]]]: ...
    @asynccontextmanager
    async def watch(
        self, target: Target, *, into: type[Any] | None = None, **options: Unpack[WatchArguments]
    ) -> AsyncIterator[AsyncIterator[WatchEvent[Any]]]:
        """The changes after a resourceVersion, until the server ends the stream.

        An ERROR event raises the error it stands for, Gone above all. Too long a silence raises RequestTimeout, a
        broken connection ConnectionFailed; these mean: watch again from the last resourceVersion seen.
        An object that does not fit the type comes as an `Undecodable`, and the stream goes on.
        """
        codec = codec_for(target, into)
        path, params, idle_timeout = _watch_request(codec.kind, **options)
        async with self.transport.stream(
            path,
            params=params,
            headers={"Accept": codec.accept},
            timeout=self._timeout,
            idle_timeout=idle_timeout,
        ) as lines:
            yield WatchEvents(codec, lines)

    def _namespace_for(self, kind: Kind, namespace: str | None) -> str | None:
        return (namespace or self.namespace) if kind.namespaced else None

    async def _request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        retry: bool = True,
    ) -> Response:
        return await self.transport.request(
            method, path, params=params, body=body, headers=headers, timeout=self._timeout, retry=retry and self._retry
        )


class WatchEvents(Generic[T]):
    """The events of a watch, one by one, or in batches of those that came together.

    Not a generator, because a generator whose wait is cancelled is over.
    """

    __slots__ = ("_codec", "_failure", "_lines", "_ready")

    def __init__(self, codec: Codec[T], lines: LineStream) -> None:
        self._codec = codec
        self._lines = lines
        self._ready: Iterator[WatchEvent[T]] = iter(())
        self._failure: KubeError | None = None  # what comes after the last events

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchEvent[T]:
        while (event := next(self._ready, None)) is None:
            batch = await self.batch()
            if not batch:
                raise StopAsyncIteration
            self._ready = iter(batch)
        return event

    async def batch(self) -> Sequence[WatchEvent[T]]:
        """The next events; none when the server has ended the stream."""
        if self._failure is None:
            events: Sequence[WatchEvent[T]] = ()
            while not events and self._failure is None:
                block = await self._lines.block()
                if not block:
                    return ()
                events, self._failure = self._codec.events(block, self._lines.request)
            if events:
                return events
        assert self._failure is not None
        raise self._failure


def _list_request(
    kind: Kind,
    *,
    namespace: str | None = None,
    label_selector: str | Selector | None = None,
    field_selector: str | FieldSelector | None = None,
    resource_version: str | None = None,
    resource_version_match: str | None = None,
    limit: int | None = 500,
) -> tuple[str, dict[str, str]]:
    """Path and parameters of a list."""
    return kind.path(namespace), query(
        labelSelector=selector_text(label_selector),
        fieldSelector=field_selector,
        resourceVersion=resource_version,
        resourceVersionMatch=resource_version_match,
        limit=limit,
    )


def _watch_request(
    kind: Kind,
    *,
    timeout_seconds: int,
    idle_timeout: float | None = None,
    bookmarks: bool = True,
    send_initial_events: bool = False,
    **selection: Unpack[ListSelection],
) -> tuple[str, dict[str, str], float]:
    """Path, parameters and the longest silence of a watch."""
    if send_initial_events:
        selection.setdefault("resource_version_match", "NotOlderThan")  # the server insists on it
    path, params = _list_request(kind, **selection, limit=None)
    params |= query(
        watch="1",
        allowWatchBookmarks="true" if bookmarks else None,
        sendInitialEvents="true" if send_initial_events else None,
        timeoutSeconds=timeout_seconds,
    )
    return path, params, idle_timeout if idle_timeout is not None else timeout_seconds + 5.0


def query(**values: object) -> dict[str, str]:
    """Query parameters, without those that say nothing."""
    return {name: text for name, value in values.items() if value is not None and (text := str(value))}


def selector_text(selector: str | Selector | None) -> str | None:
    """A label selector for a query. A selector of nothing has no text, and an empty one would mean everything."""
    if selector is None or isinstance(selector, str):
        return selector
    return "steersman.dev/none,!steersman.dev/none" if selector.nothing else str(selector)


def decoded(codec: Codec[T], response: Response) -> T:
    """The object in an answer."""
    _check_json(response)
    return codec.object(response.body, response.request)


def decoded_page(codec: Codec[T], response: Response) -> ListPage[T]:
    """The page in an answer."""
    _check_json(response)
    return codec.page(response.body, response.request)


def _check_json(response: Response) -> None:
    """A server that is not an API server mostly says so in its content type."""
    if not response.headers.get("Content-Type", "application/json").startswith("application/json"):
        raise BadResponse(f"the answer is {describe_body(response.headers, response.body)}", request=response.request)
