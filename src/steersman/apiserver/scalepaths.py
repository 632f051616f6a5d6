"""Whether a custom resource keeps its replica counts and its selector where its definition says they are.

The scale subresource reads and writes them there, so they must be numbers it can show. The sentences quote values the
way Go prints them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from steersman.apiserver import causes
from steersman.apiserver.causes import Cause, go_float

if TYPE_CHECKING:
    from steersman.apiserver.kinds import ScalePaths

__all__ = ["scale_causes"]

MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
MIN_INT64: Final = -(2**63)


def scale_causes(scale: ScalePaths | None, obj: dict[str, Any], *, spec: bool = True) -> list[Cause]:
    """Whether what the scale subresource shows can be shown."""
    if scale is None:
        return []
    found = _replica_causes(scale.spec_replicas, obj) if spec else []
    found += _replica_causes(scale.status_replicas, obj)
    if scale.selector:
        value, problem = _nested(obj, scale.selector, "string")
        if problem:
            found.append(causes.invalid(scale.selector, value or "", problem))
    return found


def _replica_causes(path: str, obj: dict[str, Any]) -> list[Cause]:
    value, problem = _nested(obj, path, "int64")
    count: int = value or 0
    if problem:
        return [causes.invalid(path, 0, problem)]
    if count < 0:
        return [causes.invalid(path, count, "should be a non-negative integer")]
    if count > MAX_INT32:
        return [causes.invalid(path, count, f"should be less than or equal to {MAX_INT32}")]
    return []


def _nested(obj: dict[str, Any], path: str, go_name: str) -> tuple[Any, str]:
    """The value at a dotted path, or the words of Go's accessor when something else is there."""
    value: Any = obj
    walked = ""
    for part in path.removeprefix(".").split("."):
        if not isinstance(value, dict):
            return None, _accessor_error(walked, value, "map[string]interface{}")
        walked += f".{part}"
        if part not in value:
            return None, ""
        value = value[part]
    if _go_type(value) != go_name:
        return None, _accessor_error(walked, value, go_name)
    return value, ""


def _accessor_error(path: str, value: Any, expected: str) -> str:
    return f"{path} accessor error: {_go_value(value)} is of the type {_go_type(value)}, expected {expected}"


def _go_value(value: Any) -> str:
    """A value as Go's `%v` prints it."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{_go_value(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(_go_value(item) for item in value)}]"
    if value is None or isinstance(value, bool):
        return "<nil>" if value is None else str(value).lower()
    return go_float(float(value)) if _go_type(value) == "float64" else str(value)


def _go_type(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and not MIN_INT64 <= value <= MAX_INT64:
        return "float64"
    names = {bool: "bool", str: "string", int: "int64", float: "float64", type(None): "<nil>"}
    return names.get(type(value), "map[string]interface {}" if isinstance(value, dict) else "[]interface {}")
