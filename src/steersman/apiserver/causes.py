"""The reasons an object is refused, worded as kube-apiserver words them.

A `Cause` names a field, a machine-readable reason and a sentence. The sentences quote values the way Go prints them, so
the few formatting rules of Go that show in them (`%q`, `%v` of a float, JSON with sorted keys) live here too.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from steersman.kube.errors import Cause
from steersman.kube.names import quoted as go_quote

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Cause",
    "duplicate",
    "forbidden",
    "go_float",
    "go_json",
    "go_quote",
    "invalid",
    "not_found",
    "not_supported",
    "required",
    "too_long",
    "too_many",
    "type_invalid",
]


def go_float(value: float) -> str:
    """A float as Go's `%v` prints it: the shortest digits that are exact, with an exponent from a million on.

    >>> go_float(1.0), go_float(0.5), go_float(1234567.0), go_float(0.00001)
    ('1', '0.5', '1.234567e+06', '1e-05')
    """
    if math.isinf(value) or math.isnan(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    power = len(text) + exponent - 1
    minus = "-" if sign else ""
    if value == 0:
        return f"{minus}0"
    if -4 <= power < 6:
        return minus + format(Decimal(repr(abs(value))).normalize(), "f")
    mantissa = f"{text[0]}.{text[1:]}" if len(text) > 1 else text
    return f"{minus}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"


def go_json(value: Any) -> str:
    """A JSON value as Go's `json.Marshal` prints it: sorted keys, no spaces, `<`, `>` and `&` escaped."""
    text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for char in "<>&\u2028\u2029":
        if char in text:
            text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return int(value)
    return value


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return go_quote(value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return str(value)
    if isinstance(value, int | float):
        return go_float(float(value))
    return go_json(value)


def _sentence(head: str, detail: str) -> str:
    return f"{head}: {detail}" if detail else head


def required(field: str, detail: str = "") -> Cause:
    """A value is missing."""
    return Cause("FieldValueRequired", _sentence("Required value", detail), field)


def invalid(field: str, value: Any, detail: str) -> Cause:
    """A value breaks a rule."""
    return Cause("FieldValueInvalid", _sentence(f"Invalid value: {_shown(value)}", detail), field)


def type_invalid(field: str, value: Any, detail: str) -> Cause:
    """A value has the wrong type."""
    return Cause("FieldValueTypeInvalid", _sentence(f"Invalid value: {_shown(value)}", detail), field)


def not_supported(field: str, value: Any, values: Iterable[str]) -> Cause:
    """A value is none of those allowed."""
    listed = ", ".join(go_quote(item) for item in values)
    detail = f"supported values: {listed}" if listed else ""
    return Cause("FieldValueNotSupported", _sentence(f"Unsupported value: {_shown(value)}", detail), field)


def duplicate(field: str, value: Any) -> Cause:
    """A value that must be unique is there twice."""
    return Cause("FieldValueDuplicate", f"Duplicate value: {_shown(value)}", field)


def forbidden(field: str, detail: str) -> Cause:
    """A value that cannot be set here."""
    return Cause("FieldValueForbidden", _sentence("Forbidden", detail), field)


def not_found(field: str, value: Any) -> Cause:
    """A value that refers to nothing."""
    return Cause("FieldValueNotFound", f"Not found: {_shown(value)}", field)


def too_long(field: str, limit: int) -> Cause:
    """A text is longer than allowed. The text itself is not repeated."""
    return Cause("FieldValueTooLong", f"Too long: may not be more than {limit} byte{'' if limit == 1 else 's'}", field)


def too_many(field: str, actual: int, limit: int) -> Cause:
    """A list or map has more entries than allowed."""
    return Cause(
        "FieldValueTooMany", f"Too many: {actual}: must have at most {limit} item{'' if limit == 1 else 's'}", field
    )
