"""Series of zones: true while a zone is there, gone when it is gone."""

from __future__ import annotations

import msgspec
from prometheus_client import CollectorRegistry, generate_latest

from steersman.kube.api.gvk import NamespacedName
from steersman.kube.client.codec import codec_for
from steersman.operators.dns.api.zone import DNSZone
from steersman.operators.dns.bind.servers import Keys, Server
from steersman.operators.dns.controllers.metrics import DnsMetrics
from steersman.operators.dns.publish.copy_inspector import PublishReport
from steersman.operators.dns.wire.tsig import Key


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
    metrics.published(here, PublishReport(serial=7, behind=["ns2"], drift={}, errors={}))
    metrics.reconciled(here, ready=False)
    assert 'steersman_dns_zone_ready{namespace="a",zone="example.org"} 0.0' in series(registry)
    assert 'steersman_dns_secondaries_behind{zone="example.org"} 1.0' in series(registry)
    metrics.forget(here.ref)
    metrics.forget(here.ref)
    assert series(registry) == set()


def test_a_zone_that_got_another_name_leaves_the_old_one():
    registry = CollectorRegistry()
    metrics = DnsMetrics(registry)
    metrics.reconciled(zone("a", "old.example"), ready=True)
    metrics.reconciled(zone("a", "new.example"), ready=True)
    assert series(registry) == {'steersman_dns_zone_ready{namespace="a",zone="new.example"} 1.0'}


def test_a_name_that_two_namespaces_serve_stays_while_one_of_them_does():
    registry = CollectorRegistry()
    metrics = DnsMetrics(registry)
    for namespace in ("a", "b"):
        metrics.published(zone(namespace, "example.org"), PublishReport(serial=7, drift={}, errors={}, behind=[]))
        metrics.reconciled(zone(namespace, "example.org"), ready=True)
    metrics.forget(zone("a", "example.org").ref)
    assert {line.partition("{")[0] for line in series(registry)} == {
        "steersman_dns_zone_serial",
        "steersman_dns_secondaries_behind",
        "steersman_dns_zone_ready",
    }


def server(namespace, pod):
    key = Key("k", "hmac-sha256", b"secret")
    keys = Keys(key, key, key)
    return Server(NamespacedName("ns1", namespace), pod, "primary", "192.0.2.1", 53, 953, keys, managed=True)


def test_a_pod_that_was_replaced_leaves_no_series():
    registry = CollectorRegistry()
    metrics = DnsMetrics(registry)
    here, old, new = zone("a", "example.org"), server("a", "ns1-0"), server("a", "ns1-1")
    for failing in (old, new):
        report = PublishReport(serial=7, drift={}, behind=[], errors={failing.title: ("PrimaryFailed", "away")})
        metrics.published(here, report, [old, new])
    metrics.reconciled(here, ready=False)
    metrics.forget(here.ref)
    assert len(series(registry)) == 2 * 2  # the counters and when each began
    metrics.keep(old.instance, [new])
    assert {line.partition("{")[2].partition("}")[0] for line in series(registry)} == {'server="ns1/ns1-1"'}
    metrics.keep(old.instance, ())
    metrics.keep(old.instance, ())
    assert series(registry) == set()


def test_a_server_of_the_same_name_in_another_namespace_keeps_its_series():
    registry = CollectorRegistry()
    metrics = DnsMetrics(registry)
    for namespace in ("a", "b"):
        report = PublishReport(serial=7, drift={}, behind=[], errors={"ns1/0": ("PrimaryFailed", "away")})
        metrics.published(zone(namespace, "example.org"), report, [server(namespace, "0")])
    metrics.keep(NamespacedName("ns1", "a"), ())
    assert any('server="ns1/0"' in line for line in series(registry))
