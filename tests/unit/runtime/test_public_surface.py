from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import steersman as sm

SOURCE = Path(sm.__file__).read_text()


def imported_for_type_checkers() -> dict[str, str]:
    """name -> module, of what the package shows to type checkers."""
    [block] = [node for node in ast.parse(SOURCE).body if isinstance(node, ast.If)]
    return {
        alias.name: str(node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }


def test_every_public_name_can_be_had_and_is_what_type_checkers_see() -> None:
    shown = imported_for_type_checkers()
    assert set(shown) == set(sm.__all__)
    for name, module in shown.items():
        assert getattr(sm, name) is getattr(importlib.import_module(module), name)
    assert dir(sm) == sorted(sm.__all__)


def test_public_names_are_sorted_and_unique() -> None:
    assert len(set(sm.__all__)) == len(sm.__all__)
    assert sorted(sm.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name)) == sm.__all__


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Depolyment'"):
        sm.Depolyment  # noqa: B018


def test_importing_the_package_loads_nothing_else() -> None:
    program = "import json, sys; old = set(sys.modules); import steersman; print(json.dumps([*set(sys.modules) - old]))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    loaded = set(json.loads(done.stdout))
    assert not {name for name in loaded if name.startswith(("aiohttp", "msgspec", "prometheus", "structlog"))}
    assert {name for name in loaded if name.startswith("steersman")} == {"steersman"}


def test_a_first_operator_needs_no_other_names() -> None:
    needed = {"Resource", "Struct", "Annotated", "Ge", "controller", "Context", "Result", "done", "Deployment"}
    assert needed <= set(sm.__all__)
