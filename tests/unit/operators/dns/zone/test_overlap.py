"""Of zones that claim the same names on one server the oldest is served; others only when its side allows them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import PlanError
from steersman.kube.api.objects import ObjectMeta
from steersman.operators.dns.api.config import ALLOW_NAMESPACES, OVERLAP_NAMESPACES, SERVED_BY, DnsOptions
from steersman.operators.dns.api.field_types import InstanceSource, LabelSelectorSpec, RecordSource
from steersman.operators.dns.api.records import NSRecord
from steersman.operators.dns.api.servers import Bind9Instance
from steersman.operators.dns.api.zone import DNSZone, SOARecord
from steersman.operators.dns.controllers.context import make_context
from steersman.operators.dns.controllers.setup import ControllerTable, overlapping_zones, zones_under
from steersman.operators.dns.inspect.offline import ZoneInspection
from steersman.operators.dns.zone.names import index_name, names_above
from steersman.operators.dns.zone.overlap import check_overlap, refused_zones
from steersman.operators.dns.zone.selection import InstanceSelector

SERVERS = {"dns": "shared"}


def zone(name, namespace, born=0, *, servers="shared", allows="", **notes):
    soa = SOARecord(primary_ns="ns1.servers.test.", admin_email="a.b.", refresh=1, retry=1, expire=1, negative_ttl=1)
    meta = ObjectMeta(
        name=name.rstrip(".").replace("/", "-").lower(),
        namespace=namespace,
        creation_timestamp=f"2026-01-01T00:00:{born:02}Z",
        annotations={OVERLAP_NAMESPACES: allows, **notes},
    )
    spec = DNSZone.Spec(
        zone_name=name,
        soa_record=soa,
        bind9_instances_from=[InstanceSource(selector=LabelSelectorSpec(match_labels={"dns": servers}))],
        records_from=[RecordSource(selector=LabelSelectorSpec(match_labels={"zone": "x"}))],
    )
    return DNSZone(metadata=meta, spec=spec)


def instance(name="ns1", servers="shared", allows=""):
    notes = {ALLOW_NAMESPACES: "*", OVERLAP_NAMESPACES: allows}
    meta = ObjectMeta(name=name, namespace="dns", uid=name, labels={"dns": servers}, annotations=notes)
    return Bind9Instance(metadata=meta, spec=Bind9Instance.Spec(role="primary"))


def delegation(name, namespace, to="ns1.servers.test."):
    meta = ObjectMeta(name="cut", namespace=namespace, labels={"zone": "x"})
    return NSRecord(metadata=meta, spec=NSRecord.Spec(name=name, nameserver=to))


def judged(*objects, instances=None):
    """By zone: why it is refused, or nothing; and which zones say that others are refused because of them."""
    zones = [one for one in objects if isinstance(one, DNSZone)]
    rows = {
        DNSZone: zones,
        NSRecord: [one for one in objects if isinstance(one, NSRecord)],
        Bind9Instance: instances or [instance()],
    }
    selector = InstanceSelector(ZoneInspection(rows)._cache)
    reasons, contested = {}, {}
    for one in zones:
        try:
            check_overlap(selector, one)
            reasons[one.name] = ""
            contested[one.name] = refused_zones(selector, one)
        except PlanError as error:
            reasons[one.name] = error.reason
    return reasons, {name: text for name, text in contested.items() if text}


BANK = zone("bank.example", "bank")


@pytest.mark.parametrize(
    "name", ["www.bank.example", "a.b.bank.example", "example", "WWW.Bank.Example", "WWW.bank.example."]
)
def test_a_zone_above_or_below_an_older_one_of_another_namespace_is_refused_and_both_say_so(name):
    thief = zone(name, "thief", 1)
    reasons, contested = judged(BANK, thief)
    assert reasons == {"bank.example": "", thief.name: "ZoneOverlap"}
    ((said,),) = contested.values()
    assert f"thief/{thief.name} ({index_name(name)}) is refused" in said
    assert OVERLAP_NAMESPACES in said


@pytest.mark.parametrize("name", ["bank.example.", "BANK.example", "b\\ank.example"])
def test_one_name_is_one_name_however_it_is_spelled(name):
    younger = zone(name, "thief", 1)
    younger.metadata.name = "younger"
    reasons, contested = judged(BANK, younger)
    assert reasons == {"bank.example": "", "younger": "DuplicateZone"}
    assert list(contested) == ["bank.example"]


@pytest.mark.parametrize("name", ["nk.example", "xbank.example", "bank.example.org", "shop.example"])
def test_names_that_only_look_alike_and_siblings_are_ignored(name):
    assert judged(BANK, zone(name, "other", 1))[0][name] == ""


def test_zones_of_one_namespace_may_lie_above_and_below_each_other():
    assert set(judged(BANK, zone("www.bank.example", "bank", 1), zone("example", "bank", 2))[0].values()) == {""}


def test_reverse_zones_are_zones():
    older, younger = zone("0.192.in-addr.arpa", "net"), zone("0/25.2.0.192.in-addr.arpa", "thief", 1)
    assert judged(older, younger)[0][younger.name] == "ZoneOverlap"


def test_zones_on_different_servers_do_not_meet():
    servers = [instance(), instance("ns2", "own")]
    assert judged(BANK, zone("www.bank.example", "t", 1, servers="own"), instances=servers)[0]["www.bank.example"] == ""


def test_of_zones_made_in_the_same_second_the_name_decides():
    assert judged(zone("www.bank.example", "zz"), BANK)[0] == {"www.bank.example": "ZoneOverlap", "bank.example": ""}


@pytest.mark.parametrize("allows", ["shop", "*", " a, shop "])
@pytest.mark.parametrize("name", ["www.bank.example", "example"])
def test_the_older_zone_or_every_common_instance_may_allow_a_namespace(name, allows):
    younger = zone(name, "shop", 1)
    older = zone("bank.example", "bank", allows=allows)
    assert judged(older, younger) == ({"bank.example": "", name: ""}, {})
    assert judged(BANK, younger, instances=[instance(allows=allows)]) == ({"bank.example": "", name: ""}, {})
    some = [instance(allows=allows), instance("ns2")]
    assert judged(BANK, younger, instances=some)[0][name] == "ZoneOverlap"
    assert judged(older, zone(name, "thief", 1))[0][name] == ("" if allows == "*" else "ZoneOverlap")


def test_a_younger_zone_cannot_allow_itself():
    younger = zone("example", "thief", 1, allows="*", **{SERVED_BY: "*"})
    assert judged(BANK, younger, delegation("bank", "thief"))[0]["example"] == "ZoneOverlap"


@pytest.mark.parametrize(
    ("cut", "to", "reason"),
    [
        ("www", "ns1.servers.test.", ""),
        ("www.bank.example.", "NS1.servers.test", ""),
        ("www", "ns.elsewhere.test.", "ZoneOverlap"),  # delegated elsewhere: no server here may answer
        ("shop", "ns1.servers.test.", "ZoneOverlap"),
        ("@", "ns1.servers.test.", "ZoneOverlap"),
        ("a.www", "ns1.servers.test.", "ZoneOverlap"),
    ],
)
def test_a_zone_above_that_gives_the_name_to_its_own_servers_allows_the_zone_below(cut, to, reason):
    below = zone("www.bank.example", "shop", 1)
    assert judged(BANK, below, delegation(cut, "bank", to))[0]["www.bank.example"] == reason
    assert judged(BANK, below, delegation(cut, "shop", to))[0]["www.bank.example"] == "ZoneOverlap"


def test_a_refused_zone_refuses_no_other():
    squatter, third = zone("example", "thief", 1), zone("shop.example", "shop", 2)
    assert judged(BANK, squatter, third)[0] == {"bank.example": "", "example": "ZoneOverlap", "shop.example": ""}


def test_a_claim_or_a_delegation_that_changes_wakes_the_zones_it_is_about():
    below, above = zone("www.bank.example", "shop", 1), zone("example", "other", 2)
    far = zone("bank.example.org", "other", 2)
    table = ControllerTable(make_context(DnsOptions(), clock=SYSTEM_CLOCK))
    cache = ZoneInspection({DNSZone: [BANK, below, above, far], Bind9Instance: [instance()]})._cache
    assert list(overlapping_zones(BANK, cache)) == sorted([below.ref, above.ref])
    assert list(overlapping_zones(below, cache)) == sorted([BANK.ref, above.ref])
    assert below.ref in zones_under(delegation("www", "bank"), cache)
    watches = [row for row in table.zone().watched if row.target is DNSZone]
    allowing = zone("bank.example", "bank", allows="shop")
    assert any(row.when(BANK, allowing) for row in watches)
    (instances,) = [row for row in table.zone().watched if row.target is Bind9Instance]
    assert instances.when(instance(), instance(allows="shop"))


LABELS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map(".".join)


@given(st.lists(st.tuples(LABELS, st.sampled_from(["n1", "n2", "n3"])), max_size=7))
def test_of_the_zones_that_are_served_no_two_of_different_namespaces_lie_in_each_other(rows):
    zones = []
    for number, (name, namespace) in enumerate(rows):
        one = zone(name, namespace, number)
        one.metadata.name = f"z{number}"
        zones.append(one)
    reasons, contested = judged(*zones)
    served = [one for one in zones if not reasons[one.name]]
    for one in served:
        for other in served:
            if one is not other:
                assert one.spec.zone_name != other.spec.zone_name
                inside = one.spec.zone_name in names_above(other.spec.zone_name)
                assert not inside or one.namespace == other.namespace
    for one in zones:  # every refused zone has an older one that is served and reports it
        if reasons[one.name]:
            assert any(f"/{one.name} (" in text for texts in contested.values() for text in texts)
