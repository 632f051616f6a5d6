"""Zones that were there before us: nothing that nobody speaks for is lost, and what is ours goes with its resources."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from steersman.kube.api.types import Event
from steersman.operators.dns.api.records import ARecord
from steersman.operators.dns.api.zone import DNSZone
from steersman.operators.dns.inspect.offline import ZoneInspection, objects_of
from steersman.testing import eventually
from tests.support.dns.zones import Site, ask, rogue, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
START = """$TTL 300
@ IN SOA ns1.example.org. hostmaster.example.org. 5 3600 600 604800 60
@ IN NS ns1.example.org.
ns1 IN A 192.0.2.53
"""
STATIC = """
zone "example.org" {
  type primary; file "example.org.db"; allow-transfer { key operator; }; update-policy { grant operator zonesub ANY; };
};
"""
NOBODY = [{"selector": {"matchLabels": {"dns": "nobody"}}}]


@pytest.fixture
def existing(embedded, client, dns_kinds, namespace, named):
    """`async with existing(text) as site`: a primary that has the zone in its own configuration."""

    @asynccontextmanager
    async def made(text=START, new_zones=True, **spec):
        server = named("ns1", extra=STATIC, new_zones=new_zones)
        server.zones.mkdir(parents=True)
        (server.zones / "example.org.db").write_text(text)
        async with server:
            site = Site(client, namespace, [server])
            await site.instances(**spec)
            yield site

    return made


async def test_a_server_that_adds_no_zones_gets_records_into_its_own_and_of_others_it_says_what_to_do(existing):
    async with existing(new_zones=False) as site:
        await site.zone("example.org")
        await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
        await site.zone("new.example", recordsFrom=[])
        async with site.running():
            await eventually(lambda: site.is_ready("A", "www"), timeout=120)
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
            assert await site.answers("www.example.org", "A", {"192.0.2.1"})
            await eventually(lambda: site.is_ready("DNSZone", "new.example", "PrimaryFailed"), timeout=120)
            _, _, message = await site.ready("DNSZone", "new.example")
            for word in ("addzone new.example", "allow-new-zones yes", "recordsOnly: true"):
                assert word in message
            await site.delete("DNSZone", "example.org")  # named would drop the zone until its next start
            await eventually(lambda: site.gone("DNSZone", "example.org"), timeout=120)
            assert await site.answers("www.example.org", "A", ())
            assert await site.answers("ns1.example.org", "A", {"192.0.2.53"})


@pytest.mark.parametrize("spec", [{}, {"recordsOnly": True}], ids=["whole zones", "records only"])
@pytest.mark.parametrize("way", ["deleted", "not selected", "deleted while nobody looks"])
async def test_a_zone_of_the_server_s_own_configuration_stays_and_our_records_go(existing, spec, way):
    async with existing(**spec) as site:
        (server,) = site.servers
        await site.zone("example.org", annotations={"steersman.dev/dns-drift-ignore": "lease-*"})
        await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
        await site.record("TXT", "mine", owner="@", text=["mine"])
        await site.record("NS", "second", owner="@", nameserver="ns2.example.net.")
        async with site.running():
            for kind, name in (("A", "www"), ("TXT", "mine"), ("NS", "second"), ("DNSZone", "example.org")):
                await eventually(lambda k=kind, n=name: site.is_ready(k, n), f"{name} is ready", timeout=120)
            await rogue(server, "example.org", ("add", "lease-1", 60, "A", "192.0.2.9"))
            if way == "not selected":
                await site.zone("example.org", bind9InstancesFrom=NOBODY)
            elif way == "deleted":
                await site.delete("DNSZone", "example.org")
                await eventually(lambda: site.gone("DNSZone", "example.org"), timeout=120)
        if way == "deleted while nobody looks":
            await site.delete("DNSZone", "example.org")
        async with site.running():
            await eventually(lambda: site.answers("www.example.org", "A", ()), timeout=120)
            await eventually(lambda: site.answers("example.org", "TXT", ()), timeout=120)
            await eventually(lambda: site.answers("example.org", "NS", {"ns1.example.org."}), timeout=120)
            if way != "not selected":
                await eventually(lambda: site.gone("DNSZone", "example.org"), timeout=120)
        assert await values(server, "ns1.example.org", "A") == {"192.0.2.53"}
        assert await values(server, "lease-1.example.org", "A") == {"192.0.2.9"}
        await server.kill()
        await server.start()
        assert await values(server, "ns1.example.org", "A") == {"192.0.2.53"}


FOREIGN = (
    START
    + """
web IN A 192.0.2.80
alias IN CNAME web.example.org.
@ IN TXT "theirs"
@ IN MX 10 mail.example.net.
"""
)
THEIRS = {
    ("web.example.org", "A"): {"192.0.2.80"},
    ("alias.example.org", "CNAME"): {"web.example.org."},
    ("example.org", "TXT"): {'"theirs"'},
    ("example.org", "MX"): {"10 mail.example.net."},
}


async def kept(server):
    assert {place: await values(server, *place) for place in THEIRS} == THEIRS
    return True


@pytest.mark.parametrize("spec", [{}, {"recordsOnly": True}], ids=["whole zones", "records only"])
async def test_data_that_no_resource_declares_is_kept_and_named_until_the_user_decides(existing, client, spec):
    async with existing(FOREIGN, **spec) as site:
        (server,) = site.servers
        await site.zone("example.org")
        await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
        await site.record("TXT", "mine", owner="@", text=["mine"])  # there is another text at that name
        await site.record("A", "blocked", owner="alias", ipv4Addresses=["192.0.2.2"])
        await site.record("A", "gone", ipv4Addresses=["192.0.2.3"])

        async def told(reason):
            events = (await client.list(Event, namespace=site.namespace)).items
            return [row.message for row in events if row.reason == reason]

        async with site.running(drift_period=timedelta(seconds=1)):
            await eventually(lambda: site.is_ready("DNSZone", "example.org", "ForeignData"), timeout=120)
            message = (await site.ready("DNSZone", "example.org"))[2]
            assert "alias.example.org, example.org, web.example.org" in message
            assert all(way in message for way in ("dns import", "dns-drift-ignore", "dns-adopt"))
            assert await eventually(lambda: told("ForeignData"), timeout=120)
            for kind, name, reason in (
                ("A", "www", ""),
                ("TXT", "mine", "ForeignData"),
                ("A", "blocked", "ForeignData"),
            ):
                await eventually(lambda k=kind, n=name, r=reason: site.is_ready(k, n, r), timeout=120)
            await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.1"}), timeout=120)
            assert await kept(server)
            assert "3600 600 604800 60" in next(iter(await values(server, "example.org", "SOA")))
            await eventually(lambda: site.is_ready("A", "gone"), timeout=120)
            await site.delete("A", "gone")  # what resources bring they take away
            await eventually(lambda: site.answers("gone.example.org", "A", ()), timeout=120)
            await site.delete("TXT", "mine")  # what they never had a place for they leave alone
            await eventually(lambda: site.gone("TXT", "mine"), timeout=120)
        async with site.running():  # another process knows no more than the first
            await site.record("A", "www", ipv4Addresses=["192.0.2.4"])
            await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.4"}), timeout=120)
            assert await kept(server)
            assert await site.is_ready("DNSZone", "example.org", "ForeignData")
            # one part is imported, one is left to others, one goes
            await site.record("MX", "mail", owner="@", priority=10, mailServer="mail.example.net.")
            await site.record("TXT", "text", owner="@", text=["theirs"])
            await site.zone("example.org", annotations={"steersman.dev/dns-drift-ignore": "web"})
            await eventually(lambda: site.is_ready("TXT", "text"), timeout=120)

            async def one_left():
                message = (await site.ready("DNSZone", "example.org"))[2]
                return "has alias.example.org. Make records" in message

            await eventually(one_left, timeout=120)
            assert await kept(server)
            wanted = {"steersman.dev/dns-drift-ignore": "web", "steersman.dev/dns-adopt": "true"}
            await site.zone("example.org", annotations=wanted)
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
            await eventually(lambda: site.answers("alias.example.org", "CNAME", ()), timeout=120)
            await eventually(lambda: site.is_ready("A", "blocked"), timeout=120)
            assert await site.answers("web.example.org", "A", {"192.0.2.80"})
            assert "alias.example.org" in next(iter(await eventually(lambda: told("Adopted"), timeout=120)))
        await site.zone("example.org", annotations={"steersman.dev/dns-drift-ignore": "web"})
        await rogue(server, "example.org", ("add", "rogue", 60, "A", "192.0.2.9"))
        async with site.running():  # it is ours now, and stays so
            await eventually(lambda: site.answers("rogue.example.org", "A", ()), timeout=120)
            assert await site.is_ready("DNSZone", "example.org")


AGREED = [("example.org", "SOA"), ("example.org", "NS"), ("ns1.example.org", "A"), ("web.example.org", "A")]


async def ttl_of(server, name, kind):
    return (await ask(server, name, kind)).answer[0].ttl


async def has_ttl(server, name, kind, ttl):
    return await ttl_of(server, name, kind) == ttl


async def planned(site):
    objects = await objects_of(site.client)
    survey = ZoneInspection(
        {kind: [row for row in rows if row.namespace == site.namespace] for kind, rows in objects.items()}
    )
    try:
        return [row for zone in survey.zones() for row in await survey.differences(zone)]
    finally:
        survey.close()


async def test_until_a_foreign_zone_is_ours_what_agrees_with_it_keeps_its_ttl(existing):
    async with existing(FOREIGN) as site:
        (server,) = site.servers
        served = {place: await ttl_of(server, *place) for place in AGREED}
        await site.zone("example.org", ttl=7200)
        await site.record("A", "web", ipv4Addresses=["192.0.2.80"])
        await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
        async with site.running(drift_period=timedelta(seconds=1)):
            await eventually(lambda: site.is_ready("DNSZone", "example.org", "ForeignData"), timeout=120)
            await eventually(lambda: site.is_ready("A", "web"), timeout=120)
            await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.1"}), timeout=120)
            assert await ttl_of(server, "www.example.org", "A") == 7200
            assert {place: await ttl_of(server, *place) for place in AGREED} == served
            assert {row.action for row in await planned(site)} == {"keep"}  # and the plan says so
            await site.record("A", "www", ipv4Addresses=["192.0.2.1"], ttl=60)  # what we brought is ours to change
            await eventually(lambda: has_ttl(server, "www.example.org", "A", 60), timeout=120)
            await site.zone("example.org", ttl=7200, annotations={"steersman.dev/dns-adopt": "true"})
            await eventually(lambda: has_ttl(server, "web.example.org", "A", 7200), timeout=120)
            await eventually(lambda: has_ttl(server, "example.org", "SOA", 7200), timeout=120)


OTHERS = START.replace("ns1.example.org.", "old.example.org.").replace("ns1 IN A", "old IN A")


@pytest.mark.parametrize("text", [OTHERS, FOREIGN], ids=["name servers only", "spoken for"])
async def test_a_zone_that_has_name_servers_only_and_one_that_resources_speak_for_whole_need_no_word(existing, text):
    async with existing(text) as site:
        if text == FOREIGN:
            await site.record("A", "web", ipv4Addresses=["192.0.2.80"])
            await site.record("CNAME", "alias", target="web.example.org.")
            await site.record("TXT", "text", owner="@", text=["theirs"])
            await site.record("MX", "mail", owner="@", priority=10, mailServer="mail.example.net.")
        await site.zone("example.org")
        async with site.running(drift_period=timedelta(seconds=1)):
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
            assert await site.answers("example.org", "NS", {"ns1.example.org."})
            assert await site.answers("ns1.example.org", "A", {"192.0.2.53"})
            assert await site.answers("old.example.org", "A", ())
            await rogue(site.primaries[0], "example.org", ("add", "rogue", 60, "A", "192.0.2.9"))
            await eventually(lambda: site.answers("rogue.example.org", "A", ()), timeout=120)  # it is ours


async def test_a_zone_that_we_made_is_ours_though_its_object_is_another_or_has_lost_its_status(
    embedded, client, dns_kinds, namespace, named
):
    async with named("ns1") as server:
        site = Site(client, namespace, [server])
        await site.instances()
        await site.zone("example.org")
        await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
        await site.record("A", "old", ipv4Addresses=["192.0.2.2"])
        async with site.running():
            await eventually(lambda: site.is_ready("A", "old"), timeout=120)
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
        for kind, name in ((DNSZone, "example.org"), (ARecord, "old")):  # as after a restore from yesterday
            await client.patch(kind, name, {"metadata": {"finalizers": None}}, namespace=namespace)
            await client.delete(kind, name, namespace=namespace)
        await site.zone("example.org")
        async with site.running():
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
            await eventually(lambda: site.answers("old.example.org", "A", ()), timeout=120)
            assert await site.answers("www.example.org", "A", {"192.0.2.1"})


async def test_a_zone_that_others_added_by_command_is_read_first_and_its_configuration_is_theirs_until_it_is_ours(
    embedded, client, dns_kinds, namespace, named
):
    async with named("ns1") as server:
        (server.zones / "theirs.db").write_text(FOREIGN)
        await server.control('addzone example.org { type primary; file "theirs.db"; allow-update { key operator; }; };')
        site = Site(client, namespace, [server])
        await site.instances()
        await site.zone("example.org")
        await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
        async with site.running():
            await eventually(lambda: site.is_ready("DNSZone", "example.org", "ForeignData"), timeout=120)
            await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.1"}), timeout=120)
            assert await kept(server)
            assert "allow-update" in await server.control("showzone example.org")
            await site.zone("example.org", annotations={"steersman.dev/dns-adopt": "true"})
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
            assert await site.answers("web.example.org", "A", ())
            shown = await server.control("showzone example.org")
            assert "update-policy" in shown
            assert "theirs.db" in shown


async def test_a_foreign_primary_is_not_made_a_secondary(embedded, client, dns_kinds, namespace, named):
    async with named("ns1") as ns1, named("ns2", secret=ns1.secret) as ns2:
        (ns2.zones / "theirs.db").write_text(FOREIGN)
        await ns2.control('addzone example.org { type primary; file "theirs.db"; };')
        site = Site(client, namespace, [ns1], [ns2])
        await site.instances()
        await site.zone("example.org")
        async with site.running():
            await eventually(lambda: site.is_ready("DNSZone", "example.org", "SecondaryFailed"), timeout=120)
            assert "that Steersman did not add" in (await site.ready("DNSZone", "example.org"))[2]
            assert await kept(ns2)


async def test_a_foreign_alias_under_a_name_that_is_not_used_keeps_our_data_out_and_is_named(
    embedded, client, dns_kinds, namespace, named
):
    async with named("ns1") as server:
        site = Site(client, namespace, [server])
        await site.instances()
        await site.zone("example.org", annotations={"steersman.dev/dns-drift-ignore": "lease-*"})
        async with site.running(drift_period=timedelta(seconds=1)):
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
            await rogue(server, "example.org", ("add", "lease-1", 60, "CNAME", "x.example.net."))
            await site.record("TXT", "text", owner="lease-1", text=["x"])
            await eventually(lambda: site.is_ready("TXT", "text", "ForeignData"), timeout=120)
            assert await values(server, "lease-1.example.org", "CNAME") == {"x.example.net."}
            await rogue(server, "example.org", ("delete", "lease-1"))
            await eventually(lambda: site.is_ready("TXT", "text"), timeout=120)
            assert await site.answers("lease-1.example.org", "TXT", {'"x"'})
            # and once the name is no longer left to them, what they put there goes
            await rogue(server, "example.org", ("add", "lease-2", 60, "A", "192.0.2.9"))
            await site.zone("example.org")
            await eventually(lambda: site.answers("lease-2.example.org", "A", ()), timeout=120)
