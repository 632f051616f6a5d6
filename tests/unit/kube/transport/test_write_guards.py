"""A guarded client: what counts as a write, how it becomes a dry run, and when the guard is asked."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from steersman.errors import SteersmanError
from steersman.kube.api.errors import TooManyRequests
from steersman.kube.api.types.core import ConfigMap
from steersman.kube.transport.transport import TransportOptions
from steersman.kube.transport.write_requests import WriteRequest, dry_run_of, is_write
from steersman.testing.clock import settle
from tests.support.wire_server import reply

POD = "/api/v1/namespaces/shop/pods/web-0"
BUSY = reply(429, {"kind": "Status", "code": 429, "message": "busy"}, Retry_After="3")
DONE = reply(200, {"kind": "Status", "status": "Success"})


class Closed(SteersmanError):  # noqa: N818  a state
    pass


class Guard:
    """Open until the test closes it; keeps what it was asked."""

    def __init__(self, closes_after: int = 99) -> None:
        self.closes_after = closes_after
        self.asked: list[str] = []

    def prepare(self, write: WriteRequest) -> WriteRequest:
        return write

    def admit(self, write: WriteRequest) -> None:
        self.asked.append(f"{write.method} {write.path}")
        if len(self.asked) > self.closes_after:
            raise Closed("not now")


async def removed(client) -> None:
    await client.delete(ConfigMap, "app")


class TestWhatIsAWrite:
    @pytest.mark.parametrize(
        "path",
        [
            "/apis/authentication.k8s.io/v1/tokenreviews",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            "/apis/authorization.k8s.io/v1/subjectaccessreviews?pretty=true",
            "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
            "/apis/authorization.k8s.io/v1/namespaces/shop/localsubjectaccessreviews",
        ],
    )
    def test_a_review_is_a_question_although_it_is_posted(self, path):
        assert not is_write("POST", path)

    @pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
    def test_everything_else_that_is_not_a_get_is_a_write(self, method):
        assert is_write(method, "/apis/example.org/v1/namespaces/shop/bookreviews")
        assert not is_write("GET", "/api/v1/pods")


class TestDryRuns:
    def test_a_parameter_says_it_and_what_the_caller_asked_for_stays(self):
        write = WriteRequest("PATCH", "/api/v1/nodes/a", {"fieldManager": "me"}, b"{}")
        assert dry_run_of(write) == write._replace(params={"fieldManager": "me", "dryRun": "All"})

    @pytest.mark.parametrize("path", ["/api/v1/pods?dryRun=", "/api/v1/pods?dryRun=None#x", "/api/v1/pods#x?y"])
    def test_nothing_in_a_path_hides_it(self, path):
        assert dry_run_of(WriteRequest("POST", path, {}, b"{}"))[1:3] == ("/api/v1/pods", {"dryRun": "All"})

    def test_a_delete_with_options_says_it_there_because_servers_read_nothing_else_then(self):
        pretended = dry_run_of(WriteRequest("DELETE", "/api/v1/nodes/a", {}, b'{"gracePeriodSeconds":0,"dryRun":[]}'))
        assert msgspec.json.decode(pretended.body) == {"gracePeriodSeconds": 0, "dryRun": ["All"]}
        assert dry_run_of(WriteRequest("DELETE", "/api/v1/nodes/a", {}, None)).params == {"dryRun": "All"}

    @pytest.mark.parametrize("what", ["serviceaccounts/a/token", "pods/a/exec", "pods/a/attach", "services/a/proxy/x"])
    def test_what_acts_when_it_is_asked_for_has_none(self, what):
        assert dry_run_of(WriteRequest("POST", f"/api/v1/namespaces/shop/{what}", {}, b"{}")) is None


class TestAsking:
    async def test_reads_and_reviews_pass_unasked(self, wire, client):
        server, guard = await wire(reply(200, {"items": [], "status": {"allowed": True}})), Guard(closes_after=0)
        guarded = client(server).guarded(guard)
        await guarded.list(ConfigMap)
        assert await guarded.can_i("get", ConfigMap)
        assert guard.asked == []

    async def test_a_repeated_write_asks_again_before_every_attempt(self, wire, client):
        server, guard = await wire([BUSY, BUSY, DONE]), Guard(closes_after=2)
        with pytest.raises(Closed):
            await removed(client(server).guarded(guard))
        assert len(guard.asked) == 3
        assert len(server.requests) == 2, "the third attempt is not sent"

    async def test_the_guard_is_asked_when_the_connection_is_there_not_when_the_wait_for_it_began(self, wire, client):
        """A write that waited for a free connection while the process was stopped is not sent."""
        going = asyncio.Event()

        async def slow(_received, _writer):
            await going.wait()
            return DONE

        server, guard = await wire(slow), Guard()
        raw = client(server, options=TransportOptions(pool_size=1))
        first = asyncio.create_task(removed(raw))
        await settle()
        waiting = asyncio.create_task(removed(raw.guarded(guard)))
        await settle()
        assert guard.asked == []
        guard.closes_after = 0
        going.set()
        await first
        with pytest.raises(Closed):
            await waiting
        assert len(server.requests) == 1

    async def test_a_connection_is_fit_for_use_after_a_refusal(self, wire, client):
        server, guard = await wire(DONE), Guard(closes_after=0)
        raw = client(server, options=TransportOptions(pool_size=1))
        with pytest.raises(Closed):
            await removed(raw.guarded(guard))
        await removed(raw)
        assert len(server.requests) == 1

    async def test_a_second_guard_does_not_replace_the_first(self, wire, client):
        server, first, second = await wire(DONE), Guard(closes_after=0), Guard()
        with pytest.raises(Closed):
            await removed(client(server).guarded(first).guarded(second).with_options(retry=False))
        assert server.requests == []

    async def test_one_that_is_not_guarded_stays_as_it_is(self, wire, client):
        server = await wire([BUSY, DONE])
        raw = client(server)
        raw.guarded(Guard(closes_after=0))
        with pytest.raises(TooManyRequests):
            await removed(raw.with_options(retry=False))
        await removed(raw)
        assert len(server.requests) == 2


@pytest.mark.parametrize("part", ["exec?command=ls", "attach", "portforward?ports=80"])
def test_a_connection_into_a_pod_is_a_write_whichever_method_opens_it(part):
    for method in ("GET", "POST"):
        assert is_write(method, f"{POD}/{part}")
        assert dry_run_of(WriteRequest(method, f"{POD}/{part}", {}, None)) is None
    assert not is_write("GET", f"{POD}/log")


@pytest.mark.parametrize(
    "path",
    [
        "/apis/subresources.example.org/v1/namespaces/shop/machines/web/stop",
        "/apis/subresources.example.org/v1/machines/web/stop",
    ],
)
def test_a_command_to_an_aggregated_api_server_has_no_dry_run(path):
    assert dry_run_of(WriteRequest("POST", path, {}, b"{}")) is None


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/apis/apps/v1/namespaces/shop/deployments"),
        ("POST", "/apis/example.org/v1/apps"),
        ("POST", f"{POD}/eviction"),
        ("PATCH", "/apis/apps/v1/namespaces/shop/deployments/web/status"),
        ("PUT", "/apis/certificates.k8s.io/v1/certificatesigningrequests/web/approval"),
        ("DELETE", "/apis/apps/v1/namespaces/shop/deployments"),
    ],
)
def test_every_other_write_is_sent_as_a_dry_run(method, path):
    made = dry_run_of(WriteRequest(method, path, {}, None))
    assert made is not None
    assert made.params == {"dryRun": "All"}
