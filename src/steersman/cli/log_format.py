"""How a running process writes its log: for people on a terminal, one JSON object per line elsewhere.

When the reader goes away or the disk is full, lines are lost and the process goes on.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from steersman.cli.output import harmless
from steersman.errors import traceback_of
from steersman.logger import FloodLog, Logger

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_loaded: dict[str, Any] = sys.modules
_loaded.setdefault("rich", None)  # structlog would load it: 3 MiB that no line here uses
import structlog  # noqa: E402

if _loaded["rich"] is None:
    del _loaded["rich"]


def configure_logging(*, level: str = "info", form: str = "auto") -> None:
    """Write to standard error, from `level` on. `form` is text, json, auto or shipshape (JSON with its names)."""
    text = form == "text" or (form == "auto" and sys.stderr.isatty())
    number = logging.getLevelNamesMapping()[level.upper()]
    last: list[Any] = (
        [_harmless, _traceback_below, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
        if text
        else [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()]
    )
    if form == "shipshape":
        from steersman.operators.reload.compat.profiles.logs import shipshape_line

        last = [structlog.processors.format_exc_info, shipshape_line]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: _Lines(sys.stderr),  # standard error as it is then, not as it is now
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[_Foreign()])
    logging.raiseExceptions = False  # a line that cannot be written is not worth a traceback that cannot be written
    atexit.register(_leave_in_silence)


def _leave_in_silence() -> None:
    """Discard what standard error did not take: losing it is not a failure of the process."""
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


class _Foreign(logging.Handler):
    """What asyncio and other libraries log, in the same form, once per flood: their lines are for callers to cause."""

    def __init__(self) -> None:
        super().__init__()
        self._floods = FloodLog(Logger(__name__))

    def emit(self, record: logging.LogRecord) -> None:
        event, _, rest = record.getMessage().partition("\n")
        error = record.exc_info[1] if record.exc_info else None
        values: dict[str, Any] = {"logger": record.name}
        if rest:
            values["details"] = rest
        if error is not None:
            values["traceback"] = traceback_of(error)
        say = self._floods.error if record.levelno >= logging.ERROR else self._floods.warning
        say(event, kind=(record.name, type(error).__name__), **values)


class _Lines(structlog.PrintLogger):
    """Prints lines; those that cannot be printed are lost."""

    def msg(self, message: str) -> None:
        with suppress(OSError):
            super().msg(message)

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


def _harmless(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """What others wrote must not command the terminal; line breaks are quoted by the renderer."""
    return {name: harmless(value) if isinstance(value, str) else value for name, value in event.items()}


def _traceback_below(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Line by line below its event, where the renderer puts a `stack`; indented, so that none passes for an event."""
    if isinstance(event.get("traceback"), str):
        lines = event.pop("traceback").split("\n")
        event["stack"] = "\n".join(f"    {line}".rstrip() for line in lines)
    return event
