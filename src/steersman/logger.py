"""Loggers that load structlog when the first word is said, and not before.

structlog loads rich wherever that is installed: a quarter of the time an operator needs to start, for a renderer that a
process in a cluster never uses. These say the same things through it; what `structlog.configure` sets up counts at the
moment of saying.

A log that nobody reads any more is nobody's failure: a closed pipe or a full disk costs the line, never the work that
wanted to say it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

__all__ = ["Logger"]


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
        """For who looks for a cause."""
        self._say("debug", event, values)

    def info(self, event: str, **values: Any) -> None:
        """Something happened."""
        self._say("info", event, values)

    def warning(self, event: str, **values: Any) -> None:
        """Somebody should look at this."""
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
