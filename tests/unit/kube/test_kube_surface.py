from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

from steersman import kube
from steersman.kube.api import types
from steersman.lazy_imports import imported_names


@pytest.mark.parametrize("name", kube.__all__)
def test_every_public_name_exists_and_says_what_it_is(name: str) -> None:
    assert inspect.getdoc(getattr(kube, name))


@pytest.mark.parametrize("name", types.__all__)
def test_every_built_in_kind_and_part_says_what_it_is(name: str) -> None:
    value = getattr(types, name)
    if isinstance(value, type):
        assert value.__doc__


@pytest.mark.parametrize("module", [kube, types], ids=lambda module: module.__name__)
def test_the_surface_is_sorted_and_names_nothing_twice(module: object) -> None:
    names: list[str] = module.__all__  # type: ignore[attr-defined]  # both modules have it
    assert names == sorted(set(names))


def test_the_surface_is_what_the_modules_offer() -> None:
    for name, module in imported_names(f"{kube.__file__}i").items():
        home = importlib.import_module(module)
        assert name in home.__all__
        assert getattr(kube, name) is getattr(home, name)
    assert set(kube.__all__) <= set(dir(kube))


def test_the_types_package_offers_all_its_modules_offer() -> None:
    offered = {
        name
        for info in pkgutil.iter_modules(types.__path__)
        for name in importlib.import_module(f"steersman.kube.api.types.{info.name}").__all__
    }
    assert offered == set(types.__all__)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Ship'"):
        kube.Ship  # type: ignore[attr-defined]  # noqa: B018 - looking is the test


def test_pure_data_loads_no_network_and_no_yaml() -> None:
    program = (
        "import sys, steersman.kube, steersman.kube.api.objects, steersman.kube.api.selectors, "
        "steersman.kube.api.quantities, "
        "steersman.kube.api.patches, steersman.kube.api.types\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'aiohttp', 'yaml', 'asyncio', 'ssl'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
