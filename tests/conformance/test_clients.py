"""A short life of an operator with clients of others: it sees the same on both servers.

Each life is a program with nothing of ours. It prints what it saw, without anything that differs between two runs, and
"done" at its end.
"""

from __future__ import annotations

import asyncio
import json
import os
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from steersman.apiserver import EmbeddedServer
from steersman.testing.controlplane.binaries import BinariesError
from steersman.testing.plugin import unavailable
from steersman.testing.raw_api import RawApi, ssl_context
from tests.support.programs.crates import KUBE_RS
from tests.support.programs.go_programs import CLIENT_GO
from tests.support.programs.python_environments import python_environment

if TYPE_CHECKING:
    from steersman.testing.raw_api import ApiServer

CLIENTS = Path(__file__).with_name("clients")
ONLY_PYTHON = {"elected", "informed of configmaps"}  # its elector counts no transitions, its informer has no resync

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("name", ["asyncio", "client-go", "kopf", "kr8s", "kube-rs", "lightkube", "official"])
async def test_an_operator_sees_the_same_on_both_servers(
    name: str, embedded: ApiServer, real: ApiServer, tmp_path: Path
):
    ours = await live(name, embedded, tmp_path / "ours")
    theirs = await live(name, real, tmp_path / "theirs")
    assert ours == theirs
    assert ours[-1] == {"step": "done"}


async def test_clients_of_different_languages_see_the_same(tmp_path: Path):
    async with EmbeddedServer() as server:
        go, rust, python = [await live(name, server, tmp_path / name) for name in ("client-go", "kube-rs", "official")]
    assert go == rust
    assert [step for step in python if step not in go and step["step"] not in ONLY_PYTHON] == []


async def live(name: str, server: ApiServer, kubeconfig: Path) -> list[Any]:
    """What a life saw, or what it said when it failed."""
    server.write_kubeconfig(kubeconfig)
    namespace = f"life-of-{name}"  # what a life leaves behind is not in the way of tests that use "default"
    async with RawApi(server.url, token=server.token, ssl_context=ssl_context(server.ca_pem)) as api:
        await api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    environment = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": str(kubeconfig.parent),
        "KUBECONFIG": str(kubeconfig),
        "CONFORMANCE_CLIENT": name,
        "CONFORMANCE_NAMESPACE": namespace,
    }
    process = await asyncio.create_subprocess_exec(
        *command(name),
        env=environment | {"CONFORMANCE_DEFINITION": definition(environment)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    reading = asyncio.create_task(process.communicate())
    await asyncio.wait([reading], timeout=150)
    if hung := not reading.done():
        process.kill()
    out, err = await reading
    assert (process.returncode, hung) == (0, False), f"{out.decode()}\n{err.decode()[-3000:]}"
    return [json.loads(line) for line in out.splitlines()]


def command(name: str) -> list[str]:
    """How a life is started; its program is built now if this machine does not have it yet."""
    try:
        match name:
            case "client-go":
                return [str(CLIENT_GO.build()["."])]
            case "kube-rs":
                return [str(KUBE_RS.build())]
        python = python_environment("conformance-clients", CLIENTS / "requirements.lock")
        return [str(python), "-W", "ignore", str(CLIENTS / f"{name}_life.py")]
    except BinariesError as error:
        unavailable(error)


def definition(environment: dict[str, str]) -> str:
    """The kind that the Python lives install, for the others."""
    with pytest.MonkeyPatch.context() as patched:
        for name in ("CONFORMANCE_CLIENT", "CONFORMANCE_NAMESPACE"):
            patched.setenv(name, environment[name])
        return json.dumps(runpy.run_path(str(CLIENTS / "observations.py"))["DEFINITION"])
