"""Load: changes as fast as asked for, on an API server at its inflight limits while other clients hammer it.

The operator is a real process of reload. Users change ConfigMaps at a rate, clients without a pause list everything,
and the API server accepts few requests at once, so that the operator gets 429 as the others do. A prober asks the
operator's probes, metrics and page all the time. In the end a new workload is created beside each: what the operator
records for both must be the same, or a change was lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from steersman.kube.api.types import ConfigMap, Deployment
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.operators.reload.api.annotations import APPLIED
from steersman.operators.reload.planning.state import read_state
from steersman.simulate import simulation
from steersman.testing import ControlPlane, RawApi
from steersman.testing.controlplane.processes import LOOPBACK, Child
from steersman.testing.raw_api import ssl_context
from tests.support.chaos.real import EVERYTHING, PATIENCE, STEERSMAN
from tests.support.programs.loopback_server import PortClaim

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["LoadResult", "queued_keys", "render_load", "run_load"]

NAMESPACE = "load"
SOURCES = 50
HAMMERS = 30  # clients without a pause
CHANGERS = 16  # changes under way at once
INFLIGHT = 12  # requests that the API server works on at once, reads and writes together
PROBES = ("/healthz", "/readyz", "/livez", "/metrics", "/")
PROBE_SECONDS = 0.5
SETTINGS = "reload: {quietPeriod: 1s, maxDelay: 5s, budget: {restarts: 0}, kinds: [Deployment]}\nnamespaces: [load]\n"
LIMITS = (f"--max-requests-inflight={INFLIGHT * 2 // 3}", f"--max-mutating-requests-inflight={INFLIGHT // 3}")


class LoadResult(msgspec.Struct):
    """What a load came to."""

    seconds: float = 0.0
    changes: int = 0
    hammered: int = 0  # requests of the other clients
    rejected: int = 0  # of these, with 429
    lost: list[str] = []
    backlog: int = 0  # the most keys in the queues at once
    probes: int = 0
    failed_probes: Counter[str] = msgspec.field(default_factory=Counter)
    slowest_probe: float = 0.0
    recovery: float = 0.0  # seconds from the last change until everything was as users asked

    @property
    def per_minute(self) -> float:
        """Changes a minute, as they were made."""
        return 60 * self.changes / self.seconds if self.seconds else 0.0


def render_load(result: LoadResult) -> str:
    """The table, as Markdown."""
    rows = {
        "duration": f"{result.seconds:.0f} s",
        "changes made": f"{result.changes:,} ({result.per_minute:,.0f} a minute)",
        "requests of other clients": f"{result.hammered:,}",
        "of these answered with 429": f"{result.rejected:,}",
        "lost": f"{len(result.lost)}",
        "most keys in the queues": f"{result.backlog} of {SOURCES} workloads",
        "probes, metrics and page": f"{result.probes:,} asked, {result.failed_probes.total()} failed, "
        f"slowest {result.slowest_probe:.2f} s",
        "recovery": f"{result.recovery:.1f} s",
    }
    return "\n".join(["| load | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows.items())])


async def run_load(minutes: float, rate: float) -> LoadResult:
    """Change sources at `rate` a minute for so long, as far as the machine can."""
    result = LoadResult()
    async with contextlib.AsyncExitStack() as stack:
        plane = await stack.enter_async_context(ControlPlane(apiserver_flags=LIMITS))
        config = load_config(plane.write_kubeconfig(plane.folder / "user.kubeconfig"))
        client = await stack.enter_async_context(Client.connect(config, user_agent="user"))
        await stack.enter_async_context(simulation(client))
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        for number in range(SOURCES):
            await client.create(_source(number))
            await client.create(_workload(f"web-{number}", number))
        operator = await plane.user("operator", EVERYTHING)
        await plane.user("hammer", EVERYTHING)
        claim = PortClaim()
        stack.callback(claim.release)
        (plane.folder / "load.yaml").write_text(SETTINGS)
        listen = f"{LOOPBACK}:{claim.number}"
        command: list[str | Path] = [
            STEERSMAN,
            "run",
            "--operators",
            "reload",
            "--config",
            plane.folder / "load.yaml",
            "--listen",
            listen,
        ]
        environment = {"KUBECONFIG": str(operator), "PATH": os.defpath, "HOME": str(plane.folder)}
        child = Child([*command, "--log-level", "warning"], log=plane.folder / "operator.log", environment=environment)
        stack.push_async_callback(child.stop, deadline=10.0)
        await _until_recorded(client, [f"web-{number}" for number in range(SOURCES)])
        api = RawApi(
            plane.url,
            token=plane.token,
            ssl_context=ssl_context(plane.ca_pem),
            user_agent="hammer",
            headers={"Impersonate-User": "hammer"},  # the administrator has no limits
        )
        await stack.enter_async_context(api)
        hammers = [asyncio.create_task(_hammer(api, result)) for _ in range(HAMMERS)]
        prober = asyncio.create_task(_probe(f"http://{listen}", result))
        try:
            await _change(client, minutes, rate, result)
            began = time.monotonic()
            for task in hammers:
                task.cancel()
            result.lost = await _lost(client)
            result.recovery = time.monotonic() - began
        finally:
            for task in (*hammers, prober):
                task.cancel()
            await asyncio.gather(*hammers, prober, return_exceptions=True)
        if child.exit_code is not None:
            result.lost.append(f"the operator ended with {child.exit_code}: {child.tail()}")
    return result


async def _change(client: Client, minutes: float, rate: float, result: LoadResult) -> None:
    began = time.monotonic()
    end, pause = began + 60 * minutes, 60 / rate

    async def changer(first: int) -> None:
        number = first
        while (due := began + number * pause) < end and time.monotonic() < end:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            data = {"data": {"mode": str(number)}}
            await client.patch(ConfigMap, f"app-{number % SOURCES}", data, namespace=NAMESPACE)
            result.changes += 1
            number += CHANGERS

    await asyncio.gather(*map(changer, range(CHANGERS)))
    result.seconds = time.monotonic() - began


async def _hammer(api: RawApi, result: LoadResult) -> None:
    while True:
        answer = await api.get("/api/v1/configmaps")
        result.hammered += 1
        result.rejected += answer.status == 429


async def _probe(url: str, result: LoadResult) -> None:
    """Ask the operator's listener, and keep the slowest answer and the longest queue."""
    async with aiohttp.ClientSession() as session:
        while True:
            for path in PROBES:
                began = time.monotonic()
                try:
                    async with session.get(url + path, timeout=aiohttp.ClientTimeout(total=30)) as answer:
                        text = await answer.text()
                        if answer.status != 200:
                            bad = [line for line in text.splitlines() if not line.startswith("[+]")]
                            result.failed_probes[f"{path} {answer.status} {bad[:3]}"] += 1
                except (aiohttp.ClientError, TimeoutError) as error:
                    result.failed_probes[f"{path} {error!r}"] += 1
                    continue
                result.probes += 1
                result.slowest_probe = max(result.slowest_probe, time.monotonic() - began)
                if path == "/metrics":
                    result.backlog = max(result.backlog, queued_keys(text))
            await asyncio.sleep(PROBE_SECONDS)


def queued_keys(metrics: str) -> int:
    """How many keys wait in all queues of a process, from its metrics."""
    rows = [line for line in metrics.splitlines() if line.startswith("workqueue_depth{")]
    return int(sum(float(row.rpartition(" ")[2]) for row in rows))


async def _lost(client: Client) -> list[str]:
    """Workloads whose record is not that of a workload which is created now, after all there was time for."""
    names = [f"after-{number}" for number in range(SOURCES)]
    for number, name in enumerate(names):
        await client.create(_workload(name, number))
    await _until_recorded(client, names)
    until = time.monotonic() + PATIENCE
    while True:
        records = await _records(client)
        lost = [f"web-{n}" for n in range(SOURCES) if records[f"web-{n}"] != records[f"after-{n}"]]
        if not lost or time.monotonic() > until:
            return lost
        await asyncio.sleep(0.5)


async def _until_recorded(client: Client, names: Sequence[str]) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        records = await _records(client)
        if all(records.get(name) is not None for name in names):
            return
        await asyncio.sleep(0.5)
    raise TimeoutError("the operator does not record the workloads")


async def _records(client: Client) -> dict[str, Any]:
    """What the operator says each workload was last started for."""
    found = (await client.list(Deployment, namespace=NAMESPACE)).items
    states = {item.name: read_state((item.metadata.annotations or {}).get(APPLIED)).applied for item in found}
    return {name: state and state.sources for name, state in states.items()}


def _source(number: int) -> dict[str, Any]:
    meta = {"name": f"app-{number}", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"mode": "first"}}


def _workload(name: str, number: int) -> dict[str, Any]:
    uses = [{"configMapRef": {"name": f"app-{number}"}}]
    container = {"name": "main", "image": "web:1", "envFrom": uses}
    spec = {
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
    }
    meta = {"name": name, "namespace": NAMESPACE, "annotations": {"steersman.dev/reload": "auto"}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}
