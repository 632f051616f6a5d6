"""Bytes of the API to typed values, each in one pass.

A `Codec` belongs to one kind and one Python type and holds decoders that are built once. The usual object, page or
event costs exactly one decode. Only when that fails is each object decoded on its own, so that one a type cannot hold
becomes a `DecodeFailure` beside the others and never takes the whole page or stream with it. The same goes for one that
is nested deeper than a call stack reaches: API servers store 10,000 levels, and decoding, even skipping, is recursive.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

import msgspec

from steersman.kube.api.errors import BadResponse, KubeError, RequestInfo, error_for_status
from steersman.kube.api.gvk import Kind
from steersman.kube.api.objects import ObjectMeta, PartialObjectMetadata, Resource
from steersman.kube.transport.stream import split_block

__all__ = ["Codec", "DecodeFailure", "EventType", "ListPage", "ObjectList", "WatchEvent", "codec_for"]

T = TypeVar("T")

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]

_CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
_DEEPEST: Final = 500  # levels of a page or event with an object that no call stack holds
_TOO_DEEP: Final = b'"\\u0000 nested too deep"'  # in the place of what lies below
_TOKENS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
_NESTED: Final = f"it is nested deeper than {_DEEPEST} levels"
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1,application/json"


class DecodeFailure(msgspec.Struct, frozen=True):
    """An object that exists but does not fit the type it was asked for as."""

    metadata: ObjectMeta
    error: str


class WatchEvent(msgspec.Struct, Generic[T], gc=False):
    """One event of a watch. An ERROR never gets this far: it is raised as the error it stands for.

    A BOOKMARK's object is a PartialObjectMetadata (a dict, when dicts were asked for) of which only the
    resourceVersion means anything; with `initial_events_end` it closes the initial state of a streamed list.
    """

    type: EventType
    if TYPE_CHECKING:
        object: T | DecodeFailure
    else:
        object: T  # what is decoded; DecodeFailure is ours and not on the wire
    initial_events_end: bool = False


class ListPage(msgspec.Struct, Generic[T]):
    """A part of a list."""

    items: list[T]
    resource_version: str
    continue_token: str = ""  # "" on the last page
    remaining: int | None = None  # how many objects follow, when the server counts them
    undecodable: list[DecodeFailure] = []


class ObjectList(msgspec.Struct, Generic[T]):
    """A whole list, as of one resourceVersion."""

    items: list[T]
    resource_version: str
    undecodable: list[DecodeFailure] = []


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class _WireList(msgspec.Struct, Generic[T]):
    kind: str = ""
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[T] | None = None


class _Bare(msgspec.Struct):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


_bare_event: Final = msgspec.json.Decoder(WatchEvent[_Bare])
_plain_event: Final = msgspec.json.Decoder(WatchEvent[dict[str, Any]])
_raw_list: Final = msgspec.json.Decoder(_WireList[msgspec.Raw])
_bare: Final = msgspec.json.Decoder(_Bare)
_any: Final = msgspec.json.Decoder(Any)


class Codec(Generic[T]):
    """How objects of `kind` become values of `into`: a struct, `dict`, or PartialObjectMetadata."""

    def __init__(self, kind: Kind, into: type[T]) -> None:
        self.kind = kind
        self.into = into
        self._plain = into is dict
        metadata_only = issubclass(into, PartialObjectMetadata)
        self.accept = _METADATA_ONLY.format("") if metadata_only else "application/json"
        self.accept_list = _METADATA_ONLY.format("List") if metadata_only else "application/json"
        shape: Any = dict[str, Any] if self._plain else into
        wire_list: Any = _WireList[shape]
        wire_event: Any = WatchEvent[shape]
        self._object = msgspec.json.Decoder(shape)
        self._list = msgspec.json.Decoder(wire_list)
        self._event = msgspec.json.Decoder(wire_event)

    def object(self, body: bytes, request: RequestInfo | None = None) -> T:
        """The object in `body`."""
        try:
            value: T = self._object.decode(body)
        except msgspec.ValidationError as error:
            raise BadResponse(f"this {self.kind} does not fit {self.into.__name__}: {error}", request=request) from None
        except msgspec.DecodeError as error:
            raise BadResponse(f"the answer is not JSON: {error}", request=request) from None
        except RecursionError:
            raise BadResponse("the answer is nested too deep", request=request) from None
        return value

    def page(self, body: bytes, request: RequestInfo | None = None) -> ListPage[T]:
        """The page in `body`; items that do not fit are in `undecodable`."""
        undecodable: list[DecodeFailure] = []
        try:
            wire: _WireList[T] = self._list.decode(body)
        except (msgspec.ValidationError, RecursionError):
            wire, undecodable = self._page_by_item(body, request)
        except msgspec.DecodeError as error:
            raise BadResponse(f"the answer is not JSON: {error}", request=request) from None
        if wire.items is None and not wire.kind.endswith("List"):
            raise BadResponse(f"the answer is a {wire.kind or 'value without a kind'}, not a list", request=request)
        items = wire.items or []
        if self._plain:
            items = [self._named(item) for item in items]
        meta = wire.metadata
        return ListPage(items, meta.resource_version, meta.continue_token, meta.remaining_item_count, undecodable)

    def events(
        self, block: bytes | memoryview, request: RequestInfo | None = None
    ) -> tuple[list[WatchEvent[T]], KubeError | None]:
        """The events in a block of lines, and the error that ends them, if one does."""
        try:
            events: list[WatchEvent[T]] = self._event.decode_lines(block)
            if {event.type for event in events} <= _CHANGES:
                return events, None
        except (msgspec.DecodeError, RecursionError):
            pass
        events = []
        try:
            for line in split_block(block):  # one by one: what is odd about one event must not cost the others
                events.append(self.event(line, request))
        except KubeError as error:
            return events, error
        return events, None

    def event(self, line: bytes, request: RequestInfo | None = None) -> WatchEvent[T]:
        """The event in `line`; an ERROR event raises."""
        try:
            event: WatchEvent[T] = self._event.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            return self._odd_event(line, _why(error), request)
        if event.type in _CHANGES:
            return event
        return self._odd_event(line, "", request)

    def _odd_event(self, line: bytes, problem: str, request: RequestInfo | None) -> WatchEvent[Any]:
        """What is not an object that fits: a bookmark, an error, an object of another shape, or no event at all."""
        try:
            line, plain = _decoded(_plain_event, line)
        except msgspec.DecodeError as error:
            raise BadResponse(f"the stream has a line that is not an event: {error}", request=request) from None
        value: Any = plain.object
        if plain.type == "ERROR":
            raise error_for_status(value, request=request)
        metadata = _metadata(line, value)
        if plain.type == "BOOKMARK":
            end = (metadata.annotations or {}).get(_INITIAL_EVENTS_END) == "true"
            return WatchEvent(plain.type, value if self._plain else PartialObjectMetadata(metadata=metadata), end)
        return WatchEvent(plain.type, DecodeFailure(metadata, problem))

    def _page_by_item(self, body: bytes, request: RequestInfo | None) -> tuple[_WireList[T], list[DecodeFailure]]:
        try:
            _, raw = _decoded(_raw_list, body)
        except msgspec.DecodeError as error:
            raise BadResponse(f"the answer is not a list: {error}", request=request) from None
        items: list[T] = []
        undecodable: list[DecodeFailure] = []
        for item in raw.items or ():
            try:
                items.append(self._item(item))
            except (msgspec.DecodeError, RecursionError) as error:
                undecodable.append(DecodeFailure(_item_metadata(item), _why(error)))
        return _WireList(raw.kind, raw.metadata, items), undecodable

    def _item(self, item: msgspec.Raw) -> T:
        if _TOO_DEEP in bytes(item):
            raise RecursionError
        value: T = self._object.decode(item)
        return value

    def _named(self, item: Any) -> Any:
        """A dict with apiVersion and kind, which servers leave out of the items of a list."""
        if "kind" in item:
            return item
        return {"apiVersion": self.kind.api_version, "kind": self.kind.kind, **item}


def _why(error: Exception) -> str:
    return _NESTED if isinstance(error, RecursionError) else str(error)


def _decoded(decoder: msgspec.json.Decoder[T], text: bytes) -> tuple[bytes, T]:
    """What is decoded and its value: the text, or as much of it as a call stack holds."""
    try:
        return text, decoder.decode(text)
    except RecursionError:
        trimmed = _trimmed(text)
        return trimmed, decoder.decode(trimmed)


def _trimmed(text: bytes) -> bytes:
    """JSON with `_TOO_DEEP` in the place of every value that is nested deeper than `_DEEPEST`."""
    parts: list[bytes] = []
    depth = kept = 0
    for found in _TOKENS.finditer(text):
        token = found[0]
        if token in b"{[":
            depth += 1
            if depth == _DEEPEST + 1:
                parts.append(text[kept : found.start()])
        elif token in b"}]":
            if depth == _DEEPEST + 1:
                parts.append(_TOO_DEEP)
                kept = found.end()
            depth -= 1
    return b"".join(parts if depth > _DEEPEST else (*parts, text[kept:]))


def _metadata(line: bytes, plain: dict[str, Any]) -> ObjectMeta:
    try:
        return _bare_event.decode(line).object.metadata
    except msgspec.DecodeError:
        return _salvage(plain.get("metadata"))


def _item_metadata(item: msgspec.Raw) -> ObjectMeta:
    try:
        return _decoded(_bare, bytes(item))[1].metadata
    except msgspec.DecodeError:
        _, plain = _decoded(_any, bytes(item))
        return _salvage(plain.get("metadata") if isinstance(plain, dict) else None)


def _salvage(metadata: Any) -> ObjectMeta:
    """As much of an object's identity as can be had from metadata that is wrong itself."""
    found = metadata if isinstance(metadata, dict) else {}
    return ObjectMeta(
        name=str(found.get("name") or ""),
        namespace=str(found.get("namespace") or ""),
        uid=str(found.get("uid") or ""),
        resource_version=str(found.get("resourceVersion") or ""),
    )


_codecs: dict[tuple[Kind, type[Any]], Codec[Any]] = {}


def codec_for(target: type[Resource] | Kind, into: type[Any] | None = None) -> Codec[Any]:
    """The codec for a target: a Resource class decodes to itself, a Kind to dict; `into` overrides."""
    key = (target, into or dict) if isinstance(target, Kind) else (target.KIND, into or target)
    codec = _codecs.get(key)
    if codec is None:
        codec = _codecs[key] = Codec(*key)
    return codec
