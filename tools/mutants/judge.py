"""Whether tests notice a mutant: a copy of the package with the bug in it, and pytest on that copy.

The copy is first on PYTHONPATH, also for processes that tests start. Everything beside `src` is a link to the working
tree. Tests run where they are, so that they see this repository's settings and files. Copies are made of one that is
compiled already: to compile the package takes longer than most tests.
"""

from __future__ import annotations

import compileall
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tools.mutants import ROOT, Mutant, Outcome, mutated, selected_tests

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["check_baseline", "compiled_copy", "judge"]

PYTEST: Final = (
    *(sys.executable, "-m", "pytest", "-q", "-x", "-m", "not steersman_real and not slow"),  # as make check
    *("-p", "no:cacheprovider", "--hypothesis-profile=quick", "--tb=no", "--no-header"),
)
TEST_TIMEOUT: Final = 120  # seconds for one test; the slowest fast one takes a few
RUN_TIMEOUT: Final = 1800  # seconds for all tests of a mutant, where even pytest-timeout does not get through
NO_TESTS: Final = 5  # exit code of pytest
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_TIMED_OUT: Final = re.compile(r"\bTimeout \(?>")


def compiled_copy(folder: Path, root: Path = ROOT) -> Path:
    """A copy of the package with its bytecode, for `judge` and `check_baseline`."""
    shutil.copytree(root / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(folder / "src", quiet=2)
    return folder / "src"


def judge(mutant: Mutant, package: Path, *, seed: int, root: Path = ROOT, timeout: int = TEST_TIMEOUT) -> Outcome:
    """Apply a mutant to a copy of `package`, and see whether its tests notice."""
    began, tests = time.monotonic(), selected_tests(mutant, root)
    with tempfile.TemporaryDirectory(prefix="steersman-mutant-") as folder:
        _copy(root, package, Path(folder))
        _apply(mutant, Path(folder))
        code, output = _pytest(Path(folder), tests, "-n0", seed=seed, root=root, timeout=timeout, limit=RUN_TIMEOUT)
    seconds = round(time.monotonic() - began, 1)
    if code == NO_TESTS:
        raise SystemExit(f"error: {mutant.name}: no fast test in {', '.join(tests)}")
    if code == 0:
        return Outcome("survived", "", seconds)
    failed = _FAILED.search(output)
    result = "timeout" if _TIMED_OUT.search(output) else "killed"
    return Outcome(result, failed.group(1) if failed else output.strip().splitlines()[-1][:200], seconds)


def check_baseline(mutants: Iterable[Mutant], package: Path, *, seed: int, jobs: int, root: Path = ROOT) -> None:
    """All chosen tests pass as long as there is no bug; SystemExit when they do not."""
    chosen = tuple(sorted({path for mutant in mutants for path in selected_tests(mutant, root)}))
    with tempfile.TemporaryDirectory(prefix="steersman-mutant-") as folder:
        _copy(root, package, Path(folder))
        options = (f"-n{jobs}", "--dist=worksteal")
        code, output = _pytest(Path(folder), chosen, *options, seed=seed, root=root, timeout=TEST_TIMEOUT)
    if code:
        raise SystemExit(f"error: tests fail without any mutant:\n{output[-4000:]}")


def _copy(root: Path, package: Path, folder: Path) -> None:
    for entry in root.iterdir():
        if entry.name not in {"src", ".git", ".mutants"}:
            (folder / entry.name).symlink_to(entry)
    shutil.copytree(package, folder / "src")  # with times, by which Python knows that bytecode is current


def _apply(mutant: Mutant, folder: Path) -> None:
    target = folder / mutant.path
    target.write_text(mutated(target.read_text(), mutant))
    for compiled in target.parent.glob(f"__pycache__/{target.stem}.*.pyc"):
        compiled.unlink()  # it may look current: the size and the second of the source may be the same


def _pytest(
    folder: Path, tests: tuple[str, ...], *options: str, seed: int, root: Path, timeout: int, limit: float | None = None
) -> tuple[int, str]:
    """Exit code and output."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | {
        "PYTHONPATH": str(folder / "src"),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
        "PYTHONHASHSEED": str(seed),
    }
    command = [*PYTEST, f"--timeout={timeout}", f"--hypothesis-seed={seed}", *options, *tests]
    try:
        done = subprocess.run(  # noqa: S603  our own interpreter
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return 1, "Timeout >"
    return done.returncode, done.stdout + done.stderr
