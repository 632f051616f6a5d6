from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from steersman.kube.api.errors import Conflict, NotFound, Unavailable
from steersman.runtime.leaderelection.elector import LeaderElector, LeadershipLost, unique_identity
from steersman.runtime.leaderelection.rules import LeaderElectionRecord, LeaseTimings
from steersman.testing.clock import settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from steersman.testing import VirtualClock


class MemoryLease:
    """A lease in memory. `before` runs in front of every request and may raise, hang or change things."""

    def __init__(self) -> None:
        self.record: LeaderElectionRecord | None = None
        self.version = 0
        self.requests: list[str] = []
        self.before: Callable[[str], Coroutine[Any, Any, None]] | None = None

    async def read(self) -> tuple[LeaderElectionRecord, str]:
        await self._arrive("read")
        if self.record is None:
            raise NotFound("no lease")
        return self.record, str(self.version)

    async def write(self, record: LeaderElectionRecord, version: str) -> str:
        await self._arrive("write")
        if version != ("" if self.record is None else str(self.version)):
            raise Conflict("not the newest")
        self.record, self.version = record, self.version + 1
        return str(self.version)

    async def _arrive(self, request: str) -> None:
        self.requests.append(request)
        if self.before is not None:
            await self.before(request)


@pytest.fixture
def lease() -> MemoryLease:
    return MemoryLease()


@pytest.fixture
def elector(lease: MemoryLease, clock: VirtualClock) -> LeaderElector:
    return LeaderElector(lease, identity="me", clock=clock, random=lambda: 0.5)


@pytest.fixture
async def tasks() -> AsyncIterator[Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]]:
    """Starts tasks that are cancelled after the test."""
    started: list[asyncio.Task[Any]] = []

    def start(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        started.append(asyncio.create_task(coroutine))
        return started[-1]

    yield start
    for task in started:
        task.cancel()
    await asyncio.gather(*started, return_exceptions=True)


async def hang(request: str) -> None:
    await asyncio.Event().wait()


async def test_a_lone_candidate_leads_at_once_and_renews_with_one_request_each_time(
    elector: LeaderElector, lease: MemoryLease, clock: VirtualClock, tasks: Any
) -> None:
    await elector.acquire()
    assert elector.leading()
    assert elector.leader == "me"
    lease.requests.clear()
    holding = tasks(elector.hold())
    await clock.advance(10)
    assert lease.requests == ["write"] * 5
    assert elector.slow_renewals == 0
    assert not holding.done()


async def test_a_failed_renewal_falls_back_to_reading_and_the_leader_stays(
    elector: LeaderElector, lease: MemoryLease, clock: VirtualClock, tasks: Any
) -> None:
    await elector.acquire()
    holding = tasks(elector.hold())
    lease.version += 1  # somebody put a label on it
    lease.requests.clear()
    await clock.advance(2)
    assert lease.requests == ["write", "read", "write"]
    assert elector.slow_renewals == 1
    assert not holding.done()
    assert elector.leading()


async def test_a_hung_request_cannot_outlive_the_term(
    elector: LeaderElector, lease: MemoryLease, clock: VirtualClock, tasks: Any
) -> None:
    await elector.acquire()
    lease.before = hang
    holding = tasks(elector.hold())
    await clock.advance(9.9)
    assert elector.leading()
    assert not holding.done()
    await clock.advance(0.1)
    assert not elector.leading()
    with pytest.raises(LeadershipLost, match="could not be renewed within 10 s"):
        holding.result()


async def test_a_lease_that_cannot_be_made_is_reported(
    elector: LeaderElector, lease: MemoryLease, clock: VirtualClock, tasks: Any
) -> None:
    async def no_namespace(request: str) -> None:
        if request == "write":
            raise NotFound('namespaces "ops" not found')

    lease.before = no_namespace
    with capture_logs() as logs:
        tasks(elector.acquire())
        await clock.advance(1)
    assert 'namespaces "ops" not found' in logs[0]["error"]
    assert logs[0]["log_level"] == "warning"


async def test_short_outages_do_not_end_a_term(
    elector: LeaderElector, lease: MemoryLease, clock: VirtualClock, tasks: Any
) -> None:
    async def down(request: str) -> None:
        raise Unavailable("down")

    await elector.acquire()
    holding = tasks(elector.hold())
    lease.before = down
    await clock.advance(8)
    lease.before = None
    await clock.advance(60)
    assert not holding.done()
    assert elector.leading()


async def test_a_follower_takes_over_after_the_leader_died_and_not_before(
    elector: LeaderElector, lease: MemoryLease, clock: VirtualClock, tasks: Any
) -> None:
    other = LeaderElector(lease, identity="other", clock=clock, random=lambda: 0.0)
    await elector.acquire()
    holding = tasks(elector.hold())
    waiting = tasks(other.acquire())
    await clock.advance(120)
    assert not waiting.done()
    holding.cancel()
    await clock.advance(14)
    assert not waiting.done()
    await clock.advance(3)
    assert waiting.done()
    assert other.leading()
    assert not elector.leading()
    assert lease.record is not None
    assert lease.record.transitions == 1


async def test_a_leader_learns_when_its_lease_was_taken(
    elector: LeaderElector, lease: MemoryLease, clock: VirtualClock, tasks: Any
) -> None:
    await elector.acquire()
    holding = tasks(elector.hold())
    lease.record, lease.version = LeaderElectionRecord(holder="thief", duration_seconds=15), 99
    await clock.advance(2)
    with pytest.raises(LeadershipLost, match="thief holds the lease"):
        holding.result()


async def test_a_lease_given_back_is_taken_at_once(
    elector: LeaderElector, lease: MemoryLease, clock: VirtualClock, tasks: Any
) -> None:
    other = LeaderElector(lease, identity="other", clock=clock, random=lambda: 0.0)
    await elector.acquire()
    waiting = tasks(other.acquire())
    await clock.advance(1)
    assert await elector.release()
    assert not elector.leading()
    await clock.advance(2)
    assert waiting.done()


async def test_a_release_tries_again_when_another_client_wrote_meanwhile(
    elector: LeaderElector, lease: MemoryLease
) -> None:
    await elector.acquire()
    touches = 3

    async def touch(request: str) -> None:
        nonlocal touches
        if request == "write" and touches:
            touches -= 1
            lease.version += 1

    lease.before = touch
    assert await elector.release()
    assert lease.record is not None
    assert lease.record.holder == ""


async def test_a_release_leaves_the_lease_of_another_alone(elector: LeaderElector, lease: MemoryLease) -> None:
    await elector.acquire()
    lease.record = LeaderElectionRecord(holder="other", duration_seconds=15)
    assert not await elector.release()
    assert lease.record.holder == "other"
    lease.record = None
    assert not await elector.release()


async def test_a_release_gives_up_in_time(
    elector: LeaderElector, lease: MemoryLease, clock: VirtualClock, tasks: Any
) -> None:
    await elector.acquire()
    lease.before = hang
    releasing = tasks(elector.release())
    await clock.advance(10)
    assert releasing.result() is False


@pytest.mark.parametrize("during", ["read", "write"])
async def test_cancelled_in_the_middle_of_a_request_the_lease_is_still_given_back(
    elector: LeaderElector, lease: MemoryLease, clock: VirtualClock, tasks: Any, during: str
) -> None:
    arrived = asyncio.Event()

    async def stall(request: str) -> None:
        if request == during:
            arrived.set()
            if request == "write" and lease.record is None:  # it reaches the server, only the answer is missing
                lease.record, lease.version = LeaderElectionRecord(holder="me", duration_seconds=15), 1
            await asyncio.Event().wait()

    if during == "read":
        await elector.acquire()
        lease.version += 1  # makes the next renewal read
        lease.before = stall
        task = tasks(elector.hold())
        await clock.advance(2)
    else:
        lease.before = stall
        task = tasks(elector.acquire())
    await arrived.wait()
    task.cancel()
    await settle()
    lease.before = None
    assert await elector.release()
    assert lease.record is not None
    assert lease.record.holder == ""


async def test_every_candidate_knows_who_leads(lease: MemoryLease, clock: VirtualClock, tasks: Any) -> None:
    elector = LeaderElector(lease, identity="me", clock=clock)
    lease.record, lease.version = LeaderElectionRecord(holder="them", duration_seconds=15), 1
    waiting = tasks(elector.acquire())
    await clock.advance(5)
    assert elector.leader == "them"
    lease.record, lease.version = LeaderElectionRecord(holder="others", duration_seconds=15), 2
    await clock.advance(5)
    assert elector.leader == "others"
    await clock.advance(35)
    assert waiting.done()
    assert elector.leader == "me"


async def test_a_dead_renewal_loop_is_reported_and_a_follower_is_healthy(
    elector: LeaderElector, lease: MemoryLease, clock: VirtualClock
) -> None:
    assert elector.problem() is None
    await elector.acquire()  # …and nobody calls hold()
    await clock.advance(10)
    assert not elector.leading()
    assert elector.problem() is None
    await clock.advance(20.1)
    assert elector.problem() == "the lease was due for renewal 20 s ago"


async def test_asked_at_any_moment_of_a_renewal_a_leader_that_renews_is_healthy_and_leads(
    elector: LeaderElector, lease: MemoryLease, clock: VirtualClock, tasks: Any
) -> None:
    """Somebody asks all the time: while a request is on its way, just before it is answered and just after."""
    answers: list[tuple[str | None, bool]] = []

    async def slowly(_request: str) -> None:
        for _ in range(4):
            await clock.sleep(0.5)
            answers.append((elector.problem(tolerance_seconds=0), elector.leading()))

    await elector.acquire()
    holding = tasks(elector.hold())
    lease.before = slowly
    for _ in range(600):
        await clock.advance(0.1)
        answers.append((elector.problem(tolerance_seconds=0), elector.leading()))
    assert not holding.done()
    assert len(answers) > 650
    assert set(answers) == {(None, True)}


async def test_who_was_never_elected_cannot_hold(elector: LeaderElector) -> None:
    with pytest.raises(LeadershipLost, match="never elected"):
        await elector.hold()


def test_identities_are_never_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "web-0")
    assert unique_identity().startswith("web-0_")
    assert unique_identity("me") != unique_identity("me")


async def test_other_timings_are_kept(lease: MemoryLease, clock: VirtualClock) -> None:
    timing = LeaseTimings(lease_seconds=60, renew_seconds=40, retry_seconds=5)
    elector = LeaderElector(lease, timing=timing, clock=clock)
    await elector.acquire()
    assert lease.record is not None
    assert lease.record.duration_seconds == 60
    await clock.advance(39)
    assert elector.leading()
