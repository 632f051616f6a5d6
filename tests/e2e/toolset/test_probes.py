"""Probes of real services, of services that only look like them, and of services that mean harm."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver

from steersman.operators.toolset.api.config import ToolsetSection
from steersman.operators.toolset.discovery.health import ProbeOutcome
from steersman.operators.toolset.discovery.matching import detect
from steersman.operators.toolset.discovery.probe import BODY_LIMIT, Prober
from steersman.testing import eventually
from steersman.testing.plugin import unavailable
from tests.support.programs.monitoring import MonitoringError, alertmanager, node_exporter, prometheus
from tests.support.toolset.services import parsed, service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SETTINGS = ToolsetSection().settings()


class Loopback(AbstractResolver):
    """Every name is this machine, as a cluster's DNS would say of its Services."""

    def __init__(self, address="127.0.0.1"):
        self.address = address

    async def resolve(self, host, port=0, family=socket.AF_INET):
        row = {"hostname": host, "host": self.address, "port": port, "family": socket.AF_INET, "proto": 0, "flags": 0}
        return [row]

    async def close(self):
        pass


PROBER = Prober(resolver=Loopback, loopback=True)


def port_of(url):
    return int(url.rpartition(":")[2])


async def ask(name, port, *, prober=PROBER, timeout=30.0, attempts=1, **options):
    found = detect(parsed(service(name, ports=[port], **options)), SETTINGS)
    assert found.candidate is not None, found.message
    return await prober.probe(found.candidate, timeout=timeout, attempts=attempts, strict=True)


@pytest.fixture(scope="module")
async def programs(tmp_path_factory):
    """URLs of a real Prometheus, Alertmanager and node-exporter."""
    async with AsyncExitStack() as stack:
        found = {}
        try:
            for start in (prometheus, alertmanager, node_exporter):
                folder = tmp_path_factory.mktemp(start.__name__)
                found[start.__name__] = await stack.enter_async_context(start(folder))
        except MonitoringError as error:
            unavailable(error)

        async def ready():
            url = f"{found['prometheus']}/-/ready"
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                return answer.status == 200

        await eventually(ready, "Prometheus is ready", timeout=90)
        yield found


async def test_a_real_prometheus_is_healthy_and_identifies_itself(programs):
    port = port_of(programs["prometheus"])
    by_label = await ask("x", port, labels={"app": "prometheus"})
    by_name = await ask("my-prometheus", port)
    assert by_label.outcome is by_name.outcome is ProbeOutcome.OK


async def test_a_real_alertmanager_is_one_and_is_not_a_prometheus(programs):
    port = port_of(programs["alertmanager"])
    assert (await ask("alertmanager-main", port)).outcome is ProbeOutcome.OK
    assert (await ask("my-prometheus", port)).outcome is ProbeOutcome.NOT_IDENTIFIED


async def test_a_real_node_exporter_is_nothing_that_can_be_asked(programs):
    port = port_of(programs["node_exporter"])
    for name in ("my-prometheus", "grafana", "loki-x", "elasticsearch-x"):
        assert (await ask(name, port)).outcome is not ProbeOutcome.OK, name


async def test_a_real_prometheus_is_not_a_grafana_and_no_elasticsearch(programs):
    port = port_of(programs["prometheus"])
    assert (await ask("grafana", port)).outcome is not ProbeOutcome.OK
    assert (await ask("elasticsearch", port)).outcome is not ProbeOutcome.OK


# -- recorded shapes: what cannot run here answers as its documentation and source say ---------------------------------

RECORDED: dict[str, dict[str, Any]] = {
    "grafana": {"/api/health": {"database": "ok", "version": "11.1.0", "commit": "5b85c4c2fc"}},
    "loki-x": {"/ready": "ready", "/loki/api/v1/status/buildinfo": {"version": "3.0.0", "revision": "b4f7181c7a"}},
    "tempo-x": {"/ready": "ready", "/api/status/buildinfo": {"version": "2.5.0", "revision": "46dad3411"}},
    "elasticsearch-x": {
        "/_cluster/health": {"status": "green"},
        "/": {"name": "n", "version": {"number": "8.14.0"}, "tagline": "You Know, for Search"},
    },
    "opensearch-x": {
        "/_cluster/health": {"status": "green"},
        "/": {"version": {"distribution": "opensearch", "number": "2.15.0"}},
    },
    "vmsingle-x": {"/health": "OK", "/api/v1/status/buildinfo": {"status": "success", "data": {"version": "2.24.0"}}},
    "jaeger-x": {"/": "<html></html>", "/api/services": {"data": ["a"], "total": 1}},
    "pyroscope-x": {"/ready": "ready", "/api/v1/status/buildinfo": {"status": "success", "data": {"version": "1.7.1"}}},
}


@asynccontextmanager
async def serving(handler):
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("name", sorted(RECORDED))
async def test_recorded_answers_identify_their_service(name):
    async def answer(request):
        body = RECORDED[name].get(request.path)
        if body is None:
            return web.Response(status=404)
        return web.Response(text=body) if isinstance(body, str) else web.json_response(body)

    async with serving(answer) as port:
        ports = {"ports": [("query", port)]} if name.startswith("jaeger") else {}
        if ports:
            found = detect(parsed(service(name, **ports)), SETTINGS).candidate
            result = await PROBER.probe(found, timeout=30, attempts=1, strict=True)
        else:
            result = await ask(name, port)
    assert result.outcome is ProbeOutcome.OK, result.message


# -- services that mean harm -------------------------------------------------------------------------------------------


async def test_a_redirect_is_not_followed():
    seen = []

    async def answer(request):
        seen.append(request.path)
        raise web.HTTPFound(request.path)

    async with serving(answer) as port:
        result = await ask("x", port, labels={"app": "prometheus"})
    assert result.outcome is ProbeOutcome.REDIRECTED
    assert len(seen) == 1


async def test_ten_megabytes_are_not_read():
    sent = 0

    async def answer(request):
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            for _ in range(160):
                await response.write(b"x" * 65536)
                sent += 65536
        except ConnectionError:
            pass
        return response

    async with serving(answer) as port:
        result = await ask("x", port, labels={"app": "prometheus"})
    assert result.outcome is ProbeOutcome.TOO_LARGE
    assert sent < 10_000_000
    assert BODY_LIMIT == 65536


async def test_a_service_that_answers_byte_by_byte_is_given_up_in_time():
    async def drip(reader, writer):
        try:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.05)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    try:
        result = await ask("x", server.sockets[0].getsockname()[1], labels={"app": "prometheus"}, timeout=0.5)
    finally:
        server.close()
    assert result.outcome is ProbeOutcome.TIMEOUT


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (401, ProbeOutcome.AUTH_REQUIRED),
        (403, ProbeOutcome.AUTH_REQUIRED),
        (204, ProbeOutcome.OK),
        (500, ProbeOutcome.STATUS),
        (404, ProbeOutcome.STATUS),
    ],
)
async def test_what_a_status_means(status, outcome):
    async def answer(_request):
        return web.Response(status=status)

    async with serving(answer) as port:
        assert (await ask("x", port, labels={"app": "prometheus"})).outcome is outcome


async def test_nothing_listens_there():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        result = await ask("x", held.getsockname()[1], labels={"app": "prometheus"})
    assert result.outcome is ProbeOutcome.UNREACHABLE


@pytest.mark.parametrize("address", ["169.254.169.254", "127.0.0.1", "0.0.0.0", "224.0.0.1", "100.100.100.200"])
async def test_a_name_that_leads_to_a_forbidden_address_is_not_called(address):
    prober = Prober(resolver=lambda: Loopback(address))
    result = await ask("x", 9090, prober=prober, labels={"app": "prometheus"})
    assert result.outcome is ProbeOutcome.REFUSED


async def test_no_credential_and_no_cookie_is_ever_sent():
    seen = []

    async def answer(request):
        seen.append({name.lower() for name in request.headers})
        return web.Response(headers={"Set-Cookie": "a=b"})

    async with serving(answer) as port:
        await ask("x", port, labels={"app": "prometheus"})
        await ask("x", port, labels={"app": "prometheus"})
    assert all(not {"authorization", "cookie"} & names for names in seen)


async def test_a_service_that_fails_first_is_asked_again_within_a_probe():
    answers = [500, 200]

    async def answer(_request):
        return web.Response(status=answers.pop(0))

    async with serving(answer) as port:
        result = await ask("x", port, labels={"app": "prometheus"}, attempts=3)
    assert result.outcome is ProbeOutcome.OK
