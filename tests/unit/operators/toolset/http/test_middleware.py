"""How requests to the API are received, over loopback."""

from __future__ import annotations

import asyncio

import aiohttp
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from steersman.kube.api.types.authorization import SubjectAccessReview, TokenReview, TokenReviewStatus, UserInfo
from steersman.operators.toolset.http.middleware import BODY_LIMIT, BURST, ApiMiddleware
from steersman.operators.toolset.reconcile.metrics import ToolsetMetrics
from steersman.runtime.http.server import HttpServer
from steersman.testing import eventually


class Body(msgspec.Struct):
    text: str = ""


class Cluster:
    """Knows users by their tokens, which are their names."""

    def __init__(self) -> None:
        self.asked = 0

    def with_options(self, **_options: object) -> Cluster:
        return self

    async def create(self, review):
        self.asked += 1
        if isinstance(review, TokenReview):
            name = review.spec.token
            known = not name.startswith("wrong")
            user = UserInfo(username=name) if known else None
            return TokenReview(status=TokenReviewStatus(authenticated=known, user=user))
        answer = SubjectAccessReview(spec=review.spec)
        answer.status.allowed = True
        return answer


@pytest.fixture
async def api(clock):
    """The address of an API that counts its callers, and the cluster it asks."""
    cluster = Cluster()
    middleware = ApiMiddleware(
        cluster, ToolsetMetrics(CollectorRegistry()), authenticate=True, namespace="ai", clock=clock
    )

    async def length(_request, body):
        return 200, {"length": len(body.text)}

    async def ok(_request, _body):
        return 200, {}

    routes = [
        middleware.route("/length", {"POST": (length, Body)}),
        middleware.route("/things", {"GET": (ok, None)}),
        middleware.route("/public", {"GET": (ok, None)}, public=True),
        middleware.route("/health", {"GET": (ok, None)}, probe=True),
    ]
    server = HttpServer("127.0.0.1", 0, routes=routes, clock=clock)
    await server.start()
    yield server, cluster
    await server.stop()


async def ask(server, path="/things", token="") -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession(headers=headers) as session:
        url = f"http://127.0.0.1:{server.port}{path}"
        async with session.get(url) as answer:
            return answer.status


async def test_a_body_that_comes_in_several_pieces_is_read_to_its_end(api):
    server, _ = api
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    head = "POST /length HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ann\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Connection: close\r\nContent-Length: 17\r\n\r\n".encode() + b'{"text":')
    await eventually(lambda: server.serving == 1)
    writer.write(b' "12345"}')
    answer = (await reader.read()).decode()
    writer.close()
    assert "200 OK" in answer
    assert '{"length":5}' in answer


async def test_a_body_that_is_too_large_is_refused_wherever_it_says_so(api):
    server, _ = api

    async def pieces():
        for _ in range(BODY_LIMIT // 4096 + 2):
            yield b"x" * 4096

    url, headers = f"http://127.0.0.1:{server.port}/length", {"Authorization": "Bearer ann"}
    headers["Content-Type"] = "application/json"
    async with aiohttp.ClientSession(headers=headers) as session, session.post(url, data=pieces()) as answer:
        assert (answer.status, answer.content_type) == (413, "application/problem+json")


async def test_strangers_use_up_nothing_that_known_callers_need(api):
    server, cluster = api
    statuses = {await ask(server, token=f"wrong-{number}") for number in range(BURST + 50)}
    assert statuses == {401, 429}
    assert {await ask(server) for _ in range(BURST + 1)} == {401}
    assert cluster.asked < 50
    assert await ask(server, "/health") == 200


async def test_every_caller_is_counted_apart_and_probes_are_not_counted(api, clock):
    server, _ = api
    ann = [await ask(server, token="ann") for _ in range(BURST + 1)]
    assert ann == [200] * BURST + [429]
    assert await ask(server, token="bob") == 200
    assert [await ask(server, "/public") for _ in range(BURST + 1)][-2:] == [200, 429]
    assert {await ask(server, "/health") for _ in range(BURST + 1)} == {200}
    await clock.advance(1)
    assert await ask(server, token="ann") == 200


async def test_a_known_caller_at_the_same_address_as_a_flood_of_strangers_is_let_in(api):
    server, _ = api
    assert await ask(server, token="ann") == 200
    for number in range(100):
        await ask(server, token=f"wrong-{number}")
    assert await ask(server, token="ann") == 200
