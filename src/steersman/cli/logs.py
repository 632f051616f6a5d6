"""How a running process writes its log: for people on a terminal, one JSON object per line elsewhere."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import structlog

from steersman.cli.output import harmless

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["configure_logging"]


def configure_logging(*, level: str = "info", form: str = "auto") -> None:
    """Write to standard error, from `level` on. `form` is text, json, auto or shipshape (JSON with its names)."""
    text = form == "text" or (form == "auto" and sys.stderr.isatty())
    number = logging.getLevelNamesMapping()[level.upper()]
    last: list[Any] = (
        [_harmless, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
        if text
        else [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()]
    )
    if form == "shipshape":
        from steersman.operators.reload.profiles.logs import shipshape_line

        last = [structlog.processors.format_exc_info, shipshape_line]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # standard error as it is then, not as it is now
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=max(number, logging.WARNING), stream=sys.stderr)


def _harmless(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """What others wrote must not command the terminal; line breaks are quoted by the renderer."""
    return {name: harmless(value) if isinstance(value, str) else value for name, value in event.items()}
