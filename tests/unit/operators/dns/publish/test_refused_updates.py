"""The search for what a server refuses: exactly that is held back, and it ends."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from steersman.operators.dns.publish.refused_updates import search
from steersman.operators.dns.wire.messages import RRsetChange
from steersman.operators.dns.zone.names import name_of
from steersman.operators.dns.zone.rdata import MX, NS, TXT, A, RRset


def change(number, kind=TXT, value=b"x", *, gone=False):
    some = RRset(60, frozenset({value}))
    return RRsetChange((name_of(f"n{number}")[:-1], kind), some if gone else None, None if gone else some)


class Server:
    """Takes a part unless it holds a culprit, or something whose need is not there."""

    def __init__(self, culprits=(), needs=None):
        self.culprits, self.needs = set(culprits), needs or {}
        self.has = []
        self.asked = 0

    async def attempt(self, part):
        self.asked += 1
        there = {*self.has, *part}
        if self.culprits & {*part} or any(one in part and need not in there for one, need in self.needs.items()):
            return False
        self.has += part
        return True


@given(st.integers(1, 60), st.data())
def test_exactly_the_culprits_are_left_and_everything_else_is_taken_once(count, data):
    changes = [change(number) for number in range(count)]
    culprits = data.draw(st.sets(st.sampled_from(changes), min_size=1, max_size=4))
    server = Server(culprits)
    found = asyncio.run(search(changes, server.attempt))
    assert set(found.refused) == culprits
    assert not found.untried
    assert sorted(server.has, key=lambda one: one.key) == sorted(set(changes) - culprits, key=lambda one: one.key)
    assert server.asked <= len(culprits) * (2 * count.bit_length() + 2)


@given(st.permutations(range(12)))
def test_what_only_needs_another_change_of_the_same_update_is_not_a_culprit(order):
    rows = [change(number, kind) for number, kind in enumerate([A, MX, A, NS, TXT, TXT] * 2)]
    needs = {rows[1]: rows[0], rows[3]: rows[2], rows[7]: rows[8], rows[9]: rows[6]}
    server = Server([rows[4]], needs)
    found = asyncio.run(search([rows[number] for number in order], server.attempt))
    assert found.refused == (rows[4],)


def test_what_needs_a_culprit_is_held_back_with_it():
    address, mail, other = change(1, A), change(1, MX), change(2)
    found = asyncio.run(search([mail, address, other], (server := Server([address], {mail: address})).attempt))
    assert set(found.refused) == {address, mail}
    assert server.has == [other]


def test_removals_go_before_additions():
    gone, new = change(9, gone=True), change(1, A)
    server = Server([change(5)])
    asyncio.run(search([new, change(5), gone], server.attempt))
    assert server.has == [gone, new]


def test_a_server_that_refuses_nearly_all_is_not_asked_for_ever():
    changes = [change(number) for number in range(500)]
    server = Server(changes)
    found = asyncio.run(search(changes, server.attempt, attempts=50))
    assert server.asked == 50
    assert len(found.refused) + len(found.untried) == 500


def test_what_needs_a_change_that_is_written_later_is_tried_again_and_taken():
    early, late, culprit = change(1), change(9), change(5)
    server = Server([culprit], {early: late})
    found = asyncio.run(search([early, late, culprit], server.attempt))
    assert found.refused == (culprit,)
    assert server.has == [late, early]
