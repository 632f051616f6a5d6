"""Servers of another namespace serve a zone when both sides want it, and never because of labels alone."""

from __future__ import annotations

import pytest

from steersman.clock import SYSTEM_CLOCK
from steersman.kube.api.objects import ObjectMeta
from steersman.operators.dns.api.config import ALLOW_NAMESPACES, SERVED_BY, DnsOptions
from steersman.operators.dns.api.field_types import InstanceSource, LabelSelectorSpec
from steersman.operators.dns.api.servers import Bind9Instance, ClusterBind9Provider, ProviderSpec
from steersman.operators.dns.api.zone import DNSZone, SOARecord
from steersman.operators.dns.controllers.context import make_context
from steersman.operators.dns.controllers.setup import ControllerTable
from steersman.operators.dns.inspect.offline import ZoneInspection
from steersman.operators.dns.zone.selection import InstanceSelector

SOA = SOARecord(primary_ns="ns1.x.", admin_email="a.x.", refresh=1, retry=1, expire=1, negative_ttl=1)
LABELS = {"dns": "x"}


def zone(served_by="", **spec):
    meta = ObjectMeta(name="z", namespace="shop", annotations={SERVED_BY: served_by})
    wanted = [InstanceSource(selector=LabelSelectorSpec(match_labels=LABELS))]
    return DNSZone(
        metadata=meta,
        spec=DNSZone.Spec(**{"zone_name": "x", "soa_record": SOA, "bind9_instances_from": wanted, **spec}),
    )


def instance(namespace, *, lets_in="", cluster=""):
    notes = {ALLOW_NAMESPACES: lets_in}
    meta = ObjectMeta(name="ns1", namespace=namespace, uid=namespace, labels=LABELS, annotations=notes)
    return Bind9Instance(metadata=meta, spec=Bind9Instance.Spec(role="primary", cluster_ref=cluster))


def provider(namespace):
    return ClusterBind9Provider(metadata=ObjectMeta(name="p"), spec=ProviderSpec(namespace=namespace))


def chosen(zone, *instances, providers=(), trusted=()):
    cache = ZoneInspection({Bind9Instance: list(instances), ClusterBind9Provider: list(providers)})._cache
    choice = InstanceSelector(cache, frozenset(trusted)).of(zone)
    return [instance.namespace for instance in choice.instances], list(choice.denied), list(choice.unrequested)


@pytest.mark.parametrize(
    ("served_by", "trusted"), [("dns", ()), ("*", ()), (" a, dns ", ()), ("", ("dns",)), ("", ("*",))]
)
def test_a_server_elsewhere_serves_when_it_lets_the_zone_in_and_is_asked_for(served_by, trusted):
    assert chosen(zone(served_by), instance("dns", lets_in="shop"), trusted=trusted) == (["dns"], [], [])
    assert chosen(zone(served_by), instance("dns"), trusted=trusted) == ([], ["dns/ns1"], [])


def test_a_server_that_lets_everybody_in_is_sent_nothing_that_was_not_meant_for_it():
    thief = instance("elsewhere", lets_in="*")
    assert chosen(zone(), instance("shop"), thief) == (["shop"], [], ["elsewhere/ns1"])
    assert chosen(zone("dns"), thief, trusted=("dns",)) == ([], [], ["elsewhere/ns1"])


def test_servers_of_a_provider_are_asked_for_where_the_provider_has_them_and_nowhere_else():
    wanted = zone(bind9_instances_from=None, cluster_ref="p")
    real, thief = (instance(name, lets_in="*", cluster="p") for name in ("dns", "elsewhere"))
    assert chosen(wanted, real, thief, providers=[provider("dns")]) == (["dns"], [], ["elsewhere/ns1"])


def test_a_zone_needs_nobodys_leave_for_servers_of_its_own_namespace():
    assert chosen(zone(), instance("shop")) == (["shop"], [], [])


def test_a_provider_that_moves_its_servers_wakes_the_zones_that_may_be_on_them_now_or_no_longer():
    wanted, one = zone(bind9_instances_from=None, cluster_ref="p"), instance("dns", lets_in="*", cluster="p")
    table = ControllerTable(make_context(DnsOptions(server_namespaces=frozenset()), clock=SYSTEM_CLOCK))
    (watch,) = [row for row in table.zone().watched if row.target is ClusterBind9Provider]
    before, after = provider("dns"), provider("elsewhere")
    after.metadata.generation = 2
    assert watch.when(before, after)
    for now in (before, after):
        cache = ZoneInspection({DNSZone: [wanted], Bind9Instance: [one], ClusterBind9Provider: [now]})._cache
        assert list(table.zones_of_cluster(now, cache)) == [wanted.ref]
