"""Secondaries in pods that take their zones from a catalog: nobody tells them one by one, and nothing restarts."""

from __future__ import annotations

from datetime import timedelta

import dns.rcode
import pytest

from steersman.kube.types import ConfigMap, Pod
from steersman.operators.dns.serverkinds import Bind9Instance
from steersman.testing import RequestLog, eventually
from steersman.testing.podservers import PodServer, PodWitness, is_pod_ready
from steersman.testing.zones import ask, serial

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
LIMIT = timedelta(seconds=5)
CLUSTER = {"primary": {"replicas": 2}, "secondary": {"replicas": 2}}
CATALOG = {"global": {"catalogZone": "Catalog.test."}}
TRIGGER = "bindy.firestoned.io/reconcile-trigger"
SECONDARIES = ("c-secondary-0", "c-secondary-1")


async def _cluster(site, **spec):
    await site.apply("Bind9Cluster", "c", {**CLUSTER, **spec})
    where = {"clusterRef": "c", "bind9InstancesFrom": []}
    await site.zone("catalog.test", catalog=True, soa={"primaryNs": "invalid."}, nameServers=[], **where)
    for zone in ("a.test", "b.test"):
        await site.zone(zone, **where)
        await site.record("A", f"www-{zone[0]}", owner="www", zone=zone, ipv4Addresses=["192.0.2.1"])


async def _agreed(site, pods, zone, address):
    servers = await pods.ready(4)
    assert servers, "not ready"
    await site.answers(f"www.{zone}", "A", {address}, servers)
    return servers


async def _refuse(servers, zone):
    return {(await ask(server, zone, "SOA")).rcode() for server in servers} == {dns.rcode.REFUSED}


async def _primaries_in(site, instance):
    held = await site.client.get(ConfigMap, f"{instance}-config", namespace=site.namespace)
    return held.data["catalog.options"]


async def test_members_come_and_go_and_a_primary_that_moves_is_followed_without_a_restart(site, pods, kubelet):
    await _cluster(site, **CATALOG)
    async with (
        site.running(request_timeout=LIMIT) as manager,
        PodWitness(pods, "a.test", limit=LIMIT.total_seconds()) as witness,
    ):
        for zone in ("a.test", "b.test"):
            servers = await eventually(lambda zone=zone: _agreed(site, pods, zone, "192.0.2.1"), timeout=300)
        begun = {name: (await pods.of(name)).metadata.uid for name in SECONDARIES}
        restarts = {name: kubelet.pids((await pods.of(name)).name) for name in SECONDARIES}
        secondaries = [PodServer(await pods.of(name)) for name in SECONDARIES]
        await site.delete("DNSZone", "b.test")
        await eventually(lambda: site.gone("DNSZone", "b.test"), timeout=180)
        assert await _refuse(servers, "b.test")
        where = {"clusterRef": "c", "bind9InstancesFrom": []}
        await site.zone("later.test", **where)
        await eventually(lambda: serial(secondaries[0], "later.test"), timeout=180)
        await eventually(lambda: site.is_ready("DNSZone", "later.test"), timeout=180)
        # One primary gets another address, the other one another pod and an empty disk: both are new to secondaries.
        await kubelet.move((await pods.of("c-primary-0")).name)
        old = await pods.of("c-primary-1")
        await site.client.delete(Pod, old.name, namespace=site.namespace)

        async def moved():
            pod = await pods.of("c-primary-0")
            return pod if pod.status.pod_ip == kubelet.address(pod.name) and is_pod_ready(pod) else None

        async def replaced():
            pod = await pods.of("c-primary-1")
            return pod if pod.metadata.uid != old.metadata.uid and is_pod_ready(pod) else None

        fresh = [await eventually(one, timeout=300) for one in (moved, replaced)]

        async def known():
            texts = [await _primaries_in(site, name) for name in SECONDARIES]
            return all(f"{pod.status.pod_ip} port 5353" in text for pod in fresh for text in texts)

        await eventually(known, "the configuration of secondaries names them", timeout=180)
        await site.record("A", "www-a", owner="www", zone="a.test", ipv4Addresses=["192.0.2.2"])
        await eventually(lambda: _agreed(site, pods, "a.test", "192.0.2.2"), timeout=300)
        await site.zone("last.test", **where)
        await eventually(lambda: serial(secondaries[1], "last.test"), timeout=300)
        for name in SECONDARIES:
            pod = await pods.of(name)
            assert pod.metadata.uid == begun[name]
            assert kubelet.pids(pod.name) == restarts[name]
        for zone in ("catalog.test", "a.test", "later.test", "last.test"):
            await eventually(lambda zone=zone: site.is_ready("DNSZone", zone), timeout=180)
        # A secondary that begins with nothing gets no traffic before it has every zone of the catalog.
        await site.client.delete(Pod, (await pods.of("c-secondary-0")).name, namespace=site.namespace)

        async def again():
            pod = await pods.of("c-secondary-0")
            return pod if pod.metadata.uid != begun["c-secondary-0"] and is_pod_ready(pod) else None

        server = PodServer(await eventually(again, timeout=300))
        for zone in ("a.test", "later.test", "last.test"):
            assert await serial(server, zone), zone
        await eventually(lambda: _quiet(site, manager), "a look at a secondary writes nothing", timeout=180)
    assert witness.lies == []


async def _quiet(site, manager):
    tally = manager.engine("dns-instances").tally
    seen = tally.results["requeue_after"]
    with RequestLog(site.client) as log:
        look = {"metadata": {"annotations": {TRIGGER: f"look {seen}"}}}
        await site.client.patch(Bind9Instance, "c-secondary-0", look, namespace=site.namespace)
        await eventually(lambda: tally.results["requeue_after"] > seen, timeout=120)
    assert len(log.writes) == 1, log.writes  # ours
    return True


async def test_a_catalog_can_be_given_and_taken_while_servers_keep_their_disks_and_their_answers(site, pods, kubelet):
    claims = {"storage": {"storageType": "persistentVolumeClaim"}}
    await _cluster(site, **claims)
    async with site.running(request_timeout=LIMIT):
        await eventually(lambda: _agreed(site, pods, "a.test", "192.0.2.1"), timeout=300)
        for spec, address in ((CATALOG, "192.0.2.2"), ({}, "192.0.2.3")):
            before = {name: (await pods.of(name)).metadata.uid for name in SECONDARIES}
            async with PodWitness(pods, "a.test", limit=LIMIT.total_seconds()) as witness:
                await site.apply("Bind9Cluster", "c", {**CLUSTER, **claims, **spec})

                async def rolled(before=before):
                    now = {name: (await pods.of(name)).metadata.uid for name in SECONDARIES}
                    return all(now[name] != before[name] for name in now) and await pods.ready(4)

                await eventually(rolled, "secondaries with the other configuration", timeout=300)
            assert witness.lies == []
            await site.record("A", "www-a", owner="www", zone="a.test", ipv4Addresses=[address])
            servers = await eventually(lambda address=address: _agreed(site, pods, "a.test", address), timeout=300)
            await eventually(lambda: site.is_ready("DNSZone", "a.test"), timeout=180)
            gone = "b.test" if spec else "catalog.test"
            await site.delete("DNSZone", gone)
            await eventually(lambda gone=gone: site.gone("DNSZone", gone), timeout=180)
            assert await _refuse(servers, gone)
