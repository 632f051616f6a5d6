"""How facts about an object are written in a cell: ages, labels, selectors, lists that are cut short.

Shared by the modules that compute the cells of built-in kinds. Everything here is a pure function of its arguments;
`now` is in seconds since the epoch.
"""

from __future__ import annotations

from typing import Any

from steersman.errors import FormatError
from steersman.kube.api.selectors import Selector
from steersman.kube.api.times import parse_time

JSON = dict[str, Any]
Cells = list[Any]

NONE = "<none>"
UNSET = "<unset>"
UNKNOWN = "<unknown>"


def human_duration(seconds: float) -> str:
    """A duration in the two largest units that matter.

    >>> [human_duration(s) for s in (-5, -0.5, 59, 119, 150, 7200, 10_860, 200_000, 10_000_000)]
    ['<invalid>', '0s', '59s', '119s', '2m30s', '120m', '3h1m', '2d7h', '115d']
    """
    whole = int(seconds)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s" if whole >= 0 else "0s" if whole >= -1 else "<invalid>"
    if minutes < 180:
        return _two(minutes, "m", whole % 60 if minutes < 10 else 0, "s")
    if hours < 48:
        return _two(hours, "h", minutes % 60 if hours < 8 else 0, "m")
    if days < 365 * 2:
        return _two(days, "d", hours % 24 if days < 8 else 0, "h")
    return _two(days // 365, "y", days % 365 if days < 365 * 8 else 0, "d")


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def age(moment: str | None, now: float) -> str:
    """How long ago a moment was."""
    if not moment:
        return UNKNOWN
    return human_duration(now - parse_time(moment).timestamp())


def labels(values: JSON | None) -> str:
    """Labels as a selector would name them."""
    return ",".join(f"{key}={(values or {})[key]}" for key in sorted(values or {})) or NONE


def selector(wire: JSON | None) -> str:
    """A label selector in its short form."""
    try:
        return str(Selector.from_wire(wire)) or NONE
    except FormatError:
        return "<error>"


def containers(spec: JSON | None) -> tuple[str, str]:
    """Names and images of the containers of a pod spec."""
    found = (spec or {}).get("containers") or []
    return ",".join(c.get("name", "") for c in found), ",".join(c.get("image", "") for c in found)


def name_of(obj: JSON) -> str:
    """The name of an object."""
    found: str = obj["metadata"].get("name", "")
    return found


def age_of(obj: JSON, now: float) -> str:
    """The age of an object."""
    return age(obj["metadata"].get("creationTimestamp"), now)


def spec_of(obj: JSON) -> JSON:
    """The spec of an object, empty when it has none."""
    return obj.get("spec") or {}


def status_of(obj: JSON) -> JSON:
    """The status of an object, empty when it has none."""
    return obj.get("status") or {}


def has_condition(obj: JSON, kind: str) -> bool:
    """Whether an object has the condition."""
    conditions = status_of(obj).get("conditions") or []
    return next((item.get("status") == "True" for item in conditions if item.get("type") == kind), False)


def limited(items: list[str], most: int = 3, separator: str = ",") -> str:
    """The first few items, and how many more there are."""
    shown = separator.join(items[:most])
    return f"{shown} + {len(items) - most} more..." if len(items) > most else shown
