"""When restarts are allowed by the calendar: a cron expression starts a window, which lasts for a time. Pure.

    0 2 * * 1-5 for 2h in Europe/Berlin

Times are those of the zone, so a window stays where people put it when the clocks change. Windows that
cannot be parsed never open: a typo must not cause a restart at noon.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from steersman.errors import FormatError
from steersman.kube.api.durations import format_duration, parse_duration
from steersman.kube.api.validation import quoted

_LONGEST: Final = timedelta(days=366)
_TWICE: Final = timedelta(hours=3)  # clocks are never set back by more
_MOST: Final = 50  # in one list: each is computed at every evaluation


class MaintenanceWindow(msgspec.Struct, frozen=True, kw_only=True):
    """One recurring window; made by `make_window`, so it is always valid."""

    cron: str
    duration: timedelta
    zone: str = "UTC"

    def next(self, now: float) -> float:
        """When it is next open, in seconds since the epoch: `now` when it is open now."""
        at = datetime.fromtimestamp(now, UTC)
        after = (at - self.duration).astimezone(_zone(self.zone))
        # In an hour that occurs twice a time of day is meant once: a search that begins in the second one would miss
        # the first.
        begin = (at - self.duration - _TWICE).astimezone(_zone(self.zone)) if after.fold else after
        start = next(time for time in CronSim(self.cron, begin) if time.timestamp() > after.timestamp())
        return max(now, start.timestamp())

    def __str__(self) -> str:
        return f"{self.cron} for {format_duration(self.duration)} in {self.zone}"


class MaintenanceWindows(msgspec.Struct, frozen=True, kw_only=True):
    """Windows of which one must be open; none at all: it is always open."""

    windows: tuple[MaintenanceWindow, ...] = ()
    broken: str = ""  # why it cannot be parsed: it never opens

    def opens(self, now: float) -> float | None:
        """When it is next open: `now` when it is open now; None when it never is."""
        if self.broken:
            return None
        return min((window.next(now) for window in self.windows), default=now)

    def __str__(self) -> str:
        return self.broken or "; ".join(map(str, self.windows)) or "always"


def make_window(cron: str, duration: str, zone: str = "") -> MaintenanceWindow:
    """One window; FormatError says which of the three is wrong."""
    zone = zone.strip() or "UTC"
    length = parse_duration(duration)
    if not timedelta(0) < length <= _LONGEST:
        raise FormatError(f"{quoted(duration)} is not a valid length of a window (try 2h)")
    try:
        tz = _zone(zone)
    except (KeyError, ValueError, OSError):
        raise FormatError(f"{quoted(zone)} is not a time zone (try Europe/Berlin or UTC)") from None
    try:
        next(CronSim(cron.strip(), datetime(2024, 1, 1, tzinfo=tz)))
    except CronSimError as error:
        raise FormatError(f"{quoted(cron)} is not a cron expression: {error} (try 0 2 * * *)") from None
    except StopIteration:
        raise FormatError(f"{quoted(cron)} never matches (try 0 2 * * *)") from None
    return MaintenanceWindow(cron=cron.strip(), duration=length, zone=zone)


def parse_windows(text: str) -> MaintenanceWindows:
    """`CRON for DURATION [in ZONE]`, several separated by semicolons; an invalid text never opens.

    >>> str(parse_windows("0 2 * * * for 2h in Europe/Berlin"))
    '0 2 * * * for 2h in Europe/Berlin'
    >>> parse_windows("at night").broken
    '"at night" is not a window (try 0 2 * * * for 2h in Europe/Berlin)'
    """
    parts = [part for part in text.split(";") if part.strip()]
    if len(parts) > _MOST:
        return MaintenanceWindows(broken=f"{len(parts)} windows are too many (at most {_MOST})")
    try:
        return MaintenanceWindows(windows=tuple(map(_opening, parts)))
    except FormatError as error:
        return MaintenanceWindows(broken=str(error))


def _opening(text: str) -> MaintenanceWindow:
    words = text.split()
    zone = ""
    if words[-2:-1] == ["in"]:
        *words, _, zone = words
    if len(words) < 3 or words[-2] != "for":
        raise FormatError(f"{quoted(text.strip()[:100])} is not a window (try 0 2 * * * for 2h in Europe/Berlin)")
    return make_window(" ".join(words[:-2]), words[-1], zone)


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
