"""What every request to a server passes: a bucket against floods, and a breaker for servers that fail."""

from __future__ import annotations

import asyncio
import socket

import pytest

from steersman.errors import DriverError
from steersman.operators.dns.bind.breaker import BURST, FAILURES, PAUSE, PER_SECOND, QUICK, Gate, ServerUnavailable
from steersman.operators.dns.wire.client import fault_of


async def test_a_burst_goes_through_at_once_and_what_follows_at_the_rate(clock):
    gate, entered = Gate("ns1/0", clock), []

    async def enter():
        await gate.enter()
        entered.append(clock.monotonic())

    began = clock.monotonic()
    tasks = [asyncio.create_task(enter()) for _ in range(BURST + 3)]
    await clock.advance(0)
    assert entered == [began] * BURST
    await clock.advance(10 / PER_SECOND)
    assert [at - began for at in entered[BURST:]] == pytest.approx([number / PER_SECOND for number in (1, 2, 3)])
    await asyncio.gather(*tasks)


async def test_after_five_failures_no_request_is_sent_until_one_may_try(clock):
    gate = Gate("ns1/0", clock)
    for _ in range(FAILURES):
        await gate.enter()
        gate.breaker.failed()
    with pytest.raises(ServerUnavailable):
        await gate.enter()
    await clock.advance(PAUSE)
    await gate.enter()
    with pytest.raises(ServerUnavailable):  # one is enough to find out
        await gate.enter()
    gate.breaker.succeeded()
    await gate.enter()


async def test_a_server_that_refuses_at_once_is_left_alone_for_being_away_and_not_for_being_asked_often(clock):
    gate = Gate("ns1/0", clock)
    for _ in range(FAILURES - 1):
        for _ in range(20):
            gate.breaker.failed(quickly=True)
        await gate.enter()
        await clock.advance(QUICK)
    gate.breaker.failed(quickly=True)
    with pytest.raises(ServerUnavailable):
        await gate.enter()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('192.0.2.1', 53)"), "192.0.2.1:53: Connection refused"),
        (OSError(113, "Connect call failed ('192.0.2.1', 53)"), "192.0.2.1:53: No route to host"),
        (socket.gaierror(-2, "Name or service not known"), "192.0.2.1:53: Name or service not known"),
        (ValueError("the answer is to another question"), "the answer is to another question"),
        (EOFError(), "EOFError"),
    ],
)
def test_what_is_wrong_with_a_connection_is_reported_in_words_and_with_its_port(error, words):
    assert fault_of(error, "192.0.2.1:53") == words
    assert str(DriverError(words, server="192.0.2.1:53")).count("192.0.2.1:53") == 1
