"""Whether anything grows while the operators work at constant size.

The operators (reload, toolset and hourglass) run as one process on the embedded API server with simulated nodes.
Objects are edited, deleted and created again under new names, and every minute a whole namespace is replaced, so that
their number stays the same. Once a minute the process is sampled: resident memory, file descriptors, tasks, objects
that Python's collector tracks, and metric series. The second quarter of the samples is compared with the last one; the
first is warm-up.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import socket
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
from children import Child
from results import Results

from steersman.crd import crd_manifest
from steersman.kube.api.errors import KubeError
from steersman.kube.api.types import ConfigMap, Deployment, Namespace, Secret, Service
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.operators.hourglass.api.types import HourglassExecutor, Performer
from tests.support.hourglass import performer
from tests.support.toolset.services import service

STEERSMAN = str(Path(sys.executable).with_name("steersman"))
CONFIG = """\
reload: {quietPeriod: 1s, maxDelay: 5s, budget: {restarts: 0}}
toolset: {namespace: default, healthCheck: {enabled: false}}
"""
NAMESPACES, WORKLOADS = 10, 5
GROWTH = {"resident": 1.05, "descriptors": 1.1, "tasks": 1.1, "objects": 1.05, "series": 1.02}


def deployment(name: str, namespace: str) -> dict[str, Any]:
    """A Deployment of one pod that reads the ConfigMap and the Secret of its namespace."""
    labels = {"app": name}
    sources = [{"configMapRef": {"name": "app"}}, {"secretRef": {"name": "db"}}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "annotations": {"steersman.dev/reload": "auto"}},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "web:1", "envFrom": sources}]},
            },
        },
    }


def manifest(kind: str, name: str, namespace: str | None = None, **fields: Any) -> dict[str, Any]:
    """An object of the core group."""
    place = {} if namespace is None else {"namespace": namespace}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, **place}, **fields}


class Churn:
    """A constant number of objects, of which each turn changes some."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._numbers = itertools.count()
        self.teams: list[tuple[str, list[str]]] = []
        self.changes = 0

    async def add_team(self) -> None:
        """A namespace with everything in it."""
        team = f"team-{next(self._numbers)}"
        await self._client.create(manifest("Namespace", team))
        await self._client.create(manifest("ConfigMap", "app", team, data={"turn": "0"}))
        await self._client.create(manifest("Secret", "db", team, stringData={"turn": "0"}))
        await self._client.create(
            service("metrics", namespace=team, labels={"app": "prometheus"}, ports=[("http", 80)])
        )
        await self._client.create(performer("inference", team))
        names = [f"web-{next(self._numbers)}" for _ in range(WORKLOADS)]
        for name in names:
            await self._client.create(deployment(name, team))
        self.teams.append((team, names))

    async def replace_team(self) -> None:
        """The oldest namespace goes, a new one comes."""
        team, _ = self.teams.pop(0)
        await self._client.delete(Namespace, team)
        await self.add_team()

    async def turn(self, number: int) -> None:
        """Change a little everywhere in one namespace."""
        team, names = self.teams[number % len(self.teams)]
        text = str(number)
        for kind, name, patch in (
            (ConfigMap, "app", {"data": {"turn": text}}),
            (Secret, "db", {"stringData": {"turn": text}}),
            (Service, "metrics", {"metadata": {"annotations": {"turn": text}}}),
            (Performer, "inference", {"spec": {"image": f"avs:{number % 7}"}}),
        ):
            await self._client.patch(kind, name, patch, namespace=team)
        old, new = names.pop(0), f"web-{next(self._numbers)}"
        names.append(new)
        await self._client.delete(Deployment, old, namespace=team, propagation="Background")
        await self._client.create(deployment(new, team))
        self.changes += 6


async def sample(session: aiohttp.ClientSession, child: Child, page: str) -> dict[str, float]:
    """What the process holds now."""
    async with session.get(f"{page}/debug/heap") as answer:
        heap = await answer.json()
    async with session.get(f"{page}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return {
        "resident": child.usage().resident,
        "descriptors": len(await asyncio.to_thread(lambda: list(Path(f"/proc/{child.pid}/fd").iterdir()))),
        "tasks": heap["tasks"],
        "objects": heap["objects"],
        "series": sum(not line.startswith("#") for line in lines),
    }


async def run(options: argparse.Namespace) -> int:
    """Churn for some minutes, a sample at each."""
    with tempfile.TemporaryDirectory() as name, socket.socket() as free:
        folder = Path(name)
        kubeconfig, config = folder / "kubeconfig", folder / "steersman.yaml"
        config.write_text(CONFIG)
        free.bind(("127.0.0.1", 0))
        page = f"http://127.0.0.1:{free.getsockname()[1]}"
        free.close()
        async with AsyncExitStack() as stack:
            stack.enter_context(
                Child([STEERSMAN, "apiserver", "--simulate", "--no-tls", "--kubeconfig-out", str(kubeconfig)])
            )
            while not kubeconfig.exists():  # noqa: ASYNC110  another process writes it
                await asyncio.sleep(0.1)
            client = await stack.enter_async_context(Client.connect(load_config(kubeconfig)))
            session = await stack.enter_async_context(aiohttp.ClientSession())
            for kind in (HourglassExecutor, Performer):
                await client.create(crd_manifest(kind))
            churn = Churn(client)
            while True:
                try:
                    await churn.add_team()
                except KubeError:  # the definitions are not served yet
                    await asyncio.sleep(0.5)
                    continue
                if len(churn.teams) == NAMESPACES:
                    break
            command = [STEERSMAN, "run", "--operators", "reload,toolset,hourglass", "--config", str(config)]
            command += ["--listen", page.removeprefix("http://"), "--kubeconfig", str(kubeconfig)]
            child = stack.enter_context(Child([*command, "--profiling", "--log-level", "error"]))
            samples, number, began = [], 0, time.monotonic()
            while len(samples) < options.minutes:
                while time.monotonic() < began + 60 * (len(samples) + 1):
                    await churn.turn(number)
                    number += 1
                    await asyncio.sleep(options.pause)
                await churn.replace_team()
                samples.append(await sample(session, child, page))
                print(len(samples), {key: round(value, 1) for key, value in samples[-1].items()}, flush=True)
    quarter = len(samples) // 4
    results = Results(
        "soak",
        f"{options.minutes} minutes of churn at constant size",
        f"reload, toolset and hourglass in one process beside {NAMESPACES} namespaces of {WORKLOADS} Deployments; "
        f"{churn.changes:,} changes, {options.minutes} namespaces replaced. Before: the median of the second "
        "quarter of the samples, after: of the last; the first is warm-up.",
        {"name": "", "ratio": "after / before", "before": "before", "after": "after"},
    )
    for key, limit in GROWTH.items():
        before = median(row[key] for row in samples[quarter : 2 * quarter])
        after = median(row[key] for row in samples[-quarter:])
        results.add(name=key, ratio=after / before, before=before, after=after)
        results.bar(f"growth of {key}", after / before, limit)
    return results.finish()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=60, help="how long; at least 4")
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between turns of six changes")
    sys.exit(asyncio.run(run(parser.parse_args())))
