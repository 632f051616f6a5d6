"""What a reconcile answers: done, or once more later. Everything else it has to say is an exception.

return done                      nothing more to do until something changes (so does returning nothing)
return requeue(after=30)         once more in 30 seconds, whatever happens until then
return requeue()                 once more soon, with growing delays while it keeps asking
raise SomeError                  failed: once more, with growing delays
raise TerminalError(...)         failed for good: not again until something changes (so does PlanError)
"""

from __future__ import annotations

from datetime import timedelta
from math import isfinite

import msgspec

from steersman.errors import SteersmanError

__all__ = ["Result", "TerminalError", "done", "requeue"]


class TerminalError(SteersmanError):
    """Trying again is of no use: wait until something changes."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a reconcile; make it with `done` and `requeue`."""

    again: bool = False
    after_seconds: float | None = None  # None with `again`: by backoff
    priority: int | None = None  # None: as before


done = Result()


def requeue(*, after: float | timedelta | None = None, priority: int | None = None) -> Result:
    """Reconcile once more: `after` a time (seconds or timedelta), or soon with growing delays.

    >>> requeue(after=timedelta(minutes=1)).after_seconds
    60.0
    """
    seconds = after.total_seconds() if isinstance(after, timedelta) else after
    if seconds is not None and not (isfinite(seconds) and seconds > 0):
        raise ValueError(
            f"requeue(after={seconds}): the time must be positive and finite; requeue() backs off by itself"
        )
    return Result(again=True, after_seconds=None if seconds is None else float(seconds), priority=priority)
