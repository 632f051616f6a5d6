"""The real program while the API server is killed and started again: it goes on by itself, and at once."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from steersman.kube.api.types import ConfigMap, Deployment
from steersman.testing import eventually

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

STEERSMAN = Path(sys.executable).with_name("steersman")
CONFIG = "reload: {quietPeriod: 0s, maxDelay: 0s, kinds: [Deployment], namespaces: [%s]}\n"
FAILS, WORKS = "the source fails and is retried", "the source works again"


class Program:
    """`steersman run --operators reload`, its log and its listener."""

    def __init__(self, log):
        self._log = log

    def lines(self):
        """What it has logged."""
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]

    async def get(self, path):
        """The status and body of an answer of the listener."""
        port = next((line["port"] for line in self.lines() if line["event"] == "listening"), None)
        if port is None:
            return 0, ""
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, await answer.text()

    async def is_ready(self):
        return (await self.get("/readyz"))[0] == 200

    async def is_not_ready(self):
        return (await self.get("/readyz"))[0] == 503

    async def count(self, name, **labels):
        """The sum of a metric over all sources of ConfigMaps."""
        _, text = await self.get("/metrics")
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return sum(
            sample.value
            for sample in samples
            if sample.name == name
            and "configmaps" in sample.labels.get("source", "")
            and labels.items() <= sample.labels.items()
        )


@pytest.fixture
async def program(real, namespace, tmp_path):
    real.write_kubeconfig(tmp_path / "kubeconfig")
    (tmp_path / "steersman.yaml").write_text(CONFIG % namespace)
    with (tmp_path / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            STEERSMAN,
            *("run", "--operators", "reload", "--config", str(tmp_path / "steersman.yaml")),
            *("--listen", "127.0.0.1:0", "--log-format", "json"),
            env={"KUBECONFIG": str(tmp_path / "kubeconfig"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=log,
        )
        yield Program(tmp_path / "log")
        process.kill()
        await process.wait()
    print((tmp_path / "log").read_text()[-3000:])  # noqa: T201  # shown when the test fails


async def restarted_for(client, namespace):
    found = await client.get(Deployment, "web", namespace=namespace)
    return (found.spec.template.metadata.annotations or {}).get("steersman.dev/restarted-at")


async def test_after_a_restart_of_the_api_server_a_410_is_followed_by_the_list_and_the_next_change_restarts(
    real, client, namespace, program
):
    source = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app", "namespace": namespace}}
    await client.create({**source, "data": {"mode": "a"}})
    container = {"name": "main", "image": "web:1", "envFrom": [{"configMapRef": {"name": "app"}}]}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    meta = {"name": "web", "namespace": namespace, "annotations": {"steersman.dev/reload": "auto"}}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
    await client.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})

    async def is_seeded():
        found = await client.get(Deployment, "web", namespace=namespace)
        return "steersman.dev/applied" in found.annotations

    await eventually(is_seeded, timeout=120)
    await eventually(program.is_ready, timeout=120)
    lists = await program.count("steersman_cache_lists_total")
    restarting = asyncio.create_task(real.restart_server())
    await eventually(program.is_not_ready, "the process says that it sees nothing", timeout=120)
    await restarting
    await client.patch(ConfigMap, "app", {"data": {"mode": "b"}}, namespace=namespace)
    await eventually(lambda: restarted_for(client, namespace), "the workload restarted", timeout=120)
    await eventually(program.is_ready, "the process is ready again", timeout=120)

    said = defaultdict(list)
    for line in program.lines():
        if line["event"] in {FAILS, WORKS}:
            said[line["source"]].append(WORKS if line["event"] == WORKS else line["reason"])
    for kind in ("configmaps", "secrets", "deployments"):
        (steps,) = [steps for name, steps in said.items() if name.startswith(kind)]
        assert steps[-1] == WORKS, kind
        # a 410 is followed by the list, and nothing fails again
        after_expiry = [then for step, then in pairwise(steps) if step == "Expired"]
        assert after_expiry in ([], [WORKS]), f"{kind}: {steps}"
    assert await program.count("steersman_cache_failures_total", reason="Expired") <= 1
    assert await program.count("steersman_cache_lists_total") <= lists + 1
