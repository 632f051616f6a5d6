"""Instances that leave their cluster: they lose its zones, whatever made these theirs and whoever runs meanwhile."""

from __future__ import annotations

from datetime import timedelta

import dns.rcode
import pytest

from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types import Namespace
from steersman.operators.dns.api.servers import Bind9Instance
from steersman.operators.dns.api.zone import DNSZone
from steersman.testing import eventually
from tests.support.dns.zones import Site, ask

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SOON = timedelta(seconds=1)
QUICK = {"drift_period": SOON, "not_ready": SOON, "server_pause": SOON}
LABELS = {"dns": "cluster"}


async def _refuses(server):
    return (await ask(server, "example.org", "SOA")).rcode() == dns.rcode.REFUSED


async def _serves(server):
    return not await _refuses(server)


@pytest.mark.parametrize("running", [True, False], ids=["while it runs", "while no operator runs"])
@pytest.mark.parametrize("role", ["primary", "secondary"])
@pytest.mark.parametrize("way", ["clusterRef", "zonesFrom", "provider"])
async def test_an_instance_whose_cluster_reference_is_emptied_loses_the_zones_of_the_cluster(
    embedded, client, dns_kinds, namespace, named, way, role, running
):
    async with named("ns1") as ns1, named("ns2", secret=ns1.secret) as ns2:
        place = f"{namespace}-servers"
        await client.create(Namespace(metadata=ObjectMeta(name=place)))
        site = Site(client, namespace, [ns1, ns2])
        servers = Site(client, place, [ns1, ns2]) if way == "provider" else site
        if way == "provider":
            await site.apply("ClusterBind9Provider", namespace, {"namespace": place, "primary": {"replicas": 0}})
        else:
            selected = [{"selector": {"matchLabels": LABELS}}] if way == "zonesFrom" else []
            await site.apply("Bind9Cluster", namespace, {"primary": {"replicas": 0}, "zonesFrom": selected})
        for name, kind, server in (("primary-0", "primary", ns1), ("other", role, ns2)):
            await servers.instance(name, kind, server, clusterRef=namespace)
            grant = {"bindy.firestoned.io/allow-zone-namespaces": namespace}
            patch = {"metadata": {"annotations": grant}}
            await client.patch(Bind9Instance, name, patch, namespace=servers.namespace)
        reference = "" if way == "zonesFrom" else namespace
        await site.zone("example.org", bind9InstancesFrom=None, clusterRef=reference)
        await client.patch(DNSZone, "example.org", {"metadata": {"labels": LABELS}}, namespace=namespace)
        async with site.running(namespaces=[place], **QUICK):
            await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=120)
            await eventually(lambda: _serves(ns2), timeout=120)
            if running:
                await servers.instance("other", role, ns2, clusterRef="")
                await eventually(lambda: _refuses(ns2), timeout=120)
        if not running:
            await servers.instance("other", role, ns2, clusterRef="")
            async with site.running(namespaces=[place], **QUICK):
                await eventually(lambda: _refuses(ns2), timeout=120)
        assert await _serves(ns1)
