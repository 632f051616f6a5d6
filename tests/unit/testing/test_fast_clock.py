"""The clock that hurries: proportions stay, and nothing comes early."""

from __future__ import annotations

import asyncio

import pytest

from steersman.testing import FastClock


async def test_a_sleep_ends_when_its_seconds_have_passed_on_this_clock_and_not_before():
    clock = FastClock(1000)
    before = clock.monotonic()
    await clock.sleep(20)
    assert clock.monotonic() - before >= 20


async def test_callbacks_run_in_the_order_they_are_due_and_never_early():
    clock, ran, last = FastClock(1000), [], asyncio.Event()
    start = clock.monotonic()
    clock.call_at(start + 40, lambda: (ran.append((40, clock.monotonic())), last.set()))
    clock.call_at(start + 10, lambda: ran.append((10, clock.monotonic())))
    clock.call_at(start + 20, lambda: ran.append((20, clock.monotonic()))).cancel()
    await last.wait()
    assert [due for due, _ in ran] == [10, 40]
    assert all(when - start >= due - 1e-6 for due, when in ran)


async def test_wall_time_and_durations_pass_alike():
    clock = FastClock(1000)
    outer, wall, inner = clock.monotonic(), clock.time(), clock.monotonic()
    await clock.sleep(50)
    shortest = clock.monotonic() - inner
    passed = clock.time() - wall
    assert shortest - 1e-3 <= passed <= clock.monotonic() - outer + 1e-3


def test_a_speed_that_is_none_is_refused():
    with pytest.raises(ValueError, match="cannot run 0 times as fast"):
        FastClock(0)
