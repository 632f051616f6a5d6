"""Blocks of whole lines from whatever the network brings, and a kernel that collects for busy streams only."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp.client_proto import ResponseHandler
from hypothesis import given
from hypothesis import strategies as st

from steersman.kube.transport.stream import (
    LineSplitter,
    LineTooLongError,
    ReceiveCoalescer,
    receive_in_bulk,
    split_block,
)

SIZE = 32
LINES = st.lists(st.binary(max_size=40).filter(lambda b: b"\n" not in b))


def pieces_of(splitter: LineSplitter, text: bytes, size: int = SIZE) -> list[bytes]:
    return [bytes(piece) for piece in splitter.blocks(text, size)]


@st.composite
def cut_texts(draw, end: bytes = b""):
    """A text of lines, and the same as packets."""
    text = b"".join(line + b"\n" for line in draw(LINES)) + end
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=20)))
    return text, [text[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@given(cut_texts())
def test_lines_come_out_the_same_however_the_network_cuts_them(sample):
    text, packets = sample
    splitter = LineSplitter(limit=1000)
    found = [line for packet in packets for piece in splitter.blocks(packet, SIZE) for line in split_block(piece)]
    assert found == [line for line in text.split(b"\n") if line.strip()]
    assert splitter.rest == 0


def test_blank_lines_are_dropped():
    assert split_block(b"\n\r\na\n \n") == [b"a"]


def test_an_unfinished_line_is_counted_and_kept():
    splitter = LineSplitter(limit=10)
    assert pieces_of(splitter, b"a\nbcd") == [b"a\n"]
    assert splitter.rest == 3
    assert pieces_of(splitter, b"e\n") == [b"bcde\n"]


def test_a_line_without_end_is_refused_at_the_limit():
    splitter = LineSplitter(limit=10)
    pieces_of(splitter, b"12345")
    with pytest.raises(LineTooLongError, match="longer than 10 bytes"):
        pieces_of(splitter, b"123456")


def test_a_line_that_ends_beyond_the_limit_is_refused_though_its_end_is_there():
    splitter = LineSplitter(limit=10)
    pieces_of(splitter, b"12345")
    with pytest.raises(LineTooLongError):
        pieces_of(splitter, b"123456\nnext\n")


def test_lines_before_one_that_is_too_long_are_not_lost():
    pieces = LineSplitter(limit=10).blocks(b"one\n" + b"x" * 11, 4)
    assert bytes(next(pieces)) == b"one\n"
    with pytest.raises(LineTooLongError):
        next(pieces)


def test_a_large_line_in_small_pieces_is_joined_once():
    splitter = LineSplitter(limit=2**24)
    for _ in range(22_000):
        assert pieces_of(splitter, b"x" * 64) == []
    assert len(splitter._parts) == 22_000  # nothing was joined on the way
    assert [len(piece) for piece in pieces_of(splitter, b"\n")] == [22_000 * 64 + 1]


@given(cut_texts(end=b"rest"), st.integers(1, 60))
def test_pieces_hold_the_same_bytes_and_are_about_as_large_as_asked_for(sample, size):
    text, packets = sample
    splitter = LineSplitter(limit=1000)
    pieces = [piece for packet in packets for piece in pieces_of(splitter, packet, size)]
    assert b"".join(pieces) + b"rest" == text
    assert splitter.rest == len(b"rest")
    assert all(piece.endswith(b"\n") for piece in pieces)
    longest = max(map(len, text.split(b"\n"))) + 1
    assert all(len(piece) < 2 * size + longest for piece in pieces)
    assert all(len(piece) >= size for piece in [*LineSplitter(limit=1000).blocks(text, size)][:-1])


def test_a_large_packet_is_cut_without_a_copy():
    large = b"0123456\n" * 10
    assert [piece.obj is large for piece in LineSplitter(limit=1000).blocks(large, 32)] == [True, True]


class Wire(asyncio.Transport):
    """A transport that only remembers what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: Any = None
        self.reading = True

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def is_reading(self) -> bool:
        return self.reading

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return False

    def receive(self, data: bytes) -> None:
        self.protocol.get_buffer(-1)[: len(data)] = data
        self.protocol.buffer_updated(len(data))


EVENTS = [b'{"type":"MODIFIED","object":{"n":%d}}\n' % number for number in range(100)]
CHUNKED = b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in EVENTS)


async def opened(wire: Wire, buffer: int = 2**18) -> Any:
    """The body of a response whose headers have arrived on `wire`."""
    handler = ResponseHandler(asyncio.get_running_loop())
    handler.connection_made(wire)
    handler.set_response_params(read_until_eof=True, read_bufsize=buffer)
    connection: Any = SimpleNamespace(protocol=handler, transport=wire)
    receive_in_bulk(connection)
    wire.receive(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    _, content = await handler.read()
    return content


async def test_a_hundred_events_of_one_packet_enter_the_parser_once(monkeypatch):
    """What makes the fast path fast. If an aiohttp breaks it, streams cost 6 % more per event and stay correct."""
    entered: list[int] = []
    data_received = ResponseHandler.data_received
    monkeypatch.setattr(
        ResponseHandler, "data_received", lambda self, data: (entered.append(len(data)), data_received(self, data))[1]
    )
    wire = Wire()
    content = await opened(wire)
    entered.clear()
    wire.receive(CHUNKED)
    assert await content.readany() == b"".join(EVENTS)
    assert entered == [len(CHUNKED)]


async def test_a_stream_that_was_paused_because_nothing_was_read_goes_on_where_it_was():
    wire = Wire()
    content = await opened(wire, buffer=256)
    wire.receive(CHUNKED)
    assert not wire.reading
    received = b""
    while len(received) < len(b"".join(EVENTS)):
        received += await content.readany()
    assert received == b"".join(EVENTS)
    assert wire.reading


async def test_the_end_of_a_connection_reaches_who_reads_from_it():
    wire = Wire()
    content = await opened(wire)
    wire.receive(CHUNKED)
    wire.protocol.eof_received()
    wire.protocol.connection_lost(ConnectionResetError("reset by peer"))
    with pytest.raises(Exception, match=r"not completed|reset by peer|payload"):
        await content.read()


class Timers:
    """An event loop's time, moved by the test."""

    def __init__(self) -> None:
        self.now = 100.0
        self.due: list[tuple[float, Any]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, call: Any) -> Any:
        timer = (self.now + delay, call)
        self.due.append(timer)
        return SimpleNamespace(cancel=lambda: self.due.remove(timer))

    def advance(self, seconds: float) -> None:
        self.now += seconds
        ready = [call for when, call in self.due if when <= self.now]
        self.due = [(when, call) for when, call in self.due if when > self.now]
        for call in ready:
            call()


class Socket:
    """Keeps what the kernel is asked to wait for."""

    least = 1

    def setsockopt(self, level: int, option: int, value: int) -> None:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        self.least = value


@pytest.fixture
def loop(monkeypatch) -> Timers:
    timers = Timers()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: timers)
    return timers


@pytest.fixture
def sock() -> Socket:
    return Socket()


@pytest.fixture
def coalescer(loop, sock) -> ReceiveCoalescer:
    transport = SimpleNamespace(get_extra_info=lambda name: sock)
    connection: Any = SimpleNamespace(transport=transport)
    return ReceiveCoalescer(connection)


def test_events_after_a_silence_are_never_held_back(coalescer, loop, sock):
    for _ in range(5):
        loop.advance(0.5)
        coalescer.received(100)
        assert sock.least == 1


def test_a_stream_with_more_so_soon_is_collected_for_a_moment(coalescer, loop, sock):
    loop.advance(0.5)
    coalescer.received(100)
    loop.advance(0.001)
    coalescer.received(100)
    assert sock.least == ReceiveCoalescer.BYTES
    loop.advance(ReceiveCoalescer.SECONDS)
    assert sock.least == 1


def test_a_stream_that_stays_busy_is_collected_again_at_once(coalescer, loop, sock):
    loop.advance(0.001)
    coalescer.received(100)
    for _ in range(3):
        loop.advance(ReceiveCoalescer.SECONDS)
        assert sock.least == 1
        coalescer.received(100)  # what waited meanwhile
        assert sock.least == ReceiveCoalescer.BYTES


def test_a_flood_is_collected_twice_as_long(coalescer, loop, sock):
    loop.advance(0.001)
    coalescer.received(ReceiveCoalescer.MANY)
    loop.advance(ReceiveCoalescer.SECONDS * 1.01)
    assert sock.least == ReceiveCoalescer.BYTES
    loop.advance(ReceiveCoalescer.SECONDS * 1.01)
    assert sock.least == 1


def test_a_fast_stream_is_collected_on_and_on_with_nothing_in_between(coalescer, loop, sock):
    loop.advance(0.001)
    coalescer.received(ReceiveCoalescer.BYTES)
    for _ in range(5):
        loop.advance(
            ReceiveCoalescer.SECONDS * 1.9
        )  # as much as was asked for is there a little before the time is over
        assert sock.least == ReceiveCoalescer.BYTES
        coalescer.received(ReceiveCoalescer.BYTES)
    loop.advance(ReceiveCoalescer.SECONDS * 2.01)
    assert sock.least == 1
    assert loop.due == []


def test_a_connection_that_is_closed_meanwhile_does_no_harm(coalescer, loop, sock, monkeypatch):
    def closed(self: Socket, level: int, option: int, value: int) -> None:
        raise OSError("bad file descriptor")

    loop.advance(0.001)
    coalescer.received(100)
    monkeypatch.setattr(Socket, "setsockopt", closed)
    loop.advance(1)
