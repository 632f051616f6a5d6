"""The real HolmesGPT as a judge: its own loader, in an environment of its own, reads what we rendered.

Each version has an environment of its own. The loader runs offline and no prerequisite of a toolset is ever called.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steersman.errors import SteersmanError
from steersman.testing.controlplane.binaries import BinariesError
from tests.support.programs.python_environments import python_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["HolmesError", "holmes_python", "loaded_toolsets"]

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
    try:
        return python_environment(f"holmesgpt-{version}", _lock_of(version))
    except BinariesError as error:
        raise HolmesError(str(error)) from None


def _lock_of(version: str) -> Path:
    """Which packages a version was tried with: what it asks for itself is too wide to stay true."""
    path = Path(__file__).with_name("holmes-locks") / f"{version}.txt"
    if not path.is_file():
        raise HolmesError(f"HolmesGPT {version} is not among the versions that were tried: {path.parent} has none")
    return path


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
