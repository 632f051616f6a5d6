"""Zones on real name servers: created, changed, followed, repaired, lost and found, and removed."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import dns.dnssec
import dns.rcode
import dns.rdata
import pytest

from steersman.kube.api.types import Event
from steersman.testing import RequestLog, eventually
from tests.support.dns.zones import Site, ask, exchange, rogue, serial, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SOON = timedelta(seconds=1)


@pytest.fixture
async def pair(cluster, client, dns_kinds, namespace, named):
    """Two primaries and a secondary, which share their transfer key."""
    async with named("ns1") as ns1, named("ns2", secret=ns1.secret) as ns2, named("ns3", secret=ns1.secret) as ns3:
        made = Site(client, namespace, [ns1, ns2], [ns3])
        await made.instances()
        yield made


async def test_primaries_agree_on_every_serial_secondaries_follow_and_a_lost_disk_never_shows(pair):
    one, two, three = pair.servers
    await pair.zone("example.org")
    async with pair.running(drift_period=SOON, not_ready=SOON, server_pause=SOON):
        await pair.record("A", "www", ipv4Addresses=["192.0.2.1"])
        await eventually(lambda: pair.answers("www.example.org", "A", {"192.0.2.1"}), timeout=120)
        for number in range(3):
            await pair.record("TXT", f"t{number}", text=[str(number)])
        for number in range(3):
            await eventually(lambda n=number: pair.answers(f"t{n}.example.org", "TXT", {f'"{n}"'}), timeout=120)

        async def agreed():
            found = {await serial(server, "example.org") for server in pair.servers}
            zone = await pair.get("DNSZone", "example.org")
            return zone.status is not None and found == {zone.status.serial}

        await eventually(agreed, "all serve the serial in the status", timeout=120)
        before = await serial(one, "example.org")
        await two.kill()
        two.wipe()
        await pair.record("A", "www", ipv4Addresses=["192.0.2.2"])
        await eventually(lambda: pair.answers("www.example.org", "A", {"192.0.2.2"}, [one, three]), timeout=120)
        assert not await pair.is_ready("A", "www")
        seen = []
        stop = asyncio.Event()

        async def watch():
            while not stop.is_set():
                seen.append((await values(two, "www.example.org", "A"), await serial(two, "example.org")))
                await asyncio.sleep(0.01)

        watcher = asyncio.create_task(watch())
        try:
            await two.start()
            await eventually(lambda: pair.answers("www.example.org", "A", {"192.0.2.2"}), timeout=120)
            await eventually(agreed, timeout=120)
        finally:
            stop.set()
            await watcher
        assert {frozenset(found) for found, _ in seen if found is not None} <= {frozenset({"192.0.2.2"})}
        assert all(number >= before for _, number in seen if number is not None)
        await eventually(lambda: pair.is_ready("A", "www"), timeout=120)
        await eventually(lambda: pair.is_ready("DNSZone", "example.org"), timeout=120)


async def test_drift_is_repaired_reported_or_left_alone_as_the_zone_says(site):
    (one,) = site.primaries
    for mode in ("repair", "report", "off"):
        await site.zone(f"{mode}.test", annotations={"steersman.dev/dns-drift": mode})
        await site.record("A", f"www-{mode}", zone=f"{mode}.test", owner="www", ipv4Addresses=["192.0.2.1"])
    async with site.running(drift_period=SOON):
        for mode in ("repair", "report", "off"):
            await eventually(lambda m=mode: site.answers(f"www.{m}.test", "A", {"192.0.2.1"}), timeout=120)
            await eventually(lambda m=mode: site.is_ready("DNSZone", f"{m}.test"), timeout=120)
            await rogue(one, f"{mode}.test", ("add", "rogue", 60, "A", "203.0.113.1"), ("delete", "www"))
        await eventually(lambda: site.answers("rogue.repair.test", "A", ()), timeout=120)
        await eventually(lambda: site.answers("www.repair.test", "A", {"192.0.2.1"}), timeout=120)

        async def told():
            events = (await site.client.list(Event, namespace=site.namespace)).items
            return {(event.involved_object.name, event.reason) for event in events if event.reason.startswith("Drift")}

        await eventually(
            lambda: _has(told, ("repair.test", "DriftRepaired"), ("report.test", "DriftFound")), timeout=60
        )
        assert ("report.test", "DriftRepaired") not in await told()
        assert not [row for row in await told() if row[0] == "off.test"]
        assert await values(one, "rogue.report.test", "A") == {"203.0.113.1"}
        assert await values(one, "rogue.off.test", "A") == {"203.0.113.1"}
        # a change of ours goes through all the same
        for mode in ("report", "off"):
            await site.record("A", f"www-{mode}", zone=f"{mode}.test", owner="www", ipv4Addresses=["192.0.2.2"])
            await eventually(lambda m=mode: site.answers(f"www.{m}.test", "A", {"192.0.2.2"}), timeout=120)
        assert await values(one, "rogue.report.test", "A") == {"203.0.113.1"}


async def _told(site, name, reason):
    events = (await site.client.list(Event, namespace=site.namespace)).items
    return (name, reason) in {(event.involved_object.name, event.reason) for event in events}


async def _has(told, *rows):
    return set(rows) <= await told()


async def test_changes_of_the_start_of_authority_name_servers_and_transfer_lists_reach_running_servers(site):
    (one,) = site.primaries
    await site.zone("example.org")
    async with site.running():
        await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
        servers = [
            {"hostname": "ns1.example.org.", "ipv4Address": "192.0.2.54"},
            {"hostname": "ns9.example.net."},
        ]
        await site.zone("example.org", soa={"refresh": 7200, "adminEmail": "dns.team@example.org"}, nameServers=servers)
        await eventually(
            lambda: site.answers("example.org", "NS", {"ns1.example.org.", "ns9.example.net."}), timeout=60
        )
        await eventually(lambda: site.answers("ns1.example.org", "A", {"192.0.2.54"}), timeout=120)

        async def told():
            (soa,) = await values(one, "example.org", "SOA") or [""]
            return (soa.split() or [""])[1:4:2] == [r"dns\.team.example.org.", "7200"]

        await eventually(told, "the mailbox and the time that were asked for", timeout=120)
        await site.instances(config={"allowTransfer": ["127.0.0.1"]})

        async def transferred():
            answer = await exchange(one, _axfr("example.org"))
            return answer.rcode() == 0 and answer.answer

        await eventually(transferred, "a transfer without a key", timeout=120)


def _axfr(zone):
    import dns.message

    return dns.message.make_query(zone, "AXFR")


async def test_a_deleted_zone_is_gone_everywhere_and_what_cannot_be_removed_lets_go_after_its_grace(pair):
    await pair.zone("example.org")
    await pair.zone("stuck.test")
    await pair.record("A", "www", zone="stuck.test", ipv4Addresses=["192.0.2.1"])
    async with pair.running(deletion_grace=timedelta(seconds=3)):
        for zone in ("example.org", "stuck.test"):
            await eventually(lambda z=zone: pair.is_ready("DNSZone", z), timeout=120)
        await pair.delete("DNSZone", "example.org")
        await eventually(lambda: pair.gone("DNSZone", "example.org"), timeout=120)
        for server in pair.servers:
            await eventually(lambda s=server: _refuses(s, "example.org"), timeout=120)
        await eventually(lambda: pair.is_ready("A", "www"), timeout=120)
        await pair.primaries[1].kill()
        await pair.delete("A", "www")
        await eventually(lambda: pair.gone("A", "www"), timeout=120)
        await eventually(lambda: _told(pair, "www", "RecordLeftBehind"), timeout=120)
        await pair.delete("DNSZone", "stuck.test")
        await eventually(lambda: pair.gone("DNSZone", "stuck.test"), timeout=120)
        await eventually(lambda: _refuses(pair.primaries[0], "stuck.test"), timeout=120)


async def _refuses(server, zone):
    return (await ask(server, zone, "SOA")).rcode() == dns.rcode.REFUSED


async def test_an_instance_that_is_no_longer_selected_stops_serving_and_a_younger_namesake_takes_over(pair):
    one, two, _ = pair.servers
    await pair.zone("example.org", "elder")
    async with pair.running():
        await eventually(lambda: pair.is_ready("DNSZone", "elder"), timeout=120)
        await pair.zone("Example.org", "younger", ttl=77)
        await eventually(lambda: pair.is_ready("DNSZone", "younger", "DuplicateZone"), timeout=120)
        await pair.instance("primary-1", "primary", two, labels={"dns": "other"})
        await eventually(lambda: _refuses(two, "example.org"), "it no longer serves the zone", timeout=120)
        assert await serial(one, "example.org")
        await pair.delete("DNSZone", "elder")
        await eventually(lambda: pair.gone("DNSZone", "elder"), timeout=120)
        await eventually(lambda: pair.is_ready("DNSZone", "younger"), timeout=120)
        assert await serial(one, "example.org")


async def test_a_quiet_operator_writes_nothing_to_the_api_and_nothing_to_servers(site, cluster):
    await site.zone("example.org")
    await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
    await site.record("CNAME", "bad", owner="www", target="x.example.net.")
    async with site.running(drift_period=timedelta(milliseconds=300)) as manager:
        await eventually(lambda: site.is_ready("A", "www"), timeout=120)
        await eventually(lambda: site.is_ready("CNAME", "bad", "CNAMEConflict"), timeout=120)
        await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
        await eventually(lambda: site.is_ready("Bind9Instance", "primary-0"), timeout=120)
        tally = manager.runner("dns-zones").tally

        async def quiet():
            number = await serial(site.primaries[0], "example.org")
            with RequestLog(site.client) as log:
                await _looks(tally, 15)
            assert log.writes == []
            assert await serial(site.primaries[0], "example.org") == number
            return True

        # What was under way when the last condition came may still be written; after that, nothing ever is.
        await eventually(quiet, "fifteen looks without a write", timeout=300)


async def _looks(tally, count):
    before = tally.results["requeue_after"]
    await eventually(lambda: tally.results["requeue_after"] > before + count, f"{count} looks at the zone", timeout=120)


async def test_a_signed_zone_shows_what_its_parent_needs_and_new_records_are_signed(site):
    (one,) = site.primaries
    await site.zone("example.org", dnssecPolicy="default")
    async with site.running(drift_period=SOON):
        await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
        await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.1"}), timeout=120)

        async def shown():
            zone = await site.get("DNSZone", "example.org")
            found = await values(one, "example.org", "DNSKEY")
            if not (zone.status and zone.status.dnssec and zone.status.dnssec.signed and found):
                return False
            rows: list = [dns.rdata.from_text("IN", "DNSKEY", text) for text in found]
            wanted = {dns.dnssec.make_ds("example.org.", row, "SHA256").to_text() for row in rows if row.flags & 1}
            return set(zone.status.dnssec.ds_records) == wanted

        await eventually(shown, "the DS records of its keys", timeout=120)
        await site.record("A", "more", ipv4Addresses=["192.0.2.2"])
        await eventually(lambda: site.answers("more.example.org", "A", {"192.0.2.2"}), timeout=120)
        await eventually(lambda: values(one, "more.example.org", "RRSIG"), "it is signed", timeout=120)
        await eventually(lambda: site.is_ready("A", "more"), timeout=120)
