"""The CEL types of a structural schema, and JSON values as values of those types.

An object with properties is a message type whose fields are its properties, so that an expression with an unknown
field, or one of the wrong type, does not compile. A property that is not a CEL identifier is a field with an escaped
name (`a-b` is `a__dash__b`); one that cannot be escaped, or that has no type, is not visible. Of the metadata of a
resource only the two names are.

Values: numbers are doubles, and the formats byte, date, date-time and duration are bytes, timestamps and durations.
Messages are for the checker only: an expression runs over plain maps. A list or map of lists or maps inside an object
is checked as a list or map of anything, because a message has no field of that type.
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from steersman.apiserver.cel.expressions import EvaluationError
from steersman.errors import FormatError
from steersman.kube.api.durations import parse_go_duration

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from steersman.apiserver.cel.expressions import Type

JSON = dict[str, Any]

_KEYWORDS = (
    "true false null in as break const continue else for function if import let loop package namespace return var void "
    "while"
)
RESERVED: Final = frozenset(_KEYWORDS.split())
_ESCAPES: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_ESCAPED = re.compile(r"__|[-./]")
_ESCAPABLE = re.compile(r"[a-zA-Z_.\-/][a-zA-Z0-9_.\-/]*", re.ASCII)
_SCALARS: Final = {"boolean": "bool", "integer": "int", "number": "double", "string": "string"}
_FORMATS: Final = {"byte": "bytes", "duration": "duration", "date": "timestamp", "date-time": "timestamp"}
_TEXT: Final[JSON] = {"type": "string"}
_METADATA: Final[JSON] = {"type": "object", "properties": {"name": _TEXT, "generateName": _TEXT}}
_PACKAGE = "schema"
_PRESERVE = "x-kubernetes-preserve-unknown-fields"


def escape(name: str) -> str | None:
    """A property name as a CEL identifier; None when it has none.

    >>> escape("namespace"), escape("a-b"), escape("1st")
    ('__namespace__', 'a__dash__b', None)
    """
    if name in RESERVED:
        return f"__{name}__"
    if _ESCAPABLE.fullmatch(name) is None:
        return None
    return _ESCAPED.sub(lambda match: _ESCAPES[match.group()], name)


def _properties(schema: JSON, *, resource: bool) -> dict[str, JSON]:
    """The visible properties; a resource has a kind, an API version and two names even if its schema omits them."""
    properties: dict[str, JSON] = schema.get("properties") or {}
    if not resource:
        return properties
    names = (properties.get("metadata") or {}).get("properties") or {}
    metadata = properties["metadata"] if {"name", "generateName"} <= names.keys() else _METADATA
    return {**properties, "kind": _TEXT, "apiVersion": _TEXT, "metadata": metadata}


def _is_resource(schema: JSON) -> bool:
    return bool(schema.get("x-kubernetes-embedded-resource"))


class SchemaTypes:
    """The types of all nodes of one schema, and the pool with their messages. `names` makes fields of properties."""

    def __init__(self, schema: JSON, names: Callable[[str], str | None] = escape) -> None:
        from google.protobuf import (  # type: ignore[import-untyped]
            any_pb2,
            descriptor_pb2,
            descriptor_pool,
            duration_pb2,
            struct_pb2,
            timestamp_pb2,
            wrappers_pb2,
        )

        self._names = names
        self._types: dict[int, Type | None] = {}
        self._fields = descriptor_pb2.FieldDescriptorProto
        known = (any_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
        self._file = descriptor_pb2.FileDescriptorProto(
            name="schema.proto",
            package=_PACKAGE,
            syntax="proto2",
            dependency=[module.DESCRIPTOR.name for module in known],
        )
        self._declare(schema, resource=True)
        self.pool = descriptor_pool.DescriptorPool()
        for module in known:
            self.pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        self.pool.AddSerializedFile(self._file.SerializeToString())

    def of(self, schema: JSON) -> Type | None:
        """The type of a node of the schema; None when expressions cannot see it."""
        return self._types.get(id(schema))

    def _declare(self, schema: JSON, *, resource: bool = False) -> Type | None:
        kind = self._types[id(schema)] = self._type(schema, resource=resource)
        return kind

    def _type(self, schema: JSON, *, resource: bool) -> Type | None:
        if schema.get("x-kubernetes-int-or-string"):
            return "dyn"
        kind = schema.get("type", "")
        if kind == "string":
            return _FORMATS.get(schema.get("format", ""), "string")
        if kind == "array":
            return self._container("list", schema.get("items"))
        if kind != "object":
            return _SCALARS.get(kind)
        if isinstance(more := schema.get("additionalProperties"), dict):
            return self._container("map", more)
        return self._message(_properties(schema, resource=resource))

    def _container(self, name: str, items: Any) -> Type | None:
        inner = self._declare(items, resource=_is_resource(items)) if isinstance(items, dict) else None
        return None if inner is None else (name, inner)

    def _message(self, properties: dict[str, JSON]) -> Type:
        message = self._file.message_type.add()
        message.name = f"Object{len(self._file.message_type)}"
        message.options.deprecated_legacy_json_field_conflicts = True  # `fooBar` beside `foo_bar` is fine
        fields = {name: self._names(name) for name in properties}
        for name, schema in properties.items():
            kind, field = self._declare(schema, resource=_is_resource(schema)), fields[name]
            if kind is not None and field is not None:
                self._add_field(message, field, kind, set(fields.values()))
        return f"{_PACKAGE}.{message.name}"

    def _add_field(self, message: Any, name: str, kind: Type, taken: set[str | None]) -> None:
        entry_name = f"{''.join(part[:1].upper() + part[1:] for part in name.split('_'))}Entry"  # as protobuf wants it
        taken = taken | {entry.name for entry in message.nested_type}
        label = self._fields.LABEL_REPEATED if isinstance(kind, tuple) else self._fields.LABEL_OPTIONAL
        if isinstance(kind, tuple) and kind[0] == "list":
            kind = kind[1]
        elif isinstance(kind, tuple) and entry_name in taken:
            kind, label = "dyn", self._fields.LABEL_OPTIONAL
        elif isinstance(kind, tuple):
            entry = message.nested_type.add(name=entry_name)
            entry.options.map_entry = True
            for number, (part, of) in enumerate((("key", "string"), ("value", kind[1])), 1):
                self._set_type(entry.field.add(name=part, number=number, label=self._fields.LABEL_OPTIONAL), of)
            kind = f"{_PACKAGE}.{message.name}.{entry_name}"
        self._set_type(message.field.add(name=name, number=len(message.field) + 1, label=label), kind)

    def _set_type(self, field: Any, kind: Type) -> None:
        scalars = {
            "bool": self._fields.TYPE_BOOL,
            "bytes": self._fields.TYPE_BYTES,
            "double": self._fields.TYPE_DOUBLE,
            "int": self._fields.TYPE_INT64,
            "string": self._fields.TYPE_STRING,
        }
        messages = {"dyn": "google.protobuf.Value", "duration": "google.protobuf.Duration"}
        messages["timestamp"] = "google.protobuf.Timestamp"
        if isinstance(kind, str) and kind in scalars:
            field.type = scalars[kind]
        else:
            field.type = self._fields.TYPE_MESSAGE
            field.type_name = f".{messages.get(kind, kind) if isinstance(kind, str) else messages['dyn']}"


def converter(schema: JSON, *, resource: bool = False) -> Callable[[Any], Any] | None:
    """From a JSON value to the CEL value that expressions see; None when they are the same."""
    if schema.get("x-kubernetes-int-or-string"):
        return None
    kind = schema.get("type", "")
    if kind == "number":
        return float
    if kind == "string":
        return _TEXTS.get(schema.get("format", ""))
    if kind == "array" and isinstance(items := schema.get("items"), dict):
        return _each_item(converter(items, resource=_is_resource(items)))
    if kind != "object":
        return _with_floats if schema.get(_PRESERVE) else None
    if isinstance(more := schema.get("additionalProperties"), dict):
        return _each_value(converter(more, resource=_is_resource(more)))
    return _object_converter(schema, resource=resource)


def _each_item(convert: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    if convert is None:
        return None
    return lambda items: [None if item is None else convert(item) for item in items]


def _each_value(convert: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    if convert is None:
        return None
    return lambda items: {key: None if item is None else convert(item) for key, item in items.items()}


def _object_converter(schema: JSON, *, resource: bool) -> Callable[[Any], Any] | None:
    fields = {
        name: (escape(name), converter(child, resource=_is_resource(child)))
        for name, child in _properties(schema, resource=resource).items()
    }
    keeps_unknown = bool(schema.get(_PRESERVE))
    if not (resource or keeps_unknown) and all(
        name == field and convert is None for name, (field, convert) in fields.items()
    ):
        return None
    if resource:
        fields["metadata"] = ("metadata", _two_names)

    def convert_object(value: JSON) -> JSON:
        return {
            field: convert(item) if convert is not None and item is not None else item
            for name, item in value.items()
            if (known := fields.get(name, (name, _with_floats) if keeps_unknown else None)) is not None
            for field, convert in [known]
            if field is not None
        }

    return convert_object


def _with_floats(value: Any) -> Any:
    """A value without a schema: expressions cannot see into it, but compare it. Large integers are doubles."""
    if isinstance(value, dict):
        return {key: _with_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_floats(item) for item in value]
    return value if not isinstance(value, int) or -(2**63) <= value < 2**63 else float(value)


def _two_names(metadata: JSON) -> JSON:
    return {key: metadata[key] for key in ("name", "generateName") if key in metadata}


def timestamp_value(moment: datetime) -> Any:
    """A moment as expressions see it; without a zone it is in UTC."""
    from google.protobuf.timestamp_pb2 import Timestamp  # type: ignore[import-untyped]

    made = Timestamp()
    made.FromDatetime(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
    return made


def duration_value(span: timedelta) -> Any:
    """A duration as expressions see it."""
    from google.protobuf.duration_pb2 import Duration  # type: ignore[import-untyped]

    made = Duration()
    made.FromTimedelta(span)
    return made


def _timestamp(text: str) -> Any:
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        raise EvaluationError(f"{text!r} is not a time") from None
    try:
        return timestamp_value(moment)
    except (ValueError, OverflowError):
        raise EvaluationError(f"{text!r} is outside the years 1 to 9999 in UTC") from None


def _duration(text: str) -> Any:
    try:
        return duration_value(parse_go_duration(text))
    except FormatError:
        raise EvaluationError(f"{text!r}: rules read durations such as 1h30m only") from None


_TEXTS: Final[dict[str, Callable[[Any], Any]]] = {
    "byte": base64.b64decode,
    "date": _timestamp,
    "date-time": _timestamp,
    "duration": _duration,
}
