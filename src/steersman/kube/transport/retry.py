"""When a failed request is sent again, and after how long.

    safe to repeat?   GET and HEAD always; anything else only when the server cannot have acted on it:
                      the connection was never made, or it answered 429 (or 401, which the transport handles)
    how long?         what Retry-After says, else exponential backoff with jitter
    how often?        `attempts` in all; a Retry-After longer than `patience` is left to the caller, as are 4xx

A write that may have been processed is never repeated here: the caller knows whether its effect is idempotent.
"""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import msgspec

from steersman.kube.api.errors import (
    BadResponse,
    ConnectionFailed,
    KubeError,
    RequestTimeout,
    ServerError,
    TooManyRequests,
)

if TYPE_CHECKING:
    import random

__all__ = ["RetryPolicy", "is_retryable", "parse_retry_after"]


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How hard to try. All durations are seconds."""

    attempts: int = 5  # with the delays below, a server that restarts within about 3 s is not noticed
    first: float = 0.2
    factor: float = 2.0
    limit: float = 10.0
    patience: float = 60.0  # a caller asked to wait longer gets an error with .retry_after and can do other work

    def delay(self, attempt: int, error: KubeError, random: random.Random) -> float | None:
        """Seconds to wait before attempt number `attempt + 1`; None to give up. The first attempt is number 1."""
        if attempt >= self.attempts:
            return None
        jitter = random.random()
        if error.retry_after is not None:
            # A little later than asked, so that clients which were turned away together do not return together.
            return error.retry_after * (1 + jitter / 10) if error.retry_after <= self.patience else None
        return min(self.limit, self.first * self.factor ** (attempt - 1)) * (0.5 + jitter / 2)


def is_retryable(error: KubeError, *, idempotent: bool, processed: bool) -> bool:
    """Whether sending the same request again is safe and may help. `processed`: the server may have acted on it."""
    if isinstance(error, TooManyRequests):
        return True
    if not error.retryable or (processed and not idempotent):
        return False
    if any(cause.reason == "ResourceVersionTooLarge" for cause in error.causes):
        return False  # this server may never reach that resourceVersion: the reader asks for another
    return isinstance(error, ServerError | ConnectionFailed | RequestTimeout | BadResponse)


def parse_retry_after(value: str | None, *, now: float) -> float | None:
    """Seconds to wait, from a Retry-After header: a number or an HTTP date; None when absent or nonsense.

    >>> parse_retry_after("Thu, 01 Jan 1970 00:01:00 GMT", now=50), parse_retry_after("soon", now=50)
    (10.0, None)
    """
    if not value:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:  # "-0000" means UTC of unknown origin
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, moment.timestamp() - now)
