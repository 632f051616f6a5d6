"""The examples in docstrings are true: each runs, and prints what the docstring says."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import steersman

ROOT = Path(steersman.__file__).parent
MODULES = sorted(
    ".".join(("steersman", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in ROOT.rglob("*.py")
    if ">>> " in path.read_text()
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_are_true(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0
