"""Servers that were away when a zone was taken from them: they lose it when they are back, whoever tells them then.

Only what is ours goes: what a server has in its own configuration stays, whatever it is called.
"""

from __future__ import annotations

from datetime import timedelta

import dns.rcode
import pytest

from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types import Event, Namespace
from steersman.operators.dns.api.servers import Bind9Instance
from steersman.testing import eventually
from tests.support.dns.zones import Site, ask, serial, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SOON = timedelta(seconds=1)
QUICK = {"drift_period": SOON, "not_ready": SOON, "server_pause": SOON}
FOREIGN = """$TTL 60
@ SOA ns1 hostmaster 99 3600 600 604800 60
@ NS ns1
ns1 A 192.0.2.53
www A 203.0.113.7
"""


def _static(zone):
    return f'zone "{zone}" {{ type primary; file "foreign.zone"; }};'


@pytest.fixture
async def pair(cluster, client, dns_kinds, namespace, named):
    """Two primaries, of which the second also has a zone of its own."""
    async with named("ns1") as ns1:
        two = named("ns2", secret=ns1.secret, extra=_static("foreign.test"))
        two.zones.mkdir(parents=True)
        (two.zones / "foreign.zone").write_text(FOREIGN)
        async with two:
            made = Site(client, namespace, [ns1, two])
            await made.instances()
            yield made


async def _refuses(server, zone):
    return (await ask(server, zone, "SOA")).rcode() == dns.rcode.REFUSED


async def _row(site, instance):
    zone = await site.get("DNSZone", "example.org")
    rows = (zone.status.bind9_instances if zone.status else None) or ()
    return next(((row.status, row.message) for row in rows if row.name == instance), None)


async def _is_row(site, instance, status):
    found = await _row(site, instance)
    return found is not None and found[0] == status


async def _left(site, instance):
    status = (await site.get("Bind9Instance", instance)).status
    return (status.left_behind if status is not None else None) or []


async def _events(site, reason):
    events = (await site.client.list(Event, namespace=site.namespace)).items
    return [event for event in events if event.reason == reason]


@pytest.mark.parametrize("seen", ["Configured", "Failed"])
async def test_b14_a_server_that_was_away_when_it_was_deselected_loses_the_zone_when_it_is_back(pair, seen):
    one, two = pair.servers
    await pair.zone("example.org")
    await pair.record("A", "www", ipv4Addresses=["192.0.2.1"])
    async with pair.running(**QUICK):
        await eventually(lambda: pair.is_ready("DNSZone", "example.org"), timeout=120)
        if seen == "Failed":  # it is known to be away before it is deselected
            await two.kill()
            await eventually(lambda: _is_row(pair, "primary-1", "Failed"), timeout=120)
    if seen == "Configured":  # nobody is there to notice either
        await two.kill()
    await pair.instance("primary-1", "primary", two, labels={"dns": "other"})
    async with pair.running(deletion_grace=timedelta(seconds=2), **QUICK):
        await eventually(lambda: _is_row(pair, "primary-1", "Unclaimed"), timeout=120)
        await eventually(lambda: _events(pair, "NotRemoved"), "people hear of it after the grace", timeout=120)
        assert await pair.is_ready("DNSZone", "example.org")  # on those that serve it, all is well
        assert (await _row(pair, "primary-1"))[0] == "Unclaimed"  # and it is not forgotten
    await two.start()
    assert await serial(two, "example.org")  # it has it still
    async with pair.running(**QUICK):
        await eventually(lambda: _refuses(two, "example.org"), "it no longer has the zone", timeout=120)
        await eventually(lambda: _not(_row, pair, "primary-1"), "and nobody waits for it", timeout=120)
        await pair.answers("www.example.org", "A", {"192.0.2.1"}, [one])
        assert await values(two, "www.foreign.test", "A") == {"203.0.113.7"}
    assert sum(event.count or 1 for event in await _events(pair, "NotRemoved")) == 1


async def _not(look, *arguments):
    return not await look(*arguments)


async def test_a_zone_deleted_while_a_server_is_away_for_longer_than_its_grace_is_removed_when_it_is_back(pair):
    one, two = pair.servers
    await pair.zone("example.org")
    await pair.zone("again.test")
    async with pair.running(**QUICK):
        for zone in ("example.org", "again.test"):
            await eventually(lambda z=zone: pair.is_ready("DNSZone", z), timeout=120)
        await two.kill()
    for zone in ("example.org", "again.test"):
        await pair.delete("DNSZone", zone)
    async with pair.running(deletion_grace=timedelta(seconds=2), **QUICK):
        for zone in ("example.org", "again.test"):
            await eventually(lambda z=zone: pair.gone("DNSZone", z), timeout=120)
        assert await _left(pair, "primary-1") == ["again.test", "example.org"]  # before the zones were gone
        assert await _left(pair, "primary-0") == []
        await eventually(lambda: _events(pair, "ZoneLeftBehind"), timeout=120)
        assert await _refuses(one, "example.org")
    await pair.zone("again.test", ttl=77)  # wanted again
    await two.start()
    assert await serial(two, "example.org")
    async with pair.running(**QUICK):
        await eventually(lambda: _refuses(two, "example.org"), "it no longer has the zone", timeout=120)
        await eventually(lambda: _not(_left, pair, "primary-1"), "and nobody waits for it", timeout=120)
        await eventually(lambda: pair.is_ready("DNSZone", "again.test"), timeout=120)
        assert await serial(two, "again.test") == await serial(one, "again.test")
        assert await values(two, "www.foreign.test", "A") == {"203.0.113.7"}
        assert await _events(pair, "LeftBehindRemoved")


async def test_a_server_that_comes_back_with_a_zone_of_its_own_under_that_name_keeps_it(pair):
    _, two = pair.servers
    await pair.zone("example.org")
    async with pair.running(**QUICK):
        await eventually(lambda: pair.is_ready("DNSZone", "example.org"), timeout=120)
    await two.kill()
    await pair.delete("DNSZone", "example.org")
    async with pair.running(deletion_grace=timedelta(seconds=1), **QUICK):
        await eventually(lambda: pair.gone("DNSZone", "example.org"), timeout=120)
        assert await _left(pair, "primary-1") == ["example.org"]
        two.wipe()
        two.zones.mkdir()
        (two.zones / "foreign.zone").write_text(FOREIGN)
        two.extra = _static("example.org")
        await two.start()
        await eventually(lambda: _not(_left, pair, "primary-1"), "there is nothing of ours", timeout=120)
        assert await values(two, "www.example.org", "A") == {"203.0.113.7"}


async def test_a_grant_that_is_taken_away_while_the_server_is_away_takes_the_zone_along(
    cluster, client, dns_kinds, namespace, named
):
    other = f"{namespace}-servers"
    await client.create(Namespace(metadata=ObjectMeta(name=other)))
    async with named("ns1") as ns1:
        servers = Site(client, other, [ns1])
        await servers.instances()
        grant = {"bindy.firestoned.io/allow-zone-namespaces": namespace}
        patch = {"metadata": {"annotations": grant}}
        await client.patch(Bind9Instance, "primary-0", patch, namespace=other)
        site = Site(client, namespace, [ns1])
        await site.zone("example.org")
        async with site.running(namespaces=[other], **QUICK):
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
            await ns1.kill()
            await eventually(lambda: site.is_ready("DNSZone", "example.org", "PrimaryFailed"), timeout=120)
            patch = {"metadata": {"annotations": dict.fromkeys(grant)}}
            await client.patch(Bind9Instance, "primary-0", patch, namespace=other)
            await eventually(lambda: site.is_ready("DNSZone", "example.org", "CrossNamespaceDenied"), timeout=120)
            await eventually(lambda: _is_row(site, "primary-0", "Unclaimed"), timeout=120)
            await ns1.start()
            await eventually(lambda: _refuses(ns1, "example.org"), "it no longer has the zone", timeout=120)
            await eventually(lambda: _not(_row, site, "primary-0"), timeout=120)
