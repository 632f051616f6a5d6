"""Random schedules of faults while objects churn: at the end nothing is lost, nothing was done twice.

A schedule is a list of steps that follows from its seed alone, so a failure shows it and `STEERSMAN_CHAOS_SEEDS=<seed>`
runs it again; how the steps meet the clock is chance, as in life. Churn goes straight to the server. A controller that
keeps one child per object goes through a proxy that misbehaves, to a server that misbehaves, and is killed at times.
An observer with a connection of its own writes down what really happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry

from steersman.apiserver import EmbeddedServer
from steersman.apiserver.http.faults import Fault
from steersman.cache.list_watch_state import ListWatchState
from steersman.kube.api.errors import KubeError, ResourceExpired
from steersman.kube.api.objects import ObjectMeta, Resource
from steersman.kube.client.client import PatchType
from steersman.kube.transport.request_headers import user_agent
from steersman.runtime.controller.builder import Controller
from steersman.runtime.manager.manager import Manager
from steersman.testing import ControlPlane, FastClock, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.slow  # many rounds; make test runs them, make check does not

NAMES = [f"n{number}" for number in range(6)]
SPEED = 50  # backoffs of seconds become tens of milliseconds
FORGETFUL = ("--watch-cache=false", "--etcd-compaction-interval=1s")


class Parent(Resource, version="v1", kind="ConfigMap", plural="configmaps"):
    data: dict[str, str] | None = None


class Child(Resource, version="v1", kind="ConfigMap", plural="configmaps"):
    data: dict[str, str] | None = None


# -- schedules: pure, from a seed -------------------------------------------------------------------------------------

ROAD = ["cut", "reset", "half-close", "freeze", "thaw", "refuse", "accept", "delay", "throttle", "clear"]
SERVER = ["429", "500", "503", "drop", "drop-after", "truncate", "stutter", "compact"]
LIFE = ["kill", "settle"]


def schedule(seed: int, server: list[str]) -> list[tuple[str, Any]]:
    """Faults and churn in turn; every fault is met by at least one change. `server` is what the server can do."""
    luck = random.Random(seed)
    faults = [*ROAD, *LIFE, *server]
    steps: list[tuple[str, Any]] = []
    for _ in range(luck.randrange(5, 12)):
        steps.append((luck.choice(faults), luck.random()))
        steps += [("churn", (luck.choice(NAMES), luck.random())) for _ in range(luck.randrange(1, 6))]
    return steps


# -- what is observed -------------------------------------------------------------------------------------------------


class Truth:
    """What really happened, by a watch that nobody disturbs."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.made: dict[str, list[int]] = defaultdict(list)  # revisions at which a child was created
        self.removed: dict[str, list[int]] = defaultdict(list)
        self.died: dict[str, int] = {}  # uid of a parent, and the revision at which it went
        self.revision = 0
        self.problems: list[str] = []

    async def follow(self, client: Any, namespace: str, watching: asyncio.Event) -> None:
        options = {"namespace": namespace, "label_selector": "chaos", "timeout_seconds": 600}
        try:
            async with client.watch(Child, resource_version="0", **options) as events:
                watching.set()
                async for event in events:
                    self.note(event)
            self.problems.append("the observer's watch ended")
        except KubeError as error:
            self.problems.append(f"the observer's watch failed: {error}")

    def note(self, event: Any) -> None:
        obj = event.object
        name, revision = obj.name, int(obj.metadata.resource_version)
        self.revision = max(self.revision, revision)
        if event.type == "BOOKMARK":
            return
        if event.type == "DELETED":
            self.objects.pop(name, None)
            if is_child(obj):
                self.removed[name].append(revision)
            else:
                self.died[obj.metadata.uid] = revision
            return
        if event.type == "ADDED" and is_child(obj):
            self.made[name].append(revision)
        self.objects[name] = obj

    def judge(self) -> list[str]:
        """A child of a living parent is made once and never removed; a late request may still reach a dead one's."""
        found = list(self.problems)
        for name, times in self.made.items():
            died = self.died.get(uid_in(name), float("inf"))
            if len([when for when in times if when < died]) > 1:
                found.append(f"{name} was created at {times}, and its parent died at {died}")
            if early := [when for when in self.removed[name] if when < died]:
                found.append(f"{name} was removed at {early}, before its parent died at {died}")
        return found


class Witness:
    """What one informer told its handlers: it must follow from what it told them before."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}
        self.problems: list[str] = []

    def __call__(self, old: Any, new: Any, initial: bool) -> None:
        name = (new or old).name
        before = self.known.get(name)
        if before is not old:
            self.problems.append(f"{name}: told of a change from {_brief(old)}, but before it was {_brief(before)}")
        if new is None:
            self.known.pop(name, None)
            return
        if old is not None and int(new.metadata.resource_version) < int(old.metadata.resource_version):
            self.problems.append(f"{name}: back in time, from {_brief(old)} to {_brief(new)}")
        self.known[name] = new


def _brief(obj: Any) -> str:
    return "nothing" if obj is None else f"{obj.metadata.uid[:8]}@{obj.metadata.resource_version}"


def is_child(obj: Any) -> bool:
    return (obj.metadata.labels or {}).get("role") == "child"


def child_name(parent: Any) -> str:
    return f"{parent.name}.{parent.metadata.uid}"


def uid_in(name: str) -> str:
    return name.partition(".")[2]


def contents(objects: Any) -> dict[str, tuple[str, str]]:
    """What is compared: which object, at which revision."""
    return {obj.name: (obj.metadata.uid, obj.metadata.resource_version) for obj in objects}


# -- what is disturbed ------------------------------------------------------------------------------------------------


class Life:
    """One life of the controller: a process, as far as it matters here."""

    def __init__(self, client: Any, namespace: str, clock: FastClock, streaming: bool) -> None:
        self.client = client
        self.seen: dict[str, str] = {}  # the revision at which each object was last reconciled to the end
        self.parents, self.children = Witness(), Witness()
        controller = (
            Controller(Parent, self._reconcile, "chaos")
            .select(namespaces=[namespace], label_selector="chaos,role=parent")
            .watches(Child, to=self._parent_of, namespaces=[namespace], label_selector="chaos,role=child")
            .on_missing(self._gone)
        )
        self.registry = CollectorRegistry()
        self.manager = Manager(client, [controller], registry=self.registry, clock=clock)
        self.informers: list[Any] = list(self.manager.cluster().caches)
        for informer in self.informers:
            for reflector in informer._scopes.values():  # both ways to a first list are tried; users need no switch
                reflector._progress = ListWatchState(streaming=streaming)
        for informer, witness in zip(self.informers, (self.parents, self.children), strict=True):
            informer.add_handler(witness)
        self.task = asyncio.create_task(self.manager.run())

    @staticmethod
    def _parent_of(child: Any) -> list[Any]:
        return [type(child.ref)(child.name.partition(".")[0], child.namespace)]

    async def _reconcile(self, ctx: Any, parent: Any) -> None:
        await self._remove(ctx, parent.ref, spare=child_name(parent))
        meta = ObjectMeta(name=child_name(parent), namespace=parent.namespace, labels={"chaos": "yes", "role": "child"})
        await ctx.apply(Child(metadata=meta, data=dict(parent.data or {})))
        self.seen[parent.name] = parent.metadata.resource_version

    async def _gone(self, ctx: Any, key: Any) -> None:
        await self._remove(ctx, key, spare="")
        self.seen.pop(key.name, None)

    async def _remove(self, ctx: Any, key: Any, spare: str) -> None:
        for child in ctx.cache[Child].list(namespace=key.namespace):
            if child.name.partition(".")[0] == key.name and child.name != spare:
                await ctx.delete(child)

    async def end(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task
        await self.client.close()

    def failures(self) -> Counter[str]:
        """Why lists and watches failed."""
        found: Counter[str] = Counter()
        for family in self.registry.collect():
            for sample in family.samples:
                if sample.name == "steersman_cache_failures_total":
                    found[sample.labels["reason"]] += int(sample.value)
        return found

    def problems(self) -> list[str]:
        broken = [f"the manager failed: {self.task.exception()!r}"] if self.task.done() else []
        return [*broken, *self.parents.problems, *self.children.problems]


class Trial:
    """One schedule on one server."""

    def __init__(self, road: Any, seed: int) -> None:
        self.road, self.seed = road, seed
        self.agent = self.namespace = f"chaos-{seed}"
        self.clock = FastClock(SPEED)
        self.luck = random.Random(seed)
        self.steps = schedule(seed, SERVER if isinstance(road.server, EmbeddedServer) else [])
        self.truth = Truth()
        self.faults: list[Fault] = []
        self.problems: list[str] = []
        self.direct: Any = None
        self.life: Life | None = None
        self.changes = 0
        self.met: Counter[str] = Counter()  # why lists and watches failed

    async def run(self) -> None:
        self.direct = await self.road.client(through=False)
        await self.direct.create(Namespace(metadata=ObjectMeta(name=self.namespace)))
        watching = asyncio.Event()
        observing = asyncio.create_task(self.truth.follow(self.direct, self.namespace, watching))
        try:
            await watching.wait()
            await self._begin()
            for step, detail in self.steps:
                await self._take(step, detail)
            self._lift()
            await self._converge()
        except AssertionError as error:
            raise AssertionError(f"seed {self.seed}: {error}\n{self.describe()}") from None
        finally:
            self._lift()
            await self._end()
            observing.cancel()
            await asyncio.gather(observing, return_exceptions=True)

    def describe(self) -> str:
        steps = " ".join(step if step != "churn" else detail[0] for step, detail in self.steps)
        return f"run it again with STEERSMAN_CHAOS_SEEDS={self.seed}\nsteps: {steps}"

    async def _end(self) -> None:
        if self.life is not None:
            self.problems += self.life.problems()
            await self.life.end()
            self.met += self.life.failures()

    async def _begin(self) -> None:
        await self._end()
        client = await self.road.client(through=True, user_agent=self.agent, clock=self.clock)
        self.life = Life(client, self.namespace, self.clock, streaming=self.luck.random() < 0.5)

    async def _take(self, step: str, detail: Any) -> None:
        proxy, luck = self.road.proxy, detail if isinstance(detail, float) else 0.0
        actions: dict[str, Callable[[], Any]] = {
            "churn": lambda: self._churn(*detail),
            "cut": proxy.cut,
            "reset": proxy.reset,
            "half-close": proxy.half_close,
            "freeze": proxy.freeze,
            "thaw": proxy.thaw,
            "refuse": proxy.refuse,
            "accept": proxy.accept,
            "delay": lambda: proxy.delay(0.02 * luck),
            "throttle": lambda: proxy.throttle(20_000 + 200_000 * luck),
            "clear": self._lift,
            "kill": self._begin,
            "settle": self._settle,
            "forget": self._forget,
            "compact": lambda: self.road.server.compact(self.truth.revision),  # the observer must not lose anything
        }
        acting = actions[step]() if step in actions else self._misbehave(step, luck)
        if acting is not None:
            await acting

    async def _settle(self) -> None:
        self._lift()
        await self._converge()

    async def _forget(self) -> None:
        """Keep the controller out until the server has forgotten where it was."""
        self.road.proxy.refuse()
        await self.road.proxy.cut()
        revision = str(self.truth.revision)

        async def forgotten() -> bool:
            await self._churn(NAMES[0], 1.0)
            exact = {"resource_version": revision, "resource_version_match": "Exact"}
            try:
                await self.direct.list(Child, namespace=self.namespace, **exact)
            except ResourceExpired:
                return True
            return False

        await eventually(forgotten, "the server forgets")
        self.road.proxy.accept()

    def _misbehave(self, step: str, detail: float) -> None:
        effects: dict[str, Any] = {"429": "throttle", "500": "error", "503": "unavailable", "stutter": "drop"}
        verb = [None, "list", "watch", "patch", "delete"][int(detail * 5)]
        fault = Fault(
            effects.get(step, step),
            verb=verb,
            user_agent=user_agent(self.agent),
            count=None if step == "stutter" else 1 + int(detail * 4),
            probability=0.3 if step == "stutter" else 1.0,
            bytes=int(detail * 2000),
            seconds=1.0,
        )
        self.faults.append(self.road.server.faults.add(fault))

    async def _churn(self, name: str, luck: float) -> None:
        self.changes += 1
        options = {"namespace": self.namespace}
        value = {"value": str(self.changes)}
        if name not in self._parents():
            meta = ObjectMeta(name=name, labels={"chaos": "yes", "role": "parent"}, **options)
            made = await self.direct.create(Parent(metadata=meta, data=value))
            await self._noticed(name, made.metadata.resource_version)
        elif luck < 0.3:
            await self.direct.delete(Parent, name, **options)
            await eventually(lambda: name not in self.truth.objects, "the observer sees the deletion")
        else:
            patched = await self.direct.patch(Parent, name, {"data": value}, type=PatchType.MERGE, **options)
            await self._noticed(name, patched.metadata.resource_version)

    async def _noticed(self, name: str, revision: str) -> None:
        def seen() -> bool:
            known = self.truth.objects.get(name)
            return known is not None and int(known.metadata.resource_version) >= int(revision)

        await eventually(seen, "the observer sees the change")

    def _parents(self) -> dict[str, Any]:
        return {name: obj for name, obj in self.truth.objects.items() if not is_child(obj)}

    def _lift(self) -> None:
        proxy = self.road.proxy
        proxy.thaw()
        proxy.accept()
        proxy.delay(0.0)
        proxy.throttle(None)
        for fault in self.faults:
            self.road.server.faults.remove(fault)
        self.faults.clear()

    async def _converge(self) -> None:
        """Wait until everything is as it should be, then say what went wrong on the way."""
        await eventually(self._as_it_should_be, "cache, children and server agree")
        assert self.life is not None
        assert [*self.problems, *self.life.problems(), *self.truth.judge()] == []

    async def _as_it_should_be(self) -> bool:
        assert self.life is not None
        assert self.life.problems() == []
        listed = (await self.direct.list(Child, namespace=self.namespace, label_selector="chaos")).items
        parents = [obj for obj in listed if not is_child(obj)]
        children = [obj for obj in listed if is_child(obj)]
        assert contents(self.truth.objects.values()) == contents(listed), "the observer is behind"
        for informer, witness, real in zip(
            self.life.informers, (self.life.parents, self.life.children), (parents, children), strict=True
        ):
            with informer.snapshot() as snapshot:
                assert contents(snapshot) == contents(real), f"the cache of {informer.health().name} differs"
                assert [obj.data for obj in snapshot] == [obj.data for obj in real]
            assert contents(witness.known.values()) == contents(real), "handlers were told something else"
        assert {child.name: child.data for child in children} == {child_name(p): p.data for p in parents}
        assert self.life.seen == {p.name: p.metadata.resource_version for p in parents}, "not reconciled at the end"
        return True


class Namespace(Resource, version="v1", namespaced=False):
    pass


# -- the tests --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def forgetful() -> AsyncIterator[ControlPlane]:
    """A real server without a watch cache that compacts all the time: what is a second old is gone."""
    async with ControlPlane(apiserver_flags=FORGETFUL) as plane:
        yield plane


@pytest.fixture
def place(schedule_on, request):
    """The server of this schedule, and its seed."""
    name, seed = schedule_on
    return request.getfixturevalue(name), seed


async def test_after_a_random_schedule_nothing_is_lost_and_nothing_was_done_twice(place, road_to):
    server, seed = place
    await Trial(await road_to(server), seed).run()


async def test_faults_of_the_server_reach_the_controller(embedded, road_to):
    trial, before = Trial(await road_to(embedded), seed=3000), len(embedded.faults.hits)
    trial._misbehave("500", 0.0)
    client = await trial.road.client(through=True, user_agent=trial.agent)
    with contextlib.suppress(KubeError):
        await client.list(Child, namespace="default")
    trial._lift()
    assert [hit.effect for hit in embedded.faults.hits[before:]] == ["error"]


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_after_random_schedules_on_a_server_that_forgets_nothing_is_lost_either(forgetful, road_to, chosen_seeds):
    trials = [Trial(await road_to(forgetful), seed) for seed in chosen_seeds]
    for trial in trials:
        trial.steps.insert(len(trial.steps) // 2, ("forget", None))
    await asyncio.gather(*(trial.run() for trial in trials))
    assert sum((trial.met for trial in trials), Counter())["Expired"] > 0, "nobody was told 410"
