"""Whole clusters through Kubernetes objects only: pods on the real control plane are real name servers.

Deployments become pods by Kubernetes' own controllers, and a kubelet of the test runs what the pods describe: paths,
ports, keys, users and rights of the operator's manifests are used as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest

from steersman.clock import SYSTEM_CLOCK
from steersman.kube.api.types import Pod, Secret
from steersman.operators.dns.wire.rndc import ControlRefused, Rndc
from steersman.operators.dns.wire.tsig import key_from
from steersman.testing import RequestLog, eventually
from steersman.testing.clock import FastClock
from tests.support.dns.pod_servers import PodServer, PodWitness, is_pod_ready
from tests.support.dns.zones import PATIENCE, serial

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
GATE = "bindy.firestoned.io/zones-synced"
LIMIT = timedelta(seconds=5)  # for one exchange where addresses vanish, as in production
CREATED = "bindy.firestoned.io/rndc-created-at"


CLUSTER = {"primary": {"replicas": 2, "rndcKey": {"autoRotate": True}}, "secondary": {"replicas": 2}}


async def _cluster(site, **spec):
    await site.apply("Bind9Cluster", "c", {**CLUSTER, **spec})
    await site.zone("example.org", clusterRef="c", bind9InstancesFrom=[])
    await site.record("A", "www", ipv4Addresses=["192.0.2.1"])


async def _agreed(site, pods, address, count=4):
    """So many pods are Ready, and all of them have that address and the serial of the zone's status."""
    servers = await pods.ready(count)
    assert servers, "not ready"
    await site.answers("www.example.org", "A", {address}, servers)
    zone = await site.get("DNSZone", "example.org")
    assert {await serial(server, "example.org") for server in servers} == {zone.status.serial}
    return servers


async def test_no_pod_gets_traffic_before_it_has_its_zones_and_no_lost_disk_means_an_older_answer(site, pods, kubelet):
    await _cluster(site)
    async with (
        site.running(request_timeout=LIMIT),
        PodWitness(pods, "example.org", limit=LIMIT.total_seconds()) as witness,
    ):
        servers = await eventually(lambda: _agreed(site, pods, "192.0.2.1"), timeout=180)
        for pod in await pods.all():
            rows = {row.type: row for row in pod.status.conditions}
            assert rows[GATE].reason == "ZonesSynced"
        for number, lost in enumerate((["c-primary-0", "c-secondary-0"], ["c-primary-0", "c-primary-1"]), start=2):
            for instance in lost:
                pod = await pods.of(instance)
                await site.client.delete(Pod, pod.name, namespace=site.namespace)
            await site.record("A", "www", ipv4Addresses=[f"192.0.2.{number}"])
            before = {server.uid for server in servers}
            servers = await eventually(lambda number=number: _agreed(site, pods, f"192.0.2.{number}"), timeout=180)
            assert len({server.uid for server in servers} - before) == 2
        here = {server.address for server in servers}
        await eventually(lambda: _connected(kubelet) <= here, "nobody holds on to pods that are gone", timeout=120)
        witness.strict = False  # named answers before it has read its files again, and so would it on any node
        crashed = (await pods.of("c-primary-1")).name
        kubelet.crash(crashed)
        await site.record("A", "www", ipv4Addresses=["192.0.2.4"])
        await eventually(lambda: _agreed(site, pods, "192.0.2.4"), timeout=180)
        for instance in ("c-primary-0", "c-secondary-1"):
            await kubelet.move((await pods.of(instance)).name)
        await site.record("A", "www", ipv4Addresses=["192.0.2.5"])

        async def told():
            return all(pod.status.pod_ip == kubelet.address(pod.name) for pod in await pods.all())

        await eventually(told, "the new addresses are known", timeout=120)
        servers = await eventually(lambda: _agreed(site, pods, "192.0.2.5"), timeout=180)
        assert len({server.address for server in servers} & here) == 2
        answered = witness.answers
        await eventually(lambda: witness.answers >= answered + 4, timeout=120)
    assert witness.lies == []


def _connected(kubelet):
    """The pods that this process has connections to, open or closed by the other side only."""
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    found = {str(ip_address(bytes.fromhex(row[2][:8])[::-1])) for row in rows if row[3] in ("01", "08")}
    return {address for address in found if address.startswith(kubelet.subnet)}


class _Always:
    """Looks all the time; `found` has what should never be seen."""

    def __init__(self, look):
        self._look, self.found = look, []

    async def __aenter__(self):
        self._task = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *_):
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _work(self):
        while True:
            if seen := await self._look():
                self.found.append(seen)
            await asyncio.sleep(0.02)


async def _rotated(site, servers):
    """Have a key made anew, while records keep changing."""
    name = "c-primary-0-rndc-key"
    old = await site.client.get(Secret, name, namespace=site.namespace)
    due = {"metadata": {"annotations": {CREATED: "2020-01-01T00:00:00Z"}}}
    await site.client.patch(Secret, name, due, namespace=site.namespace)
    for number in range(2, 12):
        await site.record("A", "www", ipv4Addresses=[f"192.0.2.{number}"])
        await eventually(lambda n=number: site.answers("www.example.org", "A", {f"192.0.2.{n}"}, servers), timeout=120)

    async def made():
        found = await site.client.get(Secret, name, namespace=site.namespace)
        return found if found.annotations["bindy.firestoned.io/rndc-rotation-count"] == "1" else None

    new = await eventually(made, "the key was made anew, once", timeout=120)
    assert new.data["previous-secret"] == old.data["secret"] != new.data["secret"]
    address = next(server.address for server in servers if server.name.startswith("c-primary-0"))
    await eventually(lambda: _opens(address, new), "the new key opens", timeout=120)
    assert not await _opens(address, old)


async def test_keys_rotate_without_a_restart_and_a_new_configuration_rolls_out_one_server_at_a_time(
    site, pods, kubelet
):
    await _cluster(site)

    async def trouble():
        status, reason, message = await site.ready("DNSZone", "example.org")
        return (reason, message) if status == "False" else None

    async def too_few():
        ready = [pod.name for pod in await pods.all() if is_pod_ready(pod)]
        return ready if len(ready) < 3 else None

    async with site.running():
        servers = await eventually(lambda: _agreed(site, pods, "192.0.2.1"), timeout=180)
        await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
        pids = {server.name: kubelet.pids(server.name) for server in servers}
        async with _Always(trouble) as failures:
            await _rotated(site, servers)
            await site.record("A", "www", ipv4Addresses=["192.0.2.12"])
            await eventually(lambda: _agreed(site, pods, "192.0.2.12"), timeout=120)
        assert failures.found == []
        assert {server.name: kubelet.pids(server.name) for server in servers} == pids

        before = {server.uid for server in servers}

        async def rolled():
            found = await _agreed(site, pods, "192.0.2.12")
            return not {server.uid for server in found} & before

        async with _Always(too_few) as gaps:
            await site.apply("Bind9Cluster", "c", {**CLUSTER, "global": {"allowQuery": ["any", "!192.0.2.99"]}})
            await eventually(rolled, "all four are new", timeout=240)
        assert gaps.found == []
        order = [name.rsplit("-", 2)[0] for name in kubelet.started[4:]]
        assert order == ["c-secondary-0", "c-secondary-1", "c-primary-0", "c-primary-1"]


async def test_keys_that_are_lost_are_created_again_and_what_is_on_a_claim_outlives_its_pod(site, pods, kubelet):
    small = {"primary": {"replicas": 1}, "secondary": {"replicas": 1}}
    await _cluster(site, **small, storage={"storageType": "persistentVolumeClaim"})
    async with site.running(), PodWitness(pods, "example.org", limit=LIMIT.total_seconds()) as witness:
        servers = await eventually(lambda: _agreed(site, pods, "192.0.2.1", 2), timeout=180)
        pids = {server.name: kubelet.pids(server.name) for server in servers}
        await site.client.delete(Secret, "bind9-transfer-key", namespace=site.namespace)
        await site.record("A", "www", ipv4Addresses=["192.0.2.2"])
        servers = await eventually(lambda: _agreed(site, pods, "192.0.2.2", 2), timeout=180)
        assert {server.name: kubelet.pids(server.name) for server in servers} == pids
        before = {server.uid for server in servers}
        await site.client.delete(Secret, "c-primary-0-rndc-key", namespace=site.namespace)
        await site.record("A", "www", ipv4Addresses=["192.0.2.3"])
        servers = await eventually(lambda: _agreed(site, pods, "192.0.2.3", 2), timeout=180)
        assert len({server.uid for server in servers} - before) == 1
        await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
    assert witness.lies == []

    old = await pods.of("c-primary-0")
    known = await serial(PodServer(old), "example.org")
    await site.client.delete(Pod, old.name, namespace=site.namespace)

    async def alone():
        """Nobody but the claim can have told this pod."""
        pod = await pods.of("c-primary-0")
        assert pod.metadata.uid != old.metadata.uid
        assert pod.status.pod_ip
        assert not is_pod_ready(pod)
        await site.answers("www.example.org", "A", {"192.0.2.3"}, [PodServer(pod)])
        return await serial(PodServer(pod), "example.org") == known

    await eventually(alone, "it has the zone without the operator", timeout=120)
    await _quiet_for_a_quarter_of_an_hour(site, pods, kubelet)
    assert await serial(PodServer(await pods.of("c-primary-0")), "example.org") == known


async def _quiet_for_a_quarter_of_an_hour(site, pods, kubelet):
    """Of the operator's clock, that is, which runs a hundred times as fast as the machine's."""
    clock = FastClock(100.0)
    async with site.running(clock=clock, request_timeout=timedelta(seconds=100 * PATIENCE)):
        servers = await eventually(lambda: _agreed(site, pods, "192.0.2.3", 2), timeout=180)

        async def ready():
            whole = [("DNSZone", "example.org"), ("A", "www"), ("Bind9Cluster", "c"), ("Bind9Instance", "c-primary-0")]
            return all([await site.is_ready(kind, name) for kind, name in whole])

        await eventually(ready, "all is well", timeout=120)

        async def quiet():
            updates = [kubelet.log(server.name).count("updating zone") for server in servers]
            began = clock.monotonic()
            with RequestLog(site.client) as log:
                await eventually(lambda: clock.monotonic() - began >= 900, "15 minutes", timeout=60)
            assert log.writes == []
            assert [kubelet.log(server.name).count("updating zone") for server in servers] == updates
            return True

        # What was under way when the last condition came may still be written; after that, nothing is.
        await eventually(quiet, "fifteen minutes without a write", timeout=180)


async def _opens(address, secret):
    """Whether named lets the control key of a Secret in."""
    channel = Rndc(address, 9530, key_from(secret.data), clock=SYSTEM_CLOCK, timeout=30)
    try:
        await channel.command("status")
    except ControlRefused:
        return False
    finally:
        channel.close()
    return True
