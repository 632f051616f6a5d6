"""What resources say beside Ready, and by what an operator that never looks by itself is woken."""

from __future__ import annotations

from base64 import b64encode
from datetime import timedelta

import pytest

from steersman.kube.api.types import Event
from steersman.operators.dns.api.servers import Bind9Instance
from steersman.testing import eventually
from tests.support.dns.zones import Site, rogue, serial, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
NEVER = timedelta(hours=10)
SECRETS = {word: b64encode(word.encode() * 8).decode() for word in ("right", "wrong")}
UPDATER = f'key "updater" {{ algorithm hmac-sha256; secret "{SECRETS["right"]}"; }};'


@pytest.fixture
async def site(embedded, client, dns_kinds, namespace, ns1):
    """One primary."""
    made = Site(client, namespace, [ns1])
    await made.instances()
    return made


async def says(site, kind, name, condition):
    """Reason and message of a condition; None when there is none."""
    found = await site.get(kind, name)
    rows = [row for row in (found.status.conditions if found.status else None) or () if row.type == condition]
    return (rows[0].reason, rows[0].message) if rows else None


async def test_of_two_ttls_the_lower_is_served_and_the_other_record_says_so_while_it_lasts(site):
    await site.zone("example.org")
    await site.record("A", "low", owner="www", ttl=60, ipv4Addresses=["192.0.2.1"])
    await site.record("A", "high", owner="www", ttl=600, ipv4Addresses=["192.0.2.2"])
    await site.record("A", "none", owner="www", ipv4Addresses=["192.0.2.3"])
    async with site.running(drift_period=NEVER, not_ready=NEVER):
        for name in ("high", "none"):
            reason, message = await eventually(lambda n=name: says(site, "A", n, "TTLMismatch"), timeout=60)
            assert reason == "TTLMismatch"
            assert "served with TTL 60" in message
            assert await site.is_ready("A", name)
        assert await says(site, "A", "low", "TTLMismatch") is None
        await site.delete("A", "low")

        async def over(name):
            return await says(site, "A", name, "TTLMismatch") is None

        await eventually(lambda: over("none"), timeout=60)
        assert await says(site, "A", "high", "TTLMismatch")  # the zone's own TTL is lower still
        await site.delete("A", "none")
        await eventually(lambda: over("high"), timeout=60)


async def test_a_record_that_two_zones_select_is_the_older_s_and_says_so_until_one_of_them_is_gone(site):
    both = [{"selector": {"matchLabels": {"zone": "both"}}}]
    await site.zone("example.org", recordsFrom=both)

    async def older():
        return (await site.get("DNSZone", "example.org")).metadata.creation_timestamp

    first = await older()

    async def younger():  # the clock of creation has seconds
        await site.delete("DNSZone", "example.net")
        await site.zone("example.net", recordsFrom=both)
        return (await site.get("DNSZone", "example.net")).metadata.creation_timestamp > first

    await eventually(younger, timeout=60)
    await site.record("A", "www", zone="both", ipv4Addresses=["192.0.2.1"])
    async with site.running(drift_period=NEVER, not_ready=NEVER):
        reason, message = await eventually(lambda: says(site, "A", "www", "Conflict"), timeout=60)
        assert reason == "SelectedByMultipleZones"
        assert "example.net" in message
        await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.1"}), timeout=60)
        await eventually(lambda: site.is_ready("DNSZone", "example.net"), timeout=60)
        assert await site.answers("www.example.net", "A", ())
        await site.delete("DNSZone", "example.org")
        await eventually(lambda: site.answers("www.example.net", "A", {"192.0.2.1"}), timeout=60)

        async def over():
            return await says(site, "A", "www", "Conflict") is None and await site.is_ready("A", "www")

        await eventually(over, timeout=60)


async def test_an_instance_selects_zones_and_lets_them_go_when_it_no_longer_does(
    embedded, client, dns_kinds, namespace, ns1
):
    site = Site(client, namespace, [ns1])
    await site.zone("example.org", bind9InstancesFrom=[])
    async with site.running(drift_period=NEVER, not_ready=NEVER):
        await eventually(lambda: site.is_ready("DNSZone", "example.org", "NoInstances"), timeout=60)
        chosen = [{"selector": {"matchExpressions": [{"key": "dns", "operator": "DoesNotExist"}]}}]
        await site.instance("primary-0", "primary", ns1, zonesFrom=chosen)
        await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=60)
        assert await site.answers("example.org", "NS", {"ns1.example.org."})
        nobody = [{"selector": {"matchLabels": {"dns": "nobody"}}}]
        await site.instance("primary-0", "primary", ns1, zonesFrom=nobody)
        await eventually(lambda: site.is_ready("DNSZone", "example.org", "NoInstances"), timeout=60)

        async def let_go():
            return await values(ns1, "example.org", "SOA") is None

        await eventually(let_go, timeout=60)


async def test_a_key_that_is_put_right_is_used_at_once(embedded, client, dns_kinds, namespace, named):
    async def key(word):
        data = {"key-name": "updater", "algorithm": "hmac-sha256", "secret": SECRETS[word]}
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "updater", "namespace": namespace},
            "data": {field: b64encode(value.encode()).decode() for field, value in data.items()},
        }
        await client.apply(body, field_manager="test", force=True)

    async with named("ns1", extra=UPDATER) as server:
        site = Site(client, namespace, [server])
        await site.instances(updateKey={"secretRef": {"name": "updater"}})
        await key("right")
        await site.zone("example.org")
        # The next try by itself would be after 60 s, and the instance is fine all the time: it is controlled otherwise.
        async with site.running(drift_period=NEVER, fixed_backoff=True):
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=50)
            await eventually(lambda: site.is_ready("Bind9Instance", "primary-0"), timeout=50)
            await key("wrong")
            await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
            await eventually(lambda: site.is_ready("DNSZone", "example.org", "PrimaryFailed"), timeout=50)
            await key("right")
            await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.1"}), timeout=50)
            await eventually(lambda: site.is_ready("A", "www"), timeout=50)


async def test_more_changes_than_fit_into_a_message_take_a_serial_each_and_end_at_one_on_all_primaries(
    embedded, client, dns_kinds, namespace, named
):
    async with named("ns1") as ns1, named("ns2", secret=ns1.secret) as ns2:
        site = Site(client, namespace, [ns1, ns2])
        await site.instances()
        await site.zone("example.org")
        for number in range(40):
            await site.record("TXT", f"t{number}", zone="later", values=[[f"{number} {row}" * 20] for row in range(40)])
        async with site.running(drift_period=NEVER, not_ready=NEVER):
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=60)
            before = await serial(ns1, "example.org")
            await site.zone("example.org", recordsFrom=[{"selector": {"matchLabels": {"zone": "later"}}}])
            for number in range(40):
                await eventually(lambda n=number: site.is_ready("TXT", f"t{n}"), timeout=60)
                found = [await values(server, f"t{number}.example.org", "TXT") for server in site.servers]
                assert [len(rows) for rows in found] == [40, 40]
            after = (await site.get("DNSZone", "example.org")).status.serial
            assert after > before + 1
            assert [await serial(server, "example.org") for server in site.servers] == [after, after]
            for server in site.servers:  # a serial that named would not take is made up for, but not in the first place
                assert "prerequisite not satisfied" not in (server.folder / "log").read_text()


async def test_a_server_that_has_no_way_to_the_first_copy_of_a_zone_is_reported_to_need_file_access(
    embedded, client, dns_kinds, namespace, named
):
    async with named("ns1", options="transfer-source 192.0.2.77;") as server:  # an address that nobody has
        site = Site(client, namespace, [server])
        await site.instances()
        await site.zone("example.org")
        async with site.running(request_timeout=timedelta(seconds=2)):
            await eventually(lambda: site.is_ready("DNSZone", "example.org", "ZoneFileAccess"), timeout=120)
            assert "spec.zoneDirectory" in (await site.ready("DNSZone", "example.org"))[2]
            await site.instances(zoneDirectory=str(server.zones))
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
            assert await site.answers("example.org", "NS", {"ns1.example.org."})


async def test_a_zone_with_the_longest_name_there_is_has_a_file_and_a_journal(site):
    name = ".".join(["x" * 61] * 4)[:247] + ".test"
    await site.zone(name, "long", soa={"primaryNs": "ns1.example.net.", "adminEmail": "a.example.net."}, nameServers=[])
    async with site.running(drift_period=NEVER):
        await eventually(lambda: site.is_ready("DNSZone", "long"), timeout=60)
        await site.record("A", "www", zone="long", owner="@", ipv4Addresses=["192.0.2.1"])
        await eventually(lambda: site.answers(name, "A", {"192.0.2.1"}), timeout=60)
        await site.delete("DNSZone", "long")
        await eventually(lambda: site.gone("DNSZone", "long"), timeout=60)


@pytest.mark.parametrize("field", ["recordsFrom", "bind9InstancesFrom"])
async def test_a_selector_that_cannot_be_read_is_named_and_takes_nothing_away(site, field):
    await site.zone("example.org")
    await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
    async with site.running():
        await eventually(lambda: site.is_ready("A", "www"), timeout=120)
        await site.zone("example.org", **{field: [{"selector": {"matchLabels": {"no label": "x"}}}]})
        await eventually(lambda: site.is_ready("DNSZone", "example.org", "InvalidSelector"), timeout=120)
        _, _, message = await site.ready("DNSZone", "example.org")
        assert f"spec.{field}[0].selector" in message
        assert await site.answers("www.example.org", "A", {"192.0.2.1"})
        await site.zone("example.org")
        await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
        await site.record("A", "www", ipv4Addresses=["192.0.2.2"])
        await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.2"}), timeout=120)


@pytest.mark.parametrize("first", [False, True], ids=["from its start", "later"])
async def test_a_policy_that_a_server_does_not_know_is_named_with_its_field(site, first):
    async with site.running():
        if first:
            await site.zone("example.org")
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
        await site.zone("example.org", dnssecPolicy="nobodys")
        await eventually(lambda: site.is_ready("DNSZone", "example.org", "PrimaryFailed"), timeout=120)
        _, _, message = await site.ready("DNSZone", "example.org")
        for word in ("example.org", "nobodys", "spec.dnssecPolicy"):
            assert word in message


async def told(site, name, reason):
    """What was said about an object by Events of a reason."""
    rows = (await site.client.list(Event, namespace=site.namespace)).items
    return [row.message for row in rows if (row.involved_object.name, row.reason) == (name, reason)]


async def test_drift_that_is_only_reported_stays_reported_until_it_is_gone_and_repaired_as_soon_as_it_may_be(site, ns1):
    await site.zone("example.org", annotations={"steersman.dev/dns-drift": "report"})
    async with site.running(drift_period=timedelta(seconds=1)):
        await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
        assert await says(site, "DNSZone", "example.org", "Drift") is None
        await rogue(ns1, "example.org", ("add", "rogue", 60, "A", "192.0.2.9"))
        found = await eventually(lambda: says(site, "DNSZone", "example.org", "Drift"), timeout=120)
        assert "rogue.example.org" in found[1]
        assert not await told(site, "example.org", "DriftRepaired")
        await site.zone("example.org")
        await eventually(lambda: site.answers("rogue.example.org", "A", ()), timeout=120)
        (text,) = await eventually(lambda: told(site, "example.org", "DriftRepaired"), timeout=30)
        assert "rogue.example.org" in text

        async def silent():
            return await says(site, "DNSZone", "example.org", "Drift") is None

        await eventually(silent, timeout=120)


async def test_a_record_that_is_refused_from_its_start_says_so_by_an_event_and_what_it_has_seen(site):
    await site.zone("example.org")
    await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
    async with site.running():
        await eventually(lambda: site.is_ready("A", "www"), timeout=120)
        await site.record("CNAME", "bad", owner="www", target="x.example.net.")
        await eventually(lambda: site.is_ready("CNAME", "bad", "CNAMEConflict"), timeout=120)
        assert await eventually(lambda: told(site, "bad", "CNAMEConflict"), timeout=120)
        bad = await site.get("CNAME", "bad")
        assert bad.status.observed_generation == bad.metadata.generation
        assert not await told(site, "www", "ReconcileSucceeded")


async def test_a_record_that_keeps_another_out_beside_a_cname_says_so_while_it_does(site):
    await site.zone("example.org")
    await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
    async with site.running():
        await eventually(lambda: site.is_ready("A", "www"), timeout=120)
        await site.record("CNAME", "bad", owner="www", target="x.example.net.")
        reason, text = await eventually(lambda: says(site, "A", "www", "Conflict"), timeout=120)
        assert reason == "CNAMEConflict"
        assert "cnamerecord/bad" in text
        assert await site.is_ready("A", "www")  # it is published all the same
        await site.delete("CNAME", "bad")

        async def silent():
            return await says(site, "A", "www", "Conflict") is None

        await eventually(silent, timeout=120)


async def test_what_a_zone_asks_for_and_comes_to_nothing_is_named(site):
    await site.zone("example.org", annotations={"steersman.dev/dns-drift": "bogus"}, clusterRef="ghost")
    async with site.running():
        await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
        assert "ghost" in (await site.ready("DNSZone", "example.org"))[2]
        assert 'unknown mode "bogus"' in (await says(site, "DNSZone", "example.org", "Ignored"))[1]
        assert len(await eventually(lambda: told(site, "example.org", "Ignored"), timeout=120)) == 1


async def test_a_server_that_dies_is_reported_by_one_event_on_its_instance(site, ns1):
    await site.zone("example.org")
    await site.zone("example.net", recordsFrom=[])
    async with site.running(drift_period=timedelta(seconds=1), not_ready=timedelta(seconds=1)):
        for zone in ("example.org", "example.net"):
            await eventually(lambda name=zone: site.is_ready("DNSZone", name), timeout=120)
        (instance,) = (await site.client.list(Bind9Instance, namespace=site.namespace)).items
        await ns1.kill()
        assert len(await eventually(lambda: told(site, instance.name, "ServerAway"), timeout=60)) == 1
        await eventually(lambda: site.is_ready("Bind9Instance", instance.name, "NotReady"), timeout=60)

        async def left_alone():
            message = (await site.ready("Bind9Instance", instance.name))[2]
            return message if "failed 5 times" in message else ""

        assert (await eventually(left_alone, timeout=60)).count(f"{instance.name}/0: ") == 1
        assert len(await told(site, instance.name, "ServerAway")) == 1
