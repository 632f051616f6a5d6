"""Leadership changes hands while objects churn: never two act at once, and nothing is lost.

Every child says who wrote it. The order in which the server stored those writes is the proof: once somebody else has
written, who wrote before never writes again.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry

from steersman.kube.api.objects import ObjectMeta, Resource
from steersman.kube.api.types.coordination import Lease
from steersman.kube.client.client import PatchType
from steersman.runtime.controller.builder import Controller
from steersman.runtime.leaderelection.elector import LeaderElector, LeadershipLost, LeaseLock
from steersman.runtime.manager.manager import Manager
from steersman.testing import FastClock, eventually
from steersman.testing.controlplane.processes import Child as Process

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow  # many rounds; make test runs them, make check does not

STEERSMAN = Path(sys.executable).with_name("steersman")
LOST = re.compile("the lease could not be renewed|holds the lease now")
SPEED = 5  # a lease lasts three seconds


class Parent(Resource, version="v1", kind="ConfigMap", plural="configmaps"):
    data: dict[str, str] | None = None


class Child(Resource, version="v1", kind="ConfigMap", plural="configmaps"):
    data: dict[str, str] | None = None


class Scene:
    """Parents that churn, and a record of every write of a child in the order the server stored it."""

    def __init__(self, client: Any, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.writes: list[dict[str, str]] = []
        self.wanted: dict[str, str] = {}
        self._values = itertools.count(1)

    async def record(self, watching: asyncio.Event) -> None:
        options = {"namespace": self.namespace, "label_selector": "role=child", "timeout_seconds": 600}
        async with self.client.watch(Child, resource_version="0", **options) as events:
            watching.set()
            async for event in events:
                if event.type in {"ADDED", "MODIFIED"}:
                    self.writes.append(event.object.data)

    async def churn(self, count: int = 1) -> None:
        """Change objects in turn."""
        for _ in range(count):
            number = next(self._values)
            name, value = f"n{number % 5}", str(number)
            meta = ObjectMeta(name=name, namespace=self.namespace, labels={"role": "parent"})
            if name in self.wanted:
                patch = {"data": {"value": value}}
                await self.client.patch(Parent, name, patch, type=PatchType.MERGE, namespace=self.namespace)
            else:
                await self.client.create(Parent(metadata=meta, data={"value": value}))
            self.wanted[name] = value

    async def done(self) -> bool:
        """Whether every child says what its parent says, and the record says so too."""
        found = await self.client.list(Child, namespace=self.namespace, label_selector="role=child")
        said = {child.name: child.data["value"] for child in found.items}
        recorded = {write["value"] for write in self.writes}  # the record may be behind the list
        return said == {f"{name}-child": value for name, value in self.wanted.items()} and recorded >= {*said.values()}

    def writers(self) -> list[str]:
        """Who wrote, one entry for each uninterrupted series."""
        return [writer for writer, _ in itertools.groupby(write["writer"] for write in self.writes)]


@pytest.fixture
async def scene(client, namespace):
    made, watching = Scene(client, namespace), asyncio.Event()
    recording = asyncio.create_task(made.record(watching))
    await watching.wait()
    yield made
    recording.cancel()
    await asyncio.gather(recording, return_exceptions=True)


# -- two managers in one process --------------------------------------------------------------------------------------


class Stage:
    """Who acts at this moment."""

    def __init__(self) -> None:
        self.acting: Counter[str] = Counter()
        self.together: list[list[str]] = []

    @contextlib.contextmanager
    def entered_by(self, name: str) -> Iterator[None]:
        self.acting[name] += 1
        if len(self.acting) > 1:
            self.together.append(list(self.acting))
        try:
            yield
        finally:
            self.acting[name] -= 1
            self.acting += Counter()  # drops who has left


class Replica:
    """One manager with its own way to the server."""

    def __init__(self, road: Any, name: str, namespace: str, stage: Stage) -> None:
        self.road, self.name, self.namespace, self.stage = road, name, namespace, stage

    async def start(self) -> None:
        clock = FastClock(SPEED)
        client = await self.road.client(through=True, clock=clock)
        self.elector = LeaderElector(LeaseLock(client, "chaos", self.namespace), identity=self.name, clock=clock)
        controller = (
            Controller(Parent, self._reconcile, "copy")
            .select(namespaces=[self.namespace], label_selector="role=parent")
            .reads(Child, namespaces=[self.namespace], label_selector="role=child")
        )
        registry = CollectorRegistry()
        self.manager = Manager(client, [controller], elector=self.elector, registry=registry, clock=clock)
        self.task = asyncio.create_task(self.manager.run())

    async def _reconcile(self, ctx: Any, parent: Any) -> None:
        with self.stage.entered_by(self.name):
            name, value = f"{parent.name}-child", (parent.data or {})["value"]
            live = ctx.cache[Child].get(type(parent.ref)(name, parent.namespace))
            if live is None or live.data["value"] != value:
                meta = ObjectMeta(name=name, namespace=parent.namespace, labels={"role": "child"})
                await ctx.apply(Child(metadata=meta, data={"value": value, "writer": self.name}))

    @property
    def leads(self) -> bool:
        return self.manager.working.is_set() and not self.task.done()


async def stop(leader: Replica) -> None:
    """Asked to, as at every rollout."""
    leader.manager.stop()
    with contextlib.suppress(LeadershipLost):  # a machine that is busy enough takes it away before
        await leader.task


async def kill(leader: Replica) -> None:
    """Without a word: nobody hears of it, and nothing is given back."""
    leader.road.proxy.refuse()
    await leader.road.proxy.cut()
    leader.task.cancel()
    with contextlib.suppress(asyncio.CancelledError, LeadershipLost):
        await leader.task


async def partition(leader: Replica) -> None:
    """It lives, and cannot reach the server any more: it must find out by itself."""
    leader.road.proxy.freeze()
    with contextlib.suppress(LeadershipLost):
        await leader.task
    await leader.road.proxy.cut()  # what was under way never arrives


@pytest.mark.timeout(600)
@pytest.mark.parametrize("ways", [(stop, kill, partition), (partition, kill, stop)], ids=lambda ways: ways[0].__name__)
async def test_leadership_changes_hands_and_never_two_act_at_once(cluster, scene, road_to, ways):
    stage, names = Stage(), itertools.count(1)

    async def replica() -> Replica:
        made = Replica(await road_to(cluster), f"replica-{next(names)}", scene.namespace, stage)
        await made.start()
        return made

    async def somebody_leads() -> Replica | None:
        for ended in [replica for replica in replicas if replica.task.done()]:
            replicas[replicas.index(ended)] = await replica()
        return next((replica for replica in replicas if replica.leads), None)

    replicas = [await replica(), await replica()]
    try:
        for end in ways:
            leader = await eventually(somebody_leads, "somebody leads")
            await scene.churn(10)
            await eventually(lambda one=leader: one.name in scene.writers() or one.task.done(), "the leader writes")
            ending = asyncio.create_task(end(leader))
            while not ending.done():
                await scene.churn()
            await ending
            replicas.remove(leader)
            replicas.append(await replica())

        async def all_done() -> bool:
            return await somebody_leads() is not None and await scene.done()

        await eventually(all_done, "every object was seen to")
    finally:
        for one in replicas:
            one.manager.stop()
        await asyncio.gather(*(replica.task for replica in replicas), return_exceptions=True)
    assert len(scene.writers()) > 1
    assert stage.together == []
    assert len(scene.writers()) == len(set(scene.writers())), "somebody wrote after another had taken over"


# -- two processes ----------------------------------------------------------------------------------------------------

OPERATOR = """
import os, time
import steersman as sm

class Parent(sm.Resource, version="v1", kind="ConfigMap", plural="configmaps"):
    data: dict[str, str] | None = None

class Child(sm.Resource, version="v1", kind="ConfigMap", plural="configmaps"):
    data: dict[str, str] | None = None

async def reconcile(ctx, parent):
    ref = sm.NamespacedName(f"{parent.name}-child", parent.namespace)
    live = ctx.cache[Child].get(ref)
    if live is None or live.data["value"] != parent.data["value"]:
        meta = sm.ObjectMeta(name=ref.name, namespace=ref.namespace, labels={"role": "child"})
        data = {"value": parent.data["value"], "writer": str(os.getpid()), "stamp": str(time.monotonic_ns())}
        await ctx.apply(Child(metadata=meta, data=data))

NAMESPACE = os.environ["CHAOS_NAMESPACE"]
copy = (
    sm.Controller(Parent, reconcile, "copy")
    .select(namespaces=[NAMESPACE], label_selector="role=parent")
    .reads(Child, namespaces=[NAMESPACE], label_selector="role=child")
)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_leader_killed_with_signal_9_is_followed_by_another_process_and_nothing_is_lost(
    cluster, scene, client, tmp_path
):
    config = tmp_path / "operator.kubeconfig"
    cluster.write_kubeconfig(config)
    (tmp_path / "copying.py").write_text(OPERATOR)
    command = [str(STEERSMAN), "run", str(tmp_path / "copying.py")]
    command += ["--leader-elect", "--lease", f"{scene.namespace}/chaos", "--listen", "127.0.0.1:0"]
    environment = {"CHAOS_NAMESPACE": scene.namespace, "KUBECONFIG": str(config), "PATH": "/usr/bin:/bin"}
    numbers = itertools.count(1)

    def start() -> Process:
        log = tmp_path / f"operator-{next(numbers)}.log"
        return Process(command, log=log, environment=environment)

    async def leader() -> str:
        lease = await client.get(Lease, "chaos", namespace=scene.namespace)
        return lease.spec.holder_identity or ""

    async def other_than(before: str) -> str:
        holder = await leader()
        return holder if holder != before else ""

    async def done() -> bool:
        """Whether the work is done, by processes that are started again like those of a Deployment."""
        for ended in [process for process in processes if process.exit_code is not None]:
            assert LOST.search(ended.tail()), ended.tail()  # which a busy machine may do, and nothing else
            processes[processes.index(ended)] = start()
        return await scene.done()

    processes = [start(), start()]
    try:
        for end in ("kill", "term"):
            await scene.churn(10)
            await eventually(done, "the leader works")
            before, writer = await leader(), scene.writers()[-1]
            acting = next(process for process in processes if str(process.pid) == writer)
            if end == "kill":
                acting.kill()
            else:
                stopping = asyncio.create_task(acting.stop(deadline=120))
            await scene.churn(10)
            code = await acting.wait()
            assert code == (-9 if end == "kill" else 0) or LOST.search(acting.tail()), acting.tail()
            processes.remove(acting)
            processes.append(start())
            await eventually(lambda before=before: other_than(before), "another process leads")
            await scene.churn(10)
            await eventually(done, "the next leader works")
        await stopping
    except AssertionError as error:
        raise AssertionError(f"{error}\n" + "\n".join(process.tail() for process in processes)) from None
    finally:
        await asyncio.gather(*(process.stop(deadline=60) for process in processes))
    assert len(scene.writers()) == len(set(scene.writers())) >= 3
    ends = {writer: max(stamps(scene, writer)) for writer in scene.writers()}
    for first, second in itertools.pairwise(scene.writers()):
        assert ends[first] < min(stamps(scene, second))


def stamps(scene: Scene, writer: str) -> list[int]:
    return [int(write["stamp"]) for write in scene.writes if write["writer"] == writer]
