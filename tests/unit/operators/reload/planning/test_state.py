"""The state annotation: whatever it holds is read without harm, and whatever is written stays small."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.operators.reload.planning.diff import parse_changes
from steersman.operators.reload.planning.state import (
    LIMIT,
    Applied,
    AppliedSource,
    next_history,
    read_state,
    write_state,
)

entries = st.builds(
    AppliedSource,
    digest=st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=43),
    use=st.sampled_from(["*", "abc", "*!x"]),
    keys=st.none() | st.dictionaries(st.text(max_size=8), st.text(max_size=12), max_size=4),
)
states = st.builds(
    Applied,
    sources=st.dictionaries(st.text(min_size=1, max_size=20), entries, max_size=5),
    restarts=st.lists(st.integers(0, 2**33), max_size=5, unique=True).map(lambda found: tuple(sorted(found))),
)


@given(states)
def test_what_is_written_is_read_back(state):
    assert read_state(write_state(state)).applied == state


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{}", "7", '"x"', '{"v":1,"s":[]}', '{"v":"1"}', "{" * 100_000, "\ud800", "j" * 200_000]
)
def test_junk_counts_as_nothing_known_and_is_reported(text):
    found = read_state(text)
    assert found.applied is None
    assert not found.newer
    assert "invalid state annotation" in found.problem


@pytest.mark.parametrize("number", [-1, 10**12, 10**18, 10**400])
@pytest.mark.parametrize(
    "where", ['"r":[%d]', '"h":[[%d]]', '"h":[[1,"","",%d]]', '"e":%d', '"t":{"d":"","u":"","n":%d}']
)
def test_numbers_that_no_calendar_knows_are_junk_and_do_not_break_the_page(where, number):
    found = read_state(f'{{"v":1,{where % number}}}')
    assert found.applied is None
    assert "invalid state annotation" in found.problem


def test_a_later_version_is_left_alone():
    found = read_state('{"v":2,"s":{"configmap/app":["something","else"]}}')
    assert found.newer
    assert found.applied is None
    assert "later version" in found.problem


def test_no_annotation_is_not_a_problem():
    assert read_state(None).problem is None


@given(st.text(max_size=400))
def test_reading_never_fails(text):
    found = read_state(text)
    assert (found.applied is None) == (found.problem is not None)


def entry(keys):
    return AppliedSource(digest="d" * 43, keys={f"key-{n}": "s" * 12 for n in range(keys)})


@pytest.mark.parametrize(("sources", "keys"), [(1, 5000), (30, 60), (100, 1), (500, 3), (2000, 0)])
def test_the_annotation_never_grows_beyond_its_limit(sources, keys):
    state = Applied(
        sources={f"configmap/{'n' * 50}-{n}": entry(keys) for n in range(sources)},
        restarts=tuple(range(1_700_000_000, 1_700_000_300)),
    )
    text = write_state(state)
    assert len(text.encode()) <= LIMIT
    assert write_state(state) == text
    read = read_state(text).applied
    assert read.total is not None or all(read.sources[name].digest == "d" * 43 for name in state.sources)
    assert read.restarts == tuple(range(1_700_000_100, 1_700_000_300))


def test_the_largest_source_is_summarised_first():
    text = write_state(Applied(sources={"configmap/big": entry(900), "configmap/small": entry(2)}))
    read = read_state(text).applied
    assert read.sources["configmap/big"].keys is None
    assert read.sources["configmap/small"].keys is not None


def test_a_record_that_was_cut_names_no_key_that_there_is_not():
    keys = [f"key-{number}" for number in range(40)]
    told = f"configmap/app#{','.join(keys)} secret/db#pw"
    (past,) = next_history((), 1, told, ("", None))
    (change,) = parse_changes(past.cause, "shop")
    assert set(change.keys) < set(keys)
    assert len(past.cause) < len(told)
