"""Zone files and configuration: what goes in comes out, and nothing else."""

from __future__ import annotations

import dns.rdataclass
import dns.zone
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import FormatError
from steersman.operators.dns.bind.statements import quote, read_statements, statement_text
from steersman.operators.dns.bind.zone_file import file_name, zone_file
from steersman.operators.dns.bind.zone_statements import same_config
from steersman.operators.dns.zone.names import name_of, owner_of, text_of
from steersman.operators.dns.zone.rdata import CAA, NS, TXT, A, RRset, Soa

ORG = name_of("example.org")
START = Soa(name_of("ns1.example.org"), name_of("h.example.org"), 7, 3600, 600, 86400, 60)


@given(st.lists(st.binary(max_size=255), min_size=1, max_size=3), st.binary(max_size=80))
def test_no_text_ends_a_string_in_a_zone_file(parts, value):
    txt = b"".join(bytes([len(part)]) + part for part in parts)
    caa = b"\0\x05issue" + value
    rrsets = {
        (b"", NS): RRset(60, frozenset({name_of("ns1.example.org")})),
        (owner_of("ns1", ORG), A): RRset(60, frozenset({bytes(4)})),
        (owner_of("t", ORG), TXT): RRset(60, frozenset({txt})),
        (owner_of("c", ORG), CAA): RRset(60, frozenset({caa})),
    }
    zone = dns.zone.from_text(zone_file(ORG, START, rrsets, 60), "example.org.")
    found = {(name.to_text(), rdata.to_wire()) for name, _, rdata in zone.iterate_rdatas() if rdata.rdtype in (16, 257)}
    assert found == {("t", txt), ("c", caa)}
    assert len(zone.nodes) == 4


@pytest.mark.parametrize("text", ['a"b', "a\\b", "a\nb", "a\0b"])
def test_a_string_that_could_end_early_is_refused(text):
    with pytest.raises(FormatError):
        quote(text)


def test_statements_are_equal_in_whatever_order_and_form_they_are_written():
    ours = (("type", "primary"), ("allow-transfer", (("key", "t"), ("10.0.0.1",))), ("forwarders", ()))
    printed = 'forwarders { };\n type primary; allow-transfer { key "t"; 10.0.0.1/32; };'
    assert same_config(read_statements(printed), ours)
    assert read_statements(statement_text(ours)) == ours
    assert not same_config(ours, (*ours, ("notify", "no")))


def test_two_zones_never_share_a_file():
    long = ".".join(["x" * 60] * 4)
    names = [long, f"y{long[1:]}", f"{long[:-1]}y"]
    names += ["a.b", "a-b", "0/25.2.0.192.in-addr.arpa", "0-25.2.0.192.in-addr.arpa", "0%2f25.org", "_tcp.test"]
    assert len({file_name(name_of(name)) for name in names}) == len(names)
    assert all("/" not in file_name(name_of(name)) for name in names)
    assert all(len(file_name(name_of(name))) < 230 for name in names)


def test_names_that_no_server_takes_are_refused_with_their_text():
    with pytest.raises(FormatError, match="more than 63 bytes"):
        name_of("a" * 64 + ".org.")
    with pytest.raises(FormatError, match="limit of a name"):
        name_of(".".join(["a" * 60] * 5))
    with pytest.raises(FormatError, match="xn--"):
        name_of("bücher.example.")
    assert text_of(name_of("a\\.b.example.org.")) == "a\\.b.example.org."


def test_a_string_without_an_end_is_read_once_and_not_again_from_every_quote_in_it():
    assert read_statements('a "' + '\\"' * 300_000 + ";") == ()  # takes hours when each quote is tried again
    assert read_statements('a "b\\') == read_statements('a "b') == ()
    assert read_statements('a "b";') == (("a", "b"),)
