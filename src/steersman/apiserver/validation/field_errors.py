"""The causes of a rejected object: which field, which reason, and a sentence for the person who wrote it.

Field and reason are those of kube-apiserver, and clients may rely on them. The sentence is our own; it begins with the
phrase Kubernetes uses for the reason (`Invalid value: "x"`) and quotes at most the beginning of a long value.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from steersman.apiserver.resources.schema import builtin_enum
from steersman.kube.api.errors import Cause

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

QUOTED_LIMIT = 120  # characters of a value in a message


def shown(value: Any) -> str:
    """A value as a message quotes it: JSON on one line, cut short.

    >>> shown("a"), shown({"b": [1, True]})
    ('"a"', '{"b":[1,true]}')
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text if len(text) <= QUOTED_LIMIT else f"{text[:QUOTED_LIMIT]}…"


def _sentence(head: str, detail: str) -> str:
    return f"{head}: {detail}" if detail else head


def required(field: str, detail: str = "") -> Cause:
    """A value is missing."""
    return Cause("FieldValueRequired", _sentence("Required value", detail), field)


def invalid(field: str, value: Any, detail: str) -> Cause:
    """A value breaks a rule."""
    return Cause("FieldValueInvalid", _sentence(f"Invalid value: {shown(value)}", detail), field)


def type_invalid(field: str, value: Any, detail: str) -> Cause:
    """A value has the wrong type."""
    return Cause("FieldValueTypeInvalid", _sentence(f"Invalid value: {shown(value)}", detail), field)


def not_supported(field: str, value: Any, values: Iterable[Any]) -> Cause:
    """A value is not one of those allowed."""
    listed = ", ".join(shown(item) for item in values)
    detail = f"supported values: {listed}" if listed else ""
    return Cause("FieldValueNotSupported", _sentence(f"Unsupported value: {shown(value)}", detail), field)


def enum_causes(struct: Mapping[str, Any], type_name: str, path: str, *fields: str) -> list[Cause]:
    """Fields of a built-in type whose value is not one of those that the API documents."""
    return [
        not_supported(f"{path}.{field}", value, allowed)
        for field in fields
        if (value := struct.get(field)) and value not in (allowed := builtin_enum(type_name, field))
    ]


def duplicate(field: str, value: Any) -> Cause:
    """A value that must be unique is there twice."""
    return Cause("FieldValueDuplicate", f"Duplicate value: {shown(value)}", field)


def forbidden(field: str, detail: str) -> Cause:
    """A value that cannot be set here."""
    return Cause("FieldValueForbidden", _sentence("Forbidden", detail), field)


def not_found(field: str, value: Any) -> Cause:
    """A value that refers to nothing."""
    return Cause("FieldValueNotFound", f"Not found: {shown(value)}", field)


def too_long(field: str, limit: int) -> Cause:
    """A text is longer than allowed. The text itself is not repeated."""
    return Cause("FieldValueTooLong", f"Too long: may not be more than {limit} byte{'' if limit == 1 else 's'}", field)


def too_many(field: str, actual: int, limit: int) -> Cause:
    """A list or map has more entries than allowed."""
    items = f"{limit} item{'' if limit == 1 else 's'}"
    return Cause("FieldValueTooMany", f"Too many: {actual}: must have at most {items}", field)
