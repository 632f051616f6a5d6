"""Signed zones in pods: the keys outlive every pod and disk, and nobody sees a signed zone unsigned."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import dns.dnssec
import dns.exception
import dns.message
import dns.name
import dns.rdatatype
import pytest

from steersman.kube.api.types import Event, Pod, Secret
from steersman.operators.dns.dnssec.keys import keys_in, make_key
from steersman.operators.dns.zone.names import name_of
from steersman.testing import eventually
from tests.support.dns.pod_servers import PodServer, PodWitness, is_pod_ready
from tests.support.dns.zones import exchange, serial, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
LIMIT = timedelta(seconds=5)
ORG = name_of("example.org")
KEYS = "bind9-signing-keys"
NOW = "2026-11-17T06:00:00Z"


async def _cluster(site, signing=None, primaries=2, secondaries=1, **spec):
    config = {"dnssec": {"signing": {"enabled": True, **(signing or {})}}}
    roles = {"primary": {"replicas": primaries}, "secondary": {"replicas": secondaries}}
    await site.apply("Bind9Cluster", "c", {**roles, "global": config, **spec})
    await site.zone("example.org", clusterRef="c", bind9InstancesFrom=[], dnssecPolicy="bindy-default")
    await site.record("A", "www", ipv4Addresses=["192.0.2.1"])


async def _signed(server, name="www.example.org."):
    """What a server says, and whether its own keys vouch for it; returns the DS records of those."""
    origin, owner = dns.name.from_text("example.org."), dns.name.from_text(name)
    question = dns.message.make_query(origin, "DNSKEY", want_dnssec=True)
    reply = await exchange(server, question)
    shown = reply.find_rrset(dns.message.ANSWER, origin, 1, dns.rdatatype.DNSKEY)
    answer = await exchange(server, dns.message.make_query(owner, "A", want_dnssec=True))
    data = answer.find_rrset(dns.message.ANSWER, owner, 1, dns.rdatatype.A)
    signatures = answer.find_rrset(dns.message.ANSWER, owner, 1, dns.rdatatype.RRSIG, dns.rdatatype.A)
    dns.dnssec.validate(data, signatures, {origin: shown})
    return {dns.dnssec.make_ds(origin, row, "SHA256").to_text() for row in shown if row.flags & 1}


async def _all_signed(site, pods, count, address, *, ours=True):
    """So many pods are Ready, have that address, and vouch for it with the keys that the status names.

    Where keys are `ours`, also at its serial; where named makes them, it counts on by itself, and is looked at later.
    """
    servers = await pods.ready(count)
    assert servers, "not ready"
    await site.answers("www.example.org", "A", {address}, servers)
    zone = await site.get("DNSZone", "example.org")
    assert zone.status.dnssec, "no status"
    assert zone.status.dnssec.ds_records, "no DS"
    for server in servers:
        try:
            found = await _signed(server)
        except (KeyError, OSError, EOFError, dns.exception.DNSException) as error:
            raise AssertionError(f"{server.name}: {error!r}") from None
        assert found == set(zone.status.dnssec.ds_records)
    assert not ours or {await serial(server, "example.org") for server in servers} == {zone.status.serial}
    return found


class _Unsigned(PodWitness):
    """Asks every pod that gets traffic all the time; `lies` has the answers that nobody vouched for."""

    async def _ask(self, pod):
        if not is_pod_ready(pod):
            return
        question = dns.message.make_query("www.example.org.", "A", want_dnssec=True)
        try:
            async with asyncio.timeout(LIMIT.total_seconds()):
                answer = await exchange(PodServer(pod), question)
        except (OSError, EOFError, dns.exception.DNSException):
            return
        if answer.answer:
            self.answers += 1
            if not any(rrset.rdtype == dns.rdatatype.RRSIG for rrset in answer.answer):
                self.lies.append(f"{pod.name} answers unsigned")


async def test_b10_the_keys_of_a_zone_outlive_every_pod_and_disk_and_its_ds_record_stays(site, pods, kubelet):
    await _cluster(site)
    async with site.running(request_timeout=LIMIT), PodWitness(pods, "example.org", limit=5.0) as witness:
        known = await eventually(lambda: _all_signed(site, pods, 3, "192.0.2.1"), timeout=240)
        held = await site.client.get(Secret, KEYS, namespace=site.namespace)
        assert {key.ds for key in keys_in(held.data, ORG) if key.entry} == known
        async with _Unsigned(pods, "example.org", limit=5.0) as unsigned:
            for number, lost in enumerate((["c-primary-0"], ["c-primary-0", "c-primary-1", "c-secondary-0"]), start=2):
                for instance in lost:
                    await site.client.delete(Pod, (await pods.of(instance)).name, namespace=site.namespace)
                await site.record("A", "www", ipv4Addresses=[f"192.0.2.{number}"])
                address = f"192.0.2.{number}"
                again = await eventually(lambda address=address: _all_signed(site, pods, 3, address), timeout=240)
                assert again == known
            count = unsigned.answers
            await eventually(lambda: unsigned.answers > count + 3, timeout=60)
        assert unsigned.lies == []
        assert (await site.client.get(Secret, KEYS, namespace=site.namespace)).data == held.data
        assert (await site.get("DNSZone", "example.org")).status.dnssec.signed_by == f"{site.namespace}/c-primary-0"
        pod = await pods.of("c-primary-0")
        log = kubelet.log(pod.name)
        assert "writing key" not in log
        await site.zone("b.test", clusterRef="c", bind9InstancesFrom=[], dnssecPolicy="bindy-default")

        async def another():
            found = await site.get("DNSZone", "b.test")
            return found.status and found.status.dnssec and found.status.dnssec.ds_records

        assert await eventually(another, "a zone that comes later gets keys without a restart", timeout=240)
        assert (await pods.of("c-primary-0")).metadata.uid == pod.metadata.uid
        private = [line for name in ("signing", "bind9") for line in kubelet.log(pod.name, name).splitlines()]
        assert not any("PrivateKey" in line for line in private)
    assert witness.lies == []


async def test_b10_given_keys_are_used_and_without_keys_a_zone_is_not_signed_and_says_so(site, pods, kubelet):
    made = {**make_key(ORG, 15, NOW, entry=True), **make_key(ORG, 15, NOW, entry=False)}
    plain = {name: text for name, text in made.items() if not name.endswith(".state")}
    ds = {key.ds for key in keys_in({name: text.encode() for name, text in made.items()}, ORG) if key.entry}
    source = {"keysFrom": {"secretRef": {"name": "bindy-given"}}, "algorithm": "ED25519", "autoGenerate": False}

    async def give(files):
        await site.secret("bindy-given", files)

    await give({})
    await _cluster(site, source, primaries=1, secondaries=1)
    async with site.running(request_timeout=LIMIT, not_ready=timedelta(seconds=2)):

        async def unsigned():
            status, reason, message = await site.ready("DNSZone", "example.org")
            assert (status, reason) == ("False", "KeysMissing")
            assert "dnssec.signing.keysFrom.secretRef" in message
            servers = await pods.ready(2)
            assert servers
            await site.answers("www.example.org", "A", {"192.0.2.1"}, servers)
            return [await values(server, "example.org", "DNSKEY") for server in servers] == [set(), set()]

        await eventually(unsigned, "served, unsigned, and it says why", timeout=240)
        await give(plain)
        assert await eventually(lambda: _all_signed(site, pods, 2, "192.0.2.1"), timeout=240) == ds
        await site.client.delete(Pod, (await pods.of("c-primary-0")).name, namespace=site.namespace)
        await site.record("A", "www", ipv4Addresses=["192.0.2.2"])
        assert await eventually(lambda: _all_signed(site, pods, 2, "192.0.2.2"), timeout=240) == ds
        assert (await site.client.get(Secret, "bindy-given", namespace=site.namespace)).data.keys() == plain.keys()
        # Its keys are taken away: it stays as it is served, and says what to do.
        await give({})

        async def lost():
            status, reason, message = await site.ready("DNSZone", "example.org")
            return (status, reason) == ("False", "KeysLost") and next(iter(ds)) in message

        await eventually(lost, "the zone says that its keys are lost", timeout=240)
        await site.record("A", "www", ipv4Addresses=["192.0.2.3"])

        async def held_back():
            status, _, _ = await site.ready("ARecord", "www")
            return status == "False"

        await eventually(held_back, "the record says that it is not published", timeout=240)
        for server in await pods.ready(2):
            assert await _signed(server) == ds
            await site.answers("www.example.org", "A", {"192.0.2.2"}, [server])
        await give(plain)
        assert await eventually(lambda: _all_signed(site, pods, 2, "192.0.2.3"), timeout=240) == ds


async def test_b10_keys_of_the_disk_live_as_long_as_it_does_and_a_volume_of_their_own_longer(site, pods, kubelet):
    volume = {"keysFrom": {"persistentVolume": {"resources": {"requests": {"storage": "10Mi"}}}}, "zskLifetime": "90d"}
    await _cluster(site, volume, primaries=1, secondaries=0)
    async with site.running(request_timeout=LIMIT, not_ready=timedelta(seconds=2)):
        known = await eventually(lambda: _all_signed(site, pods, 1, "192.0.2.1", ours=False), timeout=240)
        await site.client.delete(Pod, (await pods.of("c-primary-0")).name, namespace=site.namespace)
        await site.record("A", "www", ipv4Addresses=["192.0.2.2"])
        assert await eventually(lambda: _all_signed(site, pods, 1, "192.0.2.2", ours=False), timeout=240) == known
        assert (kubelet.folder / "claims" / "c-primary-0-signing").is_dir()
        await site.delete("DNSZone", "example.org")
        await eventually(lambda: site.gone("DNSZone", "example.org"), timeout=120)
        await _cluster(site, {"exportToSecret": False}, primaries=1, secondaries=0)
        rows = await eventually(lambda: _warned(site), timeout=120)
        assert "storage.storageType" in rows

        async def replaced():
            return "signing" not in {volume.name for volume in (await pods.of("c-primary-0")).spec.volumes}

        await eventually(replaced, "its pod is one without the claim for keys", timeout=120)
        first = await eventually(lambda: _all_signed(site, pods, 1, "192.0.2.1", ours=False), timeout=240)
        await site.client.delete(Pod, (await pods.of("c-primary-0")).name, namespace=site.namespace)
        await site.record("A", "www", ipv4Addresses=["192.0.2.2"])
        assert await eventually(lambda: _all_signed(site, pods, 1, "192.0.2.2", ours=False), timeout=240) != first

        async def told():
            events = (await site.client.list(Event, namespace=site.namespace)).items
            return any(event.reason == "SigningKeysChanged" for event in events)

        await eventually(told, "a warning that the parent needs another DS record", timeout=60)


async def _warned(site):
    rows = (await site.get("Bind9Instance", "c-primary-0")).status.conditions
    return next((row.message for row in rows if row.type == "SigningKeys" and row.status == "False"), "")
