"""Cron schedules as the server reads them: five fields, or a descriptor such as `@daily` or `@every 1h`.

Only whether a schedule can be read is answered, in the words of the server's parser. When it fires is not computed.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from steersman.errors import FormatError, SteersmanError
from steersman.kube.durations import parse_go_duration
from steersman.kube.names import quoted

__all__ = ["ScheduleError", "check_schedule"]

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DESCRIPTORS = {"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}


class ScheduleError(SteersmanError):
    """A text that is not a schedule."""


class _Bounds(NamedTuple):
    low: int
    high: int
    names: dict[str, int]


_FIELDS = (
    _Bounds(0, 59, {}),
    _Bounds(0, 23, {}),
    _Bounds(1, 31, {}),
    _Bounds(1, 12, {name: at + 1 for at, name in enumerate(_MONTHS)}),
    _Bounds(0, 6, {name: at for at, name in enumerate(_DAYS)}),
)


def check_schedule(text: str) -> None:
    """Raise `ScheduleError` unless `text` is a schedule."""
    if not text:
        raise ScheduleError("empty spec string")
    if text.startswith(("TZ=", "CRON_TZ=")):
        text = text.partition(" ")[2].strip()
    if text.startswith("@"):
        _check_descriptor(text)
        return
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise ScheduleError(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    for field, bounds in zip(fields, _FIELDS, strict=True):
        for part in filter(None, field.split(",")):
            _check_range(part, bounds)


def _check_descriptor(text: str) -> None:
    if text in _DESCRIPTORS:
        return
    if not text.startswith("@every "):
        raise ScheduleError(f"unrecognized descriptor: {text}")
    duration = text.removeprefix("@every ")
    try:
        parse_go_duration(duration)
    except FormatError as error:
        raise ScheduleError(f"failed to parse duration {text}: {error}") from None


def _check_range(expression: str, bounds: _Bounds) -> None:
    span, *steps = expression.split("/")
    low, *rest = span.split("-")
    if low in {"*", "?"}:
        start, end = bounds.low, bounds.high
    else:
        start = _number(low, bounds.names)
        if len(rest) > 1:
            raise ScheduleError(f"too many hyphens: {expression}")
        end = _number(rest[0], bounds.names) if rest else start
    if len(steps) > 1:
        raise ScheduleError(f"too many slashes: {expression}")
    step = _number(steps[0], {}) if steps else 1
    if steps and not rest and low not in {"*", "?"}:
        end = bounds.high
    if start < bounds.low:
        raise ScheduleError(f"beginning of range ({start}) below minimum ({bounds.low}): {expression}")
    if end > bounds.high:
        raise ScheduleError(f"end of range ({end}) above maximum ({bounds.high}): {expression}")
    if start > end:
        raise ScheduleError(f"beginning of range ({start}) beyond end of range ({end}): {expression}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {expression}")


def _number(text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if re.fullmatch(r"[+-]?[0-9]+", text) is None:
        raise ScheduleError(f"failed to parse int from {text}: strconv.Atoi: parsing {quoted(text)}: invalid syntax")
    value = int(text)
    if value < 0:
        raise ScheduleError(f"negative number ({value}) not allowed: {text}")
    return value
