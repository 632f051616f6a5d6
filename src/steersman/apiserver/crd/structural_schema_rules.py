"""The rules that the schema of a CustomResourceDefinition keeps: it must be structural.

Structural means that every field has one type, said once and outside of allOf, anyOf, oneOf and not, so that unknown
fields can be pruned and defaults filled in without evaluating anything. Beside that come the limits of what the server
supports, the rules of list and map types, and that defaults fit the place they are for.

Rules in CEL are compiled last, when nothing else is wrong, because their types are those of the schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver.crd.compiled_schema import PatternError, SchemaNode, compile_pattern
from steersman.apiserver.crd.custom_resource_validation import value_causes
from steersman.apiserver.crd.validation_rules import compile_rules, declaration_causes
from steersman.apiserver.validation import field_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.kube.api.errors import Cause

JSON = dict[str, Any]

TYPES = ("array", "boolean", "integer", "number", "object", "string")
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_FORBIDDEN_BELOW = {  # what a value rule may not say, and how the server puts it
    "type": "must be empty to be structural",
    "additionalProperties": "must be undefined to be structural",
    "default": "must be undefined to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    "x-kubernetes-preserve-unknown-fields": "must be false to be structural",
    "x-kubernetes-embedded-resource": "must be false to be structural",
    "x-kubernetes-int-or-string": "must be false to be structural",
    "x-kubernetes-list-map-keys": "must be empty to be structural",
    "x-kubernetes-list-type": "must be undefined to be structural",
    "x-kubernetes-map-type": "must be undefined to be structural",
}
_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")


def schema_causes(schema: JSON, path: str) -> list[Cause]:
    """Everything wrong with the schema of one version."""
    found: list[Cause] = []
    if not any(node.get(key) for node in walk(schema) for key in _UNSUPPORTED):
        found = sorted({*_structural(schema, path, "root"), *_complete(schema, schema, path, path)}, key=str)
        found = found or list(_default_causes(schema, path, schema))
    return [*found, *_node_causes(schema, path, root=True)] or compile_rules(schema, path)[1]


def walk(schema: JSON) -> Iterator[JSON]:
    """The schema and every schema in it."""
    yield schema
    for child in (schema.get("properties") or {}).values():
        yield from walk(child)
    for key in ("items", "additionalProperties", "not"):
        if isinstance(child := schema.get(key), dict):
            yield from walk(child)
    for key in ("allOf", "anyOf", "oneOf"):
        for child in schema.get(key) or ():
            yield from walk(child)


def _structural(schema: JSON, path: str, level: str) -> Iterator[Cause]:
    """Every field has a type, and says it in the right place."""
    kind = schema.get("type", "")
    items = schema.get("items")
    if kind == "array" and items is None:
        yield field_errors.required(f"{path}.items", "must be specified")
    if isinstance(items, dict):
        yield from _structural(items, f"{path}.items", "item")
    for name, child in (schema.get("properties") or {}).items():
        yield from _structural(child, f"{path}.properties[{name}]", "field")
    more = schema.get("additionalProperties")
    if more is not None and level == "root":
        yield field_errors.forbidden(f"{path}.additionalProperties", "must not be used at the root")
    if isinstance(more, dict):
        yield from _structural(more, f"{path}.additionalProperties", "field")
    yield from _extension_causes(schema, path)
    yield from _value_rules(schema, path)
    yield from _type_causes(schema, path, level)
    yield from _embedded_causes(schema, path, level)


def _extension_causes(schema: JSON, path: str) -> Iterator[Cause]:
    if schema.get("x-kubernetes-int-or-string"):
        for key in ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"):
            if schema.get(key):
                yield field_errors.invalid(f"{path}.{key}", True, "must be false if x-kubernetes-int-or-string is true")


def _type_causes(schema: JSON, path: str, level: str) -> Iterator[Cause]:
    kind = schema.get("type", "")
    embedded = schema.get("x-kubernetes-embedded-resource")
    if embedded and kind != "object":
        text = "must be object if x-kubernetes-embedded-resource is true"
        yield field_errors.invalid(f"{path}.type", kind, text) if kind else field_errors.required(f"{path}.type", text)
    elif not kind and not _untyped(schema):
        where = {"root": "at the root", "item": "for specified array items", "field": "for specified object fields"}
        yield field_errors.required(f"{path}.type", f"must not be empty {where[level]}")
    if embedded and schema.get("additionalProperties") is not None:
        text = "must not be used if x-kubernetes-embedded-resource is set"
        yield field_errors.forbidden(f"{path}.additionalProperties", text)
    if level == "root" and kind and kind != "object":
        yield field_errors.invalid(f"{path}.type", kind, "must be object at the root")


def _untyped(schema: JSON) -> bool:
    return bool(schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields"))


def _embedded_causes(schema: JSON, path: str, level: str) -> Iterator[Cause]:
    """Where an object is meant, kind, apiVersion and metadata are what they always are."""
    properties = schema.get("properties") or {}
    embedded = schema.get("x-kubernetes-embedded-resource")
    if embedded or level == "root":
        for name in ("kind", "apiVersion"):
            if name in properties and properties[name].get("type", "") != "string":
                where = f"{path}.properties[{name}].type"
                yield field_errors.invalid(where, properties[name].get("type", ""), "must be string")
        if "metadata" in properties and properties["metadata"].get("type", "") != "object":
            where = f"{path}.properties[metadata].type"
            yield field_errors.invalid(where, properties["metadata"].get("type", ""), "must be object")
    if level == "root" and "metadata" in properties:
        rest = {key: value for key, value in properties["metadata"].items() if key not in {"type", "default"}}
        if set(rest.get("properties") or ()) <= {"name", "generateName"}:
            rest.pop("properties", None)
        if rest:
            text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            yield field_errors.forbidden(f"{path}.properties[metadata]", text)
    if embedded and not schema.get("x-kubernetes-preserve-unknown-fields") and not properties:
        text = (
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        )
        yield field_errors.required(f"{path}.properties", text)


def _value_rules(schema: JSON, path: str, *, skip_any_of: bool = False) -> Iterator[Cause]:
    """The value rules of a node and of those nested in it."""
    if not skip_any_of and schema.get("anyOf") != _INT_OR_STRING:
        for at, child in enumerate(schema.get("anyOf") or ()):
            yield from _nested_rules(child, f"{path}.anyOf[{at}]", rules=False)
    for at, child in enumerate(schema.get("allOf") or ()):
        skip = at == 0 and child.get("anyOf") == _INT_OR_STRING
        yield from _nested_rules(child, f"{path}.allOf[{at}]", skip_any_of=skip)
    for at, child in enumerate(schema.get("oneOf") or ()):
        yield from _nested_rules(child, f"{path}.oneOf[{at}]", rules=False)
    if schema.get("not") is not None:
        yield from _nested_rules(schema["not"], f"{path}.not", rules=False)
    if pattern := schema.get("pattern"):
        try:
            compile_pattern(pattern)
        except PatternError as error:
            text = f"must be a valid regular expression: {error}"
            yield field_errors.invalid(f"{path}.pattern", pattern, text)


def _nested_rules(schema: JSON, path: str, *, skip_any_of: bool = False, rules: bool = True) -> Iterator[Cause]:
    yield from _value_rules(schema, path, skip_any_of=skip_any_of)
    if isinstance(items := schema.get("items"), dict):
        yield from _nested_rules(items, f"{path}.items", rules=rules)
    for name, child in (schema.get("properties") or {}).items():
        yield from _nested_rules(child, f"{path}.properties[{name}]", rules=rules)
    for key, text in _FORBIDDEN_BELOW.items():
        if schema.get(key) or (key == "default" and schema.get(key) is not None):
            yield field_errors.forbidden(f"{path}.{key}", text)
    if schema.get("x-kubernetes-validations"):
        yield field_errors.forbidden(f"{path}.x-kubernetes-validations", "must be empty to be structural")
    if "metadata" in (schema.get("properties") or {}):
        yield field_errors.forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")


def _complete(rules: JSON, schema: JSON | None, path: str, where: str) -> Iterator[Cause]:
    """Fields that value rules speak of exist in the structure."""
    nested = [(f"allOf[{at}]", child) for at, child in enumerate(rules.get("allOf") or ())]
    nested += [(f"anyOf[{at}]", child) for at, child in enumerate(rules.get("anyOf") or ())]
    nested += [(f"oneOf[{at}]", child) for at, child in enumerate(rules.get("oneOf") or ())]
    nested += [("not", rules["not"])] if rules.get("not") is not None else []
    for step, child in nested:
        yield from _complete_nested(child, schema, path, f"{where}.{step}")


def _complete_nested(rules: JSON, schema: JSON | None, path: str, where: str) -> Iterator[Cause]:
    if schema is None:
        yield field_errors.required(path, f"because it is defined in {where}")
        return
    yield from _complete(rules, schema, path, where)
    if isinstance(items := rules.get("items"), dict):
        known = schema.get("items")
        below = known if isinstance(known, dict) else None
        yield from _complete_nested(items, below, f"{path}.items", f"{where}.items")
    for name, child in (rules.get("properties") or {}).items():
        step = f"properties[{name}]"
        known = (schema.get("properties") or {}).get(name)
        yield from _complete_nested(child, known, f"{path}.{step}", f"{where}.{step}")


def _default_causes(schema: JSON, path: str, root: JSON) -> Iterator[Cause]:
    """Defaults are values the schema would take, with nothing in them it would prune.

    Those below additionalProperties are not checked, as on the real server.
    """
    if (default := schema.get("default")) is not None and schema is not root:
        node = SchemaNode(schema)
        if found := value_causes(node, default, f"{path}.default"):
            yield from found
        elif node.prune(default) != default:
            yield field_errors.invalid(f"{path}.default", default, "must not have unknown fields")
    if isinstance(items := schema.get("items"), dict):
        yield from _default_causes(items, f"{path}.items", root)
    for name, child in (schema.get("properties") or {}).items():
        yield from _default_causes(child, f"{path}.properties[{name}]", root)


def _node_causes(schema: JSON, path: str, *, root: bool = False) -> Iterator[Cause]:
    """What the server supports in a schema, node by node."""
    yield from _support_causes(schema, path)
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield field_errors.forbidden(f"{path}.uniqueItems", text)
    more = schema.get("additionalProperties")
    if more is not None:
        if schema.get("properties") and more is not True:
            text = "additionalProperties and properties are mutual exclusive"
            yield field_errors.forbidden(f"{path}.additionalProperties", text)
        if isinstance(more, dict):
            yield from _node_causes(more, f"{path}.additionalProperties")
    for name, child in (schema.get("properties") or {}).items():
        if root and name in {"metadata", "kind", "apiVersion"} and child.get("default") is not None:
            text = f"must not be set in top-level {name}"
            yield field_errors.forbidden(f"{path}.properties[{name}].default", text)
        yield from _node_causes(child, f"{path}.properties[{name}]")
    for step, child in _inner(schema):
        yield from _node_causes(child, f"{path}.{step}")
    yield from _list_causes(schema, path)
    yield from declaration_causes(schema, path)


def _inner(schema: JSON) -> Iterator[tuple[str, JSON]]:
    for key in ("not", "items"):
        if isinstance(schema.get(key), dict):
            yield key, schema[key]
    for key in ("allOf", "oneOf", "anyOf"):
        yield from ((f"{key}[{at}]", child) for at, child in enumerate(schema.get(key) or ()))


def _support_causes(schema: JSON, path: str) -> Iterator[Cause]:
    kind = schema.get("type", "")
    if kind and kind not in TYPES:
        yield field_errors.not_supported(f"{path}.type", kind, TYPES)
    for key in _UNSUPPORTED:
        if schema.get(key):
            yield field_errors.forbidden(f"{path}.{key}", f"{key} is not supported")
    if kind == "null":
        text = "type cannot be set to null, use nullable as an alternative"
        yield field_errors.forbidden(f"{path}.type", text)
    if isinstance(schema.get("items"), list):
        yield field_errors.forbidden(f"{path}.items", "items must be a schema object and not an array")
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        yield field_errors.invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined")


def _list_causes(schema: JSON, path: str) -> Iterator[Cause]:
    """The rules of map types and list types."""
    kind = schema.get("type", "")
    for key, wanted, known in (
        ("x-kubernetes-map-type", "object", ("atomic", "granular")),
        ("x-kubernetes-list-type", "array", ("atomic", "set", "map")),
    ):
        given = schema.get(key)
        if given is not None and kind != wanted:
            text = f"must be {wanted} if {key} is specified"
            yield (
                field_errors.invalid(f"{path}.type", kind, text)
                if kind
                else field_errors.required(f"{path}.type", text)
            )
        if given is not None and given not in known:
            yield field_errors.not_supported(f"{path}.{key}", given, known)
    list_type = schema.get("x-kubernetes-list-type")
    items = schema["items"] if isinstance(schema.get("items"), dict) else None
    if list_type == "set" and kind == "array" and items is not None:
        text = "must be atomic as item of a list with x-kubernetes-list-type=set"
        inner = items.get("x-kubernetes-list-type")
        if items.get("type") == "array" and inner not in {None, "atomic"}:
            yield field_errors.invalid(f"{path}.items.x-kubernetes-list-type", inner, text)
        if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
            yield field_errors.invalid(f"{path}.items.x-kubernetes-map-type", inner, text)
    yield from _list_map_causes(schema, path, items)
    if list_type in {"set", "map"} and items is not None and items.get("nullable"):
        yield field_errors.forbidden(
            f"{path}.items.nullable", f"cannot be nullable when x-kubernetes-list-type is {list_type}"
        )


def _list_map_causes(schema: JSON, path: str, items: JSON | None) -> Iterator[Cause]:
    keys = schema.get("x-kubernetes-list-map-keys") or []
    list_type = schema.get("x-kubernetes-list-type")
    if keys and list_type != "map":
        text = "must be map if x-kubernetes-list-map-keys is non-empty"
        where = f"{path}.x-kubernetes-list-type"
        yield field_errors.required(where, text) if list_type is None else field_errors.invalid(where, list_type, text)
    if list_type != "map":
        return
    if not keys:
        text = "must not be empty if x-kubernetes-list-type is map"
        yield field_errors.required(f"{path}.x-kubernetes-list-map-keys", text)
    if items is None:
        if schema.get("items") is None:
            yield field_errors.required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
        return
    if items.get("type") != "object":
        text = "must be object if parent array's x-kubernetes-list-type is map"
        yield field_errors.invalid(f"{path}.items.type", items.get("type", ""), text)
        return
    yield from _list_key_causes(keys, path, items)


def _list_key_causes(keys: list[str], path: str, items: JSON) -> Iterator[Cause]:
    properties = items.get("properties") or {}
    where = f"{path}.x-kubernetes-list-map-keys"
    for at, key in enumerate(keys):
        if key not in properties:
            yield field_errors.invalid(where, keys, "entries must all be names of item properties")
        elif properties[key].get("type") in {"array", "object"}:
            text = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield field_errors.invalid(f"{path}.items.properties[{key}].type", items["type"], text)
        if key in keys[:at]:
            yield field_errors.invalid(where, keys, "must not contain duplicate entries")
    known = "this property is in x-kubernetes-list-map-keys, so it"
    for key in (key for key in keys if key in properties):
        field = f"{path}.items.properties[{key}]"
        if key not in (items.get("required") or ()) and properties[key].get("default") is None:
            yield field_errors.required(f"{field}.default", f"{known} must have a default or be a required property")
        if properties[key].get("nullable"):
            yield field_errors.forbidden(f"{field}.nullable", f"{known} cannot be nullable")
