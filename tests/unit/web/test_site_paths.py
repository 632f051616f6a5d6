"""One listener serves the page and the routes of every operator."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from steersman.operators import OPERATORS, load_operator
from steersman.runtime.manager.operator_bundle import RuntimeEnvironment
from steersman.web.access import AccessMode, PageAccess
from steersman.web.site import Site


@pytest.mark.parametrize("operator", OPERATORS)
def test_no_operator_serves_a_path_of_the_page(operator):
    loaded = load_operator(operator)
    parts = loaded.parts(loaded.config() if loaded.config else None, RuntimeEnvironment())
    client = SimpleNamespace(with_options=lambda **_: None)
    theirs = parts.routes(SimpleNamespace(client=client)) if parts.routes is not None else ()
    taken, cache = {path_of(route) for route in theirs}, SimpleNamespace()
    ours = {path_of(route) for route in Site(cache, PageAccess(AccessMode.OPEN, None), taken=taken).routes()}
    assert taken & ours == set()
    assert cache.health_path in ours  # the view has an address beside whatever an operator answers at /health


def path_of(route):
    return route.path
