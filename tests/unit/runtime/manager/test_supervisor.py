from __future__ import annotations

import asyncio
import itertools

import pytest

from steersman.runtime.manager.supervisor import Supervisor, TaskFailed, cancel_all
from steersman.testing.clock import settle


@pytest.fixture
async def supervisor(clock):
    made = Supervisor(clock=clock, random=lambda: 0.0)
    yield made
    await made.stop()


async def test_a_task_that_fails_is_started_again_with_growing_delays(supervisor, clock):
    starts: list[float] = []

    async def run() -> None:
        starts.append(clock.monotonic())
        raise OSError("gone")

    supervisor.start("source", run)
    await clock.advance(120)
    gaps = [round(later - earlier) for earlier, later in itertools.pairwise(starts)]
    assert gaps == [1, 2, 4, 8, 16, 30, 30]
    assert supervisor.restarts == {"source": len(starts)}
    assert supervisor.problems() == {"source": "OSError: gone"}


async def test_a_task_that_fails_in_its_parts_says_what_they_raised(supervisor):
    async def run() -> None:
        raise ExceptionGroup("parts", [OSError("gone"), OSError("gone"), ExceptionGroup("more", [ValueError("odd")])])

    supervisor.start("source", run)
    await settle()
    assert supervisor.problems() == {"source": "OSError: gone; ValueError: odd"}


async def test_a_task_that_just_ends_is_no_better_than_one_that_fails(supervisor, clock):
    async def run() -> None:
        return

    supervisor.start("source", run)
    await settle()
    assert supervisor.problems() == {"source": "it ended, though it should never end"}
    await clock.advance(1)
    assert supervisor.restarts["source"] == 2


async def test_a_task_that_ran_well_for_a_while_starts_over_with_short_delays(supervisor, clock):
    starts: list[float] = []

    async def run() -> None:
        starts.append(clock.monotonic())
        if len(starts) == 4:
            await clock.sleep(90)
        raise OSError

    supervisor.start("source", run)
    await clock.advance(7 + 90 + 1)
    gaps = [round(later - earlier) for earlier, later in itertools.pairwise(starts)]
    assert gaps == [1, 2, 4, 91]


async def test_a_running_task_has_no_problem(supervisor, clock):
    failed = False

    async def run() -> None:
        nonlocal failed
        if not failed:
            failed = True
            raise OSError
        await asyncio.Event().wait()

    supervisor.start("source", run)
    await settle()
    assert supervisor.problems()
    await clock.advance(1)
    assert supervisor.problems() == {}


async def test_the_failure_of_a_critical_task_is_everybodys(supervisor, clock):
    async def run() -> None:
        raise OSError("gone")

    supervisor.start("heart", run, critical=True)
    await settle()
    with pytest.raises(TaskFailed, match="heart: OSError: gone"):
        await supervisor.failure
    assert supervisor.problems() == {"heart": "OSError: gone"}


async def test_a_cancellation_that_leaks_out_of_a_task_is_a_failure_of_it(supervisor, clock):
    async def run() -> None:
        raise asyncio.CancelledError

    supervisor.start("source", run)
    await settle()
    assert supervisor.problems() == {"source": "something it waited for was cancelled"}


async def test_stopped_tasks_are_not_started_again(supervisor, clock):
    starts = 0

    async def run() -> None:
        nonlocal starts
        starts += 1
        await asyncio.Event().wait()

    supervisor.start("a", run)
    supervisor.start("b", run)
    await settle()
    await supervisor.stop(["a"])
    await clock.advance(100)
    assert (starts, supervisor.names()) == (2, ["b"])
    supervisor.start("a", run)
    with pytest.raises(ValueError, match="running already"):
        supervisor.start("a", run)


async def test_a_task_that_refuses_to_end_does_not_hold_up_the_rest(clock):
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    task = asyncio.create_task(stubborn(), name="stubborn")
    await settle()
    ending = asyncio.create_task(cancel_all([task], clock, 5))
    await clock.advance(5)
    assert await ending == [task]
    release.set()
    await task


@pytest.mark.parametrize("critical", [False, True])
async def test_a_task_that_fails_while_it_is_stopped_stays_stopped_and_is_nobodys_failure(supervisor, clock, critical):
    starts = 0

    async def run() -> None:
        nonlocal starts
        starts += 1
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("the last word did not get through")

    supervisor.start("source", run, critical=critical)
    await settle()
    await supervisor.stop()
    await clock.advance(120)
    assert starts == 1
    assert supervisor.problems() == {}
    assert not supervisor.failure.done()
