"""controller-runtime's own integration suites: what passes on kube-apiserver passes on the embedded server too.

Each suite gets a fresh server of each kind, as its authors' test environment gives it. The table in
docs/embedded-server.md has a row per suite; `RECORD=1 pytest -n 0 tests/conformance` writes it.
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from steersman.apiserver import EmbeddedServer
from steersman.testing.controlplane.binaries import BinariesError
from steersman.testing.controlplane.launcher import ControlPlane
from steersman.testing.plugin import unavailable
from tests.support.programs.go_programs import SUITES, GoSuite, build_suites

if TYPE_CHECKING:
    from steersman.testing.raw_api import ApiServer

PAGE = Path(__file__).parents[2] / "docs" / "embedded-server.md"
ROW = r"^\| `{suite}` \| .*$"
DIFFERENT = {  # wants namespaces without the default ServiceAccount that kube-controller-manager makes
    "pkg/cache": {
        "[It] Cache with selectors Should list serviceaccounts and find exactly one in namespace test-namespace-1"
    }
}
ATTEMPTS = 3
PANIC = 2  # the exit code of a Go program


@pytest.fixture(scope="module")
def suites() -> dict[str, GoSuite]:
    try:
        return build_suites()
    except BinariesError as error:
        unavailable(str(error))


@pytest.mark.real
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", SUITES.packages)
async def test_what_passes_on_the_real_server_passes_on_the_embedded_one(
    name: str, suites: dict[str, GoSuite], tmp_path: Path
):
    async with EmbeddedServer() as embedded:
        ours = await run_suite(suites[name], embedded, tmp_path / "ours.xml")
    async with ControlPlane() as real:
        theirs = await run_suite(suites[name], real, tmp_path / "theirs.xml")
    here, there = passed(ours), passed(theirs)
    row = f"| `{name}` | {len(theirs)} | {len(there)} | {len(here)} | {len(there - here)} | {len(here - there)} |"
    page = PAGE.read_text()
    if os.environ.get("RECORD"):
        PAGE.write_text(re.sub(ROW.format(suite=name), row, page, flags=re.MULTILINE))
        page = PAGE.read_text()

    assert there, f"nothing passes on the real server: {theirs}"
    excepted = DIFFERENT.get(name, set())
    assert there - here <= excepted
    assert not excepted & here, "an exception that is no longer needed"
    assert f"\n| `{name}` | {len(theirs)} |" in page, "run it with RECORD=1 to write the table"


async def run_suite(suite: GoSuite, server: ApiServer, report: Path) -> dict[str, str]:
    """How each spec ended. Specs that wait a second or two for their own goroutines may try again, on both servers.

    So may a whole suite that ends without a report: a spec of theirs that listens on the port of the one before it
    panics, in a goroutine, while that port is still in use.
    """
    kubeconfig = report.with_suffix(".kubeconfig")
    server.write_kubeconfig(kubeconfig)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("KUBE")},
        "KUBECONFIG": str(kubeconfig),
        "USE_EXISTING_CLUSTER": "true",
    }
    options = [f"junit-report={report}", "no-color", f"flake-attempts={ATTEMPTS}", "timeout=8m"]
    for _ in range(ATTEMPTS):
        process = await asyncio.create_subprocess_exec(
            *(str(suite.program), *(f"--ginkgo.{option}" for option in options)),
            cwd=suite.folder,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            said, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != PANIC:
            break
    return read_report(report, said.decode(errors="replace"))


def passed(specs: dict[str, str]) -> set[str]:
    return {spec for spec, status in specs.items() if status == "passed"}


def read_report(report: Path, said: str) -> dict[str, str]:
    assert report.exists(), said[-3000:]
    specs = [(spec.get("name") or "", spec.get("status") or "") for spec in ET.parse(report).iter("testcase")]
    return {name: status for name, status in specs if name.startswith("[It]") and status != "pending"}
