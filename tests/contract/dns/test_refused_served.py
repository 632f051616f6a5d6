"""A name server that minds some records: exactly those are held back, and everything else is served."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from steersman.testing import eventually
from tests.support.dns.zones import Site, serial, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SOON = timedelta(seconds=1)
TEXT = """$TTL 300
@ IN SOA ns1.example.org. hostmaster.example.org. 5 3600 600 604800 60
@ IN NS ns1.example.org.
ns1 IN A 192.0.2.53
"""
# Host names are checked, as named does unless told otherwise, and one type is nobody's business.
STRICT = """
zone "example.org" {
  type primary; file "example.org.db"; allow-transfer { key operator; };
  update-policy { deny operator zonesub CAA; grant operator zonesub ANY; };
};
"""


@pytest.fixture
async def mixed(embedded, client, dns_kinds, namespace, named, tmp_path):
    """A primary whose zone is somebody else's, and one that takes whatever it is given."""
    strict = named("strict", extra=STRICT)
    strict.zones.mkdir(parents=True)
    (strict.zones / "example.org.db").write_text(TEXT)
    async with strict, named("lenient") as lenient:
        made = Site(client, namespace, [strict, lenient])
        await made.instance("primary-0", "primary", strict, recordsOnly=True)
        await made.instance("primary-1", "primary", lenient)
        yield made


async def test_what_a_server_refuses_is_held_back_alone_and_reported_by_exactly_its_records(mixed):
    strict, lenient = mixed.servers
    await mixed.zone("example.org")
    good = [f"h{number}" for number in range(30)]
    for number, name in enumerate(good):
        await mixed.record("A", name, ipv4Addresses=[f"192.0.2.{number}"])
    await mixed.record("CAA", "shop", flags=0, tag="issue", value="ca.example.net")
    await mixed.record("A", "under", owner="_under", ipv4Addresses=["192.0.2.99"])
    await mixed.record("MX", "mail", owner="@", priority=10, mailServer="h1.example.org.")

    async def agreed():
        return await serial(strict, "example.org") == await serial(lenient, "example.org")

    async with mixed.running(drift_period=SOON):
        await eventually(lambda: mixed.is_ready("CAA", "shop", "Refused"), timeout=120)
        await eventually(lambda: mixed.is_ready("A", "under", "Refused"), timeout=120)
        for number, name in enumerate(good):
            await eventually(lambda n=name: mixed.is_ready("A", n), f"{name} is ready", timeout=120)
            await mixed.answers(f"{name}.example.org", "A", {f"192.0.2.{number}"})
        await eventually(lambda: mixed.is_ready("MX", "mail"), timeout=120)
        assert "primary-0/0 refuses shop.example.org CAA" in (await mixed.ready("CAA", "shop"))[2]
        assert await values(strict, "shop.example.org", "CAA") == set()
        assert await values(lenient, "shop.example.org", "CAA") == {'0 issue "ca.example.net"'}
        zone = await mixed.get("DNSZone", "example.org")
        refused = {(row.name, row.type) for row in zone.status.conflicts if row.reason == "Refused"}
        assert refused == {("shop.example.org", "CAA"), ("_under.example.org", "A")}
        await eventually(agreed, "one serial", timeout=120)
        # more news get through beside what is held back
        await mixed.record("TXT", "news", text=["x"])
        await eventually(lambda: mixed.answers("news.example.org", "TXT", {'"x"'}), timeout=120)
        await eventually(lambda: mixed.is_ready("TXT", "news"), timeout=120)
        # made right, or gone
        await mixed.record("A", "under", owner="under", ipv4Addresses=["192.0.2.99"])
        await eventually(lambda: mixed.answers("under.example.org", "A", {"192.0.2.99"}), timeout=120)
        await eventually(lambda: mixed.is_ready("A", "under"), timeout=120)
        await mixed.delete("CAA", "shop")
        await eventually(lambda: mixed.gone("CAA", "shop"), timeout=120)
        await eventually(lambda: mixed.answers("shop.example.org", "CAA", ()), timeout=120)
        await eventually(agreed, "one serial", timeout=120)
        zone = await mixed.get("DNSZone", "example.org")
        assert not zone.status.conflicts


async def test_what_a_server_would_not_load_keeps_nothing_else_from_a_new_zone_nor_from_a_lost_one(
    embedded, client, dns_kinds, namespace, named
):
    async with named("picky", options="check-mx fail;") as picky:
        site = Site(client, namespace, [picky])
        await site.instances()
        await site.zone("example.org")
        await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
        await site.record("MX", "bad", owner="@", priority=10, mailServer="192.0.2.9.")
        async with site.running(drift_period=SOON, not_ready=SOON, server_pause=SOON):
            for _ in range(2):
                await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.1"}), timeout=120)
                await eventually(lambda: site.is_ready("MX", "bad", "Refused"), timeout=120)
                await eventually(lambda: site.is_ready("A", "www"), timeout=120)
                await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
                before = await serial(picky, "example.org")
                assert before is not None, "a zone that has answered is not taken away again"
                await picky.kill()
                picky.wipe()  # what it had is gone, and what it minds is still wanted
                await picky.start()
            await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.1"}), timeout=120)
            assert await serial(picky, "example.org") > before


async def test_a_new_zone_that_has_answered_once_goes_on_answering(embedded, client, dns_kinds, namespace, named):
    """Resolvers see the zone when it stays, not while the operator still hands it over to the server."""
    async with named("primary") as primary:
        site = Site(client, namespace, [primary])
        await site.instances()
        zones = [f"z{number}.example.org" for number in range(10)]
        answers = {zone: [] for zone in zones}

        async def sample(zone):
            while True:
                answers[zone].append(await serial(primary, zone))

        async with site.running(drift_period=SOON):
            for zone in zones:
                sampler = asyncio.create_task(sample(zone))
                await eventually(lambda zone=zone: answers[zone], timeout=120)
                await site.zone(zone)
                await eventually(lambda zone=zone: site.is_ready("DNSZone", zone), timeout=120)
                sampler.cancel()
    for zone, found in answers.items():
        first = next((number for number, value in enumerate(found) if value is not None), len(found))
        assert None not in found[first:], f"{zone} answered and was taken away again: {found}"
        assert found[0] is None


async def test_a_server_that_refuses_everything_is_a_failed_server_and_no_record_is_to_blame(mixed):
    strict, _ = mixed.servers
    await mixed.zone("example.org")
    async with mixed.running(drift_period=SOON, not_ready=SOON):
        await mixed.record("A", "www", ipv4Addresses=["192.0.2.1"])
        await eventually(lambda: mixed.is_ready("A", "www"), timeout=120)
        await strict.control("freeze example.org")
        await mixed.record("A", "www", ipv4Addresses=["192.0.2.2"])
        await eventually(lambda: mixed.is_ready("DNSZone", "example.org", "PartialReconciliation"), timeout=120)
        assert "frozen" in (await mixed.ready("DNSZone", "example.org"))[2]
        await eventually(lambda: mixed.is_ready("A", "www", "ReconcileFailed"), timeout=120)
        await strict.control("thaw example.org")
        await eventually(lambda: mixed.answers("www.example.org", "A", {"192.0.2.2"}), timeout=120)
        await eventually(lambda: mixed.is_ready("A", "www"), timeout=120)
