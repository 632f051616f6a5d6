"""The one spelling of values that can be written in several ways: quantities, times, durations.

The server reads `1000m` and answers `1`, reads a local time and answers UTC. Each function takes the value of a field
of its type and returns how the server writes it. Raises FormatError for a value that is none of its type.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from steersman.errors import FormatError
from steersman.kube.names import quoted
from steersman.kube.quantities import Quantity
from steersman.kube.times import format_micro_time, format_time, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

__all__ = ["SPELLINGS", "WrongType", "int_or_string", "micro_time", "quantity", "time"]

# What a time must have, one part after the other, by the names Go's layout gives them.
LAYOUT: Final = (
    ("2006", r"\d{4}"),
    ("-", "-"),
    ("01", r"\d\d"),
    ("-", "-"),
    ("02", r"\d\d"),
    ("T", "T"),
    ("15", r"\d\d"),
    (":", ":"),
    ("04", r"\d\d"),
    (":", ":"),
    ("05", r"\d\d"),
    ("Z07:00", r"Z|[+-]\d\d:\d\d"),
)
RANGES: Final = (
    ("month", 5, 1, 12),
    ("day", 8, 1, 31),
    ("hour", 11, 0, 23),
    ("minute", 14, 0, 59),
    ("second", 17, 0, 59),
)


class WrongType(Exception):  # noqa: N818 - it becomes an error once the field is known
    """The value cannot be read at all; the text is the Go type it should have."""


def quantity(value: Any) -> str:
    """A quantity in the form the server answers with.

    >>> [quantity(text) for text in ("1000m", "1.5Gi", "0.5", "1024Ki", 2)]
    ['1', '1536Mi', '500m', '1Mi', '2']
    """
    known = not isinstance(value, bool) and isinstance(value, int | float | str)
    return str(Quantity.parse(str(value) if known else "true"))


def time(value: Any) -> str:
    """A time in UTC with whole seconds."""
    return format_time(_parsed(value, decimals=False))


def micro_time(value: Any) -> str:
    """A time in UTC with microseconds. The server reads these only with exactly six decimals."""
    return format_micro_time(_parsed(value, decimals=True))


def _parsed(value: Any, *, decimals: bool) -> datetime:
    if not isinstance(value, str):
        raise WrongType("string")
    rest = value
    for name, pattern in LAYOUT[:-1]:
        rest = _read(rest, pattern, name, value, decimals=decimals)
    fraction = (r"\.\d{6}", ".000000") if decimals else (r"(?:[.,]\d+)?", "")
    rest = _read(rest, *fraction, value, decimals=decimals)
    rest = _read(rest, LAYOUT[-1][1], LAYOUT[-1][0], value, decimals=decimals)
    if rest:
        raise FormatError(f"parsing time {quoted(value)}: extra text: {quoted(rest)}")
    for name, start, low, high in RANGES:
        if not low <= int(value[start : start + 2]) <= high:
            raise FormatError(f"parsing time {quoted(value)}: {name} out of range")
    try:
        return parse_time(value)
    except FormatError:
        raise FormatError(f"parsing time {quoted(value)}: day out of range") from None


def _read(rest: str, pattern: str, wanted: str, value: str, *, decimals: bool) -> str:
    if (found := re.match(pattern, rest, re.ASCII)) is None:
        layout = '"2006-01-02T15:04:05.000000Z07:00"' if decimals else '"2006-01-02T15:04:05Z07:00"'
        raise FormatError(f"parsing time {quoted(value)} as {layout}: cannot parse {quoted(rest)} as {quoted(wanted)}")
    return rest[found.end() :]


def int_or_string(value: Any) -> Any:
    """A whole number or a text."""
    whole = isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31
    if not whole and not isinstance(value, str):
        raise WrongType("int32")
    return value


def as_is(value: Any) -> Any:
    """A value the server does not respell."""
    return value


META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
APIEXTENSIONS: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
SPELLINGS: Final[dict[str, Callable[[Any], Any]]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": quantity,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": as_is,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": int_or_string,
    META + "Duration": as_is,
    META + "FieldsV1": as_is,
    META + "MicroTime": micro_time,
    META + "Time": time,
    APIEXTENSIONS + "JSON": as_is,
    APIEXTENSIONS + "JSONSchemaProps": as_is,
}
