from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.kube.api.errors import (
    BadResponse,
    Cause,
    Conflict,
    ConnectionFailed,
    Forbidden,
    NotFound,
    RequestTimeout,
    ServerError,
    Timeout,
    TooManyRequests,
    Unavailable,
)
from steersman.kube.transport.retry import RetryPolicy, is_retryable, parse_retry_after

NOW = 1_767_225_600.0  # Thu, 01 Jan 2026 00:00:00 GMT


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("3", 3.0),
        (" 0 ", 0.0),
        ("Thu, 01 Jan 2026 00:00:07 GMT", 7.0),
        ("Thu, 01 Jan 2026 00:00:07 -0000", 7.0),
        ("Wed, 31 Dec 2025 23:59:00 GMT", 0.0),
        ("soon", None),
        ("-1", None),
        ("", None),
        (None, None),
        ("٣", None),  # a digit to Python, not to HTTP
    ],
)
def test_retry_after_is_a_number_or_a_date(value, seconds):
    assert parse_retry_after(value, now=NOW) == seconds


@given(st.integers(1, 4), st.integers(0, 2**32))
def test_backoff_doubles_and_jitter_only_shortens_it(attempt, seed):
    policy = RetryPolicy(attempts=5, first=0.2, factor=2, limit=1.0)
    full = min(1.0, 0.2 * 2 ** (attempt - 1))
    delay = policy.delay(attempt, Unavailable("no"), random.Random(seed))
    assert delay is not None
    assert full / 2 <= delay <= full


@given(st.floats(0, 60), st.integers(0, 2**32))
def test_retry_after_is_never_undercut(seconds, seed):
    delay = RetryPolicy().delay(1, TooManyRequests("no", retry_after=seconds), random.Random(seed))
    assert delay is not None
    assert seconds <= delay <= seconds * 1.1


def test_the_last_attempt_is_the_last():
    assert RetryPolicy(attempts=3).delay(3, Unavailable("no"), random.Random(1)) is None


def test_a_server_that_asks_for_more_patience_than_we_have_gets_the_caller_involved():
    assert RetryPolicy(patience=10).delay(1, Unavailable("no", retry_after=11), random.Random(1)) is None


TOO_LARGE = Timeout("no", causes=(Cause(reason="ResourceVersionTooLarge"),))


@pytest.mark.parametrize(
    ("error", "idempotent", "processed", "repeat"),
    [
        (Unavailable("no"), True, True, True),
        (ServerError("no"), True, True, True),
        (ServerError("no"), False, True, False),
        (Unavailable("no"), False, True, False),
        (TooManyRequests("no"), False, True, True),
        (ConnectionFailed("no"), False, False, True),
        (ConnectionFailed("no"), False, True, False),
        (RequestTimeout("no"), True, True, True),
        (RequestTimeout("no"), False, True, False),
        (BadResponse("no"), True, True, True),
        (Conflict("no"), True, True, False),
        (NotFound("no"), True, True, False),
        (Forbidden("no"), True, True, False),
        (TOO_LARGE, True, True, False),
    ],
)
def test_only_what_is_safe_and_may_help_is_repeated(error, idempotent, processed, repeat):
    assert is_retryable(error, idempotent=idempotent, processed=processed) is repeat
