"""The operator inside the test, on both servers; pods move along when the test says so."""

from __future__ import annotations

import contextlib

import pytest
from prometheus_client import CollectorRegistry

from steersman.clock import SYSTEM_CLOCK
from steersman.operators.hourglass.api.config import HourglassOptions
from steersman.operators.hourglass.controllers.setup import controllers
from steersman.testing import running
from tests.support.hourglass import install


@pytest.fixture
async def hourglass(cluster, client, namespace):
    """`async with hourglass(): …` runs the operator in the test's namespace."""
    await install(client)

    @contextlib.asynccontextmanager
    async def run(*, clock=SYSTEM_CLOCK, **options):
        registry = CollectorRegistry()
        made = [
            controller.within([namespace]) for controller in controllers(HourglassOptions(**options), registry=registry)
        ]
        async with running(client, *made, registry=registry, clock=clock) as manager:
            yield manager

    return run
