"""Bodies: bytes in, the object a handler may trust out.

The encoding is checked, JSON or YAML is parsed, and the type in the body is compared with the type the path asks for.
Fields that appear twice are found here, because only the text shows them. Everything is refused in the real server's
words. What the fields mean is not looked at.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from steersman.apiserver import protobuf, statuses
from steersman.apiserver.jsontext import explain
from steersman.kube.errors import Cause
from steersman.kube.resources import Kind

if TYPE_CHECKING:
    from steersman.apiserver.kinds import ResourceInfo
    from steersman.apiserver.registry import Registry
    from steersman.apiserver.requests import Request

__all__ = ["body_object", "check_type", "duplicate_fields", "json_kind", "parse_json", "parse_yaml", "wrong_type"]

# Versions that are not served any more (or by another resource) but that the real server still can read.
_OLD_VERSIONS = {
    "apps": {"v1beta1", "v1beta2"},
    "autoscaling": {"v1", "v2"},
    "batch": {"v1beta1"},
    "coordination.k8s.io": {"v1beta1"},
    "discovery.k8s.io": {"v1beta1"},
    "events.k8s.io": {"v1beta1"},
    "networking.k8s.io": {"v1beta1"},
    "policy": {"v1beta1"},
    "rbac.authorization.k8s.io": {"v1alpha1", "v1beta1"},
    "storage.k8s.io": {"v1beta1"},
}
SUMMARY = 30  # bytes of a body that an error quotes
MAX_BODY = 3 * 1024 * 1024
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_MEDIA = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
_TYPE_META = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'


def body_object(registry: Registry, request: Request, expected: Kind) -> tuple[dict[str, Any], list[str]]:
    """The object in the body, and the fields that are there twice."""
    info = request.route.info
    if request.content_type in {"", "application/json"}:
        text = request.body
    elif request.content_type == "application/yaml":
        try:
            text = _encode(parse_yaml(request.body))
        except ValueError as error:
            raise statuses.bad_request(_unrecognized(expected, f"yaml: {error}", request.body)) from None
    elif request.content_type == protobuf.MEDIA_TYPE and info.custom is None:
        try:
            text = _encode(protobuf.decode(request.body))
        except ValueError as error:
            why = f"the object provided is unrecognized (must be of type {expected.kind}): {error}"
            raise statuses.bad_request(f"{why} ({_summary(request.body)})") from None
    else:
        raise statuses.unsupported_media(
            f"the body of the request was in an unknown format - accepted media types include: {_MEDIA}"
        )
    try:
        value = _decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise statuses.bad_request(_unrecognized(expected, explain(text), text)) from None
    if not isinstance(value, dict):
        why = f"json: cannot unmarshal {json_kind(value)} into Go value of type {_TYPE_META}"
        raise statuses.bad_request(_unrecognized(expected, why, text))
    if info.custom is not None and expected is info.kind and not value.get("kind"):
        whole = text.decode(errors="replace")
        raise statuses.bad_request(
            f"the object provided is unrecognized (must be of type {expected.kind}): "
            f"Object 'Kind' is missing in '{whole}' ({_summary(text)})"
        )
    check_type(registry, info, value, expected)
    return value, duplicate_fields(text, value)


def check_type(registry: Registry, info: ResourceInfo, value: dict[str, Any], expected: Kind) -> None:
    """Refuse an object of another type; what the body leaves out is taken from the path."""
    api_version = value.get("apiVersion") or (expected.api_version if info.custom is None else "")
    kind = value.get("kind") or (expected.kind if info.custom is None else "")
    if (api_version, kind) == (expected.api_version, expected.kind):
        return
    if not isinstance(api_version, str) or not isinstance(kind, str):
        wrong = value["apiVersion"] if not isinstance(api_version, str) else value["kind"]
        name = "apiVersion" if not isinstance(api_version, str) else "kind"
        raise statuses.bad_request(
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {json_kind(wrong)} into Go struct "
            f"field .{name} of type string"
        )
    group, _, version = api_version.rpartition("/")
    mismatch = statuses.bad_request(
        f"the API version in the data ({api_version}) does not match the expected API version ({expected.api_version})"
    )
    if info.custom is not None and expected is info.kind:
        if api_version != expected.api_version:
            raise mismatch
        name = (value.get("metadata") or {}).get("name", "")
        raise wrong_type(expected, name, "kind", kind, expected.kind)
    if (group, kind) == (expected.group, expected.kind) and version in _OLD_VERSIONS.get(group, ()):
        raise mismatch
    subject = f'{kind} in version "{version}" cannot be handled as a {expected.kind}'
    if registry.by_kind(group, version, kind) is None:
        raise statuses.bad_request(
            f'{subject}: no kind "{kind}" is registered for version "{api_version}" in scheme '
            '"pkg/runtime/scheme.go:111"'
        )
    internal = expected.group.partition(".")[0] or "core"
    raise statuses.bad_request(
        f"{subject}: converting ({version}.{kind}) to ({internal}.{expected.kind}): unknown conversion"
    )


def parse_json(text: bytes) -> Any:
    """A JSON value; ValueError with Go's wording otherwise."""
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ValueError(explain(text)) from None


def parse_yaml(text: bytes) -> Any:
    """A YAML (or JSON) value; ValueError with the reason otherwise."""
    if text[:1] == b"{":
        try:
            return _decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass  # flow style YAML may begin like this too
    try:
        return _plain(yaml.load(text, Loader=_Loader))  # noqa: S506  the C form of the safe loader
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ValueError(f"line {line}: {error.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(str(error).partition("\n")[0]) from None


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # the C loader has no stub of its own
    """Safe YAML without timestamps: they stay strings, as in JSON."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _plain(value: Any) -> Any:
    """YAML keys may be numbers or booleans; JSON keys are strings."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else _encode(key).decode(): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def duplicate_fields(text: bytes, value: dict[str, Any]) -> list[str]:
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


def _unrecognized(expected: Kind, why: str, text: bytes) -> str:
    return (
        f"the object provided is unrecognized (must be of type {expected.kind}): "
        f"couldn't get version/kind; json parse error: {why} ({_summary(text)})"
    )


def _summary(text: bytes) -> str:
    """The beginning of a body; one that begins like an object is shown as text, any other as hexadecimal."""
    if not text:
        return "<empty>"
    head = text[:SUMMARY]
    shown = head.decode(errors="replace") if text[:1] == b"{" else head.hex()
    return f"{shown} ..." if len(text) > SUMMARY else shown


def wrong_type(expected: Kind, name: str, field: str, given: str, wanted: str) -> statuses.StatusError:
    """A custom resource that says it is of another type."""
    shown = Kind(group=expected.group, version="", kind=given if field == "kind" else expected.kind, plural="")
    cause = Cause("FieldValueInvalid", f'Invalid value: "{given}": must be {wanted}', field)
    return statuses.invalid(shown, name, [cause])


def json_kind(value: Any) -> str:
    """What Go calls the type of a JSON value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
