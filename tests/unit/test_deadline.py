from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from steersman.clock import Deadline
from steersman.testing.clock import settle

if TYPE_CHECKING:
    from steersman.testing import VirtualClock


async def test_a_block_that_takes_too_long_ends_with_a_timeout(clock: VirtualClock) -> None:
    deadline = Deadline(clock, 5)

    async def work() -> None:
        async with deadline:
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await clock.advance(4.9)
    assert not task.done()
    await clock.advance(0.1)
    assert isinstance(task.exception(), TimeoutError)
    assert deadline.expired
    assert task.cancelling() == 0


async def test_a_timeout_from_inside_is_not_this_deadline(clock: VirtualClock) -> None:
    deadline = Deadline(clock, 5)
    with pytest.raises(TimeoutError):
        async with deadline:
            raise TimeoutError("the server's")
    assert not deadline.expired
    assert clock.pending == 0


async def test_cancellation_from_outside_passes_through_even_at_the_same_time(clock: VirtualClock) -> None:
    async def work() -> None:
        async with Deadline(clock, 5):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await settle()
    clock._timers[0][2].run()  # the deadline and…
    task.cancel()  # …the caller, in the same instant
    await settle()
    assert task.cancelled()


async def test_without_seconds_there_is_no_limit(clock: VirtualClock) -> None:
    async with Deadline(clock, None):
        assert clock.pending == 0


async def test_started_again_it_limits_silence(clock: VirtualClock) -> None:
    heard = asyncio.Event()

    async def work() -> None:
        async with Deadline(clock, 5) as deadline:
            while True:
                await heard.wait()
                heard.clear()
                deadline.restart()

    task = asyncio.create_task(work())
    for _ in range(4):
        await clock.advance(4)
        heard.set()
        await settle()
    await clock.advance(4.9)
    assert not task.done()
    await clock.advance(0.1)
    assert isinstance(task.exception(), TimeoutError)


async def test_a_shorter_limit_counts_from_now_on(clock: VirtualClock) -> None:
    async def work() -> None:
        async with Deadline(clock, 100) as deadline:
            deadline.restart(2)
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await clock.advance(2)
    assert isinstance(task.exception(), TimeoutError)
