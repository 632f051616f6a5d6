"""A simulation from its start to its end: nodes first, then controllers until the block is left."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from steersman.kube.errors import AlreadyExists
from steersman.runtime.manager import Manager
from steersman.simulate.nodes import new_node
from steersman.simulate.reconcilers import controllers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from steersman.kube.client import Client

__all__ = ["simulation"]


@asynccontextmanager
async def simulation(client: Client, *, nodes: int = 2, **options: Any) -> AsyncIterator[Manager]:
    """Simulate a cluster with so many nodes behind `client` until the block ends; `options` are the manager's.

    The block begins when the controllers work; when they fail, leaving it raises the error.
    """
    for number in range(1, nodes + 1):
        with suppress(AlreadyExists):
            await client.create(new_node(number))
    options.setdefault("registry", CollectorRegistry())
    options.setdefault("component", "steersman-simulation")
    manager = Manager(client, controllers(), **options)
    running = asyncio.create_task(manager.run())
    ready = asyncio.create_task(_ready(manager))
    try:
        await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            yield manager
    finally:
        ready.cancel()
        manager.stop()
        await running


async def _ready(manager: Manager) -> None:
    await manager.working.wait()
    for one in controllers():
        await manager.engine(one.name).wait_synced()
