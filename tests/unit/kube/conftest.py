"""Fixtures for tests of the client: servers, clocks, transports, clients."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from prometheus_client import CollectorRegistry

from steersman.kube.client.client import Client
from steersman.kube.config.config import Config
from steersman.kube.transport.transport import Transport
from steersman.testing.clock import VirtualClock
from tests.support.wire_server import Wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


@pytest.fixture
async def wire() -> AsyncIterator[Callable[..., Awaitable[Wire]]]:
    """Start servers with `await wire(answer)`."""
    async with AsyncExitStack() as stack:

        async def start(answer: Any, **options: Any) -> Wire:
            return await stack.enter_async_context(Wire(answer, **options))

        yield start


class HastyClock(VirtualClock):
    """Sleeps without waiting and remembers how long it was asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._now += max(0.0, seconds)
        await asyncio.sleep(0)


@pytest.fixture
def hasty() -> HastyClock:
    return HastyClock()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
async def transport(registry: CollectorRegistry, hasty: HastyClock) -> AsyncIterator[Callable[..., Transport]]:
    """Make transports with `transport(server, **options)`; `config=` replaces the usual one."""
    made: list[Transport] = []

    def make(server: Wire | str, *, config: Config | None = None, **options: Any) -> Transport:
        url = server if isinstance(server, str) else server.url
        options = {"clock": hasty, "registry": registry, "random": random.Random(1), **options}
        made.append(Transport(config or Config(server=url, source="test.kubeconfig"), **options))
        return made[-1]

    yield make
    for each in made:
        await each.close()


@pytest.fixture
def client(transport: Callable[..., Transport]) -> Callable[..., Client]:
    """Make clients with `client(server, **transport_options)`."""
    return lambda server, **options: Client(transport(server, **options), namespace="shop", field_manager="tester")


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()
