"""Secondaries that take their zones from a catalog zone: they get them, follow them and drop them by themselves."""

from __future__ import annotations

from datetime import timedelta

import dns.rcode
import pytest

from steersman.kube.api.types.core import Secret
from steersman.testing import RequestLog, eventually
from tests.support.dns.zones import Site, ask, serial, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SOON = timedelta(seconds=1)


@pytest.fixture
async def site(embedded, client, dns_kinds, namespace, named):
    """A primary, and a secondary whose own configuration knows the catalog and nothing else."""
    async with named("ns1") as ns1:
        where = f"{{ 127.0.0.1 port {ns1.dns_port} key operator; }}"
        options = f'catalog-zones {{ zone "catalog.test" default-primaries {where} min-update-interval 0; }};'
        extra = f'zone "catalog.test" {{ type secondary; file "catalog.db"; primaries {where}; }};'
        async with named("ns2", secret=ns1.secret, options=options, extra=extra) as ns2:
            made = Site(client, namespace, [ns1], [ns2])
            await made.instance("primary-0", "primary", ns1)
            await made.instance("secondary-0", "secondary", ns2, config={"catalogZone": "catalog.test"})
            yield made


async def refuses(server, zone):
    return (await ask(server, zone, "SOA")).rcode() == dns.rcode.REFUSED


async def test_members_come_and_go_on_secondaries_with_their_zones_and_without_a_command_for_each(site):
    one, two = site.servers
    await site.zone("catalog.test", catalog=True, soa={"primaryNs": "invalid."}, nameServers=None)
    await site.zone("a.test")
    await site.record("A", "www", zone="a.test", ipv4Addresses=["192.0.2.1"])
    async with site.running():
        await eventually(lambda: site.answers("www.a.test", "A", {"192.0.2.1"}), timeout=120)
        assert await values(one, "version.catalog.test", "TXT") == {'"2"'}
        assert "__catz__" in await two.control("zonestatus a.test")
        await eventually(lambda: site.is_ready("DNSZone", "a.test"), timeout=120)
        for number in range(5):
            await site.zone(f"b{number}.test")
        for number in range(5):
            await eventually(lambda n=number: serial(two, f"b{n}.test"), timeout=120)
        await site.record("A", "www", zone="a.test", ipv4Addresses=["192.0.2.2"])
        await eventually(lambda: site.answers("www.a.test", "A", {"192.0.2.2"}), timeout=120)
        await site.delete("DNSZone", "a.test")
        await eventually(lambda: site.gone("DNSZone", "a.test"), timeout=120)
        for server in (one, two):
            assert await refuses(server, "a.test")
        assert await serial(two, "b0.test")
        # a secondary that is no longer chosen drops it as well
        await site.zone("b0.test", bind9InstancesFrom=[{"selector": {"matchLabels": {"dns": "nobody"}}}])
        await eventually(lambda: refuses(two, "b0.test"), timeout=120)


async def test_a_new_process_lists_everybody_before_it_publishes_a_catalog(site):
    one, two = site.servers
    await site.zone("catalog.test", "a-catalog", catalog=True)
    for number in range(10):
        await site.zone(f"z{number}.test")
    async with site.running():
        for number in range(10):
            await eventually(lambda n=number: serial(two, f"z{n}.test"), timeout=120)
            await eventually(lambda n=number: site.is_ready("DNSZone", f"z{n}.test"), timeout=120)
        await eventually(lambda: site.is_ready("DNSZone", "a-catalog"), timeout=120)
    before = await serial(one, "catalog.test")
    async with site.running(drift_period=SOON) as manager:
        tally = manager.runner("dns-zones").tally
        await eventually(lambda: tally.results["requeue_after"] > 30, "several looks at all of them", timeout=120)
        assert await serial(one, "catalog.test") == before
        with RequestLog(site.client) as log:
            seen = tally.results["requeue_after"]
            await eventually(lambda: tally.results["requeue_after"] > seen + 22, timeout=120)
        assert log.writes == []


async def test_a_zone_whose_secondary_names_an_undeclared_catalog_says_so(site):
    await site.zone("a.test")
    async with site.running(not_ready=SOON):
        await eventually(lambda: site.is_ready("DNSZone", "a.test", "CatalogMissing"), timeout=120)
        await eventually(lambda: serial(site.primaries[0], "a.test"), timeout=120)
        await site.zone("catalog.test", catalog=True)
        await eventually(lambda: site.is_ready("DNSZone", "a.test"), timeout=120)
        await eventually(lambda: serial(site.secondaries[0], "a.test"), timeout=120)


async def test_zones_stay_in_a_catalog_while_no_secondary_answers_and_no_write_reaches_a_primary(site):
    one, two = site.servers
    await site.zone("catalog.test", catalog=True, bind9InstancesFrom=[{"selector": {"matchLabels": {"keeps": "it"}}}])
    for number, server in enumerate(site.servers):  # the catalog has instances of its own, with keys of their own
        config = {"config": {"catalogZone": "catalog.test"}} if number else {}
        role = "secondary" if number else "primary"
        await site.instance(f"catalog-{number}", role, server, labels={"dns": "no", "keeps": "it"}, **config)
    await site.zone("a.test")
    async with site.running(not_ready=SOON):
        await eventually(lambda: serial(two, "a.test"), timeout=120)
        await eventually(lambda: site.is_ready("DNSZone", "a.test"), timeout=120)
        before = await serial(one, "catalog.test")
        await site.client.delete(Secret, "secondary-0-key", namespace=site.namespace)
        await eventually(lambda: site.is_ready("DNSZone", "a.test", "KeyMissing"), timeout=120)
        await site.key("secondary-0-key", two)
        await eventually(lambda: site.is_ready("DNSZone", "a.test"), timeout=120)
        await site.delete("Bind9Instance", "primary-0")
        await eventually(lambda: site.is_ready("DNSZone", "a.test", "NoPrimary"), timeout=120)
    async with site.running(not_ready=SOON, drift_period=SOON) as manager:
        tally = manager.runner("dns-zones").tally
        await eventually(lambda: tally.results["requeue_after"] > 6, "several looks", timeout=120)
        assert await site.is_ready("DNSZone", "catalog.test")
        assert await serial(one, "catalog.test") == before
        assert await serial(two, "a.test")
