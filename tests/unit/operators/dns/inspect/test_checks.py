"""Delegations and signatures: what `dns check` says about them."""

from __future__ import annotations

import pytest

from steersman.operators.dns.inspect.checks import delegation_problems, parent_of, signature_problems
from steersman.operators.dns.zone.compiler import CompiledZone
from steersman.operators.dns.zone.conflicts import ZONE
from steersman.operators.dns.zone.names import name_of, owner_of
from steersman.operators.dns.zone.rdata import NS, A, Contribution

ORG, SUB = name_of("example.org"), name_of("sub.example.org")
HOST = name_of("ns.sub.example.org")
DAY = 86400.0
NOW = 1_800_000_000.0


def draft(zone, *parts):
    made = CompiledZone(zone)
    made.put(ZONE, *(Contribution(ZONE, key, None, frozenset(values)) for key, values in parts))
    made.settle()
    return made


CHILD = draft(SUB, ((b"", NS), {HOST}), ((owner_of("ns", SUB), A), {bytes(4)}))
CUT, GLUE = (owner_of("sub", ORG), NS), (owner_of("ns.sub", ORG), A)


@pytest.mark.parametrize(
    ("parent", "words"),
    [
        ([(CUT, {HOST}), (GLUE, {bytes(4)})], []),
        ([], ["has no delegation for it"]),
        ([(CUT, {HOST})], ["has no glue address for ns.sub.example.org."]),
        (
            [(CUT, {name_of("ns.example.net")})],
            ["delegates to ns.example.net., the zone itself lists ns.sub.example.org."],
        ),
    ],
)
def test_a_parent_says_what_the_zone_says_and_knows_the_addresses_that_no_other_server_can(parent, words):
    found = delegation_problems(CHILD, draft(ORG, *parent))
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))


def test_the_parent_of_a_zone_is_the_nearest_above_it():
    zones = [ORG, SUB, name_of("org"), name_of("b.sub.example.org"), name_of("xsub.example.org")]
    assert parent_of(SUB, zones) == ORG
    assert parent_of(name_of("org"), zones) is None


@pytest.mark.parametrize(
    ("ends", "words"), [(None, "no signatures"), (10 * DAY, ""), (DAY, "not renewed"), (-1.0, "expired at")]
)
def test_signatures_that_are_missing_old_or_about_to_end_are_found(ends, words):
    rows = [] if ends is None else [bytes(8) + int(NOW + ends).to_bytes(4) + bytes(8), *_long()]
    found = signature_problems(rows, NOW)
    assert bool(found) == bool(words)
    assert words in "".join(found)


def _long():
    """One that holds for long."""
    return [bytes(8) + int(NOW + 12 * DAY).to_bytes(4) + bytes(8)]


def test_times_of_signatures_go_on_after_2106():
    after = float(2**32 + 1000)
    (text,) = signature_problems([bytes(8) + (2000).to_bytes(4) + bytes(8)], after)
    assert "not renewed" in text
