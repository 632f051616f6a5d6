"""The one exception tree. Every error says what is wrong, where, and what would be right.

    SteersmanError
    ├── ConfigError        a file, flag or variable is wrong       → which, where, and what would be right
    ├── FormatError        text is not the selector, quantity, duration, time or patch it should be (also a ValueError)
    ├── KubeError          the API server said no or said nothing  → .reason .retryable .request (kube.errors)
    ├── PlanError          desired state cannot be computed        → becomes a condition on the object that caused it
    └── DriverError        a server, webhook or probe we talk to   → .server .retryable

Text of an error may be shown, logged and stored: it never holds a secret value.
"""

from __future__ import annotations

import os
import traceback
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "ConfigError",
    "DriverError",
    "FormatError",
    "PlanError",
    "SteersmanError",
    "summary_of",
    "traceback_of",
    "without_callers",
]

_RUNTIME: Final = f"{Path(__file__).with_name('runtime')}{os.sep}"


class SteersmanError(Exception):
    """The root of everything Steersman raises on purpose."""


class ConfigError(SteersmanError):
    """A file, flag or environment variable is wrong.

    >>> str(ConfigError('"5 sec" is not a duration (try 5s)', where="steersman.yaml:14", field="reload.quietPeriod"))
    'steersman.yaml:14: reload.quietPeriod: "5 sec" is not a duration (try 5s)'
    """

    def __init__(self, message: str, *, where: str | None = None, field: str | None = None) -> None:
        super().__init__(": ".join(part for part in (where, field, message) if part))
        self.message = message
        self.where = where
        self.field = field


class FormatError(SteersmanError, ValueError):
    """A value does not have the form it should have; the caller adds where it came from."""


class PlanError(SteersmanError):
    """Desired state cannot be computed from what the cluster holds; the object that caused it carries the reason."""

    retryable: ClassVar[bool] = False  # whether time alone may help; otherwise retries begin after 30 s

    def __init__(self, message: str, *, reason: str, field: str | None = None) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.message = message
        self.reason = reason
        self.field = field


class DriverError(SteersmanError):
    """Something outside Kubernetes that we talk to failed."""

    def __init__(self, message: str, *, server: str, retryable: bool = True) -> None:
        super().__init__(message if message.startswith(f"{server}: ") else f"{server}: {message}")
        self.message = message
        self.server = server
        self.retryable = retryable


def summary_of(error: BaseException) -> str:
    """What happened, in a line; of a group, what happened in each of its members."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(summary_of(member) for member in error.exceptions))
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def traceback_of(error: BaseException, *, limit: int = 12) -> str:
    """Where `error` and its causes happened, for a log: the innermost frames of each, without local variables.

    Renderers that are given the exception itself may print locals, and those hold objects, Secrets among them. How the
    runtime came to call a function of another package is left out: it is the same every time.
    """
    shown = traceback.TracebackException.from_exception(error)
    for part in _parts(shown):
        part.stack[:] = without_callers(part.stack)[-limit:]
    return "".join(shown.format()).rstrip()


def without_callers(frames: Sequence[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """The frames from the first on that is not the runtime's; all of them when every one is."""
    own = list(takewhile(lambda frame: frame.filename.startswith(_RUNTIME), frames))
    return list(frames[len(own) :] or frames)


def _parts(shown: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    yield shown
    for other in (shown.__cause__, shown.__context__, *(shown.exceptions or ())):
        if other is not None:
            yield from _parts(other)
