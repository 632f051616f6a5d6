"""Every listener of ours closes what is half-sent, and answers probes meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from steersman.certificates import Authority
from steersman.operators.dns.sidecar.access import Access
from steersman.operators.dns.sidecar.server import Sidecar
from steersman.runtime.http.server import ServerLimits
from steersman.runtime.observability.health import HealthServer
from steersman.runtime.webhook.server import WebhookServer
from steersman.testing import eventually

HALF = b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Half"


@contextlib.asynccontextmanager
async def health(clock):
    server = HealthServer("127.0.0.1:0", alive=dict, ready=dict, registry=CollectorRegistry(), clock=clock)
    await server.start()
    yield server.port, "http", "/livez"
    await server.stop()


@contextlib.asynccontextmanager
async def webhook(clock):
    class Given:
        async def load(self):
            return Authority("test").server("127.0.0.1")

    options = {"host": "127.0.0.1", "port": 0, "registry": CollectorRegistry()}
    server = WebhookServer([], Given(), **options, clock=clock)
    serving = asyncio.create_task(server.run())
    await server.serving.wait()
    yield server.port, "https", "/healthz"
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


@contextlib.asynccontextmanager
async def sidecar(clock):
    access = Access(clock=clock, token=lambda: "secret")
    server = Sidecar(SimpleNamespace(), access, clock=clock, listen=("127.0.0.1", 0))
    await server.start()
    yield server.port, "http", "/api/v1/health"
    await server.stop()


@pytest.mark.parametrize("listener", [health, webhook, sidecar])
async def test_half_sent_requests_are_closed_and_probes_are_answered_meanwhile(listener, clock):
    async with listener(clock) as (port, scheme, probe):
        streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for _, writer in streams:
            writer.write(HALF)
        url = f"{scheme}://127.0.0.1:{port}{probe}"
        async with aiohttp.ClientSession() as session, session.get(url, ssl=False) as answer:
            assert answer.status == 200
        ended = [asyncio.create_task(end_of(reader)) for reader, _ in streams]

        async def all_ended():
            await clock.advance(ServerLimits().header_seconds)
            return all(task.done() for task in ended)

        await eventually(all_ended)
        for _, writer in streams:
            writer.transport.abort()


async def end_of(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        await reader.read()
