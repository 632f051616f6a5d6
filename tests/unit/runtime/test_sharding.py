"""Sharding: everything is owned by somebody, and never by two who act."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.kube.errors import Conflict, ConnectionFailed, NotFound
from steersman.runtime.election import Record, Timing
from steersman.runtime.sharding import ShardMember
from steersman.runtime.shards import Table, desired, join, next_move, slot_of
from steersman.testing.clock import VirtualClock

names = st.lists(st.text("abcdef", min_size=1, max_size=4), min_size=1, max_size=6, unique=True)


# -- the rules -------------------------------------------------------------------------------------------------------


@given(names)
def test_every_slot_is_wanted_by_somebody(members):
    assert set(desired(members)) <= set(members)
    assert "" not in desired(members)


@given(names)
def test_a_member_that_leaves_moves_only_its_own_share(members):
    before, after = desired(members), desired(members[1:])
    assert all(one == other for one, other in zip(before, after, strict=True) if one != members[0])


def test_shares_are_roughly_equal():
    shares = [desired([f"member-{n}" for n in range(4)]).count(f"member-{n}") for n in range(4)]
    assert min(shares) >= 64 / 4 / 2


def test_an_owner_stops_before_it_gives():
    table = Table(owners=("a",))
    other = next(name for name in "bcdefgh" if desired(["a", name], 1) == (name,))
    move = next_move(table, me="a", alive={"a", other}, stopped=())
    assert (move.stop, move.table) == ({0}, None)
    move = next_move(table, me="a", alive={"a", other}, stopped={0})
    assert move.table.owners == (other,)


def test_nobody_takes_from_the_living():
    other = next(name for name in "bcdefgh" if desired(["a", name], 1) == (name,))
    assert next_move(Table(owners=("a",)), me=other, alive={"a", other}, stopped=()).table is None
    assert next_move(Table(owners=("a",)), me=other, alive={other}, stopped=()).table.owners == (other,)


def test_the_dead_are_inherited_by_the_one_who_is_wanted_and_by_nobody_else():
    table, alive = Table(owners=("gone",) * 16), {"b", "c"}
    taken = [next_move(table, me=me, alive=alive, stopped=()).table.owners for me in ("b", "c")]
    assert all(
        {one, other} - {"gone"} <= {"b", "c"} and "gone" in (one, other) for one, other in zip(*taken, strict=True)
    )


def test_joining_changes_the_table_so_that_older_decisions_are_refused():
    assert join(Table.empty(), "a", "1") != join(Table.empty(), "a", "2")


def test_a_namespace_always_falls_into_the_same_slot():
    assert slot_of("shop") == 61  # a release that moved it would make two releases share badly


# -- a group in virtual time -----------------------------------------------------------------------------------------


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

    async def members(self) -> dict[str, Record]:
        def look():
            records = [v for k, (v, _) in self.world.values.items() if k.startswith("lease/")]
            return {record.holder: record for record in records if record.holder}

        return await self.pass_through(look)

    async def read(self):
        def look():
            try:
                return self.world.read("table")
            except NotFound:
                return Table.empty(8), ""

        return await self.pass_through(look)

    async def write(self, table, version):
        return await self.pass_through(lambda: self.world.write("table", table, version))


class Group:
    def __init__(self, seed: int, size: int) -> None:
        self.rng = random.Random(seed)
        self.clock = VirtualClock()
        self.world = World()
        self.links = {f"m{n}": Link(self.world, self.clock, self.rng) for n in range(size)}
        self.members: dict[str, ShardMember] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.drained = 0

    def start(self, name: str) -> None:
        async def drain(slots):
            assert not slots & self.members[name].acting, "work on a slot may not begin while it is being drained"
            self.drained += len(slots)
            await self.clock.sleep(self.rng.uniform(0, 1))

        self.members[name] = ShardMember(
            self.links[name], drain=drain, identity=name, timing=Timing(), slots=8, clock=self.clock
        )
        self.tasks[name] = asyncio.create_task(self.members[name].run())

    async def stop(self, name: str) -> None:
        task = self.tasks.pop(name)
        task.cancel()
        while not task.done():
            await self.clock.advance(1)
        del self.members[name]

    def check(self) -> None:
        acting = [slot for member in self.members.values() for slot in member.acting]
        assert len(acting) == len(set(acting)), {n: sorted(m.acting) for n, m in self.members.items()}

    async def close(self) -> None:
        for name in list(self.members):
            await self.stop(name)

    def all_owned(self) -> bool:
        return sorted(slot for member in self.members.values() for slot in member.acting) == list(range(8))


async def test_a_group_shares_everything_and_rebalances_when_members_come_and_go():
    group = Group(seed=1, size=3)
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
    await group.close()


async def test_a_member_that_gains_slots_is_told_to_look_at_them_afresh():
    gained: list[frozenset[int]] = []
    group = Group(seed=2, size=1)

    async def drain(slots):
        pass

    member = ShardMember(
        group.links["m0"], drain=drain, on_gained=gained.append, identity="m0", slots=8, clock=group.clock
    )
    task = asyncio.create_task(member.run())
    await group.clock.advance(10)
    assert gained == [frozenset(range(8))]
    assert member.owns("anything")
    task.cancel()
    while not task.done():
        await group.clock.advance(1)
    assert not member.owns("anything")


@pytest.mark.parametrize("seed", range(40))
async def test_never_two_act_on_one_slot_whatever_the_network_does(seed):
    group = Group(seed=seed, size=3)
    for name in group.links:
        group.start(name)
    for _ in range(120):
        link = group.rng.choice(list(group.links.values()))
        if group.rng.random() < 0.15:
            link.down = not link.down
        await group.clock.advance(group.rng.uniform(0.1, 3))
        group.check()
    for link in group.links.values():
        link.down = False
    for _ in range(90):
        await group.clock.advance(1)
        group.check()
    assert group.all_owned(), f"seed {seed}"
    await group.close()


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
