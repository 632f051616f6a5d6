"""Keys that write every time, never end or keep failing are named, and only those."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.runtime.controller.stuck_keys import Limits, StuckKeyTracker

LIMITS = Limits(writes=5, writes_seconds=60, hang_seconds=30, failures=3)


@pytest.fixture
def troubles() -> StuckKeyTracker:
    return StuckKeyTracker(LIMITS)


def named(troubles: StuckKeyTracker, now: float = 0.0) -> list[tuple[str, str]]:
    return [(trouble.key, trouble.kind) for trouble in troubles.current(now)]


def writes(
    troubles: StuckKeyTracker, times: int, *, every: float = 1.0, start: float = 0.0, generation: int = 1
) -> None:
    for number in range(times):
        troubles.wrote("a", start + number * every, before=generation, after=generation)


def test_a_key_that_writes_every_time_is_named(troubles):
    writes(troubles, 4)
    assert named(troubles) == []
    writes(troubles, 1, start=4)
    [trouble] = troubles.current(5)
    assert str(trouble) == "a wrote something in each of its last 5 reconciles though its spec did not change"


def test_one_reconcile_that_writes_nothing_clears_it(troubles):
    writes(troubles, 9)
    troubles.rested("a")
    assert named(troubles) == []
    writes(troubles, 4, start=11)
    assert named(troubles) == []


def test_writing_because_a_user_changes_the_spec_is_not_an_issue(troubles):
    for generation in range(1, 20):
        troubles.wrote("a", generation, before=generation, after=generation)
    assert named(troubles) == []


def test_a_key_that_changes_its_own_spec_every_time_is_stuck(troubles):
    for generation in range(1, 20):
        troubles.wrote("a", generation, before=generation, after=generation + 1)
    assert named(troubles) == [("a", "writes")]


def test_what_writes_now_and_then_is_not_an_issue(troubles):
    writes(troubles, 20, every=20)
    assert named(troubles) == []


def test_a_key_that_hangs_is_named_until_it_ends(troubles):
    troubles.began("a", 100)
    assert named(troubles, 129) == []
    [trouble] = troubles.current(131)
    assert str(trouble) == "a has been running for 31 s"
    troubles.ended("a")
    assert named(troubles, 200) == []


def test_a_key_that_keeps_failing_is_named_with_its_error_until_it_succeeds(troubles):
    for times in (1, 2):
        troubles.failed("a", times, "no route")
    assert named(troubles) == []
    troubles.failed("a", 3, "no route")
    assert [str(trouble) for trouble in troubles.current(0)] == ["a failed 3 times in a row: no route"]
    troubles.succeeded("a")
    assert named(troubles) == []


def test_a_burst_of_writes_is_not_an_issue_once_it_is_over(troubles):
    for second in range(9):
        troubles.wrote("a", float(second), before=1, after=1)
    assert list(troubles.current(9.0))
    assert not list(troubles.current(9.0 + LIMITS.writes_seconds))


def test_an_object_that_is_gone_is_not_stuck(troubles):
    writes(troubles, 9)
    troubles.failed("a", 9, "no route")
    troubles.forget("a")
    assert named(troubles) == []


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=60))
def test_a_key_is_named_exactly_when_its_last_reconciles_all_wrote(history):
    troubles = StuckKeyTracker(LIMITS)
    for now, (key, wrote) in enumerate(history):
        if wrote:
            troubles.wrote(key, float(now), before=0, after=0)
        else:
            troubles.rested(key)
    for key in "ab":
        own = [wrote for name, wrote in history if name == key]
        assert ((key, "writes") in named(troubles)) == (len(own) >= 5 and all(own[-5:]))


def test_only_so_many_keys_are_remembered(troubles):
    for number in range(10_050):
        troubles.wrote(str(number), 0.0, before=0, after=0)
    assert len(troubles._streaks) == 10_000
