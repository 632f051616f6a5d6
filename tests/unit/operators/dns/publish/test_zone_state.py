"""The state of a zone: what one change touches, however large the zone is."""

from __future__ import annotations

import gc
from typing import Any

import msgspec
import pytest

from steersman.cache.store import ObjectStore
from steersman.errors import PlanError
from steersman.kube.api.gvk import NamespacedName
from steersman.operators.dns.api.records import RECORD_KINDS, ARecord
from steersman.operators.dns.api.zone import DNSZone
from steersman.operators.dns.bind.servers import Keys, Server
from steersman.operators.dns.bind.zone_statements import primary_config
from steersman.operators.dns.controllers.zone_status import Summary, status_of
from steersman.operators.dns.publish.copy_inspector import PublishJob
from steersman.operators.dns.publish.ownership import deleted_contributions, owned_keys
from steersman.operators.dns.publish.publisher import publish
from steersman.operators.dns.publish.zone_state import Retry, ZoneState
from steersman.operators.dns.wire.tsig import Key
from steersman.operators.dns.zone.ptr import PtrIndex
from steersman.operators.dns.zone.rdata import A
from steersman.operators.dns.zone.selection import label_values, leaving_values, published_values, selector_values
from steersman.operators.dns.zone.soa import own_contributions, soa_of, zone_name

API = {"apiVersion": "bindy.firestoned.io/v1beta1"}
META = {"namespace": "shop", "creationTimestamp": "2024-01-01T00:00:00Z"}
TIMERS = {"refresh": 1, "retry": 1, "expire": 1, "negativeTtl": 1}


def the_zone():
    spec = {
        "zoneName": "example.org",
        "soaRecord": {"primaryNs": "ns1.example.net.", "adminEmail": "h.example.org.", **TIMERS},
        "recordsFrom": [{"selector": {"matchLabels": {"zone": "org"}}}],
    }
    body = {**API, "kind": "DNSZone", "metadata": {"name": "org", "uid": "z", **META}, "spec": spec}
    return msgspec.convert(body, DNSZone)


def host(number, address="192.0.2.1", generation=1):
    meta = {"name": f"h{number}", "uid": f"u{number}", "generation": generation, "labels": {"zone": "org"}, **META}
    meta["resourceVersion"] = str(1000 + generation)
    body = {**API, "kind": "ARecord", "metadata": meta, "spec": {"name": f"h{number}", "ipv4Addresses": [address]}}
    return msgspec.convert(body, ARecord)


class Counted:
    """A shelf that counts the objects it hands out."""

    def __init__(self, store, counts):
        self._shelf, self._counts = store.snapshot(), counts

    def get(self, ref):
        self._counts.append(ref)
        return self._shelf.get(ref)

    def by_index(self, index, value):
        found = self._shelf.by_index(index, value)
        self._counts.extend(found)
        return found

    def list(self, **options):
        found = self._shelf.list(**options)
        self._counts.extend(found)
        return found


class World:
    def __init__(self, size):
        self.stores = {kind: ObjectStore() for kind in (*RECORD_KINDS, DNSZone)}
        for kind in RECORD_KINDS:
            self.stores[kind].add_index("dns-labels", label_values)
            self.stores[kind].add_index("dns-leaving", leaving_values)
            self.stores[kind].add_index("dns-published", published_values)
        self.stores[DNSZone].add_index("dns-records-from", selector_values)
        self.stores[DNSZone].add_index("dns-zone-name", lambda zone: [zone.spec.zone_name])
        self.zone = the_zone()
        self.stores[DNSZone].upsert(self.zone)
        for number in range(size):
            self.stores[ARecord].upsert(host(number))
        self.directory = PtrIndex()

    def load(self, state):
        """Returns how many objects were read."""
        counts = []
        cache = {kind: Counted(store, counts) for kind, store in self.stores.items()}
        name = zone_name(self.zone)
        state.load(self.zone, name, own_contributions(self.zone, name), cache, self.directory)
        return len(counts)


def test_one_change_reads_as_many_objects_in_a_large_zone_as_in_a_small_one():
    counted = []
    for size in (10, 400):
        world, state = World(size), ZoneState(the_zone().ref)
        assert world.load(state) >= size
        copy = state.copy("server")
        state.record_content(copy, b"", dict(state.desired.rrsets))
        state.published(1)
        world.stores[ARecord].upsert(host(7, "192.0.2.99", generation=2))
        state.loader.mark_record(ARecord, "h7")
        counted.append(world.load(state))
        assert copy.diff.keys() == {(b"\x02h7", A)}
        assert state.pending == {"arecord/h7"}
        fresh = ZoneState(the_zone().ref)
        world.load(fresh)
        assert state.desired.rrsets == fresh.desired.rrsets
    assert counted[0] == counted[1] <= 5


class Unwalked(dict):
    """RRsets that may be asked for one by one only."""

    def _walk(self, *_):
        raise AssertionError("something walks over the whole zone")

    __iter__ = keys = values = items = copy = __or__ = __ror__ = __eq__ = __reversed__ = _walk
    __hash__ = None


class Taking:
    """A driver whose server takes every update."""

    def __init__(self):
        self.changes = []

    async def write(self, zone, expected, soa, ttl, changes):
        self.changes += changes


async def test_publishing_one_change_does_not_walk_over_the_zone():
    world, state, driver = World(20), ZoneState(the_zone().ref), Taking()
    key = Key("key", "hmac-sha256", b"secret")
    server = Server(NamespacedName("i", "shop"), "0", "primary", "192.0.2.1", 53, 953, Keys(key, key, key))
    job = PublishJob(soa=soa_of(world.zone, 1), ttl=60, primaries=(server,), secondaries=())
    world.load(state)
    copy = state.copy(server.id)
    state.record_content(copy, job.soa.value(), dict(state.desired.rrsets))
    copy.config = primary_config(server, state.desired.zone, (), policy=None, widest=state.desired.widest)
    world.stores[ARecord].upsert(host(7, "192.0.2.99", generation=2))
    meta = msgspec.structs.replace(host(8).metadata, deletion_timestamp="2024-01-02T00:00:00Z")
    world.stores[ARecord].upsert(msgspec.structs.replace(host(8), metadata=meta))
    state.loader.mark_record(ARecord, "h7")
    state.loader.mark_record(ARecord, "h8")
    state.desired.rrsets = Unwalked(state.desired.rrsets)
    world.load(state)
    report = await publish(state, job, lambda _: driver)
    assert report.ok
    assert [change.key[0] for change in driver.changes] == [b"\x02h8", b"\x02h7"]  # what goes comes first
    assert status_of(world.zone, state, Summary(report=report), now=0.0).serial == report.serial == 2


def test_a_new_zone_reads_the_records_that_are_being_deleted_and_no_others():
    for size in (10, 400):
        world = World(size)
        meta = msgspec.structs.replace(host(3).metadata, deletion_timestamp="2024-01-02T00:00:00Z")
        world.stores[ARecord].upsert(msgspec.structs.replace(host(3), metadata=meta))
        counts: list[Any] = []
        cache = {kind: Counted(store, counts) for kind, store in world.stores.items()}
        parts = deleted_contributions(world.zone, zone_name(world.zone), cache)
        assert [(part.source, part.key) for part in parts] == [("arecord/h3", (b"\x02h3", A))]
        assert owned_keys(world.zone, zone_name(world.zone), cache, []) == {}
        assert len(counts) == 1


def test_the_status_of_a_large_zone_is_no_larger_than_that_of_a_small_one():
    sizes = []
    for size in (200, 2000):
        world, state = World(size), ZoneState(the_zone().ref)
        world.load(state)
        status = status_of(world.zone, state, Summary(), now=0.0)
        assert (status.records_count, status.records) == (size, None)
        sizes.append(len(msgspec.json.encode(status)))
    assert sizes[1] - sizes[0] < 10


@pytest.mark.parametrize("fails", [False, True])
def test_the_collector_works_again_after_a_zone_was_compiled(fails, monkeypatch):
    world, state = World(3), ZoneState(the_zone().ref)
    resting = []

    def settle():
        resting.append(not gc.isenabled())
        if fails:
            raise RuntimeError("broken")
        return real()

    world.load(state)
    state.loader.mark_all_records()
    real = state.desired.settle
    monkeypatch.setattr(state.desired, "settle", settle)
    if fails:
        with pytest.raises(RuntimeError):
            world.load(state)
    else:
        world.load(state)
    assert resting == [True]
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"zoneName": "192.0.2.1"}, "spec.zoneName"),
        ({"soaRecord": {"primaryNs": ".", "adminEmail": "h.example.org.", **TIMERS}}, "spec.soaRecord.primaryNs"),
        ({"nameServerIps": {"a b.example.org.": "192.0.2.1"}}, "spec.nameServerIps"),
        ({"nameServerIps": {"ns1": "192.0.2.1"}}, "spec.nameServerIps"),
    ],
)
def test_what_no_schema_refuses_of_a_zone_is_named_by_its_field(spec, field):
    body = msgspec.to_builtins(the_zone())
    zone = msgspec.convert({**body, "spec": {**body["spec"], **spec}}, DNSZone)
    with pytest.raises(PlanError) as caught:
        own_contributions(zone, zone_name(zone))
    assert caught.value.field == field


def test_names_of_servers_may_lack_their_last_dot_where_only_a_whole_name_can_be_meant():
    body = msgspec.to_builtins(the_zone())
    body["spec"]["nameServerIps"] = {"ns2.example.org": "192.0.2.1"}
    zone = msgspec.convert(body, DNSZone)
    parts = own_contributions(zone, zone_name(zone))
    assert any(b"\x03ns2\x07example\x03org\0" in part.values for part in parts)


def test_the_copy_of_a_server_that_is_gone_is_forgotten():
    state = ZoneState(NamespacedName("z", "default"))
    state.copy("gone").behind = 3
    state.copy("here").known = True
    state.keep(["here", "new"])
    assert set(state.copies) == {"here"}


def test_tries_come_later_with_time_and_not_with_passes_and_start_over_with_other_servers():
    retry = Retry()
    assert [retry.failed("a", 100 + n / 10, 30.0) for n in range(3)] == pytest.approx([1.0, 0.9, 0.8])
    waits, now = [], 101.0
    for _ in range(6):
        waits.append(retry.failed("a", now, 30.0))
        now += waits[-1]
    assert waits == [2, 4, 8, 16, 30, 30]
    assert retry.failed("b", now, 30.0) == 1.0
    retry.succeeded()
    assert retry.failed("b", now, 30.0) == 1.0
