"""From the bytes of a body to an object of the type the path asks for.

    bytes ─► media type ─► JSON, YAML or protobuf ─► right kind? ─► duplicate and unknown fields ─► type and defaults

Built-in kinds pass through their recorded types, custom resources through their structural schemas: fields the type
does not know are dropped and can be named (fieldValidation), nulls and empty values that mean nothing go, and defaults
are filled in. Duplicate fields are found in the text, because only the text shows them. Whether values are allowed is
decided later, in `validation`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from steersman.apiserver import status_errors
from steersman.apiserver.crd.definition_rules import default_definition
from steersman.apiserver.discovery import protobuf
from steersman.apiserver.resources.conform import ConformError, conform
from steersman.apiserver.resources.defaults import apply_defaults
from steersman.apiserver.resources.schema import builtin_schema
from steersman.apiserver.validation import field_errors
from steersman.bounded_parsing import Budget, load_yaml
from steersman.errors import FormatError
from steersman.kube.api.gvk import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.apiserver.http.requests import Request
    from steersman.apiserver.resources.kinds import ResourceInfo
    from steersman.apiserver.resources.schema import Schema

JSON = dict[str, Any]
MAX_BODY = 3 * 1024 * 1024
MAX_DEPTH = 200  # objects and lists inside each other; what walks them is recursive
_BUDGET = Budget(size=MAX_BODY, nodes=1_000_000, expanded=4 * MAX_BODY, depth=MAX_DEPTH)  # aliases are bounded too
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_MEDIA = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
_NO_KIND = Kind(version="", kind="", plural="")


def body_object(request: Request, expected: Kind) -> tuple[JSON, list[str]]:
    """The object in the body, and the fields that are there twice."""
    info = request.route.info
    try:
        if request.content_type in {"", "application/json"}:
            text = request.body
        elif request.content_type == "application/yaml":
            text = _encode(parse_yaml(request.body))
        elif request.content_type == protobuf.MEDIA_TYPE and info.custom is None:
            text = _encode(protobuf.decode(request.body, expected))
        else:
            raise status_errors.unsupported_media(
                f"the body of the request was in an unknown format - accepted media types include: {_MEDIA}"
            )
        value = parse_json(text)
    except ValueError as error:
        why = f"the object provided is unrecognized (must be of type {expected.kind}): {error}"
        raise status_errors.bad_request(why) from None
    if value is None:
        value = {}  # to a Go program null is a struct without fields
    if not isinstance(value, dict):
        raise status_errors.bad_request(
            f"the object provided is unrecognized (must be of type {expected.kind}): got {json_kind(value)}"
        )
    _check_type(info, value, expected)
    return value, duplicate_fields(text, value)


def _check_type(info: ResourceInfo, value: JSON, expected: Kind) -> None:
    """Reject an object of another type; what the body of a built-in kind leaves out is taken from the path."""
    custom = info.custom is not None and expected is info.kind
    for name in ("apiVersion", "kind"):
        if (given := value.get(name)) is not None and not isinstance(given, str):
            raise status_errors.bad_request(f"{name} must be a string, not {json_kind(given)}")
    api_version = value.get("apiVersion") or ("" if custom else expected.api_version)
    kind = value.get("kind") or ("" if custom else expected.kind)
    if (api_version, kind) == (expected.api_version, expected.kind):
        return
    if custom and not kind:
        raise status_errors.bad_request(
            f"the object provided is unrecognized (must be of type {expected.kind}): Object 'Kind' is missing"
        )
    if kind == expected.kind or (custom and api_version != expected.api_version):
        raise status_errors.bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version "
            f"({expected.api_version})"
        )
    if custom:
        name = (value.get("metadata") or {}).get("name", "")
        raise wrong_type(expected, name, "kind", kind, expected.kind)
    raise status_errors.bad_request(f"{api_version} {kind} cannot be handled as a {expected.kind}")


def parse_json(text: bytes) -> Any:
    """A JSON value; ValueError with the reason otherwise."""
    try:
        value = _decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if text.count(b"{") + text.count(b"[") > MAX_DEPTH and _deeper(value, MAX_DEPTH):
        raise ValueError(_TOO_DEEP)
    return value


_TOO_DEEP = f"the body is nested too deeply: more than {MAX_DEPTH} objects and lists inside each other"


def _deeper(value: Any, limit: int) -> bool:
    """Whether more than `limit` objects and lists are inside each other."""
    if not isinstance(value, dict | list):
        return False
    if limit == 0:
        return True
    items = value.values() if isinstance(value, dict) else value
    return any(_deeper(item, limit - 1) for item in items)


def parse_yaml(text: bytes) -> Any:
    """A YAML (or JSON) value; ValueError with the reason otherwise."""
    if text[:1] == b"{":
        try:
            return parse_json(text)
        except ValueError:
            pass  # flow style YAML may begin like this too
    try:
        documents = load_yaml(text, _BUDGET)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ValueError(f"the body is not valid YAML: line {line}: {error.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"the body is not valid YAML: {str(error).partition(chr(10))[0]}") from None
    if len(documents) > 1:
        raise ValueError("the body must be a single YAML document")
    return _with_text_keys(documents[0] if documents else None)


def _with_text_keys(value: Any) -> Any:
    """YAML keys may be numbers or booleans; JSON keys are strings."""
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else _encode(key).decode(): _with_text_keys(item) for key, item in value.items()
        }
    if isinstance(value, list):
        return [_with_text_keys(item) for item in value]
    return value


def duplicate_fields(text: bytes, value: JSON) -> list[str]:
    """Paths of the fields that appear more than once in `text`, which decodes to `value`.

    A body without them has as many keys as the value it decodes to; only otherwise the text is walked.
    """
    if text.count(b'":') == _encode(value).count(b'":'):
        return []
    found: list[str] = []

    def walk(pairs: Any, path: str) -> None:
        if isinstance(pairs, _Pairs):
            seen: set[str] = set()
            for key, item in pairs:
                where = f"{path}.{key}" if path else key
                if key in seen and where not in found:
                    found.append(where)
                seen.add(key)
                walk(item, where)
        elif isinstance(pairs, list):
            for index, item in enumerate(pairs):
                walk(item, f"{path}[{index}]")

    walk(json.loads(text, object_pairs_hook=_Pairs), "")
    return found


class _Pairs(list[tuple[str, Any]]):
    """An object as its pairs, in order."""


def wrong_type(expected: Kind, name: str, field: str, given: str, wanted: str) -> status_errors.StatusError:
    """A custom resource that says it is of another type."""
    shown = Kind(group=expected.group, version="", kind=given if field == "kind" else expected.kind, plural="")
    return status_errors.invalid(shown, name, [field_errors.invalid(field, given, f"must be {wanted}")])


def json_kind(value: Any) -> str:
    """The type of a JSON value, as messages name it."""
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), "null")


def typed_object(
    info: ResourceInfo,
    obj: JSON,
    *,
    validation: str,
    warnings: list[str],
    duplicates: list[str] | None = None,
    patch: bool = False,
    applied: bool = False,  # the result of a server-side apply
) -> JSON:
    """`obj` as its type holds it, with defaults. `validation` says what happens to fields the type does not know."""
    if validation != "Ignore":
        unknown = _unknown(info, obj)
        _report(info.kind, duplicates or [], unknown, warnings, strict=validation == "Strict", patch=patch)
    if not isinstance(obj.get("metadata", {}), dict):
        if obj["metadata"] is not None:
            why = f"metadata must be an object, not {json_kind(obj['metadata'])}"
            raise not_decodable(info.kind, why, patch=patch)
        obj = {**obj, "metadata": {}}
    try:
        if info.custom is None:
            obj = apply_defaults(info.kind, obj)
            return default_definition(obj) if info.kind.kind == "CustomResourceDefinition" else obj
        obj = {"metadata": {}, **conform(info.schema, info.structural.prune(_with_plain_numbers(obj)))}
    except (ConformError, FormatError) as error:
        if applied and info.custom is None:
            raise status_errors.internal(f"the applied configuration cannot be converted: {error}") from None
        raise not_decodable(info.kind, str(error), patch=patch) from None
    return info.structural.default(obj)


def subresource_object(request: Request, kind: Kind, validation: str) -> JSON:
    """The object in the body of a subresource that has a kind of its own, as that type holds it, with defaults."""
    value, duplicates = body_object(request, kind)
    if validation != "Ignore":
        unknown = unknown_fields(builtin_schema(kind), value)
        _report(kind, duplicates, unknown, request.warnings, strict=validation == "Strict", patch=False)
    try:
        return apply_defaults(kind, {**value, "apiVersion": kind.api_version, "kind": kind.kind})
    except (ConformError, FormatError) as error:
        raise not_decodable(kind, str(error), patch=False) from None


def _report(
    kind: Kind, duplicates: list[str], unknown: list[str], warnings: list[str], *, strict: bool, patch: bool
) -> None:
    """Warn of fields that are there twice or that the type does not know; a strict request is refused for them."""
    problems = [f'duplicate field "{path}"' for path in duplicates] + [f'unknown field "{path}"' for path in unknown]
    if problems and strict:
        raise not_decodable(kind, f"strict decoding error: {', '.join(problems)}", patch=patch)
    warnings.extend(problems)


def _with_plain_numbers(value: Any) -> Any:
    """Numbers without a declared type as the API server writes them: 3.0 as 3, and beyond 64 bits as a float."""
    if isinstance(value, dict):
        changed = {
            key: new
            for key, item in value.items()
            if isinstance(item, dict | list | int | float) and (new := _with_plain_numbers(item)) is not item
        }
        return {**value, **changed} if changed else value
    if isinstance(value, list):
        items = [_with_plain_numbers(item) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    whole = isinstance(value, int) and -(2**63) <= value < 2**63
    if whole or not isinstance(value, int | float):
        return value
    number = float(value)
    return int(number) if number.is_integer() and abs(number) < 1e21 else number


def not_decodable(kind: Kind, why: str, *, patch: bool) -> status_errors.StatusError:
    """A body that does not decode is a bad request; the result of a patch that does not is an invalid object."""
    if patch:
        return status_errors.invalid(_NO_KIND, "", [field_errors.invalid("patch", "", why)])
    return status_errors.bad_request(
        f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}'
    )


def _unknown(info: ResourceInfo, obj: JSON) -> list[str]:
    if info.custom is not None:
        return info.structural.unknown_fields(obj)
    return unknown_fields(info.schema, obj)


def unknown_fields(schema: Schema, obj: JSON) -> list[str]:
    """Paths of the fields of a built-in object that its type does not have, in the order of the object.

    Values without a declared shape (raw extensions, managed fields, JSON in a schema) hide nothing.
    """
    return list(_undeclared(schema, obj, ""))


def _undeclared(schema: Schema, value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict) and schema.is_map:
        for name, item in value.items():
            here = f"{path}.{name}" if path else name
            below = schema.field(name)
            if below is None:
                yield here
            elif isinstance(item, dict | list):
                yield from _undeclared(below, item, here)
    elif isinstance(value, list) and schema.is_list:
        for at, item in enumerate(value):
            if isinstance(item, dict | list):
                yield from _undeclared(schema.items, item, f"{path}[{at}]")
