"""What the configuration allows is probed, and nothing else on this machine."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web

from steersman.operators.toolset.api.config import ToolsetSection
from steersman.operators.toolset.discovery.health import ProbeOutcome
from steersman.operators.toolset.discovery.matching import detect
from steersman.operators.toolset.discovery.probe import Prober
from steersman.runtime.http.server import HttpServer
from tests.support.toolset.services import parsed, service


async def fine(_request: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


@pytest.fixture
async def port():
    server = HttpServer("127.0.0.1", 0, routes=[web.get("/{path:.*}", fine)])
    await server.start()
    yield server.port
    await server.stop()


def annotated(endpoint: str):
    annotations = {"kubernaut.io/toolset": "enabled", "kubernaut.io/toolset-type": "prometheus"}
    return parsed(service("p", annotations={**annotations, "kubernaut.io/toolset-endpoint": endpoint}, ports=[9090]))


async def probed(found, settings):
    return await Prober().probe(found.candidate, timeout=30, attempts=1, strict=settings.strict)


@pytest.mark.parametrize("allowed", ["127.0.0.1", "127.0.0.1:{port}", "localhost"])
async def test_an_endpoint_that_the_configuration_allows_is_probed_also_on_this_machine(port, allowed):
    settings = ToolsetSection(allowed_endpoints=[allowed.format(port=port)]).settings()
    host = "localhost" if allowed == "localhost" else "127.0.0.1"
    found = detect(annotated(f"http://{host}:{port}"), settings)
    assert found.candidate is not None, found.message
    assert (await probed(found, settings)).outcome is ProbeOutcome.OK


@pytest.mark.parametrize("allowed", [[], ["127.0.0.1:1"], ["elsewhere.example"]])
async def test_another_endpoint_on_this_machine_is_refused_by_discovery(port, allowed):
    found = detect(annotated(f"http://127.0.0.1:{port}"), ToolsetSection(allowed_endpoints=allowed).settings())
    assert (found.candidate, found.reason) == (None, "UntrustedEndpoint")


async def test_a_service_that_only_has_a_name_of_this_machine_is_not_probed(port):
    class Here(aiohttp.ThreadedResolver):
        async def resolve(self, host, port=0, family=0):
            return await super().resolve("127.0.0.1", port, family)

    settings = ToolsetSection(allowed_endpoints=["127.0.0.1"]).settings()
    found = detect(parsed(service("prometheus", labels={"app": "prometheus"}, ports=[port])), settings)
    result = await Prober(resolver=Here).probe(found.candidate, timeout=30, attempts=1, strict=True)
    assert result.outcome is ProbeOutcome.REFUSED
