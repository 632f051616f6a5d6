"""Every state that a collection of objects passes through, so that a test misses none between two looks.

    async with every_state(client, Pod, namespace=namespace) as passing:
        await client.delete(Pod, "web-0", namespace=namespace)
        async for pods in passing:              # name -> object, once now and once after each change
            assert "web-1" in pods
            if "web-0" not in pods: break

States come in the order of the server's revisions, however slowly they are read; they begin where the block begins.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from steersman.kube.api.objects import Resource
    from steersman.kube.client.client import Client

__all__ = ["every_state"]

R = TypeVar("R", bound="Resource")

_LONGEST_SECONDS = 600  # of the watch; a test ends sooner


@asynccontextmanager
async def every_state(
    client: Client, target: type[R], *, namespace: str, timeout: float = 120.0
) -> AsyncIterator[AsyncIterator[dict[str, R]]]:
    """All states from now on, for as long as `timeout` seconds; then the test fails."""
    listing: Any = await client.list(target, namespace=namespace)
    known = {one.name: one for one in listing.items}

    async def passing(events: Any) -> AsyncIterator[dict[str, R]]:
        yield dict(known)
        async for event in events:
            if event.type == "BOOKMARK":
                continue
            if event.type == "DELETED":
                known.pop(event.object.name, None)
            else:
                known[event.object.name] = event.object
            yield dict(known)

    options: Any = {"resource_version": listing.resource_version, "timeout_seconds": _LONGEST_SECONDS}
    async with client.watch(target, namespace=namespace, **options) as events:
        try:
            async with asyncio.timeout(timeout):
                yield passing(events)
        except TimeoutError:
            raise AssertionError(f"what was waited for did not come within {timeout:g} s") from None
