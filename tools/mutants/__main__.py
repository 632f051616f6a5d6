"""Runs the mutants: `python -m tools.mutants [--jobs N] [--seed N] [--only TEXT] [--fresh]`.

First all chosen tests run without a bug, because a test that fails anyway proves nothing. Then each mutant gets a copy
of `src` of its own, first on PYTHONPATH, and the tests that belong to it run until one fails. A hang is ended by
pytest-timeout and counts as noticed. Outcomes are kept in `.mutants/` and used again until the mutant, the package or
its tests change, so a run that was interrupted goes on where it stopped. Exit code 1 below the goal.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tools.mutants import GOAL, ROOT, Mutant, Outcome, fingerprint, load, noticed, selected_tests, table, tree_digest
from tools.mutants.judge import check_baseline, compiled_copy, judge

if TYPE_CHECKING:
    from collections.abc import Iterator

STATE = ROOT / ".mutants" / "outcomes.json"


def main() -> int:
    """Run what has not run yet, print the table, and say whether the goal is reached."""
    parser = argparse.ArgumentParser(prog="make mutants", description="Do the fast tests notice deliberate bugs?")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at once (default: cores)")
    parser.add_argument("--seed", type=int, default=17, help="of the order, of hash values and of Hypothesis")
    parser.add_argument("--only", default="", help="mutants whose name contains this text")
    parser.add_argument("--fresh", action="store_true", help="forget the outcomes of earlier runs")
    options = parser.parse_args()
    mutants = [mutant for mutant in load() if options.only in mutant.name]
    tree = tree_digest(options.seed)
    keys = {mutant: fingerprint(mutant, tree) for mutant in mutants}
    known: dict[str, Outcome] = {}
    if STATE.exists() and not options.fresh:
        known = msgspec.json.decode(STATE.read_bytes(), type=dict[str, Outcome])
    due = [mutant for mutant in mutants if keys[mutant] not in known]
    random.Random(options.seed).shuffle(due)  # noqa: S311  an order
    STATE.parent.mkdir(exist_ok=True)
    for mutant, outcome in _run(due, options.seed, options.jobs):
        known[keys[mutant]] = outcome
        STATE.write_bytes(msgspec.json.encode(known))
        _print(f"{outcome.result:<9}{outcome.seconds:6.1f} s  {mutant.name}  {outcome.by}")
    outcomes = {mutant: known[keys[mutant]] for mutant in mutants}
    _print("", *table(outcomes))
    for mutant, outcome in outcomes.items():
        if outcome.result == "survived":
            _print(f"survived: {mutant.name} ({', '.join(selected_tests(mutant))})")
    percent = noticed(outcomes.values())
    _print(f"{percent:.0f} % noticed (goal {GOAL} %)")
    return 0 if percent >= GOAL else 1


def _run(due: list[Mutant], seed: int, jobs: int) -> Iterator[tuple[Mutant, Outcome]]:
    """Each mutant with its outcome, as soon as it is known."""
    if not due:
        return
    _print(f"checking that the tests of {len(due)} mutants pass without a bug")
    with tempfile.TemporaryDirectory(prefix="steersman-mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        package = compiled_copy(Path(folder))
        check_baseline(due, package, seed=seed, jobs=jobs)
        running = {pool.submit(judge, mutant, package, seed=seed): mutant for mutant in due}
        try:
            for done in as_completed(running):
                yield running[done], done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _print(*lines: str) -> None:
    print(*lines, sep="\n", flush=True)  # noqa: T201  a command


if __name__ == "__main__":
    sys.exit(main())
