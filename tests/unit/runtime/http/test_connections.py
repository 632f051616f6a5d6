"""Which connections of a listener go when there are too many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.runtime.http.connections import ConnectionTable

PEERS = ("a", "b", "c")


def test_a_peer_with_too_many_connections_displaces_its_own_oldest_one():
    table = ConnectionTable(total=8, per_peer=2)
    assert [table.add(*added) for added in ((1, "a"), (2, "b"), (3, "a"), (4, "a"))] == [None, None, None, 1]


def test_when_all_places_are_taken_the_peer_with_the_most_waiting_connections_gives_one_up():
    table = ConnectionTable(total=4, per_peer=3)
    for number, peer in enumerate("baaa"):
        table.add(number, peer)
    assert table.add(9, "c") == 1
    assert len(table) == 4


def test_a_connection_that_is_being_served_is_never_displaced():
    table = ConnectionTable(total=8, per_peer=4)
    for number in range(4):
        table.add(number, "a")
    assert table.begin(0)
    assert table.add(4, "a") == 1


def test_a_connection_that_was_served_is_the_youngest_of_those_that_wait():
    table = ConnectionTable(total=8, per_peer=2)
    table.add(1, "a")
    table.add(2, "a")
    table.begin(1)
    table.end(1)
    assert table.add(3, "a") == 2


def test_the_last_places_are_for_what_must_always_be_answered():
    table = ConnectionTable(total=16, per_peer=8)
    for number in range(8):
        table.add(number, "a")
    assert [table.begin(number) for number in range(8)] == [True] * 7 + [False]
    assert table.begin(7, reserved=True)


def test_a_connection_that_was_displaced_is_not_served():
    table = ConnectionTable(total=4, per_peer=2)
    for number in range(3):
        table.add(number, "a")
    assert not table.begin(0)
    assert not table.end(0)


@pytest.mark.parametrize(("total", "per_peer"), [(1, 1), (4, 5), (0, 0)])
def test_a_table_without_room_is_refused(total, per_peer):
    with pytest.raises(ValueError, match="per_peer"):
        ConnectionTable(total=total, per_peer=per_peer)


@given(
    st.lists(st.tuples(st.sampled_from(["add", "begin", "end", "remove"]), st.integers(0, 40), st.sampled_from(PEERS)))
)
def test_there_are_never_too_many_and_a_new_connection_always_finds_room(history):
    table, peers = ConnectionTable(total=6, per_peer=4), {}
    for step, number, peer in history:
        if step == "add" and number not in peers:
            evicted = table.add(number, peer)
            assert evicted != number
            peers[number] = peer
            peers.pop(evicted, None)
        elif step == "begin":
            table.begin(number)
        elif step == "end":
            table.end(number)
        elif step == "remove":
            table.remove(number)
            peers.pop(number, None)
        assert len(table) == len(peers) <= 6
        assert max(map(list(peers.values()).count, PEERS)) <= 4
