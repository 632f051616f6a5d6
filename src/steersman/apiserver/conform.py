"""What a built-in object becomes by passing through the server's types.

The server decodes a request into a Go struct and writes the struct back, and that leaves traces a client sees: fields
it does not know are gone, `null` and empty values of most optional fields are gone, structs that cannot be absent
appear as `{}`, quantities and times have one spelling. This module leaves the same traces, by the recorded shape of
the Go types: a pointer keeps an explicit zero, a plain optional value loses it.

Invariant: `conform` is idempotent, and what it returns has the key order the server writes. Of a custom resource only
the metadata passes through a type, its own and that of embedded resources; the rest is pruned by its schema elsewhere.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from steersman.apiserver.spelling import SPELLINGS, WrongType

if TYPE_CHECKING:
    from steersman.apiserver.schema import Schema

__all__ = ["ConformError", "at_rest", "conform", "zero"]

META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
NULL_STRUCTS: Final = {META + "Time", META + "MicroTime", "io.k8s.apimachinery.pkg.runtime.RawExtension"}
ZEROS: Final[dict[str, Any]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "0",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": 0,
    META + "Duration": "0s",
}
INTEGERS: Final = {"int": 2**63, "int32": 2**31, "int64": 2**63}
GO_NAMES: Final = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}


class ConformError(ValueError):
    """A value cannot be decoded into the field's Go type, in the words of the server's JSON decoder."""


class Field(NamedTuple):
    """How one field of a struct is written."""

    name: str
    schema: Schema
    go: str  # the Go type without the pointer; a named basic type is followed by what it is: `v1.Protocol=string`
    pointer: bool
    omit: bool  # left out when empty
    absent: Any  # what is written when the object does not have it; MISSING: nothing
    path: str  # the name with the embedded struct it comes from, as the decoder prints it


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
        text, _, embedded = schema.go.get(name, "string,omitempty").partition("@")
        go, *options = text.split(",")
        pointer, basic = go.startswith("*"), _meaning(go).lstrip("*")
        struct = not pointer and not basic.startswith(("[]", "map[")) and _is_struct(child)
        omit = bool(options) and (not struct or "omitzero" in options)
        absent = MISSING if omit else None if pointer else _zero(child, basic)
        path = f"{embedded}.{name}" if embedded else name
        out.append(Field(name, child, go.removeprefix("*"), pointer, omit, absent, path))
    return tuple(out)


def _meaning(go: str) -> str:
    """What a type is, behind its name."""
    return go.rpartition("=")[2]


def _is_struct(schema: Schema) -> bool:
    return bool(schema.name) and (schema.name in NULL_STRUCTS or schema.name in ZEROS or bool(schema.go))


def _zero(schema: Schema, go: str) -> Any:
    """The zero value of a type that is no pointer, as the server writes it."""
    if go.startswith(("[]", "map[")) or schema.name in NULL_STRUCTS:
        return None
    if schema.name in ZEROS:
        return ZEROS[schema.name]
    if schema.go or (schema.is_map and schema.fields):
        return zero(schema)
    return {"string": "", "numeric": 0, "boolean": False}.get(schema.scalar or "")


def zero(schema: Schema) -> dict[str, Any]:
    """An object of the type nobody wrote anything to: what a create starts from. Empty for custom resources."""
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
        if name == "managedFields" and isinstance(given, list):
            out[name] = given  # an empty list here is a request to forget all owners; managed.py reads it
            continue
        kept = _value(field.schema, given, field.go, f"{path}.{field.path}" if path else field.path, schema, rules)
        if field.omit and not field.pointer and not kept and kept is not None:
            continue
        out[name] = kept
    if (fill := rules.get(schema.name)) is not None:
        fill(out)
    return out


def _absent(schema: Schema, zero_value: Any, path: str, rules: Rules) -> Any:
    """What stands for a value nobody gave: a struct of its own, so that rules may change it."""
    return _struct(schema, {}, path, rules) if isinstance(zero_value, dict) else zero_value


def _value(schema: Schema, value: Any, go: str, path: str, owner: Schema, rules: Rules) -> Any:
    """One value that is not null, decoded and written back."""
    if spell := SPELLINGS.get(schema.name):
        try:
            return spell(value)
        except WrongType as wrong:
            raise _mismatch(value, path, owner, str(wrong)) from None
    if schema.go:
        if not isinstance(value, dict):
            raise _mismatch(value, path, owner, go)
        return _struct(schema, value, path, rules)
    if _meaning(go) == "[]byte" or (schema.scalar == "string" and schema.raw.get("format") == "byte"):
        return _bytes(value, path, owner)
    if isinstance(value, dict) and schema.is_map:
        return _map(schema, value, go, path, owner, rules)
    if isinstance(value, list) and schema.is_list:
        return _list(schema, value, go, path, owner, rules)
    if schema.scalar is None or not _fits(schema, value, go):
        raise _mismatch(value, path, owner, go)
    return value


def _map(schema: Schema, value: dict[str, Any], go: str, path: str, owner: Schema, rules: Rules) -> dict[str, Any]:
    element = schema.element
    if element is None or not (element.name or element.scalar in {"string", "numeric", "boolean"} or element.is_list):
        return value
    if not element.name and element.is_map and element.is_list:
        return value  # of unknown type
    inner = _meaning(go).partition("]")[2] or "string"
    nothing = "" if inner == "[]byte" else _zero(element, inner)
    out = {}
    for key in sorted(value):
        below = value[key]
        if below is None:
            out[key] = _absent(element, nothing, path, rules)
        else:
            out[key] = _value(element, below, inner, path, owner, rules)  # Go names no keys
    return out


def _list(schema: Schema, value: list[Any], go: str, path: str, owner: Schema, rules: Rules) -> list[Any]:
    items, inner = schema.items, _meaning(go).removeprefix("[]")
    nothing = _zero(items, inner) if None in value else None
    return [
        _absent(items, nothing, path, rules) if item is None else _value(items, item, inner, path, owner, rules)
        for item in value
    ]


def _bytes(value: Any, path: str, owner: Schema) -> str:
    if not isinstance(value, str):
        raise _mismatch(value, path, owner, "[]uint8")
    try:
        return base64.b64encode(base64.b64decode(value.replace("\n", "").replace("\r", ""), validate=True)).decode()
    except binascii.Error as error:
        raise ConformError("illegal base64 data at input byte 0") from error


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


def _mismatch(value: Any, path: str, owner: Schema, go: str) -> ConformError:
    given, shown = GO_NAMES.get(type(value), "null"), go.partition("=")[0]
    if given == "number" and _meaning(go) in INTEGERS:
        given = f"number {value}"
    struct = owner.name.rpartition(".")[2]
    return ConformError(f"json: cannot unmarshal {given} into Go struct field {struct}.{path} of type {shown}")
