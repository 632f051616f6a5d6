from __future__ import annotations

import asyncio
import gc
import random
import weakref
from typing import TYPE_CHECKING, NamedTuple

import pytest

from steersman.runtime.workqueue.queue import MAX_DELAY, Debounce, QueueClosed, WorkQueue
from steersman.runtime.workqueue.rate_limiters import ExponentialBackoff
from steersman.testing.clock import settle

if TYPE_CHECKING:
    from steersman.testing import VirtualClock


class Key(NamedTuple):
    name: str
    namespace: str = ""


@pytest.fixture
def queue(clock: VirtualClock) -> WorkQueue[str]:
    return WorkQueue(name="test", limiter=ExponentialBackoff(jitter=0), clock=clock)


async def taken(queue: WorkQueue[str]) -> list[str]:
    """Every key that is ready now, in order; all of them are left running."""
    return [await queue.get() for _ in range(len(queue))]


# -- dirty and running ---------------------------------------------------------------------------------------------


async def test_many_producers_and_workers_never_run_one_key_twice_at_once_and_lose_nothing(
    queue: WorkQueue[str],
) -> None:
    rng = random.Random(7)
    changed = dict.fromkeys("abcdefgh", 0)
    seen = dict.fromkeys("abcdefgh", 0)
    running: set[str] = set()

    async def produce() -> None:
        for _ in range(200):
            key = rng.choice("abcdefgh")
            changed[key] += 1
            queue.add(key)
            await asyncio.sleep(0)

    async def work() -> None:
        while True:
            try:
                key = await queue.get()
            except QueueClosed:
                return
            assert key not in running
            running.add(key)
            seen[key] = changed[key]
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            running.remove(key)
            queue.done(key)

    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(work())
        async with asyncio.TaskGroup() as producers:
            for _ in range(5):
                producers.create_task(produce())
        queue.close()
    assert seen == changed


async def test_a_key_changed_while_running_runs_once_more_and_only_once(queue: WorkQueue[str]) -> None:
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await taken(queue) == ["a"]
    queue.done("a")
    assert len(queue) == 0


async def test_length_counts_ready_keys_only(queue: WorkQueue[str], clock: VirtualClock) -> None:
    queue.add("a")
    queue.add("b")
    queue.add("later", after=5)
    assert len(queue) == 2
    await queue.get()
    assert len(queue) == 1
    assert queue.processing == 1
    await clock.advance(5)
    assert len(queue) == 2


async def test_a_key_can_be_added_again_after_it_was_done(queue: WorkQueue[str]) -> None:
    for _ in range(3):
        queue.add("a")
        assert await queue.get() == "a"
        queue.done("a")


async def test_a_key_added_many_times_is_handed_out_once(queue: WorkQueue[str]) -> None:
    for _ in range(5):
        queue.add("a")
    queue.add("b")
    assert await taken(queue) == ["a", "b"]
    assert queue.adds == 2


async def test_changes_that_come_while_a_key_runs_collapse_into_one(queue: WorkQueue[str]) -> None:
    queue.add("a")
    await queue.get()
    for _ in range(5):
        queue.add("a")
    queue.done("a")
    assert len(queue) == 1


async def test_done_for_a_key_that_is_not_processing_is_a_defect_that_is_named(queue: WorkQueue[str]) -> None:
    queue.add("a")
    with pytest.raises(ValueError, match="a is not processing"):
        queue.done("a")


async def test_the_queue_lets_go_of_keys_that_are_done(queue: WorkQueue[object], clock: VirtualClock) -> None:
    class Thing:
        pass

    thing = Thing()
    gone = weakref.ref(thing)
    queue.add(thing, after=100)
    queue.add(thing, priority=-100, after=0)
    queue.add(thing, priority=5)
    assert await queue.get() is thing
    queue.done(thing)
    del thing
    gc.collect()
    assert gone() is None


# -- waiting for a key ---------------------------------------------------------------------------------------------


async def test_a_cancelled_get_loses_neither_the_key_nor_the_wake_up(queue: WorkQueue[str]) -> None:
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await settle()
    queue.add("a")  # wakes the first…
    first.cancel()  # …which leaves before it looks
    await settle()
    assert first.cancelled()
    assert second.result() == "a"


async def test_a_get_cancelled_before_anything_was_added_leaves_no_trace(queue: WorkQueue[str]) -> None:
    task = asyncio.create_task(queue.get())
    await settle()
    task.cancel()
    queue.add("a")  # before the task has noticed
    await settle()
    assert await queue.get() == "a"


async def test_a_get_that_times_out_leaves_the_key_for_the_next(queue: WorkQueue[str]) -> None:
    for _ in range(100):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await queue.get()
    queue.add("a")
    assert await queue.get() == "a"
    assert not queue._getters


async def test_every_waiting_worker_gets_its_own_key(queue: WorkQueue[str]) -> None:
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await settle()
    for key in "abc":
        queue.add(key)
    assert sorted(await asyncio.gather(*workers)) == ["a", "b", "c"]


# -- ending --------------------------------------------------------------------------------------------------------


async def test_after_close_what_was_ready_is_handed_out_and_then_get_ends(queue: WorkQueue[str]) -> None:
    queue.add("a")
    queue.add("b")
    queue.close()
    queue.add("c")
    assert await taken(queue) == ["a", "b"]
    with pytest.raises(QueueClosed):
        await queue.get()


async def test_get_is_released_when_the_queue_closes(queue: WorkQueue[str]) -> None:
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await settle()
    queue.close()
    results = await asyncio.gather(*workers, return_exceptions=True)
    assert [type(result) for result in results] == [QueueClosed] * 3


async def test_close_with_drop_forgets_what_was_accepted_and_ends_every_get_at_once(queue: WorkQueue[str]) -> None:
    queue.add("running")
    await queue.get()
    queue.add("running")
    queue.add("ready")
    queue.close(drop=True)
    with pytest.raises(QueueClosed):
        await queue.get()
    queue.done("running")
    assert len(queue) == 0


async def test_workers_that_take_the_last_keys_of_a_closed_queue_release_the_others(queue: WorkQueue[str]) -> None:
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.close()
    workers = [asyncio.create_task(queue.get()) for _ in range(2)]
    await settle()
    assert not any(worker.done() for worker in workers)
    queue.done("a")
    results = await asyncio.gather(*workers, return_exceptions=True)
    assert sorted(map(str, results)) == ["a", "queue 'test' is closed and empty"]


async def test_a_closed_queue_keeps_no_timer_and_drops_what_was_waiting(
    queue: WorkQueue[str], clock: VirtualClock
) -> None:
    queue.add("ready")
    queue.add("later", after=5)
    await queue.get()
    queue.add("ready", after=5)
    queue.close()
    assert clock.pending == 0
    queue.done("ready")
    with pytest.raises(QueueClosed):
        await queue.get()


# -- delays --------------------------------------------------------------------------------------------------------


async def test_a_delayed_key_is_ready_when_its_time_has_come_and_not_before(
    queue: WorkQueue[str], clock: VirtualClock
) -> None:
    worker = asyncio.create_task(queue.get())
    queue.add("a", after=50)
    await clock.advance(49.9)
    assert not worker.done()
    await clock.advance(0.1)
    assert worker.result() == "a"


@pytest.mark.parametrize("delays", [(30, 60), (60, 30)])
async def test_of_two_delays_the_earlier_wins_whichever_came_first(
    queue: WorkQueue[str], clock: VirtualClock, delays: tuple[float, float]
) -> None:
    for delay in delays:
        queue.add("a", after=delay)
    await clock.advance(30)
    assert await taken(queue) == ["a"]
    queue.done("a")
    await clock.advance(100)
    assert len(queue) == 0


async def test_a_key_added_at_once_does_not_run_again_at_its_old_time(
    queue: WorkQueue[str], clock: VirtualClock
) -> None:
    queue.add("a", after=10)
    queue.add("a", after=0)
    assert await taken(queue) == ["a"]
    queue.done("a")
    await clock.advance(60)
    assert len(queue) == 0


async def test_a_later_key_does_not_hold_back_an_earlier_one_added_after_it(
    queue: WorkQueue[str], clock: VirtualClock
) -> None:
    queue.add("first", after=1)
    queue.add("second", after=0.5)
    queue.add("third", after=0.25)
    await clock.advance(0.25)
    assert await taken(queue) == ["third"]
    await clock.advance(0.25)
    assert await taken(queue) == ["second"]
    await clock.advance(0.5)
    assert await taken(queue) == ["first"]


async def test_delayed_keys_come_in_the_order_of_their_times_even_when_nothing_read_in_between(
    queue: WorkQueue[str], clock: VirtualClock
) -> None:
    for key, delay in {"c": 3.0, "a": 1.0, "d": 4.0, "b": 2.0}.items():
        queue.add(key, after=delay)
    clock.pause(10)  # the loop was busy
    assert [await queue.get() for _ in range(4)] == ["a", "b", "c", "d"]


async def test_a_delay_asked_for_while_the_key_runs_counts_from_then(
    queue: WorkQueue[str], clock: VirtualClock
) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a", after=10)
    await clock.advance(4)
    queue.done("a")
    await clock.advance(5.9)
    assert len(queue) == 0
    await clock.advance(0.1)
    assert len(queue) == 1


async def test_a_delay_that_ended_while_the_key_ran_makes_it_ready_at_done(
    queue: WorkQueue[str], clock: VirtualClock
) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a", after=1)
    await clock.advance(2)
    assert len(queue) == 0
    queue.done("a")
    assert len(queue) == 1


@pytest.mark.parametrize("delay", [-1.0, 0.0, float("nan")])
async def test_a_delay_that_is_not_in_the_future_is_none(queue: WorkQueue[str], delay: float) -> None:
    queue.add("a", after=delay)
    assert await taken(queue) == ["a"]


async def test_a_delay_beyond_what_timers_can_count_is_shortened(queue: WorkQueue[str], clock: VirtualClock) -> None:
    queue.add("a", after=1e18)
    assert clock.next_due == clock.monotonic() + MAX_DELAY


async def test_one_timer_serves_any_number_of_waiting_keys(queue: WorkQueue[str], clock: VirtualClock) -> None:
    for number in range(1000):
        queue.add(str(number), after=1 + number % 17)
    assert clock.pending == 1
    await clock.advance(17)
    assert len(queue) == 1000
    assert clock.pending == 0


async def test_a_time_moved_forward_again_and_again_leaves_no_litter(queue: WorkQueue[str]) -> None:
    for number in range(10_000):
        queue.add("a", after=20_000 - number)
    assert len(queue._heap) < 100
    assert len(queue._waiting) == 1


# -- backoff -------------------------------------------------------------------------------------------------------


async def test_failures_of_a_key_wait_longer_each_time_until_it_is_forgotten(queue: WorkQueue[str]) -> None:
    assert [queue.add_rate_limited("one") for _ in range(3)] == [0.005, 0.01, 0.02]
    assert queue.add_rate_limited("two") == 0.005
    assert queue.num_requeues("one") == 3
    queue.forget("one")
    assert queue.num_requeues("one") == 0
    assert queue.add_rate_limited("one") == 0.005
    assert queue.retries == 5


async def test_a_retry_with_its_own_delay_takes_the_smaller_of_both(queue: WorkQueue[str]) -> None:
    assert queue.add_rate_limited("one", after=0.001) == 0.001
    assert queue.add_rate_limited("one", after=60) == 0.01


async def test_keys_in_backoff_do_not_affect_each_other(queue: WorkQueue[str], clock: VirtualClock) -> None:
    for _ in range(10):
        queue.add_rate_limited("often")
    queue.add_rate_limited("once")
    await clock.advance(0.005)
    assert sorted(await taken(queue)) == ["often", "once"]  # the earliest retry of "often" still stands
    queue.done("often")
    queue.done("once")
    assert queue.add_rate_limited("often") == pytest.approx(5.12)
    assert queue.add_rate_limited("once") == 0.01
    await clock.advance(0.01)
    assert await taken(queue) == ["once"]


async def test_a_change_does_not_wait_for_the_backoff_of_an_earlier_failure(queue: WorkQueue[str]) -> None:
    for _ in range(15):
        queue.add_rate_limited("a")
    queue.add("a")
    assert await taken(queue) == ["a"]


# -- debouncing ----------------------------------------------------------------------------------------------------


@pytest.fixture
def calm(clock: VirtualClock) -> WorkQueue[str]:
    return WorkQueue(debounce=Debounce(quiet_seconds=2, limit_seconds=10), clock=clock)


async def test_a_debounced_key_is_ready_after_it_was_still_for_long_enough(
    calm: WorkQueue[str], clock: VirtualClock
) -> None:
    calm.add("a")
    await clock.advance(1.5)
    calm.add("a")
    await clock.advance(1.5)
    assert len(calm) == 0
    await clock.advance(0.5)
    assert await taken(calm) == ["a"]


async def test_a_burst_within_the_debounce_collapses_into_one_run(calm: WorkQueue[str], clock: VirtualClock) -> None:
    for _ in range(1000):
        calm.add("a")
        await clock.advance(0.001)
    assert len(calm._heap) == 1
    await clock.advance(2)
    assert await taken(calm) == ["a"]
    calm.done("a")
    await clock.advance(60)
    assert len(calm) == 0


async def test_constant_change_cannot_hold_a_key_back_beyond_the_limit(
    calm: WorkQueue[str], clock: VirtualClock
) -> None:
    worker = asyncio.create_task(calm.get())
    start = clock.monotonic()
    while not worker.done():
        calm.add("a")
        await clock.advance(0.5)
        assert clock.monotonic() <= start + 10
    assert clock.monotonic() == start + 10


async def test_the_limit_starts_again_after_each_run(calm: WorkQueue[str], clock: VirtualClock) -> None:
    calm.add("a")
    await clock.advance(2)
    await calm.get()
    await clock.advance(60)
    calm.add("a")
    calm.done("a")
    await clock.advance(1.9)
    assert len(calm) == 0
    await clock.advance(0.1)
    assert len(calm) == 1


async def test_an_explicit_time_is_kept_while_a_key_is_debounced(calm: WorkQueue[str], clock: VirtualClock) -> None:
    calm.add("a", after=3)
    for _ in range(6):
        await clock.advance(0.5)
        calm.add("a")
    assert await taken(calm) == ["a"]


async def test_a_key_being_debounced_does_not_block_the_others(calm: WorkQueue[str], clock: VirtualClock) -> None:
    calm.add("noisy")
    await clock.advance(1)
    calm.add("noisy")
    calm.add("still", after=0)
    assert await taken(calm) == ["still"]


@pytest.mark.parametrize(("quiet", "limit"), [(0, 1), (2, 1), (-1, 1)])
def test_a_debounce_that_makes_no_sense_is_refused(quiet: float, limit: float) -> None:
    with pytest.raises(ValueError, match="quiet_seconds"):
        Debounce(quiet_seconds=quiet, limit_seconds=limit)


# -- holding keys until somebody asks ------------------------------------------------------------------------------


async def test_keys_are_held_and_collapsed_until_workers_start(queue: WorkQueue[str]) -> None:
    for key in ("a", "b", "a", "b", "a"):
        queue.add(key)
    assert await taken(queue) == ["a", "b"]


async def test_keys_that_are_let_go_of_leave_no_trace_wherever_they_stood(
    queue: WorkQueue[str], clock: VirtualClock
) -> None:
    queue.add("running")
    assert await queue.get() == "running"
    for number in range(300):
        queue.add(f"ready {number}", priority=number % 3)
        queue.add(f"later {number}", after=5.0)
    queue.add("running")
    queue.add("kept")
    queue.retain(lambda key: key == "kept")
    assert queue.dirty == 2
    queue.done("running")
    await clock.advance(10)
    assert await taken(queue) == ["kept", "running"]


async def test_a_ready_key_is_not_rescheduled_by_a_later_request(queue: WorkQueue[str]) -> None:
    queue.add("a")
    queue.add("a", after=60)
    assert await taken(queue) == ["a"]


async def test_a_key_that_was_handed_out_can_be_scheduled_again(queue: WorkQueue[str], clock: VirtualClock) -> None:
    queue.add("a", after=5)
    await clock.advance(5)
    assert await queue.get() == "a"
    queue.add("a", after=5)
    queue.done("a")
    await clock.advance(5)
    assert await queue.get() == "a"


# -- looking -------------------------------------------------------------------------------------------------------


async def test_counters_and_histograms_say_what_happened(queue: WorkQueue[str], clock: VirtualClock) -> None:
    queue.add("a")
    await clock.advance(0.05)
    await queue.get()
    await clock.advance(5)
    assert queue.processing_seconds() == [5]
    queue.add_rate_limited("a")
    queue.done("a")
    assert (queue.adds, queue.retries) == (2, 1)
    assert queue.queue_seconds.count == queue.work_seconds.count == 1
    assert queue.queue_seconds.total == pytest.approx(0.05)
    assert queue.work_seconds.total == pytest.approx(5)
    assert queue.processing_seconds() == []


async def test_the_description_names_every_key_and_why_it_is_where_it_is(
    queue: WorkQueue[Key], clock: VirtualClock
) -> None:
    queue.add(Key("running", "x"), priority=3)
    await queue.get()
    queue.add(Key("running", "x"))
    queue.add(Key("ready", "x"))
    queue.add_rate_limited(Key("waiting", "x"))
    await clock.advance(0.001)
    described = queue.describe()
    assert described["counts"] == {"ready": 1, "waiting": 1, "running": 1}
    assert described["ready"][0]["forSeconds"] == pytest.approx(0.001)
    assert described["waiting"][0]["inSeconds"] == pytest.approx(0.004)
    assert described["waiting"][0]["failures"] == 1
    assert described["running"][0]["priority"] == 3
    assert described["running"][0]["dirty"] is True
    assert queue.describe(limit=0)["ready"] == []
