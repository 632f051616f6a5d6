"""The server of every listener, over loopback, with time that the test moves."""

from __future__ import annotations

import asyncio
import ssl

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from steersman.certificates import Authority, load_pair
from steersman.errors import ConfigError
from steersman.runtime.http.server import HttpServer, ServerLimits
from steersman.testing import eventually

LIMITS = ServerLimits(connections=16, per_peer=8, body_bytes=1000)
HALF = b"GET / HTTP/1.1\r\nHost: x\r\nX-Half"


async def hello(_request: web.Request) -> web.Response:
    return web.Response(text="hello")


async def size(request: web.Request) -> web.Response:
    return web.Response(text=str(len(await request.read())))


async def broken(_request: web.Request) -> web.Response:
    raise ValueError("a defect")


class Client:
    """A connection, byte by byte."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Client:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.writer.transport.abort()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> str:
        """The status line and the headers of the next answer."""
        return (await self.reader.readuntil(b"\r\n\r\n")).decode()

    async def closed(self) -> bool:
        """Wait until the server has closed it."""
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True


@pytest.fixture
async def serve(clock):
    started = []

    async def start(*routes: web.AbstractRouteDef, limits: ServerLimits = LIMITS, **options: object) -> HttpServer:
        server = HttpServer(
            "127.0.0.1",
            0,
            routes=[web.get("/", hello), web.post("/size", size), web.get("/livez", hello), *routes],
            probes=["/livez"],
            limits=limits,
            clock=clock,
            **options,
        )
        await server.start()
        started.append(server)
        return server

    yield start
    for server in started:
        await server.stop()


async def get(server: HttpServer, path: str = "/") -> int:
    url = f"http://127.0.0.1:{server.port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status


async def test_a_header_that_does_not_come_to_an_end_is_waited_for_a_while(serve, clock):
    server = await serve()
    async with Client(server.port) as silent, Client(server.port) as half:
        await half.send(HALF)
        await eventually(lambda: server.connections == 2)
        await clock.advance(LIMITS.header_seconds - 0.1)
        assert server.connections == 2
        await clock.advance(0.2)
        assert await silent.closed()
        assert await half.closed()
    assert server.connections == 0


async def test_bytes_that_trickle_in_do_not_make_the_wait_longer(serve, clock):
    server = await serve()
    async with Client(server.port) as slow:
        for letter in (b"G", b"E", b"T"):
            await slow.send(letter)
            await clock.advance(LIMITS.header_seconds / 3 + 0.1)
        assert await slow.closed()


async def test_a_connection_without_a_further_request_is_closed(serve, clock):
    server = await serve()
    async with Client(server.port) as idle:
        await idle.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert "200 OK" in await idle.answer()
        assert await idle.reader.readexactly(5) == b"hello"
        await clock.advance(LIMITS.header_seconds + 1)
        await idle.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert "200 OK" in await idle.answer()
        assert await idle.reader.readexactly(5) == b"hello"
        await clock.advance(LIMITS.idle_seconds + 1)
        assert await idle.closed()


async def test_a_caller_that_does_not_read_its_answer_is_waited_for_a_while(serve, clock):
    ended = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 2**20)
        finally:
            ended.set()

    server = await serve(web.get("/endless", endless))
    async with Client(server.port) as client:
        await client.send(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
        await eventually(lambda: server.stalls == 1)
        await clock.advance(LIMITS.idle_seconds + 1)
        await ended.wait()
        assert server.connections == 0


async def test_a_body_that_does_not_come_to_an_end_is_answered_with_408(serve, clock):
    server = await serve()
    async with Client(server.port) as slow:
        await slow.send(b"POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhal")
        await eventually(lambda: server.serving == 1)
        await clock.advance(LIMITS.body_seconds + 0.1)
        assert "408 Request Timeout" in await slow.answer()


async def test_a_body_in_time_leaves_the_handler_all_the_time_it_needs(serve, clock):
    go = asyncio.Event()

    async def slow(request: web.Request) -> web.Response:
        await request.read()
        await go.wait()
        return web.Response(text="done")

    server = await serve(web.post("/slow", slow))
    async with Client(server.port) as client:
        await client.send(b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nha")
        await eventually(lambda: server.serving == 1)
        await client.send(b"lf")
        for _ in range(10):
            await clock.advance(LIMITS.body_seconds)
        go.set()
        assert "200 OK" in await client.answer()


async def test_a_body_in_several_pieces_is_one_body_and_a_large_one_is_refused(serve):
    server = await serve()
    async with Client(server.port) as client:
        await client.send(b"POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc")
        await eventually(lambda: server.serving == 1)
        await client.send(b"def")
        assert "200 OK" in await client.answer()
        assert await client.reader.readexactly(1) == b"6"
    url = f"http://127.0.0.1:{server.port}/size"
    async with aiohttp.ClientSession() as session, session.post(url, data=b"x" * 2000) as answer:
        assert answer.status == 413


async def test_half_sent_requests_displace_each_other_and_no_whole_one(serve):
    server = await serve()
    clients = [Client(server.port) for _ in range(40)]
    with capture_logs() as lines:
        for client in clients:
            await client.__aenter__()
            await client.send(HALF)
            assert await get(server) == 200
            assert server.connections <= LIMITS.per_peer
    assert [line["event"] for line in lines] == ["too many connections: the oldest without a request is closed"]
    assert await clients[0].closed()
    for client in clients:
        await client.__aexit__()


async def test_probes_are_answered_while_other_requests_take_all_places(serve):
    go = asyncio.Event()

    async def stuck(_request: web.Request) -> web.Response:
        await go.wait()
        return web.Response()

    server = await serve(web.get("/stuck", stuck))
    waiting = [asyncio.create_task(get(server, "/stuck")) for _ in range(LIMITS.per_peer - 1)]
    await eventually(lambda: server.serving == LIMITS.per_peer - 1)
    with capture_logs() as lines:
        assert [await get(server, path) for path in ("/", "/livez", "/", "/livez")] == [503, 200, 503, 200]
    assert [line["event"] for line in lines] == ["too many requests at once"]
    go.set()
    assert set(await asyncio.gather(*waiting)) == {200}
    assert await get(server) == 200


async def test_a_tls_handshake_that_does_not_come_to_an_end_is_waited_for_a_while(serve, clock):
    authority, context = Authority("test"), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_pair(context, authority.server("127.0.0.1"))
    server = await serve(tls=context)
    async with Client(server.port) as silent:
        await eventually(lambda: server.connections == 1)
        trust = ssl.create_default_context(cadata=authority.pem.decode())
        url = f"https://127.0.0.1:{server.port}/"
        async with aiohttp.ClientSession() as session, session.get(url, ssl=trust) as answer:
            assert await answer.text() == "hello"
        await clock.advance(LIMITS.header_seconds + 1)
        assert await silent.closed()
    await eventually(lambda: server.connections == 0)


@pytest.mark.parametrize(
    ("sent", "event"),
    [
        (b"GET / HTTP/9.9 nonsense\r\n\r\n", "malformed request"),
        (b"GET /broken HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "request failed"),
    ],
    ids=["malformed", "a defect of a handler"],
)
async def test_what_callers_can_repeat_is_logged_once_per_flood(serve, clock, sent, event):
    server = await serve(web.get("/broken", broken))

    async def many() -> None:
        for _ in range(20):
            async with Client(server.port) as client:
                await client.send(sent)
                assert await client.reader.read()

    with capture_logs() as lines:
        await many()
        assert [line["event"] for line in lines] == [event]
        await clock.advance(61)
        await many()
    assert [line.get("not_logged") for line in lines] == [None, 19]


async def test_an_address_that_is_taken_is_reported_so_and_nothing_stays_open(serve):
    server = await serve()
    other = HttpServer("127.0.0.1", server.port, routes=[])
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{server.port}: Address already in use"):
        await other.start()


async def test_a_name_with_several_addresses_has_one_port(clock):
    server = HttpServer("localhost", 0, routes=[web.get("/", hello)], clock=clock)
    await server.start()
    try:
        url = f"http://localhost:{server.port}/"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            assert answer.status == 200
    finally:
        await server.stop()
