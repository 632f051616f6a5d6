"""What does not work out: what is served stays served meanwhile, and everybody hears of it and when it is over."""

from __future__ import annotations

import asyncio

import pytest

from steersman.kube.types.core import Secret
from steersman.operators.dns.zones import ZoneKeeper
from steersman.testing import eventually
from steersman.testing.zones import Site, serial, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
NOBODY = [{"selector": {"matchLabels": {"dns": "nobody"}}}]


@pytest.fixture
async def pair(embedded, client, dns_kinds, namespace, named):
    """A primary and a secondary."""
    async with named("ns1") as one, named("ns2", secret=one.secret) as two:
        made = Site(client, namespace, [one], [two])
        await made.instances()
        yield made


async def test_records_hear_that_their_zone_is_served_again(pair):
    await pair.zone("example.org")
    await pair.zone("2.0.192.in-addr.arpa")
    await pair.record("A", "www", ipv4Addresses=["192.0.2.1"], ptr=True)
    await pair.record("A", "plain", ipv4Addresses=["192.0.2.2"])
    async with pair.running():
        await eventually(lambda: pair.is_ready("ARecord", "www"), timeout=120)
        await eventually(lambda: pair.is_ready("ARecord", "plain"), timeout=120)
        for zone, reason in (
            ("example.org", "ZoneNotConfigured"),
            ("2.0.192.in-addr.arpa", "ReverseZoneNotConfigured"),
        ):
            await pair.zone(zone, bind9InstancesFrom=NOBODY)
            await eventually(lambda why=reason: pair.is_ready("ARecord", "www", why), timeout=120)
            await pair.zone(zone)
            await eventually(lambda: pair.is_ready("ARecord", "www"), timeout=20)
            await eventually(lambda: pair.is_ready("ARecord", "plain"), timeout=20)


async def test_a_zone_without_a_primary_goes_on_being_served_by_its_secondaries(pair):
    (two,) = pair.secondaries
    await pair.zone("example.org")
    await pair.record("A", "www", ipv4Addresses=["192.0.2.1"])
    async with pair.running():
        await eventually(lambda: pair.answers("www.example.org", "A", {"192.0.2.1"}), timeout=120)
        await eventually(lambda: pair.is_ready("DNSZone", "example.org"), timeout=120)
        await pair.delete("Bind9Instance", "primary-0")
        await eventually(lambda: pair.gone("Bind9Instance", "primary-0"), timeout=120)
        await eventually(lambda: pair.is_ready("DNSZone", "example.org", "NoPrimary"), timeout=120)
        assert await values(two, "www.example.org", "A") == {"192.0.2.1"}
        await pair.instance("primary-0", "primary", pair.primaries[0])
        await eventually(lambda: pair.is_ready("DNSZone", "example.org"), timeout=120)
        assert await pair.answers("www.example.org", "A", {"192.0.2.1"})


async def test_a_reverse_zone_that_could_not_be_served_at_first_still_waits_for_everybody_s_word(pair, monkeypatch):
    await pair.zone("example.org")
    await pair.zone("2.0.192.in-addr.arpa")
    await pair.record("A", "www", ipv4Addresses=["192.0.2.1"], ptr=True)
    async with pair.running():
        await eventually(lambda: pair.is_ready("ARecord", "www"), timeout=120)
    await pair.zone("2.0.192.in-addr.arpa", bind9InstancesFrom=NOBODY)
    reconcile, heard = ZoneKeeper.reconcile, asyncio.Event()

    async def slowly(keeper, ctx, zone):
        if zone.name == "example.org":
            await heard.wait()
        return await reconcile(keeper, ctx, zone)

    monkeypatch.setattr(ZoneKeeper, "reconcile", slowly)
    async with pair.running() as manager:
        await eventually(lambda: pair.is_ready("DNSZone", "2.0.192.in-addr.arpa", "NoInstances"), timeout=120)
        tally = manager.engine("dns-zones").tally
        looks = tally.results["requeue_after"]
        await pair.zone("2.0.192.in-addr.arpa")
        await eventually(lambda: tally.results["requeue_after"] > looks + 3, "several looks", timeout=120)
        assert await serial(pair.primaries[0], "2.0.192.in-addr.arpa") is None
        heard.set()
        wanted = {"www.example.org."}
        await eventually(lambda: pair.answers("1.2.0.192.in-addr.arpa", "PTR", wanted), timeout=120)


async def test_a_record_of_a_zone_that_nobody_is_to_serve_goes_when_it_is_deleted_and_its_pointers_with_it(pair):
    await pair.zone("example.org")
    await pair.zone("2.0.192.in-addr.arpa")
    await pair.record("A", "www", ipv4Addresses=["192.0.2.1"], ptr=True)
    async with pair.running():
        await eventually(lambda: pair.is_ready("ARecord", "www"), timeout=120)
        await pair.zone("example.org", bind9InstancesFrom=NOBODY)
        await eventually(lambda: pair.is_ready("ARecord", "www", "ZoneNotConfigured"), timeout=120)
        await pair.delete("ARecord", "www")
        await eventually(lambda: pair.gone("ARecord", "www"), timeout=20)
        assert await pair.answers("1.2.0.192.in-addr.arpa", "PTR", set(), pair.primaries)


async def test_a_deleted_record_waits_for_a_primary_that_a_new_process_cannot_ask_yet(pair):
    one = pair.primaries[0]
    await pair.zone("example.org", annotations={"steersman.dev/dns-drift": "report"})
    await pair.record("A", "www", ipv4Addresses=["192.0.2.1"])
    async with pair.running():
        await eventually(lambda: pair.is_ready("ARecord", "www"), timeout=120)
    await pair.client.delete(Secret, "primary-0-key", namespace=pair.namespace)
    await pair.delete("ARecord", "www")
    async with pair.running():
        await eventually(lambda: pair.is_ready("DNSZone", "example.org", "KeyMissing"), timeout=120)
        await pair.key("primary-0-key", one)
        await eventually(lambda: pair.gone("ARecord", "www"), timeout=120)
        await eventually(lambda: pair.answers("www.example.org", "A", set(), [one]), timeout=30)


async def test_b10_what_is_said_about_signing_keys_and_has_no_effect_is_named_in_a_condition(
    embedded, client, dns_kinds, namespace
):
    site = Site(client, namespace, [])
    asked = {"keysFrom": {"secretRef": {"name": "bindy-keys"}}, "exportToSecret": True, "autoGenerate": False}

    async def ignored():
        rows = (await site.get("Bind9Instance", "made")).status.conditions
        return next((row.message for row in rows if row.type == "Ignored"), "")

    async with site.running():
        for more, named in ((asked, asked), ({"autoGenerate": True, "exportToSecret": False}, {}), ({}, {})):
            signing = {"enabled": True, **more}
            spec = {"clusterRef": "", "role": "primary", "config": {"dnssec": {"signing": signing}}}
            made = await site.apply("Bind9Instance", "made", spec)
            generation = made["metadata"]["generation"]
            await eventually(lambda g=generation: seen(site, g), timeout=120)
            message = await ignored()
            assert bool(message) == bool(named)
            assert all(field in message for field in named), message


async def seen(site, generation):
    status = (await site.get("Bind9Instance", "made")).status
    return status is not None and status.observed_generation == generation
