"""Signing on real servers: named takes the keys it is given as they are, and a zone can be unsigned again."""

from __future__ import annotations

from base64 import b64encode
from contextlib import contextmanager
from datetime import timedelta

import dns.dnssec
import dns.message
import dns.name
import dns.rdatatype
import pytest

from steersman.clock import SYSTEM_CLOCK
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.types import Pod, Secret
from steersman.operators.dns.bind.rndc_driver import NativeDriver
from steersman.operators.dns.bind.servers import Keys, Server
from steersman.operators.dns.bind.zone_statements import primary_config
from steersman.operators.dns.dnssec.keys import ALGORITHMS, SIGNING, is_signed_with, keys_in, make_key
from steersman.operators.dns.publish.copy_inspector import PublishJob
from steersman.operators.dns.publish.publisher import publish
from steersman.operators.dns.publish.zone_state import ZoneState
from steersman.operators.dns.wire.tsig import key_from
from steersman.operators.dns.zone.compiler import CompiledZone
from steersman.operators.dns.zone.conflicts import ZONE
from steersman.operators.dns.zone.names import name_of
from steersman.operators.dns.zone.rdata import DNSKEY, NS, A, Contribution, RRset, Soa
from steersman.testing import eventually
from tests.support.dns.zones import Site, exchange, serial, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ORG = name_of("example.org")
NOW = "2026-11-17T06:00:00Z"
START = Soa(name_of("ns1.example.org"), name_of("hostmaster.example.org"), 7, 3600, 600, 604800, 60)
DATA = {
    (b"", NS): RRset(300, frozenset({name_of("ns1.example.org")})),
    (b"\x03ns1", A): RRset(300, frozenset({bytes([192, 0, 2, 53])})),
    (b"\x03www", A): RRset(300, frozenset({bytes([192, 0, 2, 1])})),
}
POLICY = """dnssec-policy "p" {{
  keys {{ ksk lifetime unlimited algorithm {0}; zsk lifetime unlimited algorithm {0}; }};{1}
}};"""


@contextmanager
def driving(named, role="primary"):
    key = key_from({"key-name": named.key_name.encode(), "secret": named.secret.encode()})
    server = Server(
        NamespacedName(role, "dns"), "0", role, named.address, named.dns_port, named.rndc_port, Keys(key, key, key)
    )
    driver = NativeDriver(server, clock=SYSTEM_CLOCK, timeout=60.0)
    try:
        yield driver
    finally:
        driver.close()


def put(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        stem, algorithm, rest = name.rsplit("_", 2)
        (folder / f"{stem}+{algorithm}+{rest}").write_text(text)


async def validated(server, files):
    """An answer of the server that the keys of these files vouch for."""
    origin = dns.name.from_text("example.org.")
    question = dns.message.make_query("example.org.", "DNSKEY", want_dnssec=True)
    shown = (await exchange(server, question)).find_rrset(dns.message.ANSWER, origin, 1, dns.rdatatype.DNSKEY)
    entries = [key for key in keys_in({n: t.encode() for n, t in files.items()}, ORG) if key.entry]
    assert {dns.dnssec.make_ds(origin, row, "SHA256").to_text() for row in shown if row.flags & 1} == {
        key.ds for key in entries
    }
    name = dns.name.from_text("www.example.org.")
    answer = await exchange(server, dns.message.make_query(name, "A", want_dnssec=True))
    data = answer.find_rrset(dns.message.ANSWER, name, 1, dns.rdatatype.A)
    signatures = answer.find_rrset(dns.message.ANSWER, name, 1, dns.rdatatype.RRSIG, dns.rdatatype.A)
    dns.dnssec.validate(data, signatures, {origin: shown})
    return True


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
async def test_b10_named_signs_with_made_keys_as_they_are_and_writes_none(named, tmp_path, algorithm):
    files = {**make_key(ORG, algorithm, NOW, entry=True), **make_key(ORG, algorithm, NOW, entry=False)}
    keys = tmp_path / "keys"
    chain = " nsec3param iterations 0 optout no salt-length 0;" if algorithm == 13 else ""
    put(keys, files)
    before = {path.name: path.read_bytes() for path in keys.iterdir()}
    tags = [key.tag for key in keys_in({n: t.encode() for n, t in files.items()}, ORG)]
    extra = POLICY.format(ALGORITHMS[algorithm].lower(), chain)
    async with named("ns1", extra=extra) as ns1:
        with driving(ns1) as driver:
            config = primary_config(driver.server, ORG, [], policy="p", keys=str(keys))
            await driver.create_primary(ORG, config, START, DATA, 300)

            async def signed():
                return is_signed_with(tags, await driver.values(ORG, DNSKEY), await driver.values(ORG, SIGNING))

            await eventually(signed, "signed with those keys", timeout=120)
            await eventually(lambda: validated(ns1, files), timeout=60)
            await driver.load_keys(ORG)  # not even when it is told to look
            await eventually(signed, timeout=60)
            await ns1.kill()
            await ns1.start()
            await eventually(lambda: validated(ns1, files), timeout=60)
    assert {path.name: path.read_bytes() for path in keys.iterdir()} == before
    assert "writing key" not in (ns1.folder / "log").read_text(errors="replace")


async def test_keys_that_come_late_are_taken_when_named_is_asked_to_reload(named, tmp_path):
    files = {**make_key(ORG, 15, NOW, entry=True), **make_key(ORG, 15, NOW, entry=False)}
    keys = tmp_path / "keys"  # not there: named cannot make keys in it, as in a directory that it may not write
    tags = [key.tag for key in keys_in({n: t.encode() for n, t in files.items()}, ORG)]
    async with named("ns1", extra=POLICY.format("ed25519", "")) as ns1:
        with driving(ns1) as driver:
            config = primary_config(driver.server, ORG, [], policy="p", keys=str(keys))
            await driver.create_primary(ORG, config, START, DATA, 300)
            await eventually(lambda: "zone_rekey" in (ns1.folder / "log").read_text(), timeout=60)
            assert await driver.values(ORG, DNSKEY) == []
            assert await values(ns1, "www.example.org", "A") == {"192.0.2.1"}  # served, and unsigned
            put(keys, files)

            async def signed():
                await driver.load_keys(ORG)
                return is_signed_with(tags, await driver.values(ORG, DNSKEY), await driver.values(ORG, SIGNING))

            await eventually(signed, timeout=60)
            await eventually(lambda: validated(ns1, files), timeout=60)


async def test_no_resolver_is_notified_of_a_zone_that_its_parent_knows_before_it_is_signed(named, tmp_path):
    files = {**make_key(ORG, 15, NOW, entry=True), **make_key(ORG, 15, NOW, entry=False)}
    tags = frozenset(key.tag for key in keys_in({n: t.encode() for n, t in files.items()}, ORG))
    keys = tmp_path / "keys"
    async with named("ns1", extra=POLICY.format("ed25519", "")) as ns1, named("ns2", secret=ns1.secret) as ns2:
        with driving(ns1) as writer, driving(ns2, "secondary") as reader:
            drivers = {writer.server.id: writer, reader.server.id: reader}
            state = ZoneState(NamespacedName("z", "dns"))
            state.loader.desired = CompiledZone(ORG)
            state.desired.put(ZONE, *(Contribution(ZONE, key, 300, rrset.values) for key, rrset in DATA.items()))
            state.desired.settle()

            async def published():
                job = PublishJob(
                    soa=START,
                    ttl=300,
                    primaries=(writer.server,),
                    secondaries=(reader.server,),
                    policy="p",
                    key_directory=str(keys),
                    tags=tags,
                    hold=True,
                )
                report = await publish(state, job, lambda server: drivers[server.id])
                assert report.errors == {}
                return report

            for _ in range(3):
                assert (await published()).unsigned == [writer.server.title]
                assert await reader.configuration(ORG) is None  # it is told nothing
                assert ("also-notify", ()) in (await writer.configuration(ORG) or ())
                assert not state.has(writer.server.id)  # and a pod would get no traffic
            put(keys, files)

            async def told():
                report = await published()
                served = await values(ns2, "example.org", "SOA")
                assert not served or await values(ns2, "example.org", "DNSKEY"), "it was told of an unsigned zone"
                return served and not report.unsigned and state.has(writer.server.id)

            await eventually(told, "all have the signed zone", timeout=120)
            assert ("also-notify", ()) not in (await writer.configuration(ORG) or ())
            await eventually(lambda: validated(ns2, files), timeout=60)


async def test_a_zone_that_is_no_longer_to_be_signed_is_served_unsigned_at_a_later_serial(site, ns1):
    await site.zone("example.org", dnssecPolicy="default")
    await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
    async with site.running(drift_period=timedelta(seconds=1), not_ready=timedelta(seconds=1)):

        async def told():
            zone = await site.get("DNSZone", "example.org")
            return zone.status and zone.status.dnssec and zone.status.dnssec.ds_records and zone.status.dnssec.signed_by

        assert await eventually(told, "signed, and by whom", timeout=120) == f"{site.namespace}/primary-0"
        before = await serial(ns1, "example.org")
        await site.zone("example.org")

        async def unsigned():
            zone = await site.get("DNSZone", "example.org")
            assert not zone.status.dnssec.signed
            assert not zone.status.dnssec.ds_records
            assert await values(ns1, "example.org", "DNSKEY") == set()
            await site.answers("www.example.org", "A", {"192.0.2.1"})
            return await site.is_ready("DNSZone", "example.org")

        await eventually(unsigned, "unsigned, and ready", timeout=120)
        assert await serial(ns1, "example.org") > before


PEM = "Private-key-format"


async def _pod(site, name):
    """A pod of that instance that runs, as far as anybody can tell; nobody answers there."""
    labels = {"app": "bind9", "app.kubernetes.io/instance": name}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{name}-0", "namespace": site.namespace, "labels": labels},
        "spec": {"containers": [{"name": "bind9", "image": "none"}]},
    }
    await site.client.apply(body, field_manager="test", force=True)
    status = {"status": {"phase": "Running", "podIP": "127.0.0.1"}}
    await site.client.patch(Pod, f"{name}-0", status, namespace=site.namespace, subresource="status")


async def _made(site, **signing):
    config = {"dnssec": {"signing": {"enabled": True, **signing}}}
    spec = {"clusterRef": "", "role": "primary", "config": config}
    await site.apply("Bind9Instance", "made", spec, labels={"dns": "test"})
    await _pod(site, "made")


async def _data(site):
    return (await site.client.get(Secret, "bind9-signing-keys", namespace=site.namespace)).data


@pytest.fixture
def bare(cluster, client, dns_kinds, namespace):
    return Site(client, namespace, [])


async def test_zones_that_come_together_get_two_keys_each_and_keep_them_at_every_reconcile(bare):
    names = [f"z{number}.test" for number in range(12)]
    await _made(bare)
    for name in names:
        await bare.zone(name, dnssecPolicy="bindy-default")

    async def complete():
        found = {name: keys_in(await _data(bare), name_of(name)) for name in names}
        return found if all(len(keys) == 2 for keys in found.values()) else None

    async with bare.running(request_timeout=timedelta(seconds=2), not_ready=timedelta(seconds=1)):
        first = await eventually(complete, "two keys for each", timeout=120)
        held = await _data(bare)
        assert all(PEM.encode() in held[f"{key.field}.private"] for keys in first.values() for key in keys)
        await bare.client.patch(  # somebody looks at each of them again, and a new one comes
            Secret, "bind9-signing-keys", {"metadata": {"labels": {"seen": "yes"}}}, namespace=bare.namespace
        )
        await bare.zone("late.test", dnssecPolicy="bindy-default")
        await eventually(lambda: _has_keys(bare, "late.test"), timeout=120)
    async with bare.running(request_timeout=timedelta(seconds=2), not_ready=timedelta(seconds=1)):  # a new process
        for name in names:
            await eventually(lambda n=name: bare.is_ready("DNSZone", n, "PrimaryFailed"), timeout=120)
    again = await _data(bare)
    assert {field: again[field] for field in held} == held
    assert len(again) == 6 * (len(names) + 1)


async def _has_keys(site, zone):
    return len(keys_in(await _data(site), name_of(zone))) == 2


async def test_a_full_secret_and_another_algorithm_are_reported_with_their_names_and_no_key_is_shown(bare):
    made = {**make_key(ORG, 15, NOW, entry=True), **make_key(ORG, 15, NOW, entry=False)}
    await bare.secret("bind9-signing-keys", made)
    await _made(bare, algorithm="ECDSAP256SHA256")
    await bare.zone("example.org", dnssecPolicy="bindy-default")
    async with bare.running(request_timeout=timedelta(seconds=2), not_ready=timedelta(seconds=1)):
        await eventually(lambda: bare.is_ready("Bind9Instance", "made", "ConfigurationInvalid"), timeout=120)
        message = (await bare.ready("Bind9Instance", "made"))[2]
        assert "ED25519" in message
        assert "bind9-signing-keys" in message
        await _made(bare, algorithm="ED25519")
        await eventually(lambda: bare.is_ready("Bind9Instance", "made", "NotReady"), timeout=120)
        for number, size in enumerate([2**18, 2**18, 2**18, 2**18 - 2000]):
            more = {"data": {f"full-{number}": b64encode(bytes(size)).decode()}}
            await bare.client.patch(Secret, "bind9-signing-keys", more, namespace=bare.namespace)
        await bare.zone("late.test", dnssecPolicy="bindy-default")
        await eventually(lambda: bare.is_ready("DNSZone", "late.test", "KeysFull"), timeout=120)
        message = (await bare.ready("DNSZone", "late.test"))[2]
        assert f"{bare.namespace}/bind9-signing-keys" in message
        assert "PrivateKey" not in message
        assert not keys_in(await _data(bare), name_of("late.test"))
