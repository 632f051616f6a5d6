"""Providers: one cluster in each namespace that is asked for, and no other; clusters of others are not theirs."""

from __future__ import annotations

import pytest

from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types import Namespace
from steersman.operators.dns.api.servers import Bind9Cluster, ClusterBind9Provider
from steersman.testing import eventually
from tests.support.dns.zones import API, Site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROLES = {"primary": {"replicas": 0}, "secondary": {"replicas": 0}}


@pytest.fixture
async def site(cluster, client, dns_kinds, namespace):
    for place in ("old", "new", "others"):
        await client.create(Namespace(metadata=ObjectMeta(name=f"{namespace}-{place}")))
    return Site(client, namespace, [])


async def _provide(site, place, **spec):
    wanted = {**ROLES, "namespace": f"{site.namespace}-{place}", **spec}
    await site.apply("ClusterBind9Provider", site.namespace, wanted)


async def _clusters(site):
    rows = (await site.client.list(Bind9Cluster)).items
    return {
        row.namespace.removeprefix(f"{site.namespace}-") for row in rows if row.namespace.startswith(site.namespace)
    }


async def _are(site, *places):
    return await _clusters(site) == set(places)


async def _counts(site, *places):
    status = (await site.client.get(ClusterBind9Provider, site.namespace)).status
    found = {row.name for row in (status.instances if status is not None else None) or ()}
    return found == {f"{site.namespace}-{place}/{site.namespace}" for place in places}


async def _owned_by_others(site):
    """A cluster of the provider's name that somebody else made, with the provider's label."""
    labels = {"bindy.firestoned.io/managed-by": "ClusterBind9Provider"}
    place = f"{site.namespace}-others"
    await site.apply("Bind9Cluster", site.namespace, ROLES, api=API, namespace=place, labels=labels)


def _within(site):
    return [f"{site.namespace}-{place}" for place in ("old", "new", "others")]


async def test_a_provider_whose_namespace_changes_takes_its_cluster_along_and_leaves_a_foreign_cluster(site):
    await _owned_by_others(site)
    await _provide(site, "old")
    async with site.running(namespaces=_within(site)):
        await eventually(lambda: _are(site, "old", "others"), timeout=120)
        await eventually(lambda: _counts(site, "old"), "it counts its own only", timeout=120)
    await _provide(site, "new")
    async with site.running(namespaces=_within(site)):
        await eventually(lambda: _are(site, "new", "others"), "the old cluster is gone", timeout=120)
        await eventually(lambda: _counts(site, "new"), timeout=120)
        await site.client.delete(ClusterBind9Provider, site.namespace)
        await eventually(lambda: _are(site, "others"), "it goes with its own cluster", timeout=120)


async def test_the_old_cluster_stays_until_the_new_one_can_be_made(site):
    await _provide(site, "old")
    async with site.running(namespaces=_within(site)):
        await eventually(lambda: _are(site, "old"), timeout=120)
        await _provide(site, "missing")
        await eventually(lambda: _says(site, "NamespaceMissing"), timeout=120)
        assert await _are(site, "old")
        await _provide(site, "new")
        await eventually(lambda: _are(site, "new"), timeout=120)
        await site.client.delete(ClusterBind9Provider, site.namespace)
        await eventually(lambda: _are(site), timeout=120)


async def test_the_cluster_of_a_namespace_whose_last_instance_left_goes(site):
    await _provide(site, "old")
    place = f"{site.namespace}-others"
    key = {"secretRef": {"name": "key"}}
    wanted = {"clusterRef": site.namespace, "role": "primary", "endpoints": [{"address": "127.0.0.1"}], "rndcKey": key}
    async with site.running(namespaces=_within(site)):
        await site.apply("Bind9Instance", "ns1", wanted, namespace=place)
        await eventually(lambda: _are(site, "old", "others"), timeout=120)
        await site.apply("Bind9Instance", "ns1", {**wanted, "clusterRef": ""}, namespace=place)
        await eventually(lambda: _are(site, "old"), timeout=120)
        await site.client.delete(ClusterBind9Provider, site.namespace)
        await eventually(lambda: _are(site), timeout=120)


async def _says(site, reason):
    status = (await site.client.get(ClusterBind9Provider, site.namespace)).status
    return any(row.reason == reason for row in (status.conditions if status is not None else None) or ())
