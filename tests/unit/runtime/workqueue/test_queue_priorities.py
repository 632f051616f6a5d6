from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from steersman.kube.api.gvk import NamespacedName
from steersman.runtime.workqueue.queue import LOW_PRIORITY, QueueClosed, WorkQueue
from steersman.runtime.workqueue.rate_limiters import ExponentialBackoff
from steersman.runtime.workqueue.ready_queue import TURN
from steersman.testing.clock import settle

if TYPE_CHECKING:
    from steersman.testing import VirtualClock


@pytest.fixture
def queue(clock: VirtualClock) -> WorkQueue[str]:
    return WorkQueue(limiter=ExponentialBackoff(jitter=0), clock=clock)


@pytest.fixture
def objects(clock: VirtualClock) -> WorkQueue[NamespacedName]:
    return WorkQueue(clock=clock)


async def taken(queue: WorkQueue[str]) -> list[str]:
    return [await queue.get() for _ in range(len(queue))]


async def test_keys_come_by_priority_and_then_in_the_order_they_were_added(queue: WorkQueue[str]) -> None:
    for key, priority in {"low": LOW_PRIORITY, "a": 0, "urgent": 10, "b": 0}.items():
        queue.add(key, priority=priority)
    assert await taken(queue) == ["urgent", "a", "b", "low"]


async def test_a_running_key_is_never_handed_out_and_does_not_block_those_behind_it(queue: WorkQueue[str]) -> None:
    queue.add("a", priority=9)
    await queue.get()
    queue.add("a", priority=9)
    queue.add("b")
    assert await queue.get() == "b"
    waiting = asyncio.create_task(queue.get())
    await settle()
    assert not waiting.done()
    queue.done("a")
    assert await waiting == "a"


async def test_a_running_key_that_is_added_is_ready_as_soon_as_it_is_done(queue: WorkQueue[str]) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a", priority=2)
    queue.done("a")
    assert queue.depths() == {2: 1}


async def test_a_key_keeps_the_highest_priority_it_was_added_with(queue: WorkQueue[str]) -> None:
    queue.add("a", priority=1)
    queue.add("a", priority=7)
    queue.add("a", priority=3)
    assert queue.depths() == {7: 1}
    await queue.get()
    assert queue.priority("a") == 7


async def test_a_raised_key_jumps_forward_to_the_end_of_its_new_priority(queue: WorkQueue[str]) -> None:
    queue.add("a")
    queue.add("b")
    queue.add("first", priority=1)
    queue.add("b", priority=1)
    queue.add("last", priority=1)
    assert await taken(queue) == ["first", "b", "last", "a"]


async def test_a_waiting_key_keeps_its_highest_priority_and_its_lowest_delay(
    queue: WorkQueue[str], clock: VirtualClock
) -> None:
    queue.add("a", priority=5, after=60)
    queue.add("a", priority=1, after=10)
    queue.add("b", priority=3, after=10)
    await clock.advance(10)
    assert queue.depths() == {5: 1, 3: 1}
    assert await taken(queue) == ["a", "b"]


async def test_keys_that_wait_for_their_time_are_neither_in_the_length_nor_in_the_depth(
    queue: WorkQueue[str], clock: VirtualClock
) -> None:
    for number in range(10):
        queue.add(str(number), priority=number % 2, after=1)
    assert (len(queue), queue.depths()) == (0, {})
    await clock.advance(1)
    assert (len(queue), queue.depths()) == (10, {1: 5, 0: 5})


async def test_a_high_priority_key_that_became_ready_goes_before_a_low_one_that_was_ready_first(
    queue: WorkQueue[str], clock: VirtualClock
) -> None:
    queue.add("low", priority=-1)
    queue.add("high", priority=1, after=1)
    await clock.advance(1)
    assert await taken(queue) == ["high", "low"]


async def test_high_priority_keys_go_first_again_and_again(queue: WorkQueue[str]) -> None:
    queue.add("low", priority=LOW_PRIORITY)
    for _ in range(100):
        queue.add("high")
        assert await queue.get() == "high"
        queue.done("high")


async def test_keys_with_delays_come_in_the_order_in_which_they_became_ready(
    queue: WorkQueue[str], clock: VirtualClock
) -> None:
    order: list[str] = []

    async def work() -> None:
        while len(order) < 3:
            order.append(await queue.get())

    worker = asyncio.create_task(work())
    queue.add("second", after=0.2)
    queue.add("first", after=0.1)
    queue.add("third", after=0.3)
    await clock.advance(0.3)
    await worker
    assert order == ["first", "second", "third"]


async def test_a_retry_keeps_the_priority_the_key_was_handed_out_with(
    queue: WorkQueue[str], clock: VirtualClock
) -> None:
    queue.add("a", priority=LOW_PRIORITY)
    await queue.get()
    queue.add_rate_limited("a")
    queue.done("a")
    await clock.advance(1)
    assert queue.depths() == {LOW_PRIORITY: 1}


async def test_closing_while_keys_are_handed_out_does_not_deadlock(queue: WorkQueue[str]) -> None:
    async def work() -> int:
        taken = 0
        while True:
            try:
                key = await queue.get()
            except QueueClosed:
                return taken
            taken += 1
            await asyncio.sleep(0)
            queue.done(key)

    workers = [asyncio.create_task(work()) for _ in range(4)]
    for number in range(100):
        queue.add(str(number), priority=number % 3)
        if number % 10 == 0:
            await asyncio.sleep(0)
    queue.close()
    assert sum(await asyncio.gather(*workers)) == 100


# -- fairness ------------------------------------------------------------------------------------------------------


async def test_one_change_in_a_quiet_namespace_does_not_wait_for_thousands_in_a_noisy_one(
    objects: WorkQueue[NamespacedName],
) -> None:
    for number in range(5000):
        objects.add(NamespacedName(f"o{number}", "noisy"))
    objects.add(NamespacedName("o", "quiet"))
    assert {(await objects.get()).namespace for _ in range(2)} == {"noisy", "quiet"}


async def test_namespaces_take_turns_and_each_keeps_its_own_order(objects: WorkQueue[NamespacedName]) -> None:
    for namespace, names in {"a": "123", "b": "12", "c": "1"}.items():
        for name in names:
            objects.add(NamespacedName(name, namespace))
    order = [str(await objects.get()) for _ in range(6)]
    assert order == ["a/1", "b/1", "c/1", "a/2", "b/2", "a/3"]


async def test_a_namespace_that_always_has_more_work_gets_no_more_than_its_turn(
    objects: WorkQueue[NamespacedName],
) -> None:
    served: Counter[str] = Counter()
    for namespace in "ab":
        objects.add(NamespacedName("0", namespace))
        objects.add(NamespacedName("1", namespace))
    for _ in range(1000):
        key = await objects.get()
        served[key.namespace] += 1
        objects.done(key)
        objects.add(key)
        objects.add(NamespacedName(str(len(served)), "a"))
    assert served == {"a": 500, "b": 500}


async def test_a_starved_priority_is_let_in_between_once_its_keys_waited_too_long(
    queue: WorkQueue[str], clock: VirtualClock
) -> None:
    for number in range(10):
        queue.add(f"low-{number}", priority=LOW_PRIORITY)
    served: list[str] = []

    async def churn(times: int) -> None:
        for _ in range(times):
            queue.add("high")
            key = await queue.get()
            served.append(key)
            queue.done(key)

    await churn(100)
    assert set(served) == {"high"}
    await clock.advance(30.1)
    await churn(10 * TURN)
    assert [key for key in served if key != "high"] == [f"low-{number}" for number in range(10)]
    assert served.count("high") == 100 + 10 * (TURN - 1)


async def test_without_patience_priorities_are_absolute(clock: VirtualClock) -> None:
    queue: WorkQueue[str] = WorkQueue(patience_seconds=None, clock=clock)
    queue.add("low", priority=-1)
    await clock.advance(10_000)
    for _ in range(20):
        queue.add("high")
        assert await queue.get() == "high"
        queue.done("high")


async def test_keys_raised_out_of_a_starved_priority_leave_no_litter_there(clock: VirtualClock) -> None:
    queue: WorkQueue[str] = WorkQueue(patience_seconds=None, clock=clock)
    queue.add("stays", priority=LOW_PRIORITY)
    for _ in range(5000):
        queue.add("a", priority=LOW_PRIORITY)
        queue.add("a")
        assert await queue.get() == "a"
        queue.done("a")
    level = queue._ready._levels[LOW_PRIORITY]
    assert sum(len(lane.entries) for lane in level.ring) < 100
    assert await queue.get() == "stays"


async def test_the_ready_keys_can_be_listed_highest_priority_first(queue: WorkQueue[str]) -> None:
    for key in "abcd":
        queue.add(key)
    queue.add("c", priority=4)
    assert [entry["key"] for entry in queue.describe()["ready"]] == ["c", "a", "b", "d"]


@pytest.mark.parametrize("seed", range(20))
async def test_random_work_ends_with_every_key_run_after_its_last_change(clock: VirtualClock, seed: int) -> None:
    rng = random.Random(seed)
    queue: WorkQueue[NamespacedName] = WorkQueue(clock=clock, limiter=ExponentialBackoff(random=rng.random))
    keys = [NamespacedName(str(n), "abc"[n % 3]) for n in range(30)]
    version = dict.fromkeys(keys, 0)
    ran = dict.fromkeys(keys, -1)

    async def work() -> None:
        while True:
            try:
                key = await queue.get()
            except QueueClosed:
                return
            seen = version[key]
            try:
                await clock.sleep(rng.choice([0, 0.01, 0.5]))
                if rng.random() < 0.2:
                    queue.add_rate_limited(key)
                else:
                    ran[key] = seen
                    queue.forget(key)
            except asyncio.CancelledError:
                queue.add(key)
                raise
            finally:
                queue.done(key)

    workers = [asyncio.create_task(work()) for _ in range(4)]
    for _ in range(500):
        key = rng.choice(keys)
        version[key] += 1
        queue.add(key, priority=rng.choice([LOW_PRIORITY, 0, 0, 5]), after=rng.choice([None, 0, 0.2, 3]))
        if rng.random() < 0.3:
            await clock.advance(rng.random() / 10)
        if rng.random() < 0.05:  # a worker dies, and another takes its place
            workers.pop().cancel()
            workers.append(asyncio.create_task(work()))
    await clock.advance_until(lambda: not queue.dirty and not queue.processing)
    queue.close()
    await asyncio.gather(*workers)
    assert ran == {key: version[key] or -1 for key in keys}
