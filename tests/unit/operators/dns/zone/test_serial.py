"""Serial numbers: their order, the next one, and the one for all primaries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.operators.dns.zone.serial import choose_serial, is_later, latest, next_serial

SERIALS = st.integers(1, 2**20)


@given(st.integers(0, 2**32 - 1), st.integers(1, 2**31 - 1))
def test_a_following_serial_is_ahead_and_never_zero(serial, steps):
    later = next_serial(serial, steps)
    assert later
    assert latest(serial, later) == later or (serial + steps) % 2**32 == 0
    assert not is_later(serial, serial)


@pytest.mark.parametrize(
    ("copies", "seen", "current", "serial"),
    [
        ([], [], 0, 0),  # no primary answered: nothing is decided
        ([(5, 0), (5, 0)], [5, 5], 5, 5),  # nothing to write
        ([(5, 1), (5, 1)], [5, 5], 5, 6),  # new data has a new serial
        ([(5, 3), (5, 1)], [5, 5], 5, 8),  # one serial per update
        ([(7, 0), (5, 1)], [7, 5], 7, 7),  # the second joins the first, which has everything
        ([(7, 0), (5, 0)], [7, 5], 7, 7),  # it lacks nothing but the serial
        ([(7, 1), (5, 0)], [7, 5], 7, 8),  # the newest copy is the one that is not complete
        ([(7, 0), (7, 1)], [7, 7], 7, 8),  # the same serial with other data is not the same zone
        ([(5, 1)], [5, 9], 9, 10),  # a follower, or an earlier process, had a later one
        ([(5, 0)], [5, 9], 9, 9),  # only the serial is behind what was published
        ([(5, 0)], [5, 9], 5, 10),  # another client wrote a later one: it is overtaken
        ([(2**32 - 1, 1)], [2**32 - 1], 2**32 - 1, 1),  # around the end, and never 0
    ],
)
def test_all_primaries_get_one_serial(copies, seen, current, serial):
    assert choose_serial(copies, seen, current) == serial


@given(st.lists(st.tuples(SERIALS, st.integers(0, 3)), max_size=4), st.lists(SERIALS, max_size=3))
def test_no_serial_is_earlier_than_one_that_was_seen_and_new_data_is_later_than_every_copy(copies, others):
    seen = [*(serial for serial, _ in copies), *others]
    chosen = choose_serial(copies, seen, max(others, default=0))
    assert all(serial == chosen or is_later(chosen, serial) for serial in seen)
    for serial, updates in copies:
        assert not updates or is_later(chosen, serial)


def test_an_absent_copy_joins_one_that_has_everything():
    assert choose_serial([(7, 0), (None, 1)], [7], 7) == 7


@pytest.mark.parametrize(
    ("serial", "other", "later"),
    [
        (2, 1, True),
        (1, 2, False),
        (1, 2**32 - 1, True),  # around the end of 32 bits, as RFC 1982 says
        (2**32 - 1, 1, False),
        (2**31, 0, True),  # exactly half way apart, which RFC 1982 leaves open: the larger is later
        (0, 2**31, False),
    ],
)
def test_serials_are_compared_around_the_end_of_32_bits(serial, other, later):
    assert is_later(serial, other) is later
