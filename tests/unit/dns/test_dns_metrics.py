"""Series of zones: true while a zone is there, gone when it is gone."""

from __future__ import annotations

import msgspec
from prometheus_client import CollectorRegistry, generate_latest

from steersman.kube.codec import codec_for
from steersman.operators.dns.metrics import DnsMetrics
from steersman.operators.dns.publisher import Report
from steersman.operators.dns.zonekinds import DNSZone


def zone(namespace, name):
    soa = {
        "primaryNs": "ns1.",
        "adminEmail": "a.",
        "serial": 1,
        "refresh": 1,
        "retry": 1,
        "expire": 1,
        "negativeTtl": 1,
    }
    meta = {"name": "z", "namespace": namespace}
    body = {"metadata": meta, "spec": {"zoneName": name, "soaRecord": soa}}
    return codec_for(DNSZone).object(msgspec.json.encode(body))


def series(registry):
    lines = generate_latest(registry).decode().splitlines()
    return {line for line in lines if line.startswith("steersman_dns_") and "{" in line}


def test_a_zone_that_is_gone_leaves_no_series():
    registry = CollectorRegistry()
    metrics = DnsMetrics(registry)
    here = zone("a", "Example.org")
    metrics.published(here, Report(serial=7, behind=["ns2"], drift={}, errors={}))
    metrics.told(here, ready=False)
    assert 'steersman_dns_zone_ready{namespace="a",zone="example.org"} 0.0' in series(registry)
    assert 'steersman_dns_secondaries_behind{zone="example.org"} 1.0' in series(registry)
    metrics.forget(here.ref)
    metrics.forget(here.ref)
    assert series(registry) == set()


def test_a_zone_that_got_another_name_leaves_the_old_one():
    registry = CollectorRegistry()
    metrics = DnsMetrics(registry)
    metrics.told(zone("a", "old.example"), ready=True)
    metrics.told(zone("a", "new.example"), ready=True)
    assert series(registry) == {'steersman_dns_zone_ready{namespace="a",zone="new.example"} 1.0'}


def test_a_name_that_two_namespaces_serve_stays_while_one_of_them_does():
    registry = CollectorRegistry()
    metrics = DnsMetrics(registry)
    for namespace in ("a", "b"):
        metrics.published(zone(namespace, "example.org"), Report(serial=7, drift={}, errors={}, behind=[]))
        metrics.told(zone(namespace, "example.org"), ready=True)
    metrics.forget(zone("a", "example.org").ref)
    assert {line.partition("{")[0] for line in series(registry)} == {
        "steersman_dns_zone_serial",
        "steersman_dns_secondaries_behind",
        "steersman_dns_zone_ready",
    }
