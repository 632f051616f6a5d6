from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from steersman.runtime.reconcile.conditions import (
    find_condition,
    is_news,
    new_condition,
    set_conditions,
    without_conditions,
)

EARLY, LATE = 1_000_000_000.0, 1_000_000_100.0


def test_a_new_condition_gets_the_present_time() -> None:
    [ready] = set_conditions(None, new_condition("Ready", True, "Up"), now=EARLY)
    assert (ready.status, ready.last_transition_time) == ("True", "2001-09-09T01:46:40Z")


def test_the_transition_time_moves_with_the_status_and_only_with_it() -> None:
    first = set_conditions(None, new_condition("Ready", False, "Starting"), now=EARLY)
    told_more = set_conditions(first, new_condition("Ready", False, "StillStarting", "2 of 3", generation=4), now=LATE)
    assert told_more[0].last_transition_time == first[0].last_transition_time
    assert (told_more[0].reason, told_more[0].observed_generation) == ("StillStarting", 4)
    turned = set_conditions(told_more, new_condition("Ready", True, "Up"), now=LATE)
    assert turned[0].last_transition_time == "2001-09-09T01:48:20Z"


@given(st.lists(st.sampled_from(["A", "B", "C"]), max_size=5), st.sampled_from([True, False, None]))
def test_saying_the_same_again_changes_nothing(kinds: list[str], status: bool | None) -> None:
    new = [new_condition(kind, status, "Because") for kind in kinds]
    once = set_conditions(None, *new, now=EARLY)
    assert set_conditions(once, *new, now=LATE) == once


def test_order_and_other_conditions_stay() -> None:
    known = set_conditions(None, *(new_condition(kind, True, "x") for kind in "ABC"), now=EARLY)
    changed = set_conditions(known, new_condition("B", None, "y"), new_condition("D", True, "x"), now=LATE)
    assert [(c.type, c.status) for c in changed] == [("A", "True"), ("B", "Unknown"), ("C", "True"), ("D", "True")]
    assert find_condition(changed, "B") == changed[1]
    assert find_condition(None, "B") is None
    assert [c.type for c in without_conditions(changed, "A", "D")] == ["B", "C"]


def test_a_condition_changes_when_it_says_something_else_and_not_when_only_time_passed():
    before = set_conditions([], new_condition("Ready", False, "Missing", "secret/db"), now=0)[0]
    assert is_news(None, before)
    assert not is_news(before, new_condition("Ready", False, "Missing", "secret/db", generation=2))
    assert is_news(before, new_condition("Ready", False, "Missing", "secret/web"))
    assert is_news(before, new_condition("Ready", True, "Missing", "secret/db"))
