"""What a definition of our dns kinds rejects, on both API servers: wrong values, and values that are wrong together."""

from __future__ import annotations

import pytest

from steersman.kube.api.errors import Invalid
from tests.support.dns.zones import Site

GIVEN = {"secretRef": {"name": "bindy-keys"}}


@pytest.fixture
def site(cluster, client, dns_kinds, namespace):
    return Site(client, namespace, [])


BAD = [
    ("ARecord", {"name": "www", "ipv4Addresses": ["192.0.2.256"]}, "ipv4Addresses"),
    ("ARecord", {"name": "bücher", "ipv4Addresses": ["192.0.2.1"]}, "name"),
    ("ARecord", {"name": "a b", "ipv4Addresses": ["192.0.2.1"]}, "name"),
    ("ARecord", {"name": "www", "ttl": -1, "ipv4Addresses": ["192.0.2.1"]}, "ttl"),
    ("AAAARecord", {"name": "www", "ipv6Addresses": ["192.0.2.1"]}, "ipv6Addresses"),
    ("CNAMERecord", {"name": "www", "target": "x.example.net"}, "target"),
    ("MXRecord", {"name": "@", "priority": 70000, "mailServer": "x.example.net."}, "priority"),
    ("TXTRecord", {"name": "t", "text": ["a\nb"]}, "text"),
    ("TXTRecord", {"name": "t", "text": []}, "text"),
    ("SRVRecord", {"name": "sip", "priority": 1, "weight": 1, "port": 1, "target": "x.example.net."}, "name"),
    ("CAARecord", {"name": "@", "flags": 256, "tag": "issue", "value": "x"}, "flags"),
    ("CAARecord", {"name": "@", "flags": 0, "tag": "is sue", "value": "x"}, "tag"),
    ("NSRecord", {"name": "sub", "nameserver": 'x"; }; zone "evil" {'}, "nameserver"),
    ("Bind9Instance", {"role": "boss", "clusterRef": ""}, "role"),
    ("Bind9Instance", {"role": "primary", "clusterRef": "", "config": {"allowQuery": ["any; };"]}}, "allowQuery"),
    ("Bind9Cluster", {"primary": {"replicas": 101}}, "replicas"),
    ("Bind9Cluster", {"global": {"dnssec": {"signing": {"algorithm": "rsamd5"}}}}, "algorithm"),
    ("Bind9Cluster", {"global": {"dnssec": {"signing": {"kskLifetime": "banana"}}}}, "kskLifetime"),
    ("Bind9Cluster", {"global": {"dnssec": {"signing": {"keysFrom": {"secretRef": {"name": "mine"}}}}}}, "name"),
]
BAD_TOGETHER = [  # rules in CEL
    ("ARecord", {"name": "www"}, "ipv4Addresses"),
    ("CNAMERecord", {"name": "@", "target": "x.example.net."}, "name"),
    ("MXRecord", {"name": "@", "priority": 1, "mailServer": "."}, "mailServer"),
    ("Bind9Instance", {"role": "primary", "clusterRef": "", "endpoints": [{"address": "192.0.2.1"}]}, "rndcKey"),
    ("Bind9Cluster", {"global": {"dnssec": {"signing": {"policy": "default"}}}}, "policy"),
    ("Bind9Cluster", {"global": {"dnssec": {"signing": {"keysFrom": {**GIVEN, "persistentVolume": {}}}}}}, "keysFrom"),
    ("Bind9Cluster", {"global": {"dnssec": {"signing": {"keysFrom": GIVEN, "zskLifetime": "30d"}}}}, "zskLifetime"),
    (
        "Bind9Cluster",
        {"global": {"dnssec": {"signing": {"keysFrom": {"persistentVolume": {}}, "autoGenerate": False}}}},
        "autoGenerate",
    ),
]


async def test_what_can_never_be_right_is_refused_with_the_name_of_the_field(site):
    await refused(site, BAD)


async def test_what_cannot_be_right_together_is_refused_with_the_name_of_the_field(site):
    await refused(site, BAD_TOGETHER)
    of_cluster = {"role": "primary", "clusterRef": "c", "endpoints": [{"address": "192.0.2.1"}]}
    await site.apply("Bind9Instance", "of-cluster", of_cluster)  # whose key it takes


async def refused(site, rows):
    for number, (kind, spec, field) in enumerate(rows):
        with pytest.raises(Invalid) as refused:
            await site.apply(kind, f"bad-{number}", spec)
        assert field in str(refused.value) or any(field in (c.field or "") for c in refused.value.causes), (kind, spec)
