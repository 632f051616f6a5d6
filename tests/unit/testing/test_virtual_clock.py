from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.testing import VirtualClock
from steersman.testing.clock import settle


async def test_time_stands_still_until_it_is_advanced(clock):
    before = clock.time(), clock.monotonic()
    await asyncio.sleep(0)
    assert (clock.time(), clock.monotonic()) == before
    await clock.advance(2.5)
    assert clock.time() - before[0] == clock.monotonic() - before[1] == 2.5


async def test_callbacks_run_in_order_of_due_time_each_at_its_own_instant(clock):
    start, seen = clock.monotonic(), []
    for delay in (3, 1, 2, 1):
        clock.call_at(start + delay, lambda delay=delay: seen.append((delay, clock.monotonic() - start)))
    await clock.advance(2)
    assert seen == [(1, 1), (1, 1), (2, 2)]
    assert clock.pending == 1


async def test_callbacks_due_together_run_in_the_order_they_were_set(clock):
    seen = []
    for number in range(20):
        clock.call_at(clock.monotonic() + 1, lambda number=number: seen.append(number))
    await clock.advance(1)
    assert seen == list(range(20))


async def test_a_timer_set_by_a_callback_inside_the_advanced_span_runs_too(clock):
    start, seen = clock.monotonic(), []

    def first() -> None:
        clock.call_at(start + 2, lambda: seen.append(clock.monotonic() - start))

    clock.call_at(start + 1, first)
    await clock.advance(10)
    assert seen == [2]


async def test_a_callback_already_due_runs_without_time_passing(clock):
    seen = []
    clock.call_at(clock.monotonic() - 5, lambda: seen.append("late"))
    assert seen == []
    await clock.advance(0)
    assert seen == ["late"]


@pytest.mark.parametrize("delay", [0, 1])
async def test_a_cancelled_timer_never_runs(clock, delay):
    seen = []
    clock.call_at(clock.monotonic() + delay, lambda: seen.append("ran")).cancel()
    await clock.advance(5)
    assert seen == []
    assert clock.pending == 0
    assert clock.next_due is None


async def test_a_sleeper_wakes_at_its_instant_and_may_sleep_again(clock):
    start, woke = clock.monotonic(), []

    async def sleeper() -> None:
        for _ in range(3):
            await clock.sleep(10)
            woke.append(clock.monotonic() - start)

    task = asyncio.create_task(sleeper())
    await clock.advance(25)
    assert woke == [10, 20]
    await clock.advance(5)
    assert task.done()
    assert woke == [10, 20, 30]


async def test_a_cancelled_sleeper_leaves_no_timer_behind(clock):
    task = asyncio.create_task(clock.sleep(60))
    await clock.advance(0)
    assert clock.pending == 1
    task.cancel()
    await clock.advance(0)
    assert task.cancelled()
    assert clock.pending == 0


async def test_sleeping_for_nothing_only_yields(clock):
    before = clock.monotonic()
    await clock.sleep(0)
    await clock.sleep(-1)
    assert (clock.monotonic(), clock.pending) == (before, 0)


async def test_everything_a_callback_starts_comes_to_rest_before_time_moves_on(clock):
    start, finished = clock.monotonic(), []

    async def chain(depth: int) -> None:
        if depth:
            await asyncio.create_task(chain(depth - 1))
        else:
            finished.append(clock.monotonic() - start)

    tasks = []
    clock.call_at(start + 1, lambda: tasks.append(asyncio.create_task(chain(30))))
    clock.call_at(start + 2, lambda: finished.append("second"))
    await clock.advance(2)
    assert finished == [1, "second"]
    await asyncio.gather(*tasks)


async def test_a_loop_that_never_rests_is_reported_instead_of_hanging(clock, monkeypatch):
    monkeypatch.setattr("steersman.testing.clock._ROUNDS", 50)

    async def spin() -> None:
        for _ in range(1000):
            await asyncio.sleep(0)

    task = asyncio.create_task(spin())
    with pytest.raises(AssertionError, match="something in it never waits"):
        await clock.advance(1)
    task.cancel()


async def test_advance_until_goes_no_further_than_the_timer_that_made_it_true(clock):
    seen = []
    for delay in (5, 7, 9):
        clock.call_at(clock.monotonic() + delay, lambda delay=delay: seen.append(delay))
    assert await clock.advance_until(lambda: 7 in seen) == 7
    assert seen == [5, 7]


async def test_advance_until_says_why_it_gave_up(clock):
    with pytest.raises(AssertionError, match="no timer is set"):
        await clock.advance_until(lambda: False)
    clock.call_at(clock.monotonic() + 100, lambda: None)
    with pytest.raises(AssertionError, match="the next timer is 100 s away"):
        await clock.advance_until(lambda: False, limit=10)


async def test_an_error_in_a_callback_reaches_the_test(clock):
    clock.call_at(clock.monotonic() + 1, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await clock.advance(1)


async def test_monotonic_time_never_goes_back_but_the_wall_clock_may(clock):
    with pytest.raises(ValueError, match="jump"):
        await clock.advance(-1)
    wall, now = clock.time(), clock.monotonic()
    clock.jump(-3600)
    assert clock.time() == wall - 3600
    assert clock.monotonic() == now


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=30), st.integers(0, 50))
def test_exactly_the_timers_due_and_not_cancelled_run_in_a_stable_order(timers, span):
    async def history() -> list[tuple[int, int]]:
        clock, seen = VirtualClock(), []
        for number, (delay, cancel) in enumerate(timers):
            timer = clock.call_at(clock.monotonic() + delay, lambda pair=(delay, number): seen.append(pair))
            if cancel:
                timer.cancel()
        await clock.advance(span)
        return seen

    expected = sorted((delay, number) for number, (delay, cancel) in enumerate(timers) if delay <= span and not cancel)
    assert asyncio.run(history()) == expected


async def test_what_was_due_while_no_operator_ran_is_late_and_time_does_not_go_back(clock):
    seen: list[float] = []
    start = clock.monotonic()
    clock.call_at(start + 5, lambda: seen.append(clock.monotonic() - start))
    clock.pause(60)
    await settle()
    assert seen == []
    await clock.advance(1)
    assert seen == [60]
    assert clock.monotonic() == start + 61
