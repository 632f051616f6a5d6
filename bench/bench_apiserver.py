"""The embedded API server next to the real one: creates per second, a list of 20,000 objects, fan-out to 100 watchers.

Both are processes of their own, driven by the same client from this one, in turns, because the machine may be shared;
the best round of each counts. The embedded server must be at least as fast on each, and it must be ready within
100 ms of having been imported.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import msgspec
import yaml

from steersman.testing.controlplane import ControlPlane
from steersman.testing.rawapi import ssl_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

OBJECTS, EVENTS, WATCHERS, WORKERS = 20_000, 500, 100, 16
READY = 0.1  # seconds from import to listening
STARTS = (
    "import asyncio, time\n"
    "from steersman.apiserver.server import EmbeddedServer\n"
    "async def main():\n"
    "    began = time.perf_counter()\n"
    "    async with EmbeddedServer():\n"
    "        print(time.perf_counter() - began)\n"
    "asyncio.run(main())\n"
)


class Target:
    """One server, and a namespace of its own for every round."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url
        self._rounds = 0

    async def maps(self) -> str:
        """The ConfigMaps of a new namespace."""
        self._rounds += 1
        name = f"round-{self._rounds}"
        async with self.session.post(f"{self.url}/api/v1/namespaces", json={"metadata": {"name": name}}) as made:
            made.raise_for_status()
        return f"{self.url}/api/v1/namespaces/{name}/configmaps"

    async def fill(self, maps: str, count: int) -> None:
        """Create `count` ConfigMaps of about 500 bytes."""
        numbers = iter(range(count))

        async def worker() -> None:
            for number in numbers:
                body = {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": f"config-{number:05}", "labels": {"app": f"app-{number % 50}"}},
                    "data": {f"key-{n}": f"value {number} " + "x" * 40 for n in range(5)},
                }
                async with self.session.post(maps, data=msgspec.json.encode(body)) as made:
                    await made.read()
                    made.raise_for_status()

        await asyncio.gather(*(worker() for _ in range(WORKERS)))


async def creates(target: Target, count: int) -> tuple[float, str]:
    """Seconds to create `count` objects; and where they are."""
    maps = await target.maps()
    began = time.perf_counter()
    await target.fill(maps, count)
    return time.perf_counter() - began, maps


async def lists(target: Target, maps: str) -> float:
    """Seconds to list everything, body read, not decoded: the client is not what is measured."""
    began = time.perf_counter()
    async with target.session.get(maps) as answer:
        await answer.read()
        answer.raise_for_status()
    return time.perf_counter() - began


async def fans_out(target: Target) -> float:
    """Seconds from the first of many writes until the last of many watchers saw them all."""
    maps = await target.maps()
    ready = asyncio.Barrier(WATCHERS + 1)

    async def watcher() -> None:
        async with target.session.get(maps, params={"watch": "1", "labelSelector": "app"}) as stream:
            await ready.wait()
            left = EVENTS
            async for chunk in stream.content.iter_any():
                left -= chunk.count(b'"type":"ADDED"')
                if left <= 0:
                    return

    watchers = [asyncio.create_task(watcher()) for _ in range(WATCHERS)]
    await ready.wait()
    began = time.perf_counter()
    await target.fill(maps, EVENTS)
    await asyncio.gather(*watchers)
    return time.perf_counter() - began


@asynccontextmanager
async def embedded() -> AsyncIterator[tuple[str, str, str]]:
    """The embedded server as a process: url, token, authority."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kubeconfig"
        command = [str(Path(sys.executable).with_name("steersman")), "apiserver", "--kubeconfig-out", str(path)]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            await process.stdout.readline()
            config = yaml.safe_load(path.read_text())
            cluster = config["clusters"][0]["cluster"]
            authority = cluster["certificate-authority-data"]
            yield cluster["server"], config["users"][0]["user"]["token"], authority
        finally:
            process.terminate()
            await process.wait()


async def opened(stack: AsyncExitStack, url: str, token: str, ca_pem: str) -> Target:
    """A session with a server."""
    connector = aiohttp.TCPConnector(ssl=ssl_context(ca_pem), limit=0)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    return Target(await stack.enter_async_context(aiohttp.ClientSession(connector=connector, headers=headers)), url)


async def measured(objects: int, rounds: int) -> dict[str, tuple[float, float]]:
    """The best seconds of (embedded, real) for each case."""
    best: dict[str, list[float]] = {}
    async with AsyncExitStack() as stack:
        url, token, authority = await stack.enter_async_context(embedded())
        ours = await opened(stack, url, token, base64.b64decode(authority).decode())
        plane = await stack.enter_async_context(ControlPlane())
        real = await opened(stack, plane.url, plane.token, plane.ca_pem)

        async def both(case: str, measure: Callable[[Target], Awaitable[float]]) -> None:
            for place, target in enumerate((ours, real)):
                known = best.setdefault(case, [float("inf"), float("inf")])
                known[place] = min(known[place], await measure(target))

        maps: dict[str, str] = {}

        async def create(target: Target) -> float:
            seconds, maps[target.url] = await creates(target, objects)
            return seconds

        await both("create", create)
        for _ in range(rounds):
            await both("list", lambda target: lists(target, maps[target.url]))
            await both("fan-out", fans_out)
    return {case: (low, high) for case, (low, high) in best.items()}


def starts(rounds: int) -> float:
    """Seconds from import to listening, best of several processes."""
    runs = [subprocess.run([sys.executable, "-c", STARTS], check=True, capture_output=True) for _ in range(rounds)]
    return min(float(run.stdout) for run in runs)


def main() -> int:
    """Print the table; 1 when the embedded server is slower than the real one, or not ready in time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=OBJECTS)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    ready = starts(options.rounds)
    print(f"ready in {ready * 1000:.0f} ms (at most {READY * 1000:.0f})", flush=True)
    failed = ready > READY
    table = asyncio.run(measured(options.objects, options.rounds))
    counts = {"create": options.objects, "list": options.objects, "fan-out": EVENTS * WATCHERS}
    print(f"{'case':10}{'embedded':>10}{'real':>10}{'ratio':>8}   embedded, per second")
    for case, (ours, real) in table.items():
        failed |= ours > real
        print(f"{case:10}{ours:9.3f}s{real:9.3f}s{real / ours:8.2f}   {counts[case] / ours:,.0f}", flush=True)
    if failed:
        print("broken promise: the embedded server must be ready in time and at least as fast as the real one")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
