"""Make the image's root filesystem: an interpreter, its standard library, our wheel and what it needs. Nothing else.

    python image/root.py OUT --wheel dist/steersman-….whl

The Dockerfile runs this in its build stage and copies OUT into an empty image. It runs just as well without a container
engine, so tests can look at exactly what will be shipped: no shell, no compiler, no pip, nothing writable, and it
starts. Only the standard library is used here.
"""

from __future__ import annotations

import argparse
import compileall
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).parent
USER = 65532
# Parts of the standard library that a server never needs, or that an intruder would like.
LEFT_OUT = {
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "test",
    "tests",
    "tkinter",
    "turtledemo",
    "turtle.py",
    "venv",
    "__pycache__",
}
# Where the loader looks on every architecture we know of.
LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", "/lib/ld-linux-armhf.so.3")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def main() -> None:
    """Make it where the command line says."""
    parser = argparse.ArgumentParser(description="Make the image's root filesystem.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--wheel", type=Path, required=True)
    arguments = parser.parse_args()
    build(arguments.out, arguments.wheel)


def build(out: Path, wheel: Path) -> None:
    """Make the tree at `out`, which must not exist."""
    out.mkdir(parents=True)
    library = _standard_library(out)
    _packages(library / "site-packages", wheel)
    compileall.compile_dir(library, quiet=2, workers=0, stripdir=str(out), invalidation_mode=UNCHECKED)
    _interpreter(out)
    _shared_objects(out)
    _files(out)
    _seal(out)


UNCHECKED = __import__("py_compile").PycInvalidationMode.UNCHECKED_HASH  # times of files do not count in an image


def _standard_library(out: Path) -> Path:
    source = Path(sysconfig.get_paths()["stdlib"])
    target = out / "usr" / "lib" / source.name

    def left_out(_folder: str, names: list[str]) -> set[str]:
        return {name for name in names if name in LEFT_OUT or name.startswith(("config-", "_sysconfigdata_d"))}

    shutil.copytree(source, target, ignore=left_out, symlinks=False)
    for module in ("_tkinter", "_test", "_ctypes_test", "xxlimited", "_xx"):
        for extension in (target / "lib-dynload").glob(f"{module}*.so"):
            extension.unlink()
    return target


def _packages(target: Path, wheel: Path) -> None:
    """Exactly what the lock names, then our wheel; only wheels, so nothing is compiled or run."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    locked = [*pip, "--target", str(target), "--only-binary", ":all:", "--require-hashes"]
    subprocess.run([*locked, "--requirement", str(HERE / "requirements.lock")], check=True)  # noqa: S603
    shutil.rmtree(target / "bin", ignore_errors=True)
    subprocess.run([*pip, "--target", str(target), "--no-deps", str(wheel)], check=True)  # noqa: S603
    shutil.rmtree(target / "bin", ignore_errors=True)
    shutil.rmtree(target / "steersman" / "testing" / "go")  # sources of programs that nobody builds in there


def _interpreter(out: Path) -> None:
    target = out / "usr" / "bin" / "python3"
    target.parent.mkdir(parents=True)
    shutil.copy2(Path(os.path.realpath(sys.executable)), target)


def _shared_objects(out: Path) -> None:
    """The libraries that the interpreter and the extension modules are linked with, as the loader finds them here."""
    programs = [out / "usr" / "bin" / "python3", *(out / "usr").rglob("*.so*")]
    found: set[Path] = {Path(loader) for loader in LOADERS if Path(loader).exists()}
    for program in programs:
        said = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout  # noqa: S603
        found |= {Path(path) for path in re.findall(r"=> (/\S+)", said) if not path.startswith(str(out))}
    for library in found:
        place = Path("/usr/lib") / library.name if library.name.startswith("libpython") else library
        target = out / place.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(os.path.realpath(library), target)


def _files(out: Path) -> None:
    """Who we are, whom we trust, and the command itself."""
    etc = out / "etc"
    etc.mkdir(exist_ok=True)
    (etc / "passwd").write_text(f"steersman:x:{USER}:{USER}::/:/nonexistent\n")
    (etc / "group").write_text(f"steersman:x:{USER}:\n")
    (etc / "nsswitch.conf").write_text("hosts: files dns\n")
    if CERTIFICATES.exists():
        target = out / CERTIFICATES.relative_to("/")
        target.parent.mkdir(parents=True)
        shutil.copy2(CERTIFICATES, target)
    (out / "tmp").mkdir()


def _seal(out: Path) -> None:
    """Nobody may write anything, nothing gains rights; times are those of the source, so that the tree is the same."""
    moment = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    for path in [*out.rglob("*"), out]:
        if path.is_symlink():
            continue
        mode = 0o555 if path.is_dir() or os.access(path, os.X_OK) else 0o444
        path.chmod(mode)
        os.utime(path, (moment, moment))


if __name__ == "__main__":
    main()
