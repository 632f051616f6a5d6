from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.runtime.workqueue.rate_limiters import ExponentialBackoff, FastSlow, TokenBucket
from steersman.testing import VirtualClock


def test_each_failure_of_a_key_doubles_its_own_delay_up_to_the_cap() -> None:
    limiter: ExponentialBackoff[str] = ExponentialBackoff(base_seconds=0.001, cap_seconds=1, jitter=0)
    assert [limiter.when("one") for _ in range(5)] == [0.001, 0.002, 0.004, 0.008, 0.016]
    assert limiter.num_requeues("one") == 5
    assert [limiter.when("two") for _ in range(2)] == [0.001, 0.002]
    assert [limiter.when("two") for _ in range(20)][-1] == 1
    limiter.forget("one")
    assert limiter.num_requeues("one") == 0
    assert limiter.when("one") == 0.001


@pytest.mark.parametrize("failures", [60, 1100, 100_000])
def test_a_key_that_fails_for_ever_never_overflows_the_delay(failures: int) -> None:
    limiter: ExponentialBackoff[str] = ExponentialBackoff(base_seconds=0.001, cap_seconds=1000, jitter=0)
    assert [limiter.when("one") for _ in range(failures)][-1] == 1000


@given(st.integers(0, 1500), st.floats(0, 1, exclude_max=True), st.floats(0, 0.99))
def test_jitter_only_shortens_and_the_delay_stays_positive_and_under_the_cap(
    failures: int, luck: float, jitter: float
) -> None:
    limiter: ExponentialBackoff[str] = ExponentialBackoff(jitter=jitter, random=lambda: luck)
    exact = min(0.005 * 2 ** min(failures, 64), 1000)
    *_, delay = (limiter.when("one") for _ in range(failures + 1))
    assert exact * (1 - jitter) <= delay <= exact
    assert delay > 0
    assert math.isfinite(delay)


def test_delays_of_keys_that_failed_together_differ() -> None:
    limiter: ExponentialBackoff[int] = ExponentialBackoff()
    assert len({limiter.when(key) for key in range(50)}) > 40


@pytest.mark.parametrize(
    "options", [{"base_seconds": 0}, {"base_seconds": 2, "cap_seconds": 1}, {"factor": 0.5}, {"jitter": 1}]
)
def test_a_backoff_that_makes_no_sense_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="base_seconds"):
        ExponentialBackoff(**options)


def test_the_first_tries_are_fast_and_the_later_ones_slow() -> None:
    limiter: FastSlow[str] = FastSlow(fast_seconds=0.005, slow_seconds=10, fast_tries=3)
    assert [limiter.when("one") for _ in range(5)] == [0.005, 0.005, 0.005, 10, 10]
    assert limiter.when("two") == 0.005
    limiter.forget("one")
    assert limiter.when("one") == 0.005
    assert limiter.num_requeues("one") == 1


async def test_a_bucket_lets_a_burst_through_and_then_spaces_all_keys_evenly() -> None:
    clock = VirtualClock()
    bucket = TokenBucket(per_second=10, burst=3, clock=clock)
    assert [bucket.when(key) for key in "abc"] == [0, 0, 0]
    assert [bucket.when(key) for key in "de"] == pytest.approx([0.1, 0.2])
    await clock.advance(0.5)
    assert [bucket.when(key) for key in "fghi"] == pytest.approx([0, 0, 0, 0.1])
    bucket.forget("f")
    assert bucket.num_requeues("f") == 0


def test_a_bucket_without_a_rate_is_refused() -> None:
    with pytest.raises(ValueError, match="per_second"):
        TokenBucket(per_second=0)
