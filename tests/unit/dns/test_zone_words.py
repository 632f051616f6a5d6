"""When a zone writes its status: not before the answers of others, unless somebody waits for it."""

from __future__ import annotations

import msgspec
import pytest

from steersman.operators.dns.book import ZoneBook
from steersman.operators.dns.compiler import Draft
from steersman.operators.dns.publisher import Report
from steersman.operators.dns.words import LONGEST, only_words_left, puts_off
from steersman.operators.dns.zonekinds import DNSZone, InstanceState
from steersman.operators.dns.zoneplan import zone_name
from steersman.operators.dns.zonestatus import Summary


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


def the_book(zone):
    book = ZoneBook(zone.ref)
    book.marks, book.draft = set(), Draft(zone_name(zone))
    return book


def well(**fields):
    empty = {"drift": {}, "errors": {}, "behind": [], "foreign": {}, "adopted": {}}
    return Summary(report=Report(serial=5, written=1, **empty | fields))


def test_a_zone_that_is_well_as_it_was_speaks_after_the_answers_of_others():
    zone = the_zone()
    book = the_book(zone)
    assert puts_off(zone, book, well(), busy=True, now=1.0)
    assert only_words_left(zone, book, busy=True, now=1.1)


def test_it_speaks_at_once_when_nobody_else_is_published():
    zone = the_zone()
    assert not puts_off(zone, the_book(zone), well(), busy=False, now=1.0)


def test_a_look_that_published_nothing_puts_nothing_off():
    zone, summary = the_zone(), well()
    summary.report.written = 0
    book = the_book(zone)
    assert not puts_off(zone, book, summary, busy=True, now=1.0)
    assert puts_off(zone, book, well(), busy=True, now=1.0)
    assert puts_off(zone, book, summary, busy=True, now=1.1)  # what was put off stays so


def test_it_does_not_wait_for_others_for_ever():
    zone = the_zone()
    book = the_book(zone)
    assert puts_off(zone, book, well(), busy=True, now=1.0)
    assert puts_off(zone, book, well(), busy=True, now=1.0 + LONGEST / 2)  # changed again meanwhile
    assert not only_words_left(zone, book, busy=True, now=1.0 + LONGEST)
    assert not puts_off(zone, book, well(), busy=True, now=1.0 + LONGEST)


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
def test_trouble_is_told_at_once(summary):
    zone = the_zone()
    assert not puts_off(zone, the_book(zone), summary, busy=True, now=1.0)


def test_an_instance_that_should_no_longer_have_it_is_told_at_once():
    zone, summary = the_zone(), well()
    summary.leaving = [(InstanceState(api_version="", kind="", name="ns1", namespace="shop"), "away")]
    assert not puts_off(zone, the_book(zone), summary, busy=True, now=1.0)


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
def test_what_somebody_waits_for_is_told_at_once(zone):
    assert not puts_off(zone, the_book(zone), well(), busy=True, now=1.0)


def test_a_change_is_published_at_once_although_words_are_owed():
    zone = the_zone()
    book = the_book(zone)
    assert puts_off(zone, book, well(), busy=True, now=1.0)
    assert not only_words_left(the_zone(revision="8"), book, busy=True, now=1.1)
    book.mark(object, "www")
    assert not only_words_left(zone, book, busy=True, now=1.1)
    book.marks = None
    assert not only_words_left(zone, book, busy=True, now=1.1)
