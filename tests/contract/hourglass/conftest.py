"""The operator inside the test, on both servers; pods move along when the test says so."""

from __future__ import annotations

import contextlib

import pytest
from prometheus_client import CollectorRegistry

from steersman.operators.hourglass.controller import controllers
from steersman.operators.hourglass.settings import HourglassOptions
from steersman.testing import running
from steersman.testing.hourglassing import install


@pytest.fixture
async def hourglass(cluster, client, namespace):
    """`async with hourglass(): …` runs the operator in the test's namespace."""
    await install(client)

    @contextlib.asynccontextmanager
    async def run(**options):
        registry = CollectorRegistry()
        made = controllers(HourglassOptions(**options), registry=registry)
        async with running(client, *(one.within([namespace]) for one in made), registry=registry) as manager:
            yield manager

    return run
