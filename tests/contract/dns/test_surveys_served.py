"""What plan, check and why say about zones that are served, and what the operator then does."""

from __future__ import annotations

import pytest

from steersman.kube.api.objects import to_wire
from steersman.operators.dns.inspect.offline import ZoneInspection, lay_over, objects_of
from steersman.testing import eventually
from tests.support.dns.zones import Site, rogue

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
async def site(embedded, client, dns_kinds, namespace, named):
    async with named("ns1") as ns1, named("ns2", secret=ns1.secret) as ns2:
        made = Site(client, namespace, [ns1], [ns2])
        await made.instances()
        await made.zone("example.org", annotations={"steersman.dev/dns-drift-ignore": "_acme*"})
        await made.record("A", "www", ipv4Addresses=["192.0.2.1"])
        async with made.running():
            await eventually(lambda: made.is_ready("DNSZone", "example.org"), timeout=120)
            await eventually(lambda: made.is_ready("ARecord", "www"), timeout=120)
            yield made


async def surveyed(site, ask, *manifests):
    """What a survey says; with the objects of this namespace, and manifests laid over them."""
    objects = await objects_of(site.client)
    objects = {kind: [row for row in rows if row.namespace in ("", site.namespace)] for kind, rows in objects.items()}
    assert lay_over(objects, manifests, site.namespace) == []
    survey = ZoneInspection(objects)
    try:
        return [row for zone in survey.zones() for row in await ask(survey, zone)]
    finally:
        survey.close()


def planned(site, *manifests):
    return surveyed(site, lambda survey, zone: survey.differences(zone), *manifests)


async def manifest(site, kind, name, change):
    found = to_wire(await site.get(kind, name))
    found |= {"apiVersion": "bindy.firestoned.io/v1beta1", "kind": kind}
    change(found["spec"])
    return found


async def test_what_is_served_as_it_should_be_changes_nothing_and_foreign_names_do_not_count(site):
    assert await planned(site) == []
    await rogue(site.primaries[0], "example.org", ("add", "_acme-challenge", 60, "TXT", "x"))
    assert await planned(site) == []

    async def well():
        return not await surveyed(site, lambda survey, zone: survey.findings(zone))

    await eventually(well, "the secondary has heard of it, and there is nothing to find", timeout=60)


async def test_another_start_of_authority_and_other_transfers_are_planned(site):
    zone = await manifest(site, "DNSZone", "example.org", lambda spec: spec["soaRecord"].update(refresh=7))
    (row,) = await planned(site, zone)
    assert (row.action, row.type, " 7 " in row.want[0], " 7 " in row.have[0]) == ("change", "SOA", True, False)
    for name in ("primary-0", "secondary-0"):
        other = await manifest(site, "Bind9Instance", name, lambda spec: spec.update(config={"allowTransfer": ["any"]}))
        (row,) = await planned(site, other)
        assert (row.action, row.type, row.server) == ("configure", "allow-transfer", f"{name}/0")
        assert ("any" in row.want[0], "any" in row.have[0]) == (True, False)


async def test_a_younger_zone_of_the_same_name_is_planned_as_one_that_writes_nothing(site):
    zone = await manifest(site, "DNSZone", "example.org", lambda spec: spec["soaRecord"].update(refresh=7))
    zone["metadata"] = {"name": "younger"}
    (row,) = await planned(site, zone)
    assert (row.action, "is older" in row.why) == ("invalid", True)


async def test_a_record_that_cannot_be_of_the_zone_is_reported_everywhere(site):
    await site.record("A", "outside", owner="www.example.net.", ipv4Addresses=["192.0.2.1"])
    await eventually(lambda: site.is_ready("ARecord", "outside", "OutOfZone"), timeout=120)
    (row,) = await planned(site)
    assert (row.action, row.why.startswith("arecord/outside: OutOfZone")) == ("held", True)
    (finding,) = await surveyed(site, lambda survey, zone: survey.findings(zone))
    assert (finding.check, "outside" in finding.message) == ("held", True)
    (reason,) = await surveyed(site, lambda survey, zone: survey.reasons("www.example.net"))
    assert (reason.source, reason.state) == ("example.org: arecord/outside", "OutOfZone")

    async def told():
        status = (await site.get("DNSZone", "example.org")).status
        return [(row.reason, row.records) for row in status.conflicts or ()] == [("OutOfZone", ["arecord/outside"])]

    await eventually(told, timeout=120)


async def test_a_key_in_a_manifest_is_read_as_people_write_it(site):
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "primary-0-key"}}
    text = {"key-name": "operator", "algorithm": "hmac-sha256", "secret": "bm90IGl0"}
    rows = await planned(site, {**secret, "stringData": text})
    assert "unreachable" in {row.action for row in rows}
