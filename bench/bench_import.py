"""What starting costs: `import steersman`, and `--help` of the program, its commands and their sub-commands."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click
from children import environment
from contenders import OURS
from results import Results

from steersman.cli.main import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = str(Path(sys.executable).with_name("steersman"))
MEMORY, IMPORT, HELP = 40.0, 300.0, 250.0  # MiB, ms, ms

EVERYTHING = "import steersman as sm; [getattr(sm, name) for name in sm.__all__]"


def measured(command: list[str], runs: int) -> float:
    """CPU milliseconds of the median run; one more goes before, so that bytecode is there."""
    found = []
    for _ in range(runs + 1):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment())
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"error: {' '.join(command)} failed with {process.returncode}")
        found.append((used.ru_utime + used.ru_stime) * 1e3)
    return median(found[1:])


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command and sub-command."""
    with click.Context(group) as context:
        for name in group.list_commands(context):
            yield (*path, name)
            command = group.get_command(context, name)
            if isinstance(command, click.Group):
                yield from commands(command, (*path, name))


def memory(code: str) -> float:
    """Peak MiB of a Python process that runs `code`, by its own account: the parent's says what was there before."""
    ask = "import pathlib; print(pathlib.Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])"
    found = subprocess.run(
        [sys.executable, "-c", f"{code}\n{ask}"], check=True, capture_output=True, text=True, env=environment()
    )
    return int(found.stdout) / 1024


def main() -> int:
    """1 when a start is too dear."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    results = Results(
        "import",
        "Starting",
        "CPU (user and system) and peak resident memory of a process that does this and ends; the median of "
        f"{options.runs} runs, bytecode cached. The interpreter itself is included; the first row shows what it costs "
        "alone. Public names are loaded on first use; the third row is what it costs to use all of them.",
        {"name": "", "cpu": "CPU ms", "memory": "peak MiB"},
    )
    results.versions = {OURS.name: OURS.version()}

    def importing(name: str, code: str) -> tuple[float, float]:
        row = measured([sys.executable, "-c", code], options.runs), memory(code)
        results.add(name=name, cpu=row[0], memory=row[1])
        return row

    importing("python -c pass", "pass")
    lazy = importing("import steersman", "import steersman")
    importing("import steersman, and every public name used", EVERYTHING)
    slowest = 0.0
    for words in ((), *commands(cli)):
        cpu = measured([PROGRAM, *words, "--help"], options.runs)
        results.add(name=" ".join(["steersman", *words, "--help"]), cpu=cpu, memory=None)
        slowest = max(slowest, cpu)
    results.bar("import steersman: MiB", lazy[1], MEMORY)
    results.bar("import steersman: CPU ms", lazy[0], IMPORT)
    results.bar("the slowest --help: CPU ms", slowest, HELP)
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())
