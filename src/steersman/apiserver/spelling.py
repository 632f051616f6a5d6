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

__all__ = ["SPELLINGS", "micro_time", "quantity", "time"]

MICRO_TIME: Final = re.compile(r"[\d-]+T[\d:]{8}((?:\.\d+)?)(Z|[+-]\d\d:\d\d)")
MICRO_LAYOUT: Final = '"2006-01-02T15:04:05.000000Z07:00"'


def quantity(value: Any) -> Any:
    """A quantity in the form the server answers with.

    >>> [quantity(text) for text in ("1000m", "1.5Gi", "0.5", "1024Ki", 2)]
    ['1', '1536Mi', '500m', '1Mi', '2']
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise FormatError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    return str(Quantity.parse(str(value)))


def time(value: Any) -> str:
    """A time in UTC with whole seconds."""
    return format_time(parse_time(value))


def micro_time(value: Any) -> str:
    """A time in UTC with microseconds. The server reads these only with exactly six decimals."""
    if not isinstance(value, str) or (found := MICRO_TIME.fullmatch(value)) is None:
        raise FormatError(f"parsing time {quoted(str(value))} as {MICRO_LAYOUT}: cannot parse {quoted(str(value))}")
    if len(found[1]) != 7:
        raise FormatError(f'parsing time "{value}" as {MICRO_LAYOUT}: cannot parse "{found[1]}{found[2]}" as ".000000"')
    return format_micro_time(parse_time(value))


def as_is(value: Any) -> Any:
    """A value the server does not respell."""
    return value


META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
APIEXTENSIONS: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
SPELLINGS: Final[dict[str, Callable[[Any], Any]]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": quantity,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": as_is,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": as_is,
    META + "Duration": as_is,
    META + "FieldsV1": as_is,
    META + "MicroTime": micro_time,
    META + "Time": time,
    APIEXTENSIONS + "JSON": as_is,
    APIEXTENSIONS + "JSONSchemaProps": as_is,
}
