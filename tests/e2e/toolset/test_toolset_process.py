"""The real program on the real control plane, with rights in one namespace only, and real services to ask."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import msgspec
import pytest
import yaml

from steersman.crd import crd_manifest
from steersman.kube.api.errors import NotFound
from steersman.kube.api.types import ConfigMap, Service
from steersman.operators.toolset.api.config import ToolsetSection
from steersman.operators.toolset.api.crd import ToolsetConfig
from steersman.operators.toolset.reconcile.rbac import rules
from steersman.testing import eventually
from steersman.testing.plugin import unavailable
from tests.support.programs.monitoring import MonitoringError, prometheus
from tests.support.toolset.services import service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
STEERSMAN = Path(sys.executable).with_name("steersman")
NAME = "kubernaut-toolset-config"
CALLING = {"apiGroups": ["steersman.dev"], "resources": ["toolsets"], "verbs": ["get", "create"]}
CONFIG = """
toolset:
  namespace: {namespace}
  namespaces: [{namespace}]
  trustedNamespaces: [{namespace}]
  healthCheck: {{interval: 1s, timeout: 20s, attempts: 1, emptyAfter: 1s}}
  api: {{writes: true}}
"""


@pytest.fixture
async def programs(tmp_path):
    async with AsyncExitStack() as stack:
        found = {}
        try:
            folder = tmp_path / "prometheus"
            folder.mkdir()
            found["prometheus"] = await stack.enter_async_context(prometheus(folder))
        except MonitoringError as error:
            unavailable(error)
        yield found


async def grant(client, namespace):
    """A service account with the operator's own rules, as a Role of this namespace; reviews need a ClusterRole."""
    meta = {"name": "toolset", "namespace": namespace}
    await client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    wire = [msgspec.to_builtins(rule) for rule in rules(ToolsetSection(namespace=namespace))]
    reviews = [rule for rule in wire if rule["apiGroups"][0].startswith("auth")]
    subject = {"kind": "ServiceAccount", "name": "toolset", "namespace": namespace}
    group = "rbac.authorization.k8s.io"
    for kind, where, granted in (
        ("Role", meta, [*(rule for rule in wire if rule not in reviews), CALLING]),
        ("ClusterRole", {"name": f"toolset-{namespace}"}, reviews),
    ):
        await client.create({"apiVersion": f"{group}/v1", "kind": kind, "metadata": where, "rules": granted})
        await client.create(
            {
                "apiVersion": f"{group}/v1",
                "kind": f"{kind}Binding",
                "metadata": where,
                "roleRef": {"apiGroup": group, "kind": kind, "name": where["name"]},
                "subjects": [subject],
            }
        )
    return (await client.create_token("toolset", namespace=namespace)).token


def kubeconfig(server, token, path):
    """As the service account, and as nobody else."""
    server.write_kubeconfig(path)
    value = yaml.safe_load(path.read_text())
    value["users"] = [{"name": user["name"], "user": {"token": token}} for user in value["users"]]
    path.write_text(yaml.safe_dump(value))


class Program:
    """The process, started again and again."""

    def __init__(self, folder):
        self.folder = folder
        self.process = None
        self.log = folder / "log"

    async def start(self):
        with self.log.open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                STEERSMAN,
                *("run", "--operators", "toolset", "--config", str(self.folder / "steersman.yaml")),
                *("--listen", "127.0.0.1:0", "--log-format", "json"),
                env={"KUBECONFIG": str(self.folder / "kubeconfig"), "PATH": "/usr/bin:/bin", "HOME": str(self.folder)},
                stdout=asyncio.subprocess.DEVNULL,
                stderr=log,
            )

    def url(self):
        found = re.search(r'"port": ?(\d+)', self.log.read_text())
        return found and f"http://127.0.0.1:{found[1]}"

    async def kill(self):
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
        if self.process is not None:
            await self.process.wait()


@pytest.fixture
async def program(tmp_path):
    made = Program(tmp_path)
    yield made
    await made.kill()


async def _served(client):
    await client.list(ToolsetConfig)
    return True


async def test_a_day_in_the_life_of_the_program(  # noqa: PLR0915  # one day
    real, client, namespace, program, programs, tmp_path
):
    await client.apply(crd_manifest(ToolsetConfig), field_manager="test", force=True)
    await eventually(lambda: _served(client), timeout=120)
    token = await grant(client, namespace)
    kubeconfig(real, token, tmp_path / "kubeconfig")
    (tmp_path / "steersman.yaml").write_text(CONFIG.format(namespace=namespace))
    await program.start()

    async def data():
        return (await client.get(ConfigMap, NAME, namespace=namespace)).data

    async def has(*keys, without=()):
        async def fact():
            found = await data()
            return {*keys} <= found.keys() and not {*without} & found.keys()

        try:
            await eventually(fact, f"{keys}, not {without}", timeout=120)
        except AssertionError as error:
            error.add_note(program.log.read_text()[-3000:])
            raise

    await has("kubernetes-toolset.yaml")

    # a real Prometheus is found; one that does not answer where a Grafana would is no Grafana
    async def add(name, url, **annotations):
        asked = {"toolset": "true", "toolset-endpoint": url, **annotations}
        await client.create(service(name, namespace=namespace, annotations=asked, ports=[80]))

    await add("metrics", programs["prometheus"], **{"toolset-type": "prometheus"})
    await add("wrong", programs["prometheus"], **{"toolset-type": "grafana", "toolset-health-path": "/api/v1/nothing"})
    await has("prometheus-toolset.yaml", without=["grafana-toolset.yaml"])
    assert programs["prometheus"] in (await data())["custom_toolset.yaml"]

    # the API knows both, and answers only to whom it may
    url = await eventually(program.url, "it says where it listens", timeout=120)
    async with aiohttp.ClientSession() as session:

        async def get(path, headers=None):
            async with session.get(f"{url}{path}", headers=headers) as answer:
                return answer.status, await answer.json(content_type=None)

        assert (await get("/api/v1/services"))[0] == 401
        assert (await get("/api/v1/services", {"Authorization": "Bearer nonsense"}))[0] == 401
        bearer = {"Authorization": f"Bearer {token}"}

        async def both():
            status, found = await get("/api/v1/services", bearer)
            assert status == 200
            return {one["name"]: one["included"] for one in found["services"]} == {"metrics": True, "wrong": False}

        await eventually(both, "one takes part and one does not", timeout=120)
        stranger = (await client.create_token("default", namespace=namespace)).token
        assert (await get("/api/v1/services", {"Authorization": f"Bearer {stranger}"}))[0] == 403
        body = {"namespaces": [namespace], "serviceTypes": ["grafana"], "force": True}
        async with session.post(f"{url}/api/v1/discover", json=body, headers=bearer) as answer:
            assert answer.status == 202
            job = (await answer.json())["jobId"]

        async def finished():
            status, value = await get(f"/api/v1/discover/{job}", bearer)
            assert status == 200
            assert [one["name"] for one in value["services"]] == ["wrong"]
            return value["done"]

        await eventually(finished, "the job is done", timeout=120)
        async with session.get(f"{url}/metrics") as answer:
            assert "toolset_services_discovered" in await answer.text()

    # killed in the middle of changes, it ends where it should, and overrides are what they were
    overrides = "# mine\ngrafana:\n  url: http://grafana.example:3000\n"
    await client.patch(ConfigMap, NAME, {"data": {"overrides.yaml": overrides}}, namespace=namespace)
    await program.kill()
    await client.patch(ConfigMap, NAME, {"data": {"prometheus-toolset.yaml": "broken"}}, namespace=namespace)
    await client.delete(Service, "wrong", namespace=namespace)
    await program.start()

    async def right():
        found = await data()
        assert found["overrides.yaml"] == overrides
        assert "grafana.example" in found["custom_toolset.yaml"]
        return found["prometheus-toolset.yaml"] != "broken"

    await eventually(right, "drift of its absence is put right", timeout=120)
    await client.delete(ConfigMap, NAME, namespace=namespace)

    async def back():
        try:
            return (await data()).get("overrides.yaml") == overrides
        except NotFound:
            return False

    await eventually(back, "it comes back with its overrides", timeout=120)
    await client.delete(Service, "metrics", namespace=namespace)
    await has("kubernetes-toolset.yaml", without=["prometheus-toolset.yaml"])
    program.process.send_signal(signal.SIGTERM)
    assert await program.process.wait() == 0
