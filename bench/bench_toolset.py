"""What discovery costs: many Services, some of them tools, until the ConfigMap says so; then an idle minute.

The operator runs as its own process on an embedded API server with probes switched off. Counted are its requests: the
lists and watches it starts with, the writes of the one ConfigMap, and then nothing while nothing happens.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from children import Child
from results import Results

from steersman.apiserver import EmbeddedServer
from steersman.apiserver.http.faults import Fault
from steersman.kube.api.errors import NotFound
from steersman.kube.api.types import ConfigMap
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.testing import RequestLog
from tests.support.toolset.services import service

CONFIG = "toolset:\n  namespace: bench\n  healthCheck: {enabled: false}\n  api: {enabled: false}\n"
LATENCY = 2.0  # seconds from a new Service to the ConfigMap, debounce included
MEMORY = 80.0  # MiB


async def fill(client: Client, services: int, matches: int) -> None:
    """Services in ten namespaces; every so many is a Prometheus."""
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench"}})
    for number in range(10):
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"team-{number}"}})
    every = max(1, services // matches)
    for number in range(services):
        labels = {"app": "prometheus"} if number % every == 0 else {"app": f"shop-{number}"}
        await client.create(
            service(f"svc-{number}", namespace=f"team-{number % 10}", labels=labels, ports=[("http", 8000)])
        )


async def until(client: Client, toolsets: int) -> None:
    """Wait until the ConfigMap has that many toolsets."""
    while True:
        try:
            found = await client.get(ConfigMap, "kubernaut-toolset-config", namespace="bench")
            if sum(key.endswith("-toolset.yaml") for key in found.data) >= toolsets + 1:
                return
        except NotFound:
            pass
        await asyncio.sleep(0.02)


async def run(options: argparse.Namespace) -> int:
    """Fill, start, converge, add one, idle."""
    with tempfile.TemporaryDirectory() as folder:
        config, kubeconfig = Path(folder) / "steersman.yaml", Path(folder) / "kubeconfig"
        config.write_text(CONFIG)
        async with EmbeddedServer() as server:
            server.write_kubeconfig(kubeconfig)
            server.faults.add(Fault("delay", user_agent="steersman"))
            async with Client.connect(load_config(kubeconfig)) as client, AsyncExitStack() as stack:
                log = stack.enter_context(RequestLog(client))
                await fill(client, options.services, options.matches)
                command = [sys.executable, "-m", "steersman", "run", "--operators", "toolset", "--config", str(config)]
                command += ["--listen", "127.0.0.1:0", "--kubeconfig", str(kubeconfig), "--log-level", "error"]
                started = time.monotonic()
                with Child(command) as child:
                    await until(client, options.matches)
                    converged = time.monotonic() - started
                    await asyncio.sleep(2)
                    requests = _count(server, log)
                    began = time.monotonic()
                    await client.create(
                        service("late", namespace="team-0", labels={"app": "prometheus"}, ports=[("http", 8000)])
                    )
                    await until(client, options.matches + 1)
                    latency = time.monotonic() - began
                    await asyncio.sleep(2)
                    before, cpu = _count(server, log), child.usage().cpu
                    await asyncio.sleep(options.idle)
                    idle, idle_cpu = _count(server, log) - before, child.usage().cpu - cpu
                    used = child.usage()
    results = Results(
        "toolset",
        f"{options.services:,} Services, {options.matches} of them tools",
        "The operator starts as a process of its own on an embedded API server that holds the Services. Converged: "
        "from starting the process until the ConfigMap holds every toolset. Latency: from a new Service to its key, "
        f"half a second of debounce included. Idle: requests of the operator in {options.idle:g} seconds without a "
        "change.",
        {"name": "", "converged": "s to converge", "latency": "s for one more", "requests": "requests to converge",
         "idle": "requests while idle", "idle_cpu": "CPU s while idle", "memory": "MiB"},
    )  # fmt: skip
    results.add(
        name="steersman toolset",
        converged=converged,
        latency=latency,
        requests=requests,
        idle=idle,
        idle_cpu=idle_cpu,
        memory=used.resident,
    )
    results.bar("requests while idle", idle, 0)
    results.bar("seconds for one more Service", latency, LATENCY)
    results.bar("MiB", used.resident, MEMORY)
    if options.services < 1_000:
        print(results.markdown())
        return int(not all(bar.held for bar in results.bars))
    return results.finish()


def _count(server: EmbeddedServer, log: RequestLog) -> int:
    """Requests of the operator so far: each met the rule that delays nothing, as did ours."""
    return len(server.faults.hits) - len(log.requests)


def main() -> int:
    """1 when a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=1_000)
    parser.add_argument("--matches", type=int, default=100)
    parser.add_argument("--idle", type=float, default=60.0)
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
