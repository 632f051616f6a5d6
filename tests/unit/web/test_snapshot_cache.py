"""The snapshot that all visitors share: how often one is made, and when its revision moves."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from steersman.web.model import PageSnapshot
from steersman.web.snapshot_cache import SHARE, SHORTEST, SnapshotCache


class Operator:
    """What the page shows of one; to make a snapshot takes `cost` seconds."""

    def __init__(self, clock):
        self.clock, self.cost, self.made, self.state, self.running = clock, 0.0, 0, 0, True

    def signature(self):
        return self.state

    def snapshot(self):
        self.made += 1
        self.clock.now += self.cost
        return PageSnapshot(running=self.running)


@pytest.fixture
def operator():
    clock = SimpleNamespace(now=100.0)
    clock.monotonic = lambda: clock.now
    return Operator(clock)


@pytest.fixture
def cache(operator):
    return SnapshotCache(SimpleNamespace(), operator, operator.snapshot, clock=operator.clock)


def test_visitors_at_the_same_time_share_one_snapshot_whatever_happens_meanwhile(cache, operator):
    cache.snapshot()
    operator.state += 1
    operator.clock.now += SHORTEST / 2
    cache.snapshot()
    assert operator.made == 1
    operator.clock.now += SHORTEST
    cache.snapshot()
    assert operator.made == 2


def test_no_snapshot_is_made_while_nothing_happens(cache, operator):
    cache.snapshot()
    operator.clock.now += 3600
    cache.snapshot()
    assert operator.made == 1


def test_a_snapshot_that_is_costly_to_make_is_kept_for_longer(cache, operator):
    operator.cost = 1.0
    cache.snapshot()
    operator.state += 1
    operator.clock.now += SHARE - 2
    cache.snapshot()
    assert operator.made == 1
    operator.clock.now += 2
    cache.snapshot()
    assert operator.made == 2


def test_the_revision_moves_when_there_is_something_else_to_show(cache, operator):
    cache.snapshot()
    operator.state += 1
    operator.clock.now += 60
    cache.snapshot()
    assert (operator.made, cache.revision) == (2, 1)
    operator.running = False
    operator.state += 1
    operator.clock.now += 60
    cache.snapshot()
    assert (operator.made, cache.revision) == (3, 2)
