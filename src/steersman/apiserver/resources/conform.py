"""The object as the server's type of its kind holds it.

The server decodes a request into a Go struct and writes the struct back, and a client sees the effect: fields the type
does not know are gone, `null` and empty values of most optional fields are gone, structs that cannot be absent appear
as `{}`, quantities and times have their canonical form (`1000m` is `1`, a local time is UTC). The recorded Go types say
which: a pointer keeps an explicit zero, a plain optional value loses it.

Invariant: `conform` is idempotent, and what it returns has the key order the server writes. Of a custom resource only
the metadata passes through a type, its own and that of embedded resources; the rest is pruned by its schema elsewhere.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from steersman.apiserver.validation.field_errors import shown
from steersman.errors import FormatError
from steersman.kube.api.quantities import Quantity
from steersman.kube.api.times import format_micro_time, format_time, parse_time
from steersman.kube.api.validation import quoted

if TYPE_CHECKING:
    from datetime import datetime

    from steersman.apiserver.resources.schema import Schema

META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
NULL_STRUCTS: Final = {META + "Time", META + "MicroTime", "io.k8s.apimachinery.pkg.runtime.RawExtension"}
ZEROS: Final[dict[str, Any]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "0",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": 0,
    META + "Duration": "0s",
}
INTEGERS: Final = {"int": 2**63, "int32": 2**31, "int64": 2**63}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(?:Z|[+-]\d\d:\d\d)", re.ASCII)


class ConformError(ValueError):
    """A value does not have the type of its field."""


class Field(NamedTuple):
    """How one field of a struct is written."""

    name: str
    schema: Schema
    go: str  # the Go type without the pointer; a named basic type is followed by what it is: `v1.Protocol=string`
    pointer: bool
    omit: bool  # left out when empty
    absent: Any  # what is written when the object does not have it; MISSING: nothing


MISSING: Final = object()
Rules = Mapping[str, Callable[[dict[str, Any]], None]]
NO_RULES: Final[Rules] = {}


@cache
def _layout(schema: Schema) -> tuple[Field, ...]:
    """The fields of a struct in the order the server writes them."""
    out = []
    names = dict.fromkeys(("kind", "apiVersion")) if "kind" in schema.fields and "kind" not in schema.go else {}
    for name in names | schema.go | schema.fields:
        child = schema.fields.get(name)
        if child is None:
            continue
        go, *options = schema.go.get(name, "string,omitempty").partition("@")[0].split(",")
        pointer, basic = go.startswith("*"), _meaning(go).lstrip("*")
        struct = not pointer and not basic.startswith(("[]", "map[")) and _is_struct(child)
        omit = bool(options) and (not struct or "omitzero" in options)
        absent = MISSING if omit else None if pointer else _zero(child, basic)
        out.append(Field(name, child, go.removeprefix("*"), pointer, omit, absent))
    return tuple(out)


def _meaning(go: str) -> str:
    """What a type is, behind its name."""
    return go.rpartition("=")[2]


def _is_struct(schema: Schema) -> bool:
    return bool(schema.name) and (schema.name in NULL_STRUCTS or schema.name in ZEROS or bool(schema.go))


def _zero(schema: Schema, go: str) -> Any:
    """The zero value of a type that is not a pointer, as the server writes it."""
    if go.startswith(("[]", "map[")) or schema.name in NULL_STRUCTS:
        return None
    if schema.name in ZEROS:
        return ZEROS[schema.name]
    if schema.go or (schema.is_map and schema.fields):
        return zero(schema)
    return {"string": "", "numeric": 0, "boolean": False}.get(schema.scalar or "")


def zero(schema: Schema) -> dict[str, Any]:
    """An object of the type without any field set: what a create starts from. Empty for custom resources."""
    return dict(_zero_struct(schema)) if schema.go else {}


@cache
def _zero_struct(schema: Schema) -> dict[str, Any]:
    return {field.name: field.absent for field in _layout(schema) if field.absent is not MISSING}


def at_rest(schema: Schema, obj: dict[str, Any]) -> dict[str, Any]:
    """The object as it comes back from storage, where a list that must be there and is empty becomes null."""
    out = obj
    for field in _layout(schema) if schema.go else ():
        value = obj.get(field.name)
        if value == [] and not field.omit:
            out = {**out, field.name: None}
        elif isinstance(value, dict) and field.name == "spec":
            out = {**out, "spec": at_rest(field.schema, value)}
    return out


def conform(schema: Schema, obj: dict[str, Any], rules: Rules = NO_RULES) -> dict[str, Any]:
    """The object as the server's type of this kind holds it.

    `rules` fill in what a struct of some type leaves open: OpenAPI name of the type -> a function that changes the
    struct just written. Raises ConformError when a value has the wrong type.
    """
    return _struct(schema, obj, "", rules) if schema.go else _custom(schema, obj, "", whole=True)


def _custom(schema: Schema, value: Any, path: str, *, whole: bool = False) -> Any:
    """A value of a custom resource: the metadata of the object and of those embedded in it are typed."""
    if isinstance(value, list) and schema.is_list and _embeds(schema.items):
        return [_custom(schema.items, item, path) for item in value]
    if not isinstance(value, dict) or not (whole or _embeds(schema)):
        return value
    out = {}
    for name, below in value.items():
        child = schema.field(name)
        inner = f"{path}.{name}" if path else name
        if child is None or below is None:
            out[name] = below
        elif name == "metadata" and child.go:
            out[name] = _custom_metadata(child, below, inner) if isinstance(below, dict) else below
        else:
            out[name] = _custom(child, below, inner)
    return out


def _custom_metadata(schema: Schema, value: dict[str, Any], path: str) -> dict[str, Any]:
    out = _struct(schema, value, path, NO_RULES)
    if not out.get("managedFields", True):
        del out["managedFields"]  # unlike in a built-in object, this does not make the server forget the owners
    return out


@cache
def _embeds(schema: Schema) -> bool:
    """Whether there are embedded resources in values of a custom type."""
    if schema.raw.get("x-kubernetes-embedded-resource") is True:
        return True
    if schema.go or schema.element is schema:
        return False
    parts = [*schema.fields.values(), *((schema.element,) if schema.element is not None else ())]
    return any(map(_embeds, parts)) or (schema.is_list and schema.items is not schema and _embeds(schema.items))


def _struct(schema: Schema, value: dict[str, Any], path: str, rules: Rules) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field in _layout(schema):
        name = field.name
        if name not in value or (given := value[name]) is None:
            if field.absent is not MISSING:
                out[name] = _absent(field.schema, field.absent, path, rules)
            continue
        if name == "managedFields" and isinstance(given, list) and all(map(_is_stored_entry, given)):
            out[name] = given  # what this server wrote comes back with nearly every update
            continue
        kept = _value(field.schema, given, field.go, f"{path}.{name}" if path else name, rules)
        if field.omit and not field.pointer and not kept and kept is not None and name != "managedFields":
            continue  # an empty list of managedFields is a request to forget all owners
        out[name] = kept
    if (fill := rules.get(schema.name)) is not None:
        fill(out)
    return out


_ENTRY_TEXTS: Final = {"manager", "operation", "apiVersion", "time", "fieldsType", "subresource"}
_STORED_TIME = re.compile(r"\d{4}-(?:0[1-9]|1[0-2])-(?:[0-2]\d|3[01])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\dZ", re.ASCII)


def _is_stored_entry(entry: Any) -> bool:
    """Whether an entry of managedFields already has the form in which it is stored."""
    if not isinstance(entry, dict) or not isinstance(entry.get("fieldsV1"), dict):
        return False
    for name, value in entry.items():
        if name != "fieldsV1" and not (name in _ENTRY_TEXTS and isinstance(value, str) and value):
            return False
    return _STORED_TIME.fullmatch(entry.get("time", "")) is not None


def _absent(schema: Schema, zero_value: Any, path: str, rules: Rules) -> Any:
    """What is written for an absent value: a struct of its own, so that rules may change it."""
    return _struct(schema, {}, path, rules) if isinstance(zero_value, dict) else zero_value


def _value(schema: Schema, value: Any, go: str, path: str, rules: Rules) -> Any:
    """One value that is not null, decoded and written back."""
    if canonical := CANONICAL.get(schema.name):
        return canonical(value, path)
    if schema.go:
        if not isinstance(value, dict):
            raise _mismatch(value, path, go)
        return _struct(schema, value, path, rules)
    if _meaning(go) == "[]byte" or (schema.scalar == "string" and schema.raw.get("format") == "byte"):
        return _bytes(value, path)
    if isinstance(value, dict) and schema.is_map:
        return _map(schema, value, go, path, rules)
    if isinstance(value, list) and schema.is_list:
        return _list(schema, value, go, path, rules)
    if schema.scalar is None or not _fits(schema, value, go):
        raise _mismatch(value, path, go)
    return value


def _map(schema: Schema, value: dict[str, Any], go: str, path: str, rules: Rules) -> dict[str, Any]:
    element = schema.element
    if element is None or not (element.name or element.scalar in {"string", "numeric", "boolean"} or element.is_list):
        return value
    if not element.name and element.is_map and element.is_list:
        return value  # of unknown type
    inner = _meaning(go).partition("]")[2] or "string"
    plain = element.scalar == "string" and not (element.name or element.go or element.raw.get("format"))
    if plain and inner != "[]byte" and all(type(below) is str for below in value.values()):
        return {key: value[key] for key in sorted(value)}  # labels, data: most of what is written
    nothing = "" if inner == "[]byte" else _zero(element, inner)
    out = {}
    for key in sorted(value):
        below = value[key]
        if below is None:
            out[key] = _absent(element, nothing, path, rules)
        else:
            out[key] = _value(element, below, inner, path, rules)  # Go names no keys
    return out


def _list(schema: Schema, value: list[Any], go: str, path: str, rules: Rules) -> list[Any]:
    items, inner = schema.items, _meaning(go).removeprefix("[]")
    nothing = _zero(items, inner) if None in value else None
    return [
        _absent(items, nothing, path, rules) if item is None else _value(items, item, inner, path, rules)
        for item in value
    ]


def _bytes(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise _mismatch(value, path, "string")
    try:
        return base64.b64encode(base64.b64decode(value.replace("\n", "").replace("\r", ""), validate=True)).decode()
    except binascii.Error as error:
        raise ConformError(f"{path} must be base64") from error


def _fits(schema: Schema, value: Any, go: str) -> bool:
    if schema.scalar == "boolean":
        return isinstance(value, bool)
    if schema.scalar == "string":
        return isinstance(value, str)
    if schema.scalar == "numeric":
        limit = INTEGERS.get(_meaning(go))
        whole = isinstance(value, int) or (isinstance(value, float) and limit is None)
        return whole and not isinstance(value, bool) and (limit is None or -limit <= value < limit)
    return not isinstance(value, dict | list)


def _mismatch(value: Any, path: str, go: str) -> ConformError:
    meaning = _meaning(go)
    expected = (
        "a list"
        if meaning.startswith("[]")
        else "an integer"
        if meaning in INTEGERS
        else {"string": "a string", "bool": "a boolean", "float64": "a number"}.get(meaning, "an object")
    )
    return ConformError(f"{path} must be {expected}, not {shown(value)}")


def quantity(value: Any, _path: str = "") -> str:
    """A quantity in its canonical form.

    >>> [quantity(text) for text in ("1000m", "1.5Gi", "0.5", "1024Ki", 2)]
    ['1', '1536Mi', '500m', '1Mi', '2']
    """
    known = not isinstance(value, bool) and isinstance(value, int | float | str)
    return str(Quantity.parse(str(value) if known else "true"))


def time(value: Any, path: str = "") -> str:
    """A time in UTC with whole seconds."""
    return format_time(_parsed(value, path, _TIME))


def micro_time(value: Any, path: str = "") -> str:
    """A time in UTC with microseconds. The server reads these only with exactly six decimals."""
    return format_micro_time(_parsed(value, path, _MICRO_TIME))


def _parsed(value: Any, path: str, pattern: re.Pattern[str]) -> datetime:
    if not isinstance(value, str):
        raise _mismatch(value, path, "string")
    if pattern.fullmatch(value) is None:
        form = "2006-01-02T15:04:05Z" if pattern is _TIME else "2006-01-02T15:04:05.000000Z"
        raise FormatError(f"{path} must be a time such as {form}, not {quoted(value)}")
    try:
        return parse_time(value)
    except FormatError:
        raise FormatError(f"{path} is not a valid time: {quoted(value)}") from None


def int_or_string(value: Any, path: str = "") -> Any:
    """A whole number or a text."""
    whole = isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31
    if not whole and not isinstance(value, str):
        raise ConformError(f"{path} must be an integer or a string, not {shown(value)}")
    return value


def _as_is(value: Any, _path: str) -> Any:
    return value


_SCHEMA_FIELDS: Final[dict[str, str]] = {
    **dict.fromkeys(("description", "format", "id", "pattern", "title", "type", "$ref", "$schema"), "string"),
    **dict.fromkeys(("x-kubernetes-list-type", "x-kubernetes-map-type"), "string"),
    **dict.fromkeys(("maximum", "minimum", "multipleOf"), "float64"),
    **dict.fromkeys(("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"), "int64"),
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "nullable", "uniqueItems"), "bool"),
    **dict.fromkeys(("x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"), "bool"),
    "x-kubernetes-preserve-unknown-fields": "bool",
    **dict.fromkeys(("required", "x-kubernetes-list-map-keys"), "[]string"),
    **dict.fromkeys(("enum", "x-kubernetes-validations"), "[]any"),
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), "[]schema"),
    **dict.fromkeys(("definitions", "patternProperties", "properties"), "map[string]schema"),
    **dict.fromkeys(("additionalItems", "additionalProperties"), "schema|bool"),
    "items": "schema|[]schema",
    "not": "schema",
}
_SCALARS: Final[dict[str, type | tuple[type, ...]]] = {
    "string": str,
    "float64": (int, float),
    "int64": int,
    "bool": bool,
}


def schema_props(value: Any, path: str) -> Any:
    """A JSON schema as it is, every field of it of its own type; unknown fields are left to the rules of the schema."""
    if not isinstance(value, dict):
        raise _mismatch(value, path, "object")
    for name, field in value.items():
        if field is not None and (go := _SCHEMA_FIELDS.get(name)) is not None:
            _schema_field(field, go, f"{path}.{name}")
    return value


def _schema_field(value: Any, go: str, path: str) -> None:
    if go.startswith("map["):
        if not isinstance(value, dict):
            raise _mismatch(value, path, "object")
        for name, item in value.items():
            if item is not None:
                schema_props(item, f"{path}[{name}]")
    elif go.startswith("[]") or (go == "schema|[]schema" and isinstance(value, list)):
        if not isinstance(value, list):
            raise _mismatch(value, path, go)
        inner = go.rpartition("]")[2]
        for item in value:
            if item is not None and inner != "any":
                _schema_field(item, inner, path)
    elif go.startswith("schema"):
        if not (go == "schema|bool" and isinstance(value, bool)):
            schema_props(value, path)
    elif not isinstance(value, _SCALARS[go]) or (isinstance(value, bool) and go != "bool"):
        raise _mismatch(value, path, go)


APIEXTENSIONS: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
# Types whose values have one canonical form, or none of their own.
CANONICAL: Final[dict[str, Callable[[Any, str], Any]]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": quantity,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": _as_is,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": int_or_string,
    META + "Duration": _as_is,
    META + "FieldsV1": _as_is,
    META + "MicroTime": micro_time,
    META + "Time": time,
    APIEXTENSIONS + "JSON": _as_is,
    APIEXTENSIONS + "JSONSchemaProps": schema_props,
}
