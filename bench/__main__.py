"""Runs the benchmarks: `python -m bench` all of them, `python -m bench NAME…` those named.

A benchmark is a script `bench/bench_NAME.py` that prints a table and fails when a promise it measures is broken. What
follows `--` are its own options: `python -m bench sync -- --objects 2000 --runs 1`. `--compare OLD.json`, a result file
of an earlier run, runs that benchmark and prints old, new and their ratio for every figure. `--against REVISION
[sync|events|controllers|apiserver…]` measures this version and another one of the repository in one run, in turns.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from bench.figures import compare, comparison

RESULTS = Path(__file__).parent / "results"

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
    "soak": "1 hour; less with --minutes 8",
    "sync": "5 min",
}


def main(arguments: list[str]) -> int:
    """Run one after the other, so that none disturbs another; return 1 when one failed."""
    around = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}  # for tests.support
    if arguments[:1] == ["--against"]:
        script = Path(__file__).with_name("against.py")
        return subprocess.run([sys.executable, script, *arguments[1:]], env=around, check=False).returncode
    at = arguments.index("--") if "--" in arguments else len(arguments)
    names, options = arguments[:at], arguments[at + 1 :]
    old: dict[str, Any] | None = None
    if "--compare" in names:
        place = names.index("--compare")
        try:  # read now: it may be the file that the run writes
            old = msgspec.json.decode(Path(names[place + 1]).read_bytes())
            names = [str(old["name"])]
        except (IndexError, OSError, KeyError, TypeError, msgspec.DecodeError) as error:
            print(f"error: --compare needs a result file such as bench/results/queue.json ({error})", file=sys.stderr)
            return 2
    known = {path.stem.removeprefix("bench_"): path for path in sorted(Path(__file__).parent.glob("bench_*.py"))}
    if unknown := set(names) - set(known):
        print(f"error: no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    failed, began = 0, time.time()
    for name in names or known:
        print(f"== {name} (takes about {TAKES.get(name, 'a minute')})", flush=True)
        started = time.monotonic()
        failed += subprocess.run([sys.executable, known[name], *options], env=around, check=False).returncode != 0
        print(f"== {name} took {time.monotonic() - started:.0f} s", flush=True)
    if old is not None:
        written = RESULTS / f"{old['name']}.json"
        if not written.exists() or written.stat().st_mtime < began:
            print(f"error: the run wrote no {written.name}, so there is nothing to compare", file=sys.stderr)
            return 1
        print(comparison(compare(old, msgspec.json.decode(written.read_bytes()))))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
