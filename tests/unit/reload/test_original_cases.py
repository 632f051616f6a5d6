"""Every case of the originals has its counterpart here: the table names tests, and each of them exists."""

from __future__ import annotations

import ast
import tomllib
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TABLE = tomllib.loads((Path(__file__).parent / "data" / "originals.toml").read_text())
NUMBERED = {f"S{number}" for number in range(1, 13)} | {f"X{number}" for number in range(1, 12)}


@lru_cache
def names_in(path):
    tree = ast.parse((ROOT / path).read_text())
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_")
    }


def named(entry):
    if isinstance(entry, dict):
        return [entry["test"]]
    return entry if isinstance(entry, list) else [entry]


CASES = [
    (f"{section}: {case}", test) for section in TABLE for case, entry in TABLE[section].items() for test in named(entry)
]


@pytest.mark.parametrize("test", sorted({test for _, test in CASES}))
def test_each_counterpart_exists(test):
    path, _, name = test.partition("::")
    assert (ROOT / path).is_file()
    assert name in names_in(path), [case for case, one in CASES if one == test]


def test_no_weakness_of_the_originals_is_left_out():
    assert set(TABLE["weaknesses"]) == NUMBERED


def test_where_a_test_of_an_original_encodes_a_weakness_the_table_says_what_is_better():
    better = [
        entry for section in ("shipshape", "xing") for entry in TABLE[section].values() if isinstance(entry, dict)
    ]
    assert better
    assert all(entry["better"] for entry in better)
