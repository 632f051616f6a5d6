"""What the original gets wrong and what name servers make difficult, as far as only a real named can show it.

The number of each defect (b) and trap (t) is in the name of its test. What is said here is about servers and not about
the API, so the embedded API server will do.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta

import msgspec
import pytest

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import DriverError
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types import ConfigMap, Namespace, Secret
from steersman.operators.dns.api.zone import DNSZone
from steersman.operators.dns.bind.driver import Refused, Stale
from steersman.operators.dns.bind.rndc_driver import NativeDriver
from steersman.operators.dns.bind.servers import Keys, Server
from steersman.operators.dns.bind.zone_statements import primary_config, secondary_config, zone_type
from steersman.operators.dns.inspect.checks import RRSIG, signature_problems
from steersman.operators.dns.wire.client import DnsError
from steersman.operators.dns.wire.messages import RRsetChange
from steersman.operators.dns.wire.tsig import Key
from steersman.operators.dns.zone.names import name_of, owner_of
from steersman.operators.dns.zone.rdata import NS, A, RRset, Soa
from steersman.testing import RequestLog, eventually
from tests.support.dns.zones import API, PATIENCE, Site, rogue, serial, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SOON = timedelta(seconds=1)
ORG = name_of("example.org")
START = Soa(name_of("ns1.example.net"), name_of("h.example.org"), 7, 3600, 600, 86400, 60)
DATA = {(b"", NS): RRset(60, frozenset({name_of("ns1.example.net")}))}


@pytest.fixture
def site(pair):
    return pair


def key_of(named, secret=None):
    import base64

    return Key(named.key_name, "hmac-sha256", base64.b64decode(named.secret) if secret is None else secret)


@contextmanager
def driving(named, *, control=None, update=None, previous=None):
    """The native driver of a server, with these keys or the server's own."""
    own = key_of(named)
    keys = Keys(control or own, update or own, own, previous, previous)
    server = Server(NamespacedName("i", "n"), "0", "primary", named.address, named.dns_port, named.rndc_port, keys)
    driver = NativeDriver(server, clock=SYSTEM_CLOCK, timeout=PATIENCE)
    try:
        yield driver
    finally:
        driver.close()


async def add(driver):
    await driver.create_primary(ORG, primary_config(driver.server, ORG, []), START, DATA, 60)


async def test_t6_t7_t12_t16_b31_what_a_server_says_about_zones_and_keys_is_understood(named):
    async with named("ns1") as ns1:
        with driving(ns1) as driver:
            assert await driver.soa(ORG) is None  # REFUSED: it does not have the zone
            await driver.remove(ORG)  # b31: not there is removed
            await add(driver)
            assert Soa.read(await driver.soa(ORG)).serial == 7
            await driver.remove(ORG)
            config = secondary_config(driver.server, ORG, [driver.server])
            nobody = [("127.0.0.1", "port", "1", "key", ns1.key_name)]
            config = tuple(("primaries", tuple(nobody)) if row[0] == "primaries" else row for row in config)
            await driver.create_secondary(ORG, config)
            assert await driver.soa(ORG) is None  # SERVFAIL: it has the zone, and nothing in it
            await driver.remove(ORG)
            await add(driver)
            www = RRsetChange((owner_of("www", ORG), A), None, RRset(60, frozenset({bytes(4)})))
            later = msgspec.structs.replace(START, serial=8)
            await driver.write(ORG, START.value(), later.value(), 60, [www])
            with pytest.raises(Stale):
                await driver.write(ORG, START.value(), later.value(), 60, [www])
            await driver.remove(ORG)
            await add(driver)  # t7: the journal of what was there before is gone
            assert await values(ns1, "www.example.org", "A") == set()
        wrong = Key(ns1.key_name, "hmac-sha256", b"wrong")
        with driving(ns1, control=wrong) as driver, pytest.raises(DriverError, match="does the key match"):
            await driver.ready()
        for key, rcode in ((wrong, "BADSIG"), (Key("nobody", "hmac-sha256", b"x"), "BADKEY")):
            with driving(ns1, update=key) as driver, pytest.raises(DnsError) as told:
                await driver.write(ORG, None, None, 60, [www])
            assert told.value.rcode in {rcode, "NOTAUTH"}


async def test_t9_t12_garbage_in_the_place_of_a_zone_file_is_not_a_hindrance_and_refusals_are_distinguished(named):
    www = RRsetChange((owner_of("www", ORG), A), None, RRset(60, frozenset({bytes(4)})))
    async with named("ns1") as ns1:
        (ns1.zones / "example.org.zone").write_text("this is no zone\n")
        with driving(ns1) as driver:
            with pytest.raises(DnsError) as absent:
                await driver.write(ORG, None, None, 60, [www])
            assert absent.value.rcode == "NOTAUTH"
            await add(driver)
            assert Soa.read(await driver.soa(ORG)).serial == 7
            await ns1.control("freeze example.org")
            with pytest.raises(Refused):
                await driver.write(ORG, None, None, 60, [www])
            await ns1.control("thaw example.org")
            await driver.write(ORG, None, None, 60, [www])
            await driver.remove(ORG)
            await driver.create_secondary(ORG, secondary_config(driver.server, ORG, [driver.server]))
            with pytest.raises(DriverError):
                await driver.write(ORG, None, None, 60, [www])


async def test_t12_t13_a_frozen_zone_says_so_and_has_everything_when_it_is_thawed(site):
    one = site.primaries[0]
    await site.zone("example.org")
    async with site.running(drift_period=SOON, not_ready=SOON, server_pause=SOON):
        await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
        await one.control("freeze example.org")
        await site.record("A", "www", ipv4Addresses=["192.0.2.1"])

        async def said():
            status, reason, message = await site.ready("A", "www")
            return (status, reason) == ("False", "ReconcileFailed") and "frozen" in message

        await eventually(said, "what may be the matter", timeout=120)
        await one.control("thaw example.org")
        await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.1"}), timeout=120)
        await eventually(lambda: site.is_ready("A", "www"), timeout=120)


async def test_b19_a_server_that_has_not_read_the_new_key_is_notified_with_the_old_one(named):
    async with named("ns1") as ns1:
        old = key_of(ns1)
        with driving(ns1) as driver:
            await add(driver)
        ns1.secret = "bmV3"  # the file is new; the server has not looked
        (ns1.folder / "named.conf").write_text(ns1.configuration())
        with driving(ns1, previous=old) as driver:
            www = RRsetChange((owner_of("www", ORG), A), None, RRset(60, frozenset({bytes(4)})))
            await driver.write(ORG, None, None, 60, [www])
            await driver.ready()  # it still answers to the old one
            await eventually(driver.renew, "it has read the new key", timeout=120)

            async def read():
                with driving(ns1) as fresh:
                    try:
                        await fresh.ready()
                    except DriverError:
                        return False
                return True

            await eventually(read, "it answers to the new key alone", timeout=120)
        assert await values(ns1, "www.example.org", "A") == {"0.0.0.0"}  # an address like any other


async def test_b9_b12_b13_b22_t2_t13_commands_and_questions_are_few_and_data_goes_before_its_record(site):
    one, two = site.servers
    await site.zone("example.org")
    with RequestLog(site.client) as log:
        async with site.running(drift_period=SOON):
            for number in range(8):
                await site.record("A", f"r{number}", owner=f"_r{number}", ipv4Addresses=[f"192.0.2.{number}"])
            for number in range(8):
                name = f"_r{number}.example.org"
                await eventually(lambda n=number, w=name: site.answers(w, "A", {f"192.0.2.{n}"}), timeout=120)
                path = f"/{site.namespace}/arecords/r{number}"
                asked = [row for row in log.requests if row.startswith("GET ") and row.split("?")[0].endswith(path)]
                assert asked == []  # caches know it
                await eventually(lambda n=number: site.is_ready("A", f"r{n}"), timeout=120)
                log.clear()
    await site.delete("A", "r0")  # nobody is there to see it
    assert not await site.gone("A", "r0")
    async with site.running(drift_period=SOON):
        await eventually(lambda: site.gone("A", "r0"), timeout=120)
        await site.answers("_r0.example.org", "A", (), [one])  # no sooner than its data
    said = one.folder.joinpath("log").read_text() + two.folder.joinpath("log").read_text()
    commands = {part.split("'")[0].split()[0] for part in said.split("control channel command '")[1:]}
    assert "addzone" in commands
    assert commands <= {"null", "addzone", "modzone", "delzone", "showzone", "sync", "refresh"}


async def test_b4_t6_a_secondary_follows_a_primary_that_moved_and_becomes_one_itself(site, named):
    (one,), (two,) = site.primaries, site.secondaries
    await site.zone("example.org")
    await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
    async with (
        site.running(drift_period=SOON, not_ready=SOON, server_pause=SOON),
        named("ns3", secret=one.secret) as three,
    ):
        await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.1"}), timeout=120)
        await site.instance("primary-0", "primary", three)
        await site.record("A", "www", ipv4Addresses=["192.0.2.2"])
        await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.2"}, [two, three]), timeout=120)
        await site.instance("secondary-0", "primary", two)

        async def is_primary():
            with driving(two) as driver:
                return zone_type(await driver.configuration(ORG) or ()) == "primary"

        await eventually(is_primary, "it is written to", timeout=120)
        await site.record("A", "www", ipv4Addresses=["192.0.2.3"])
        await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.3"}, [two, three]), timeout=120)


async def test_b2_t8_what_a_zone_lacks_is_reported_by_the_zone_and_no_record_of_it_is_ready(site):
    await site.zone("nobody.test", bind9InstancesFrom=None)
    await site.zone("policy.test", dnssecPolicy="no-such-policy")
    await site.key("other-key", site.primaries[0], name="nobody")
    await site.instances(updateKey={"secretRef": {"name": "other-key"}})
    await site.zone("example.org")
    async with site.running(drift_period=SOON, not_ready=SOON):
        await eventually(lambda: site.is_ready("DNSZone", "nobody.test", "NoInstances"), timeout=120)
        await eventually(lambda: site.is_ready("DNSZone", "policy.test", "PrimaryFailed"), timeout=120)
        assert "not found" in (await site.ready("DNSZone", "policy.test"))[2]
        await eventually(lambda: serial(site.primaries[0], "example.org"), "the zone is there", timeout=120)
        await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
        await eventually(lambda: site.is_ready("A", "www", "ReconcileFailed"), timeout=120)
        assert "BADKEY" in (await site.ready("A", "www"))[2]


async def test_b28_zones_of_other_namespaces_count_and_a_grant_taken_back_removes_them(site, client):
    other = f"{site.namespace}-b"
    await client.create(Namespace(metadata=ObjectMeta(name=other)))
    try:
        grant = {"bindy.firestoned.io/allow-zone-namespaces": other}
        for role, server in (("primary", site.primaries[0]), ("secondary", site.secondaries[0])):
            await _annotated(site, f"{role}-0", role, server, grant)
        there = Site(client, other, [])
        await there.zone("example.org")
        async with site.running(namespaces=[other], drift_period=SOON, not_ready=SOON):
            await eventually(lambda: there.is_ready("DNSZone", "example.org"), timeout=120)

            async def counted():
                found = await site.get("Bind9Instance", "primary-0")
                return found.status is not None and found.status.zones_count == 1

            await eventually(counted, "the instance counts it", timeout=120)
            for role, server in (("primary", site.primaries[0]), ("secondary", site.secondaries[0])):
                await _annotated(site, f"{role}-0", role, server, {})
            await eventually(lambda: there.is_ready("DNSZone", "example.org", "CrossNamespaceDenied"), timeout=120)
            await eventually(lambda: _absent(site.primaries[0]), "it is gone there", timeout=120)
            await there.delete("DNSZone", "example.org")
            await eventually(lambda: there.gone("DNSZone", "example.org"), timeout=120)
    finally:
        await client.delete(Namespace, other)


async def test_a_status_that_lies_removes_no_foreign_zone(site, client):
    """Who may write the status of a zone of theirs must not be able to remove a zone of others by it."""
    other = f"{site.namespace}-c"
    await client.create(Namespace(metadata=ObjectMeta(name=other)))
    try:
        await site.zone("example.org")
        there = Site(client, other, [])
        await there.zone("example.org", "thief")
        row = {"apiVersion": API, "kind": "Bind9Instance", "name": "primary-0", "namespace": site.namespace}
        lie = {"status": {"bind9Instances": [{**row, "status": "Configured"}]}}
        await client.patch(DNSZone, "thief", lie, namespace=other, subresource="status")
        async with site.running(namespaces=[other], drift_period=SOON, not_ready=SOON):
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
            await eventually(lambda: there.is_ready("DNSZone", "thief", "CrossNamespaceDenied"), timeout=120)
            before = await serial(site.primaries[0], "example.org")
            await there.delete("DNSZone", "thief")
            await eventually(lambda: there.gone("DNSZone", "thief"), timeout=120)
            await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
            await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.1"}), timeout=120)
            assert await serial(site.primaries[0], "example.org") > before
            assert "delzone -clean" not in (site.primaries[0].folder / "log").read_text()  # not even for a moment
    finally:
        await client.delete(Namespace, other)


async def _annotated(site, name, role, server, annotations):
    spec = {
        "clusterRef": "",
        "role": role,
        "endpoints": [server.endpoint],
        "rndcKey": {"secretRef": {"name": f"{name}-key"}},
    }
    await site.apply("Bind9Instance", name, spec, labels={"dns": "test"}, annotations=annotations)


async def _absent(server):
    return await serial(server, "example.org") is None


async def test_b10_t15_of_two_primaries_one_signs_and_all_servers_have_its_keys_and_its_serial(site, named):
    (one,), (two,) = site.primaries, site.secondaries
    await site.instance("secondary-0", "primary", two)
    await site.zone("example.org", dnssecPolicy="default")
    async with site.running(drift_period=SOON, not_ready=SOON):

        async def agreed():
            keys = [await values(server, "example.org", "DNSKEY") for server in (one, two)]
            zone = await site.get("DNSZone", "example.org")
            served = {await serial(server, "example.org") for server in (one, two)}
            return keys[0] and keys[0] == keys[1] and zone.status and served == {zone.status.serial}

        await eventually(agreed, "the same keys and the serial of the status everywhere", timeout=180)

        async def signed():
            with driving(one) as driver:
                return signature_problems(await driver.values(ORG, RRSIG), SYSTEM_CLOCK.time()) == []

        await eventually(signed, "signatures that hold for long", timeout=120)


async def test_b21_b24_what_is_made_for_an_instance_goes_with_it(site):
    spec = {
        "clusterRef": "",
        "role": "primary",
        "rndcKey": {"secret": {"stringData": {"key-name": "k", "secret": "b2xk"}}},
    }
    await site.apply("Bind9Instance", "made", spec)
    async with site.running():

        async def owners():
            rows = [
                await site.client.get(ConfigMap, "made-config", namespace=site.namespace),
                await site.client.get(Secret, "made-rndc-key", namespace=site.namespace),
            ]
            assert rows[1].data["secret"] == b"b2xk"
            return {owner.name for row in rows for owner in row.metadata.owner_references or ()} == {"made"}

        await eventually(owners, "its objects are its own", timeout=120)


async def test_t3_an_alias_takes_the_place_of_what_others_put_there_although_the_server_would_say_nothing(site):
    (one,) = site.primaries
    await site.zone("example.org", annotations={"steersman.dev/dns-drift": "report"})
    async with site.running(drift_period=SOON):
        await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
        await rogue(one, "example.org", ("add", "www", 60, "A", "203.0.113.1"), ("add", "more", 60, "A", "203.0.113.2"))

        async def noticed():
            found = await site.get("DNSZone", "example.org")
            return found.status is not None and found.status.drift_count > 0

        await eventually(noticed, "somebody else's data is noticed", timeout=120)
        await site.record("CNAME", "www", target="x.example.net.")
        await eventually(lambda: site.answers("www.example.org", "CNAME", {"x.example.net."}), timeout=120)
        await site.answers("more.example.org", "A", {"203.0.113.2"}, [one])  # what is in nobody's way stays
