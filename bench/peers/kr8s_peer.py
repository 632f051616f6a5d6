"""kr8s: it has no cache, so this is the list that its users write. See bench/contenders.py."""

from __future__ import annotations

import asyncio
import json
import sys

import kr8s.asyncio
from kr8s.asyncio.objects import ConfigMap


async def sync(count: int) -> None:
    """Pages into a dict."""
    api = await kr8s.asyncio.api()
    held = {}
    async for item in api.get(ConfigMap, namespace="bench"):
        held[item.namespace, item.name] = item
    assert len(held) == count
    print(json.dumps({"synced": count}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(sync(int(sys.argv[2])))
