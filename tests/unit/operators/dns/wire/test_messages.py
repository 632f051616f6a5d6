"""Updates: what fits into an answer fits into an update, and says what it should whatever it is made of."""

from __future__ import annotations

from typing import Any

import dns.message
import dns.name
import dns.rdataclass
import dns.rdatatype
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.clock import SYSTEM_CLOCK
from steersman.operators.dns.wire.client import DnsClient, DnsError
from steersman.operators.dns.wire.messages import RRsetChange, update
from steersman.operators.dns.wire.tsig import key_from
from steersman.operators.dns.zone.conflicts import LARGEST
from steersman.operators.dns.zone.names import name_of, text_of
from steersman.operators.dns.zone.rdata import NS, A, RRset, Soa, wire_size

LABEL = bytes([60]) + b"a" * 60
ZONE = name_of(".".join(["b" * 50] * 2))
SOA = Soa(name_of("c" * 60), name_of("d" * 60), 7, 1, 2, 3, 4).value()
SIGNATURE = 1000  # bytes that a signature has at most


def addresses(first, count):
    return RRset(60, frozenset((first + n).to_bytes(4) for n in range(count)))


def servers(word, count):
    return RRset(60, frozenset(name_of(f"{word}{n:04}.example.net") for n in range(count)))


def most(key, make):
    """As many values as an RRset may have."""
    count, limit = 1, LARGEST if key[0] else LARGEST // 2
    while wire_size(key, make(2 * count).values, ZONE) <= limit:
        count *= 2
    step = count
    while step := step // 2:
        if wire_size(key, make(count + step).values, ZONE) <= limit:
            count += step
    return make(count)


@pytest.mark.parametrize("owner", [b"\x03www", LABEL, LABEL * 2])
def test_the_largest_rrset_there_may_be_is_replaced_in_one_message(owner):
    key = (owner, A)
    have, want = most(key, lambda count: addresses(0, count)), most(key, lambda count: addresses(2**31, count))
    for change in (RRsetChange(key, None, want), RRsetChange(key, have, want), RRsetChange(key, have, None)):
        assert len(update(1, ZONE, SOA, SOA, 60, [change])) + SIGNATURE < 2**16


def test_so_are_the_name_servers_of_a_zone_which_must_be_named_one_by_one():
    key = (b"", NS)
    change = RRsetChange(key, most(key, lambda n: servers("old", n)), most(key, lambda n: servers("new", n)))
    assert len(update(1, ZONE, SOA, SOA, 60, [change])) + SIGNATURE < 2**16


RRSETS = st.none() | st.builds(
    RRset, st.sampled_from([60, 600]), st.frozensets(st.binary(min_size=4, max_size=4), min_size=1, max_size=6)
)
KEYS = st.sampled_from([(b"\x03www", A), (LABEL, A), (b"", A), (b"\x01a\x03www", A)])


@settings(deadline=None)
@given(st.dictionaries(KEYS, st.tuples(RRSETS, RRSETS), min_size=1))
def test_a_server_that_does_what_an_update_says_has_what_is_wanted(world):
    changes = [RRsetChange(key, have, want) for key, (have, want) in world.items()]
    message: Any = dns.message.from_wire(update(1, ZONE, SOA, SOA, 60, changes))
    have = {key: dict.fromkeys(rrset.values, rrset.ttl) for key, (rrset, _) in world.items() if rrset is not None}
    for row in message.update:
        key = (owner_of(row.name), row.rdtype)
        if row.rdtype == dns.rdatatype.SOA:
            continue
        if row.deleting == dns.rdataclass.ANY:
            have.pop(key, None)
        elif row.deleting == dns.rdataclass.NONE:
            for rdata in row:
                have[key].pop(rdata.to_wire())
        else:
            for rdata in row:  # a TTL is one of the whole RRset (RFC 2136, 3.4.2.2)
                have[key] = dict.fromkeys({*have.get(key, ()), rdata.to_wire()}, row.ttl)
    assert {key: rows for key, rows in have.items() if rows} == {
        key: dict.fromkeys(want.values, want.ttl) for key, (_, want) in world.items() if want is not None
    }


def owner_of(name):
    relative = name.relativize(dns.name.from_text(text_of(ZONE)))
    return b"".join(bytes([len(label)]) + label for label in relative.labels)


async def test_a_message_that_is_too_long_is_an_error_that_asking_again_does_not_help(named):
    key = key_from({"key-name": b"operator", "secret": b"c2VjcmV0"})
    async with named("ns1") as server:
        client = DnsClient(server.address, server.dns_port, clock=SYSTEM_CLOCK, timeout=60)
        change = RRsetChange((b"\x03www", A), None, addresses(0, 6000))
        with pytest.raises(DnsError, match="exceeds the limit") as found:
            await client.update(ZONE, SOA, SOA, 60, [change], key)
        client.close()
    assert not found.value.retryable
