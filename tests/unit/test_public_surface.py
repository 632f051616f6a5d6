from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import steersman as sm
import steersman.crd
import steersman.kube.api.types
import steersman.testing

if TYPE_CHECKING:
    from types import ModuleType


def imported_for_type_checkers(package: ModuleType) -> dict[str, str]:
    """name -> module, of what a package shows to type checkers."""
    tree = ast.parse(Path(f"{package.__file__}i").read_text())
    found = [(node.module, alias) for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    named = [alias for _, alias in found if alias.name != "*"]
    assert all(alias.asname == alias.name for alias in named), "`X as X` is what type checkers call a re-export"
    return {
        name: str(module)
        for module, alias in found
        for name in (importlib.import_module(str(module)).__all__ if alias.name == "*" else [alias.name])
    }


@pytest.mark.parametrize(
    "package",
    [sm, sm.kube, steersman.kube.api.types, steersman.crd, steersman.testing],
    ids=lambda found: found.__name__,
)
def test_every_public_name_can_be_had_and_is_what_type_checkers_see(package: ModuleType) -> None:
    shown = imported_for_type_checkers(package)
    assert set(shown) == set(package.__all__)
    for name, module in shown.items():
        assert getattr(package, name) is getattr(importlib.import_module(module), name)
    assert dir(package) == sorted(package.__all__)


def test_a_star_import_gives_all_of_them() -> None:
    names: dict[str, object] = {}
    exec("from steersman import *", names)
    assert set(sm.__all__) <= names.keys()


def test_public_names_are_sorted_and_unique() -> None:
    assert len(set(sm.__all__)) == len(sm.__all__)
    assert sorted(sm.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name)) == sm.__all__


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Depolyment'"):
        sm.Depolyment  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_package_loads_nothing_else() -> None:
    program = "import json, sys; old = set(sys.modules); import steersman; print(json.dumps([*set(sys.modules) - old]))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    loaded = set(json.loads(done.stdout))
    assert not {name for name in loaded if name.startswith(("aiohttp", "msgspec", "prometheus", "structlog"))}
    assert {name for name in loaded if name.startswith("steersman")} == {"steersman", "steersman.lazy_imports"}


def test_a_first_operator_needs_no_other_names() -> None:
    needed = {"Resource", "Struct", "Annotated", "Ge", "controller", "Context", "Result", "done", "Deployment"}
    assert needed <= set(sm.__all__)
