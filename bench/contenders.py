"""Who is measured: this project and its peers, how each is installed, and how each is started.

A contender is a program that takes a mode (`sync`, `events`, `controllers`) and finds its server through `KUBECONFIG`.
It prints one JSON object per line; what they mean is up to the benchmark. Python peers live in a virtual environment
each and the Go peer is compiled, all below the user's cache folder: nothing is installed beside this project.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "steersman" / "bench"


class Contender(msgspec.Struct, frozen=True, kw_only=True):
    """One program to measure."""

    name: str  # as tables call it
    script: str = ""  # below bench/peers
    arguments: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()  # what pip installs for it; nothing means that it runs in this environment
    go: bool = False

    def command(self) -> list[str]:
        """How to start it; installs it first when that has not happened yet."""
        if self.go:
            return [str(_compiled(HERE / "peers" / self.script)), *self.arguments]
        python = _environment(self.requires) if self.requires else sys.executable
        return [str(python), str(HERE / "peers" / self.script), *self.arguments]

    def version(self) -> str:
        """What was measured."""
        if self.go:
            module = (HERE / "peers" / self.script / "go.mod").read_text()
            return next(line.split()[-1] for line in module.splitlines() if "controller-runtime v" in line)
        return self.requires[0].partition("==")[2] if self.requires else _own_version()


OURS = Contender(name="steersman", script="steersman_peer.py")
DIGESTS = Contender(name="steersman, digests only", script="steersman_peer.py", arguments=("--digests",))
CONTROLLER_RUNTIME = Contender(name="controller-runtime", script="controller-runtime", go=True)
KOPF = Contender(name="kopf", script="kopf_peer.py", requires=("kopf==1.45.2", "pyyaml==6.0.3"))
KUBERNETES_ASYNCIO = Contender(
    name="kubernetes_asyncio", script="kubernetes_asyncio_peer.py", requires=("kubernetes_asyncio==36.1.0",)
)
OFFICIAL = Contender(name="kubernetes (official)", script="official_peer.py", requires=("kubernetes==37.0.2",))
LIGHTKUBE = Contender(name="lightkube", script="lightkube_peer.py", requires=("lightkube==1.0.1",))
KR8S = Contender(name="kr8s", script="kr8s_peer.py", requires=("kr8s==0.20.15",))


def _environment(requires: tuple[str, ...]) -> Path:
    """The Python of an environment that has these packages."""
    folder = CACHE / "-".join(requires).replace("==", "-")
    done = folder / "installed"
    if not done.exists():
        print(f"installing {' '.join(requires)} into {folder}", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin/python", "-m", "pip", "install", "--quiet", *requires], check=True)
        done.touch()
    return folder / "bin/python"


def _compiled(source: Path) -> Path:
    """The program of a Go module; the go command itself knows whether anything changed."""
    if shutil.which("go") is None:
        raise SystemExit("error: this benchmark compares with a Go program; install Go from https://go.dev/dl")
    program = CACHE / source.name
    subprocess.run(["go", "build", "-trimpath", "-o", program, "."], cwd=source, check=True)
    return program


def _own_version() -> str:
    from importlib.metadata import version

    return version("steersman")
