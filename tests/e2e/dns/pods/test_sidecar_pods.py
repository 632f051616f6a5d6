"""Pods of named and our sidecar: zones come and go over HTTP, and either process may die at any time."""

from __future__ import annotations

import base64
from datetime import timedelta

import pytest

from steersman.kube.api.types import Pod, Secret
from steersman.testing import eventually
from steersman.testing.plugin import unavailable
from tests.support.dns.pod_servers import PodServer
from tests.support.dns.zones import ask, serial
from tests.support.programs.crates import BINDCAR

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
LIMIT = timedelta(seconds=5)
OURS, ORIGINAL = {"image": "steersman:test", "args": ["dns", "sidecar"]}, {"image": "bindcar:test"}
CREATED = {
    "steersman:test": '"operation": "create", "zone": "example.org"',
    "bindcar:test": "Creating zone: example.org",
}
RECORDS = {
    "A": ("a", {"ipv4Addresses": ["192.0.2.1"]}, "192.0.2.1"),
    "AAAA": ("aaaa", {"ipv6Addresses": ["2001:db8::1"]}, "2001:db8::1"),
    "CNAME": ("cname", {"target": "other.example.net."}, "other.example.net."),
    "MX": ("mx", {"priority": 10, "mailServer": "mx.example.net."}, "10 mx.example.net."),
    "TXT": ("txt", {"text": ['say "yes"; no']}, '"say \\"yes\\"; no"'),
    "SRV": ("_x._tcp", {"priority": 1, "weight": 2, "port": 3, "target": "t.example.net."}, "1 2 3 t.example.net."),
    "CAA": ("caa", {"flags": 0, "tag": "issue", "value": "ca.example.net"}, '0 issue "ca.example.net"'),
}
WHERE = {"clusterRef": "c", "bind9InstancesFrom": []}


@pytest.fixture
def sidecar(request):
    """Which sidecar: ours, unless a test asks for others."""
    if (wanted := getattr(request, "param", OURS)) is ORIGINAL and BINDCAR.built() is None:
        unavailable("bindcar is not built: `make programs`")
    return wanted


@pytest.fixture
async def servers(site, pods, kubelet, sidecar):
    """A primary and a secondary, each with its sidecar, and a zone with records of all kinds."""
    how = {"driver": "bindcar", "global": {"bindcarConfig": sidecar}}
    await site.apply("Bind9Cluster", "c", {"primary": {"replicas": 1}, "secondary": {"replicas": 1}, **how})
    await site.zone("example.org", **WHERE)
    for kind, (owner, spec, _) in RECORDS.items():
        await site.record(kind, kind.lower(), owner=owner, **spec)
    await site.record("NS", "ns", owner="sub", nameserver="ns.example.net.")
    images = ("steersman", "bindcar")
    async with site.running(request_timeout=LIMIT, not_ready=timedelta(seconds=2), allowed_images=images):
        yield await eventually(lambda: pods.ready(2), "both pods are ready", timeout=300)


async def _served(site, servers):
    for kind, (owner, _, value) in RECORDS.items():
        await site.answers(f"{owner}.example.org", kind, {value}, servers)
    for server in servers:
        answer = await ask(server, "sub.example.org", "NS")
        assert [row.to_text() for row in answer.authority[0]] == ["ns.example.net."]
    return True


async def _restarted(site, pod, container, before):
    found = await site.client.get(Pod, pod, namespace=site.namespace)
    return any(row.name == container and row.restart_count > before for row in found.status.container_statuses)


@pytest.mark.parametrize("sidecar", [OURS, ORIGINAL], ids=["ours", "original"], indirect=True)
async def test_zones_and_records_of_all_kinds_reach_servers_through_their_sidecars_and_survive_either(
    site, pods, kubelet, servers, sidecar
):
    await eventually(lambda: _served(site, servers), timeout=180)
    for kind in RECORDS:
        await eventually(lambda kind=kind: site.is_ready(kind, kind.lower()), timeout=120)
    primary = await pods.of("c-primary-0")
    assert CREATED[sidecar["image"]] in kubelet.log(primary.name, "api")
    for number, container in enumerate(("api", "bind9"), start=2):
        for pod in await pods.all():
            kubelet.crash(pod.name, container)
        for pod in await pods.all():
            await eventually(lambda pod=pod, c=container: _restarted(site, pod.name, c, 0), timeout=120)
        await site.record("A", "a", ipv4Addresses=[f"192.0.2.{number}"])
        await site.zone(f"z{number}.test", **WHERE)
        now = [PodServer(pod) for pod in await pods.all()]
        await eventually(lambda n=number, s=now: site.answers("a.example.org", "A", {f"192.0.2.{n}"}, s), timeout=300)
        for server in now:
            await eventually(lambda s=server, n=number: serial(s, f"z{n}.test"), timeout=300)
        await eventually(lambda n=number: site.is_ready("DNSZone", f"z{n}.test"), timeout=180)
    await site.delete("DNSZone", "z2.test")
    await eventually(lambda: site.gone("DNSZone", "z2.test"), timeout=180)
    assert [await serial(PodServer(pod), "z2.test") for pod in await pods.all()] == [None, None]
    assert await serial(PodServer(await pods.of("c-secondary-0")), "z3.test")


async def test_a_changed_token_replaces_the_pods_whose_sidecar_knows_another(site, pods, kubelet, servers):
    await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=180)
    before = await pods.of("c-primary-0")
    other = {"data": {"token": base64.b64encode(b"somebody else's").decode()}}
    await site.client.patch(Secret, "c-primary-0-rndc-key", other, namespace=site.namespace)
    await site.zone("new.test", **WHERE)

    async def replaced():
        return (await pods.of("c-primary-0")).metadata.uid != before.metadata.uid

    await eventually(replaced, "a pod that knows the new token", timeout=300)
    await eventually(lambda: site.is_ready("DNSZone", "new.test"), timeout=300)
    await eventually(lambda: site.is_ready("Bind9Instance", "c-primary-0"), timeout=180)
    now = [PodServer(pod) for pod in await pods.all()]
    assert await site.answers("a.example.org", "A", {"192.0.2.1"}, now)
    for server in now:
        await eventually(lambda s=server: serial(s, "new.test"), timeout=180)
    assert "somebody" not in kubelet.log((await pods.of("c-primary-0")).name, "api")
