"""Controllers at work inside a test."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from steersman.kube.client import Client
    from steersman.runtime.controller import Controller
    from steersman.runtime.manager import Manager

__all__ = ["running"]


@asynccontextmanager
async def running(
    client: Client, *controllers: Controller, prepare: Callable[[Manager], object] | None = None, **options: Any
) -> AsyncIterator[Manager]:
    """Run controllers until the block ends; `options` are the manager's; `prepare` gets the manager before it starts.

    The block begins when every source is synced and the controllers work. A manager that fails fails the test.
    """
    from prometheus_client import CollectorRegistry

    from steersman.runtime.manager import Manager

    options.setdefault("registry", CollectorRegistry())
    manager = Manager(client, controllers, **options)
    if prepare is not None:
        prepare(manager)
    task = asyncio.create_task(manager.run())
    try:
        ready = asyncio.create_task(_at_work(manager, controllers))
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            ready.cancel()
            await task
        yield manager
    finally:
        manager.stop()
        await task


async def _at_work(manager: Manager, controllers: tuple[Controller, ...]) -> None:
    await manager.working.wait()
    for controller in controllers:
        await manager.engine(controller.name).wait_synced()
