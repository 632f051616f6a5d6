"""The diff step: what of a difference is written."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from steersman.kube.api.gvk import NamespacedName
from steersman.operators.dns.publish.diff import (
    change_of,
    due_diff,
    ignored_keys,
    needs_write,
    unexpected_diff,
)
from steersman.operators.dns.publish.zone_state import ServerCopy, UnmanagedData, ZoneState
from steersman.operators.dns.zone.compiler import CompiledZone
from steersman.operators.dns.zone.conflicts import ZONE
from steersman.operators.dns.zone.names import name_of
from steersman.operators.dns.zone.rdata import CNAME, NS, TXT, A, Contribution, RRset, Soa

ORG = name_of("example.org")
START = Soa(name_of("ns.example.net"), name_of("h.example.org"), 5, 1, 2, 3, 4)
WWW, MAIL = (b"\x03www", A), (b"\x04mail", A)
ONE, TWO = RRset(300, frozenset({b"\x01"})), RRset(300, frozenset({b"\x02"}))


def state_of(desired):
    state = ZoneState(NamespacedName("z", "shop"))
    state.loader.desired = CompiledZone(ORG)
    for number, (key, rrset) in enumerate(desired.items()):
        state.desired.put(f"arecord/{number}", Contribution(f"arecord/{number}", key, rrset.ttl, rrset.values))
    state.desired.put(ZONE, Contribution(ZONE, (b"", NS), 300, frozenset({name_of("ns.example.net")})))
    state.desired.settle()
    return state


def copy_at(serial, **fields):
    return ServerCopy(known=True, managed=True, soa=replace(START, serial=serial).value(), **fields)


DIFF = {WWW: TWO, MAIL: None}


@pytest.mark.parametrize(
    ("fields", "due"),
    [
        ({}, {WWW, MAIL}),
        ({"drift": {WWW: TWO}}, {MAIL}),  # the drift mode leaves it alone
        ({"refused": {WWW: ONE}}, {MAIL}),  # the server refused just that
        ({"refused": {WWW: TWO}}, {WWW, MAIL}),  # it refused something else
        ({"unmanaged": UnmanagedData(values={WWW: TWO.values})}, {MAIL}),
        ({"unmanaged": UnmanagedData(blocked=frozenset({MAIL}))}, {WWW}),
    ],
    ids=["everything", "drift", "refused", "refused before", "foreign", "blocked"],
)
def test_what_is_written(fields, due):
    copy = copy_at(5, diff=dict(DIFF), **fields)
    state = state_of({WWW: ONE, MAIL: ONE})
    assert due_diff(state, copy).keys() == due
    assert needs_write(state, copy, START) is bool(due)


def test_drift_that_keeps_desired_data_out_is_written_whatever_the_mode():
    alias = (WWW[0], CNAME)
    copy = copy_at(5, diff={alias: ONE, WWW: None}, drift={alias: ONE})
    assert due_diff(state_of({WWW: ONE}), copy).keys() == {alias, WWW}


@pytest.mark.parametrize(
    ("copy", "written"),
    [
        (copy_at(5), False),
        (copy_at(9), False),  # a serial alone is not data
        (ServerCopy(known=True, absent=True), True),
        (replace(copy_at(5), soa=replace(START, refresh=99).value()), True),
        (replace(copy_at(5), soa=replace(START, refresh=99).value(), managed=False), False),  # its timers are not ours
    ],
)
def test_a_copy_without_a_difference_is_written_for_its_existence_and_its_timers(copy, written):
    assert needs_write(state_of({}), copy, START) is written


def test_a_foreign_rrset_that_gets_further_values_keeps_its_ttl_until_the_copy_is_managed():
    both = RRset(300, ONE.values | TWO.values)
    state, theirs = state_of({WWW: both}), RRset(60, ONE.values)
    copy = replace(copy_at(5), managed=False, diff={WWW: theirs})
    assert change_of(state, copy, WWW).want == RRset(60, both.values)
    copy.unmanaged.exact.add(WWW)  # as it was, it was ours
    assert change_of(state, copy, WWW).want == both
    copy.unmanaged.exact.clear()
    copy.managed = True
    assert change_of(state, copy, WWW).want == both


def test_names_that_a_zone_leaves_to_others_are_ignored_unless_a_resource_declares_them():
    text = (b"\x0f_acme-challenge", TXT)
    diff = {WWW: ONE, text: ONE, MAIL: None}
    assert ignored_keys(diff, {WWW}, ORG, ["www", "_acme*", "mail"]) == {text}
    assert ignored_keys(diff, {WWW}, ORG, []) == frozenset()


def test_a_difference_that_was_not_there_before_is_unexpected_and_at_first_only_what_no_resource_declares():
    diff = {WWW: ONE, MAIL: TWO}
    assert unexpected_diff(diff, {WWW}, {WWW, MAIL}, {}).keys() == {MAIL}
    assert unexpected_diff(diff, None, {WWW}, {}).keys() == {MAIL}
    assert unexpected_diff(diff, None, {WWW}, {MAIL}).keys() == set()
