"""Controllers at work inside a test."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from steersman.clock import SYSTEM_CLOCK
from steersman.testing.clock import VirtualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from steersman.kube.client.client import Client
    from steersman.runtime.controller.builder import Controller
    from steersman.runtime.manager.manager import Manager

__all__ = ["running"]

TIMEOUT = 90.0  # seconds of the machine's own time


@asynccontextmanager
async def running(
    client: Client,
    *controllers: Controller,
    prepare: Callable[[Manager], object] | None = None,
    timeout: float = TIMEOUT,
    **options: Any,
) -> AsyncIterator[Manager]:
    """Run controllers until the block ends; `options` are the manager's; `prepare` gets the manager before it starts.

    The block begins when every source is synced and the controllers work. A manager that fails fails the test. So does
    one that is not at work after `timeout` seconds, or not stopped so long after the block, with what it waits for.
    With a `clock` that only the test moves, lists and watches still wait by the machine's own time.
    """
    from prometheus_client import CollectorRegistry

    from steersman.runtime.manager.manager import Manager

    options.setdefault("registry", CollectorRegistry())
    if isinstance(options.get("clock"), VirtualClock):
        options.setdefault("network_clock", SYSTEM_CLOCK)
    manager = Manager(client, controllers, **options)
    if prepare is not None:
        prepare(manager)
    task = asyncio.create_task(manager.run())
    try:
        ready = asyncio.create_task(_at_work(manager, controllers))
        await asyncio.wait({task, ready}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
        if task.done():
            await task
        elif not ready.done():
            raise AssertionError(f"not at work within {timeout:g} s: {_waits_for(manager)}")
        yield manager
    finally:
        manager.stop()
        await asyncio.wait({task}, timeout=timeout)
        if not task.done():
            running_keys = _running_keys(manager)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise AssertionError(f"not stopped within {timeout:g} s: {running_keys}")
        await task


def _waits_for(manager: Manager) -> str:
    problems = [f"{name}: {problem}" for name, problem in manager.ready().items() if problem is not None]
    if not manager.working.is_set():
        problems.append("the workers have not started (is another process the leader?)")
    return "; ".join(problems) or "the sources of a controller are not synced"


def _running_keys(manager: Manager) -> str:
    """Which keys are still being reconciled, which may wait for a virtual clock that the test does not move."""
    held = {name: runner.queue.describe()["counts"]["running"] for name, runner in manager.runners.items()}
    busy = [f"{name} reconciles {count}" for name, count in held.items() if count]
    return ", ".join(busy) or "no key is being reconciled"


async def _at_work(manager: Manager, controllers: tuple[Controller, ...]) -> None:
    await manager.working.wait()
    for controller in controllers:
        await manager.runner(controller.name).wait_synced()
