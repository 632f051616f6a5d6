"""A server that is away for long: nobody wastes time on it, others are served, and it catches up when it is back.

The operator's clock runs sixty times as fast as the machine's, so that ten of its minutes pass in ten seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from datetime import timedelta

import pytest

from steersman.operators.dns.bind.breaker import FAILURES, PAUSE
from steersman.operators.dns.controllers.context import PROBE_PERIOD
from steersman.testing import eventually
from steersman.testing.clock import FastClock
from tests.support.dns.zones import PATIENCE, Site, serial

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SPEED = 60.0
AWAY = 600.0  # seconds of the operator's clock


class _Doorkeeper:
    """Stands where a server was, counts who connects, and says nothing: hangs up at once, or listens for ever.

    Connections are accepted in one step, without `asyncio.start_server`: that one forgets a connection which it has
    accepted but not begun to serve when it is closed.
    """

    def __init__(self, server, *, hangs_up):
        self._server, self._hangs_up, self.count = server, hangs_up, 0
        self._connections = []

    async def __aenter__(self):
        ports = (self._server.dns_port, self._server.rndc_port)
        self._listeners = [socket.create_server((self._server.address, port)) for port in ports]
        for listener in self._listeners:
            listener.setblocking(False)
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)
        return self

    async def __aexit__(self, *_):
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        for connection in self._connections:
            connection.close()

    def _accept(self, listener):
        with contextlib.suppress(OSError):  # the caller is gone already
            connection, _ = listener.accept()
            self.count += 1
            self._connections.append(connection)
            if self._hangs_up:
                connection.close()


@pytest.mark.parametrize("role", ["primary", "secondary"])
async def test_a_server_that_says_nothing_at_all_blocks_no_caller_and_catches_up(
    embedded, client, dns_kinds, namespace, named, role
):
    async with named("ns1") as ns1, named("ns2", secret=ns1.secret) as ns2:
        site = Site(client, namespace, [ns1, ns2] if role == "primary" else [ns1], [] if role == "primary" else [ns2])
        await site.instances()
        await site.zone("example.org")
        await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
        # A pass that waited for an answer would last for PATIENCE, and the next change would wait for the pass.
        async with site.running(drift_period=timedelta(seconds=1), not_ready=timedelta(seconds=1)):
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
            await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.1"}), timeout=120)
            await ns2.kill()
            reason = "PartialReconciliation" if role == "primary" else "SecondaryFailed"
            async with _Doorkeeper(ns2, hangs_up=False):
                for number in range(2, 8):
                    wanted = {f"192.0.2.{number}"}
                    await site.record("A", "www", ipv4Addresses=list(wanted))
                    await eventually(
                        lambda w=wanted: site.answers("www.example.org", "A", w, [ns1]), timeout=PATIENCE / 2
                    )
                    if number == 4:
                        await eventually(lambda: site.is_ready("DNSZone", "example.org", reason), timeout=PATIENCE / 2)
            await ns2.start()
            await eventually(lambda: site.answers("www.example.org", "A", wanted), timeout=4 * PATIENCE)
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
            assert await serial(ns2, "example.org") == await serial(ns1, "example.org")


async def test_a_server_that_is_away_for_ten_minutes_is_left_alone_and_has_everything_when_it_is_back(
    cluster, client, dns_kinds, namespace, named
):
    clock = FastClock(SPEED)
    async with named("ns1") as ns1, named("ns2", secret=ns1.secret) as ns2:
        site = Site(client, namespace, [ns1, ns2])
        await site.instances()
        await site.zone("example.org")
        await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
        async with site.running(clock=clock, request_timeout=timedelta(seconds=PATIENCE * SPEED)):
            await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.1"}), timeout=120)
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
            before = await serial(ns2, "example.org")
            await ns2.kill()
            async with _Doorkeeper(ns2, hangs_up=True) as knocks:
                began, number = clock.monotonic(), 1
                while clock.monotonic() - began < AWAY:
                    number += 1
                    await site.record("A", "www", ipv4Addresses=[f"192.0.2.{number % 250}"])
                    wanted = {f"192.0.2.{number % 250}"}
                    await eventually(lambda w=wanted: site.answers("www.example.org", "A", w, [ns1]), timeout=120)
                assert await site.is_ready("DNSZone", "example.org", "PartialReconciliation")
                # Five failures, then one try per pause; a try is at most one connection per port and key.
                away = clock.monotonic() - began
                tries = FAILURES + away / PAUSE + 1
                assert 0 < knocks.count <= 2 * tries + 2 * away / PROBE_PERIOD
            await ns2.start()
            await eventually(lambda: site.answers("www.example.org", "A", wanted), timeout=120)
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
            assert await serial(ns2, "example.org") == await serial(ns1, "example.org") > before


async def test_a_server_that_answers_again_is_brought_up_to_date_however_long_its_breaker_is_open(
    cluster, client, dns_kinds, namespace, named
):
    days = timedelta(days=30)  # of the operator's clock: neither the breaker nor a retry lets a request through again
    async with named("ns1") as server:
        site = Site(client, namespace, [server])
        await site.instances()
        await site.zone("example.org")
        await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
        patience = timedelta(seconds=PATIENCE * SPEED)
        async with site.running(
            clock=FastClock(SPEED), server_pause=days, not_ready=days, drift_period=days, request_timeout=patience
        ):
            await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.1"}), timeout=120)
            await server.kill()
            numbers = itertools.count(2)

            async def breaker_is_open():
                await site.record("A", "www", ipv4Addresses=[f"192.0.2.{next(numbers) % 250}"])
                conditions = (await site.get("DNSZone", "example.org")).status.conditions
                return any(f"failed {FAILURES} times in a row" in row.message for row in conditions)

            await eventually(breaker_is_open, timeout=120)
            await site.record("A", "www", ipv4Addresses=["198.51.100.7"])
            await server.start()
            await eventually(lambda: site.answers("www.example.org", "A", {"198.51.100.7"}), timeout=120)
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
