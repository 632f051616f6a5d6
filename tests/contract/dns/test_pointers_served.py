"""PTR records on a real name server: asked for, refused, moved, and gone with their record."""

from __future__ import annotations

from datetime import timedelta

import pytest

from steersman.testing import eventually
from tests.support.dns.zones import serial, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
NET = "2.0.192.in-addr.arpa"
SIX = "8.b.d.0.1.0.0.2.ip6.arpa"
ELSEWHERE = "51.198.in-addr.arpa"


async def pointer(site, kind, name):
    found = await site.get(kind, name)
    return next((row for row in found.status.conditions if row.type == "PTR"), None) if found.status else None


async def test_addresses_point_back_in_declared_zones_only_and_follow_their_records(site):
    (one,) = site.primaries
    await site.zone("example.org")
    await site.zone(NET)
    await site.zone(SIX)
    await site.record("A", "www", ipv4Addresses=["192.0.2.1", "192.0.2.2"], ptr=True)
    await site.record("AAAA", "six", ipv6Addresses=["2001:db8::1"], ptr=True)
    await site.record("A", "quiet", ipv4Addresses=["192.0.2.3"])
    await site.record("A", "far", ipv4Addresses=["198.51.100.1"], ptr=True)
    long = ".".join("1" + "0" * 23)
    async with site.running():
        for number in (1, 2):
            await eventually(lambda n=number: site.answers(f"{n}.{NET}", "PTR", {"www.example.org."}), timeout=120)
        await eventually(lambda: site.answers(f"{long}.{SIX}", "PTR", {"six.example.org."}), timeout=120)
        for kind, name in (("A", "www"), ("AAAA", "six"), ("A", "quiet")):
            await eventually(lambda k=kind, n=name: site.is_ready(k, n), f"{name} is ready", timeout=120)
        assert (await pointer(site, "A", "www")).status == "True"
        assert await pointer(site, "A", "quiet") is None
        assert await values(one, f"3.{NET}", "PTR") == set()
        # no zone for it: that record says so, and is served as far as it can be
        await eventually(lambda: site.is_ready("A", "far", "NoReverseZone"), timeout=120)
        await eventually(lambda: site.answers("far.example.org", "A", {"198.51.100.1"}), timeout=120)
        await site.zone(ELSEWHERE)
        await eventually(lambda: site.answers(f"1.100.{ELSEWHERE}", "PTR", {"far.example.org."}), timeout=120)
        await eventually(lambda: site.is_ready("A", "far"), timeout=120)
        # renamed, moved, no longer asked for
        await site.record("A", "www", owner="shop", ipv4Addresses=["192.0.2.1", "192.0.2.9"], ptr=True)
        for number, wanted in ((1, {"shop.example.org."}), (9, {"shop.example.org."}), (2, set())):
            await eventually(lambda n=number, w=wanted: site.answers(f"{n}.{NET}", "PTR", w), timeout=120)
        await site.record("AAAA", "six", ipv6Addresses=["2001:db8::1"], ptr=False)
        await eventually(lambda: site.answers(f"{long}.{SIX}", "PTR", ()), timeout=120)
        # a delegation hides one of them, and exactly its record says so
        await site.record("NS", "cut", zone=NET, owner="9", nameserver="ns.example.net.")
        await eventually(lambda: site.is_ready("A", "www", "Occluded"), timeout=120)
        await eventually(lambda: site.answers(f"1.{NET}", "PTR", {"shop.example.org."}), timeout=120)
        await site.delete("NS", "cut")
        await eventually(lambda: site.answers(f"9.{NET}", "PTR", {"shop.example.org."}), timeout=120)
        await eventually(lambda: site.is_ready("A", "www"), timeout=120)
        # a record is gone only when its PTR records are
        await site.delete("A", "www")
        await eventually(lambda: site.gone("A", "www"), timeout=120)
        assert await values(one, f"1.{NET}", "PTR") == set()
        # and a reverse zone that goes leaves its records without one
        await site.delete("DNSZone", ELSEWHERE)
        await eventually(lambda: site.is_ready("A", "far", "NoReverseZone"), timeout=120)


async def test_a_new_process_neither_takes_ptr_records_away_nor_calls_them_drift(site):
    (one,) = site.primaries
    await site.zone(NET, "a-reverse")  # by name before the zone that its records come from
    await site.zone("example.org", ptr=True)
    for number in range(20):
        await site.record("A", f"h{number}", ipv4Addresses=[f"192.0.2.{number}"])
    async with site.running():
        for number in range(20):
            await eventually(lambda n=number: site.is_ready("A", f"h{n}"), timeout=120)
    before = await serial(one, NET)
    async with site.running(drift_period=timedelta(seconds=1)):
        await site.record("A", "news", ipv4Addresses=["192.0.2.99"])
        await eventually(lambda: site.answers(f"99.{NET}", "PTR", {"news.example.org."}), timeout=120)
        zone = await site.get("DNSZone", "a-reverse")
        assert zone.status.drift_count == 0
        assert await serial(one, NET) == before + 1  # nothing was taken away in between
        # deleted while nobody looked
        await eventually(lambda: site.is_ready("A", "news"), timeout=120)
    await site.delete("A", "news")
    async with site.running():
        await eventually(lambda: site.gone("A", "news"), timeout=120)
        assert await values(one, f"99.{NET}", "PTR") == set()
        zone = await site.get("DNSZone", "a-reverse")
        assert zone.status.drift_count == 0
