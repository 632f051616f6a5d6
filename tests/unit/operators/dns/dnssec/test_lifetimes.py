"""Lifetimes of signing keys: those that named starts with, and no others."""

import pytest

from steersman.errors import FormatError
from steersman.operators.dns.dnssec.keys import SHORTEST, seconds_of

DAY = 86_400
GOOD = [
    ("unlimited", 0),
    ("0", 0),
    ("0s", 0),
    ("P0D", 0),
    ("2592000", 30 * DAY),
    ("30D", 30 * DAY),
    ("4w2d", 30 * DAY),
    ("p30d", 30 * DAY),
    ("P30W", 210 * DAY),
    ("P1M", 31 * DAY),
    ("P1YT12H", 365 * DAY + 12 * 3600),
    ("11d", 11 * DAY),
    ("999999999", 999_999_999),
]
BAD = [
    ("banana", "is not a lifetime"),
    ("UNLIMITED", "is not a lifetime"),
    ("", "is not a lifetime"),
    ("P", "is not a lifetime"),
    ("PT", "is not a lifetime"),
    ("1y", "is not a lifetime"),
    ("-1", "is not a lifetime"),
    ("P1Y2M3W", "is not a lifetime"),
    ("30d; };", "is not a lifetime"),
    ("30d\n", "is not a lifetime"),
    ("1h", "try 11d"),
    ("PT1H", "try 11d"),
    (f"{SHORTEST['zsk'] - 1}", "try 11d"),
    ("99999999w", "exceeds the limit of named"),
]


@pytest.mark.parametrize(("text", "seconds"), GOOD)
def test_a_lifetime_is_what_named_makes_of_it(text, seconds):
    assert seconds_of(text, "zsk") == seconds


@pytest.mark.parametrize(("text", "why"), BAD)
def test_what_is_not_a_lifetime_is_refused_with_a_way_out(text, why):
    with pytest.raises(FormatError, match=why):
        seconds_of(text, "zsk")
