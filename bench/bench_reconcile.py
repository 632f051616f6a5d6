"""What tracing costs a reconcile: without OpenTelemetry, with it and no provider, and with a provider.

One worker reconciles an object in caches in memory, in blocks that take turns; the cheapest block counts, because what
else the machine does only adds to one. The first row calls the reconcile without asking for a tracer at all.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import sys
import time
from typing import TYPE_CHECKING, Any

import structlog
from contenders import OURS
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from results import Results

import steersman as sm
from steersman.clock import SYSTEM_CLOCK
from steersman.kube.api.gvk import NamespacedName
from steersman.runtime.cluster import Cluster
from steersman.runtime.controller.runner import ControllerRunner
from tests.unit.runtime.conftest import MemoryCaches, NoClient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

BLOCK = 100  # reconciles
PROVIDER = TracerProvider()  # without an exporter: the cost of the spans alone


class App(sm.Resource, group="example.org", version="v1"):
    """An object that is as it should be."""


async def reconcile(_ctx: sm.Context, _app: App) -> sm.Result:
    """Nothing to do."""
    return sm.done


async def block(run: Callable[[Any], Awaitable[None]]) -> float:
    """CPU µs per reconcile."""
    key = NamespacedName("app", "shop")
    started = time.process_time()
    for _ in range(BLOCK):
        await run(key)
    return (time.process_time() - started) / BLOCK * 1e6


async def measure(blocks: int) -> dict[str, float]:
    """The cheapest block of each case."""
    caches = MemoryCaches(SYSTEM_CLOCK)
    runner = ControllerRunner(sm.Controller(App, reconcile), {"": Cluster(NoClient(), caches)}, clock=SYSTEM_CLOCK)
    runner.start_sources()
    caches[App].sync(App(metadata=sm.ObjectMeta(name="app", namespace="shop", uid="u", resource_version="1")))
    await runner.queue.get()  # as the runner does before it calls the worker
    worker = runner._worker  # noqa: SLF001  without the queue, which costs as much
    best: dict[str, float] = {}
    gc.collect()
    gc.disable()
    for _ in range(blocks):
        found = {"without the question": await block(worker._reconcile)}  # noqa: SLF001  what `reconcile` chooses
        del sys.modules["opentelemetry.trace"]
        found["OpenTelemetry not installed"] = await block(worker.reconcile)
        sys.modules["opentelemetry.trace"] = trace
        found["installed, no provider"] = await block(worker.reconcile)
        asked, trace.get_tracer_provider = trace.get_tracer_provider, lambda: PROVIDER
        found["with a provider"] = await block(worker.reconcile)
        trace.get_tracer_provider = asked
        best = {name: min(cost, best.get(name, cost)) for name, cost in found.items()}
    return best


def main() -> int:
    """1 when a reconcile pays for tracing that is off."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=200)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    found = asyncio.run(measure(options.blocks))
    bare = found["without the question"]
    results = Results(
        "reconcile",
        "Tracing of a reconcile",
        f"CPU of a reconcile that has nothing to do, in memory: the cheapest of {options.blocks} blocks of {BLOCK}, "
        "taken in turns. The first row never asks whether there is a tracer; the last makes two spans for each "
        "reconcile and exports none.",
        {"name": "", "cost": "µs per reconcile", "ratio": "first row = 1"},
    )
    results.versions = {OURS.name: OURS.version()}
    for name, cost in found.items():
        results.add(name=name, cost=cost, ratio=cost / bare)
    results.bar("not installed", found["OpenTelemetry not installed"] / bare, 1.05)
    results.bar("no provider", found["installed, no provider"] / bare, 1.05)
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())
