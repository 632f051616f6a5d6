"""The REST API: its description is true of it, whoever sends whatever."""

from __future__ import annotations

import asyncio

import aiohttp
import hypothesis
import pytest

from steersman.kube.api.types import ConfigMap
from steersman.operators.toolset.api.config import ApiConfig, HealthConfig, ToolsetSection
from steersman.testing import eventually
from tests.support.toolset.services import running_toolset, service

pytestmark = pytest.mark.timeout(600)
NAME = "kubernaut-toolset-config"


def section(namespace, **api):
    return ToolsetSection(
        namespace=namespace,
        namespaces=[namespace],
        health_check=HealthConfig(enabled=False),
        api=ApiConfig(**api),
    )


@pytest.fixture
async def served(embedded, client, namespace):
    """URL and token of an API that allows writes."""
    await client.create(service("prometheus", namespace=namespace, labels={"app": "prometheus"}, ports=[9090]))
    async with running_toolset(client, section(namespace, writes=True), listen="127.0.0.1:0") as manager:
        await eventually(lambda: client.get(ConfigMap, NAME, namespace=namespace), timeout=90)
        url = f"http://127.0.0.1:{manager.health.port}"
        await eventually(lambda: _answers(url), timeout=90)
        yield url, embedded.token


async def _answers(url):
    async with aiohttp.ClientSession() as session, session.get(f"{url}/ready") as answer:
        return answer.status == 200


@pytest.mark.slow
async def test_the_description_is_true_of_every_request_that_fits_it_and_of_many_that_do_not(served):
    import schemathesis  # takes a second to import

    url, token = served
    async with aiohttp.ClientSession() as session, session.get(f"{url}/api/toolset/openapi.json") as answer:
        document = await answer.json()
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=url, rate_limit="60/s")  # below the API's own limit, which answers before it looks
    asked = 0

    def fuzz():
        nonlocal asked
        for result in schema.get_all_operations():
            operation = result.ok()

            @hypothesis.given(case=operation.as_strategy())
            @hypothesis.settings(
                max_examples=15,
                deadline=None,
                database=None,
                suppress_health_check=list(hypothesis.HealthCheck),
            )
            def check(case):
                nonlocal asked
                asked += 1
                case.call_and_validate(headers={"Authorization": f"Bearer {token}"}, timeout=60)

            check()

    await asyncio.to_thread(fuzz)
    assert asked > 50


async def test_answers_come_in_the_documented_form(served):
    url, token = served
    headers = {"Authorization": f"Bearer {token}", "X-Request-ID": "abc-1"}
    async with aiohttp.ClientSession(headers=headers) as session:

        async def get(path):
            async with session.get(f"{url}{path}") as answer:
                assert answer.headers["X-Request-ID"] == "abc-1"
                return answer.status, answer.content_type, await answer.json(content_type=None)

        status, _, toolsets = await get("/api/v1/toolsets")
        assert status == 200
        assert [one["type"] for one in toolsets["toolsets"]] == ["kubernetes", "prometheus"]
        assert toolsets["total"] == 2
        assert (await get("/api/v1/toolsets?enabled=false"))[2]["total"] == 0
        assert (await get("/api/v1/toolsets/prometheus"))[2]["type"] == "prometheus"
        assert (await get("/api/v1/services?type=grafana"))[2]["total"] == 0
        assert (await get("/api/v1/toolset"))[2]["tools"][0]["type"] == "prometheus"
        for path, expected in (("/api/v1/toolsets?enabled=maybe", 400), ("/api/v1/toolsets/nobody", 404)):
            status, kind, problem = await get(path)
            assert (status, kind, problem["status"]) == (expected, "application/problem+json", expected)
            assert problem["request_id"] == "abc-1"
            assert problem["type"].startswith("https://kubernaut.io/errors/")
        async with session.delete(f"{url}/api/v1/toolsets") as answer:
            assert (answer.status, answer.headers["Allow"]) == (405, "GET")
        path = f"{url}/api/v1/toolsets/validate"
        for media, expected in (("text/plain", 415), ("nonsense", 400), ("application/json; charset=utf-8", 200)):
            async with session.post(path, data=b'{"tools": []}', headers={"Content-Type": media}) as answer:
                assert answer.status == expected, media
        async with session.post(path, json={"tools": [{"type": "x", "endpoint": "http://u:p@h"}]}) as answer:
            value = await answer.json()
        assert [error["field"] for error in value["errors"]] == ["tools[0].name", "tools[0].endpoint"]


async def test_writes_are_off_by_default_and_reading_needs_a_token(embedded, client, namespace):
    async with running_toolset(client, section(namespace), listen="127.0.0.1:0") as manager:
        await eventually(lambda: manager.health.port is not None, timeout=90)
        url = f"http://127.0.0.1:{manager.health.port}"
        async with aiohttp.ClientSession() as session:
            for token, expected in ((None, 401), ("nonsense", 401), (embedded.token, 403)):
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                async with session.post(f"{url}/api/v1/discover", json={}, headers=headers) as answer:
                    assert answer.status == expected
            for path in ("/health", "/api/toolset/openapi.json"):
                async with session.get(f"{url}{path}") as answer:
                    assert answer.status == 200
