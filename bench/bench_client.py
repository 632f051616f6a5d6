"""What the client costs: a list of 20,000 ConfigMaps, a watch of 50,000 events, and small requests.

The server is another process that sends bytes it made before, so that only the client is measured. CPU seconds, best
of several runs, because the machine may be shared. The floor is the same work with bare aiohttp and msgspec: what the
client adds on top of it is the price of retries, credentials, metrics and types.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time

import aiohttp
import msgspec

from steersman.kube.api.objects import Resource
from steersman.kube.client.client import Client
from steersman.kube.config.config import Config
from tests.support.wire_server import END, STREAM, Wire, chunk, reply

ITEMS, EVENTS, SMALL = 20_000, 50_000, 2_000
FACTOR = 1.6  # how much dearer than the floor each case may be


class ConfigMap(Resource, version="v1"):
    """What is decoded: metadata and data."""

    data: dict[str, str] | None = None


def configmap(number: int) -> dict[str, object]:
    """About 2 KB, as kubectl would have made it."""
    fields = {"f:data": {".": {}, **{f"f:key-{n}": {} for n in range(20)}}, "f:metadata": {"f:labels": {"f:app": {}}}}
    managed = {"manager": "kubectl", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    metadata = {
        "name": f"config-{number:05}",
        "namespace": "shop",
        "uid": f"00000000-0000-0000-0000-{number:012}",
        "resourceVersion": str(number),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app": f"app-{number % 50}", "tier": "web"},
        "managedFields": [{**managed, "fieldsV1": fields}],
    }
    return {"metadata": metadata, "data": {f"key-{n}": f"value {number} " + "x" * 40 for n in range(20)}}


async def serve() -> None:
    """Be the server: print the address, then answer until killed."""
    items = [configmap(number) for number in range(ITEMS)]
    whole = reply(200, {"kind": "ConfigMapList", "metadata": {"resourceVersion": "1"}, "items": items})
    pages = [
        reply(200, {"kind": "ConfigMapList", "metadata": {"continue": str(n + 500)}, "items": items[n : n + 500]})
        for n in range(0, ITEMS - 500, 500)
    ]
    pages.append(reply(200, {"kind": "ConfigMapList", "metadata": {"resourceVersion": "1"}, "items": items[-500:]}))
    lines = [chunk(msgspec.json.encode({"type": "MODIFIED", "object": item}) + b"\n") for item in items[:1000]]
    stream = STREAM + b"".join(lines) * (EVENTS // 1000) + END
    one = reply(200, items[0])

    async def answer(received, _writer):
        if received.query.get("watch"):
            return stream
        if received.path.endswith("configmaps"):
            return pages[int(received.query.get("continue", 0)) // 500] if "limit" in received.query else whole
        return one

    async with Wire(answer) as server:
        print(server.url, flush=True)
        await asyncio.Event().wait()


class Wired(msgspec.Struct):
    items: list[ConfigMap]


class Event(msgspec.Struct):
    type: str
    object: ConfigMap


async def floor(url: str, case: str) -> int:
    """The work without the client."""
    root = f"{url}/api/v1/configmaps"
    async with aiohttp.ClientSession(read_bufsize=2**18) as session:
        if case == "list":
            async with session.get(root) as answer:
                return len(msgspec.json.decode(await answer.read(), type=Wired).items)
        if case == "pages":
            found = 0
            for start in range(0, ITEMS, 500):
                async with session.get(root, params={"limit": "500", "continue": str(start)}) as answer:
                    found += len(msgspec.json.decode(await answer.read(), type=Wired).items)
            return found
        if case == "watch":
            return await _floor_watch(session, root)
        decoder = msgspec.json.Decoder(ConfigMap)
        for _ in range(SMALL):
            async with session.get(f"{url}/api/v1/namespaces/shop/configmaps/a") as answer:
                decoder.decode(await answer.read())
        return SMALL


async def _floor_watch(session: aiohttp.ClientSession, root: str) -> int:
    decode, found, parts = msgspec.json.Decoder(Event).decode, 0, []
    async with session.get(root, params={"watch": "1"}) as answer:
        async for data in answer.content.iter_any():
            *lines, rest = data.split(b"\n")
            if lines:
                lines[0] = b"".join([*parts, lines[0]])
                parts.clear()
            parts.append(rest)
            for line in lines:
                decode(line)
                found += 1
    return found


async def client(url: str, case: str) -> int:
    """The work with the client."""
    async with Client.connect(Config(server=url, namespace="shop")) as found:
        if case == "list":
            return len((await found.list(ConfigMap, limit=None)).items)
        if case == "pages":
            return len((await found.list(ConfigMap)).items)
        if case == "watch":
            count = 0
            async with found.watch(ConfigMap, timeout_seconds=60) as events:
                async for _ in events:
                    count += 1
            return count
        for _ in range(SMALL):
            await found.get(ConfigMap, "a")
        return SMALL


def measured(url: str, case: str, runs: int) -> tuple[float, float]:
    """CPU seconds of the best run, floor and client; in turns, so that a busy moment disturbs both alike."""
    best = {floor: float("inf"), client: float("inf")}
    for _ in range(runs):
        for work in (floor, client):
            started = time.process_time()
            asyncio.run(work(url, case))
            best[work] = min(best[work], time.process_time() - started)
    return best[floor], best[client]


def main() -> int:
    """Print the table; 1 when the client is too dear."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
    server = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().strip()
        cases = {
            "list": (ITEMS, "item"),
            "pages": (ITEMS, "item"),
            "watch": (EVENTS, "event"),
            "get": (SMALL, "request"),
        }
        failed = False
        print(f"{'case':8}{'floor':>10}{'client':>10}{'ratio':>8}   client, each")
        for case, (count, unit) in cases.items():
            low, ours = measured(url, case, options.runs)
            failed |= ours > low * FACTOR
            each = f"{ours / count * 1e6:.1f} µs per {unit}"
            print(f"{case:8}{low:9.3f}s{ours:9.3f}s{ours / low:8.2f}   {each}", flush=True)
    finally:
        server.kill()
        server.wait()
    if failed:
        print(f"too dear: the client may cost at most {FACTOR} times the floor")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
