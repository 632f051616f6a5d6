"""kubernetes_asyncio: it has no cache, so this is the list and watch that its users write. See bench/contenders.py."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from kubernetes_asyncio import client, config, watch


def say(**facts: Any) -> None:
    """Tell the benchmark."""
    print(json.dumps(facts), flush=True)


async def sync(count: int) -> None:
    """Typed pages into a dict, then a watch."""
    await config.load_kube_config()
    async with client.ApiClient() as api:
        core = client.CoreV1Api(api)
        held: dict[tuple[str, str], Any] = {}
        token = None
        while True:
            page = await core.list_config_map_for_all_namespaces(limit=500, _continue=token)
            for item in page.items:
                held[item.metadata.namespace, item.metadata.name] = item
            token = page.metadata._continue  # noqa: SLF001  that is its public name there
            if not token:
                break
        assert sum(namespace == "bench" for namespace, _ in held) == count
        say(synced=count)
        revision = page.metadata.resource_version
        async with watch.Watch() as stream:
            async for event in stream.stream(core.list_config_map_for_all_namespaces, resource_version=revision):
                item = event["object"]
                held[item.metadata.namespace, item.metadata.name] = item


async def events() -> None:
    """How late each update of a custom resource (plain dicts here) arrives."""
    await config.load_kube_config()
    lags: list[float] = []
    async with client.ApiClient() as api:
        custom = client.CustomObjectsApi(api)
        first = await custom.list_cluster_custom_object("bench.example.org", "v1", "ticks")
        held = {item["metadata"]["name"]: item for item in first["items"]}
        async with watch.Watch() as stream:
            found = stream.stream(
                custom.list_cluster_custom_object,
                "bench.example.org",
                "v1",
                "ticks",
                resource_version=first["metadata"]["resourceVersion"],
            )
            say(synced=True)
            async for event in found:
                item = event["object"]
                name = item["metadata"]["name"]
                held[name] = item
                if name == "end":
                    lags.sort()
                    say(events=len(lags), p50=lags[len(lags) // 2], p99=lags[int(0.99 * (len(lags) - 1))])
                else:
                    lags.append((time.time_ns() - int(item["spec"]["sent"])) / 1e9)


if __name__ == "__main__":
    asyncio.run(sync(int(sys.argv[2])) if sys.argv[1] == "sync" else events())
