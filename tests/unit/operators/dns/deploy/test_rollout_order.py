"""One server of a cluster is replaced at a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from steersman.operators.dns.deploy.rollout_order import RolloutServer, blocker_of

MEMBERS = st.lists(
    st.builds(
        RolloutServer,
        st.sampled_from([f"c-{n}" for n in range(6)]),
        st.sampled_from(["primary", "secondary"]),
        st.booleans(),
        st.booleans(),
    ),
    unique_by=lambda one: one.name,
    min_size=1,
)


def _rolling(members):
    return [member for member in members if not member.current and not blocker_of(member, members)]


@given(MEMBERS)
def test_of_those_that_answer_at_most_one_is_taken_down_and_only_when_all_others_answer(members):
    taken = [one for one in _rolling(members) if one.ready]
    assert len(taken) <= 1
    assert not taken or all(member.ready for member in members)


@given(MEMBERS)
def test_a_server_that_does_not_answer_blocks_no_other(members):
    assert {member.name for member in members if not member.current and not member.ready} <= {
        one.name for one in _rolling(members)
    }


@given(MEMBERS)
def test_as_long_as_all_answer_a_server_is_always_next_and_secondaries_come_first(members):
    members = [RolloutServer(member.name, member.role, member.current, True) for member in members]
    outdated = [member for member in members if not member.current]
    assert [one.place for one in _rolling(members)] == sorted(one.place for one in outdated)[:1]


def test_a_change_that_breaks_the_first_server_stops_there():
    broken, fine = RolloutServer("a", "secondary", True, False), RolloutServer("b", "primary", False, True)
    assert blocker_of(fine, [broken, fine]) == "a"
