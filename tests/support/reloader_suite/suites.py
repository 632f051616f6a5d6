"""Reloader's suites and Reloader itself as programs, built from the published module once, and how every spec ended."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import msgspec
from msgspec import Struct

from steersman.testing.controlplane.binaries import BinariesError, building, builds_folder
from tests.support.reloader_suite.cluster import SuiteError

if TYPE_CHECKING:
    from tests.support.reloader_suite.cluster import SuiteCluster

__all__ = ["SUITES", "VERSION", "Built", "build", "run_suite"]

MODULE = "github.com/stakater/Reloader"
VERSION = "v1.4.21"
SUITES = ("core", "annotations", "flags", "advanced", "argo", "csi")
# The suites need the types of a DeploymentConfig; these versions of them are published everywhere.
REPLACED = (
    ("github.com/openshift/api", "v0.0.0-20251015095338-264e80a2b6e7"),
    ("github.com/openshift/client-go", "v0.0.0-20251015124057-db0dee36e235"),
)
DEFINITIONS = {
    "github.com/argoproj/argo-rollouts": ("manifests/crds/rollout-crd.yaml",),
    "sigs.k8s.io/secrets-store-csi-driver": (
        "config/crd/bases/secrets-store.csi.x-k8s.io_secretproviderclasses.yaml",
        "config/crd/bases/secrets-store.csi.x-k8s.io_secretproviderclasspodstatuses.yaml",
    ),
}
TAIL = 3000  # characters of what a program said last


class Built(Struct, frozen=True, kw_only=True):
    """The programs, the sources they were built from, and the definitions of the kinds they use."""

    folder: Path
    definitions: tuple[Path, ...]

    @property
    def reloader(self) -> Path:
        """Reloader itself."""
        return self.folder / "reloader"

    def suite(self, name: str) -> tuple[Path, Path]:
        """The program of a suite, and the folder it has to run in: it looks for the chart from there."""
        return self.folder / name, self.folder / "source" / "test" / "e2e" / name


def build() -> Built:
    """Everything, built from the published module if this machine does not have it yet."""
    digest = hashlib.sha256(repr((SUITES, REPLACED, VERSION)).encode())
    finished = builds_folder() / f"reloader-{digest.hexdigest()[:16]}"
    with building("reloader"):
        if not finished.is_dir():
            _compile(Path(_download(f"{MODULE}@{VERSION}", Path.cwd())), finished)
    source = finished / "source"
    definitions = tuple(
        Path(_download(module, source)) / file for module, files in DEFINITIONS.items() for file in files
    )
    return Built(folder=finished, definitions=definitions)


def _compile(module: Path, finished: Path) -> None:
    with tempfile.TemporaryDirectory(dir=builds_folder(), prefix=".reloader-") as scratch:
        made = Path(scratch) / "made"
        source = made / "source"
        shutil.copytree(module, source, copy_function=shutil.copyfile)
        for folder in (source, *(entry for entry in source.rglob("*") if entry.is_dir())):
            folder.chmod(0o755)
        for name, version in REPLACED:
            _go(source, "mod", "edit", f"-replace={name}={name}@{version}")
        flags = ("-mod=mod", "-buildvcs=false", "-ldflags=-s -w")
        _go(source, "build", *flags, "-o", str(made / "reloader"), ".")
        for name in SUITES:
            _go(source, "test", "-c", *flags, "-o", str(made / name), f"./test/e2e/{name}")
        made.rename(finished)


def _download(module: str, folder: Path) -> str:
    return str(msgspec.json.decode(_go(folder, "mod", "download", "-json", module))["Dir"])


def _go(folder: Path, *arguments: str) -> str:
    go = shutil.which("go")
    if go is None:
        raise BinariesError("Reloader has to be built once, and there is no `go` on PATH")
    done = subprocess.run([go, *arguments], cwd=folder, text=True, capture_output=True, check=False)
    if done.returncode:
        said = (done.stderr + done.stdout)[-TAIL:]
        raise BinariesError(f"`go {' '.join(arguments)}` failed:\n{said}")
    return done.stdout


async def run_suite(built: Built, name: str, cluster: SuiteCluster, focus: str, attempts: int) -> dict[str, str]:
    """How each spec of a suite ended; what it said is in the folder of the cluster."""
    program, folder = built.suite(name)
    report = cluster.folder / f"{name}.xml"
    options = [f"junit-report={report}", "no-color", "v", "timeout=2h", f"flake-attempts={attempts}", f"focus={focus}"]
    with (cluster.folder / f"{name}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(str(program), "-test.timeout=0", *(f"--ginkgo.{option}" for option in options)),
            cwd=folder,
            env=cluster.environment,
            stdout=log,
            stderr=log,
        )
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    if not report.exists():
        raise SuiteError(f"{name} ended with code {process.returncode} and without a report: {log.name}")
    specs = [(spec.get("name") or "", spec.get("status") or "") for spec in ET.parse(report).iter("testcase")]
    return {spec: status for spec, status in specs if spec.startswith("[It]") and status != "pending"}
