"""msgspec types -> structural OpenAPI v3 schemas.

A structural schema has no references and says the type of every node, so recursive types cannot be expressed and are
refused with the path that leads round in a circle. Rules of translation:

- a field without a default is required; `T | None` with a default may simply be left out, and is `nullable` only when
  None must be written explicitly (no default);
- scalar defaults become `default`, and a nested struct with defaults becomes `default: {}`, so that defaults inside
  it apply; empty lists and maps do not, because a server that writes them would make every object differ from its
  manifest;
- a list of structs whose class names its `LIST_KEYS` is a map by these keys, as lists of conditions are by `type`,
  unless an annotation says otherwise;
- the description of a field is the docstring below it, else its `Description`, else the docstring of its class;
- `int | str` is `x-kubernetes-int-or-string`; `Any` and maps to `Any` keep whatever they are given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import inspect as mi

from steersman.crd.docstrings import class_doc, field_docs
from steersman.errors import SteersmanError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.crd.markers import PrinterColumn

__all__ = ["SchemaError", "columns_of", "schema_of", "selectable_of"]


class SchemaError(SteersmanError):
    """A type that a structural schema cannot express."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path, self.problem = path, message


def schema_of(cls: type[msgspec.Struct], *, skip: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The schema of a struct; top-level fields in `skip` are left out."""
    return _struct(mi.type_info(cls), cls.__name__, (), skip)


def columns_of(cls: type[msgspec.Struct]) -> list[PrinterColumn]:
    """The printer columns that fields below `cls` ask for, in the order of their fields."""
    found = []
    for path, info in _marked(mi.type_info(cls), "", ()):
        if (column := (info.extra or {}).get("column")) is not None:
            kind = column.type or _COLUMN_TYPES.get(type(_optional(info.type)), "string")
            found.append(msgspec.structs.replace(column, json_path=column.json_path or path, type=kind))
    return found


def selectable_of(cls: type[msgspec.Struct]) -> list[str]:
    """The paths of the fields below `cls` that field selectors may use."""
    return [path for path, info in _marked(mi.type_info(cls), "", ()) if (info.extra or {}).get("selectable")]


def _translate(info: mi.Type, path: str, trail: tuple[type, ...]) -> dict[str, Any]:
    if isinstance(info, mi.Metadata):
        return _annotated(info, _translate(info.type, path, trail))
    if isinstance(info, mi.UnionType):
        return _union(info, path, trail)
    if isinstance(info, (mi.StructType, mi.DataclassType, mi.TypedDictType)):
        return _struct(info, path, trail)
    if isinstance(info, (mi.ListType, mi.SetType, mi.FrozenSetType, mi.VarTupleType)):
        bounds = _bounds(info, min_length="minItems", max_length="maxItems")
        items = _translate(info.item_type, f"{path}[]", trail)
        return {"type": "array", "items": items, **bounds, **_identified(info.item_type)}
    if isinstance(info, mi.DictType):
        bounds = _bounds(info, min_length="minProperties", max_length="maxProperties")
        if isinstance(info.value_type, mi.AnyType):
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True, **bounds}
        return {"type": "object", "additionalProperties": _translate(info.value_type, f"{path}.*", trail), **bounds}
    return _scalar(info, path)


def _annotated(info: mi.Metadata, node: dict[str, Any]) -> dict[str, Any]:
    """The node with what markers say; rules are added to those of the type, and anything else replaces it."""
    node = {**node, **(info.extra_json_schema or {})}
    if node.get("x-kubernetes-list-type") != "map":
        node.pop("x-kubernetes-list-map-keys", None)
    if node.get("type") == "object" and node.get("x-kubernetes-list-type") == "atomic":
        node["x-kubernetes-map-type"] = node.pop("x-kubernetes-list-type")
    if rules := [value for key, value in (info.extra or {}).items() if key.startswith("rule ")]:
        node["x-kubernetes-validations"] = [*node.get("x-kubernetes-validations", ()), *rules]
    return node


def _identified(item: mi.Type) -> dict[str, Any]:
    """How the items of a list are identified, where their class says it."""
    keys = getattr(getattr(_bare(item), "cls", None), "LIST_KEYS", ())
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)} if keys else {}


_NUMBERS = {"ge": "minimum", "le": "maximum", "multiple_of": "multipleOf"}
_STRINGS = {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"}


def _scalar(info: mi.Type, path: str) -> dict[str, Any]:  # noqa: PLR0911  # one line per type reads best
    match info:
        case mi.BoolType():
            return {"type": "boolean"}
        case mi.IntType():
            return {"type": "integer", "format": "int64", **_bounds(info, **_NUMBERS), **_exclusive(info)}
        case mi.FloatType():
            return {"type": "number", **_bounds(info, **_NUMBERS), **_exclusive(info)}
        case mi.StrType():
            return {"type": "string", **_bounds(info, **_STRINGS)}
        case mi.BytesType():
            return {"type": "string", "format": "byte"}
        case mi.DateTimeType():
            return {"type": "string", "format": "date-time"}
        case mi.EnumType():
            values = [member.value for member in info.cls]
            return {"type": "string" if all(isinstance(v, str) for v in values) else "integer", "enum": values}
        case mi.LiteralType():
            return {
                "type": "string" if all(isinstance(v, str) for v in info.values) else "integer",
                "enum": list(info.values),
            }
        case mi.AnyType() | mi.RawType():
            return {"x-kubernetes-preserve-unknown-fields": True}
    raise SchemaError(path, f"{type(info).__name__} has no counterpart in a structural schema")


def _bounds(info: Any, **names: str) -> dict[str, Any]:
    return {keyword: value for name, keyword in names.items() if (value := getattr(info, name)) is not None}


def _exclusive(info: Any) -> dict[str, Any]:
    bounds: dict[str, Any] = {}
    if info.gt is not None:
        bounds |= {"minimum": info.gt, "exclusiveMinimum": True}
    if info.lt is not None:
        bounds |= {"maximum": info.lt, "exclusiveMaximum": True}
    return bounds


def _union(info: mi.UnionType, path: str, trail: tuple[type, ...]) -> dict[str, Any]:
    members = [t for t in info.types if not isinstance(t, mi.NoneType)]
    nullable = {"nullable": True} if len(members) < len(info.types) else {}
    if len(members) == 1:
        return {**_translate(members[0], path, trail), **nullable}
    if {type(member) for member in members} == {mi.IntType, mi.StrType}:
        return {"x-kubernetes-int-or-string": True, **nullable}
    kinds = " | ".join(type(member).__name__.removesuffix("Type").lower() for member in members)
    raise SchemaError(path, f"a union of {kinds} has no structural schema (int | str has; or use Any)")


def _struct(info: Any, path: str, trail: tuple[type, ...], skip: frozenset[str] = frozenset()) -> dict[str, Any]:
    if info.cls in trail:
        raise SchemaError(path, f"{info.cls.__name__} contains itself; a structural schema cannot express recursion")
    docs = field_docs(info.cls)
    properties: dict[str, Any] = {}
    required = []
    for field in info.fields:
        if field.encode_name in skip:
            continue
        node = _translate(field.type, f"{path}.{field.encode_name}", (*trail, info.cls))
        if field.name in docs:
            node["description"] = docs[field.name]
        node |= _default(field)
        if field.required:
            required.append(field.encode_name)
        else:
            node.pop("nullable", None)
        properties[field.encode_name] = node
    schema: dict[str, Any] = {"type": "object"}
    if doc := class_doc(info.cls):
        schema["description"] = doc
    if properties:
        schema["properties"] = properties
    if required:
        schema["required"] = required
    if rules := getattr(info.cls, "RULES", None):
        schema["x-kubernetes-validations"] = [{"rule": rule, "message": text} for rule, text in rules]
    return schema


def _default(field: mi.Field) -> dict[str, Any]:
    if field.default is not msgspec.NODEFAULT and field.default is not None:
        return {"default": msgspec.to_builtins(field.default)}
    if isinstance(_bare(field.type), mi.StructType) and field.default_factory is not msgspec.NODEFAULT:
        return {"default": {}}
    return {}


def _bare(info: mi.Type) -> mi.Type:
    return _bare(info.type) if isinstance(info, mi.Metadata) else info


_COLUMN_TYPES = {mi.IntType: "integer", mi.FloatType: "number", mi.BoolType: "boolean", mi.DateTimeType: "date"}


def _marked(info: mi.Type, path: str, trail: tuple[type, ...]) -> Iterator[tuple[str, mi.Metadata]]:
    """Every annotated field outside of lists and maps, with its path."""
    if isinstance(info, mi.Metadata):
        yield path, info
        yield from _marked(info.type, path, trail)
    elif isinstance(info, mi.UnionType):
        yield from _marked(_optional(info), path, trail)
    elif isinstance(info, mi.StructType) and info.cls not in trail:
        for field in info.fields:
            yield from _marked(field.type, f"{path}.{field.encode_name}", (*trail, info.cls))


def _optional(info: mi.Type) -> mi.Type:
    """The one type besides None, when there is exactly one."""
    if isinstance(info, mi.UnionType):
        members = [t for t in info.types if not isinstance(t, mi.NoneType)]
        return members[0] if len(members) == 1 else mi.AnyType()
    return info
