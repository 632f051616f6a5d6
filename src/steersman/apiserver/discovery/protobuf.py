"""Kubernetes' protobuf encoding of the built-in kinds, read into the JSON they stand for.

kubectl and other Go programs send it for kinds they have types for; answers are always JSON, which they accept. A body
is the four bytes `k8s\\0` and an envelope that names the type and holds the object. What a message means comes from a
table of field numbers recorded from the release (tools/extract_protobuf.py); a few messages are scalars in JSON, and
those of definitions have a form of their own.
Fields the table does not know are skipped, as protobuf wants it. Writing protobuf is not needed, and not here.
"""

from __future__ import annotations

import base64
import datetime as dt
import functools
import gzip
import json
import struct
from importlib import resources
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from steersman.kube.api.gvk import Kind

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIDTH = {_FIXED64: 8, _FIXED32: 4}


class _Field(msgspec.Struct, frozen=True, array_like=True):
    name: str  # in JSON; empty when the message has no level of its own there
    shape: str  # optional, repeated or map (whose keys are strings)
    type: str  # a scalar, or the name of a message


class _Tables(msgspec.Struct, frozen=True):
    kinds: dict[str, str]  # group/version/Kind -> message
    messages: dict[str, dict[int, _Field]]


@functools.cache
def _tables() -> _Tables:
    packed = resources.files("steersman.apiserver").joinpath("data/protobuf.json.gz").read_bytes()
    return msgspec.json.decode(gzip.decompress(packed), type=_Tables)


def decode(body: bytes, expected: Kind | None = None) -> dict[str, Any]:
    """The object in a protobuf body, as its JSON value; ValueError when it cannot be read.

    A body that names no type is of the `expected` one.
    """
    if not body.startswith(_MAGIC):
        raise ValueError("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        return _object(body[len(_MAGIC) :], expected)
    except (TypeError, OverflowError, struct.error) as error:
        raise ValueError("proto: a field does not have the type that its number says") from error


def _object(data: bytes, expected: Kind | None) -> dict[str, Any]:
    envelope = dict(_raw_fields(data))
    type_meta = {number: bytes(value).decode() for number, value in _raw_fields(envelope.get(1, b""))}
    api_version, kind = type_meta.get(1, ""), type_meta.get(2, "")
    if expected is not None:
        api_version, kind = api_version or expected.api_version, kind or expected.kind
    group, _, version = api_version.rpartition("/")
    if kind == "DeleteOptions":  # every group version has it, and it is the same everywhere
        group, version = "", "v1"
    message = _tables().kinds.get(f"{group}/{version}/{kind}")
    if message is None:
        raise ValueError(f'no kind "{kind}" is registered for version "{api_version}"')
    content: dict[str, Any] = _message(message, envelope.get(2, b""))
    return {"apiVersion": api_version, "kind": kind, **content}


def _message(name: str, data: bytes) -> Any:
    if (scalar := _SCALAR_MESSAGES.get(name)) is not None:
        return scalar(dict(_raw_fields(data)))
    fields = _tables().messages[name]
    if list(fields) == [1] and fields[1] == _Field("items", "repeated", "string"):
        return [bytes(item).decode() for _, item in _raw_fields(data)]  # a named list of strings
    result: dict[str, Any] = {}
    for number, raw in _raw_fields(data):
        field = fields.get(number)
        if field is None:
            continue
        if field.shape == "map":
            entry = dict(_raw_fields(raw))
            value = _value(field.type, entry[2]) if 2 in entry else _zero(field.type)
            result.setdefault(field.name, {})[bytes(entry.get(1, b"")).decode()] = value
        elif field.shape == "repeated":
            result.setdefault(field.name, []).append(_value(field.type, raw))
        elif field.name:
            result[field.name] = _value(field.type, raw)
        else:
            result |= _message(field.type, raw)
    return _DEFINITION_FORMS[name](result) if name in _DEFINITION_FORMS else result


def _value(type_: str, raw: Any) -> Any:
    match type_:
        case "string":
            return bytes(raw).decode()
        case "bytes":
            return base64.b64encode(raw).decode()
        case "bool":
            return bool(raw)
        case "int32" | "int64":
            return raw - (1 << 64) if raw >= 1 << 63 else raw
        case "uint32":
            return raw
        case "double":
            number: float = struct.unpack("<d", raw)[0]
            return int(number) if number.is_integer() else number
        case _:
            return _message(type_, raw)


def _zero(type_: str) -> Any:
    return "" if type_ in {"string", "bytes"} else _message(type_, b"")


def _raw_fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Number and undecoded value of every field: an int, or bytes."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire == _BYTES:
            length, position = _varint(data, position)
        elif wire in _WIDTH:
            length = _WIDTH[wire]
        else:
            raise ValueError(f"proto: illegal wireType {wire}")
        if position + length > len(data):
            raise ValueError("unexpected EOF")
        yield number, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if position >= len(data):
            raise ValueError("unexpected EOF")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & (1 << 64) - 1, position
        shift += 7
        if shift > 63:
            raise ValueError("proto: integer overflow")


def _time(fields: dict[int, Any]) -> str | None:
    """Whole seconds; no fields at all is no time."""
    if not fields:
        return None
    return _moment(fields).strftime("%Y-%m-%dT%H:%M:%SZ")


def _micro_time(fields: dict[int, Any]) -> str | None:
    if not fields:
        return None
    return _moment(fields).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _moment(fields: dict[int, Any]) -> dt.datetime:
    seconds = _value("int64", fields.get(1, 0))
    start = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return start + dt.timedelta(seconds=seconds, microseconds=fields.get(2, 0) // 1000)


def _int_or_string(fields: dict[int, Any]) -> int | str:
    if fields.get(1, 0):
        return bytes(fields.get(3, b"")).decode()
    number: int = _value("int32", fields.get(2, 0))
    return number


def _json(fields: dict[int, Any]) -> Any:
    return json.loads(fields[1]) if fields.get(1) else None


def _without_zeros(schema: dict[str, Any]) -> dict[str, Any]:
    """Protobuf carries every string and boolean of a schema; in JSON the empty and false ones are absent."""
    return {name: value for name, value in schema.items() if value is not False and value != ""}


_CRD = "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1."
_SCALAR_MESSAGES: dict[str, Callable[[dict[int, Any]], Any]] = {
    "k8s.io.apimachinery.pkg.api.resource.Quantity": lambda fields: bytes(fields.get(1, b"")).decode(),
    "k8s.io.apimachinery.pkg.apis.meta.v1.FieldsV1": _json,
    "k8s.io.apimachinery.pkg.apis.meta.v1.MicroTime": _micro_time,
    "k8s.io.apimachinery.pkg.apis.meta.v1.Time": _time,
    "k8s.io.apimachinery.pkg.runtime.RawExtension": _json,
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
    f"{_CRD}JSON": _json,
}
_DEFINITION_FORMS: dict[str, Callable[[dict[str, Any]], Any]] = {
    f"{_CRD}JSONSchemaProps": _without_zeros,
    f"{_CRD}ValidationRule": _without_zeros,
    f"{_CRD}JSONSchemaPropsOrArray": lambda either: either.get("jSONSchemas") or either.get("schema"),
    f"{_CRD}JSONSchemaPropsOrBool": lambda either: either.get("schema", either.get("allows", False)),
    f"{_CRD}JSONSchemaPropsOrStringArray": lambda either: either.get("property") or either.get("schema"),
}
