"""Programs from Rust crates, those of others and one of our own, and the tests of others: built once, then kept.

    python -m tests.support.programs.crates          builds all of them and says where they are

A build is named by crate, version and toolchain; a crate of ours has the digest of its files as its version. Its
dependencies are those that the crate itself locks, and cargo checks what it fetches. Nothing of a published crate is
part of this project.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from msgspec import Struct

from steersman.testing.controlplane.binaries import BinariesError, building, builds_folder

__all__ = ["BINDCAR", "KUBE_CLIENT_TESTS", "KUBE_RS", "Crate", "CrateTests"]

# Neither debug information nor optimisation: tests start it, and nobody waits for it.
PROFILE = {"CARGO_PROFILE_DEV_DEBUG": "0", "CARGO_INCREMENTAL": "0", "CARGO_TERM_COLOR": "never"}
TAIL = 2000  # characters of what cargo said last


class Crate(Struct, frozen=True, kw_only=True):
    """One crate with a program of the same name."""

    name: str
    version: str
    source: Path | None = None  # of ours: where its files are
    swagger: bool = False  # it would fetch the files of a page that shows its interface, which nobody looks at here

    def built(self) -> Path | None:
        """The program, if this machine has it."""
        found = sorted(builds_folder().glob(f"{self.name}-{self.version}-*/{self.name}"))
        return found[-1] if found else None

    def build(self) -> Path:
        """The program, built now if this machine does not have it yet."""
        if (found := self.built()) is not None:
            return found
        cargo = _cargo(f"{self.name} {self.version}")
        with building(self.name):
            return self.built() or self._compile(cargo)

    def _compile(self, cargo: str) -> Path:
        toolchain = _toolchain(cargo)
        with tempfile.TemporaryDirectory(dir=builds_folder(), prefix=f".{self.name}-") as scratch:
            root, target = Path(scratch) / "root", Path(scratch) / "target"
            origin = (
                [self.name, "--version", f"={self.version}"] if self.source is None else ["--path", str(self.source)]
            )
            command = [cargo, "install", *origin, "--locked", "--debug", "--quiet"]
            command += ["--root", str(root), "--target-dir", str(target)]
            environment = {**os.environ, **PROFILE}
            if self.swagger:
                environment["SWAGGER_UI_DOWNLOAD_URL"] = f"file://{_empty_page(Path(scratch))}"
            done = subprocess.run(
                command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
            )
            if done.returncode:
                raise BinariesError(f"{self.name} {self.version} cannot be built:\n{done.stdout[-TAIL:]}")
            finished = builds_folder() / f"{self.name}-{self.version}-rust{toolchain}"
            (root / "bin").rename(finished)
        return finished / self.name


class CrateTests(Struct, frozen=True, kw_only=True):
    """The unit tests of a published crate, as one program.

    The crate comes from the registry with its tests, but its manifest has lost the dependencies on its neighbors. So it
    is built in a workspace of ours, whose Cargo.lock pins what it needs; the crate itself and its neighbors are those
    of the Cargo.lock of `user`.
    """

    name: str
    crate: str
    features: tuple[str, ...]
    neighbors: dict[str, str]  # crates that the tests need as well, with their features
    workspace: Path  # Cargo.toml, Cargo.lock
    user: Path  # a crate of ours that depends on all of them

    def build(self) -> Path:
        """The program, built now if this machine does not have it yet."""
        digest = hashlib.sha256(repr((self.crate, self.features, self.neighbors)).encode())
        for file in (self.workspace / "Cargo.toml", self.workspace / "Cargo.lock", self.user / "Cargo.lock"):
            digest.update(file.read_bytes())
        cargo = _cargo(self.name)
        finished = builds_folder() / f"{self.name}-{digest.hexdigest()[:16]}-rust{_toolchain(cargo)}"
        with building(self.name):
            if not finished.is_file():
                self._compile(cargo, finished)
        return finished

    def _compile(self, cargo: str, finished: Path) -> None:
        with tempfile.TemporaryDirectory(dir=builds_folder(), prefix=f".{self.name}-") as scratch:
            workspace = Path(scratch) / "workspace"
            shutil.copytree(self.workspace, workspace)
            manifest = str(self.user / "Cargo.toml")
            known = self._run(cargo, "metadata", "--locked", "--format-version", "1", "--manifest-path", manifest)
            for package in json.loads(known)["packages"]:
                if package["name"] in {self.crate, *self.neighbors}:
                    shutil.copytree(Path(package["manifest_path"]).parent, workspace / package["name"])
            with (workspace / self.crate / "Cargo.toml").open("a") as file:
                for neighbor, features in self.neighbors.items():
                    file.write(f'\n[dev-dependencies.{neighbor}]\npath = "../{neighbor}"\n')
                    file.write(f'default-features = false\nfeatures = ["{features}"]\n')
            chosen = ("--package", self.crate, "--no-default-features", "--features", ",".join(self.features))
            options = ("--no-run", "--lib", "--locked", "--quiet", "--message-format", "json", *chosen)
            said = self._run(cargo, "test", *options, cwd=workspace, target=Path(scratch) / "target")
            [program] = filter(None, (json.loads(line).get("executable") for line in said.splitlines()))
            shutil.move(program, finished)

    def _run(self, cargo: str, *arguments: str, cwd: Path | None = None, target: Path | None = None) -> str:
        environment = {"CARGO_TARGET_DIR": str(target), **os.environ} if target else os.environ
        done = subprocess.run(
            [cargo, *arguments], cwd=cwd, env={**environment, **PROFILE}, text=True, capture_output=True, check=False
        )
        if done.returncode:
            raise BinariesError(f"`cargo {arguments[0]}` failed for {self.name}:\n{done.stderr[-TAIL:]}")
        return done.stdout


def _cargo(wanted: str) -> str:
    cargo = shutil.which("cargo") or shutil.which("cargo", path=str(Path.home() / ".cargo" / "bin"))
    if cargo is None:
        raise BinariesError(f"{wanted} has to be built once, and there is no `cargo` on PATH (https://rustup.rs)")
    return cargo


def _toolchain(cargo: str) -> str:
    return subprocess.run([cargo, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]


def _empty_page(folder: Path) -> Path:
    made = folder / "page.zip"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("page/dist/swagger-initializer.js", "")
    return made


def own_crate(name: str, source: Path) -> Crate:
    """A crate of ours; its version changes with its files."""
    digest = hashlib.sha256()
    for file in ("Cargo.toml", "Cargo.lock", "src/main.rs"):
        digest.update((source / file).read_bytes())
    return Crate(name=name, version=digest.hexdigest()[:16], source=source)


BINDCAR = Crate(name="bindcar", version="0.9.0", swagger=True)
CONFORMANCE = Path(__file__).parents[2] / "conformance"
KUBE_RS = own_crate("kube-rs-life", CONFORMANCE / "clients" / "kube_rs")
KUBE_CLIENT_TESTS = CrateTests(
    name="kube-client-tests",
    crate="kube-client",
    features=(
        *("client", "config", "rustls-tls", "ring", "ws", "jsonpatch", "gzip", "admission", "kubelet-debug"),
        "unstable-client",
    ),
    neighbors={"kube": "client"},
    workspace=CONFORMANCE / "kube_rs",
    user=CONFORMANCE / "clients" / "kube_rs",
)


def main() -> int:
    """Build everything; 1 and one line on the standard error when that fails."""
    try:
        for crate in (BINDCAR, KUBE_RS, KUBE_CLIENT_TESTS):
            print(crate.build())  # noqa: T201  # its output
    except BinariesError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201  # its output
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
