"""What starting costs: `import steersman`, and `--help` of the program and each of its commands."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from contenders import OURS
from results import Results

from steersman.cli.main import COMMANDS

PROGRAM = str(Path(sys.executable).with_name("steersman"))
MEMORY, IMPORT, HELP = 40.0, 300.0, 250.0  # MiB, ms, ms

EVERYTHING = "import steersman as sm; [getattr(sm, name) for name in sm.__all__]"


def measured(command: list[str], runs: int) -> tuple[float, float]:
    """CPU milliseconds and peak MiB of the best run."""
    best = (float("inf"), float("inf"))
    for _ in range(runs):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"error: {' '.join(command)} failed with {process.returncode}")
        best = min(best, ((used.ru_utime + used.ru_stime) * 1e3, used.ru_maxrss / 1024))
    return best


def main() -> int:
    """1 when a start is too dear."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    results = Results(
        "import",
        "Starting",
        f"CPU (user and system) and peak resident memory of a process that does this and ends; best of {options.runs} "
        "runs, bytecode cached. The interpreter itself is included; the first row shows what it costs alone.",
        {"name": "", "cpu": "CPU ms", "memory": "peak MiB"},
    )
    results.versions = {OURS.name: OURS.version()}

    def row(name: str, *command: str) -> tuple[float, float]:
        cpu, memory = measured(list(command), options.runs)
        results.add(name=name, cpu=cpu, memory=memory)
        return cpu, memory

    row("python -c pass", sys.executable, "-c", "pass")
    lazy = row("import steersman", sys.executable, "-c", "import steersman")
    whole = row("import steersman, and every public name", sys.executable, "-c", EVERYTHING)
    slowest = max(
        row(" ".join(["steersman", *words]), PROGRAM, *words)[0]
        for words in (["--help"], *([name, "--help"] for name in COMMANDS))
    )
    results.bar("import steersman: MiB", lazy[1], MEMORY)
    results.bar("import steersman: CPU ms", lazy[0], IMPORT)
    results.bar("every public name: MiB", whole[1], MEMORY)
    results.bar("every public name: CPU ms", whole[0], IMPORT)
    results.bar("the slowest --help: CPU ms", slowest, HELP)
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())
