from __future__ import annotations

import asyncio
import platform
import socket
from importlib.metadata import version

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from steersman.kube.api.errors import (
    BadRequest,
    BadResponse,
    ConnectionFailed,
    Forbidden,
    NotFound,
    RequestTimeout,
    ResponseTooLarge,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from steersman.kube.config.config import AuthInfo, Config
from steersman.kube.transport.retry import RetryPolicy
from steersman.kube.transport.transport import TransportOptions, keepalive_socket
from steersman.testing.clock import settle
from tests.support.wire_server import END, HANG_UP, STREAM, chunk, reply, reset

OK = reply(200, {"kind": "Thing"})


def status(code, reason="", message="no", **fields):
    return {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": message, **fields}


async def never(received, writer):
    await asyncio.Event().wait()
    return HANG_UP


@pytest.fixture
def unused_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class TestRequests:
    async def test_a_request_is_sent_as_given_and_the_answer_comes_back_whole(self, wire, transport):
        server = await wire(reply(201, b"made", kind="text/plain", X_Custom="1"))
        answer = await transport(server).request(
            "POST", "/api/v1/x", params={"a": "b c", "d": "é,="}, body=b"hello", headers={"Content-Type": "text/x"}
        )
        assert (answer.status, answer.body, answer.headers["X-Custom"]) == (201, b"made", "1")
        (request,) = server.requests
        assert (request.method, request.path, request.body) == ("POST", "/api/v1/x", b"hello")
        assert request.query == {"a": "b c", "d": "é,="}
        assert request.headers["content-type"] == "text/x"
        assert request.headers["accept"] == "application/json"
        assert request.headers["accept-encoding"] == "identity"

    async def test_a_prefix_in_the_server_is_kept(self, wire, transport):
        server = await wire(OK)
        await transport(f"{server.url}/k8s/clusters/c1").request("GET", "/version")
        assert server.requests[0].path == "/k8s/clusters/c1/version"

    async def test_the_user_agent_says_who_and_where(self, wire, transport):
        server = await wire(OK)
        await transport(server, user_agent="reload").request("GET", "/")
        agent = server.requests[0].headers["user-agent"]
        machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
        assert agent.startswith(f"steersman/{version('steersman')} ({platform.system().lower()}/{machine}) python/3.")
        assert agent.endswith(" reload")

    async def test_impersonation_repeats_the_group_header(self, wire, transport):
        server = await wire(OK)
        groups = (("Impersonate-User", "jane"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b"))
        config = Config(server=server.url, auth=AuthInfo(impersonate=groups))
        await transport(server, config=config).request("GET", "/")
        headers = server.requests[0].headers
        assert (headers["impersonate-user"], headers["impersonate-group"]) == ("jane", "a, b")

    async def test_connections_are_used_again(self, wire, transport):
        server = await wire(OK)
        link = transport(server)
        for _ in range(3):
            await link.request("GET", "/")
        assert (len(server.requests), server.connections) == (3, 1)

    async def test_requests_beyond_the_pool_wait_for_a_connection(self, wire, transport):
        release = asyncio.Event()

        async def answer(received, writer):
            await release.wait()
            return OK

        server = await wire(answer)
        link = transport(server, options=TransportOptions(pool_size=2))
        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(link.request("GET", "/"))
            await settle()
            release.set()
        assert (len(server.requests), server.connections) == (5, 2)

    async def test_streams_do_not_take_connections_from_requests(self, wire, transport):
        async def answer(received, writer):
            if received.path == "/stream":
                writer.write(STREAM)
                await asyncio.Event().wait()
            return OK

        server = await wire(answer)
        link = transport(server, options=TransportOptions(pool_size=1))
        async with link.stream("/stream"), link.stream("/stream"):
            assert (await link.request("GET", "/")).status == 200

    async def test_compression_is_asked_for_only_when_wanted(self, wire, transport):
        server = await wire(OK)
        await transport(server, options=TransportOptions(compression=True)).request("GET", "/")
        config = Config(server=server.url, disable_compression=True)
        await transport(server, config=config, options=TransportOptions(compression=True)).request("GET", "/")
        assert [request.headers["accept-encoding"] for request in server.requests] == ["gzip", "identity"]

    async def test_a_transport_can_be_used_again_after_close(self, wire, transport):
        link = transport(await wire(OK))
        await link.request("GET", "/")
        await link.close()
        assert (await link.request("GET", "/")).status == 200


class TestSockets:
    def test_every_socket_has_keepalive(self):
        sock = keepalive_socket((socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 1)))
        with sock:
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30

    async def test_the_transport_uses_these_sockets(self, wire, transport):
        server = await wire([STREAM + chunk(b"x\n")])
        async with transport(server).stream("/") as lines:
            sock = lines._coalescer._socket
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


class TestErrors:
    @pytest.mark.parametrize(
        ("answer", "kind", "message"),
        [
            (reply(404, status(404, "NotFound", 'pods "x" not found')), NotFound, 'pods "x" not found'),
            (reply(400, b"Client sent an HTTP request to an HTTPS server.\n", kind="text/plain"), BadRequest, "HTTPS"),
            (reply(403, b"<html>login</html>", kind="text/html"), Forbidden, "HTTP status 403: an HTML page"),
            (b"HTTP/1.1 400 X\r\nContent-Length: 6\r\n\r\nHTTPS?", BadRequest, "HTTP status 400: 'HTTPS\\?'"),
            (reply(500, b""), ServerError, "HTTP status 500: an empty answer"),
            (reply(502, b"{broken", kind="application/json"), ServerError, "7 bytes of application/json"),
        ],
    )
    async def test_a_refusal_becomes_the_error_it_stands_for_and_names_the_request(
        self, wire, transport, answer, kind, message
    ):
        server = await wire(answer)
        with pytest.raises(kind, match=message) as raised:
            await transport(server).request("GET", "/api/v1/pods", params={"limit": "5"}, retry=False)
        assert str(raised.value).endswith(f"(GET {server.url}/api/v1/pods?limit=5)")

    async def test_a_denied_request_says_which_rule_is_missing(self, wire, transport):
        message = 'pods is forbidden: User "u" cannot watch resource "pods" in API group "" at the cluster scope'
        server = await wire(reply(403, status(403, "Forbidden", message)))
        with pytest.raises(Forbidden) as raised:
            async with transport(server).stream("/api/v1/pods", params={"watch": "1"}):
                pass
        assert raised.value.rule.verbs == ("watch",)

    async def test_a_redirect_is_not_followed_and_says_where_it_leads(self, wire, transport):
        elsewhere = await wire(OK)
        server = await wire(reply(302, b"", Location=f"{elsewhere.url}/login?token=s3cr3t"))
        config = Config(server=server.url, auth=AuthInfo(token="t"), source="my.kubeconfig")
        with pytest.raises(BadResponse, match=f"redirects to {elsewhere.url}/login; .* my.kubeconfig") as raised:
            await transport(server, config=config).request("GET", "/api")
        assert "s3cr3t" not in str(raised.value)
        assert (len(server.requests), elsewhere.requests) == (1, [])

    async def test_a_server_that_is_not_there_is_named(self, transport, unused_port):
        url = f"http://127.0.0.1:{unused_port}"
        with pytest.raises(ConnectionFailed, match=f"cannot connect to {url}: Connection refused; .*test.kubeconfig"):
            await transport(url).request("GET", "/")

    async def test_a_host_that_has_no_address_is_named(self, transport):
        with pytest.raises(ConnectionFailed, match=r"cannot connect to http://nowhere.invalid:80: "):
            await transport("http://nowhere.invalid:80").request("GET", "/")

    async def test_a_server_that_speaks_another_protocol_is_named(self, wire, transport):
        server = await wire(b"SSH-2.0-OpenSSH_9.6\r\n")
        with pytest.raises(BadResponse, match=f"{server.url} does not speak HTTP"):
            await transport(server).request("GET", "/", retry=False)


class TestSizes:
    async def test_300_megabytes_are_not_read_into_memory(self, wire, transport):
        sent = 0

        async def flood(received, writer):
            nonlocal sent
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
            block = chunk(b" " * 2**20)
            for _ in range(300):
                writer.write(block)
                await writer.drain()
                sent += 2**20
            return END

        server = await wire(flood)
        with pytest.raises(ResponseTooLarge, match="larger than 4194304 bytes: ask for less") as raised:
            await transport(server, options=TransportOptions(max_response_bytes=4 * 2**20)).request("GET", "/big")
        assert not raised.value.retryable
        assert len(server.requests) == 1
        assert sent < 64 * 2**20  # what fits into the buffers on the way, not the whole

    async def test_an_announced_300_megabytes_are_refused_unread(self, wire, transport):
        server = await wire(b"HTTP/1.1 200 OK\r\nContent-Length: 314572800\r\n\r\n")
        with pytest.raises(ResponseTooLarge, match=r"larger than 67108864 bytes: .*\(GET .*/big\)$"):
            await transport(server).request("GET", "/big")

    async def test_a_cut_off_answer_is_an_error_that_says_so(self, wire, transport):
        async def cut(received, writer):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
            return HANG_UP

        server = await wire(cut)
        with pytest.raises(BadResponse, match=r"cut off before its end \(GET .*/x\)"):
            await transport(server).request("GET", "/x")
        assert len(server.requests) == RetryPolicy().attempts


class TestTimeouts:
    async def test_a_request_without_an_answer_ends_in_time(self, wire, transport, clock):
        server = await wire(never)
        task = asyncio.create_task(transport(server, clock=clock).request("GET", "/x", timeout=7, retry=False))
        await server.arrived.wait()
        await clock.advance(6.9)
        assert not task.done()
        await clock.advance(0.2)
        with pytest.raises(RequestTimeout, match=r"no complete answer within 7 seconds \(GET .*/x\)"):
            await task

    async def test_there_is_a_timeout_when_none_was_requested(self, wire, transport, clock):
        server = await wire(never)
        link = transport(server, clock=clock, options=TransportOptions(timeout=30))
        task = asyncio.create_task(link.request("POST", "/x"))
        await server.arrived.wait()
        await clock.advance(31)
        with pytest.raises(RequestTimeout, match="within 30 seconds"):
            await task
        assert len(server.requests) == 1  # a POST is not repeated

    async def test_an_answer_that_stops_in_the_middle_ends_in_time(self, wire, transport, clock):
        async def stall(received, writer):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
            return await never(received, writer)

        server = await wire(stall)
        task = asyncio.create_task(transport(server, clock=clock).request("GET", "/x", timeout=7, retry=False))
        await server.arrived.wait()
        await clock.advance(8)
        with pytest.raises(RequestTimeout):
            await task

    async def test_a_server_that_does_not_pick_up_ends_in_time(self, transport, unused_port):
        with socket.socket() as full, socket.socket() as first:
            full.bind(("127.0.0.1", unused_port))
            full.listen(0)
            first.connect(("127.0.0.1", unused_port))  # fills the queue of a server that never accepts
            options = TransportOptions(connect_timeout=0.05)
            link = transport(f"http://127.0.0.1:{unused_port}", options=options)
            with pytest.raises(ConnectionFailed, match=r"no connection to .* in time: is the address right"):
                await link.request("POST", "/", retry=False)

    async def test_a_cancelled_request_is_cancelled(self, wire, transport, clock):
        server = await wire(never)
        task = asyncio.create_task(transport(server, clock=clock).request("GET", "/x"))
        await server.arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def retry_after(code, value):
    return reply(code, status(code), Retry_After=value)


class TestRepeats:
    @pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
    async def test_a_get_is_repeated_until_the_server_is_well(self, wire, transport, hasty, code):
        server = await wire([reply(code, status(code)), reply(code, status(code)), OK])
        assert (await transport(server).request("GET", "/")).status == 200
        assert len(server.requests) == 3
        assert 0.1 <= hasty.slept[0] <= 0.2 <= hasty.slept[1] <= 0.4

    @pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
    async def test_a_write_that_may_have_been_processed_is_not_repeated(self, wire, transport, method):
        server = await wire([reply(503, status(503)), OK])
        with pytest.raises(Unavailable):
            await transport(server).request(method, "/", body=b"{}")
        assert len(server.requests) == 1

    @pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "GET"])
    async def test_what_the_server_turned_away_is_repeated(self, wire, transport, hasty, method):
        server = await wire([retry_after(429, "3"), OK])
        assert (await transport(server).request(method, "/", body=b"{}")).status == 200
        assert [request.body for request in server.requests] == [b"{}", b"{}"]
        assert 3.0 <= hasty.slept[0] <= 3.3

    async def test_retry_after_may_be_a_date(self, wire, transport, hasty):
        server = await wire([retry_after(503, "Thu, 01 Jan 2026 00:00:05 GMT"), OK])  # the clock starts at midnight
        await transport(server).request("GET", "/")
        assert 5.0 <= hasty.slept[0] <= 5.5

    async def test_a_request_for_much_patience_is_left_to_the_caller(self, wire, transport, hasty):
        server = await wire(retry_after(429, "3600"))
        with pytest.raises(TooManyRequests) as raised:
            await transport(server).request("GET", "/")
        assert (raised.value.retry_after, hasty.slept, len(server.requests)) == (3600.0, [], 1)

    async def test_it_gives_up_after_as_many_attempts_as_configured(self, wire, transport):
        server = await wire(reply(500, status(500)))
        options = TransportOptions(retry=RetryPolicy(attempts=3))
        with pytest.raises(ServerError):
            await transport(server, options=options).request("GET", "/")
        assert len(server.requests) == 3

    async def test_without_retry_there_is_one_attempt(self, wire, transport):
        server = await wire(retry_after(429, "1"))
        with pytest.raises(TooManyRequests):
            await transport(server).request("GET", "/", retry=False)
        assert len(server.requests) == 1

    async def test_a_get_whose_connection_is_reset_is_repeated_at_once(self, wire, transport, hasty):
        async def answer(received, writer):
            if len(server.requests) == 1:
                reset(writer)
                return HANG_UP
            return OK

        server = await wire(answer)
        assert (await transport(server).request("GET", "/")).status == 200
        assert hasty.slept == [0.0]

    @pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
    @pytest.mark.parametrize("fresh", [True, False], ids=["fresh connection", "reused connection"])
    async def test_a_write_whose_connection_broke_is_not_repeated(self, wire, transport, method, fresh):
        async def answer(received, writer):
            if received.path == "/":
                return OK
            reset(writer)
            return HANG_UP

        server = await wire(answer)
        link = transport(server)
        if not fresh:
            await link.request("GET", "/")
        with pytest.raises(ConnectionFailed, match="broke before the answer was complete"):
            await link.request(method, "/x", body=b"{}")
        assert [request.path for request in server.requests].count("/x") == 1

    async def test_a_write_that_never_reached_a_server_is_repeated(self, wire, transport, hasty, unused_port):
        started = []

        class Opening(type(hasty)):
            async def sleep(self, seconds):
                await super().sleep(seconds)
                if len(self.slept) == 2:
                    started.append(await wire(OK, port=unused_port))

        link = transport(f"http://127.0.0.1:{unused_port}", clock=Opening())
        assert (await link.request("POST", "/", body=b"{}")).status == 200
        assert len(started[0].requests) == 1


class TestStreams:
    async def lines(self, link, **options):
        async with link.stream("/watch", **options) as stream:
            return [line async for line in stream]

    async def test_lines_come_as_they_were_sent_and_a_clean_end_ends_them(self, wire, transport):
        server = await wire(STREAM + chunk(b"one\ntw") + chunk(b"o\n") + END)
        assert await self.lines(transport(server)) == [b"one", b"two"]

    async def test_an_event_of_1400_kilobytes_passes(self, wire, transport):
        event = b"x" * 1_400_000
        pieces = b"".join(chunk(event[start : start + 1400]) for start in range(0, len(event), 1400))
        server = await wire(STREAM + pieces + chunk(b"\nsmall\n") + END)
        assert [len(line) for line in await self.lines(transport(server))] == [1_400_000, 5]

    async def test_ten_thousand_events_in_a_flood_arrive_whole_and_in_order(self, wire, transport):
        events = [b'{"number":%d,"padding":"%s"}' % (number, b"x" * 300) for number in range(10_000)]
        server = await wire(STREAM + b"".join(chunk(event + b"\n") for event in events) + END)
        assert await self.lines(transport(server)) == events

    async def test_a_connection_that_carried_a_flood_carries_small_answers_afterwards(self, wire, transport):
        flood = b"".join(chunk(b"x" * 500 + b"\n") for _ in range(2000))

        async def answer(received, writer):
            if len(server.requests) > 1:
                return STREAM + chunk(b"small\n") + END
            for start in range(0, len(flood), 20_000):
                writer.write(flood[start : start + 20_000] if start else STREAM + flood[:20_000])
                await writer.drain()
                await asyncio.sleep(0)
            return END

        server = await wire(answer)
        link = transport(server)
        assert len(await self.lines(link)) == 2000
        assert await self.lines(link) == [b"small"]

    async def test_a_line_without_end_is_refused(self, wire, transport):
        server = await wire(STREAM + chunk(b"x" * 3000) + END)
        link = transport(server, options=TransportOptions(max_line_bytes=1000))
        with pytest.raises(BadResponse, match=r"not a stream of events: .* longer than 1000 bytes \(GET"):
            await self.lines(link)

    async def test_a_stream_that_ends_inside_a_line_is_broken(self, wire, transport):
        server = await wire(STREAM + chunk(b"one\ntw") + END)
        with pytest.raises(BadResponse, match="ended in the middle of a line"):
            await self.lines(transport(server))

    @pytest.mark.parametrize("how", ["hang up", "reset"])
    async def test_a_broken_connection_is_an_error_after_the_lines_that_came(self, wire, transport, how):
        async def answer(received, writer):
            writer.write(STREAM + chunk(b"one\n"))
            await proceed.wait()
            if how == "reset":
                reset(writer)
            return HANG_UP

        proceed = asyncio.Event()
        server = await wire(answer)
        seen = []

        async def read():
            async with transport(server).stream("/watch") as stream:
                async for line in stream:
                    seen.append(line)
                    proceed.set()

        with pytest.raises(ConnectionFailed, match="broke") as raised:
            await read()
        assert seen == [b"one"]
        assert raised.value.retryable

    async def test_silence_beyond_the_limit_is_taken_for_death(self, wire, transport, clock):
        async def answer(received, writer):
            writer.write(STREAM + chunk(b"one\n"))
            return await never(received, writer)

        server = await wire(answer)
        seen = asyncio.Event()

        async def read():
            async with transport(server, clock=clock).stream("/watch", idle_timeout=30) as stream:
                async for _ in stream:
                    seen.set()

        task = asyncio.create_task(read())
        await seen.wait()
        await clock.advance(29)
        assert not task.done()
        await clock.advance(2)
        with pytest.raises(RequestTimeout, match=r"received for 30 seconds: .*dead \(GET .*/watch\)") as raised:
            await task
        assert raised.value.retryable

    async def test_a_wait_that_is_cancelled_loses_nothing(self, wire, transport):
        async def answer(received, writer):
            writer.write(STREAM + chunk(b"on"))
            await proceed.wait()
            return chunk(b"e\ntwo\n") + END

        proceed = asyncio.Event()
        async with transport(await wire(answer)).stream("/watch") as stream:
            waiting = asyncio.ensure_future(anext(stream))
            await settle()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            proceed.set()
            assert [line async for line in stream] == [b"one", b"two"]

    async def test_a_stream_that_never_opens_ends_in_time(self, wire, transport, clock):
        server = await wire(never)
        task = asyncio.create_task(self.lines(transport(server, clock=clock), timeout=5))
        await server.arrived.wait()
        await clock.advance(6)
        with pytest.raises(RequestTimeout):
            await task

    async def test_opening_is_not_repeated_because_the_reader_has_its_own_policy(self, wire, transport, hasty):
        server = await wire(retry_after(429, "1"))
        with pytest.raises(TooManyRequests) as raised:
            await self.lines(transport(server))
        assert (raised.value.retry_after, len(server.requests), hasty.slept) == (1.0, 1, [])


class TestMetrics:
    async def test_requests_are_counted_and_measured_under_client_gos_names(self, wire, transport, registry):
        server = await wire([reply(503, status(503)), OK])
        await transport(server).request("GET", "/", body=b"12345")
        host = f"127.0.0.1:{server.port}"

        def value(name, **labels):
            return registry.get_sample_value(name, {**labels, "host": host})

        assert value("rest_client_requests_total", code="503", method="GET") == 1
        assert value("rest_client_requests_total", code="200", method="GET") == 1
        assert value("rest_client_request_retries_total", code="503", verb="GET") == 1
        assert value("rest_client_request_duration_seconds_count", verb="GET") == 2
        assert value("rest_client_request_size_bytes_sum", verb="GET") == 10
        assert value("rest_client_response_size_bytes_sum", verb="GET") == len(b'{"kind":"Thing"}')

    async def test_a_request_without_an_answer_is_counted_as_an_error(self, wire, transport, registry):
        server = await wire(HANG_UP)
        with pytest.raises(ConnectionFailed):
            await transport(server).request("POST", "/")
        labels = {"code": "<error>", "method": "POST", "host": f"127.0.0.1:{server.port}"}
        assert registry.get_sample_value("rest_client_requests_total", labels) == 1


class TestTracing:
    async def test_an_active_span_travels_with_the_request(self, wire, transport):
        server = await wire(OK)
        tracer = TracerProvider().get_tracer("test")
        with tracer.start_as_current_span("reconcile") as span:
            await transport(server).request("GET", "/")
        context = span.get_span_context()
        expected = f"00-{trace.format_trace_id(context.trace_id)}-{trace.format_span_id(context.span_id)}-"
        assert server.requests[0].headers["traceparent"].startswith(expected)

    async def test_without_a_span_there_is_no_header(self, wire, transport):
        server = await wire(OK)
        await transport(server).request("GET", "/")
        assert "traceparent" not in server.requests[0].headers


class TestCredentials:
    async def test_a_refused_token_is_read_again_and_sent_once_more(self, wire, transport, tmp_path):
        async def answer(received, writer):
            if received.headers["authorization"] == "Bearer new":
                return OK
            (tmp_path / "token").write_text("new")
            return reply(401, status(401, "Unauthorized", "Unauthorized"))

        (tmp_path / "token").write_text("old")
        server = await wire(answer)
        config = Config(server=server.url, auth=AuthInfo(token_file=tmp_path / "token"))
        answered = await transport(server, config=config).request("POST", "/", body=b"{}")
        assert answered.status == 200
        assert [r.headers["authorization"] for r in server.requests] == ["Bearer old", "Bearer new"]

    async def test_a_stream_renews_its_token_too(self, wire, transport, tmp_path):
        async def answer(received, writer):
            if received.headers["authorization"] == "Bearer new":
                return STREAM + chunk(b"x\n") + END
            (tmp_path / "token").write_text("new")
            return reply(401, status(401))

        (tmp_path / "token").write_text("old")
        server = await wire(answer)
        config = Config(server=server.url, auth=AuthInfo(token_file=tmp_path / "token"))
        async with transport(server, config=config).stream("/") as lines:
            assert [line async for line in lines] == [b"x"]

    async def test_it_is_one_repeat_and_not_a_loop(self, wire, transport, tmp_path):
        (tmp_path / "token").write_text("old")
        server = await wire(reply(401, status(401, "Unauthorized", "Unauthorized")))
        config = Config(server=server.url, auth=AuthInfo(token_file=tmp_path / "token"), source="my.kubeconfig")
        with pytest.raises(Unauthorized, match=r"check that it is still being renewed \(my.kubeconfig\)"):
            await transport(server, config=config).request("GET", "/")
        assert len(server.requests) == 2

    async def test_a_fixed_token_is_not_tried_twice(self, wire, transport):
        server = await wire(reply(401, status(401)))
        config = Config(server=server.url, auth=AuthInfo(token="x"))
        with pytest.raises(Unauthorized):
            await transport(server, config=config).request("GET", "/")
        assert len(server.requests) == 1
