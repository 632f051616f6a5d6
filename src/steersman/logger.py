"""Loggers that load structlog when the first word is said, and not before.

structlog loads rich wherever that is installed: a quarter of the time an operator needs to start, for a renderer that a
process in a cluster never uses. These say the same things through it; what `structlog.configure` sets up counts at the
moment of saying.

A log without a reader is not a failure: a closed pipe or a full disk costs the line, never the work that
wanted to say it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from steersman.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Hashable

    from steersman.clock import Clock

__all__ = ["FloodLog", "Logger"]


class Logger:
    """A structlog logger by name, with values that every line carries."""

    __slots__ = ("_name", "_values")

    def __init__(self, name: str, **values: Any) -> None:
        self._name = name
        self._values = values

    def bind(self, **values: Any) -> Logger:
        """The same, with more values."""
        return Logger(self._name, **{**self._values, **values})

    def debug(self, event: str, **values: Any) -> None:
        """Details for finding a cause."""
        self._say("debug", event, values)

    def info(self, event: str, **values: Any) -> None:
        """Something happened."""
        self._say("info", event, values)

    def warning(self, event: str, **values: Any) -> None:
        """Something that needs attention."""
        self._say("warning", event, values)

    def error(self, event: str, **values: Any) -> None:
        """Something failed."""
        self._say("error", event, values)

    def exception(self, event: str, **values: Any) -> None:
        """Something failed with the exception that is being handled."""
        self._say("exception", event, values)

    def _say(self, level: str, event: str, values: dict[str, Any]) -> None:
        import structlog

        if "traceback" in values and not structlog.is_configured():  # its own renderer quotes all but a `stack`
            values = {**values, "stack": values["traceback"]}
            del values["traceback"]
        with suppress(OSError):
            getattr(structlog.get_logger(self._name, **self._values), level)(event, **values)


class FloodLog:
    """A logger for what callers cause as often as they like: one line per flood.

    The first line of an event (and `kind`, where an event has several) is written at once. Those that follow within
    `seconds` are counted, and the next one that is written says how many they were.
    """

    def __init__(self, log: Logger, *, seconds: float = 60.0, most: int = 1000, clock: Clock = SYSTEM_CLOCK) -> None:
        """`most` bounds how many events and kinds are known at once."""
        self._log, self._seconds, self._most, self._clock = log, seconds, most, clock
        self._floods: dict[Hashable, tuple[float, int]] = {}  # event and kind: written when, held back since

    def warning(self, event: str, *, kind: Hashable = None, **values: Any) -> None:
        """Something that needs attention."""
        self._say("warning", event, kind, values)

    def error(self, event: str, *, kind: Hashable = None, **values: Any) -> None:
        """Something failed."""
        self._say("error", event, kind, values)

    def _say(self, level: str, event: str, kind: Hashable, values: dict[str, Any]) -> None:
        now = self._clock.monotonic()
        written, held = self._floods.get((event, kind), (None, 0))
        if written is not None and now - written < self._seconds:
            self._floods[event, kind] = written, held + 1
            return
        if len(self._floods) >= self._most:
            self._floods.clear()
        self._floods[event, kind] = now, 0
        getattr(self._log, level)(event, **values, **({"not_logged": held} if held else {}))
