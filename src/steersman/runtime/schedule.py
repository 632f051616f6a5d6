"""When a controller looks at its objects without being told that anything changed. Pure.

Either once per interval, spread over it, or when a cron expression says so, in the time of a zone, so that two in the
morning stays there when the clocks change. Looks that were missed (a process that was down or suspended) are one look.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from steersman.errors import ConfigError, FormatError
from steersman.kube.durations import parse_duration

__all__ = ["Schedule", "make_schedule"]


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A look at everything from time to time, for what no watch can see; made by `make_schedule`."""

    every_seconds: float = 0.0  # looks are spread over this time; zero with cron, which means the moment it names
    cron: str = ""
    zone: str = "UTC"
    keys: tuple[Any, ...] | None = None  # None: every object the controller is for

    def next(self, now: float) -> float:
        """When the first look after `now` is due by `cron`, both in seconds since the epoch."""
        here = datetime.fromtimestamp(now, UTC).astimezone(ZoneInfo(self.zone))
        return next(CronSim(self.cron, here)).timestamp()

    def __str__(self) -> str:
        return f"{self.cron} in {self.zone}" if self.cron else f"every {self.every_seconds:g} s"


def make_schedule(
    *, every: float | timedelta | str | None, cron: str | None, zone: str, keys: tuple[Any, ...] | None
) -> Schedule:
    """A schedule that is known to be right; ConfigError says what is not."""
    if (every is None) == (cron is None):
        raise ConfigError('give either every= (a timedelta, "10m" or seconds) or cron= (five fields)', field="schedule")
    if every is not None:
        seconds = _seconds(every)
        if not seconds > 0:
            raise ConfigError("every must be positive", field="schedule")
        return Schedule(every_seconds=seconds, keys=keys)
    assert cron is not None
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):  # unknown; not a name; the name of a folder
        raise ConfigError(f'"{zone}" is not a time zone (try Europe/Berlin)', field="schedule") from None
    made = Schedule(cron=cron, zone=zone, keys=keys)
    try:
        made.next(0.0)
    except (CronSimError, StopIteration) as error:
        why = str(error) or "it never comes"
        raise ConfigError(f'"{cron}" is not a cron expression: {why} (try "0 2 * * *")', field="schedule") from None
    return made


def _seconds(every: float | timedelta | str) -> float:
    if isinstance(every, timedelta):
        return every.total_seconds()
    if isinstance(every, int | float):
        return float(every)
    try:
        return parse_duration(every).total_seconds()
    except FormatError as error:
        raise ConfigError(str(error), field="schedule") from None
