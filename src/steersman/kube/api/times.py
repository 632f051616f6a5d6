"""Points in time as objects carry them: RFC 3339 text on the wire, aware UTC `datetime` in code.

Most timestamps have whole seconds (`metadata.creationTimestamp`); a few have exactly six decimals (`MicroTime`: the
renewal of a Lease, the time of an Event). Parsing takes any number of decimals and any offset; what is finer than a
microsecond is cut off.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from steersman.errors import FormatError
from steersman.kube.api.validation import quoted

__all__ = ["format_micro_time", "format_time", "parse_time"]

_RFC3339: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,32}))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)


def parse_time(text: str) -> datetime:
    """The point in time that RFC 3339 `text` names, in UTC.

    >>> parse_time("2024-02-29T13:00:00.25+01:00")
    datetime.datetime(2024, 2, 29, 12, 0, 0, 250000, tzinfo=datetime.timezone.utc)
    """
    match = _RFC3339.fullmatch(text)
    if match is not None:
        *parts, fraction, sign, hours, minutes = match.groups()
        offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0)) * (-1 if sign == "-" else 1)
        year, month, day, hour, minute, second = map(int, parts)
        microsecond = int((fraction or "")[:6].ljust(6, "0"))
        with suppress(ValueError, OverflowError):  # a 31st of June, an hour 24, an offset of 99 hours
            local = datetime(year, month, day, hour, minute, second, microsecond, tzinfo=timezone(offset))
            return local.astimezone(UTC)
    raise FormatError(f"{quoted(text)} is not an RFC 3339 time (try 2006-01-02T15:04:05Z)")


def format_time(when: datetime | float) -> str:
    """`when` (an aware datetime, or seconds since the epoch) in whole seconds: `2006-01-02T15:04:05Z`."""
    return f"{_utc(when):%Y-%m-%dT%H:%M:%S}Z".zfill(20)


def format_micro_time(when: datetime | float) -> str:
    """`when` (an aware datetime, or seconds since the epoch) with six decimals: `2006-01-02T15:04:05.000000Z`."""
    return f"{_utc(when):%Y-%m-%dT%H:%M:%S.%f}Z".zfill(27)


def _utc(when: datetime | float) -> datetime:
    if not isinstance(when, datetime):
        return datetime.fromtimestamp(when, UTC)
    if when.tzinfo is None:
        raise ValueError(f"{when!r} has no time zone, so it names no point in time")
    return when.astimezone(UTC)
