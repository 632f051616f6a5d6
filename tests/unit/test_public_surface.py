"""The names in `steersman` are a promise: each exists, is documented, and is loaded on first use only."""

from __future__ import annotations

import subprocess
import sys

import steersman as sm


def test_every_name_exists_and_is_listed_once_and_in_order():
    assert list(sm.__all__) == sorted(set(sm.__all__))
    for name in sm.__all__:
        assert getattr(sm, name) is not None


def test_every_name_is_documented():
    drawn = sys.modules[sm.KubeError.__module__].__doc__  # the tree of errors says what each one means
    undocumented = [name for name in sm.__all__ if not (getattr(sm, name).__doc__ or "").strip() and name not in drawn]
    assert undocumented == []


def test_type_checkers_and_the_interpreter_see_the_same_names():
    assert {"Annotated", *sm._HOME} == set(sm.__all__)


def test_importing_the_package_loads_neither_the_client_nor_the_runtime():
    script = "import sys, steersman; print([m for m in ('aiohttp', 'yaml', 'prometheus_client') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(sm, "nonsense")
