"""The embedded API server next to kube-apiserver with etcd: the same load, over TLS, in one run.

The load client is this process: bare aiohttp with prepared bytes for requests, and sockets that only count what arrives
for watches, so that the client is a small part of what is measured. CPU of a server is that of all its processes.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import ssl
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import aiohttp
import msgspec
import yaml
from children import Child, usage_of
from contenders import OURS
from results import Results

from steersman.testing.controlplane.launcher import ControlPlane
from steersman.testing.raw_api import ssl_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

CONCURRENCY, WATCHERS, TARGETS = 32, 100, 20
STARTUP_MS = 100.0
_PATH = "/api/v1/namespaces/bench/configmaps"
_MARK = b'"type":"MODIFIED"'

_START = """
import asyncio, gc, json, time
from steersman.apiserver import EmbeddedServer
gc.collect()  # what the import left to do; by chance it would fall into the start
async def main():
    wall, cpu = time.perf_counter(), time.process_time()
    async with EmbeddedServer():
        print(json.dumps({"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}), flush=True)
asyncio.run(main())
"""


class Server(msgspec.Struct, kw_only=True):
    """One server under load."""

    name: str
    url: str
    token: str
    context: ssl.SSLContext
    pids: list[int]
    ready: float  # seconds until it answered
    kubeconfig: Path | None = None

    def cpu(self) -> float:
        """CPU seconds it has used."""
        return sum(usage_of(pid).cpu for pid in self.pids)


def configmap(number: int) -> bytes:
    """About 1 KB."""
    data = {f"key-{n}": f"value {number} ".ljust(100, "x") for n in range(7)}
    return msgspec.json.encode({"metadata": {"name": f"config-{number:05}", "labels": {"app": "bench"}}, "data": data})


@contextlib.asynccontextmanager
async def embedded(python: Path = Path(sys.executable)) -> AsyncIterator[Server]:
    """Ours, in a process of its own; `python` is that of the environment in which it is installed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kubeconfig"
        started = time.monotonic()
        with Child([str(python.with_name("steersman")), "apiserver", "--kubeconfig-out", str(path)]) as child:
            while not (path.exists() and path.read_text().endswith("current-context: steersman\n")):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            ready = time.monotonic() - started
            config = yaml.safe_load(path.read_text())
            cluster = config["clusters"][0]["cluster"]
            ca = base64.b64decode(cluster["certificate-authority-data"])
            yield Server(
                name="embedded",
                url=cluster["server"],
                token=config["users"][0]["user"]["token"],
                context=ssl_context(ca),
                pids=[child.pid],
                ready=ready,
                kubeconfig=path,
            )


@contextlib.asynccontextmanager
async def real() -> AsyncIterator[Server]:
    """kube-apiserver and etcd."""
    started = time.monotonic()
    async with ControlPlane() as plane:
        yield Server(
            name="kube-apiserver + etcd",
            url=plane.url,
            token=plane.token,
            context=ssl_context(plane.ca_pem),
            pids=list(plane.processes.values()),
            ready=time.monotonic() - started,
        )


async def timed(server: Server, work: Awaitable[object]) -> tuple[float, float]:
    """Wall and server CPU seconds of `work`."""
    wall, cpu = time.monotonic(), server.cpu()
    await work
    return time.monotonic() - wall, server.cpu() - cpu


async def create(session: aiohttp.ClientSession, bodies: list[bytes]) -> None:
    """All of them, `CONCURRENCY` at a time."""
    waiting = iter(bodies)

    async def worker() -> None:
        for body in waiting:
            async with session.post(_PATH, data=body) as answer:
                assert answer.status == 201, await answer.text()
                await answer.read()

    await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))


async def list_all(session: aiohttp.ClientSession, expected: int) -> None:
    """One list of everything."""
    async with session.get(_PATH) as answer:
        body = await answer.read()
    found = body.count(b'"name":"config-')
    assert found == expected, f"{found} of {expected}"


class Watcher(asyncio.Protocol):
    """Counts the events that arrive on a socket, and does nothing else."""

    def __init__(self, server: Server, expected: int) -> None:
        self._request = (
            f"GET {_PATH}?watch=1&resourceVersion=0 HTTP/1.1\r\n"
            f"Host: bench\r\nAuthorization: Bearer {server.token}\r\nAccept: application/json\r\n\r\n"
        ).encode()
        self._expected = expected
        self._tail = b""
        self.seen = 0
        loop = asyncio.get_running_loop()
        self.open: asyncio.Future[None] = loop.create_future()
        self.complete: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._request)  # type: ignore[attr-defined]  # a stream is a transport that writes
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if not self.open.done():
            self.open.set_result(None)
        data = self._tail + data
        self.seen += data.count(_MARK)
        self._tail = data[-(len(_MARK) - 1) :]
        if self.seen >= self._expected and not self.complete.done():
            self.complete.set_result(None)


async def fan_out(session: aiohttp.ClientSession, watchers: list[Watcher], writes: int) -> None:
    """Change a few objects often, until every watcher has seen every change."""
    numbers = iter(range(writes))

    async def writer() -> None:
        for number in numbers:
            patch = msgspec.json.encode({"data": {"turn": str(number)}})
            async with session.patch(
                f"{_PATH}/config-{number % TARGETS:05}",
                data=patch,
                headers={"Content-Type": "application/merge-patch+json"},
            ) as answer:
                assert answer.status == 200, await answer.text()
                await answer.read()

    await asyncio.gather(*(writer() for _ in range(16)), *(watcher.complete for watcher in watchers))


async def measure(server: Server, options: argparse.Namespace) -> dict[str, float]:
    """Everything, on one server."""
    found = {"ready": server.ready}
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    connector = aiohttp.TCPConnector(ssl=server.context, limit=CONCURRENCY)
    async with aiohttp.ClientSession(server.url, headers=headers, connector=connector) as session:
        async with session.post("/api/v1/namespaces", json={"metadata": {"name": "bench"}}) as answer:
            assert answer.status == 201
        warm = [configmap(number) for number in range(200)]
        await create(session, warm)
        async with session.delete(_PATH) as answer:
            assert answer.status == 200
        wall, cpu = await timed(server, create(session, [configmap(number) for number in range(options.objects)]))
        found |= {"creates": options.objects / wall, "create_cpu": cpu / options.objects * 1e6}
        await list_all(session, options.objects)
        lists = [await timed(server, list_all(session, options.objects)) for _ in range(options.lists)]
        found |= {"list": min(wall for wall, _ in lists), "list_cpu": sum(cpu for _, cpu in lists) / len(lists)}
        async with session.delete(_PATH) as answer:  # the watchers start with few objects
            await answer.read()
        await create(session, [configmap(number) for number in range(TARGETS)])
        address = urlsplit(server.url)
        loop = asyncio.get_running_loop()
        watchers = [Watcher(server, options.writes) for _ in range(WATCHERS)]
        for watcher in watchers:
            await loop.create_connection(
                lambda watcher=watcher: watcher,
                address.hostname,
                address.port,
                ssl=server.context,
            )
        await asyncio.gather(*(watcher.open for watcher in watchers))
        wall, cpu = await timed(server, fan_out(session, watchers, options.writes))
        delivered = WATCHERS * options.writes
        found |= {"events": delivered / wall, "event_cpu": cpu / delivered * 1e6}
        for watcher in watchers:
            watcher.transport.abort()  # type: ignore[attr-defined]
    return found


def started(runs: int, python: Path = Path(sys.executable)) -> tuple[float, float]:
    """Milliseconds (wall, CPU) from the end of the import until the embedded server answers; the best run."""
    best = (float("inf"), float("inf"))
    for _ in range(runs):
        with Child([str(python), "-c", _START]) as child:
            facts = child.hear()
            best = min(best, (facts["wall"] * 1e3, facts["cpu"] * 1e3))
    return best


async def run(options: argparse.Namespace) -> int:
    """Both servers, in turns."""
    found: dict[str, dict[str, float]] = {}
    for _ in range(options.runs):
        for start in (embedded, real):
            async with start() as server:
                new = await measure(server, options)
                print(f"  {server.name}: {new}", file=sys.stderr)
                old = found.setdefault(server.name, new)
                for key, value in new.items():
                    old[key] = max(old[key], value) if key in {"creates", "events"} else min(old[key], value)
    ready_wall, ready_cpu = started(options.runs + 2)
    ours, theirs = found["embedded"], found["kube-apiserver + etcd"]
    results = Results(
        "apiserver",
        "The embedded API server",
        f"Both servers over TLS with the same load client in one run; the best of {options.runs} runs, taken in turns. "
        f"Creates: {options.objects:,} ConfigMaps of 1 KB, {CONCURRENCY} at a time. List: all of them in one response. "
        f"Fan-out: {options.writes:,} changes, each delivered to {WATCHERS} watchers. Ready: from starting the process "
        "(imports included) until it answers.",
        {"name": "", "ratio": "ours to theirs", "ours": "embedded", "theirs": "kube-apiserver + etcd"},
    )
    rows = {
        "creates": "creates per second",
        "create_cpu": "server CPU per create, µs",
        "list": "list of everything, s",
        "list_cpu": "server CPU per list, s",
        "events": "watch events delivered per second",
        "event_cpu": "server CPU per event delivered, µs",
        "ready": "ready after start, s",
    }
    for key, name in rows.items():
        ratio = ours[key] / theirs[key] if theirs[key] else None
        results.add(name=name, ratio=ratio, ours=ours[key], theirs=theirs[key])
    results.add(name="ready after import, ms", ratio=None, ours=ready_wall, theirs=None)
    results.add(name="CPU of starting after import, ms", ratio=None, ours=ready_cpu, theirs=None)
    results.bar("creates per second, ours to theirs", ours["creates"] / theirs["creates"], 1.0, at_least=True)
    results.bar("wall of a list, ours to theirs", ours["list"] / theirs["list"], 1.0)
    results.bar("CPU of a list, ours to theirs", ours["list_cpu"] / theirs["list_cpu"], 1.0)
    results.bar("events delivered per second, ours to theirs", ours["events"] / theirs["events"], 1.0, at_least=True)
    results.bar("ready after import, ms", ready_wall, STARTUP_MS)
    results.versions = {OURS.name: OURS.version(), "kube-apiserver": "1.36.3"}
    return results.finish()


def main() -> int:
    """1 when ours loses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=20_000)
    parser.add_argument("--writes", type=int, default=2_000)
    parser.add_argument("--lists", type=int, default=5)
    parser.add_argument("--runs", type=int, default=2)
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
