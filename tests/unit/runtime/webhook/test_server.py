"""The admission server: one bad request, hook or certificate hurts nobody else."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import ssl
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from steersman.certificates import Authority, Signed
from steersman.kube.api.objects import Resource
from steersman.runtime.http.server import ServerLimits
from steersman.runtime.manager.manager import Manager
from steersman.runtime.webhook.admission import AdmissionRequest, validate
from steersman.runtime.webhook.cert_watcher import CHECK_SECONDS
from steersman.runtime.webhook.server import WebhookServer


class Thing(Resource, group="example.org", version="v1"):
    pass


REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {"uid": "1", "object": {"metadata": {"name": "a"}}},
}
SERIES = "controller_runtime_webhook"


class Given:
    """Certificates as the test hands them out."""

    def __init__(self, *given: Signed | Exception) -> None:
        self.given = list(given)

    async def load(self) -> Signed | None:
        answer = self.given.pop(0) if self.given else None
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("test")


@pytest.fixture
async def serve(authority, clock):
    tasks = []

    async def start(*hooks: Any, certificates: Any = None, **options: Any) -> Any:
        source = certificates or Given(authority.server("127.0.0.1"))
        server = WebhookServer(hooks, source, host="127.0.0.1", port=0, clock=clock, **options)
        tasks.append(asyncio.create_task(server.run()))
        await server.serving.wait()

        async def ask(path: str, body: Any = REVIEW) -> tuple[int, str]:
            trust = ssl.create_default_context(cadata=authority.pem.decode())
            url = f"https://127.0.0.1:{server.port}{path}"
            async with aiohttp.ClientSession() as session, session.post(url, data=json.dumps(body), ssl=trust) as got:
                return got.status, await got.text()

        return ask

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@validate(Thing)
async def fine(request: AdmissionRequest[Thing]) -> None: ...


@pytest.mark.parametrize(
    "raised", [ValueError("a defect"), TimeoutError("a database"), RuntimeError("odd"), SystemExit("usage")], ids=repr
)
async def test_whatever_a_hook_raises_is_logged_counted_and_an_internal_error(serve, raised):
    @validate(Thing)
    async def broken(request: AdmissionRequest[Thing]) -> None:
        raise raised

    registry = CollectorRegistry()
    ask = await serve(broken, fine, registry=registry)
    with capture_logs() as lines:
        assert await ask(broken.path) == (500, "broken.things.example.org failed; its log says why")
    assert [(line["event"], line["webhook"]) for line in lines] == [("a webhook failed", broken.name)]
    assert str(raised) in lines[0]["traceback"]
    assert registry.get_sample_value(f"{SERIES}_panics_total") == 1
    assert registry.get_sample_value(f"{SERIES}_requests_total", {"webhook": broken.path, "code": "500"}) == 1
    assert (await ask(fine.path))[0] == 200


async def test_what_is_not_a_review_is_the_callers_fault(serve):
    registry = CollectorRegistry()
    ask = await serve(fine, registry=registry)
    assert (await ask(fine.path, {}))[0] == 400
    assert registry.get_sample_value(f"{SERIES}_panics_total") == 0


async def test_a_hook_that_does_not_answer_in_time_is_cut_off(serve):
    @validate(Thing, timeout_seconds=0)
    async def slow(request: AdmissionRequest[Thing]) -> None:
        await asyncio.Event().wait()

    registry = CollectorRegistry()
    ask = await serve(slow, registry=registry)
    assert await ask(slow.path) == (504, "slow.things.example.org gave no answer in 0 s")
    assert registry.get_sample_value(f"{SERIES}_panics_total") == 0


async def test_two_servers_of_one_process_share_its_metrics(serve):
    registry = CollectorRegistry()
    for ask in [await serve(fine, registry=registry) for _ in range(2)]:
        await ask(fine.path)
    assert registry.get_sample_value(f"{SERIES}_requests_total", {"webhook": fine.path, "code": "200"}) == 2


async def test_a_certificate_that_cannot_be_used_leaves_the_one_in_use(serve, authority, clock):
    one, other = authority.server("127.0.0.1"), authority.server("127.0.0.1")
    half = Signed(certificate=other.certificate, key=one.key)
    ask = await serve(fine, certificates=Given(one, half, OSError("gone"), other), registry=CollectorRegistry())
    with capture_logs() as lines:
        for _ in range(3):
            await clock.advance(CHECK_SECONDS)
            assert (await ask(fine.path))[0] == 200
    assert [line["event"] for line in lines] == ["certificates could not be refreshed"] * 2


LIFE = dt.timedelta(days=2)


@pytest.fixture
def lasting(authority, clock):
    """A certificate that begins now and is never renewed."""
    now = dt.datetime.fromtimestamp(clock.time(), dt.UTC)
    return authority.server("127.0.0.1", now=now, life=LIFE)


async def test_a_certificate_that_is_not_renewed_is_reported_before_it_expires_and_fails_readiness_then(clock, lasting):
    registry = CollectorRegistry()
    server = WebhookServer(
        [fine], Given(lasting), host="127.0.0.1", port=0, clock=clock, registry=registry, limits=ServerLimits()
    )
    client = SimpleNamespace(guarded=lambda _guard: SimpleNamespace())
    manager = Manager(client, webhooks=server, registry=CollectorRegistry(), clock=clock)
    expires = registry.get_sample_value
    serving = asyncio.create_task(server.run())
    await server.serving.wait()

    async def probe(path: str) -> int:
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        url = f"https://127.0.0.1:{server.port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url, ssl=trust) as answer:
            return answer.status

    name = "steersman_webhook_certificate_expiration_timestamp_seconds"
    assert expires(name) == clock.time() + LIFE.total_seconds()
    with capture_logs() as lines:
        await clock.advance(LIFE.total_seconds() * 0.8)
        assert (manager.ready()["webhook certificate"], manager.warnings(), lines) == (None, [], [])
        await clock.advance(LIFE.total_seconds() * 0.1)
        assert manager.ready()["webhook certificate"] is None
        [warning] = manager.warnings()
        assert "has not been renewed" in warning
        assert {line["event"] for line in lines} == {"certificate not renewed"}
        assert await probe("/readyz") == 200
        await clock.advance(LIFE.total_seconds() * 0.1)
        assert "expired at" in str(manager.ready()["webhook certificate"])
        assert manager.warnings() == []
        assert (await probe("/readyz"), await probe("/healthz")) == (503, 200)
        await clock.advance(CHECK_SECONDS * 10)
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["certificate refused by clients"]
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
