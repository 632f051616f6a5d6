"""How an object looks on the wire: whole, as metadata only, or as rows of a table; in the version that was asked for.

A `View` belongs to one resource in one version and one negotiated representation. It turns records into bytes: one
object, a list, an event of a watch. What can be shared is shared: the body of a record is encoded once (in the store),
and the line of an event once per view and event type, for all watches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.apiserver import status_errors
from steersman.apiserver.resources.conversion import converter, prepare_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from steersman.apiserver.resources.kinds import ResourceInfo
    from steersman.apiserver.storage.store import Record, StoreEvent
    from steersman.clock import Clock

_encode = msgspec.json.Encoder().encode
_META_PREFIX = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",'
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class View:
    """What every representation can do. `name` tells views apart whose lines differ; "" means lines are not shared."""

    name = ""

    def __init__(self, info: ResourceInfo) -> None:
        self.info = info

    def encode_object(self, record: Record) -> bytes:
        """One object."""
        raise NotImplementedError

    def encode_list(self, records: Iterable[Record], metadata: dict[str, Any]) -> bytes:
        """A list with the given list metadata."""
        raise NotImplementedError

    def line(self, event: StoreEvent, kind: str, record: Record) -> bytes:
        """An event of a watch. `kind` and `record` are what the watcher is to see of it."""
        if not self.name:
            return self.event(kind, record)
        found = event.lines.get((self.name, kind))
        if found is None:
            found = event.lines[self.name, kind] = self.event(kind, record)
        return found

    def event(self, kind: str, record: Record) -> bytes:
        """An event that is not part of the log."""
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), self.encode_object(record))

    def bookmark(self, revision: int, *, initial_events_end: bool = False) -> bytes:
        """The BOOKMARK event: only a revision, in the kind that is watched."""
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if initial_events_end:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        return _encode({"type": "BOOKMARK", "object": self._bookmark_object(metadata)}) + b"\n"

    def _bookmark_object(self, metadata: dict[str, Any]) -> dict[str, Any]:
        return {"kind": self.info.kind.kind, "apiVersion": self.info.kind.api_version, "metadata": metadata}


class FullView(View):
    """The whole object."""

    def __init__(self, info: ResourceInfo) -> None:
        super().__init__(info)
        kind = info.kind
        self.name = kind.api_version
        self._prefix = b'{"kind":%s,"apiVersion":%s,' % (_encode(kind.kind), _encode(kind.api_version))
        self._list_prefix = b'{"kind":%s,"apiVersion":%s,"metadata":' % (
            _encode(info.list_kind),
            _encode(kind.api_version),
        )
        self._typed_items = info.custom is not None  # items of built-in lists carry no kind
        convert = converter(info)
        self._body: Callable[[Record], bytes] = (
            _stored_body if convert is None else lambda record: _untyped(convert(record.obj))
        )

    def encode_object(self, record: Record) -> bytes:
        return self._prefix + self._body(record)[1:]

    def encode_list(self, records: Iterable[Record], metadata: dict[str, Any]) -> bytes:
        body = self._body
        if self.info.converts:
            records = list(records)
            prepare_versions(self.info, [record.obj for record in records])
        if self._typed_items:
            prefix = self._prefix
            items = b",".join([prefix + body(record)[1:] for record in records])
        else:
            items = b",".join([body(record) for record in records])
        return b'%s%s,"items":[%s]}\n' % (self._list_prefix, _encode(metadata), items)


class MetadataView(View):
    """`PartialObjectMetadata`: what caches that need no content ask for."""

    name = "meta.k8s.io/v1"

    def encode_object(self, record: Record) -> bytes:
        return _META_PREFIX + b'"metadata":' + _encode(record.obj["metadata"]) + b"}"

    def encode_list(self, records: Iterable[Record], metadata: dict[str, Any]) -> bytes:
        items = b",".join([self.encode_object(record) for record in records])
        return b'{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":%s,"items":[%s]}\n' % (
            _encode(metadata),
            items,
        )

    def _bookmark_object(self, metadata: dict[str, Any]) -> dict[str, Any]:
        return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}


class TableView(View):
    """Rows for people. Cells such as the age depend on the moment of each row, so lines are never shared."""

    def __init__(self, info: ResourceInfo, *, include: str, clock: Clock) -> None:
        super().__init__(info)
        if include not in {"", "Metadata", "Object", "None"}:
            raise status_errors.bad_request(f'unrecognized includeObject value: "{include}"')
        self._include = include or "Metadata"
        self._clock = clock
        self._convert = converter(info)
        self._columns_known = False  # a watch sends the columns with its first event only

    def encode_object(self, record: Record) -> bytes:
        version = {"resourceVersion": record.obj["metadata"].get("resourceVersion", "")}
        return _encode(self._table([record], version if version["resourceVersion"] else {}))

    def encode_list(self, records: Iterable[Record], metadata: dict[str, Any]) -> bytes:
        return _encode(self._table(records, metadata)) + b"\n"

    def event(self, kind: str, record: Record) -> bytes:
        line = super().event(kind, record)
        self._columns_known = True
        return line

    def _table(self, records: Iterable[Record], metadata: dict[str, Any]) -> dict[str, Any]:
        from steersman.apiserver.printing.table import table

        convert = self._convert or _same
        if self.info.converts:
            records = list(records)
            prepare_versions(self.info, [record.obj for record in records])
        api_version, kind = self.info.kind.api_version, self.info.kind.kind
        objects = [{**convert(record.obj), "apiVersion": api_version, "kind": kind} for record in records]
        return table(
            self.info,
            objects,
            list_meta=metadata,
            include=self._include,
            now=self._clock.time(),
            columns_known=self._columns_known,
        )

    def _bookmark_object(self, metadata: dict[str, Any]) -> dict[str, Any]:
        from steersman.apiserver.printing.table import table

        body = {"kind": self.info.kind.kind, "apiVersion": self.info.kind.api_version, "metadata": metadata}
        found = table(
            self.info,
            [body],
            list_meta={"resourceVersion": metadata["resourceVersion"]},
            include=self._include,
            now=self._clock.time(),
            columns_known=self._columns_known,
        )
        self._columns_known = True
        return found


def _same(obj: dict[str, Any]) -> dict[str, Any]:
    return obj


def _stored_body(record: Record) -> bytes:
    return record.body


def _untyped(obj: dict[str, Any]) -> bytes:
    return _encode({k: v for k, v in obj.items() if k not in {"apiVersion", "kind"}})
