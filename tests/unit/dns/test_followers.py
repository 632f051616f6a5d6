"""Secondaries with a catalog: where they are told to fetch from, and when they are looked at again."""

from __future__ import annotations

import msgspec
import pytest

from steersman.clock import SYSTEM_CLOCK
from steersman.kube.objects import ObjectMeta
from steersman.kube.resources import ObjectRef
from steersman.kube.types.core import ConfigMap, Secret, Service, ServiceSpec
from steersman.kube.types.pods import Pod, PodStatus
from steersman.operators.dns.book import ZoneBook
from steersman.operators.dns.catalogconf import IN_ZONES
from steersman.operators.dns.desk import Desk
from steersman.operators.dns.followers import Followers
from steersman.operators.dns.keyring import control_keys, transfer_key
from steersman.operators.dns.serverkinds import Bind9Cluster, Bind9Config, Bind9Instance, ClusterBind9Provider
from steersman.operators.dns.types import CATALOG, Options
from steersman.operators.dns.zonekinds import DNSZone

SPACE = "dns"


class Shelf(list):
    """Objects of a kind."""

    def get(self, ref):
        return next((one for one in self if one.ref == ref), None)

    def list(self, *, namespace=None):
        return [one for one in self if namespace in (None, one.namespace)]

    def by_index(self, index, value):
        if index == "dns-zone-name":
            return [one for one in self if one.spec.zone_name == value]
        return [one for one in self if f"{one.namespace}/{one.labels.get('instance')}" == value]


def meta(name, **more):
    return ObjectMeta(name=name, namespace=SPACE, uid=f"uid-{name}", **more)


def instance(name, role, **spec):
    wanted = Bind9Instance.Spec(cluster_ref="", role=role, **spec)
    return Bind9Instance(metadata=meta(name, labels={"role": role}), spec=wanted)


def pod(of, number, *, catalog=""):
    marks = {CATALOG: catalog} if catalog else {}
    made = meta(f"{of}-{number}", labels={"instance": of}, annotations=marks)
    return Pod(metadata=made, status=PodStatus(phase="Running", pod_ip=f"10.0.0.{number}"))


def secret(name, data):
    return Secret(metadata=meta(name), data={key: value.encode() for key, value in data.items()})


def service(name, address):
    return Service(metadata=meta(name), spec=ServiceSpec(cluster_ip=address))


@pytest.fixture
def world():
    """Two primaries, a secondary with a catalog, and a zone that all of them serve."""
    one, two = instance("p1", "primary"), instance("p2", "primary")
    three = instance("s1", "secondary", config=Bind9Config(catalog_zone="catalog.test"))
    keys = [secret(f"{name}-rndc-key", control_keys(None, None, 0.0)[0]) for name in ("p1", "p2", "s1")]
    soa = {
        "primaryNs": "ns1.a.test.",
        "adminEmail": "h.a.test.",
        "refresh": 1,
        "retry": 1,
        "expire": 1,
        "negativeTtl": 1,
    }
    every = [{"selector": {"matchLabels": {}}}]
    spec = msgspec.convert({"zoneName": "a.test", "soaRecord": soa, "bind9InstancesFrom": every}, DNSZone.Spec)
    return {
        Bind9Instance: Shelf([one, two, three]),
        Bind9Cluster: Shelf(),
        ClusterBind9Provider: Shelf(),
        Secret: Shelf([*keys, secret("bind9-transfer-key", transfer_key(None))]),
        Pod: Shelf([pod("p2", 2), pod("p1", 1), pod("s1", 3, catalog="catalog.test")]),
        Service: Shelf([service("p1", "10.96.0.1"), service("p2", "None")]),
        ConfigMap: Shelf(),
        DNSZone: Shelf([DNSZone(metadata=meta("a"), spec=spec)]),
    }


@pytest.fixture
def desk():
    return Desk(Options(), clock=SYSTEM_CLOCK)


def sent(desk):
    found = []
    desk.instances.connect(lambda key, after=None: found.append(key))
    return found


def test_pods_come_first_and_services_that_have_an_address_behind_them(world, desk):
    secondary = world[Bind9Instance][2]
    found = Followers(desk).sources(secondary, None, world[DNSZone], world)
    assert found == (("10.0.0.1", 5353), ("10.0.0.2", 5353), ("10.96.0.1", 53))
    fixed = instance("s1", "secondary", config=secondary.spec.config, primary_servers=["192.0.2.1"])
    assert Followers(desk).sources(fixed, None, world[DNSZone], world) == (("192.0.2.1", 53),)
    assert Followers(desk).sources(instance("s1", "secondary"), None, world[DNSZone], world) == ()


def test_files_are_kept_when_there_is_nobody_to_name(world, desk):
    followers, secondary = Followers(desk), world[Bind9Instance][2]
    files = followers.files(secondary, None, (("10.0.0.1", 5353),), world)
    assert "10.0.0.1" in files[IN_ZONES]
    assert "10.0.0.1" not in followers.files(secondary, None, (), world)[IN_ZONES]
    world[ConfigMap].append(ConfigMap(metadata=meta("s1-config"), data=files))
    assert followers.files(secondary, None, (), world) == files
    assert followers.files(instance("s1", "secondary"), None, (), world) == {}


def test_a_pod_has_the_catalog_it_was_made_with_and_its_zones_stay_listed_for_as_long(world, desk):
    zone, secondary = world[DNSZone][0], instance("s1", "secondary")
    (server,) = desk.servers([secondary], world)[0]
    assert server.catalog == "catalog.test"
    assert desk.catalogs_of(zone, [secondary], world) == {(SPACE, "catalog.test"): ObjectRef("s1", SPACE)}
    world[Pod].pop()
    assert desk.catalogs_of(zone, [secondary], world) == {}


def test_secondaries_with_a_catalog_are_looked_at_when_primaries_are_others_and_only_then(world, desk):
    found, book = sent(desk), ZoneBook(ObjectRef("a", SPACE))
    servers = desk.servers(world[Bind9Instance], world)[0]
    desk.tell_followers(book, servers)
    assert found == [ObjectRef("s1", SPACE)]
    desk.tell_followers(book, servers)
    desk.tell_followers(book, [one for one in servers if one.role == "primary"])
    assert len(found) == 1
    world[Pod][0] = pod("p2", 9)
    desk.tell_followers(book, desk.servers(world[Bind9Instance], world)[0])
    assert len(found) == 2
