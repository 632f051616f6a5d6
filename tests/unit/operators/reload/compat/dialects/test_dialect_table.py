"""Which dialects the configuration asks for."""

from __future__ import annotations

import pytest

from steersman.errors import ConfigError
from steersman.operators.reload.api.config import ReloadConfig, ReloadOptions
from steersman.operators.reload.compat.dialects import DIALECTS, dialects_for
from steersman.operators.reload.controllers.setup import operator


def names(**options):
    return [dialect.name for dialect in dialects_for(ReloadOptions(**options))]


def test_xing_and_shipshape_are_on_and_the_others_are_asked_for():
    assert names() == ["xing", "shipshape"]
    assert names(dialects=("native",)) == []
    assert names(dialects=("wave", "reloader", "wave")) == ["wave", "reloader"]


def test_every_dialect_is_found_by_its_own_name():
    assert {name: make(ReloadOptions()).name for name, make in DIALECTS.items()} == {name: name for name in DIALECTS}


def test_an_unknown_dialect_is_refused_with_the_names_there_are():
    with pytest.raises(ConfigError, match=r"reloder.*native, shipshape, xing, reloader, wave"):
        operator(ReloadConfig(dialects=("native", "reloder")))
