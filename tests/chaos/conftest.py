"""Fixtures of the chaos suite, and which schedules it runs.

`STEERSMAN_CHAOS_SEEDS=17,40-59` chooses schedules by seed: those that failed, or many more.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.testing import FaultProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

EMBEDDED = range(170)
REAL = range(1000, 1020)
FORGETFUL = range(2000, 2010)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per server and schedule."""
    if "schedule_on" not in metafunc.fixturenames:
        return
    chosen = chosen_seeds_of_the_run()
    embedded, real = (chosen, chosen) if chosen else (EMBEDDED, REAL)
    cases = [pytest.param(("embedded", seed), id=f"embedded-{seed}") for seed in embedded]
    cases += [pytest.param(("real", seed), id=f"real-{seed}", marks=pytest.mark.real) for seed in real]
    metafunc.parametrize("schedule_on", cases)


def chosen_seeds_of_the_run() -> list[int]:
    return seeds(os.environ.get("STEERSMAN_CHAOS_SEEDS", ""))


@pytest.fixture
def chosen_seeds() -> list[int]:
    """The schedules that one test runs side by side."""
    return chosen_seeds_of_the_run() or list(FORGETFUL)


def seeds(text: str) -> list[int]:
    """The seeds that `17,40-59` means."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


class Road:
    """The way to one server, with a proxy on it, and clients that take it or not."""

    def __init__(self, server: Any, folder: Any, proxy: FaultProxy, stack: contextlib.AsyncExitStack) -> None:
        self.server = server
        self.proxy = proxy
        self._folder = folder
        self._stack = stack

    def config(self, *, through: bool) -> Any:
        """Where to connect: through the proxy, or directly."""
        path = self._folder / "direct"
        path.write_text(self.server.kubeconfig())
        return self.through(path) if through else path

    def through(self, kubeconfig: Any) -> Any:
        """Another identity's kubeconfig, with the proxy on its way."""
        path = self._folder / f"through-{self.proxy.port}"
        path.write_text(kubeconfig.read_text().replace(urlsplit(self.server.url).netloc, self.proxy.address))
        return path

    async def client(self, *, through: bool, **options: Any) -> Client:
        """A connected client; it is closed with the test at the latest."""
        config = load_config(self.config(through=through))
        return await self._stack.enter_async_context(Client.connect(config, **options))


@pytest.fixture
async def road_to(tmp_path: Any) -> AsyncIterator[Any]:
    """`await road_to(server)` is the way to that server."""
    async with contextlib.AsyncExitStack() as stack:

        async def build(server: Any) -> Road:
            address = urlsplit(server.url)
            proxy = await stack.enter_async_context(FaultProxy(address.hostname or "", address.port or 0))
            return Road(server, tmp_path, proxy, stack)

        yield build
