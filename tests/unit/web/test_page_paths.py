"""One listener serves the page and the routes of every operator."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from steersman.operators import OPERATORS, load_operator
from steersman.runtime.parts import Surroundings
from steersman.web.access import Access, Mode
from steersman.web.site import Site


@pytest.mark.parametrize("operator", OPERATORS)
def test_no_operator_serves_a_path_of_the_page(operator):
    loaded = load_operator(operator)
    parts = loaded.parts(loaded.config() if loaded.config else None, Surroundings())
    client = SimpleNamespace(with_options=lambda **_: None)
    theirs = parts.routes(SimpleNamespace(client=client)) if parts.routes is not None else ()
    ours = Site(SimpleNamespace(), Access(Mode.OPEN, None)).routes()
    assert {path_of(route) for route in theirs} & {path_of(route) for route in ours} == set()


def path_of(route):
    return route.path
