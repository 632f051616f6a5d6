"""Profiles: who may take them, what they say, and that they end."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc
from collections import Counter

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from steersman.runtime.observability import profile
from steersman.runtime.observability.health import HealthServer


@pytest.fixture
async def url():
    server = HealthServer("127.0.0.1:0", alive=dict, ready=dict, registry=CollectorRegistry(), profiling=True)
    await server.start()
    yield f"http://127.0.0.1:{server.port}"
    await server.stop()


async def get(url: str, **headers: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
        return response.status, await response.text()


@pytest.fixture
def burning():
    """A thread that is busy until the test ends, and one that waits as long."""
    stop = threading.Event()

    def burn_cpu() -> None:
        while not stop.is_set():
            sum(range(1000))

    threads = [threading.Thread(target=burn_cpu, name="busy; indeed"), threading.Thread(target=stop.wait, name="idle")]
    for thread in threads:
        thread.start()
    yield
    stop.set()
    for thread in threads:
        thread.join()


async def test_a_cpu_profile_names_the_stacks_that_use_cpu_and_no_thread_that_waits(url, burning):
    status, text = await get(f"{url}/debug/profile?seconds=1")
    assert status == 200
    stacks = {stack: int(spent) for stack, _, spent in (line.rpartition(" ") for line in text.splitlines())}
    busiest = max(stacks, key=lambda stack: stacks[stack])
    assert busiest.startswith("busy, indeed;threading.Thread._bootstrap:")
    assert f";{__name__}.burning.<locals>.burn_cpu:" in busiest
    assert not any(stack.startswith("idle;") for stack in stacks)


def test_where_the_system_does_not_report_cpu_time_every_sample_counts(burning, monkeypatch):
    monkeypatch.setattr(profile, "_cpu_nanoseconds", lambda _thread: None)
    stacks = profile.sample_stacks(3, lambda: False)
    assert sum(spent for stack, spent in stacks.items() if stack.startswith("idle;")) == 3 * 10**6 // profile.RATE


async def test_a_profile_ends_with_its_caller():
    began, ended = threading.Event(), threading.Event()

    def work(stop: threading.Event) -> None:
        began.set()
        stop.wait()
        ended.set()

    taking = asyncio.create_task(profile._interruptible(work))
    assert await asyncio.to_thread(began.wait, 20)
    taking.cancel()
    assert await asyncio.to_thread(ended.wait, 20)


async def test_one_profile_at_a_time(url, monkeypatch):
    began, over = threading.Event(), threading.Event()

    def sample(_samples: int, _wait: object) -> Counter[str]:
        began.set()
        over.wait()
        return Counter(main=1)

    monkeypatch.setattr(profile, "sample_stacks", sample)
    first = asyncio.create_task(get(f"{url}/debug/profile"))
    assert await asyncio.to_thread(began.wait, 20)
    assert await get(f"{url}/debug/heap") == (429, "another profile is being taken: wait until it ends\n")
    over.set()
    assert await first == (200, "main 1\n")
    assert (await get(f"{url}/debug/heap"))[0] == 200


class Hoarded:
    pass


async def test_a_heap_summary_counts_objects_by_type(url):
    hoard = [Hoarded() for _ in range(20_000)]
    found = json.loads((await get(f"{url}/debug/heap"))[1])
    assert found["types"][f"{__name__}.Hoarded"] == len(hoard)
    assert found["objects"] > len(hoard)
    assert found["residentBytes"] > 0
    assert found["tasks"] >= 1


def test_a_heap_summary_by_line_names_what_was_allocated_meanwhile_and_is_still_there():
    kept: list[bytes] = []
    early = bytes(10**6)
    found = profile.allocations(lambda: kept.append(bytes(2 * 10**6)))
    assert found["allocated"][0]["at"].startswith(__file__)
    assert 2 * 10**6 <= found["allocated"][0]["bytes"] < 2 * 10**6 + len(early)
    assert not tracemalloc.is_tracing()


async def test_tracing_that_was_on_before_stays_on(url):
    tracemalloc.start()
    try:
        assert "allocated" in json.loads((await get(f"{url}/debug/heap?seconds=1"))[1])
        assert tracemalloc.is_tracing()
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("seconds", ["0", "61", "-1", "1.5", "soon"])
async def test_a_time_that_is_not_bounded_is_refused(url, seconds):
    for path in ("profile", "heap"):
        assert await get(f"{url}/debug/{path}?seconds={seconds}") == (
            400,
            f'seconds: "{seconds}" is not a whole number from 1 to 60 (try 10)\n',
        )


async def test_profiles_are_for_callers_on_this_machine_by_a_local_name(url):
    for path in ("profile", "heap"):
        assert (await get(f"{url}/debug/{path}", Host="attacker.example"))[0] == 404


async def test_without_profiling_there_are_no_profiles():
    server = HealthServer("127.0.0.1:0", alive=dict, ready=dict, registry=CollectorRegistry())
    await server.start()
    try:
        for path in ("profile", "heap"):
            assert (await get(f"http://127.0.0.1:{server.port}/debug/{path}?seconds=1"))[0] == 404
    finally:
        await server.stop()
