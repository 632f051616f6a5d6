"""Cron schedules, as far as a simulation needs them: five fields, names, steps, ranges, and the usual descriptors.

Whether a minute matches is all there is to know; nobody computes far ahead, because looking once a minute is enough.
The server has checked the text before it is read here. Pure.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import msgspec

__all__ = ["Cron", "last_due"]

_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LOOKBACK_MINUTES = 100  # a schedule that was missed for longer has nothing to catch up with


class Cron(msgspec.Struct, frozen=True, kw_only=True):
    """The values each field allows."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # 0 is Sunday
    any_day: bool  # one of the two day fields is a star: both must match; otherwise one is enough

    @classmethod
    def parse(cls, text: str) -> Cron:
        """Read a schedule; ValueError when it is none that is known here, such as `@every 5s`."""
        fields = _DESCRIPTORS.get(text, text).split()
        if len(fields) != 5:
            raise ValueError(f'"{text}" is not a schedule of five fields')
        minute, hour, day, month, weekday = fields
        return cls(
            minutes=_values(minute, 0, 59),
            hours=_values(hour, 0, 23),
            days=_values(day, 1, 31),
            months=_values(month, 1, 12, _MONTHS, 1),
            weekdays=frozenset(value % 7 for value in _values(weekday, 0, 7, _DAYS, 0)),
            any_day=day[0] in "*?" or weekday[0] in "*?",
        )

    def matches(self, when: datetime) -> bool:
        """Whether the minute of `when` is one of them."""
        day, weekday = when.day in self.days, when.isoweekday() % 7 in self.weekdays
        return (
            when.minute in self.minutes
            and when.hour in self.hours
            and when.month in self.months
            and ((day and weekday) if self.any_day else (day or weekday))
        )


_parse = lru_cache(maxsize=256)(Cron.parse)


def last_due(text: str, zone: str | None, since: float, now: float) -> float | None:
    """The latest minute after `since` and not after `now` that matches, in seconds since the epoch."""
    cron, place = _parse(text), ZoneInfo(zone) if zone else UTC
    minute = datetime.fromtimestamp(now, UTC).replace(second=0, microsecond=0)
    for _ in range(_LOOKBACK_MINUTES):
        if minute.timestamp() <= since:
            return None
        if cron.matches(minute.astimezone(place)):
            return minute.timestamp()
        minute -= timedelta(minutes=1)
    return None


def _values(text: str, low: int, high: int, names: tuple[str, ...] = (), offset: int = 0) -> frozenset[int]:
    found: set[int] = set()
    for part in text.lower().split(","):
        span, _, step = part.partition("/")
        first, dash, last = span.partition("-")
        if first in {"*", "?"}:
            start, end = low, high
        else:
            start = _number(first, names, offset)
            end = _number(last, names, offset) if dash else high if step else start
        found.update(range(start, end + 1, int(step) if step else 1))
    return frozenset(found)


def _number(text: str, names: tuple[str, ...], offset: int) -> int:
    return names.index(text) + offset if text in names else int(text)
