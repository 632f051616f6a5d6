"""The zone compiler: one name at a time, and all of them at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.errors import PlanError
from steersman.kube.api.objects import ObjectMeta
from steersman.operators.dns.api.records import (
    AAAARecord,
    ARecord,
    CNAMERecord,
    MXRecord,
    NSRecord,
    TXTRecord,
)
from steersman.operators.dns.zone.compiler import CompiledZone
from steersman.operators.dns.zone.conflicts import ZONE
from steersman.operators.dns.zone.names import name_of, owner_of, text_of
from steersman.operators.dns.zone.rdata import AAAA, CNAME, MX, NS, A, Contribution, contribution_of, value_text

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
    desired = CompiledZone(ORG, ttl)
    desired.put(ZONE, *OWN)
    for one in records:
        desired.put_record(one, source(one))
    desired.settle()
    return desired


def source(one):
    return f"{type(one).KIND.kind.lower()}/{one.name}"


def served(desired, name, kind):
    rrset = desired.rrsets.get((owner_of(name, ORG), kind))
    return None if rrset is None else {value_text(kind, value) for value in rrset.values}


def test_an_rrset_is_the_union_of_what_resources_contribute():
    desired = compiled(
        record(MXRecord, "one", owner="@", priority=10, mail_server="a.example.net."),
        record(MXRecord, "two", owner="@", priority=20, mail_server="b.example.net."),
    )
    assert served(desired, "@", MX) == {"10 a.example.net.", "20 b.example.net."}
    assert desired.sources_of((b"", MX)) == ["mxrecord/one", "mxrecord/two"]


def test_the_zone_s_ttl_holds_for_records_without_one_and_an_hour_without_either():
    www = record(ARecord, "www", ipv4_addresses=["192.0.2.1"])
    key = (owner_of("www", ORG), A)
    assert compiled(www, ttl=42).rrsets[key].ttl == 42
    assert compiled(www).rrsets[key].ttl == 3600


def test_different_ttls_give_the_lowest_and_the_records_with_another_report_it():
    desired = compiled(
        record(ARecord, "a", owner="www", ttl=60, ipv4_addresses=["192.0.2.1"]),
        record(ARecord, "b", owner="www", ttl=600, ipv4_addresses=["192.0.2.2"]),
    )
    assert desired.outcome("arecord/a").ttl is None
    assert desired.outcome("arecord/b").ttl == 60
    assert desired.outcome("arecord/b").held is None


@pytest.mark.parametrize("alias_first", [True, False])
def test_of_a_cname_and_other_data_the_older_stays_and_only_the_other_is_held_back(alias_first):
    early, late = "2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"
    alias = record(CNAMERecord, "alias", owner="www", target="x.example.net.", at=early if alias_first else late)
    data = record(ARecord, "data", owner="www", ipv4_addresses=["192.0.2.1"], at=late if alias_first else early)
    desired = compiled(alias, data)
    winner, loser = ("cnamerecord/alias", "arecord/data") if alias_first else ("arecord/data", "cnamerecord/alias")
    assert desired.outcome(winner).held is None
    assert desired.outcome(loser).held.reason == "CNAMEConflict"
    assert winner in desired.outcome(loser).held.message
    assert {kind for owner, kind in desired.rrsets if owner == owner_of("www", ORG)} == {CNAME if alias_first else A}


def test_two_cnames_of_one_name_must_agree():
    desired = compiled(
        record(CNAMERecord, "a", owner="www", target="x.example.net."),
        record(CNAMERecord, "b", owner="www", target="y.example.net."),
        record(CNAMERecord, "c", owner="www", target="X.example.net."),
    )
    assert served(desired, "www", CNAME) == {"x.example.net."}
    assert [bool(desired.outcome(f"cnamerecord/{name}").held) for name in "abc"] == [False, True, False]


def test_a_mail_server_inside_the_zone_needs_an_address_and_gets_its_record_when_it_has_one():
    mail = record(MXRecord, "mail", owner="@", priority=1, mail_server="mx.example.org.")
    desired = compiled(mail)
    assert desired.outcome("mxrecord/mail").held.reason == "MissingAddress"
    desired.put_record(record(AAAARecord, "mx", ipv6_addresses=["2001:db8::1"]), "aaaarecord/mx")
    settled = desired.settle()
    assert desired.outcome("mxrecord/mail").held is None
    assert settled.before == {(b"", MX): None, (owner_of("mx", ORG), AAAA): None}
    assert "mxrecord/mail" in settled.sources


def test_a_delegation_hides_what_lies_below_it_except_the_addresses_of_its_servers():
    desired = compiled(
        record(NSRecord, "sub", nameserver="ns.sub.example.org."),
        record(ARecord, "glue", owner="ns.sub", ipv4_addresses=["192.0.2.1"]),
        record(ARecord, "below", owner="www.sub", ipv4_addresses=["192.0.2.2"]),
        record(TXTRecord, "beside", owner="sub", text=["x"]),
    )
    reasons = {
        name: getattr(desired.outcome(name).held, "reason", None) for name in desired.contributions if name != ZONE
    }
    assert reasons == {
        "nsrecord/sub": None,
        "arecord/glue": None,
        "arecord/below": "Occluded",
        "txtrecord/beside": "Occluded",
    }
    desired.drop("nsrecord/sub")
    desired.settle()
    assert not desired.held


def test_a_delegation_to_other_servers_hides_the_addresses_of_those_before_and_shows_those_of_the_new():
    desired = compiled(
        record(NSRecord, "sub", nameserver="ns1.sub.example.org."),
        record(ARecord, "one", owner="ns1.sub", ipv4_addresses=["192.0.2.1"]),
        record(ARecord, "two", owner="ns2.sub", ipv4_addresses=["192.0.2.2"]),
    )
    assert [bool(desired.outcome(f"arecord/{name}").held) for name in ("one", "two")] == [False, True]
    desired.put_record(record(NSRecord, "sub", nameserver="ns2.sub.example.org."), "nsrecord/sub")
    assert {"arecord/one", "arecord/two"} <= desired.settle().sources
    assert [bool(desired.outcome(f"arecord/{name}").held) for name in ("one", "two")] == [True, False]


def test_a_conflict_that_is_over_is_no_longer_reported():
    desired = compiled(record(CNAMERecord, "apex", owner="@", target="x.example.net."))
    assert [source for _, source, _ in desired.problems()] == ["cnamerecord/apex"]
    desired.drop("cnamerecord/apex")
    desired.settle()
    assert desired.problems() == []


def test_a_cname_at_the_apex_and_a_name_outside_are_held_back_and_named():
    desired = compiled(
        record(CNAMERecord, "apex", owner="@", target="x.example.net."),
        record(ARecord, "out", owner="www.example.net.", ipv4_addresses=["192.0.2.1"]),
    )
    assert desired.outcome("cnamerecord/apex").held.reason == "CNAMEAtApex"
    assert desired.outcome("arecord/out").held.reason == "OutOfZone"
    assert "spec.name" in desired.outcome("arecord/out").held.message


def test_an_rrset_that_fits_no_message_is_held_back_and_others_are_not():
    many = [f"10.{n // 65536}.{n // 256 % 256}.{n % 256}" for n in range(4000)]
    desired = compiled(
        record(ARecord, "many", ipv4_addresses=many),
        record(ARecord, "more", owner="many", ipv4_addresses=["192.0.2.1"]),
        record(ARecord, "www", ipv4_addresses=["192.0.2.1"]),
    )
    assert desired.outcome("arecord/many").held.reason == "RRsetTooLarge"
    assert served(desired, "www", A) == {"192.0.2.1"}


EARLY, LATE = "2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"


def reasons(desired):
    """Why records are held back; None for those that are not."""
    return {name: getattr(desired.outcome(name).held, "reason", None) for name in desired.contributions if name != ZONE}


def test_name_servers_that_are_held_back_delegate_nothing():
    older = record(CNAMERecord, "alias", owner="sub", target="x.example.net.", at=EARLY)
    below = record(ARecord, "below", owner="a.sub", ipv4_addresses=["192.0.2.1"], at=EARLY)
    desired = compiled(older, below)
    desired.put_record(record(NSRecord, "late", owner="sub", nameserver="ns.example.net.", at=LATE), "nsrecord/late")
    desired.settle()
    assert reasons(desired) == {"cnamerecord/alias": None, "arecord/below": None, "nsrecord/late": "CNAMEConflict"}
    desired.drop("cnamerecord/alias")
    desired.settle()
    assert reasons(desired) == {"arecord/below": "Occluded", "nsrecord/late": None}


def test_of_nested_delegations_only_the_uppermost_counts_and_only_its_servers_keep_their_addresses():
    desired = compiled(
        record(NSRecord, "outer", owner="sub", nameserver="ns.example.net."),
        record(NSRecord, "inner", owner="a.sub", nameserver="ns.a.sub.example.org."),
        record(ARecord, "glue", owner="ns.a.sub", ipv4_addresses=["192.0.2.1"]),
    )
    assert reasons(desired) == {"nsrecord/outer": None, "nsrecord/inner": "Occluded", "arecord/glue": "Occluded"}


def test_a_name_that_is_delegated_to_itself_keeps_its_address_and_nothing_else():
    desired = compiled(
        record(NSRecord, "box", nameserver="box.example.org."),
        record(ARecord, "glue", owner="box", ipv4_addresses=["192.0.2.1"]),
        record(TXTRecord, "text", owner="box", text=["x"]),
    )
    assert reasons(desired) == {"nsrecord/box": None, "arecord/glue": None, "txtrecord/text": "Occluded"}


STAR = record(ARecord, "star", owner="*", ipv4_addresses=["192.0.2.1"])
ADDRESSED = {  # who is beside a name server, or mail server, x.y -> whether each of them is fine
    "nothing": ([], False, False),
    "an address": ([record(ARecord, "a", owner="x.y", ipv4_addresses=["192.0.2.1"])], True, True),
    "an alias": ([record(CNAMERecord, "a", owner="x.y", target="w.example.net.")], False, True),
    "an alias and a later address": (
        [
            record(CNAMERecord, "a", owner="x.y", target="w.example.net.", at=EARLY),
            record(ARecord, "b", owner="x.y", ipv4_addresses=["192.0.2.1"], at=LATE),
        ],
        False,
        True,
    ),
    "a wildcard": ([STAR], True, True),
    "a wildcard, but the name has a text": ([STAR, record(TXTRecord, "t", owner="x.y", text=["x"])], False, False),
    "a wildcard, but something is below": ([STAR, record(TXTRecord, "t", owner="a.x.y", text=["x"])], False, False),
    "a wildcard, but a sibling exists": ([STAR, record(TXTRecord, "t", owner="b.y", text=["x"])], False, False),
    "a nearer wildcard without address": ([STAR, record(TXTRecord, "t", owner="*.y", text=["x"])], False, False),
    "a wildcard that is an alias": ([record(CNAMERecord, "s", owner="*", target="w.example.net.")], False, True),
    "a delegation above": ([record(NSRecord, "d", owner="y", nameserver="ns.example.net.")], True, True),
    "a delegation of it": ([record(NSRecord, "d", owner="x.y", nameserver="ns.example.net.")], True, True),
    "more addresses than fit": (
        [record(ARecord, "a", owner="x.y", ipv4_addresses=[f"10.0.{n // 256}.{n % 256}" for n in range(4000)])],
        False,
        False,
    ),
}


def test_who_keeps_others_out_beside_a_cname_says_whom_and_no_longer_when_they_are_gone():
    alias = record(CNAMERecord, "alias", owner="www", target="a.example.net.", at="2024-01-01T00:00:00Z")
    late = record(ARecord, "late", owner="www", ipv4_addresses=["192.0.2.1"], at="2024-01-02T00:00:00Z")
    desired = compiled(alias)
    assert desired.outcome("cnamerecord/alias").displaced == ()
    desired.put_record(late, "arecord/late")
    assert desired.settle().sources == {"cnamerecord/alias", "arecord/late"}
    assert desired.outcome("cnamerecord/alias").displaced == ("arecord/late",)
    assert desired.outcome("cnamerecord/alias").held is None
    assert desired.outcome("arecord/late").displaced == ()
    desired.drop("arecord/late")
    assert desired.settle().sources == {"cnamerecord/alias", "arecord/late"}
    assert desired.outcome("cnamerecord/alias").displaced == ()


def test_data_that_keeps_a_cname_out_says_so_too():
    first = record(ARecord, "first", owner="www", ipv4_addresses=["192.0.2.1"], at="2024-01-01T00:00:00Z")
    alias = record(CNAMERecord, "alias", owner="www", target="a.example.net.", at="2024-01-02T00:00:00Z")
    desired = compiled(first, alias)
    assert desired.outcome("arecord/first").displaced == ("cnamerecord/alias",)
    desired.drop("arecord/first")
    desired.settle()
    assert desired.outcome("cnamerecord/alias") is not None
    assert desired.outcome("cnamerecord/alias").held is None


@pytest.mark.parametrize("case", ADDRESSED)
@pytest.mark.parametrize("kind", ["ns", "mx"])
@pytest.mark.parametrize("later", [True, False])
def test_servers_inside_the_zone_need_an_address_that_a_server_would_find(case, kind, later):
    beside, fine_ns, fine_mx = ADDRESSED[case]
    pointing = (
        record(NSRecord, "p", owner="@", nameserver="x.y.example.org.")
        if kind == "ns"
        else record(MXRecord, "p", owner="@", priority=1, mail_server="x.y.example.org.")
    )
    desired = compiled(*(() if later else beside), pointing)
    for one in beside if later else ():
        desired.put_record(one, source(one))
        desired.settle()
    assert (desired.outcome(source(pointing)).held is None) == (fine_ns if kind == "ns" else fine_mx)


def test_the_zone_itself_is_not_a_name_server_without_an_address_either():
    server = record(NSRecord, "apex", owner="@", nameserver="example.org.")
    assert reasons(compiled(server)) == {"nsrecord/apex": "MissingAddress"}
    address = record(ARecord, "web", owner="@", ipv4_addresses=["192.0.2.1"])
    assert reasons(compiled(server, address)) == {"nsrecord/apex": None, "arecord/web": None}


def test_a_record_that_left_its_ttl_to_the_zone_reports_a_lower_one_too():
    desired = compiled(
        record(ARecord, "a", owner="www", ttl=60, ipv4_addresses=["192.0.2.1"]),
        record(ARecord, "b", owner="www", ipv4_addresses=["192.0.2.2"]),
        record(ARecord, "c", owner="alone", ipv4_addresses=["192.0.2.2"]),
        ttl=600,
    )
    assert [desired.outcome(f"arecord/{name}").ttl for name in "abc"] == [None, 60, None]


NAMES = ["@", "www", "mx", "sub", "a.sub", "ns.sub", "c.a.sub", "*", "*.y", "x.y"]
TARGETS = ["mx", "ns.sub", "a.sub", "x.y", "q.y"]


@st.composite
def one_of_many(draw):
    """A record of one of eight names, as it may be at one moment."""
    name = f"r{draw(st.integers(0, 7))}"
    at = f"2024-01-{draw(st.integers(1, 3)):02}T00:00:00Z"
    ttl = draw(st.sampled_from([None, 60, 600]))
    kind = draw(st.sampled_from([ARecord, AAAARecord, CNAMERecord, MXRecord, NSRecord, TXTRecord]))
    inside = st.sampled_from([*(f"{one}.example.org." for one in TARGETS), "example.org."])
    target = draw(st.one_of(inside, st.just("a.example.net.")))
    number = draw(st.integers(1, 2))
    spec = {
        ARecord: {"ipv4_addresses": [f"192.0.2.{number}"]},
        AAAARecord: {"ipv6_addresses": [f"2001:db8::{number}"]},
        CNAMERecord: {"target": target},
        MXRecord: {"priority": number, "mail_server": target},
        NSRecord: {"nameserver": target},
        TXTRecord: {"text": [str(number)]},
    }[kind]
    return record(kind, name, owner=draw(st.sampled_from(NAMES)), at=at, ttl=ttl, **spec)


def histories():
    """Batches of steps: a record as it is now, or the name of one that goes."""
    step = st.one_of(one_of_many(), one_of_many(), st.integers(0, 7).map("r{}".format))
    return st.lists(st.lists(step, min_size=1, max_size=4), min_size=1, max_size=12)


@settings(max_examples=3 * settings().max_examples, deadline=None)
@given(histories())
def test_after_every_step_a_draft_is_that_of_everything_at_once_and_says_what_changed(history):
    desired = compiled()
    world = {}
    for batch in history:
        before, told = dict(desired.rrsets), {name: desired.outcome(name) for name in desired.contributions}
        for step in batch:
            name = step if isinstance(step, str) else step.name
            if name in world:
                desired.drop(source(world.pop(name)))
            if not isinstance(step, str):
                world[name] = step
                desired.put_record(step, source(step))
        settled = desired.settle()
        whole = compiled(*world.values())
        assert desired.rrsets == whole.rrsets
        assert desired.held == whole.held
        keys = before.keys() | desired.rrsets.keys()
        changed = {key: before.get(key) for key in keys if before.get(key) != desired.rrsets.get(key)}
        assert settled.before == changed
        now = {name: desired.outcome(name) for name in desired.contributions}
        assert {name for name in told | now if told.get(name) != now.get(name)} <= settled.sources


def lies_above(cut, owner):
    return len(cut) < len(owner) and cut in [owner[n:] for n in starts(owner)]


def starts(owner):
    place = 0
    while place < len(owner):
        place += owner[place] + 1
        yield place


def finds_address(served, owner):
    """Whether a server that has exactly `served` finds an address, or refers to others (RFC 1034, 4.3.2; RFC 4592)."""
    names = {name for name, _ in served}
    names |= {name[n:] for name in names for n in starts(name)} | {b""}
    if any((cut, NS) in served for cut in [owner, *(owner[n:] for n in starts(owner))] if cut):
        return True
    if owner not in names:
        encloser = next(owner[n:] for n in starts(owner) if owner[n:] in names)
        owner = b"\x01*" + encloser
    return (owner, A) in served or (owner, AAAA) in served


@settings(max_examples=4 * settings().max_examples, deadline=None)
@given(st.lists(one_of_many(), max_size=10, unique_by=lambda one: one.name))
def test_a_draft_has_nothing_that_a_server_would_refuse_or_ignore_and_no_record_is_hidden_by_what_is_not_served(
    records,
):
    desired = compiled(*records)
    served = desired.rrsets
    cuts = {owner for owner, kind in served if kind == NS and owner}
    glue = {value[: -len(ORG)] for cut in cuts for value in served[cut, NS].values if value.endswith(ORG)}
    for owner, kind in served:
        assert kind == CNAME or (owner, CNAME) not in served
        assert not any(lies_above(cut, owner) for cut in cuts) or (kind in (A, AAAA) and owner in glue)
    for value in served[b"", NS].values:
        assert not value.endswith(ORG) or finds_address(served, value[: -len(ORG)])
    for (owner, _), row in desired.held.items():
        hidden = any(held.reason == "Occluded" for held in row.values())
        assert not hidden or owner in cuts or any(lies_above(cut, owner) for cut in cuts)


class Counted(CompiledZone):
    """A zone that counts the names it judges."""

    evaluated = 0

    def _evaluate(self, *arguments):
        self.evaluated += 1
        super()._evaluate(*arguments)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (record(ARecord, "h7", ipv4_addresses=["192.0.2.99"]), 1),
        (record(ARecord, "mx", ipv4_addresses=["192.0.2.99"]), 1),
        (record(ARecord, "star", owner="*", ipv4_addresses=["192.0.2.99"]), 1),
        (record(NSRecord, "sub", nameserver="other.example.net."), 1),
        (record(NSRecord, "new", nameserver="ns.example.net."), 1),
        (record(TXTRecord, "new", text=["x"]), 1),
    ],
    ids=["address", "address of mail servers", "wildcard", "delegation", "new delegation", "text"],
)
def test_one_change_evaluates_as_many_names_in_a_large_zone_as_in_a_small_one(change, names):
    counts = []
    for size in (10, 1000):
        desired = Counted(ORG)
        desired.put(ZONE, *OWN)
        everyone = [
            record(ARecord, "mx", ipv4_addresses=["192.0.2.1"]),
            record(ARecord, "star", owner="*", ipv4_addresses=["192.0.2.1"]),
            record(NSRecord, "sub", nameserver="ns.example.net."),
            *(record(ARecord, f"h{n}", ipv4_addresses=["192.0.2.1"]) for n in range(size)),
            *(record(TXTRecord, f"t{n}", owner=f"t{n}.sub", text=["x"]) for n in range(size)),
            *(record(MXRecord, f"m{n}", owner=f"h{n}", priority=1, mail_server="mx.example.org.") for n in range(size)),
        ]
        for member in everyone:
            desired.put_record(member, source(member))
        desired.settle()
        desired.evaluated = 0
        desired.put_record(change, source(change))
        assert desired.settle().before
        counts.append(desired.evaluated)
    assert counts == [names, names]


@given(st.binary(min_size=1, max_size=63))
def test_a_name_of_any_bytes_comes_back_from_its_text(label):
    import dns.name

    wire = bytes([len(label)]) + label.lower() + ORG
    assert dns.name.from_text(text_of(wire)).to_wire().lower() == wire


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (ARecord(spec=ARecord.Spec(name="www")), "spec.ipv4Addresses"),
        (AAAARecord(spec=AAAARecord.Spec(name="www")), "spec.ipv6Addresses"),
        (AAAARecord(spec=AAAARecord.Spec(name="www", ipv6_addresses=["\0"])), "spec.ipv6Addresses"),
        (TXTRecord(spec=TXTRecord.Spec(name="www")), "spec.text"),
        (TXTRecord(spec=TXTRecord.Spec(name="www", values=[["fine"], ["x" * 16000] * 5])), "spec.values[1]"),
        (CNAMERecord(spec=CNAMERecord.Spec(name="www", target=".")), "spec.target"),
        (NSRecord(spec=NSRecord.Spec(name="www", nameserver=".")), "spec.nameserver"),
        (MXRecord(spec=MXRecord.Spec(name="www", priority=5, mail_server=".")), "spec.mailServer"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).KIND.kind,
)
def test_what_rules_of_the_schema_refuse_is_refused_where_a_server_knows_no_rules(record, field):
    with pytest.raises(PlanError) as caught:
        contribution_of(record, "source", name_of("example.org"))
    assert (caught.value.reason, caught.value.field) == ("InvalidValue", field)


@pytest.mark.parametrize("owner", ["*", "*.sub"])
def test_a_wildcard_cannot_be_delegated(owner):
    with pytest.raises(PlanError, match="wildcard") as caught:
        contribution_of(record(NSRecord, "ns", owner=owner, nameserver="ns.example.net."), "source", ORG)
    assert (caught.value.reason, caught.value.field) == ("InvalidName", "spec.name")
