"""Sharding: everything is owned by somebody, and never by two who act."""

from __future__ import annotations

import asyncio
import random
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from steersman.kube.api.errors import Conflict, ConnectionFailed, NotFound
from steersman.runtime.leaderelection.rules import LeaderElectionRecord, LeaseTimings
from steersman.runtime.sharding.assignment import Reassignment, ShardAssignment, desired, join, next_move, slot_of
from steersman.runtime.sharding.member import ShardMember
from steersman.testing.clock import VirtualClock

names = st.lists(st.text("abcdef", min_size=1, max_size=4), min_size=1, max_size=6, unique=True)


# -- the rules -------------------------------------------------------------------------------------------------------


@given(names)
def test_every_slot_has_a_member(members):
    assert set(desired(members)) <= set(members)
    assert "" not in desired(members)


@given(names)
def test_a_member_that_leaves_moves_only_its_own_share(members):
    before, after = desired(members), desired(members[1:])
    assert all(one == other for one, other in zip(before, after, strict=True) if one != members[0])


def test_shares_are_roughly_equal():
    shares = [desired([f"member-{n}" for n in range(4)]).count(f"member-{n}") for n in range(4)]
    assert min(shares) >= 64 / 4 / 2


def table(*owners: str, joined: str) -> ShardAssignment:
    return ShardAssignment(owners=owners, members=dict.fromkeys(joined.split(), "1"))


def preferred_to(member: str) -> str:
    """A name that the only slot goes to when both are there."""
    return next(name for name in "bcdefgh" if desired([member, name], 1) == (name,))


def test_an_owner_stops_before_it_gives():
    other = preferred_to("a")
    known = table("a", joined=f"a {other}")
    move = next_move(known, me="a", alive={"a", other}, stopped=())
    assert (move.stop, move.table) == ({0}, None)
    move = next_move(known, me="a", alive={"a", other}, stopped={0})
    assert move.table.owners == (other,)


def test_nothing_is_given_to_who_has_not_joined():
    assert next_move(table("a", joined="a"), me="a", alive={"a", preferred_to("a")}, stopped=()) == (
        Reassignment(frozenset(), None)
    )


def test_no_member_takes_from_a_living_member():
    other = preferred_to("a")
    known = table("a", joined=f"a {other}")
    assert next_move(known, me=other, alive={"a", other}, stopped=()).table is None
    assert next_move(known, me=other, alive={other}, stopped=()).table.owners == (other,)


def test_the_dead_are_inherited_by_the_one_who_is_wanted_and_by_no_other():
    known, alive = table(*("gone",) * 16, joined="b c gone"), {"b", "c"}
    taken = [next_move(known, me=me, alive=alive, stopped=()).table.owners for me in ("b", "c")]
    assert all(
        {one, other} - {"gone"} <= {"b", "c"} and "gone" in (one, other) for one, other in zip(*taken, strict=True)
    )


def test_a_slot_without_owner_is_taken_when_everybody_alive_has_joined_and_not_before():
    """Who has not joined may still act by a table that is gone."""
    assert next_move(table("", joined="a"), me="a", alive={"a", "late"}, stopped=()).table is None
    assert next_move(table("", joined="a"), me="a", alive={"a"}, stopped=()).table.owners == ("a",)


def test_joining_changes_the_table_so_that_older_decisions_are_refused():
    assert join(ShardAssignment.empty(), "a", "1") != join(ShardAssignment.empty(), "a", "2")


def test_a_namespace_always_falls_into_the_same_slot():
    assert slot_of("shop") == 61  # a release that moved it would make two releases share badly


# -- a group in virtual time -----------------------------------------------------------------------------------------


NAMESPACES = [next(name for name in map(str, range(999)) if slot_of(name, 8) == slot) for slot in range(8)]


class World:
    """The cluster's side: compare-and-swap storage that members reach, or do not."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[Any, int]] = {}
        self.version = 0

    def read(self, key: str):
        if key not in self.values:
            raise NotFound(key)
        value, version = self.values[key]
        return value, str(version)

    def write(self, key: str, value: object, version: str) -> str:
        current = str(self.values[key][1]) if key in self.values else ""
        if current != version:
            raise Conflict(key)
        self.version += 1
        self.values[key] = value, self.version
        return str(self.version)


class Link:
    """One member's way to the world, as good or bad as the test makes it."""

    def __init__(self, world: World, clock: VirtualClock, rng: random.Random) -> None:
        self.world, self.clock, self.rng = world, clock, rng
        self.down = False

    async def pass_through(self, act):
        await self.clock.sleep(self.rng.uniform(0, 0.3))
        if self.down:
            await self.clock.sleep(self.rng.uniform(0, 20))
            raise ConnectionFailed("down")
        result = act()
        await self.clock.sleep(self.rng.uniform(0, 0.3))
        if self.down and self.rng.random() < 0.5:
            raise ConnectionFailed("the answer was lost")
        return result

    def lease(self, identity: str):
        link = self

        class MemberLease:
            async def read(self):
                return await link.pass_through(lambda: link.world.read(f"lease/{identity}"))

            async def write(self, record, version):
                return await link.pass_through(lambda: link.world.write(f"lease/{identity}", record, version))

        return MemberLease()

    async def members(self) -> dict[str, LeaderElectionRecord]:
        def look():
            return {key: record for key, (record, _) in self.world.values.items() if key.startswith("lease/")}

        return await self.pass_through(look)

    async def read(self):
        def look():
            try:
                return self.world.read("table")
            except NotFound:
                return ShardAssignment.empty(8), ""

        return await self.pass_through(look)

    async def write(self, table, version):
        return await self.pass_through(lambda: self.world.write("table", table, version))

    async def sweep(self, gone):
        def remove():
            for key, record in gone.items():
                if key in self.world.values and self.world.values[key][0] == record:
                    del self.world.values[key]

        await self.pass_through(remove)


class Group:
    """Members that work: a job begins on a slot that may be acted on, and takes its time."""

    def __init__(self, seed: int, size: int, timing: LeaseTimings | None = None) -> None:
        self.rng = random.Random(seed)
        self.clock = VirtualClock()
        self.world = World()
        self.timing = timing or LeaseTimings()
        self.links = {f"m{n}": Link(self.world, self.clock, self.rng) for n in range(size)}
        self.members: dict[str, ShardMember] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.jobs: dict[str, dict[int, asyncio.Task[None]]] = {}  # member -> slot -> what works on it
        self.drained = 0
        self.overlaps: list[str] = []
        self.others: list[asyncio.Task[None]] = []

    def start(self, name: str) -> None:
        jobs: dict[int, asyncio.Task[None]] = {}

        async def job(slot: int) -> None:
            others = [other for other, theirs in self.jobs.items() if other != name and slot in theirs]
            self.overlaps += [f"{name} began on slot {slot} while {other} works on it" for other in others]
            try:
                await self.clock.sleep(self.rng.uniform(0, 10))
            finally:
                del jobs[slot]

        async def work() -> None:
            while True:
                for slot in self.members[name].acting - jobs.keys():
                    jobs[slot] = asyncio.create_task(job(slot))
                await self.clock.sleep(0.5)

        def interrupt(slots):
            for slot in slots & jobs.keys():
                jobs[slot].cancel()

        async def drain(slots):
            assert not slots & self.members[name].acting, "work on a slot may not begin while it is being drained"
            self.drained += len(slots)
            if running := [jobs[slot] for slot in slots & jobs.keys()]:
                await asyncio.wait(running)

        async def run() -> None:
            working = asyncio.create_task(work())
            try:
                await self.members[name].run()
            finally:
                working.cancel()

        self.jobs[name] = jobs
        options: Any = {"identity": name, "timing": self.timing, "slots": 8, "clock": self.clock}
        self.members[name] = ShardMember(self.links[name], drain=drain, interrupt=interrupt, **options)
        self.tasks[name] = asyncio.create_task(run())

    async def stop(self, name: str) -> None:
        task = self.tasks.pop(name)
        task.cancel()
        while not task.done():
            await self.clock.advance(1)
        assert self.jobs.pop(name) == {}
        del self.members[name]

    def check(self) -> None:
        acting = [slot for member in self.members.values() for slot in member.acting]
        assert len(acting) == len(set(acting)), {n: sorted(m.acting) for n, m in self.members.items()}
        for namespace in NAMESPACES:
            writers = [name for name, member in self.members.items() if member.write_allowed(namespace)]
            assert len(writers) <= 1, f"{writers} may write in {namespace}"
        assert self.overlaps == []

    def also(self, run: Any) -> asyncio.Task[None]:
        """Run something else to the end of the test."""
        self.others.append(asyncio.create_task(run))
        return self.others[-1]

    async def close(self) -> None:
        """End everything, whatever the test came to: a member ends in order, and needs the clock for it."""
        for link in self.links.values():
            link.down = False
        left = [*self.tasks.values(), *self.others]
        for task in left:
            task.cancel()
        while not all(task.done() for task in left):
            await self.clock.advance(1)

    def all_owned(self) -> bool:
        return sorted(slot for member in self.members.values() for slot in member.acting) == list(range(8))


@pytest.fixture
async def group_of(monkeypatch):
    made: list[Group] = []

    def make(**options: Any) -> Group:
        drawn = random.Random(options["seed"])  # a seed that fails must fail again
        random.seed(options["seed"])  # electors draw their pauses from it
        monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=drawn.getrandbits(128)))
        made.append(Group(**options))
        return made[-1]

    yield make
    for group in made:
        await group.close()


async def test_a_group_shares_everything_and_rebalances_when_members_come_and_go(group_of):
    group = group_of(seed=1, size=3)
    for name in group.links:
        group.start(name)
    await group.clock.advance(40)
    assert group.all_owned()
    await group.stop("m0")
    await group.clock.advance(20)
    assert group.all_owned()
    group.start("m0")
    await group.clock.advance(40)
    assert group.all_owned()
    assert group.members["m0"].acting
    assert group.drained > 0


async def test_a_member_that_gains_slots_reconciles_them(group_of):
    gained: list[frozenset[int]] = []
    group = group_of(seed=2, size=1)

    async def drain(slots):
        pass

    member = ShardMember(
        group.links["m0"], drain=drain, on_gained=gained.append, identity="m0", slots=8, clock=group.clock
    )
    task = group.also(member.run())
    await group.clock.advance(10)
    assert gained == [frozenset(range(8))]
    assert member.owns("anything")
    task.cancel()
    while not task.done():
        await group.clock.advance(1)
    assert not member.owns("anything")


HASTY = LeaseTimings(lease_seconds=3, renew_seconds=2.5, retry_seconds=1)  # little time between the end of two terms


@pytest.mark.parametrize("seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 40))])
async def test_never_two_work_on_one_slot_whatever_the_network_does_and_whichever_client_deletes_the_table(
    group_of, seed
):
    group = group_of(seed=seed, size=3, timing=HASTY if seed % 2 else None)
    for name in group.links:
        group.start(name)
    for _ in range(120):
        link = group.rng.choice(list(group.links.values()))
        if group.rng.random() < 0.15:
            link.down = not link.down
        if group.rng.random() < 0.03:
            group.world.values.pop("table", None)
        await group.clock.advance(group.rng.uniform(0.1, 3))
        group.check()
    for link in group.links.values():
        link.down = False
    for _ in range(90):
        await group.clock.advance(1)
        group.check()
    assert group.all_owned(), f"seed {seed}"


async def test_a_lost_lease_ends_the_work_at_once_and_a_hand_over_lets_it_end(group_of):
    group = group_of(seed=3, size=2, timing=HASTY)
    group.start("m0")
    await group.clock.advance(5)
    group.start("m1")  # m0 hands over what is to be m1's
    await group.clock.advance(30)
    handed = group.drained
    assert handed > 0
    group.links["m0"].down = True
    await group.clock.advance(HASTY.renew_seconds + 0.5)
    assert group.jobs["m0"] == {}


async def test_a_slot_is_taken_over_only_after_a_whole_lease_without_a_sign_of_life(group_of):
    group = group_of(seed=6, size=2)
    for name in group.links:
        group.start(name)
    await group.clock.advance(60)
    assert group.all_owned()
    group.links["m0"].down = True
    written = group.world.values["lease/m0"]
    began = group.clock.monotonic()
    while group.members["m1"].acting != frozenset(range(8)):
        await group.clock.advance(0.2)
    assert group.world.values.get("lease/m0", written) == written
    assert group.clock.monotonic() - began >= group.timing.lease_seconds - group.timing.retry_seconds
    assert group.overlaps == []


async def test_a_process_that_slept_through_the_end_of_its_lease_owns_nothing_when_it_wakes(group_of, monkeypatch):
    """Nothing has run yet that could have told it: the clock alone says so."""
    group = group_of(seed=7, size=1)
    group.start("m0")
    await group.clock.advance(10)
    member = group.members["m0"]
    assert member.owns("shop")
    assert len(member.acting) == 8
    later = group.clock.monotonic() + group.timing.lease_seconds
    with monkeypatch.context() as asleep:
        asleep.setattr(group.clock, "monotonic", lambda: later)
        assert not member.owns("shop")
        assert member.acting == frozenset()


async def test_a_table_that_vanishes_while_a_member_is_slow_to_stop_keeps_its_slot_unassigned(group_of):
    """Deleted, or not readable: the member that acts by the old one has not joined the new one yet."""
    group = group_of(seed=1, size=2)
    names = ("a", preferred_to("a"))
    links = [Link(group.world, group.clock, group.rng) for _ in names]
    release, working = asyncio.Event(), []

    async def drain(slots):
        await release.wait()
        working.remove("a")

    async def nothing(slots):
        pass

    options: Any = {"slots": 1, "clock": group.clock}
    one = ShardMember(links[0], drain=drain, on_gained=lambda _: working.append("a"), identity="a", **options)
    two = ShardMember(links[1], drain=nothing, on_gained=lambda _: working.append("b"), identity=names[1], **options)
    group.also(one.run())
    await group.clock.advance(5)
    group.also(two.run())
    await group.clock.advance(20)
    assert working == ["a"]  # asked to give, and not done yet
    del group.world.values["table"]
    await group.clock.advance(40)
    assert working == ["a"]
    release.set()
    await group.clock.advance(10)
    assert working == ["b"]


async def test_a_group_that_shares_in_another_way_is_left_alone_until_it_is_gone(group_of):
    group = group_of(seed=1, size=2)
    group.start("m0")
    await group.clock.advance(10)

    async def drain(slots):
        pass

    other = ShardMember(group.links["m1"], drain=drain, identity="m1", slots=4, clock=group.clock)
    group.also(other.run())
    await group.clock.advance(30)
    assert (group.all_owned(), other.acting) == (True, frozenset())
    await group.stop("m0")
    await group.clock.advance(30)
    assert other.acting == frozenset(range(4))


async def test_members_that_left_or_died_leave_no_lease_behind(group_of):
    group = group_of(seed=4, size=3)
    for name in group.links:
        group.start(name)
    await group.clock.advance(30)
    await group.stop("m1")
    await group.clock.advance(group.timing.lease_seconds + 10)
    assert "lease/m1" not in group.world.values
    group.links["m2"].down = True  # as good as dead
    await group.clock.advance(5 * group.timing.lease_seconds + 20)
    assert [key for key in group.world.values if key.startswith("lease/")] == ["lease/m0"]
    assert len(group.members["m0"].acting) == 8
    await group.stop("m0")  # the last one
    assert [key for key in group.world.values if key.startswith("lease/")] == []


async def test_a_lease_that_is_deleted_keeps_its_slots_unassigned_while_its_member_works(group_of):
    group = group_of(seed=8, size=2)
    for name in group.links:
        group.start(name)
    await group.clock.advance(60)
    for _ in range(20):
        del group.world.values["lease/m0"]
        for _ in range(60):
            await group.clock.advance(0.5)
            group.check()
    await group.clock.advance(30)
    assert group.all_owned()


async def test_what_a_member_gives_back_is_taken_by_all_others_at_once(group_of):
    """Each has to see that it left, so the lease it gave back stays for a while."""
    group = group_of(seed=9, size=3)
    for name in group.links:
        group.start(name)
    await group.clock.advance(60)
    await group.stop("m0")
    await group.clock.advance(2 * group.timing.retry_seconds + 2)
    assert group.all_owned()


async def test_a_member_whose_sharing_breaks_lets_its_work_end_before_its_lease_is_given_back():
    clock, world, diary = VirtualClock(), World(), []
    link = Link(world, clock, random.Random(1))

    async def drain(slots: frozenset[int]) -> None:
        if slots:
            holder = world.values["lease/a"][0].holder
            diary.append(f"{len(slots)} slots drained while the holder is {holder!r}")

    member = ShardMember(link, drain=drain, identity="a", slots=8, clock=clock)
    running = asyncio.create_task(member.run())
    await clock.advance(10)
    assert len(member.acting) == 8
    link.members = None  # type: ignore[assignment, method-assign]  # anything that cannot happen
    await clock.advance(10)
    with pytest.raises(TypeError):
        await running
    assert diary == ["8 slots drained while the holder is 'a'"]
    assert world.values["lease/a"][0].holder == ""


async def test_what_works_on_a_slot_may_write_until_it_is_handed_over_and_not_beyond_its_lease():
    clock, world, release = VirtualClock(), World(), asyncio.Event()
    link = Link(world, clock, random.Random(1))

    async def drain(_slots: frozenset[int]) -> None:
        await release.wait()

    member = ShardMember(link, drain=drain, identity="a", slots=8, clock=clock)
    running = asyncio.create_task(member.run())
    await clock.advance(10)
    assert member.write_allowed("shop")
    running.cancel()  # it leaves, and waits for its work
    await clock.advance(5)
    assert (member.owns("shop"), member.write_allowed("shop")) == (False, True)
    clock.pause(60)
    assert not member.write_allowed("shop")
    release.set()
    await clock.advance(5)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not member.write_allowed("shop")


async def test_a_slot_that_was_reassigned_by_hand_is_not_written_to_any_more():
    clock, world, interrupted = VirtualClock(), World(), []
    link = Link(world, clock, random.Random(1))

    async def drain(_slots: frozenset[int]) -> None:
        await asyncio.Event().wait()

    options: Any = {"identity": "a", "slots": 8, "clock": clock}
    member = ShardMember(link, drain=drain, interrupt=interrupted.append, **options)
    running = asyncio.create_task(member.run())
    await clock.advance(10)
    assert member.write_allowed(NAMESPACES[3])
    table, version = world.read("table")
    owners = tuple("b" if slot == 3 else owner for slot, owner in enumerate(table.owners))
    world.write("table", replace(table, owners=owners), version)
    await clock.advance(5)
    assert interrupted == [frozenset({3})]
    assert not member.write_allowed(NAMESPACES[3])
    assert member.write_allowed(NAMESPACES[4])
    for _ in range(2):
        running.cancel()
        await clock.advance(5)
    assert running.done()


async def test_a_member_that_is_cancelled_twice_keeps_its_lease_while_something_works():
    clock, world = VirtualClock(), World()
    link = Link(world, clock, random.Random(1))

    async def drain(_slots: frozenset[int]) -> None:
        await asyncio.Event().wait()  # a thread that nobody can stop

    member = ShardMember(link, drain=drain, identity="a", slots=8, clock=clock)
    running = asyncio.create_task(member.run())
    await clock.advance(10)
    for _ in range(2):
        running.cancel()
        await clock.advance(2)
    assert running.done()
    assert world.values["lease/a"][0].holder == "a"
