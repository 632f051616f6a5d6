"""A zone for a sidecar that does not take all of it at once: nothing is lost, and serials only rise."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from steersman.operators.dns.bind.http_driver import LARGEST, first_part, remaining_updates
from steersman.operators.dns.sidecar.zone_data import key_of, value_of
from steersman.operators.dns.zone.names import name_of
from steersman.operators.dns.zone.rdata import NS, RRset, Soa
from steersman.operators.dns.zone.serial import is_later

ORG = name_of("example.org")
SOA = Soa(name_of("ns1.example.org"), name_of("h.example.org"), 7, 3600, 600, 86400, 60)


def rrset(name, kind, text):
    key = key_of(name, kind, ORG)
    return key, RRset(60, frozenset({value_of(key[1], text, None, ORG)}))


LEAST = dict([rrset("@", "NS", "ns1.example.org."), rrset("ns1", "A", "192.0.2.1")])
PLAIN = dict(
    [rrset("_s._tcp", "SRV", "1 2 3 www.example.org."), rrset("_dmarc", "TXT", '"; $ ("'), rrset("*", "A", "192.0.2.1")]
)
ODD = dict(
    [
        rrset("under_score", "A", "192.0.2.1"),
        rrset("under_score", "MX", "1 x.example.net."),
        rrset("es\\.caped", "TXT", '"x"'),
        rrset("m", "MX", "1 under_score.example.net."),
        rrset("_t._tcp", "SRV", "1 2 3 sp\\032ace.example.net."),
    ]
)  # fmt: skip


def test_what_is_plain_comes_first_and_names_that_are_not_are_others_at_first():
    soa, first = first_part(ORG, SOA, LEAST | PLAIN | ODD)
    assert (soa, first) == (SOA, LEAST | PLAIN)
    odd = Soa(name_of("n\\.s.example.org"), name_of("h\\.m.example.org"), 7, 3600, 600, 86400, 60)
    soa, _ = first_part(ORG, odd, LEAST)
    assert (soa.primary, soa.mailbox, soa.serial) == (ORG, ORG, 7)


def test_of_a_zone_that_is_too_large_its_name_servers_come_first():
    many = {(b"\x05" + b"%05d" % number, 1): RRset(60, frozenset({b"\n\0\0\1"})) for number in range(LARGEST + 1)}
    _, first = first_part(ORG, SOA, LEAST | many)
    assert first == LEAST
    assert (b"", NS) in first


@given(st.integers(1, 2**32 - 1), st.integers(0, 9000))
def test_updates_bring_the_rest_and_serials_rise_to_the_one_it_should_have(serial, count):
    soa = Soa(SOA.primary, SOA.mailbox, serial, 3600, 600, 86400, 60)
    rest = {(b"\x04" + b"%04d" % number, 1): RRset(60, frozenset({b"\n\0\0\1"})) for number in range(count)}
    begin, updates = remaining_updates(soa, LEAST, LEAST | rest)
    serials = [begin.serial, *(after.serial for after, _ in updates)]
    assert serials[-1] == serial
    assert 0 not in serials
    assert all(is_later(later, before) for before, later in pairwise(serials))
    assert {change.key: change.want for _, changes in updates for change in changes} == rest
