"""What the work queue costs: adding, taking and finishing keys, and waiting for many of them.

A size is measured by several runs, and growth by the exponent that fits the sizes n, 2n, 4n and 8n: 1 is linear.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
from typing import TYPE_CHECKING

from contenders import OURS
from figures import Spread, growth_exponent
from results import Results

from steersman.kube.api.gvk import NamespacedName
from steersman.runtime.workqueue.queue import WorkQueue
from steersman.testing.clock import VirtualClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def keys(count: int) -> list[NamespacedName]:
    """Names in a hundred namespaces."""
    return [NamespacedName(f"name-{number}", f"namespace-{number % 100}") for number in range(count)]


async def work(count: int) -> float:
    """Add everything, then take and finish each."""
    queue: WorkQueue[NamespacedName] = WorkQueue()
    found = keys(count)
    started = time.process_time()
    for key in found:
        queue.add(key)
    for _ in range(count):
        queue.done(await queue.get())
    return time.process_time() - started


async def one_by_one(count: int) -> float:
    """Add, take, finish, as a controller that keeps up does."""
    queue: WorkQueue[NamespacedName] = WorkQueue()
    found = keys(1000)
    started = time.process_time()
    for number in range(count):
        queue.add(found[number % 1000])
        queue.done(await queue.get())
    return time.process_time() - started


async def delayed(count: int) -> float:
    """Everything waits for its own time, which then comes."""
    clock = VirtualClock()
    queue: WorkQueue[NamespacedName] = WorkQueue(clock=clock)
    found = keys(count)
    started = time.process_time()
    for number, key in enumerate(found):
        queue.add(key, after=1.0 + number * 7919 % count / count)
    await clock.advance(3.0)
    for _ in range(count):
        queue.done(await queue.get())
    return time.process_time() - started


def measured(case: Callable[[int], Awaitable[float]], count: int, runs: int) -> Spread:
    """Microseconds per key."""
    times = []
    for _ in range(runs):
        gc.collect()
        times.append(asyncio.run(_run(case, count)))
    return Spread.of(seconds / count * 1e6 for seconds in times)


async def _run(case: Callable[[int], Awaitable[float]], count: int) -> float:
    return await case(count)


def main() -> int:
    """1 when a queue grows faster than n log n."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--delayed", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    results = Results(
        "queue",
        "The work queue",
        "CPU per key for its whole way: added, taken, finished. Keys are spread over 100 namespaces, which take turns. "
        f"The median of {options.runs} runs, with the fastest and the slowest; the exponent is that of the curve that "
        "fits all sizes of a case.",
        {"name": "case", "cost": "µs per key", "low": "fastest", "high": "slowest", "exponent": "exponent"},
    )
    results.versions = {OURS.name: OURS.version()}
    cases: list[tuple[str, Callable[[int], Awaitable[float]], int]] = [
        ("add all, then get and done", work, options.keys),
        ("add, get, done, one by one", one_by_one, options.keys),
        ("delayed, each by another time", delayed, options.delayed),
    ]
    for name, case, largest in cases:
        sizes = [largest // 8, largest // 4, largest // 2, largest]
        costs = [measured(case, count, options.runs) for count in sizes]
        exponent = growth_exponent(sizes, [cost.middle * count for cost, count in zip(costs, sizes, strict=True)])
        for count, cost in zip(sizes, costs, strict=True):
            fitted = exponent if count == largest else None
            results.add(name=f"{name}: {count:,}", cost=cost.middle, low=cost.low, high=cost.high, exponent=fitted)
        results.bar(f"exponent of '{name}': n log n, and what larger sizes cost in caches", exponent, 1.2)
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())
