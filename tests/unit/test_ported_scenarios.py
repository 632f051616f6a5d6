"""Every scenario of the runtimes we learned from has its counterpart here, and the table that says so is true."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (?P<scenario>.+?) \| (?P<test>test_[a-z0-9_]+) \|$", re.MULTILINE)
DEFINED = re.compile(r"^\s*(?:async )?def (test_[a-z0-9_]+)\(", re.MULTILINE)


def rows() -> list[tuple[str, str]]:
    return ROW.findall((ROOT / "docs" / "concepts" / "scenarios.md").read_text())


def test_every_scenario_names_a_test_that_exists():
    defined = {name for path in (ROOT / "tests").rglob("test_*.py") for name in DEFINED.findall(path.read_text())}
    assert [row for row in rows() if row[1] not in defined] == []


def test_no_scenario_is_missing():
    scenarios = [scenario for scenario, _ in rows()]
    assert len(scenarios) == len(set(scenarios)) == 119
