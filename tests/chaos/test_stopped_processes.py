"""Processes that are stopped beyond their term and go on: what they were about to write never arrives.

Real processes, SIGSTOP and SIGCONT, in the middle of reconciles that write on and on with the raw client, the context,
from a thread, and by events. The server's own log of requests is the judge: once another process has written, the one
that was stopped writes nothing more, or, where they share the namespaces, nothing before it was given them back.
"""

from __future__ import annotations

import signal
import sys
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types import ConfigMap, Namespace
from steersman.testing import eventually
from steersman.testing.controlplane.processes import Child

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# All writes of a process come together, at every full second. Asked to, it stops itself there, before the first of
# them: nothing is under way then, and what it goes on with is a write.
OPERATOR = """
import asyncio, math, os, signal, time
import steersman as sm
from steersman.kube.config.kubeconfig import load_config
from steersman.kube.api.types import ConfigMap
from steersman.runtime.leaderelection.rules import LeaseTimings
from steersman.runtime.leaderelection.elector import LeaderElector, LeaseLock
from steersman.runtime.manager.manager import Manager
from steersman.runtime.manager.run import stopped_by_signals
from steersman.runtime.sharding.member import KubeShards

NAME, HOME, MODE, STOP = (os.environ[name] for name in ("NAME", "HOME_NAMESPACE", "MODE", "STOP_FILE"))
TIMING = LeaseTimings(lease_seconds=10, renew_seconds=8, retry_seconds=0.5)

def tick():
    return math.floor(time.monotonic())

def until_next():
    return tick() + 1 - time.monotonic()

async def work(ctx, found):
    while True:
        await asyncio.sleep(until_next())
        if os.path.exists(STOP):
            os.unlink(STOP)
            os.kill(os.getpid(), signal.SIGSTOP)
        await ctx.client.patch(ConfigMap, found.name, {"data": {"raw": NAME}}, namespace=found.namespace)
        await ctx.patch(found, {"data": {"context": NAME}})
        ctx.event(found, "Worked", f"at {tick()}")

def work_in_a_thread(ctx, found):
    while not ctx.abandoned:
        time.sleep(until_next())
        ctx.patch(found, {"data": {"thread": NAME}})

async def main():
    async with sm.Client.connect(load_config(os.environ["CONFIG"]), user_agent=NAME) as client:
        controllers = [
            sm.Controller(sm.ConfigMap, function, name).select(label_selector=f"stopped={HOME}")
            for name, function in (("async", work), ("thread", work_in_a_thread))
        ]
        elector = None
        if MODE == "lead":
            elector = LeaderElector(LeaseLock(client, "lead", HOME), identity=NAME, timing=TIMING)
        manager = Manager(client, controllers, elector=elector, grace_seconds=0)
        if MODE == "share":
            manager.share(KubeShards(client, "share", HOME), identity=NAME, timing=TIMING)
        with stopped_by_signals(manager):
            await manager.run()

asyncio.run(main())
"""


class Write(NamedTuple):
    writer: str
    namespace: str
    resource: str
    uri: str


class Stage:
    """Two processes, and what the server says they wrote."""

    def __init__(self, server: Any, folder: Any, home: str, mode: str) -> None:
        self.server, self.folder, self.home, self.mode = server, folder, home, mode
        self.teams = [f"{home}-{number}" for number in range(6)]
        self.children: dict[str, Child] = {}
        server.write_kubeconfig(folder / "kubeconfig")
        (folder / "stopped_operator.py").write_text(OPERATOR)

    def start(self, name: str) -> None:
        where = {"CONFIG": str(self.folder / "kubeconfig"), "HOME_NAMESPACE": self.home}
        environment = {"NAME": name, "MODE": self.mode, "STOP_FILE": str(self._stop_file(name)), "PATH": "", **where}
        command = [sys.executable, self.folder / "stopped_operator.py"]
        self.children[name] = Child(command, log=self.folder / f"{name}.log", environment=environment)

    def log(self) -> list[Write]:
        """Everything that the processes changed, in the order of the server."""
        audit = getattr(self.server, "audit", None)
        rows = self.server.requests if audit is None else audit.entries()
        made = [
            Write(row.user_agent.split(" ")[-1], row.namespace, row.resource, row.path if audit is None else row.uri)
            for row in list(rows)
            if row.verb not in {"get", "list", "watch"}
        ]
        return [write for write in made if write.writer in self.children]

    def writes(self) -> list[Write]:
        """Those to the objects of teams."""
        return [write for write in self.log() if write.namespace in self.teams]

    def written_by(self, name: str) -> list[Write]:
        return [write for write in self.writes() if write.writer == name]

    async def stop(self, name: str) -> None:
        """Have a process stop itself between two rounds of writes, and wait until it has."""
        self._stop_file(name).touch()
        status = Path(f"/proc/{self.children[name].pid}/stat")
        await eventually(lambda: status.read_text().rpartition(")")[2].split()[0] == "T", f"{name} has stopped")

    def _stop_file(self, name: str) -> Path:
        return Path(self.folder) / f"{name}.stop"


@pytest.fixture
async def stage_of(cluster, client, namespace, tmp_path):
    made: list[Stage] = []

    async def make(mode: str) -> Stage:
        stage = Stage(cluster, tmp_path, namespace, mode)
        made.append(stage)
        for team in stage.teams:
            await client.create(Namespace(metadata=ObjectMeta(name=team)))
            meta = ObjectMeta(name="a", namespace=team, labels={"stopped": namespace})
            await client.create(ConfigMap(metadata=meta, data={}))
        return stage

    yield make
    for stage in made:
        for child in stage.children.values():
            child.signal(signal.SIGCONT)
            await child.stop(deadline=10)


async def test_a_leader_that_was_stopped_beyond_its_term_writes_nothing_when_it_goes_on(stage_of):
    stage = await stage_of("lead")
    stage.start("one")
    await eventually(lambda: {write.namespace for write in stage.written_by("one")} == set(stage.teams))
    stage.start("two")
    await stage.stop("one")
    await eventually(lambda: {write.namespace for write in stage.written_by("two")} == set(stage.teams))
    stage.children["one"].signal(signal.SIGCONT)
    assert await stage.children["one"].wait() != 0, "it ends, because it no longer leads"

    order = [name for name, _ in groupby(write.writer for write in stage.writes())]
    assert order == ["one", "two"], "whoever was stopped has not written after the other did"
    assert {"configmaps", "events"} <= {write.resource for write in stage.written_by("one")}


async def test_a_member_that_was_stopped_beyond_its_term_writes_nothing_before_it_is_given_a_namespace_again(stage_of):
    stage = await stage_of("share")
    stage.start("one")
    await eventually(lambda: {write.namespace for write in stage.written_by("one")} == set(stage.teams))
    await stage.stop("one")
    stage.start("two")
    await eventually(lambda: {write.namespace for write in stage.written_by("two")} == set(stage.teams))
    stopped_after = len(stage.log())
    stage.children["one"].signal(signal.SIGCONT)

    def since() -> list[Write]:
        return [write for write in stage.log()[stopped_after:] if write.writer == "one"]

    def is_table(write: Write) -> bool:
        return write.resource.startswith("leases") and write.uri.partition("?")[0].endswith("-shards")

    await eventually(lambda: any(map(is_table, since())), "it joins again")
    await eventually(lambda: any(write.namespace in stage.teams for write in since()), "it is given some of them back")
    made = since()
    joined = next(number for number, write in enumerate(made) if is_table(write))
    early = [write for write in made[:joined] if write.namespace in stage.teams]
    assert early == [], "before it has joined again nothing is its own"
    orders = {
        team: [name for name, _ in groupby(write.writer for write in stage.writes() if write.namespace == team)]
        for team in stage.teams
    }
    assert all(order in (["one", "two"], ["one", "two", "one"]) for order in orders.values()), orders
