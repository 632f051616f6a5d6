"""Runs the benchmarks: `python -m bench` all of them, `python -m bench NAME…` those named.

A benchmark is a script `bench/bench_NAME.py` that prints a table and fails when a promise it measures is broken. What
follows `--` are its own options: `python -m bench sync -- --objects 2000 --runs 1`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

# On two quiet cores, with everything installed and compiled; the first run of a benchmark does that too.
TAKES = {
    "apiserver": "3 min",
    "cel": "30 s",
    "client": "1 min",
    "controllers": "6 min",
    "copies": "10 s",
    "dns": "8 min, 11 on a busy machine; 3 with --records 2000 --zones 200 --large 10000",
    "events": "5 min; 9 with --seconds 30 --runs 3",
    "import": "2 min",
    "queue": "1 min",
    "reload": "5 min",
    "sync": "5 min",
}


def main(arguments: list[str]) -> int:
    """Run one after the other, so that none disturbs another; return 1 when one failed."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    names, options = arguments[:at], arguments[at + 1 :]
    known = {path.stem.removeprefix("bench_"): path for path in sorted(Path(__file__).parent.glob("bench_*.py"))}
    if unknown := set(names) - set(known):
        print(f"error: no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    around = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}  # for tests.support
    failed = 0
    for name in names or known:
        print(f"== {name} (takes about {TAKES.get(name, 'a minute')})", flush=True)
        started = time.monotonic()
        failed += subprocess.run([sys.executable, known[name], *options], env=around, check=False).returncode != 0
        print(f"== {name} took {time.monotonic() - started:.0f} s", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
