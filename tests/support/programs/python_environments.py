"""Environments with Python programs of others: made once per lock file and machine, below the cache folder, and kept.

However many processes ask at once, one makes an environment and the others wait for it. A lock file names every
package, so nothing is resolved.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from steersman.testing.controlplane.binaries import BinariesError, building, builds_folder

__all__ = ["python_environment"]

INSTALL_SECONDS = 480


def python_environment(name: str, lock: Path) -> Path:
    """The interpreter of an environment with the packages of a lock file."""
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
    home = builds_folder() / f"{name}-py{sys.version_info.major}{sys.version_info.minor}-{digest}"
    python = home / "bin" / "python"
    with building(name):
        if not python.exists():
            _install(name, lock, home)
    return python


def _install(name: str, lock: Path, home: Path) -> None:
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        raise BinariesError(f"{name} has to be installed once, and there is no `uv`; `pip install uv` brings it")
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=f".{name}-") as scratch:
        made = Path(scratch) / "environment"
        packages = ("--no-deps", "--python", str(made / "bin" / "python"), "--requirement", str(lock))
        for command in (
            (uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, str(made)),
            (uv, "pip", "install", "--quiet", *packages),
        ):
            try:
                subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
            except subprocess.TimeoutExpired:
                message = f"{name} was not installed within {INSTALL_SECONDS} s; is the package index reachable?"
                raise BinariesError(message) from None
            except subprocess.CalledProcessError as error:
                tail = "\n  ".join((error.stderr or "").splitlines()[-10:])
                raise BinariesError(f"{name} cannot be installed:\n  {tail}") from None
        made.rename(home)
