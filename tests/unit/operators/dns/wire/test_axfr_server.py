"""The listener for the first copy of a zone: strangers who connect to it neither keep named out nor stay."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from steersman.operators.dns.wire.axfr_server import CONNECTIONS, AxfrServer
from steersman.operators.dns.wire.messages import AXFR, question
from steersman.operators.dns.wire.tsig import Key, Signer
from steersman.operators.dns.zone.names import name_of
from steersman.operators.dns.zone.rdata import NS, RRset, Soa
from steersman.testing import eventually

ZONE = name_of("example.org")
SERVER = name_of("ns1.example.org")
KEY = Key("operator", "hmac-sha256", b"k" * 32)


@pytest.fixture
async def source():
    soa = Soa(SERVER, name_of("h.example.org"), 7, 3600, 600, 86400, 60)
    made = AxfrServer(ZONE, soa, {(b"", NS): RRset(60, frozenset({SERVER}))}, 60, KEY)
    await made.open("127.0.0.1")
    yield made
    await made.close()


@asynccontextmanager
async def strangers(source, count):
    """Connections that send half a message and wait."""
    streams = [await asyncio.open_connection("127.0.0.1", source.port) for _ in range(count)]
    for _, writer in streams:
        writer.write(b"\x00\x30half")
    yield streams
    for _, writer in streams:
        writer.close()


def open_ones(streams):
    return sum(not reader.at_eof() and reader.exception() is None for reader, _ in streams)


async def test_the_oldest_connections_make_room_for_new_ones(source):
    async with strangers(source, 3 * CONNECTIONS) as streams:
        await eventually(lambda: open_ones(streams) == CONNECTIONS)
        reader, writer = await asyncio.open_connection("127.0.0.1", source.port)
        asked = Signer(KEY).sign(question(7, ZONE, AXFR))
        writer.write(len(asked).to_bytes(2) + asked)
        assert int.from_bytes(await reader.readexactly(2)) > 0
        writer.close()


async def test_no_connection_outlives_the_zone_it_was_for(source):
    async with strangers(source, CONNECTIONS) as streams:
        await source.close()
        await eventually(lambda: open_ones(streams) == 0)
