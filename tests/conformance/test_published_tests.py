"""Tests that other Python clients publish in their packages: what passes on the real server passes here."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from steersman.apiserver import EmbeddedServer
from steersman.testing.controlplane.binaries import BinariesError
from steersman.testing.controlplane.launcher import ControlPlane
from steersman.testing.plugin import unavailable
from tests.support.programs.python_environments import python_environment

if TYPE_CHECKING:
    from steersman.testing.raw_api import ApiServer

CLIENTS = Path(__file__).with_name("clients")
# package -> modules with tests for a cluster, and how many of their 14 tests pass here; the others fail on both servers
# (some ask for v1beta1 of definitions, which is gone since 1.22)
PUBLISHED = {
    "kubernetes": (("kubernetes.dynamic.test_client", "kubernetes.dynamic.test_discovery"), 10),
    "kubernetes_asyncio": (
        ("kubernetes_asyncio.dynamic.client_test", "kubernetes_asyncio.dynamic.discovery_test"),
        13,
    ),
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.real
@pytest.mark.parametrize("package", PUBLISHED)
async def test_the_published_tests_of_a_client_pass_as_on_the_real_server(package: str, tmp_path: Path):
    """Each on servers of its own: a test that fails leaves its definition behind."""
    modules, count = PUBLISHED[package]
    async with EmbeddedServer() as embedded, ControlPlane() as real:
        ours, theirs = await asyncio.gather(
            run(package, modules, embedded, tmp_path / "ours"), run(package, modules, real, tmp_path / "theirs")
        )
    assert theirs
    assert [name for name in theirs if name not in ours] == []
    assert len(ours) == count


async def run(package: str, modules: tuple[str, ...], server: ApiServer, home: Path) -> list[str]:
    """The names of the tests that passed; they write caches into their temporary folder."""
    try:
        python = python_environment("conformance-clients", CLIENTS / "requirements.lock")
    except BinariesError as error:
        unavailable(error)
    kubeconfig = home.with_suffix(".kubeconfig")
    server.write_kubeconfig(kubeconfig)
    process = await asyncio.create_subprocess_exec(
        *(str(python), "-W", "ignore", str(CLIENTS / "published_tests.py"), package, *modules),
        env={
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(home.parent),
            "TMPDIR": str(home.parent),
            "KUBECONFIG": str(kubeconfig),
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    print(f"{server.url}\n{err.decode()}")  # noqa: T201  # shown when the test fails
    assert process.returncode == 0, err.decode()[-3000:]
    passed: list[str] = json.loads(out.splitlines()[-1])
    return passed
