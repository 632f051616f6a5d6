"""Managers that share the work: everything is done by somebody, and by nobody else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from steersman.kube.api.errors import Conflict, NotFound
from steersman.kube.api.objects import ObjectMeta, Resource
from steersman.runtime.controller.builder import Controller
from steersman.runtime.leaderelection.rules import LeaderElectionRecord, LeaseTimings
from steersman.runtime.sharding.assignment import ShardAssignment
from steersman.testing.clock import settle

TIMING = LeaseTimings(lease_seconds=3, renew_seconds=2.5, retry_seconds=1)


class App(Resource, group="example.org", version="v1"):
    pass


def app(namespace: str, revision: str = "1") -> App:
    return App(metadata=ObjectMeta(name="a", namespace=namespace, uid=namespace, resource_version=revision))


APPS = [app(f"team-{number}") for number in range(12)]


class MemoryShards:
    """What the members keep in the cluster. One whose link is `down` waits for answers that never come."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[Any, str]] = {}
        self.versions = 0

    def put(self, key: str, value: Any, version: str) -> str:
        if version != self.values.get(key, (None, ""))[1]:
            raise Conflict(key)
        self.versions += 1
        self.values[key] = value, str(self.versions)
        return str(self.versions)


class Link:
    def __init__(self, world: MemoryShards) -> None:
        self.world, self.down = world, False

    async def reach(self) -> None:
        if self.down:
            await asyncio.Event().wait()

    def lease(self, identity: str) -> Any:
        link = self

        class MemberLease:
            async def read(self) -> tuple[LeaderElectionRecord, str]:
                await link.reach()
                if identity not in link.world.values:
                    raise NotFound(identity)
                return link.world.values[identity]

            async def write(self, record: LeaderElectionRecord, version: str) -> str:
                await link.reach()
                return link.world.put(identity, record, version)

        return MemberLease()

    async def members(self) -> dict[str, LeaderElectionRecord]:
        await self.reach()
        return {key: record for key, (record, _) in self.world.values.items() if key}

    async def read(self) -> tuple[ShardAssignment, str]:
        await self.reach()
        return self.world.values.get("", (ShardAssignment.empty(), ""))

    async def write(self, table: ShardAssignment, version: str) -> str:
        await self.reach()
        return self.world.put("", table, version)

    async def sweep(self, gone: Any) -> None:
        await self.reach()
        for key, record in gone.items():
            if key in self.world.values and self.world.values[key][0] == record:
                del self.world.values[key]


class Group:
    """Processes that share, each with one controller and one task for leaders, and what each is doing."""

    def __init__(self, clock: Any, caches: Any, make_manager: Any) -> None:
        self.clock, self.caches, self._make = clock, caches, make_manager
        self.world = MemoryShards()
        self.links: dict[str, Link] = {}
        self.working: dict[str, set[str]] = {}  # process -> namespaces being reconciled, and "task"
        self.ended: list[str] = []
        self.clashes: list[str] = []  # what two did at once
        self.members: dict[str, Any] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.linger = 0.0  # seconds that interrupted work takes to end
        self.running: dict[str, tuple[Any, asyncio.Task[None]]] = {}

    async def start(self, name: str) -> None:
        working = self.working[name] = set()
        gate = self.gates[name] = asyncio.Event()
        self.links[name] = Link(self.world)

        async def during(what: str) -> None:
            self.clashes += [f"{what} by {name} and {other}" for other, at in self.working.items() if what in at]
            working.add(what)
            try:
                await gate.wait()
                self.ended.append(what)
            finally:
                if self.linger:
                    await self.clock.sleep(self.linger)
                working.discard(what)

        async def reconcile(ctx: Any, obj: App) -> None:
            await during(obj.namespace)

        async def task() -> None:
            await during("task")

        manager = self._make(Controller(App, reconcile).with_options(concurrency=20))
        manager.add_task("only one", task)
        self.members[name] = manager.share(self.links[name], identity=name, timing=TIMING)
        self.running[name] = manager, asyncio.create_task(manager.run())
        for informer in self.caches:
            informer.sync(*APPS)
        await settle()

    async def stop(self, name: str) -> None:
        manager, task = self.running.pop(name)
        manager.stop()
        manager.stop()
        while not task.done():
            await self.clock.advance(1)
        task.result()

    async def close(self) -> None:
        for link in self.links.values():
            link.down = False
        for name in list(self.running):
            await self.stop(name)
        assert self.clashes == []


EVERYTHING = {"task", *(one.namespace for one in APPS)}


@pytest.fixture
async def group(clock, caches, make_manager):
    made = Group(clock, caches, make_manager)
    yield made
    await made.close()


async def test_alone_a_member_does_everything(group):
    await group.start("one")
    await group.clock.advance(5)
    assert group.working["one"] == EVERYTHING


async def test_what_goes_to_another_is_interrupted_there_and_begun_here_and_one_runs_the_task(group):
    """None of this work ever ends by itself."""
    await group.start("one")
    await group.clock.advance(5)
    await group.start("two")
    await group.clock.advance(10)
    assert group.working["one"] | group.working["two"] == EVERYTHING
    assert group.working["one"]
    assert group.working["two"]
    assert group.ended == []
    await group.stop("one")
    await group.clock.advance(10)
    assert group.working["two"] == EVERYTHING


async def test_what_goes_to_another_may_end_first(group):
    await group.start("one")
    await group.clock.advance(5)
    await group.start("two")

    def leaving() -> set[str]:
        return {one for one in group.working["one"] - {"task"} if not group.members["one"].owns(one)}

    await group.clock.advance_until(leaving)
    handed = leaving()
    await group.clock.advance(1)  # they have begun to be let go, and still have a second
    group.gates["one"].set()
    await group.clock.advance(10)
    assert handed <= set(group.ended)


async def test_with_the_lease_everything_ends_at_once_and_is_taken_up_by_the_others(group):
    await group.start("one")
    await group.start("two")
    await group.clock.advance(15)
    group.links["one"].down = True
    await group.clock.advance(TIMING.renew_seconds + 0.1)
    assert group.working["one"] == set()
    await group.clock.advance(10)
    assert group.working["two"] == EVERYTHING


async def test_interrupted_work_is_handed_over_only_when_it_has_really_ended(group):
    group.linger = 5.0
    await group.start("one")
    await group.clock.advance(5)
    await group.start("two")
    await group.clock.advance(20)
    assert group.working["one"] | group.working["two"] == EVERYTHING
    assert group.working["two"]
    assert group.clashes == []
