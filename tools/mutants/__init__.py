"""Deliberate bugs, and whether the fast tests notice them (`make mutants`).

A mutant is data in `bugs/*.toml`: a file, a text that occurs in it exactly once, the text that takes its place, and the
mistake it stands for. Invariant: a mutant is applied alone, to a copy of `src`; the working tree is never written.

    [[mutant]]
    file = "cache/reflector.py"        below src/steersman
    stands_for = "a refused list counts as synced"
    old = '''...'''
    new = '''...'''
    tests = ["tests/unit/cache"]       optional; otherwise the mirrored file or folder below tests/unit

The list says nothing about code that it does not touch: coverage does.
"""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "GOAL",
    "ROOT",
    "Mutant",
    "Outcome",
    "fingerprint",
    "load",
    "mutated",
    "noticed",
    "selected_tests",
    "table",
    "tree_digest",
]

ROOT = Path(__file__).parent.parent.parent
BUGS = Path(__file__).parent / "bugs"
GOAL = 90  # percent of the mutants that the fast tests must notice


class Mutant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One deliberate bug."""

    file: str
    stands_for: str
    old: str
    new: str
    tests: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        """The row of the table that it belongs to: a package, or an operator."""
        first, second, *_ = Path(self.file).parts
        return second if first == "operators" else first

    @property
    def path(self) -> str:
        """The file, from the root of the repository."""
        return f"src/steersman/{self.file}"

    @property
    def name(self) -> str:
        """How the report refers to it."""
        return f"{self.file}: {self.stands_for}"


class Outcome(msgspec.Struct, frozen=True):
    """What became of a mutant."""

    result: str  # killed, timeout or survived
    by: str = ""  # the test that noticed it
    seconds: float = 0.0


def load() -> list[Mutant]:
    """All mutants, in the order of the files."""
    found: list[Mutant] = []
    for path in sorted(BUGS.glob("*.toml")):
        found += msgspec.convert(tomllib.loads(path.read_text())["mutant"], list[Mutant])
    return found


def mutated(source: str, mutant: Mutant) -> str:
    """A source text with the bug in it; ValueError when the list is out of date."""
    if (count := source.count(mutant.old)) != 1:
        raise ValueError(f"{mutant.name}: the old text occurs {count} times, not once")
    return source.replace(mutant.old, mutant.new)


def selected_tests(mutant: Mutant, root: Path = ROOT) -> tuple[str, ...]:
    """The tests that run for a mutant: those it names, what mirrors its file, or the nearest folder that does."""
    if mutant.tests:
        return mutant.tests
    module = Path(mutant.file).with_suffix("")
    folder = Path("tests/unit") / module.parent
    if (root / folder / f"test_{module.name}.py").is_file():
        return (str(folder / f"test_{module.name}.py"),)
    while not (root / folder).is_dir():
        folder = folder.parent
    return (str(folder),)


def tree_digest(seed: int, root: Path = ROOT) -> str:
    """Changes with the package and with what all tests share. Not with `tests/support`: then say `--fresh`."""
    return _digest([root / "src", root / "tests/conftest.py"], str(seed))


def fingerprint(mutant: Mutant, tree: str, root: Path = ROOT) -> str:
    """Changes whenever the outcome may: with the mutant, the tree, or the tests that run for the mutant."""
    return _digest([root / path for path in selected_tests(mutant, root)], f"{tree} {mutant!r}")


def _digest(paths: Iterable[Path], seed: str) -> str:
    digest = hashlib.sha256(seed.encode())
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def noticed(outcomes: Iterable[Outcome]) -> float:
    """Percent of mutants that a test failed for, or hung for."""
    results = [outcome.result != "survived" for outcome in outcomes]
    return 100 * sum(results) / len(results) if results else 0.0


def table(outcomes: Mapping[Mutant, Outcome]) -> list[str]:
    """One row per package, and the sum."""
    packages: dict[str, list[Outcome]] = {}
    for mutant, outcome in outcomes.items():
        packages.setdefault(mutant.package, []).append(outcome)
    lines = [f"{'package':<12}{'mutants':>8}{'noticed':>8}{'percent':>9}"]
    for package, rows in [*sorted(packages.items()), ("all", list(outcomes.values()))]:
        count = sum(row.result != "survived" for row in rows)
        lines.append(f"{package:<12}{len(rows):>8}{count:>8}{noticed(rows):>8.0f}%")
    return lines
