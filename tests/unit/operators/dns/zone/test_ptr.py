"""PTR records: who gets one, in which zone, and that no order of events makes a difference."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.clock import SYSTEM_CLOCK
from steersman.kube.api.objects import ObjectMeta
from steersman.operators.dns.api.config import OVERLAP_NAMESPACES, PTR_NAMESPACES, DnsOptions
from steersman.operators.dns.api.field_types import LabelSelectorSpec, RecordSource
from steersman.operators.dns.api.records import AAAARecord, ARecord, CNAMERecord, NSRecord
from steersman.operators.dns.api.zone import DNSZone, SOARecord
from steersman.operators.dns.controllers.context import make_context
from steersman.operators.dns.controllers.record import PTR_PENDING, PTR_PUBLISHED, ptr_outcome
from steersman.operators.dns.controllers.setup import ControllerTable, zones_sharing_records
from steersman.operators.dns.inspect.offline import ZoneInspection
from steersman.operators.dns.zone.conflicts import ZONE
from steersman.operators.dns.zone.names import name_of, short_text, text_of
from steersman.operators.dns.zone.ptr import is_reverse, place_of
from steersman.operators.dns.zone.rdata import PTR
from steersman.operators.dns.zone.selection import source_of, zone_of
from steersman.operators.dns.zone.soa import own_contributions, zone_name

if TYPE_CHECKING:
    import random

SOA = SOARecord(
    primary_ns="ns1.example.net.", admin_email="h.example.net.", refresh=1, retry=1, expire=1, negative_ttl=1
)
_uids = iter(range(1, 10**9))


def meta(name, namespace="shop", *, generation=1, at="2024-01-01T00:00:00Z", **more):
    return ObjectMeta(
        name=name, namespace=namespace, uid=f"u{next(_uids)}", generation=generation, creation_timestamp=at, **more
    )


def zone(title, namespace="shop", *, ptr=False, grant="", at="2024-01-01T00:00:00Z", labels=None):
    annotations = {PTR_NAMESPACES: grant} if grant else {}
    name = title.replace(".", "-")
    chosen = [RecordSource(selector=LabelSelectorSpec(match_labels=labels or {"zone": title}))]
    spec = DNSZone.Spec(zone_name=title, soa_record=SOA, ptr=ptr, records_from=chosen)
    return DNSZone(metadata=meta(name, namespace, at=at, annotations=annotations), spec=spec)


def address(name, *addresses, owner=None, namespace="shop", within="example.org", ptr=None, ttl=None, generation=1):
    head = meta(name, namespace, labels={"zone": within}, generation=generation)
    if any(":" in text for text in addresses):
        six = AAAARecord.Spec(name=owner or name, ipv6_addresses=list(addresses), ptr=ptr, ttl=ttl)
        return AAAARecord(metadata=head, spec=six)
    four = ARecord.Spec(name=owner or name, ipv4_addresses=list(addresses), ptr=ptr, ttl=ttl)
    return ARecord(metadata=head, spec=four)


class World:
    """The zone controller without servers: objects change, the table of controllers wakes zones, zones load."""

    def __init__(self, *objects):
        self.objects: dict[Any, dict[Any, Any]] = {}
        self.dns = make_context(DnsOptions(), clock=SYSTEM_CLOCK)
        self.table = ControllerTable(self.dns)
        self.watches = [row for row in self.table.zone().watched if row.role == "watches"]
        self.woken: dict[Any, None] = {}
        self.dns.channels.zones.connect(lambda key, **_: self.woken.setdefault(key))
        self.reported: set[str] = set()
        for kind, channel in self.dns.channels.records.items():
            channel.connect(lambda key, kind=kind, **_: self.reported.add(f"{kind.KIND.kind.lower()}/{key}"))
        for obj in objects:
            self.set(obj)

    @property
    def cache(self):
        return ZoneInspection({kind: list(rows.values()) for kind, rows in self.objects.items()})._cache

    def set(self, new=None, *, old=None):
        rows = self.objects.setdefault(type(new or old), {})
        ref = (new or old).ref
        old = rows.pop(ref, None)
        if new is not None:
            rows[ref] = new
        cache = self.cache
        if isinstance(new or old, DNSZone):
            self.woken.setdefault(ref)
        for watch in self.watches:
            if watch.target is type(new or old):
                states = filter(None, (old, new))
                takes_cache = "cache" in inspect.signature(watch.to).parameters
                keys = {key for obj in states for key in (watch.to(obj, cache) if takes_cache else watch.to(obj))}
                self.woken.update(dict.fromkeys(keys))
                if watch.on_enqueue is not None:
                    watch.on_enqueue(new or old, list(keys))

    def remove(self, one):
        self.set(old=one)

    def settle(self, chance: random.Random | None = None):
        """Zones are loaded until none is woken any more."""
        for _ in range(200):
            if not self.woken:
                return self
            keys = list(self.woken)
            key = chance.choice(keys) if chance is not None else keys[0]
            del self.woken[key]
            cache = self.cache
            found = cache[DNSZone].get(key)
            if found is None:
                ptr_index = self.dns.ptr_index
                for source in ptr_index.sources(key):
                    names = ptr_index.put(key, source, ())
                    self.dns.channels.pointers_changed([((key.namespace, source), name) for name in names], cache)
                self.dns.states.pop(key, None)
                continue
            state, name = self.dns.states[key], zone_name(found)
            loaded = state.load(found, name, own_contributions(found, name), cache, self.dns.ptr_index)
            self.dns.channels.pointers_changed(loaded.pointers, cache)
            state.published(1)
            state.outcome_ready = True
        raise AssertionError("zones wake each other for ever")

    def ptr(self, title, namespace="shop"):
        """The PTR records of a zone."""
        state = self.state(title, namespace)
        return {
            short_text(owner, state.desired.zone): {text_of(value) for value in rrset.values}
            for (owner, kind), rrset in state.desired.rrsets.items()
            if kind == PTR
        }

    def state(self, title, namespace="shop"):
        found = next(one for one in self.objects[DNSZone].values() if one.name == title.replace(".", "-"))
        return self.dns.states[found.ref]

    def ptr_outcome(self, record):
        cache = self.cache
        origin = (record.namespace, source_of(record))
        pointers = self.dns.ptr_index.of(origin)
        return ptr_outcome(origin, pointers, self.dns.states, lambda n: cache[DNSZone].by_index("dns-zone-name", n))


NET = "2.0.192.in-addr.arpa"


def test_a_record_that_asks_gets_a_ptr_per_address_and_one_that_does_not_gets_none():
    asking = address("www", "192.0.2.1", "192.0.2.2", ptr=True, ttl=77)
    world = World(zone("example.org"), zone(NET), asking, address("other", "192.0.2.3")).settle()
    assert world.ptr(NET) == {f"{n}.{NET}": {"www.example.org."} for n in (1, 2)}
    desired = world.state(NET).desired
    key = (name_of("1")[:-1], PTR)
    assert desired.rrsets[key].ttl == 77
    assert desired.sources_of(key) == ["arecord/shop/www"]
    assert world.ptr_outcome(asking) is PTR_PUBLISHED


def test_the_zones_setting_holds_for_records_without_one():
    yes, no = address("yes", "192.0.2.1"), address("no", "192.0.2.2", ptr=False)
    world = World(zone("example.org", ptr=True), zone(NET), yes, no).settle()
    assert world.ptr(NET) == {f"1.{NET}": {"yes.example.org."}}
    world.set(zone("example.org", ptr=False))
    world.settle()
    assert world.ptr(NET) == {}


def test_an_ipv6_address_points_back_from_the_nearest_zone_that_is_declared():
    far, near = "8.b.d.0.1.0.0.2.ip6.arpa", "0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"
    www = address("www", "2001:db8::1", ptr=True)
    world = World(zone("example.org"), zone(far), www).settle()
    owner = ".".join("1" + "0" * 23) + "." + far
    assert world.ptr(far) == {owner: {"www.example.org."}}
    world.set(zone(near))
    world.settle()
    assert (world.ptr(far), world.ptr(near)) == ({}, {owner: {"www.example.org."}})
    world.remove(next(one for one in world.objects[DNSZone].values() if one.spec.zone_name == near))
    world.settle()
    assert world.ptr(far) == {owner: {"www.example.org."}}


def test_without_a_zone_nothing_is_written_and_the_record_says_so_until_there_is_one():
    www = address("www", "198.51.100.1", ptr=True)
    world = World(zone("example.org"), zone(NET), www).settle()
    assert world.ptr(NET) == {}
    assert (world.ptr_outcome(www).reason, "1.100.51.198" in world.ptr_outcome(www).message) == ("NoReverseZone", True)
    (row,) = [row for row in world.table.record(ARecord).watched if row.to.__name__ == "unplaced_records_of_kind"]
    assert list(row.to(zone("51.198.in-addr.arpa", "elsewhere"), world.cache)) == [www.ref]  # it may say so now
    assert not row.to(zone(NET), world.cache)
    world.reported.clear()
    world.set(zone("51.198.in-addr.arpa"))
    assert world.ptr_outcome(www) is PTR_PENDING
    world.settle()
    assert world.ptr_outcome(www) is PTR_PUBLISHED


def test_another_namespace_is_let_in_by_the_reverse_zone_and_by_no_other():
    www = address("www", "192.0.2.1", namespace="shop", ptr=True)
    world = World(zone("example.org"), zone(NET, "platform"), www).settle()
    assert world.ptr(NET) == {}
    assert world.ptr_outcome(www).reason == "ReverseZoneDenied"
    for grant, allowed in (("other", False), ("other, shop", True), ("", False), ("*", True)):
        world.set(zone(NET, "platform", grant=grant))
        world.settle()
        assert (world.ptr(NET) == {f"1.{NET}": {"www.example.org."}}) is allowed, grant
        assert (world.ptr_outcome(www) is PTR_PUBLISHED) is allowed


def test_a_zone_in_another_namespace_does_not_take_pointers_away():
    tenant, ours = zone(NET, "tenant"), zone("0.192.in-addr.arpa")
    named = {one.spec.zone_name: [one] for one in (tenant, ours)}
    place = place_of(name_of(f"1.{NET}"), "shop", lambda text: named.get(text, []))
    assert place.zone is ours


def test_a_zone_that_lets_everybody_in_draws_no_pointers_from_a_zone_that_had_them_first_or_is_the_records_own():
    name = name_of(f"1.{NET}")

    def placed(*zones):
        named = {one.spec.zone_name: [one] for one in zones}
        found = place_of(name, "shop", lambda text: named.get(text, [])).zone
        return found.namespace

    thief = zone(NET, "thief", grant="*", at="2025-01-01T00:00:00Z")
    above = zone("in-addr.arpa", "thief", grant="*", at="2020-01-01T00:00:00Z")
    platform = zone("0.192.in-addr.arpa", "platform", grant="shop")
    own = zone("0.192.in-addr.arpa", "shop", at="2026-01-01T00:00:00Z")
    assert placed(thief, platform) == "platform"
    assert placed(thief, own) == "shop"
    assert placed(above, own) == "shop"
    assert placed(thief) == "thief"
    own.metadata.annotations = {OVERLAP_NAMESPACES: "thief"}
    assert placed(thief, own) == "thief"


def test_renaming_moving_and_deleting_a_record_take_its_ptr_along():
    www = address("www", "192.0.2.1", ptr=True)
    world = World(zone("example.org"), zone(NET), www).settle()
    world.set(address("www", "192.0.2.1", owner="shop", ptr=True, generation=2))
    assert world.settle().ptr(NET) == {f"1.{NET}": {"shop.example.org."}}
    world.set(address("www", "192.0.2.9", owner="shop", ptr=True, generation=3))
    assert world.settle().ptr(NET) == {f"9.{NET}": {"shop.example.org."}}
    world.set(address("www", "192.0.2.9", owner="shop", ptr=True, within="nobody", generation=3))
    assert world.settle().ptr(NET) == {}
    world.set(www)
    assert world.settle().ptr(NET)
    for word in (False, True, None):  # nothing else about it changes
        world.set(address("www", "192.0.2.1", ptr=word, generation=9 + len(str(word))))
        assert bool(world.settle().ptr(NET)) is bool(word)
    world.set(www)
    assert world.settle().ptr(NET)
    world.reported.clear()
    world.remove(www)
    assert world.settle().ptr(NET) == {}


def test_a_record_that_zones_select_by_different_labels_belongs_to_the_oldest_that_is_left_and_its_ptr_follows():
    older, younger = zone("example.org", ptr=True), zone("example.net", ptr=True, at="2024-01-02T00:00:00Z")
    younger.spec.records_from[0].selector.match_labels = {"team": "web"}
    www = address("www", "192.0.2.1")
    www.metadata.labels["team"] = "web"
    world = World(older, younger, zone(NET), www).settle()
    (watch,) = [row for row in world.watches if row.to is zones_sharing_records]
    assert watch.when(older, None)
    assert watch.when(older, zone("example.org", labels={"zone": "other"}))
    unasked = zone("example.org", ptr=False)
    unasked.metadata.uid = older.metadata.uid
    assert not watch.when(older, unasked)  # nothing that selects records
    recreated = zone("example.org", ptr=True, at="2024-01-03T00:00:00Z")
    recreated.metadata.uid = "recreated"  # by a relist: deletion and creation arrive as one change
    assert watch.when(older, recreated)
    assert world.ptr(NET) == {f"1.{NET}": {"www.example.org."}}
    world.remove(older)
    assert world.settle().ptr(NET) == {f"1.{NET}": {"www.example.net."}}
    world.set(older)
    assert world.settle().ptr(NET) == {f"1.{NET}": {"www.example.org."}}
    world.set(zone("example.org", ptr=True, labels={"zone": "other"}))
    assert world.settle().ptr(NET) == {f"1.{NET}": {"www.example.net."}}


def test_an_address_that_is_not_published_has_no_ptr_and_gets_one_when_it_is():
    early, late = "2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"
    alias = CNAMERecord(
        metadata=meta("alias", labels={"zone": "example.org"}, at=early),
        spec=CNAMERecord.Spec(name="www", target="x.example.net."),
    )
    www = address("www", "192.0.2.1", ptr=True)
    www.metadata.creation_timestamp = late
    world = World(zone("example.org"), zone(NET), alias, www).settle()
    assert world.ptr(NET) == {}
    world.remove(alias)
    assert world.settle().ptr(NET) == {f"1.{NET}": {"www.example.org."}}


def test_a_conflict_in_the_reverse_zone_is_the_problem_of_exactly_the_record_that_has_it():
    part = NSRecord(
        metadata=meta("cut", labels={"zone": NET}), spec=NSRecord.Spec(name="1", nameserver="ns.example.net.")
    )
    one, two = address("one", "192.0.2.1", ptr=True), address("two", "192.0.2.2", ptr=True)
    world = World(zone("example.org"), zone(NET), part, one, two).settle()
    assert world.ptr(NET) == {f"2.{NET}": {"two.example.org."}}
    assert (world.ptr_outcome(one).reason, world.ptr_outcome(two)) == ("Occluded", PTR_PUBLISHED)


def test_two_names_of_one_address_are_two_values_and_a_wildcard_is_none():
    world = World(
        zone("example.org", ptr=True),
        zone(NET),
        address("a", "192.0.2.1"),
        address("b", "192.0.2.1"),
        address("any", "192.0.2.1", owner="*"),
    ).settle()
    assert world.ptr(NET) == {f"1.{NET}": {"a.example.org.", "b.example.org."}}


@pytest.mark.parametrize("title", ["2.0.192.in-addr.arpa", "ip6.arpa", "8.b.d.0.1.0.0.2.ip6.arpa", "arpa"])
def test_zones_of_addresses_are_known_by_their_name(title):
    assert is_reverse(name_of(title))
    assert not is_reverse(name_of(f"{title}.example.org"))


FORWARD = ["example.org", "example.net"]
REVERSE = [NET, "0.192.in-addr.arpa", "in-addr.arpa"]


@st.composite
def histories(draw):
    """Objects that come, change and go."""
    steps = []
    for number in range(draw(st.integers(3, 14))):
        if draw(st.booleans()):
            title = draw(st.sampled_from(FORWARD + REVERSE))
            where = draw(st.sampled_from(["shop", "platform"])) if title in REVERSE else "shop"
            made = zone(
                title,
                where,
                ptr=draw(st.booleans()),
                grant=draw(st.sampled_from(["", "shop", "*"])) if title in REVERSE else "",
                at=f"2024-01-{draw(st.integers(1, 3)):02}T00:00:00Z",
            )
        else:
            name = draw(st.sampled_from(["a", "b"]))
            made = address(
                name,
                *sorted(draw(st.sets(st.sampled_from(["192.0.2.1", "192.0.3.1"]), min_size=1))),
                owner=draw(st.sampled_from(["www", "mail", "*"])),
                within=draw(st.sampled_from(FORWARD)),
                ptr=draw(st.sampled_from([None, True, False])),
                generation=number + 1,
            )
        steps.append((draw(st.sampled_from(["set", "set", "remove"])), made))
    return steps


@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_whatever_happened_before_the_ptr_records_are_those_of_the_objects_there_are(history, chance: random.Random):
    world = World()
    for verb, one in history:
        getattr(world, verb)(one)
        if chance.random() < 0.5:
            world.settle(chance)
    world.settle(chance)
    wanted: dict[Any, dict[tuple[bytes, bytes], None]] = {}
    cache = world.cache
    for record in [*world.objects.get(ARecord, {}).values()]:
        owner = zone_of(record, cache)
        asked = record.spec.ptr if record.spec.ptr is not None or owner is None else owner.spec.ptr
        if owner is None or not asked or record.spec.name == "*":
            continue
        for text in record.spec.ipv4_addresses:
            name = name_of(".".join(reversed(text.split("."))) + ".in-addr.arpa")
            place = place_of(name, record.namespace, lambda title: cache[DNSZone].by_index("dns-zone-name", title))
            if place.zone is not None:
                row = (name, name_of(f"{record.spec.name}.{owner.spec.zone_name}"))
                wanted.setdefault(place.zone.ref, {})[row] = None
    found = {}
    for one in world.objects.get(DNSZone, {}).values():
        desired = world.dns.states[one.ref].desired
        rows = {
            (owner + desired.zone, value): None
            for (owner, kind), rrset in desired.rrsets.items()
            if kind == PTR
            for value in rrset.values
        }
        if rows:
            found[one.ref] = rows
        assert ZONE in desired.contributions
    assert found == wanted


def test_a_new_process_compiles_the_same_as_the_offline_inspection():
    world = World(zone("example.org", ptr=True), zone(NET), address("www", "192.0.2.1")).settle()
    inspection = ZoneInspection({kind: list(rows.values()) for kind, rows in world.objects.items()})
    (found,) = inspection.zones([NET])
    assert inspection.desired_state(found)[0].desired.rrsets == world.state(NET).desired.rrsets
