"""The zone compiler: one name at a time, and all of them at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.kube.objects import ObjectMeta
from steersman.operators.dns.compiler import ZONE, Draft
from steersman.operators.dns.names import name_of, owner_of, text_of
from steersman.operators.dns.recordkinds import (
    AAAARecord,
    ARecord,
    CNAMERecord,
    MXRecord,
    NSRecord,
    TXTRecord,
)
from steersman.operators.dns.rrsets import AAAA, CNAME, MX, NS, A, Contribution, value_text

if TYPE_CHECKING:
    import random

ORG = name_of("example.org")
OWN = [
    Contribution(ZONE, (b"", NS), None, frozenset({name_of("ns1.example.org")})),
    Contribution(ZONE, (owner_of("ns1", ORG), A), None, frozenset({bytes(4)})),
]


def record(kind, name, *, at="", ttl=None, **spec):
    meta = ObjectMeta(
        name=name, namespace="shop", uid=name, generation=1, creation_timestamp=at or "2024-01-01T00:00:00Z"
    )
    return kind(metadata=meta, spec=kind.Spec(name=spec.pop("owner", name), ttl=ttl, **spec))


def compiled(*records, ttl=None):
    draft = Draft(ORG, ttl)
    draft.put(ZONE, *OWN)
    for one in records:
        draft.put_record(one, source(one))
    draft.settle()
    return draft


def source(one):
    return f"{type(one).KIND.kind.lower()}/{one.name}"


def served(draft, name, kind):
    rrset = draft.rrsets.get((owner_of(name, ORG), kind))
    return None if rrset is None else {value_text(kind, value) for value in rrset.values}


def test_an_rrset_is_the_union_of_what_resources_contribute():
    draft = compiled(
        record(MXRecord, "one", owner="@", priority=10, mail_server="a.example.net."),
        record(MXRecord, "two", owner="@", priority=20, mail_server="b.example.net."),
    )
    assert served(draft, "@", MX) == {"10 a.example.net.", "20 b.example.net."}
    assert draft.sources_of((b"", MX)) == ["mxrecord/one", "mxrecord/two"]


def test_the_zone_s_ttl_holds_for_records_without_one_and_an_hour_without_either():
    www = record(ARecord, "www", ipv4_addresses=["192.0.2.1"])
    key = (owner_of("www", ORG), A)
    assert compiled(www, ttl=42).rrsets[key].ttl == 42
    assert compiled(www).rrsets[key].ttl == 3600


def test_different_ttls_give_the_lowest_and_those_who_asked_for_another_are_told():
    draft = compiled(
        record(ARecord, "a", owner="www", ttl=60, ipv4_addresses=["192.0.2.1"]),
        record(ARecord, "b", owner="www", ttl=600, ipv4_addresses=["192.0.2.2"]),
    )
    assert draft.outcome("arecord/a").ttl is None
    assert draft.outcome("arecord/b").ttl == 60
    assert draft.outcome("arecord/b").held is None


@pytest.mark.parametrize("alias_first", [True, False])
def test_of_a_cname_and_other_data_the_older_stays_and_only_the_other_is_held_back(alias_first):
    early, late = "2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"
    alias = record(CNAMERecord, "alias", owner="www", target="x.example.net.", at=early if alias_first else late)
    data = record(ARecord, "data", owner="www", ipv4_addresses=["192.0.2.1"], at=late if alias_first else early)
    draft = compiled(alias, data)
    winner, loser = ("cnamerecord/alias", "arecord/data") if alias_first else ("arecord/data", "cnamerecord/alias")
    assert draft.outcome(winner).held is None
    assert draft.outcome(loser).held.reason == "CNAMEConflict"
    assert winner in draft.outcome(loser).held.message
    assert {kind for owner, kind in draft.rrsets if owner == owner_of("www", ORG)} == {CNAME if alias_first else A}


def test_two_cnames_of_one_name_must_agree():
    draft = compiled(
        record(CNAMERecord, "a", owner="www", target="x.example.net."),
        record(CNAMERecord, "b", owner="www", target="y.example.net."),
        record(CNAMERecord, "c", owner="www", target="X.example.net."),
    )
    assert served(draft, "www", CNAME) == {"x.example.net."}
    assert [bool(draft.outcome(f"cnamerecord/{name}").held) for name in "abc"] == [False, True, False]


def test_a_mail_server_inside_the_zone_needs_an_address_and_gets_its_record_when_it_has_one():
    mail = record(MXRecord, "mail", owner="@", priority=1, mail_server="mx.example.org.")
    draft = compiled(mail)
    assert draft.outcome("mxrecord/mail").held.reason == "MissingAddress"
    draft.put_record(record(AAAARecord, "mx", ipv6_addresses=["2001:db8::1"]), "aaaarecord/mx")
    settled = draft.settle()
    assert draft.outcome("mxrecord/mail").held is None
    assert settled.before == {(b"", MX): None, (owner_of("mx", ORG), AAAA): None}
    assert "mxrecord/mail" in settled.sources


def test_a_delegation_hides_what_lies_below_it_except_the_addresses_of_its_servers():
    draft = compiled(
        record(NSRecord, "sub", nameserver="ns.sub.example.org."),
        record(ARecord, "glue", owner="ns.sub", ipv4_addresses=["192.0.2.1"]),
        record(ARecord, "below", owner="www.sub", ipv4_addresses=["192.0.2.2"]),
        record(TXTRecord, "beside", owner="sub", text=["x"]),
    )
    reasons = {name: getattr(draft.outcome(name).held, "reason", None) for name in draft.contributions if name != ZONE}
    assert reasons == {
        "nsrecord/sub": None,
        "arecord/glue": None,
        "arecord/below": "Occluded",
        "txtrecord/beside": "Occluded",
    }
    draft.drop("nsrecord/sub")
    draft.settle()
    assert not draft.held


def test_a_cname_at_the_apex_and_a_name_outside_are_held_back_and_named():
    draft = compiled(
        record(CNAMERecord, "apex", owner="@", target="x.example.net."),
        record(ARecord, "out", owner="www.example.net.", ipv4_addresses=["192.0.2.1"]),
    )
    assert draft.outcome("cnamerecord/apex").held.reason == "CNAMEAtApex"
    assert draft.outcome("arecord/out").held.reason == "OutOfZone"
    assert "spec.name" in draft.outcome("arecord/out").held.message


def test_an_rrset_that_fits_no_message_is_held_back_and_others_are_not():
    many = [f"10.{n // 65536}.{n // 256 % 256}.{n % 256}" for n in range(4000)]
    draft = compiled(
        record(ARecord, "many", ipv4_addresses=many),
        record(ARecord, "more", owner="many", ipv4_addresses=["192.0.2.1"]),
        record(ARecord, "www", ipv4_addresses=["192.0.2.1"]),
    )
    assert draft.outcome("arecord/many").held.reason == "RRsetTooLarge"
    assert served(draft, "www", A) == {"192.0.2.1"}


NAMES = ["@", "www", "mx", "sub", "a.sub", "ns.sub", "*", "x.y"]


@st.composite
def worlds(draw):
    rows = []
    for number in range(draw(st.integers(1, 12))):
        owner = draw(st.sampled_from(NAMES))
        at = f"2024-01-{draw(st.integers(1, 3)):02}T00:00:00Z"
        ttl = draw(st.sampled_from([None, 60, 600]))
        kind = draw(st.sampled_from([ARecord, CNAMERecord, MXRecord, NSRecord, TXTRecord]))
        target = draw(st.sampled_from(["mx.example.org.", "ns.sub.example.org.", "a.example.net."]))
        spec = {
            ARecord: {"ipv4_addresses": [f"192.0.2.{number}"]},
            CNAMERecord: {"target": target},
            MXRecord: {"priority": 1, "mail_server": target},
            NSRecord: {"nameserver": target},
            TXTRecord: {"text": [str(number)]},
        }[kind]
        rows.append(record(kind, f"r{number}", owner=owner, at=at, ttl=ttl, **spec))
    return rows


@settings(max_examples=150, deadline=None)
@given(worlds(), st.randoms(use_true_random=False))
def test_a_draft_that_changed_in_steps_is_the_draft_of_everything_at_once(world, chance: random.Random):
    draft = Draft(ORG, None)
    draft.put(ZONE, *OWN)
    for one in chance.sample(world, len(world)):
        draft.put_record(one, source(one))
        if chance.random() < 0.5:
            draft.settle()
        if chance.random() < 0.3:
            gone = chance.choice(world)
            draft.drop(source(gone))
    for one in world:
        draft.put_record(one, source(one))
    draft.settle()
    whole = compiled(*world)
    assert draft.rrsets == whole.rrsets
    assert draft.held == whole.held


@given(st.binary(min_size=1, max_size=63))
def test_a_name_of_any_bytes_comes_back_from_its_text(label):
    import dns.name

    wire = bytes([len(label)]) + label.lower() + ORG
    assert dns.name.from_text(text_of(wire)).to_wire().lower() == wire
