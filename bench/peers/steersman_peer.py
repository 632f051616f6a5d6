"""Ours: the contender that this project is. See bench/contenders.py."""

from __future__ import annotations

import asyncio
import hashlib
import sys
import time
from typing import Any

import msgspec

import steersman as sm
from steersman.cache.factory import SharedInformerFactory


class ConfigMap(sm.Resource, version="v1"):
    """Metadata and data."""

    data: dict[str, str] | None = None


class Digest(sm.Resource, version="v1", kind="ConfigMap", plural="configmaps"):
    """Identity, and a digest of the data: enough to notice a change."""

    data: msgspec.Raw = msgspec.Raw(b"null")


class Spec(sm.Struct):
    sent: str = ""
    payload: dict[str, str] | None = None


class Tick(sm.Resource, group="bench.example.org", version="v1"):
    """Changes all the time."""

    spec: Spec


class Gadget(sm.Resource, group="bench.example.org", version="v1"):
    """Wants a child."""

    spec: Spec


def digest(obj: Digest) -> Digest:
    """Keep what identifies the object, and the digest."""
    meta = obj.metadata
    obj.data = msgspec.Raw(hashlib.sha256(obj.data).digest())
    obj.metadata = sm.ObjectMeta(
        name=meta.name, namespace=meta.namespace, uid=meta.uid, resource_version=meta.resource_version
    )
    return obj


def say(**facts: Any) -> None:
    """Tell the benchmark."""
    print(msgspec.json.encode(facts).decode(), flush=True)


async def sync(count: int, *, digests: bool) -> None:
    """Fill a cache with ConfigMaps."""
    async with sm.Client.connect(sm.load_config()) as client:
        pool = SharedInformerFactory(client)
        informer = pool.informer(Digest, transform=digest) if digests else pool.informer(ConfigMap)
        running = asyncio.create_task(informer.run())
        await informer.wait_synced()
        with informer.snapshot() as snapshot:
            found = len(snapshot.list(namespace="bench"))
        assert found == count, f"{found} objects, not {count}"
        say(synced=found)
        await running


async def events() -> None:
    """Measure how late each update arrives."""
    lags: list[float] = []

    def seen(old: Tick | None, new: Tick | None, initial: bool) -> None:  # noqa: ARG001  a handler gets three
        if new is None or old is None:
            return
        if new.metadata.name == "end":
            lags.sort()
            say(events=len(lags), p50=lags[len(lags) // 2], p99=lags[int(0.99 * (len(lags) - 1))])
        else:
            lags.append((time.time_ns() - int(new.spec.sent)) / 1e9)

    async with sm.Client.connect(sm.load_config()) as client:
        informer = SharedInformerFactory(client).informer(Tick)
        informer.add_handler(seen)
        running = asyncio.create_task(informer.run())
        await informer.wait_synced()
        say(synced=True)
        await running


async def reconcile(ctx: sm.Context, gadget: Gadget) -> sm.Result:
    """One child."""
    child = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": gadget.name, "namespace": gadget.namespace},
        "data": {"of": gadget.name},
    }
    await ctx.apply(child)
    return sm.done


def main() -> None:
    """Do what the benchmark asks for."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--digests"]
    if arguments[0] == "sync":
        asyncio.run(sync(int(arguments[1]), digests="--digests" in sys.argv))
    elif arguments[0] == "events":
        asyncio.run(events())
    else:
        sm.run(sm.Controller(Gadget, reconcile).owns(sm.ConfigMap).with_options(concurrency=16))


if __name__ == "__main__":
    main()
