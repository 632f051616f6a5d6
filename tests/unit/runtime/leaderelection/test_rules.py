"""The rules alone: single steps, and a thousand simulated elections in which nothing is reliable."""

from __future__ import annotations

import heapq
import itertools
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from steersman.errors import ConfigError
from steersman.runtime.leaderelection.rules import (
    Action,
    ElectionState,
    Event,
    LeaderElectionRecord,
    LeaseTimings,
    Lost,
    Missing,
    Read,
    RequestFailed,
    Seen,
    Tick,
    Wait,
    Write,
    WriteConflict,
    Written,
    released,
    step,
)

ME = ElectionState(identity="me")
THEIRS = LeaderElectionRecord(holder="them", duration_seconds=15, acquired=1, renewed=5, transitions=3)


def after(state: ElectionState, *event: Event, now: float = 100.0) -> tuple[ElectionState, Action]:
    action: Action = Wait(0)
    for item in event:
        state, action = step(state, item, now, wall=1000.0, jitter=0.5)
    return state, action


def leader(now: float = 100.0) -> ElectionState:
    state, _ = after(ME, Tick(), Missing(), Written("1"), now=now)
    assert state.leading(now)
    return state


# -- a candidate that follows -----------------------------------------------------------------------------------------


def test_a_missing_lease_is_created() -> None:
    _, action = after(ME, Tick(), Missing())
    assert action == Write(LeaderElectionRecord(holder="me", duration_seconds=15, acquired=1000, renewed=1000), "", 5)


def test_a_free_lease_is_taken_at_once() -> None:
    _, action = after(ME, Tick(), Seen(LeaderElectionRecord(transitions=3), "7"))
    assert isinstance(action, Write)
    assert (action.record.holder, action.record.transitions, action.version) == ("me", 4, "7")


def test_a_held_lease_is_left_alone() -> None:
    _, action = after(ME, Tick(), Seen(THEIRS, "7"))
    assert action == Wait(2 * (1 + 1.2 * 0.5))


def test_a_lease_is_taken_over_only_after_its_whole_duration_without_a_change() -> None:
    state, _ = after(ME, Tick(), Seen(THEIRS, "7"), now=100)
    _, action = after(state, Tick(), Seen(THEIRS, "7"), now=114.9)
    assert isinstance(action, Wait)
    _, action = after(state, Tick(), Seen(THEIRS, "7"), now=115)
    assert isinstance(action, Write)
    assert action.record.transitions == 4
    assert action.record.acquired == 1000


def test_every_change_of_the_record_starts_the_wait_again() -> None:
    state, _ = after(ME, Tick(), Seen(THEIRS, "7"), now=100)
    renewed = LeaderElectionRecord(holder="them", duration_seconds=15, acquired=1, renewed=6, transitions=3)
    state, _ = after(state, Tick(), Seen(renewed, "8"), now=110)
    _, action = after(state, Tick(), Seen(renewed, "8"), now=124)
    assert isinstance(action, Wait)


def test_a_label_on_the_lease_is_not_a_sign_of_life() -> None:
    state, _ = after(ME, Tick(), Seen(THEIRS, "7"), now=100)
    _, action = after(state, Tick(), Seen(THEIRS, "9"), now=115)
    assert isinstance(action, Write)
    assert action.version == "9"


def test_the_duration_in_the_record_counts_and_not_our_own() -> None:
    longer = LeaderElectionRecord(holder="them", duration_seconds=60)
    state, _ = after(ME, Tick(), Seen(longer, "7"), now=100)
    assert isinstance(after(state, Tick(), Seen(longer, "7"), now=159)[1], Wait)
    assert isinstance(after(state, Tick(), Seen(longer, "7"), now=160)[1], Write)


def test_foreign_timestamps_are_never_read() -> None:
    ancient = LeaderElectionRecord(holder="them", duration_seconds=15, acquired=-1e9, renewed=-1e9)
    assert isinstance(after(ME, Tick(), Seen(ancient, "7"))[1], Wait)


def test_a_candidate_that_lost_the_race_waits() -> None:
    state, action = after(ME, Tick(), Missing(), WriteConflict())
    assert isinstance(action, Wait)
    assert not state.leading(100)


def test_a_write_whose_answer_was_lost_is_found_by_reading() -> None:
    state, action = after(ME, Tick(), Missing(), RequestFailed())
    assert isinstance(action, Wait)
    mine = LeaderElectionRecord(holder="me", duration_seconds=15, acquired=1000, renewed=1000)
    state, action = after(state, Tick(), Seen(mine, "3"))
    assert isinstance(action, Write)
    assert (action.record.transitions, action.record.acquired) == (0, 1000)
    assert after(state, Written("4"))[0].leading(100)


# -- a candidate that leads -------------------------------------------------------------------------------------------


def test_a_leader_renews_with_a_single_request() -> None:
    state, action = after(leader(), Tick(), now=102)
    assert isinstance(action, Write)
    assert action.version == "1"
    assert after(state, Written("2"), now=102.1)[1] == Wait(2)


def test_a_renewal_that_fails_falls_back_to_reading_first() -> None:
    for failure in (WriteConflict(), RequestFailed()):
        state, action = after(leader(), Tick(), failure, now=102)
        assert isinstance(action, Read)
        mine = LeaderElectionRecord(holder="me", duration_seconds=15)
        state, action = after(state, Seen(mine, "9"), now=102.5)
        assert isinstance(action, Write)
        assert action.version == "9"
        state, action = after(state, RequestFailed(), now=103)
        assert action == Wait(2)


def test_the_term_counts_from_when_the_renewal_was_sent_and_not_from_the_answer() -> None:
    state, _ = after(leader(100), Tick(), now=102)
    state, _ = after(state, Written("2"), now=106)
    assert state.leading(111.9)
    assert not state.leading(112)


def test_a_leader_that_cannot_renew_in_time_has_lost() -> None:
    state, action = after(after(leader(100), Tick(), now=109)[0], RequestFailed(), now=110)
    assert action == Lost("the lease could not be renewed within 10 s")
    assert not state.leading(110)


def test_a_renewal_answered_after_the_term_has_lost_too() -> None:
    state, _ = after(leader(100), Tick(), now=101)
    state, action = after(state, Written("2"), now=111)
    assert isinstance(action, Lost)
    assert not state.leading(111)


def test_a_leader_that_sees_another_holder_stops_at_once() -> None:
    state, action = after(leader(), Tick(), WriteConflict(), Seen(THEIRS, "7"), now=101)
    assert action == Lost("them holds the lease now")
    assert not state.leading(101)


def test_no_request_of_a_leader_outlives_its_term() -> None:
    state, action = after(leader(100), Tick(), now=107)
    assert isinstance(action, Write)
    assert action.timeout_seconds == pytest.approx(3)
    state, action = after(state, RequestFailed(), now=109)
    assert isinstance(action, Read)
    assert action.timeout_seconds == pytest.approx(1)
    _, action = after(state, RequestFailed(), now=109.5)
    assert action == Wait(0.25)
    assert after(state, RequestFailed(), now=109.9)[1] == Wait(pytest.approx(0.1))


def test_renewals_differ_even_when_the_wall_clock_stands_still() -> None:
    state, first = after(leader(), Tick())
    _, second = after(after(state, Written("2"))[0], Tick())
    assert isinstance(first, Write)
    assert isinstance(second, Write)
    assert first.record != second.record


def test_a_deleted_lease_is_created_again() -> None:
    _, action = after(leader(), Tick(), WriteConflict(), Missing(), now=101)
    assert isinstance(action, Write)
    assert action.version == ""


def test_a_released_lease_has_no_holder_and_a_short_duration() -> None:
    record = released(THEIRS, 50.0)
    assert (record.holder, record.duration_seconds, record.transitions) == ("", 1, 3)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"lease_seconds": 10}, "lease_seconds"),
        ({"renew_seconds": 2.4}, "renew_seconds"),
        ({"retry_seconds": 0}, "retry_seconds"),
        ({"retry_seconds": -1}, "retry_seconds"),
        ({"jitter": 0}, "retry_seconds"),
        ({"lease_seconds": 0.9, "renew_seconds": 0.5, "retry_seconds": 0.1}, "lease_seconds"),
    ],
)
def test_timings_that_would_not_be_safe_are_refused(options: dict[str, float], field: str) -> None:
    with pytest.raises(ConfigError) as error:
        LeaseTimings(**options)
    assert error.value.field == field


# -- a thousand elections ---------------------------------------------------------------------------------------------


@dataclass
class Server:
    """One lease with optimistic locking."""

    record: LeaderElectionRecord | None = None
    version: int = 0

    def handle(self, action: Read | Write) -> Event:
        if isinstance(action, Read):
            return Missing() if self.record is None else Seen(self.record, str(self.version))
        if action.version != ("" if self.record is None else str(self.version)):
            return WriteConflict()
        self.record, self.version = action.record, self.version + 1
        return Written(str(self.version))


@dataclass
class Candidate:
    state: ElectionState
    rate: float  # how fast its clock runs
    offset: float
    wall_offset: float
    paused_until: float = 0.0
    cut_until: float = 0.0
    request: int = 0
    wins: int = 0

    def local(self, now: float) -> float:
        return self.offset + now * self.rate

    def leads(self, now: float) -> bool:
        return self.state.leading(self.local(now))


@dataclass
class World:
    """Candidates, a server, and a network that delays, loses, and delivers late; real time is the simulation's."""

    seed: int
    events: list[tuple[float, int, Any]] = field(default_factory=list)
    order: Any = field(default_factory=itertools.count)
    led: float = 0.0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.server = Server()
        self.now = 0.0
        self.candidates = [
            Candidate(
                ElectionState(identity=f"c{n}"),
                rate=self.random.uniform(0.85, 1.2),  # 1.2 / 0.85 is less than 15 / 10
                offset=self.random.uniform(-1e6, 1e6),
                wall_offset=self.random.choice([0, 3600, -86400, 1e8]),
            )
            for n in range(self.random.randint(2, 5))
        ]

    def at(self, when: float, call: Any) -> None:
        heapq.heappush(self.events, (when, next(self.order), call))

    def run(self, seconds: float) -> None:
        for candidate in self.candidates:
            self.at(self.random.uniform(0, 5), lambda c=candidate: self.resume(c, c.request, Tick()))
            self.at(self.random.uniform(0, 30), lambda c=candidate: self.disturb(c))
        while self.events and self.events[0][0] < seconds:
            before = self.now
            self.now, _, call = heapq.heappop(self.events)
            self.led += (self.now - before) if any(c.leads(before) for c in self.candidates) else 0
            call()
            leaders = [c.state.identity for c in self.candidates if c.leads(self.now)]
            assert len(leaders) <= 1, f"seed {self.seed}: {leaders} lead at {self.now:.3f}"

    def disturb(self, candidate: Candidate) -> None:
        match self.random.randrange(4):
            case 0:
                candidate.paused_until = self.now + self.random.uniform(0, 60)
            case 1:
                candidate.cut_until = self.now + self.random.uniform(0, 60)
            case 2:
                candidate.wall_offset += self.random.uniform(-1e5, 1e5)
            case 3 if candidate.leads(self.now):  # a graceful end: it stops acting, then gives the lease back
                candidate.state = ElectionState(identity=f"{candidate.state.identity}'")
                candidate.request += 1
                if self.server.record is not None:
                    self.server.record = released(self.server.record, self.now)
                    self.server.version += 1
                self.at(self.now + 1, lambda: self.resume(candidate, candidate.request, Tick()))
        self.at(self.now + self.random.expovariate(1 / 40), lambda: self.disturb(candidate))

    def resume(self, candidate: Candidate, request: int, event: Event) -> None:
        """The candidate learns `event`, unless it is frozen (then later) or has given up on that request."""
        if request != candidate.request:
            return
        if candidate.paused_until > self.now:
            self.at(candidate.paused_until, lambda: self.resume(candidate, request, event))
            return
        led = candidate.leads(self.now)
        local = candidate.local(self.now)
        candidate.state, action = step(
            candidate.state, event, local, wall=self.now + candidate.wall_offset, jitter=self.random.random()
        )
        candidate.wins += candidate.leads(self.now) and not led
        candidate.request += 1
        self.carry_out(candidate, candidate.request, action)

    def carry_out(self, candidate: Candidate, request: int, action: Action) -> None:
        if isinstance(action, Lost):
            self.at(self.now + 1, lambda: self.resume(candidate, request, Tick()))
        elif isinstance(action, Wait):
            self.at(self.now + action.seconds / candidate.rate, lambda: self.resume(candidate, request, Tick()))
        else:
            timeout = self.now + action.timeout_seconds / candidate.rate
            self.at(timeout, lambda: self.resume(candidate, request, RequestFailed()))
            if self.random.random() > 0.05:
                slow = self.random.random() < 0.1
                self.at(self.now + self.delay(slow), lambda: self.arrive(candidate, request, action))

    def arrive(self, candidate: Candidate, request: int, action: Read | Write) -> None:
        """At the server: also long after the sender gave up. The answer may be lost or late, too."""
        if candidate.cut_until > self.now:
            return
        event = self.server.handle(action)
        if self.random.random() > 0.05:
            slow = self.random.random() < 0.1
            self.at(self.now + self.delay(slow), lambda: self.resume(candidate, request, event))

    def delay(self, slow: bool) -> float:
        return self.random.uniform(0, 40) if slow else self.random.uniform(0, 0.3)


@pytest.mark.parametrize("batch", [0, 1, *(pytest.param(batch, marks=pytest.mark.slow) for batch in range(2, 10))])
def test_in_a_thousand_elections_there_are_never_two_leaders(batch: int) -> None:
    led = wins = 0.0
    for seed in range(batch * 100, batch * 100 + 100):
        world = World(seed)
        world.run(300)
        led += world.led
        wins += sum(candidate.wins for candidate in world.candidates)
    assert led > 100 * 300 * 0.4, "safety is worthless when nobody ever leads"
    assert wins > 100 * 2, "nobody is ever replaced: the simulation is too kind"
