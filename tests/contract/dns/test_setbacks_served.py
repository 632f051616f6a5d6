"""What does not work out: what is served stays served meanwhile, and everybody hears of it and when it is over."""

from __future__ import annotations

import asyncio

import pytest

from steersman.kube.api.errors import NotFound
from steersman.kube.api.types import Event
from steersman.kube.api.types.core import Secret
from steersman.operators.dns.api.zone import DNSZone
from steersman.operators.dns.controllers.zone import ZoneReconciler
from steersman.testing import eventually
from tests.support.dns.zones import Site, serial, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
NOBODY = [{"selector": {"matchLabels": {"dns": "nobody"}}}]


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


SILENT = {  # what the zone says of its name servers, and who says otherwise -> name, type and reason of what is missing
    "no address": (
        [{"hostname": "ns1.example.org.", "ipv4Address": "192.0.2.53"}, {"hostname": "ns2.example.org."}],
        (),
        ("example.org", "NS", "MissingAddress"),
    ),
    "a delegation above": (
        [
            {"hostname": "ns1.example.org.", "ipv4Address": "192.0.2.53"},
            {"hostname": "ns.sub.example.org.", "ipv4Address": "192.0.2.54"},
        ],
        ("NS", "sub", {"nameserver": "ns.example.net."}),
        ("ns.sub.example.org", "A", "Occluded"),
    ),
}


@pytest.mark.parametrize("case", SILENT)
async def test_a_zone_says_what_of_its_own_data_is_not_served_and_everything_else_is(pair, case):
    servers, other, missing = SILENT[case]
    await pair.zone("example.org", nameServers=servers)
    await pair.record("A", "www", ipv4Addresses=["192.0.2.1"])
    if other:
        kind, name, spec = other
        await pair.record(kind, name, **spec)
    async with pair.running():
        await eventually(lambda: pair.is_ready("DNSZone", "example.org", missing[2]), timeout=120)
        assert "spec.nameServers" in (await pair.ready("DNSZone", "example.org"))[2]
        rows = (await pair.get("DNSZone", "example.org")).status.conflicts
        assert [(row.name, row.type, row.reason) for row in rows] == [missing]
        await eventually(lambda: pair.answers("www.example.org", "A", {"192.0.2.1"}), timeout=120)
        await eventually(lambda: pair.is_ready("A", "www"), timeout=120)
        await pair.zone("example.org")
        await eventually(lambda: pair.is_ready("DNSZone", "example.org"), timeout=120)
        assert (await pair.get("DNSZone", "example.org")).status.conflicts is None


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


async def test_a_reverse_zone_that_could_not_be_served_at_first_still_waits_for_every_server(pair, monkeypatch):
    await pair.zone("example.org")
    await pair.zone("2.0.192.in-addr.arpa")
    await pair.record("A", "www", ipv4Addresses=["192.0.2.1"], ptr=True)
    async with pair.running():
        await eventually(lambda: pair.is_ready("ARecord", "www"), timeout=120)
    await pair.zone("2.0.192.in-addr.arpa", bind9InstancesFrom=NOBODY)
    reconcile, heard = ZoneReconciler.reconcile, asyncio.Event()

    async def slowly(keeper, ctx, zone):
        if zone.name == "example.org":
            await heard.wait()
        return await reconcile(keeper, ctx, zone)

    monkeypatch.setattr(ZoneReconciler, "reconcile", slowly)
    async with pair.running() as manager:
        await eventually(lambda: pair.is_ready("DNSZone", "2.0.192.in-addr.arpa", "NoInstances"), timeout=120)
        tally = manager.runner("dns-zones").tally
        looks = tally.results["requeue_after"]
        await pair.zone("2.0.192.in-addr.arpa")
        await eventually(lambda: tally.results["requeue_after"] > looks + 3, "several looks", timeout=120)
        assert await serial(pair.primaries[0], "2.0.192.in-addr.arpa") is None
        heard.set()
        wanted = {"www.example.org."}
        await eventually(lambda: pair.answers("1.2.0.192.in-addr.arpa", "PTR", wanted), timeout=120)


async def test_a_record_of_a_zone_that_no_server_is_to_serve_goes_when_it_is_deleted_and_its_pointers_with_it(pair):
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


async def test_an_empty_selector_is_taken_at_its_word_and_warned_about(pair):
    await pair.zone("example.org", recordsFrom=[{"selector": {}}])
    await pair.zone("example.net")
    await pair.record("A", "www", zone="whatever", ipv4Addresses=["192.0.2.1"])
    async with pair.running():
        await eventually(lambda: pair.answers("www.example.org", "A", {"192.0.2.1"}), timeout=120)
        await eventually(lambda: pair.is_ready("DNSZone", "example.net"), timeout=120)

        async def told():
            rows = (await pair.client.list(Event, namespace=pair.namespace)).items
            found = [row for row in rows if row.reason == "EmptySelector"]
            return {(row.involved_object.name, row.type, row.message.partition(":")[0]) for row in found}

        assert await eventually(told, timeout=60) == {("example.org", "Warning", "spec.recordsFrom")}


async def test_an_instance_with_an_address_that_is_none_costs_a_zone_no_other_server(pair):
    wrong = {"role": "primary", "endpoints": [{"address": "dead"}], "rndcKey": {"secretRef": {"name": "primary-0-key"}}}
    await pair.apply("Bind9Instance", "wrong", {"clusterRef": "", **wrong}, labels={"dns": "test"})
    await pair.zone("example.org", nameServers=None)
    await pair.record("A", "www", ipv4Addresses=["192.0.2.1"])
    async with pair.running():
        await eventually(lambda: pair.answers("www.example.org", "A", {"192.0.2.1"}), timeout=120)
        await eventually(lambda: pair.is_ready("Bind9Instance", "wrong", "ConfigurationInvalid"), timeout=120)
        await eventually(lambda: pair.is_ready("DNSZone", "example.org", "ConfigurationInvalid"), timeout=120)


SAID = [  # about signing, by an instance -> a condition of it, and words that are in it
    ({}, ("SigningKeys", "True", "InSecret"), "bind9-signing-keys"),
    ({"keysFrom": {"secretRef": {"name": "bindy-keys"}}}, ("SigningKeys", "True", "InSecret"), "bindy-keys"),
    ({"exportToSecret": False}, ("SigningKeys", "False", "OnDisk"), "storage.storageType"),
    ({"zskLifetime": "30d"}, ("SigningKeys", "False", "OnDisk"), "exportToSecret has no effect"),
    ({"exportToSecret": False, "autoGenerate": False}, ("SigningKeys", "False", "KeysMissing"), "keysFrom.secretRef"),
    ({"enabled": False}, None, ""),
]


async def test_b10_an_instance_says_where_its_signing_keys_are_and_an_existing_server_what_has_no_effect(
    embedded, client, dns_kinds, namespace
):
    site = Site(client, namespace, [])

    async def said(name):
        status = (await site.get("Bind9Instance", name)).status
        rows = (status.conditions if status is not None else None) or ()
        found = [row for row in rows if row.type in ("SigningKeys", "Ignored")]
        return [((row.type, row.status, row.reason), row.message) for row in found]

    async with site.running():
        for more, row, words in SAID:
            spec = {"clusterRef": "", "role": "primary", "config": {"dnssec": {"signing": {"enabled": True, **more}}}}
            made = await site.apply("Bind9Instance", "made", spec)
            await eventually(lambda g=made["metadata"]["generation"]: seen(site, "made", g), timeout=120)
            assert [one for one, _ in await said("made")] == ([row] if row else [])
            assert all(words in text for _, text in await said("made"))
        held = await client.get(Secret, "bind9-signing-keys", namespace=namespace)
        assert not held.data
        assert not held.metadata.owner_references  # keys outlive who made them
        signing = {"keysFrom": {"secretRef": {"name": "bindy-keys"}}, "autoGenerate": False}
        there = {"endpoints": [{"address": "127.0.0.1"}], "rndcKey": {"secretRef": {"name": "none"}}}
        spec = {"clusterRef": "", "role": "primary", "config": {"dnssec": {"signing": signing}}, **there}
        await site.apply("Bind9Instance", "there", spec)

        async def ignored():
            found = await said("there")
            return found[0] if found else None

        row, text = await eventually(ignored, timeout=120)
        assert row == ("Ignored", "True", "NoEffect")
        assert "dnssec.signing.keysFrom, dnssec.signing.autoGenerate: false" in text


async def test_b10_a_lost_secret_of_keys_is_not_made_again_while_a_zone_is_known_by_them(
    embedded, client, dns_kinds, namespace
):
    site = Site(client, namespace, [])
    signing = {"enabled": True}
    spec = {"clusterRef": "", "role": "primary", "config": {"dnssec": {"signing": signing}}}
    await site.apply("Bind9Instance", "made", spec, labels={"dns": "test"})
    await site.zone("example.org", dnssecPolicy="bindy-default")
    known = {"status": {"dnssec": {"signed": True, "dsRecords": ["1 13 2 ab"], "signedBy": f"{namespace}/made"}}}
    await client.patch(DNSZone, "example.org", known, namespace=namespace, subresource="status")
    async with site.running():
        await eventually(lambda: seen(site, "made", 1), timeout=120)
        assert (await client.get(Secret, "made-rndc-key", namespace=namespace)).data
        with pytest.raises(NotFound):
            await client.get(Secret, "bind9-signing-keys", namespace=namespace)


async def seen(site, name, generation):
    status = (await site.get("Bind9Instance", name)).status
    return status is not None and status.observed_generation == generation
