"""Outages of servers: said once when one begins, and once when it is over."""

from __future__ import annotations

from structlog.testing import capture_logs

from steersman.kube.api.gvk import NamespacedName
from steersman.operators.dns.bind.breaker import Outages
from steersman.operators.dns.bind.servers import Keys, Server
from steersman.operators.dns.wire.tsig import Key

NS1 = NamespacedName("ns1", "dns")
KEY = Key("operator", "hmac-sha256", b"x" * 32)


def server(name="0", **more):
    return Server(
        instance=NS1, name=name, role="primary", address="192.0.2.53", dns_port=53, rndc_port=953,
        keys=Keys(KEY, KEY, KEY), **more,
    )  # fmt: skip


def test_an_outage_is_reported_once_whatever_the_request():
    woken = []
    outages = Outages(woken.append)
    with capture_logs() as lines:
        for way in ("DNS", "control", "DNS"):
            outages.record(server(), way, "connection refused")
        assert outages.unreported(NS1, [server()]) == [("ns1/0", "connection refused; connection refused")]
        assert outages.unreported(NS1, [server()]) == []
        outages.record(server(), "DNS", "")  # its control channel is still silent
        outages.record(server(), "DNS", "connection refused")
        outages.record(server(), "DNS", "")
        outages.record(server(), "control", "")
        outages.record(server(), "control", "")
    assert [(line["log_level"], line["event"]) for line in lines] == [
        ("warning", "server does not answer"),
        ("info", "server answers again"),
    ]
    assert woken == [NS1, NS1]
    outages.record(server(), "DNS", "no answer")
    assert outages.unreported(NS1, [server()]) == [("ns1/0", "no answer")]


def test_a_pod_that_has_never_answered_is_starting_and_one_that_is_gone_is_forgotten():
    outages = Outages(lambda _: None)
    pod = server("ns1-abc", managed=True, uid="1")
    outages.record(pod, "DNS", "connection refused")
    assert outages.unreported(NS1, [pod]) == []
    outages.record(pod, "DNS", "")
    outages.record(pod, "DNS", "connection refused")
    assert outages.unreported(NS1, []) == []
    assert outages.unreported(NS1, [pod]) == []
