"""All operators with exactly what the chart gives them: its settings, its account, its rights. Nothing is refused."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import aiohttp
import pytest
import yaml

from steersman.kube.api.types import ConfigMap
from steersman.testing import eventually
from steersman.testing.controlplane.identities import kubeconfig
from steersman.testing.controlplane.processes import Child

CHART = Path(__file__).parents[3] / "charts" / "steersman"
STEERSMAN = Path(sys.executable).with_name("steersman")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

EVERYTHING = ["reload", "toolset", "hourglass", "dns"]


@pytest.mark.parametrize("scope", ["the whole cluster", "one namespace"])
async def test_the_program_gets_ready_with_the_charts_account_and_nothing_is_refused(
    real, client, helm, namespace, tmp_path, scope
):
    release, where = f"r{namespace[-6:]}", ["--namespace", namespace]
    values = {"operators": EVERYTHING, "config": {"toolset": {"namespace": namespace}}}
    if scope == "one namespace":
        values["namespaces"] = [namespace]
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    await helm("install", release, str(CHART), "--take-ownership", *where, "--values", str(tmp_path / "values.yaml"))
    name = f"{release}-steersman"
    settings = yaml.safe_load((await client.get(ConfigMap, name, namespace=namespace)).data["steersman.yaml"])
    (tmp_path / "steersman.yaml").write_text(yaml.safe_dump({**settings, "listen": "127.0.0.1:0"}))
    token = await client.create_token(name, namespace=namespace)
    credentials = kubeconfig(real.url, real.ca_pem, name=name, user={"token": token.token}, namespace=namespace)
    (tmp_path / "account").write_text(credentials)
    since = real.audit.mark()
    program = Child(
        [STEERSMAN, "run", "--config", str(tmp_path / "steersman.yaml"), "--log-format", "json"],
        log=tmp_path / "log",
        environment={"KUBECONFIG": str(tmp_path / "account"), "PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )
    try:
        port = await eventually(lambda: port_in(tmp_path / "log"))

        async def ready():
            assert program.exit_code is None, program.tail(20)
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{port}/readyz?verbose") as answer,
            ):
                assert answer.status == 200, await answer.text()
            return True

        await eventually(ready, timeout=180)
        assert leaves_no_core(program.pid)
        user = f"system:serviceaccount:{namespace}:{name}"
        refused = [
            f"{entry.verb} {entry.uri}"
            for entry in real.audit.entries(user=user, since=since)
            if entry.status in (401, 403)
        ]
        # A namespace of another test that is going away refuses every Event, whoever sends it.
        assert [refusal for refusal in refused if "/events" not in refusal or namespace in refusal] == []
    finally:
        await program.stop(deadline=30)
        await helm("uninstall", release, *where)


def leaves_no_core(pid: int) -> bool:
    return bool(re.search(r"Max core file size +0 +0 ", Path(f"/proc/{pid}/limits").read_text()))


def port_in(log: Path) -> int | None:
    for line in log.read_text().splitlines() if log.exists() else ():
        found = yaml.safe_load(line) if line.startswith("{") else {}
        if found.get("event") == "listening":
            return int(found["port"])
    return None
