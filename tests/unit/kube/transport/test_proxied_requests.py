from __future__ import annotations

import asyncio
import base64
import ssl
from contextlib import suppress

import pytest

from steersman.kube.config.config import Config
from tests.support.wire_server import reply


@pytest.fixture
async def tunnel():
    """A proxy that knows CONNECT: its port, and what it was asked for."""
    asked = []
    tasks, writers = set(), []

    async def copy(reader, writer):
        with suppress(ConnectionError):
            while data := await reader.read(2**16):
                writer.write(data)
                await writer.drain()

    async def connected(reader, writer):
        tasks.add(asyncio.current_task())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.append(head)
        host, _, port = head.split()[1].rpartition(":")
        there = await asyncio.open_connection(host, int(port))
        writers.extend([writer, there[1]])
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1], asked
    server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for writer in writers:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_tls_goes_through_the_proxy_to_the_server_itself(wire, transport, authority, tunnel):
    port, asked = tunnel
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("kubernetes").configure_cert(context)
    server = await wire(reply(200, {}), tls=context)
    config = Config(
        server=server.url,
        ca=authority.cert_pem.bytes(),
        tls_server_name="kubernetes",
        proxy_url=f"http://jane:pw@127.0.0.1:{port}",
    )
    assert (await transport(server, config=config).request("GET", "/version")).status == 200
    assert server.requests[0].path == "/version"
    assert asked[0].startswith(f"CONNECT 127.0.0.1:{server.port} ")
    assert f"Basic {base64.b64encode(b'jane:pw').decode()}" in asked[0]


async def test_plain_http_is_handed_to_the_proxy(wire, transport):
    proxy = await wire(reply(200, {}))
    config = Config(server="http://api.example:8080", proxy_url=proxy.url)
    assert (await transport(proxy, config=config).request("GET", "/version")).status == 200
    assert proxy.requests[0].headers["host"] == "api.example:8080"
