"""What a reconcile answers: done, or once more later. Everything else it has to say is an exception.

return done                      nothing more to do until something changes (so does returning nothing)
return requeue(after=30)         once more in 30 seconds, or sooner when something changes
return requeue()                 once more soon, with growing delays while it keeps asking
raise SomeError                  failed: once more, with growing delays
raise PlanError(...)             failed because of the object: reported on it; again from 30 s on, with growing delays
raise TerminalError(...)         failed: not again until something changes

The last answer counts: a run that something else caused before the 30 seconds are over decides again, and `done` means
that no further reconcile is needed.
"""

from __future__ import annotations

from datetime import timedelta
from math import isfinite
from typing import Final

import msgspec

from steersman.errors import SteersmanError
from steersman.kube.api.errors import BadRequest, Forbidden, Invalid

__all__ = ["REJECTED", "Result", "TerminalError", "done", "requeue", "slow_retry"]

# Answers of the API server that stay the same until an object, a policy or a right changes: except REJECTED as error
REJECTED: Final = (Invalid, Forbidden, BadRequest)


class TerminalError(SteersmanError):
    """A retry cannot succeed: wait until something changes."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a reconcile; make it with `done` and `requeue`."""

    requeue: bool = False
    after_seconds: float | None = None  # None with `requeue`: by backoff
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
    return Result(requeue=True, after_seconds=None if seconds is None else float(seconds), priority=priority)


def slow_retry(rejections: int, *, first_seconds: float = 30.0, limit_seconds: float = 300.0) -> Result:
    """Reconcile again after a write that the API server rejected, `rejections` times in a row before this one.

    The delay doubles from `first_seconds` to `limit_seconds`. A change of the object reconciles at once, as ever; what
    this waits for (a quota, a policy, a right) is seen by no watch.

    >>> [slow_retry(number).after_seconds for number in (0, 1, 9, 5000)]
    [30.0, 60.0, 300.0, 300.0]
    """
    return requeue(after=min(limit_seconds, first_seconds * 2.0 ** min(rejections, 30)))
