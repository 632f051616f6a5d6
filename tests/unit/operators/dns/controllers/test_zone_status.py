"""When a zone writes its status: after the answers of other zones, unless a user or a controller waits for it."""

from __future__ import annotations

import msgspec
import pytest

from steersman.operators.dns.api.zone import DnssecStatus, DNSZone, InstanceState
from steersman.operators.dns.controllers.zone_status import (
    LONGEST_DEFERRAL,
    Summary,
    defer_status,
    is_status_deferred,
    next_dnssec,
)
from steersman.operators.dns.publish.copy_inspector import PublishReport
from steersman.operators.dns.publish.zone_state import ZoneState
from steersman.operators.dns.zone.compiler import CompiledZone
from steersman.operators.dns.zone.soa import zone_name


def the_zone(ready="True", revision="7", serial=4, **spec):
    timers = {"refresh": 1, "retry": 1, "expire": 1, "negativeTtl": 1}
    row = {"type": "Ready", "status": ready, "reason": "R", "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z"}
    body = {
        "apiVersion": "bindy.firestoned.io/v1beta1",
        "kind": "DNSZone",
        "metadata": {"name": "org", "namespace": "shop", "uid": "z", "resourceVersion": revision},
        "spec": {
            "zoneName": "example.org",
            "soaRecord": {"primaryNs": "ns1.example.net.", "adminEmail": "h.example.org.", **timers},
            **spec,
        },
        "status": {"serial": serial, "conditions": [row]},
    }
    return msgspec.convert(body, DNSZone)


def the_state(zone):
    state = ZoneState(zone.ref)
    state.loader.changed_records, state.loader.desired = set(), CompiledZone(zone_name(zone))
    return state


def well(**fields):
    empty = {"drift": {}, "errors": {}, "behind": [], "foreign": {}, "adopted": {}}
    return Summary(report=PublishReport(serial=5, written=1, **empty | fields))


def test_a_zone_that_is_well_as_it_was_speaks_after_the_answers_of_others():
    zone = the_zone()
    state = the_state(zone)
    assert defer_status(zone, state, well(), busy=True, now=1.0)
    assert is_status_deferred(zone, state, busy=True, now=1.1)


def test_it_is_announced_at_once_when_no_other_address_is_published():
    zone = the_zone()
    assert not defer_status(zone, the_state(zone), well(), busy=False, now=1.0)


def test_a_reconcile_that_published_nothing_puts_nothing_off():
    zone, summary = the_zone(), well()
    summary.report.written = 0
    state = the_state(zone)
    assert not defer_status(zone, state, summary, busy=True, now=1.0)
    assert defer_status(zone, state, well(), busy=True, now=1.0)
    assert defer_status(zone, state, summary, busy=True, now=1.1)  # what was put off stays so


def test_it_does_not_wait_for_others_for_ever():
    zone = the_zone()
    state = the_state(zone)
    assert defer_status(zone, state, well(), busy=True, now=1.0)
    assert defer_status(zone, state, well(), busy=True, now=1.0 + LONGEST_DEFERRAL / 2)  # changed again meanwhile
    assert not is_status_deferred(zone, state, busy=True, now=1.0 + LONGEST_DEFERRAL)
    assert not defer_status(zone, state, well(), busy=True, now=1.0 + LONGEST_DEFERRAL)


@pytest.mark.parametrize(
    "summary",
    [
        well(errors={"ns1": ("PrimaryFailed", "away")}),
        well(drift={"ns1": ["www"]}),
        well(adopted={"ns1": ["www"]}),
        well(foreign={"ns1": ["www"]}),
        well(behind=["ns2"]),
        Summary(reason="InvalidSOA", message="no"),
        Summary(),
    ],
    ids=["error", "drift", "adopted", "foreign", "behind", "invalid", "not published"],
)
def test_issues_are_reported_at_once(summary):
    zone = the_zone()
    assert not defer_status(zone, the_state(zone), summary, busy=True, now=1.0)


def test_an_instance_that_should_no_longer_have_it_is_reported_at_once():
    zone, summary = the_zone(), well()
    summary.leaving = [(InstanceState(api_version="", kind="", name="ns1", namespace="shop"), "away")]
    assert not defer_status(zone, the_state(zone), summary, busy=True, now=1.0)


@pytest.mark.parametrize(
    "zone",
    [
        the_zone(serial=0),
        the_zone(ready="False"),
        the_zone(catalog=True),
        the_zone(dnssecPolicy="signed"),
        the_zone(zoneName="2.0.192.in-addr.arpa"),
    ],
    ids=["first serial", "end of trouble", "catalog", "signed", "reverse"],
)
def test_what_a_caller_waits_for_is_reported_at_once(zone):
    assert not defer_status(zone, the_state(zone), well(), busy=True, now=1.0)


def test_a_change_is_published_at_once_although_notifications_are_pending():
    zone = the_zone()
    state = the_state(zone)
    assert defer_status(zone, state, well(), busy=True, now=1.0)
    assert not is_status_deferred(the_zone(revision="8"), state, busy=True, now=1.1)
    state.loader.mark_record(object, "www")
    assert not is_status_deferred(zone, state, busy=True, now=1.1)
    state.loader.mark_all_records()
    assert not is_status_deferred(zone, state, busy=True, now=1.1)


@pytest.mark.parametrize(
    ("known", "found", "is_pending", "written", "is_changed"),
    [
        (None, ["a"], False, ["a"], False),
        (["a"], ["a", "b"], False, ["a", "b"], False),
        (["a"], ["b"], False, ["b"], True),
        (["a"], ["b"], True, None, False),
        (["a"], [], False, ["a"], False),
    ],
    ids=["first keys", "a key more", "other keys", "other keys that are not ours yet", "no keys yet"],
)
def test_a_change_of_keys_is_reported_once_and_a_server_without_keys_is_not_a_change(
    known, found, is_pending, written, is_changed
):
    before = None if known is None else DnssecStatus(ds_records=known)
    after = None if written is None else DnssecStatus(ds_records=written)
    assert next_dnssec(before, DnssecStatus(ds_records=found), is_pending=is_pending) == (after, is_changed)


def test_a_server_without_keys_shows_as_not_signed_and_the_parents_records_are_remembered():
    known = DnssecStatus(signed=True, ds_records=["a"], key_tag=7)
    status, is_changed = next_dnssec(known, DnssecStatus(signed=False, ds_records=[]), is_pending=False)
    assert (status.signed, status.ds_records, status.key_tag, is_changed) == (False, ["a"], 7, False)
