from __future__ import annotations

import asyncio
import threading

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily

from steersman.errors import ConfigError
from steersman.runtime.manager.loop_watchdog import LoopLag
from steersman.runtime.observability.health import HealthServer, parse_address
from steersman.runtime.webhook.cert_watcher import CertWatcher
from steersman.runtime.webhook.certificate_source import MountedCertificates
from steersman.testing import eventually


@pytest.fixture
async def serve():
    started = []

    async def start(**options):
        server = HealthServer(
            options.pop("listen", "127.0.0.1:0"),
            alive=options.pop("alive", lambda: {"loop": None}),
            ready=options.pop("ready", dict),
            registry=options.pop("registry", CollectorRegistry()),
            **options,
        )
        await server.start()
        started.append(server)
        return f"http://127.0.0.1:{server.port}"

    yield start
    for server in started:
        await server.stop()


async def get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def test_healthy_means_ok(serve):
    url = await serve()
    for path in ("/livez", "/healthz", "/readyz"):
        assert await get(url + path) == (200, "ok")


class SlowToWrite:
    """A value that takes until `released` to be written."""

    def __init__(self):
        self.began, self.released, self.in_time = threading.Event(), threading.Event(), None

    def __float__(self):
        self.began.set()
        self.in_time = self.released.wait(timeout=20)
        return 1.0


async def test_a_health_probe_does_not_wait_for_a_slow_scrape(serve):
    registry, slow = CollectorRegistry(), SlowToWrite()

    class Collector:
        def collect(self):
            yield GaugeMetricFamily("large", "Takes long.", value=slow)

    registry.register(Collector())
    url = await serve(registry=registry)
    scrape = asyncio.create_task(get(f"{url}/metrics"))
    await eventually(slow.began.is_set, "the scrape has begun")
    for path in ("/livez", "/healthz", "/readyz"):
        assert await get(url + path) == (200, "ok")
    slow.released.set()
    assert await scrape == (200, "# HELP large Takes long.\n# TYPE large gauge\nlarge 1.0\n")
    assert slow.in_time


async def test_a_failed_check_is_named_with_its_reason_and_can_be_left_out(serve):
    url = await serve(ready=lambda: {"source pods": None, "source secrets": "not allowed"})
    status, text = await get(f"{url}/readyz")
    assert status == 503
    assert text == "[+]source pods ok\n[-]source secrets failed: not allowed\nreadyz check failed\n"
    assert (await get(f"{url}/readyz?exclude=source%20secrets"))[0] == 200
    assert (await get(f"{url}/livez"))[0] == 200


async def test_verbose_names_what_is_well_too(serve):
    url = await serve(ready=lambda: {"source pods": None})
    assert await get(f"{url}/readyz?verbose") == (200, "[+]source pods ok\nreadyz check passed\n")


async def test_verbose_says_how_far_every_source_has_come(serve):
    url = await serve(
        ready=lambda: {"source pods": None, "source secrets": "not allowed"},
        details=lambda: {"source pods": "3 objects, revision 7, last event 2 s ago", "source secrets": "0 objects"},
    )
    status, text = await get(f"{url}/readyz?verbose")
    assert status == 503
    assert text.splitlines()[:2] == [
        "[+]source pods ok (3 objects, revision 7, last event 2 s ago)",
        "[-]source secrets failed: not allowed",
    ]


async def test_a_source_of_which_nothing_is_known_is_not_shown_as_well(serve):
    url = await serve(
        ready=lambda: {"source pods": None, "source policies": None},
        details=lambda: {"source pods": "3 objects", "source policies": "0 objects"},
        unknown=lambda: {"source policies": "forbidden"},
    )
    expected = "[+]source pods ok (3 objects)\n[!]source policies unknown: forbidden\nreadyz check passed\n"
    assert await get(f"{url}/readyz?verbose") == (200, expected)
    assert await get(f"{url}/readyz") == (200, "ok")


async def test_a_warning_is_shown_to_who_asks_and_fails_nothing(serve):
    url = await serve(ready=lambda: {"source pods": None}, warnings=lambda: ["controller app: shop/a hangs"])
    assert await get(f"{url}/readyz") == (200, "ok")
    expected = "[+]source pods ok\n[!]controller app: shop/a hangs\nreadyz check passed\n"
    assert await get(f"{url}/readyz?verbose") == (200, expected)
    assert "hangs" not in (await get(f"{url}/livez?verbose"))[1]


async def test_routes_can_be_added_until_it_starts(serve):
    async def page(request: web.Request) -> web.Response:
        return web.Response(text=request.path)

    server = HealthServer("127.0.0.1:0", alive=dict, ready=dict, registry=CollectorRegistry())
    server.add_routes([web.get("/api/one", page)])
    server.add_routes([web.get("/api/two", page), web.get("/livez", page)])
    await server.start()
    try:
        url = f"http://127.0.0.1:{server.port}"
        assert [await get(url + path) for path in ("/api/one", "/api/two")] == [(200, "/api/one"), (200, "/api/two")]
        assert await get(f"{url}/livez") == (200, "/livez")  # others' word stands
        assert (await get(f"{url}/readyz"))[0] == 200
    finally:
        await server.stop()


async def test_metrics_come_from_the_registry_that_was_handed_in(serve):
    registry = CollectorRegistry()
    Counter("mine", "A counter.", registry=registry).inc(3)
    url = await serve(registry=registry)
    status, text = await get(f"{url}/metrics")
    assert status == 200
    assert "mine_total 3.0" in text


async def test_debug_pages_answer_callers_on_this_machine_as_json(serve):
    url = await serve(queues=lambda: [{"name": "app"}], caches=lambda: [{"name": "pods"}])
    assert await get(f"{url}/debug/queue") == (200, '[{"name":"app"}]')
    assert await get(f"{url}/debug/caches") == (200, '[{"name":"pods"}]')


async def test_debug_pages_do_not_exist_for_callers_from_elsewhere(serve, monkeypatch):
    monkeypatch.setattr("ipaddress.IPv4Address.is_loopback", False)
    url = await serve(queues=lambda: [{"name": "app"}])
    assert (await get(f"{url}/debug/queue"))[0] == 404
    assert (await get(f"{url}/livez"))[0] == 200


@pytest.mark.parametrize(
    ("host", "status"), [("attacker.example", 404), ("attacker.example:80", 404), ("[::1]:9", 200)]
)
async def test_debug_pages_do_not_exist_under_a_name_that_is_not_local(serve, host, status):
    url = await serve()
    async with aiohttp.ClientSession() as session:
        for path in ("/debug/queue", "/debug/caches"):
            async with session.get(url + path, headers={"Host": host}) as answer:
                assert answer.status == status


async def test_others_may_add_routes(serve):
    async def page(request: web.Request) -> web.Response:
        return web.Response(text="hello")

    url = await serve(routes=[web.get("/", page)])
    assert await get(url) == (200, "hello")


async def test_an_address_that_is_taken_is_reported_so(serve):
    url = await serve()
    with pytest.raises(ConfigError, match=r"cannot listen on 127\.0\.0\.1"):
        await serve(listen=url.removeprefix("http://"))


@pytest.mark.parametrize("text", ["8080x", "localhost", "1.2.3.4:70000", ""])
def test_an_address_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match="is not an address and a port"):
        parse_address(text)


def test_addresses_may_leave_out_the_host():
    assert parse_address(":8080") == ("0.0.0.0", 8080)


@pytest.mark.parametrize(
    ("certificate", "why"), [(None, "cannot read the serving certificate"), (b"x", "not a certificate and its key")]
)
async def test_a_certificate_that_cannot_be_used_is_named_before_it_listens(serve, tmp_path, certificate, why):
    if certificate is not None:
        for name in ("tls.crt", "tls.key"):
            (tmp_path / name).write_bytes(certificate)
    with pytest.raises(ConfigError, match=why):
        await serve(certificates=CertWatcher(MountedCertificates(tmp_path)))


class StutteringClock:
    """Sleeps that take longer than asked: as long as the script says, then for ever."""

    def __init__(self, *sleeps: float) -> None:
        self.now = 1000.0
        self.sleeps = list(sleeps)

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        if not self.sleeps:
            raise StopAsyncIteration
        self.now += self.sleeps.pop(0)


@pytest.mark.parametrize(
    ("sleeps", "late"),
    [([0.5] * 10, 0.0), ([0.5, 8.5, 0.5], 8.0), ([8.5, *[0.5] * 80], 0.0), ([0.9] * 5, 0.4)],
)
async def test_the_longest_delay_of_the_last_half_minute_counts(sleeps, late):
    clock = StutteringClock(*sleeps)
    lag = LoopLag(clock=clock)
    with pytest.raises(StopAsyncIteration):
        await lag.run()
    assert lag.seconds() == pytest.approx(late if late > 0.5 else 0.0, abs=0.01)
    assert (lag.problem() is not None) is (late > 5)


async def test_a_loop_that_is_blocked_right_now_is_late_already(clock):
    lag = LoopLag(clock=clock)
    await clock.advance(8.5)  # and nobody beats
    assert lag.problem() == "the event loop was 8.0 s late: something blocks it"
