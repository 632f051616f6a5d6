"""A server that is away for long: nobody wastes time on it, others are served, and it catches up when it is back.

The operator's clock runs sixty times as fast as the machine's, so that ten of its minutes pass in ten seconds.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from steersman.operators.dns.servers import FAILURES, PAUSE
from steersman.testing import eventually
from steersman.testing.fastclock import FastClock
from steersman.testing.zones import PATIENCE, Site, serial

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SPEED = 60.0
AWAY = 600.0  # seconds of the operator's clock


class _Knocks:
    """Stands where a server was, says nothing to anybody, and counts who comes."""

    def __init__(self, server):
        self._server, self.count = server, 0

    async def __aenter__(self):
        ports = (self._server.dns_port, self._server.rndc_port)
        self._doors = [await asyncio.start_server(self._hang_up, self._server.address, port) for port in ports]
        return self

    async def __aexit__(self, *_):
        for door in self._doors:
            door.close()
            await door.wait_closed()

    async def _hang_up(self, _reader, writer):
        self.count += 1
        writer.close()


class _Mute:
    """Stands where a server was, takes whatever it is given, and says nothing."""

    def __init__(self, server):
        self._server, self._writers = server, []

    async def __aenter__(self):
        ports = (self._server.dns_port, self._server.rndc_port)
        self._doors = [await asyncio.start_server(self._listen, self._server.address, port) for port in ports]
        return self

    async def __aexit__(self, *_):
        for door in self._doors:
            door.close()
        for writer in self._writers:
            writer.close()
        for door in self._doors:
            await door.wait_closed()

    async def _listen(self, reader, writer):
        self._writers.append(writer)
        while await reader.read(65536):
            pass


@pytest.mark.parametrize("role", ["primary", "secondary"])
async def test_a_server_that_says_nothing_at_all_keeps_nobody_waiting_and_catches_up(
    embedded, client, dns_kinds, namespace, named, role
):
    async with named("ns1") as one, named("ns2", secret=one.secret) as two:
        site = Site(client, namespace, [one, two] if role == "primary" else [one], [] if role == "primary" else [two])
        await site.instances()
        await site.zone("example.org")
        await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
        # A pass that waited for an answer would last for PATIENCE, and the next change would wait for the pass.
        async with site.running(drift_period=timedelta(seconds=1), not_ready=timedelta(seconds=1)):
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
            await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.1"}), timeout=120)
            await two.kill()
            reason = "PartialReconciliation" if role == "primary" else "SecondaryFailed"
            async with _Mute(two):
                for number in range(2, 8):
                    wanted = {f"192.0.2.{number}"}
                    await site.record("A", "www", ipv4Addresses=list(wanted))
                    await eventually(
                        lambda w=wanted: site.answers("www.example.org", "A", w, [one]), timeout=PATIENCE / 2
                    )
                    if number == 4:
                        await eventually(lambda: site.is_ready("DNSZone", "example.org", reason), timeout=PATIENCE / 2)
            await two.start()
            await eventually(lambda: site.answers("www.example.org", "A", wanted), timeout=4 * PATIENCE)
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
            assert await serial(two, "example.org") == await serial(one, "example.org")


async def test_a_server_that_is_away_for_ten_minutes_is_left_alone_and_has_everything_when_it_is_back(
    cluster, client, dns_kinds, namespace, named
):
    clock = FastClock(SPEED)
    async with named("ns1") as one, named("ns2", secret=one.secret) as two:
        site = Site(client, namespace, [one, two])
        await site.instances()
        await site.zone("example.org")
        await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
        async with site.running(clock=clock, request_timeout=timedelta(seconds=PATIENCE * SPEED)):
            await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.1"}), timeout=120)
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
            before = await serial(two, "example.org")
            await two.kill()
            async with _Knocks(two) as knocks:
                began, number = clock.monotonic(), 1
                while clock.monotonic() - began < AWAY:
                    number += 1
                    await site.record("A", "www", ipv4Addresses=[f"192.0.2.{number % 250}"])
                    wanted = {f"192.0.2.{number % 250}"}
                    await eventually(lambda w=wanted: site.answers("www.example.org", "A", w, [one]), timeout=120)
                assert await site.is_ready("DNSZone", "example.org", "PartialReconciliation")
                # Five failures, then one try per pause; a try is at most one connection per port and key.
                tries = FAILURES + (clock.monotonic() - began) / PAUSE + 1
                assert 0 < knocks.count <= 2 * tries
            await two.start()
            await eventually(lambda: site.answers("www.example.org", "A", wanted), timeout=120)
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
            assert await serial(two, "example.org") == await serial(one, "example.org") > before
