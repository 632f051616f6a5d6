"""Tests for a cluster that other clients publish in their packages: what passes on a real one passes here.

A real cluster is the whole control plane with nodes of KWOK, and the embedded server has simulated workloads. Neither
runs containers, so the tests that need one (logs, exec, port forwarding) fail on both or are left out. The table in
docs/embedded-server.md has a row per package; `RECORD=1` writes its numbers.
"""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from steersman.apiserver import EmbeddedServer
from steersman.kube.client.client import Client
from steersman.kube.config.config import AuthInfo, Config
from steersman.simulate import simulation
from steersman.testing.controlplane.binaries import BinariesError, find_program
from steersman.testing.controlplane.launcher import ALL_CONTROLLERS, ControlPlane
from steersman.testing.plugin import unavailable
from tests.support.programs.crates import KUBE_CLIENT_TESTS
from tests.support.programs.python_environments import python_environment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from steersman.testing.raw_api import ApiServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SECONDS = 60  # a test that waits for a container would wait for ever
AT_ONCE = 4
CLIENTS = Path(__file__).with_name("clients")
# They need a container, or a kubelet that reports a pod as not ready before the pod goes.
KR8S_LEFT_OUT = ("exec", "port_forward", "logs", "adoption", "wait_ready")
PAGE = Path(__file__).parents[2] / "docs" / "embedded-server.md"


@asynccontextmanager
async def simulated_cluster() -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer(authorization="rbac") as server:
        config = Config(server=server.url, ca=server.ca_pem.encode(), auth=AuthInfo(token=server.token))
        async with Client.connect(config) as client, simulation(client):
            yield server


@asynccontextmanager
async def real_cluster() -> AsyncIterator[ControlPlane]:
    async with ControlPlane(controllers=ALL_CONTROLLERS, scheduler=True, kwok=True) as plane:
        await plane.add_nodes("node-1", "node-2")
        yield plane


@pytest.mark.real
async def test_the_published_tests_of_kube_rs_pass_as_on_a_real_cluster(tmp_path: Path):
    try:
        program = await asyncio.to_thread(KUBE_CLIENT_TESTS.build)
    except BinariesError as error:
        unavailable(error)
    async with simulated_cluster() as embedded, real_cluster() as real:
        ours, theirs = await asyncio.gather(
            run_kube_rs(program, embedded, tmp_path / "ours"), run_kube_rs(program, real, tmp_path / "theirs")
        )
    judge("kube-client", ours, theirs)


@pytest.mark.real
async def test_the_published_tests_of_kr8s_pass_as_on_a_real_cluster(tmp_path_factory: pytest.TempPathFactory):
    try:
        python = python_environment("conformance-clients", CLIENTS / "requirements.lock")
    except BinariesError as error:
        unavailable(error)
    async with simulated_cluster() as embedded, real_cluster() as real:
        ours, theirs = await asyncio.gather(
            run_kr8s(python, embedded, tmp_path_factory.mktemp("ours")),
            run_kr8s(python, real, tmp_path_factory.mktemp("theirs")),
        )
    judge("kr8s", ours, theirs)


async def run_kr8s(python: Path, server: ApiServer, home: Path) -> dict[str, bool]:
    """Which tests of the API and of objects passed."""
    kubeconfig, report = home / "kubeconfig", home / "report.xml"
    server.write_kubeconfig(kubeconfig)
    options = ["-o", "asyncio_mode=auto", "-p", "no:cacheprovider", f"--timeout={SECONDS}", f"--junitxml={report}"]
    [package] = python.parents[1].glob("lib/python*/site-packages/kr8s")
    options += ["--rootdir", str(package), "--confcutdir", str(package)]
    process = await asyncio.create_subprocess_exec(
        *(str(python), "-m", "pytest", "-p", "kr8s_cluster", *options, "-k", f"not ({' or '.join(KR8S_LEFT_OUT)})"),
        *(str(package / "tests" / f"test_{subject}.py") for subject in ("api", "objects")),
        cwd=home,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(CLIENTS),
            "HOME": str(home),
            "TMPDIR": str(home),
            "KUBECONFIG": str(kubeconfig),
            "KUBECTL": str(find_program("kubectl")),
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    print(f"{server.url} {said.decode()[-6000:]}")  # noqa: T201  # seen in a failure
    assert report.exists(), said.decode()[-3000:]
    cases = [case for case in ET.parse(report).iter("testcase") if case.find("skipped") is None]
    return {f"{case.get('classname')}.{case.get('name')}": len(case) == 0 for case in cases}


def judge(package: str, ours: dict[str, bool], theirs: dict[str, bool]) -> None:
    """Every test that passed on the real control plane passed here, and the page has the number of tests."""
    here, there = ({test for test, passed in suite.items() if passed} for suite in (ours, theirs))
    row = f"| {len(theirs)} | {len(there)} | {len(here)} | {len(there - here)} | {len(here - there)} |"
    pattern = re.compile(rf"^(\| `{package}` [^|]*)\|.*$", re.MULTILINE)
    if os.environ.get("RECORD"):
        PAGE.write_text(pattern.sub(rf"\1{row}", PAGE.read_text()))
    assert there, theirs
    assert there - here == set()
    recorded = pattern.search(PAGE.read_text())
    assert recorded is not None
    assert recorded[0].startswith(f"{recorded[1]}| {len(theirs)} |"), f"RECORD=1 writes the table: {row}"


async def run_kube_rs(program: Path, server: ApiServer, kubeconfig: Path) -> dict[str, bool]:
    """Which tests passed, each in a process of its own."""
    server.write_kubeconfig(kubeconfig)
    environment = {"PATH": os.environ["PATH"], "HOME": str(kubeconfig.parent), "KUBECONFIG": str(kubeconfig)}
    free = asyncio.Semaphore(AT_ONCE)

    async def run(*arguments: str) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            *(str(program), "--ignored", *arguments),
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(SECONDS):
                said, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            said, _ = await process.communicate()
        return process.returncode, said.decode()

    async def passes(test: str) -> bool:
        async with free:
            code, said = await run("--exact", test)
            print(f"{server.url} {said}" if code else f"{server.url} {test}: passed")  # noqa: T201  # seen in a failure
            return code == 0

    _, listed = await run("--list")
    tests = [line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")]
    return dict(zip(tests, await asyncio.gather(*map(passes, tests)), strict=True))
