"""Zones that others gave to a server: with a command, by a catalog or in its configuration. They are never removed.

What we published in them goes when its resources do; the zone, its data and its configuration stay, whatever happens to
the DNSZone, the operator or the server meanwhile. What we added ourselves, or were told is ours, still goes.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import timedelta

import dns.rcode
import pytest

from steersman.testing import eventually
from tests.support.dns.zones import Site, ask, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SOON = timedelta(seconds=1)
QUICK = {"drift_period": SOON, "not_ready": SOON, "server_pause": SOON}
BARE = """$TTL 300
@ IN SOA ns1.example.org. hostmaster.example.org. 5 3600 600 604800 60
@ IN NS ns1.example.org.
ns1 IN A 192.0.2.53
"""
THEIRS = f"{BARE}web IN A 192.0.2.80\n"
CATALOG = """$TTL 60
@ IN SOA . . 3 3600 600 604800 60
@ IN NS invalid.
version IN TXT "2"
m1.zones IN PTR example.org.
"""
OPEN = "allow-transfer { key operator; }; update-policy { grant operator zonesub ANY; };"
NOBODY = [{"selector": {"matchLabels": {"dns": "nobody"}}}]
WAYS = ("deleted", "deselected", "deleted while no operator runs", "deselected while no operator runs", "restarted")
PLACES = {
    "a command": "theirs.db",
    "a command, in a file of our name": "example.org.zone",
    "configuration": "theirs.db",
}


@pytest.fixture
def world(embedded, client, dns_kinds, namespace, named):
    """`async with world(origin, data) as site`: a primary that has example.org from others."""

    @asynccontextmanager
    async def made(origin, data=THEIRS):
        zone = f'{{ type primary; file "{PLACES[origin]}"; {OPEN} }};'
        server = named("ns1", extra=f'zone "example.org" {zone}' if origin == "configuration" else "")
        server.zones.mkdir(parents=True)
        (server.zones / PLACES[origin]).write_text(data)
        async with server:
            if origin != "configuration":
                await server.control(f"addzone example.org {zone}")
            site = Site(client, namespace, [server])
            await site.instances()
            yield site

    return made


async def _refuses(server, zone="example.org"):
    return (await ask(server, zone, "SOA")).rcode() == dns.rcode.REFUSED


async def _leave(site, way):
    """Take the zone away in one of the ways; the operator runs afterwards as before."""
    if way == "deleted":
        await site.delete("DNSZone", "example.org")
    elif way == "deselected":
        await site.zone("example.org", bind9InstancesFrom=NOBODY)


async def _stays(site, *, data=("web", "192.0.2.80")):
    """The zone is still there as others had it, also after a restart of the server."""
    (server,) = site.servers
    for _ in range(2):
        assert await values(server, f"{data[0]}.example.org", "A") == {data[1]}
        assert await values(server, "ns1.example.org", "A") == {"192.0.2.53"}
        await server.kill()
        await server.start()


@pytest.mark.parametrize("origin", PLACES)
@pytest.mark.parametrize("way", WAYS)
async def test_a_zone_that_others_gave_a_primary_stays_and_our_records_go(world, origin, way):
    async with world(origin) as site:
        (server,) = site.servers
        await site.zone("example.org")
        await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
        async with site.running(**QUICK):
            await eventually(lambda: site.is_ready("DNSZone", "example.org", "ForeignData"), timeout=120)
            await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.1"}), timeout=120)
            await _leave(site, way)
            if way in ("deleted", "deselected"):
                await eventually(lambda: site.answers("www.example.org", "A", ()), timeout=120)
        if way not in ("deleted", "deselected"):
            await _leave(site, way.split(maxsplit=1)[0].replace("restarted", "deleted"))
            async with site.running(**QUICK):
                await eventually(lambda: site.answers("www.example.org", "A", ()), timeout=120)
                if not way.startswith("deselected"):
                    await eventually(lambda: site.gone("DNSZone", "example.org"), timeout=120)
        assert await values(server, "www.example.org", "A") == set()
        await _stays(site)


@pytest.mark.parametrize("origin", PLACES)
async def test_a_foreign_zone_that_has_nothing_but_ours_in_it_stays_too(world, origin):
    """Nobody was told to adopt it: that all its data is ours says nothing about the zone."""
    async with world(origin, BARE) as site:
        (server,) = site.servers
        await site.zone("example.org")
        await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
        async with site.running(**QUICK):
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
        async with site.running(**QUICK):  # also a process that finds it configured as it wants it
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
            await site.delete("DNSZone", "example.org")
            await eventually(lambda: site.gone("DNSZone", "example.org"), timeout=120)
        assert await values(server, "www.example.org", "A") == set()
        await _stays(site, data=("ns1", "192.0.2.53"))


@pytest.mark.parametrize("origin", ["a command", "a command, in a file of our name"])
async def test_a_server_that_is_down_when_the_zone_goes_keeps_a_foreign_zone(world, origin):
    async with world(origin) as site:
        (server,) = site.servers
        await site.zone("example.org")
        await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
        async with site.running(**QUICK):
            await eventually(lambda: site.is_ready("DNSZone", "example.org", "ForeignData"), timeout=120)
        await server.kill()
        await site.delete("DNSZone", "example.org")
        async with site.running(deletion_grace=SOON, **QUICK):
            await eventually(lambda: site.gone("DNSZone", "example.org"), timeout=120)
        await server.start()
        async with site.running(**QUICK):
            await eventually(lambda: _nothing_left(site), "nothing is left to do", timeout=120)
        await _stays(site)


async def test_a_server_that_is_down_when_it_is_deselected_keeps_a_foreign_zone_and_loses_our_records(world):
    async with world("a command") as site:
        (server,) = site.servers
        await site.zone("example.org")
        await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
        async with site.running(**QUICK):
            await eventually(lambda: site.is_ready("DNSZone", "example.org", "ForeignData"), timeout=120)
        await server.kill()
        await site.zone("example.org", bind9InstancesFrom=NOBODY)
        async with site.running(**QUICK):
            await eventually(lambda: site.is_ready("DNSZone", "example.org", "NoInstances"), timeout=120)
            await server.start()
            await eventually(lambda: site.answers("www.example.org", "A", ()), timeout=120)
        await _stays(site)


async def _nothing_left(site):
    status = (await site.get("Bind9Instance", "primary-0")).status
    return status is not None and not status.left_behind


async def test_a_foreign_zone_that_was_adopted_goes(world):
    async with world("a command") as site:
        (server,) = site.servers
        await site.zone("example.org", annotations={"steersman.dev/dns-adopt": "true"})
        async with site.running(**QUICK):
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
            await site.delete("DNSZone", "example.org")
            await eventually(lambda: site.gone("DNSZone", "example.org"), timeout=120)
        assert await _refuses(server)


async def test_what_we_added_goes_after_a_restart_too(embedded, client, dns_kinds, namespace, named):
    async with named("ns1") as ns1, named("ns2", secret=ns1.secret) as ns2:
        site = Site(client, namespace, [ns1], [ns2])
        await site.instances()
        await site.zone("example.org")
        async with site.running(**QUICK):
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
            await eventually(lambda: site.answers("ns1.example.org", "A", {"192.0.2.53"}), timeout=120)
        await site.delete("DNSZone", "example.org")
        async with site.running(**QUICK):
            await eventually(lambda: site.gone("DNSZone", "example.org"), timeout=120)
        assert await _refuses(ns1)
        assert await _refuses(ns2)


# -- secondaries ------------------------------------------------------------------------------------------------------


@pytest.fixture
def following(embedded, client, dns_kinds, namespace, named):
    """`async with following(origin) as site`: a primary of ours, and a secondary that has example.org of others."""

    @asynccontextmanager
    async def made(origin):
        listed = 'zone "example.org" { type primary; file "theirs.db"; allow-transfer { any; }; };'
        listed += 'zone "catalog.test" { type primary; file "catalog.db"; allow-transfer { any; }; };'
        theirs = named("theirs", extra=listed)
        theirs.zones.mkdir(parents=True)
        (theirs.zones / "theirs.db").write_text(THEIRS)
        (theirs.zones / "catalog.db").write_text(CATALOG)
        async with theirs, named("ns1") as ns1:
            called = f"primaries {{ 127.0.0.1 port {theirs.dns_port}; }};"
            options = extra = ""
            if origin == "a catalog":
                listing = called.removesuffix(";").replace("primaries", "default-primaries")
                options = f'catalog-zones {{ zone "catalog.test" {listing} min-update-interval 1; }};'
                extra = f'zone "catalog.test" {{ type secondary; file "catalog.db"; {called} }};'
            elif origin == "configuration":
                extra = f'zone "example.org" {{ type secondary; file "theirs.db"; {called} }};'
            async with named("ns2", secret=ns1.secret, options=options, extra=extra) as ns2:
                if origin.startswith("a command"):
                    file = PLACES[origin]
                    await ns2.control(f'addzone example.org {{ type secondary; file "{file}"; {called} }};')
                await eventually(lambda: _has(ns2), "the secondary has the zone of others", timeout=120)
                site = Site(client, namespace, [ns1], [ns2])
                await site.instances()
                yield site

    return made


async def _has(server):
    return await values(server, "web.example.org", "A") == {"192.0.2.80"}


@pytest.mark.parametrize("origin", [*PLACES, "a catalog"])
@pytest.mark.parametrize("way", ["deleted", "deselected", "deleted while it is down"])
async def test_a_zone_that_others_gave_a_secondary_is_neither_changed_nor_removed(following, origin, way):
    async with following(origin) as site:
        one, two = site.servers
        await site.zone("example.org")
        async with site.running(**QUICK):
            await eventually(lambda: site.answers("ns1.example.org", "A", {"192.0.2.53"}, [one]), timeout=120)
            await eventually(lambda: _seen(site), "the operator has seen the secondary", timeout=120)
            if origin.startswith("a command"):
                assert "that Steersman did not write" in (await site.ready("DNSZone", "example.org"))[2]
            assert await _has(two)
        if way == "deleted while it is down":
            await two.kill()
        await _leave(site, way.split(maxsplit=1)[0])
        async with site.running(deletion_grace=SOON, **QUICK):
            if way.startswith("deleted"):
                await eventually(lambda: site.gone("DNSZone", "example.org"), timeout=120)
            await eventually(lambda: _refuses(one), "what we added is gone", timeout=120)
        if way == "deleted while it is down":
            await two.start()
            async with site.running(**QUICK):
                await eventually(lambda: _nothing_left(site), timeout=120)
        await eventually(lambda: _has(two), timeout=120)  # a catalog is read after the start
        await two.kill()
        await two.start()
        await eventually(lambda: _has(two), timeout=120)


async def _seen(site):
    zone = await site.get("DNSZone", "example.org")
    rows = (zone.status.bind9_instances if zone.status else None) or ()
    return any(row.name == "secondary-0" and row.status in ("Failed", "Configured") for row in rows)
