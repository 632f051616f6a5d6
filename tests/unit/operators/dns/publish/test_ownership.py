"""Data of others: what no resource says, what counts as an empty zone, and who has no place beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.operators.dns.api.zone import InstanceState
from steersman.operators.dns.publish.ownership import (
    blocked_keys,
    is_adopted,
    is_bare,
    keeps_ttl,
    kept_keys,
    unmanaged_values,
)
from steersman.operators.dns.zone.names import name_of
from steersman.operators.dns.zone.rdata import AAAA, CNAME, NS, TXT, A, RRset
from steersman.operators.dns.zone.soa import is_ignored

ORG = name_of("example.org")
WWW, NS1 = b"\x03www", b"\x03ns1"
SERVERS = RRset(60, frozenset({name_of("ns1.example.org"), name_of("ns.example.net")}))


def rrset(*values, ttl=60):
    return RRset(ttl, frozenset(value.encode() for value in values))


@pytest.mark.parametrize(
    ("have", "wanted", "spoken", "left"),
    [
        (rrset("a"), None, (), {b"a"}),
        (rrset("a"), rrset("a", ttl=9), (), set()),
        (rrset("a"), rrset("a", "b"), (), set()),
        (rrset("a", "b"), rrset("a"), (), {b"b"}),
        (rrset("a", "b"), rrset("a"), {b"b"}, set()),
        (rrset("a", "b"), None, {b"b"}, {b"a"}),
        (None, rrset("a"), (), set()),
    ],
)
def test_what_a_server_has_and_no_resource_declares_or_declared_is_foreign(have, wanted, spoken, left):
    key = (WWW, TXT)
    found = unmanaged_values({key: have}, {} if wanted is None else {key: wanted}, {key: frozenset(spoken)})
    assert found == ({key: frozenset(left)} if left else {})


@pytest.mark.parametrize(
    ("have", "want", "kept"),
    [
        (rrset("a", ttl=300), rrset("a"), True),
        (rrset("a", ttl=300), rrset("a", "b"), True),  # which is added with the TTL that is there
        (rrset("a"), rrset("a", "b"), False),
        (rrset("a", ttl=300), rrset("b"), False),
    ],
)
def test_an_rrset_that_agrees_with_what_is_wanted_keeps_its_ttl(have, want, kept):
    assert keeps_ttl(have, want) == kept


def test_what_named_makes_itself_is_not_foreign_data():
    assert unmanaged_values({(b"", 48): rrset("key"), (WWW, 46): rrset("signature")}, {}) == {}


@pytest.mark.parametrize(
    ("keys", "bare"),
    [
        ([], True),
        ([(b"", NS)], True),
        ([(b"", NS), (NS1, A), (NS1, AAAA)], True),
        ([(NS1, TXT)], False),
        ([(WWW, A)], False),
        ([(b"", A)], False),
        ([(WWW, NS)], False),
    ],
)
def test_name_servers_and_their_addresses_are_not_foreign_data(keys, bare):
    assert is_bare(keys, SERVERS, ORG) == bare


KEYS = st.tuples(st.sampled_from([b"", WWW, NS1]), st.sampled_from([A, TXT, CNAME]))


@given(st.frozensets(KEYS), st.frozensets(KEYS))
def test_exactly_those_are_shut_out_that_a_server_would_not_have_beside_foreign_data(wanted, theirs):
    shut = blocked_keys(wanted, {key: rrset("x") for key in wanted}, theirs)
    for owner, kind in wanted:
        there = {one for name, one in theirs if name == owner}
        fits = not there or (kind not in there and CNAME not in there and kind != CNAME)
        assert ((owner, kind) in shut) == (not fits)


@pytest.mark.parametrize(
    ("pattern", "left"),
    [("www", True), ("w*", True), ("www.example.org", True), ("*.example.org", True), ("ww", False), ("x.*", False)],
)
def test_a_pattern_means_the_whole_name_or_its_first_label(pattern, left):
    assert is_ignored((WWW, A), ORG, ["other", pattern]) == left


@pytest.mark.parametrize(
    ("row", "ours"),
    [
        (None, False),
        (InstanceState(name="a"), False),
        (InstanceState(name="a", serial=7), True),  # by an operator that knew no other way
        (InstanceState(name="a", serial=7, adopted=False), False),
        (InstanceState(name="a", serial=0, adopted=True), True),
    ],
)
def test_a_copy_that_was_ours_stays_ours(row, ours):
    assert is_adopted(row) == ours


def test_a_plan_keeps_what_others_have_what_agrees_and_what_has_no_place_and_nothing_in_a_copy_that_is_ours():
    apex, text, web, fresh = (b"", NS), (WWW, TXT), (WWW, A), (b"\x05fresh", A)
    wanted = {apex: SERVERS, text: rrset("ours"), web: rrset("a"), fresh: rrset("b")}
    diff = {text: rrset("theirs"), web: rrset("a", ttl=9), fresh: None}
    assert kept_keys(diff, wanted, ORG, declared={}) == {text, web}
    assert kept_keys(diff, wanted, ORG, declared={text: frozenset({b"theirs"})}) is None
    assert kept_keys(diff, wanted, ORG, owned=[text], declared={}) is None
