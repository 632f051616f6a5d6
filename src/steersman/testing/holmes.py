"""The real HolmesGPT as a judge: its own loader, in an environment of its own, reads what we rendered.

An environment is made once per version and machine, below the cache folder, and kept. However many processes ask at
once, one makes it and the others wait. The loader runs offline and no prerequisite of a toolset is ever called.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steersman.errors import SteersmanError
from steersman.testing.binaries import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["HolmesError", "holmes_python", "loaded_toolsets"]

_INSTALL_SECONDS = 480
_LOAD_SECONDS = 300

_VARIABLE = re.compile(r"\{\{ env\.(\w+) \}\}")
_LOADER = """
import json, logging, os, sys
from pathlib import Path
logging.disable(logging.CRITICAL)
from holmes.core.toolset_manager import ToolsetManager

answers = []
for name in sys.argv[1:]:
    try:
        toolsets = ToolsetManager(custom_toolsets=[Path(name)])._list_all_toolsets(check_prerequisites=False)
    except Exception as error:
        answers.append({"error": f"{type(error).__name__}: {error}", "toolsets": {}})
        continue
    found = {}
    for one in toolsets:
        status = getattr(one.status, "value", one.status)
        problem = one.error
        classes = list(getattr(one, "config_classes", None) or ())
        for config in (one.config or {}).get("instances", [one.config]) if one.enabled and one.config else ():
            config = {key: value for key, value in config.items() if key != "name"}
            errors = []
            for config_class in classes:  # one toolset, several ways to reach it: one of them must do
                try:
                    config_class(**config)
                    break
                except Exception as error:
                    errors.append(str(error))
            else:
                problem = problem or (f"config: {errors}" if errors else None)
        found[one.name] = {"enabled": bool(one.enabled), "status": str(status), "error": problem, "config": one.config}
    answers.append({"error": None, "toolsets": found})
print(json.dumps(answers, default=str))
"""


class HolmesError(SteersmanError):
    """HolmesGPT cannot be installed or run."""


def holmes_python(version: str) -> Path:
    """The interpreter of an environment with that version of HolmesGPT, made now if this machine has none."""
    folder = cache_folder() / "holmesgpt"
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(_lock_of(version).read_bytes()).hexdigest()[:12]
    home = folder / f"{version}-py{sys.version_info.major}{sys.version_info.minor}-{digest}"
    python = home / "bin" / "python"
    if python.exists():
        return python
    with _lock(folder / f"{version}.lock"):
        if not python.exists():
            _install(version, home)
    return python


def _lock_of(version: str) -> Path:
    """Which packages a version was tried with: what it asks for itself is too wide to stay true."""
    path = Path(__file__).with_name("holmes-locks") / f"{version}.txt"
    if not path.is_file():
        raise HolmesError(f"HolmesGPT {version} is not among the versions that were tried: {path.parent} has none")
    return path


def _install(version: str, home: Path) -> None:
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        raise HolmesError("HolmesGPT has to be installed once, and there is no `uv`; `pip install uv` brings it")
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=f".{version}-") as scratch:
        made = Path(scratch) / "environment"
        for command in (
            [uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, str(made)],
            [
                uv,
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--python",
                str(made / "bin" / "python"),
                "--requirement",
                str(_lock_of(version)),
            ],
        ):
            try:
                subprocess.run(command, check=True, capture_output=True, text=True, timeout=_INSTALL_SECONDS)
            except subprocess.TimeoutExpired:
                message = f"HolmesGPT {version} was not installed within {_INSTALL_SECONDS} s; is PyPI reachable?"
                raise HolmesError(message) from None
            except subprocess.CalledProcessError as error:
                tail = "\n  ".join((error.stderr or "").splitlines()[-10:])
                raise HolmesError(f"HolmesGPT {version} cannot be installed:\n  {tail}") from None
        made.rename(home)


def loaded_toolsets(version: str, files: Sequence[Path]) -> list[dict[str, Any]]:
    """What that version makes of each file: its error, or every toolset with status, error and config."""
    python = holmes_python(version)
    with tempfile.TemporaryDirectory() as home:
        environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": home,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "HOLMES_CONFIGPATH_DIR": home,
            "no_proxy": "*",
        }
        for file in files:  # an unset variable fails its toolset, and no value is ever used
            environment |= dict.fromkeys(_VARIABLE.findall(file.read_text(encoding="utf-8")), "x")
        try:
            ran = subprocess.run(
                [str(python), "-W", "ignore", "-c", _LOADER, *map(str, files)],
                check=True,
                capture_output=True,
                text=True,
                timeout=_LOAD_SECONDS,
                env=environment,
                cwd=home,
            )
        except subprocess.TimeoutExpired:
            raise HolmesError(f"HolmesGPT {version} did not load the files within {_LOAD_SECONDS} s") from None
        except subprocess.CalledProcessError as error:
            raise HolmesError(f"HolmesGPT {version} did not run: {(error.stderr or '')[-2000:]}") from None
    answers: list[dict[str, Any]] = json.loads(ran.stdout.splitlines()[-1])
    return answers


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released by the kernel however this process ends
        yield
