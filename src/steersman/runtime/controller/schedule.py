"""Schedules: when a controller reconciles all its objects although no watch reported a change.

Either once per interval, spread over it, or when a cron expression says so, in the time of a zone, so that two in the
morning stays there when the clocks change. Runs that were missed (a process that was down or suspended) become one.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from steersman.errors import ConfigError, FormatError
from steersman.kube.api.durations import parse_duration

if TYPE_CHECKING:
    from steersman.clock import Clock

__all__ = ["Schedule", "make_schedule", "seconds_of"]

NAP_SECONDS = 60.0  # the wall clock may be set while we wait


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Reconciles from time to time, for what no watch can see; made by `make_schedule`."""

    every_seconds: float = 0.0  # reconciles are spread over this time; zero with cron, which names a moment
    cron: str = ""
    zone: str = "UTC"
    keys: tuple[Any, ...] | None = None  # None: every object the controller is for

    def next(self, now: float) -> float:
        """When `cron` is next due after `now`, both in seconds since the epoch."""
        here = datetime.fromtimestamp(now, UTC).astimezone(ZoneInfo(self.zone))
        return next(CronSim(self.cron, here)).timestamp()

    async def wait(self, clock: Clock) -> None:
        """Return when it is next due."""
        if not self.cron:
            await clock.sleep(self.every_seconds)
            return
        due = self.next(clock.time())
        while (left := due - clock.time()) > 0:
            await clock.sleep(min(left, NAP_SECONDS))

    def __str__(self) -> str:
        return f"{self.cron} in {self.zone}" if self.cron else f"every {self.every_seconds:g} s"


def make_schedule(
    *, every: float | timedelta | str | None, cron: str | None, zone: str, keys: tuple[Any, ...] | None
) -> Schedule:
    """A schedule that is known to be right; ConfigError says what is not."""
    if (every is None) == (cron is None):
        raise ConfigError('give either every= (a timedelta, "10m" or seconds) or cron= (five fields)', field="schedule")
    if every is not None:
        seconds = seconds_of(every, field="schedule")
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


def seconds_of(duration: float | timedelta | str, *, field: str) -> float:
    """A duration that an author wrote: a timedelta, text such as "10m", or a number of seconds."""
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if isinstance(duration, int | float):
        return float(duration)
    try:
        return parse_duration(duration).total_seconds()
    except FormatError as error:
        raise ConfigError(str(error), field=field) from None
