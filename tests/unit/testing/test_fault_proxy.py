from __future__ import annotations

import asyncio
import contextlib

import pytest
import pytest_asyncio

from steersman.testing import FaultProxy, eventually, settle


class Echo:
    """A server that sends back what it gets, after the client has finished or at once, and remembers it."""

    def __init__(self) -> None:
        self.port = 0
        self.received = bytearray()
        self.writers: list[asyncio.StreamWriter] = []
        self.endings: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while chunk := await reader.read(65536):
                self.received += chunk
                writer.write(chunk)
                await writer.drain()
            self.endings.append("eof")
        except ConnectionResetError:
            self.endings.append("reset")
        finally:
            writer.close()


@pytest_asyncio.fixture
async def echo():
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    echo.port = server.sockets[0].getsockname()[1]
    yield echo
    server.close()
    for writer in echo.writers:
        writer.transport.abort()
    await server.wait_closed()


@pytest_asyncio.fixture
async def proxy(echo):
    async with FaultProxy("127.0.0.1", echo.port) as proxy:
        yield proxy


@contextlib.asynccontextmanager
async def connected(proxy):
    reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def test_bytes_pass_unchanged_in_both_directions(proxy, echo):
    message = bytes(range(256)) * 4096
    async with connected(proxy) as (reader, writer):
        writer.write(message)
        assert await reader.readexactly(len(message)) == message
    assert echo.received == message


async def test_an_end_of_sending_is_passed_on_and_the_rest_still_arrives(proxy):
    async with connected(proxy) as (reader, writer):
        writer.write(b"last words")
        writer.write_eof()
        assert await reader.read() == b"last words"
    await eventually(lambda: proxy.connections == 0)


async def test_a_frozen_connection_holds_bytes_back_and_loses_none(proxy, echo):
    async with connected(proxy) as (reader, writer):
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        proxy.freeze()
        writer.write(b"two")
        await eventually(lambda: proxy.held == 1)
        await settle()
        assert echo.received == b"one"
        proxy.thaw()
        assert await reader.readexactly(3) == b"two"


async def test_a_cut_ends_every_connection_and_later_ones_work(proxy):
    async with connected(proxy) as (reader, writer), connected(proxy) as (other, _):
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        await eventually(lambda: proxy.connections == 2)
        await proxy.cut()
        assert proxy.connections == 0
        assert await reader.read() == b""
        assert await other.read() == b""
    async with connected(proxy) as (reader, writer):
        writer.write(b"again")
        assert await reader.readexactly(5) == b"again"


async def test_a_frozen_connection_can_be_cut(proxy):
    proxy.freeze()
    async with connected(proxy) as (reader, writer):
        writer.write(b"never arrives")
        await eventually(lambda: proxy.connections == 1)
        await proxy.cut()
        assert await reader.read() == b""


async def test_a_reset_is_seen_as_a_reset_on_both_sides(proxy, echo):
    async with connected(proxy) as (reader, writer):
        writer.write(b"x")
        await reader.readexactly(1)
        await proxy.reset()
        with pytest.raises(ConnectionResetError):
            await reader.read()
    await eventually(lambda: echo.endings == ["reset"])


async def test_a_clients_reset_reaches_the_server_as_an_end(proxy, echo):
    async with connected(proxy) as (reader, writer):
        writer.write(b"x")
        await reader.readexactly(1)
    await eventually(lambda: proxy.connections == 0)
    await eventually(lambda: len(echo.endings) == 1)


async def test_after_a_half_close_the_client_reads_the_end_but_can_still_write(proxy, echo):
    async with connected(proxy) as (reader, writer):
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        proxy.half_close()
        assert await reader.read() == b""
        writer.write(b"still heard")
        await eventually(lambda: echo.received == b"xstill heard")


async def test_a_refusing_proxy_closes_new_connections_and_keeps_old_ones(proxy):
    async with connected(proxy) as (old, old_writer):
        old_writer.write(b"x")
        assert await old.readexactly(1) == b"x"
        proxy.refuse()
        async with connected(proxy) as (reader, _):
            assert await reader.read() == b""
        old_writer.write(b"y")
        assert await old.readexactly(1) == b"y"
        proxy.accept()
        async with connected(proxy) as (reader, writer):
            writer.write(b"z")
            assert await reader.readexactly(1) == b"z"


async def test_a_target_that_is_not_there_closes_the_connection():
    async with FaultProxy("127.0.0.1", 1) as proxy, connected(proxy) as (reader, _):
        assert await reader.read() == b""


async def test_delayed_bytes_arrive_later_and_in_order(proxy):
    loop = asyncio.get_running_loop()
    proxy.delay(0.1)
    async with connected(proxy) as (reader, writer):
        start = loop.time()
        for number in range(10):
            writer.write(bytes([number]))
            await settle()
        assert await reader.readexactly(10) == bytes(range(10))
        assert loop.time() - start >= 0.2  # once each way; a lower bound holds on any machine


async def test_a_throttled_connection_carries_no_more_than_its_rate(proxy):
    loop = asyncio.get_running_loop()
    proxy.throttle(20_000)
    async with connected(proxy) as (reader, writer):
        start = loop.time()
        writer.write(bytes(4_000))
        assert await reader.readexactly(4_000) == bytes(4_000)
        assert loop.time() - start >= 0.2


async def test_leaving_the_proxy_closes_what_is_open(echo):
    async with FaultProxy("127.0.0.1", echo.port) as proxy:
        reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
        writer.write(b"x")
        await reader.readexactly(1)
        assert proxy.accepted == 1
    assert await reader.read() == b""
    writer.close()
