"""A busy stream is gathered, a quiet one is never held back."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from steersman.kube.sockets import Gathering


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
def gathering(loop, sock) -> Gathering:
    transport = SimpleNamespace(get_extra_info=lambda name: sock)
    answer: Any = SimpleNamespace(connection=SimpleNamespace(transport=transport))
    return Gathering(answer)


def test_events_after_a_silence_are_never_held_back(gathering, loop, sock):
    for _ in range(5):
        loop.advance(0.5)
        gathering.woken(100)
        assert sock.least == 1


def test_a_stream_with_more_so_soon_is_gathered_for_a_moment(gathering, loop, sock):
    loop.advance(0.5)
    gathering.woken(100)
    loop.advance(0.001)
    gathering.woken(100)
    assert sock.least == Gathering.BYTES
    loop.advance(Gathering.SECONDS)
    assert sock.least == 1


def test_a_stream_that_stays_busy_is_gathered_again_at_once(gathering, loop, sock):
    loop.advance(0.001)
    gathering.woken(100)
    for _ in range(3):
        loop.advance(Gathering.SECONDS)
        assert sock.least == 1
        gathering.woken(100)  # what waited meanwhile
        assert sock.least == Gathering.BYTES


def test_a_flood_is_gathered_twice_as_long(gathering, loop, sock):
    loop.advance(0.001)
    gathering.woken(Gathering.MANY)
    loop.advance(Gathering.SECONDS * 1.01)
    assert sock.least == Gathering.BYTES
    loop.advance(Gathering.SECONDS * 1.01)
    assert sock.least == 1


def test_a_fast_stream_is_gathered_on_and_on_with_nothing_in_between(gathering, loop, sock):
    loop.advance(0.001)
    gathering.woken(Gathering.BYTES)
    for _ in range(5):
        loop.advance(Gathering.SECONDS * 1.9)  # as much as was asked for is there a little before the time is over
        assert sock.least == Gathering.BYTES
        gathering.woken(Gathering.BYTES)
    loop.advance(Gathering.SECONDS * 2.01)
    assert sock.least == 1
    assert loop.due == []


def test_a_connection_that_is_closed_meanwhile_does_no_harm(gathering, loop, sock, monkeypatch):
    def closed(self: Socket, level: int, option: int, value: int) -> None:
        raise OSError("bad file descriptor")

    loop.advance(0.001)
    gathering.woken(100)
    monkeypatch.setattr(Socket, "setsockopt", closed)
    loop.advance(1)
