"""What is imported is published as it was, and what cannot be said stays where it is."""

from __future__ import annotations

import socket

import pytest

from steersman.operators.dns.api.config import DRIFT_IGNORE
from steersman.operators.dns.inspect.import_zone import manifests_of
from steersman.operators.dns.inspect.offline import ZoneInspection, lay_over
from steersman.operators.dns.zone.names import name_of, owner_of
from steersman.operators.dns.zone.rdata import RRset, Soa
from steersman.operators.dns.zone.soa import is_ignored

ORG = name_of("example.org")
START = Soa(name_of("ns1.example.org"), name_of("host.example.org"), 7, 3600, 600, 604800, 60)
INSTANCE = {
    "apiVersion": "bindy.firestoned.io/v1beta1",
    "kind": "Bind9Instance",
    "metadata": {"name": "i", "labels": {"dns": "primary"}},
    "spec": {
        "clusterRef": "",
        "role": "primary",
        "endpoints": [{"address": "203.0.113.1"}],
        "rndcKey": {"secretRef": {"name": "k"}},
    },
}
TEXT = {"key-name": "k", "algorithm": "hmac-sha256", "secret": "c2VjcmV0"}
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "k"}, "stringData": TEXT}


def key(name, kind):
    return owner_of(name, ORG), kind


def four(*texts):
    return frozenset(socket.inet_pton(socket.AF_INET, text) for text in texts)


def six(text):
    return frozenset({socket.inet_pton(socket.AF_INET6, text)})


APEX = {key("@", 2): RRset(3600, frozenset({name_of("ns1.example.org"), name_of("ns2.example.org")}))}
ZONES = {
    "long NS, short glue": {**APEX, key("ns1", 1): RRset(600, four("192.0.2.1")), key("ns2", 28): RRset(5, six("::1"))},
    "short NS, long glue": {
        key("@", 2): RRset(60, frozenset({name_of("ns1.example.org")})),
        key("ns1", 1): RRset(3600, four("192.0.2.1")),
    },
    "several addresses": {
        **APEX,
        key("ns1", 1): RRset(3600, four("192.0.2.1", "192.0.2.2")),
        key("ns2", 1): RRset(1, four("192.0.2.3")),
    },
    "everything": {
        **APEX,
        key("ns1", 1): RRset(3600, four("192.0.2.1")),
        key("ns2", 1): RRset(3600, four("192.0.2.2")),
        key("www", 5): RRset(9, frozenset({name_of("x.example.net")})),
        key("@", 15): RRset(
            8, frozenset({b"\0\12" + name_of("ns1.example.org"), b"\0\24" + name_of("mx.example.net")})
        ),
        key("t", 16): RRset(7, frozenset({b'\3a b\4c;"\\'})),
        key("_sip._tcp", 33): RRset(6, frozenset({b"\0\1\0\2\0\3" + name_of("ns1.example.org")})),
        key("@", 257): RRset(5, frozenset({b"\0\5issueca.example.net"})),
        key("*", 1): RRset(4, four("192.0.2.9")),
        key("sub", 2): RRset(3, frozenset({name_of("ns.example.net"), name_of("ns2.example.net")})),
    },
}


@pytest.mark.parametrize("rrsets", ZONES.values(), ids=ZONES.keys())
def test_a_zone_is_published_as_it_was_imported(rrsets):
    manifests, left = manifests_of(ORG, START.value(), rrsets, namespace="dns", selector={"dns": "primary"})
    assert left == []
    objects = {}
    assert lay_over(objects, [SECRET, INSTANCE, *manifests], "dns") == []
    survey = ZoneInspection(objects)
    (zone,) = survey.zones()
    book, _ = survey.desired_state(zone)
    assert dict(book.desired.rrsets) == rrsets
    assert DRIFT_IGNORE not in zone.annotations


UNSAYABLE = [
    ("p", 12, name_of("ns1.example.org"), "PTR"),
    ("plain", 33, b"\0\0\0\0\0\1" + name_of("ns1.example.org"), "SRV"),
    ("bin", 16, b"\2\xff\1", "TXT"),
    ("*", 12, name_of("ns1.example.org"), "PTR"),
]


@pytest.mark.parametrize(("name", "kind", "value", "type_"), UNSAYABLE)
def test_what_no_record_can_say_is_reported_and_not_deleted(name, kind, value, type_):
    rrsets = {**ZONES["everything"], key(name, kind): RRset(60, frozenset({value}))}
    manifests, left = manifests_of(ORG, START.value(), rrsets, namespace="dns", selector={"dns": "primary"})
    assert [row for row in left if f"{name}.example.org. {type_}" in row] == left != []
    patterns = manifests[0]["metadata"]["annotations"][DRIFT_IGNORE].split(",")
    assert is_ignored(key(name, kind), ORG, patterns)
    assert not is_ignored(key("else", 1), ORG, patterns)
