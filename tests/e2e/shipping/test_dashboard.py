"""No empty panel: every query of the dashboard, on a real Prometheus that scrapes the real process."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path

import aiohttp
import pytest
import yaml

from steersman.crd import crd_manifest
from steersman.operators import OPERATORS as OPERATOR_NAMES
from steersman.operators import load_operator
from steersman.testing import eventually
from steersman.testing.controlplane.processes import Child, ReservedPort
from steersman.testing.plugin import unavailable
from tests.support import hourglass
from tests.support.dns.zones import Site
from tests.support.toolset.services import service

ROOT = Path(__file__).parents[3]

_spec = importlib.util.spec_from_file_location("dashboard", ROOT / "tools" / "dashboard.py")
dashboard = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(dashboard)

QUERIES = {
    f"{row}: {title} ({legend})": query
    for row, panels in dashboard.ROWS.items()
    for title, _, queries in panels
    for query, legend in queries
}
OPERATORS = [row for row in dashboard.ROWS if row != dashboard.RUNTIME]
STEERSMAN = Path(sys.executable).with_name("steersman")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def prometheus():
    found = shutil.which("prometheus")
    if found is None:
        unavailable("prometheus is not installed (Debian: prometheus)")
    return found


@pytest.fixture
async def something_of_each(client, dns_kinds, namespace, named):
    """A zone with a server that runs and one that does not, services well and not, an executor, a performer."""
    for name in OPERATORS:
        for kind in load_operator(name).kinds:
            await client.apply(crd_manifest(kind))
    await hourglass.install(client)
    await client.create(hourglass.executor("one", namespace))
    await client.create(hourglass.performer("one", namespace))
    well = {"toolset-health": "skip"}
    await client.create(
        service("grafana", namespace=namespace, labels={"app": "grafana"}, annotations=well, ports=[3000])
    )
    await client.create(service("prometheus", namespace=namespace, labels={"app": "prometheus"}, ports=[9090]))
    async with named("ns1") as ns1, named("ns2", secret=ns1.secret) as down:
        await down.kill()
        site = Site(client, namespace, [ns1, down])
        await site.instances()
        await site.zone("dashboard.example")
        yield


def test_every_operator_has_a_row():
    assert set(dashboard.ROWS) == {dashboard.RUNTIME, *OPERATOR_NAMES}


@pytest.mark.usefixtures("something_of_each")
async def test_no_panel_of_the_dashboard_is_empty(real, namespace, prometheus, tmp_path):
    real.write_kubeconfig(tmp_path / "kubeconfig")
    command = [
        str(STEERSMAN),
        "run",
        "--operators",
        ",".join(OPERATORS),
        "--listen",
        "127.0.0.1:0",
        "--log-format",
        "json",
        "--config",
        str(tmp_path / "steersman.yaml"),
    ]
    settings = {"namespaces": [namespace], "dns": {"notReadyPeriod": "2s"}}
    settings["toolset"] = {"namespace": namespace, "namespaces": [namespace]}
    (tmp_path / "steersman.yaml").write_text(yaml.safe_dump(settings))
    elected = ["--leader-elect", "--lease", f"{namespace}/dashboard"]
    environment = {"KUBECONFIG": str(tmp_path / "kubeconfig"), "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    program = Child([*command, *elected], log=tmp_path / "steersman.log", environment=environment)
    try:
        port = await eventually(lambda: port_in(tmp_path / "steersman.log"), timeout=90)
        with ReservedPort() as promised:
            server = promised.address
        scrape = {"job_name": "steersman", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        settings = {"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape]}
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(settings))
        watcher = Child(
            [
                prometheus,
                f"--config.file={tmp_path / 'prometheus.yml'}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address={server}",
            ],
            log=tmp_path / "prometheus.log",
        )
        try:

            async def all_have_data():
                assert await empty_panels(f"http://{server}") == []
                return True

            await eventually(all_have_data, timeout=120)
        finally:
            await watcher.stop(deadline=20)
    finally:
        await program.stop(deadline=20)


def port_in(log: Path) -> int | None:
    found = re.search(r'"port": (\d+)', log.read_text()) if log.exists() else None
    return int(found[1]) if found else None


async def empty_panels(server: str) -> list[str]:
    """The panels whose query has no answer yet."""
    left = []
    async with aiohttp.ClientSession() as session:
        for panel, query in QUERIES.items():
            try:
                async with session.get(f"{server}/api/v1/query", params={"query": query}) as response:
                    answer = await response.json()
            except aiohttp.ClientError:
                return list(QUERIES)
            if not answer.get("data", {}).get("result"):
                left.append(panel)
    return left
