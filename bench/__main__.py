"""Runs the benchmarks: `python -m bench` all of them, `python -m bench NAME…` those named.

A benchmark is a script `bench/bench_NAME.py` that prints a table and fails when a promise it measures is broken.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main(names: list[str]) -> int:
    """Run one after the other, so that none disturbs another; return 1 when one failed."""
    known = {path.stem.removeprefix("bench_"): path for path in sorted(Path(__file__).parent.glob("bench_*.py"))}
    if unknown := set(names) - set(known):
        print(f"error: no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    failed = 0
    for name in names or known:
        print(f"== {name}", flush=True)
        failed += subprocess.run([sys.executable, known[name]], check=False).returncode != 0
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
