"""lightkube: it has no cache, so this is the list and watch that its users write. See bench/contenders.py."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from lightkube import AsyncClient
from lightkube.generic_resource import create_namespaced_resource
from lightkube.resources.core_v1 import ConfigMap


def say(**facts: Any) -> None:
    """Tell the benchmark."""
    print(json.dumps(facts), flush=True)


async def sync(count: int) -> None:
    """Typed pages into a dict, then a watch."""
    client = AsyncClient()
    held: dict[tuple[Any, Any], ConfigMap] = {}
    found = client.list(ConfigMap, namespace="*", chunk_size=500)
    async for item in found:
        held[item.metadata.namespace, item.metadata.name] = item
    assert sum(namespace == "bench" for namespace, _ in held) == count
    say(synced=count)
    async for _, item in client.watch(ConfigMap, namespace="*", resource_version=found.resourceVersion):
        held[item.metadata.namespace, item.metadata.name] = item


async def events() -> None:
    """How late each update of a custom resource arrives."""
    client = AsyncClient()
    kind = create_namespaced_resource("bench.example.org", "v1", "Tick", "ticks")
    lags: list[float] = []
    found = client.list(kind, namespace="*")
    held = {item.metadata.name: item async for item in found}
    say(synced=True)
    async for _, item in client.watch(kind, namespace="*", resource_version=found.resourceVersion):
        name = item.metadata.name
        held[name] = item
        if name == "end":
            lags.sort()
            say(events=len(lags), p50=lags[len(lags) // 2], p99=lags[int(0.99 * (len(lags) - 1))])
        else:
            lags.append((time.time_ns() - int(item.spec["sent"])) / 1e9)


if __name__ == "__main__":
    asyncio.run(sync(int(sys.argv[2])) if sys.argv[1] == "sync" else events())
