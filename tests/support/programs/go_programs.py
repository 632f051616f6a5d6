"""Go programs that judge the embedded server: compiled once per machine, then kept.

    python -m tests.support.programs.go_programs     builds all of them and says where they are

They are controller-runtime's own integration suites and an example operator, from its module as its authors published
it (`tests/conformance/controller_runtime` pins the version), and our operator with client-go
(`tests/conformance/clients/client_go`). A build is named by the module's files, what is built and the toolchain.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from msgspec import Struct

from steersman.testing.controlplane.binaries import BinariesError, building, builds_folder

__all__ = ["CLIENT_GO", "EXAMPLES", "SUITES", "GoPrograms", "GoSuite", "build_suites"]

CONFORMANCE = Path(__file__).parents[2] / "conformance"
CONTROLLER_RUNTIME = "sigs.k8s.io/controller-runtime"
# No metrics unless a program asks for them: the default port of all programs is one that others may listen on.
WITHOUT_METRICS = f"-X {CONTROLLER_RUNTIME}/pkg/metrics/server.DefaultBindAddress=0"
TAIL = 2000  # characters of what Go said last


class GoPrograms(Struct, frozen=True, kw_only=True):
    """Packages that are built together."""

    name: str
    folder: str  # the module, below tests/conformance
    module: str = ""  # where the packages are; empty: in our own module
    packages: tuple[str, ...]
    tests: bool = False  # their tests, as programs
    link: str = ""

    @property
    def source(self) -> Path:
        """The folder with go.mod."""
        return CONFORMANCE / self.folder

    def build(self) -> dict[str, Path]:
        """Every program by its package, built now if this machine does not have them yet."""
        digest = hashlib.sha256(repr((self.module, self.packages, self.tests, self.link)).encode())
        for path in sorted([self.source / "go.mod", self.source / "go.sum", *self.source.glob("*.go")]):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        finished = builds_folder() / f"{self.name}-{digest.hexdigest()[:16]}-{self.go('env', 'GOVERSION')}"
        with building(self.name):
            if not finished.is_dir():
                self._compile(finished)
        return {package: finished / _file(package) for package in self.packages}

    def go(self, *arguments: str) -> str:
        """What Go prints."""
        go = shutil.which("go")
        if go is None:
            raise BinariesError(f"{self.name} has to be built once, and there is no `go` on PATH")
        done = subprocess.run([go, *arguments], cwd=self.source, text=True, capture_output=True, check=False)
        if done.returncode:
            said = (done.stdout + done.stderr)[-TAIL:]
            raise BinariesError(f"`go {arguments[0]}` failed for {arguments[-1]}:\n{said}")
        return done.stdout.strip()

    def _compile(self, finished: Path) -> None:
        with tempfile.TemporaryDirectory(dir=builds_folder(), prefix=f".{self.name}-") as scratch:
            made = Path(scratch) / "programs"
            made.mkdir()
            verb = ("test", "-c") if self.tests else ("build",)
            for package in self.packages:
                flags = ("-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {self.link}".strip())
                place = f"{self.module}/{package}" if self.module else package
                self.go(*verb, *flags, "-o", str(made / _file(package)), place)
            made.rename(finished)


def _file(package: str) -> str:
    return package.strip("./").removeprefix("pkg/").replace("/", "-") or "main"


SUITES = GoPrograms(
    name="suites",
    folder="controller_runtime",
    module=CONTROLLER_RUNTIME,
    packages=(
        *("pkg/builder", "pkg/cache", "pkg/client", "pkg/cluster", "pkg/controller", "pkg/internal/recorder"),
        *("pkg/manager", "pkg/source", "pkg/webhook"),
    ),
    tests=True,
    link=WITHOUT_METRICS,
)
EXAMPLES = GoPrograms(
    name="examples",
    folder="controller_runtime",
    module=CONTROLLER_RUNTIME,
    packages=("examples/builtins", "examples/crd", "examples/priorityqueue"),
    link=WITHOUT_METRICS,
)
CLIENT_GO = GoPrograms(name="client-go-life", folder="clients/client_go", packages=(".",))


class GoSuite(Struct, frozen=True, kw_only=True):
    """One compiled suite."""

    program: Path
    folder: Path  # where it has to run: its test data is beside its sources


def build_suites() -> dict[str, GoSuite]:
    """Every suite by its package, built now if this machine does not have them yet."""
    programs = SUITES.build()
    downloaded = msgspec.json.decode(SUITES.go("mod", "download", "-json", CONTROLLER_RUNTIME))
    return {
        suite: GoSuite(program=program, folder=Path(downloaded["Dir"]) / suite) for suite, program in programs.items()
    }


def main() -> int:
    """Build everything; 1 and one line on the standard error when that fails."""
    try:
        for programs in (CLIENT_GO, EXAMPLES, SUITES):
            for program in programs.build().values():
                print(program)  # noqa: T201  # its output
    except BinariesError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201  # its output
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
