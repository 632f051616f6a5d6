"""Schedules on the real control plane: operators are processes that are killed and stopped, and time is real.

Several schedules share one control plane, each in a namespace of its own with two processes of its operator, so a
restart of kube-apiserver strikes all of them. The history is read from the server's audit log, which has the body of
every write and the user that made it; each process is a user. Half of the control planes forget all the time: without a
watch cache, and with a compaction every second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.kube.api.errors import KubeError, TooManyRequests
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.simulate import simulation
from steersman.testing import ControlPlane
from steersman.testing.controlplane.processes import Child
from tests.support.chaos.history import WRITES, FaultSpan, History, Life, ObjectVersion, RequestEntry
from tests.support.chaos.operators import subject
from tests.support.chaos.run import judge

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tests.support.chaos.operators import Subject
    from tests.support.chaos.report import Outcome
    from tests.support.chaos.schedule import Schedule, Step

__all__ = ["AUDIT_POLICY", "RealRun", "run_together"]

STEERSMAN = Path(sys.executable).with_name("steersman")
FORGETFUL = ("--watch-cache=false", "--etcd-compaction-interval=1s")
PATIENCE = 600.0  # seconds in which the expected state must come, on a machine that has much else to do
STILL = 10.0  # seconds without a write after which the operator is at rest
DISCOVERY_SECONDS = 10.0  # after which kube-apiserver lists new kinds in its discovery documents
LONGEST = 30.0  # seconds of a fault that lasts: twice a lease
LEADERSHIP_LOST = ("the lease could not be renewed", "holds the lease now")
EVERYTHING = [
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
]
AUDIT_POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "omitManagedFields": True,
    "rules": [{"level": "RequestResponse", "verbs": sorted(WRITES)}, {"level": "Metadata"}],
}


class _Time:
    """The time of the machine, as a `steersman.clock.Clock` has it."""

    def monotonic(self) -> float:
        return time.time()  # that of the audit log

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


async def run_together(schedules: Sequence[Schedule], *, forgetful: bool) -> list[Outcome]:
    """Run schedules at once on one control plane of their own, and judge each."""
    flags = FORGETFUL if forgetful else ()
    async with contextlib.AsyncExitStack() as stack:
        plane = await stack.enter_async_context(
            _Plane(apiserver_flags=flags, controllers=("garbage-collector-controller",))
        )
        for name in sorted({schedule.operator for schedule in schedules}):
            async with _client(plane, "installer") as installer:
                await subject(name).install(installer)
        await asyncio.sleep(DISCOVERY_SECONDS)
        client = await stack.enter_async_context(_client(plane, "user"))
        nodes = await stack.enter_async_context(_client(plane, "simulation"))
        await stack.enter_async_context(simulation(nodes))
        runs = [RealRun(schedule, plane, client) for schedule in schedules]
        for run in runs:  # before anything goes wrong
            await run.prepare()
        await asyncio.gather(*(run.run() for run in runs))
        return [run.outcome() for run in runs]


class _Plane(ControlPlane):
    """A control plane whose audit log has bodies."""

    def _make_secrets(self, authority: Any) -> None:
        super()._make_secrets(authority)
        self._run.write("audit-policy.json", msgspec.json.encode(AUDIT_POLICY))
        self.restarting = asyncio.Lock()


@contextlib.asynccontextmanager
async def _client(plane: ControlPlane, name: str) -> Any:
    path = plane.folder / f"{name}.kubeconfig"
    async with Client.connect(load_config(plane.write_kubeconfig(path)), user_agent=name) as client:
        yield client


class Process:
    """One replica of the operator: a process that is started again when it ends."""

    def __init__(self, run: RealRun, number: int, kubeconfig: Path) -> None:
        self._run, self._number, self._kubeconfig = run, number, kubeconfig
        self._child: Child | None = None
        self._why = ""
        self.log = run.folder / f"replica-{number}.log"

    async def live(self) -> None:
        """Start processes until cancelled."""
        run = self._run
        try:
            while True:
                life = Life(f"{run.history.agent}-{self._number}", time.time())
                run.history.lives.append(life)
                self._why = ""
                command = [
                    *(STEERSMAN, "run", "--operators", run.subject.name, "--config", run.folder / "steersman.yaml"),
                    *("--listen", "127.0.0.1:0", "--leader-elect", "--lease", f"{run.subject.namespace}/leader"),
                ]
                environment = {"KUBECONFIG": str(self._kubeconfig), "PATH": os.defpath, "HOME": str(run.folder)}
                self._child = Child(command, log=self.log, environment=environment)
                code = await self._child.wait()
                life.end, life.ended = self._why or f"exit code {code}: {self._child.tail()[-500:]}", time.time()
                if not self._why and any(sign in life.end for sign in LEADERSHIP_LOST):
                    life.end = "lost leadership"
        finally:
            if self._child is not None:
                self._child.signal(signal.SIGCONT)
                await self._child.stop(deadline=0.0)

    async def disturb(self, step: Step, seconds: float) -> None:
        """kill -9, SIGTERM, or SIGSTOP for a while."""
        if (child := self._child) is None:
            return
        if step.name == "pause":
            child.signal(signal.SIGSTOP)
            await asyncio.sleep(seconds)
            child.signal(signal.SIGCONT)
        else:
            self._why = step.name
            child.signal(signal.SIGKILL if step.name == "crash" else signal.SIGTERM)


class RealRun:
    """One schedule in a namespace of its own."""

    def __init__(self, schedule: Schedule, plane: _Plane, client: Client) -> None:
        self.schedule, self._plane, self._client = schedule, plane, client
        self.subject: Subject = subject(schedule.operator)
        self.subject.namespace = f"{schedule.operator}-{schedule.seed}"
        self.history = History(agent=f"operator-{self.subject.namespace}")
        clock: Any = _Time()
        self.subject.clock, self.subject.history = clock, self.history
        self.folder = plane.folder / self.subject.namespace
        self.folder.mkdir()
        self._mark = plane.audit.mark()
        self._lifting: list[asyncio.Task[None]] = []

    async def prepare(self) -> None:
        """Create the namespace, what users begin with, and a user for each replica."""
        client, namespace = self._client, self.subject.namespace
        (self.folder / "steersman.yaml").write_text(self.subject.settings())
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        await self.subject.prepare(client)
        users = [f"{self.history.agent}-{number}" for number in range(self.schedule.replicas)]
        self._replicas = [
            Process(self, number, await self._plane.user(user, EVERYTHING)) for number, user in enumerate(users)
        ]

    async def run(self) -> None:
        """From the start of the replicas to the end of the rest."""
        living = [asyncio.create_task(replica.live()) for replica in self._replicas]
        try:
            await self._converge()
            if not self.history.unmet:
                await self._take_steps()
                await self._patiently(lambda: self.subject.finish(self._client))
                await self._converge()
                await self._rest()
        finally:
            for task in (*living, *self._lifting):
                task.cancel()
            await asyncio.gather(*living, *self._lifting, return_exceptions=True)
            await self.subject.close()

    def outcome(self) -> Outcome:
        """Judge what the audit log and the logs of the processes say."""
        history = self.history
        history.logs += [line for replica in self._replicas for line in replica.log.read_text().splitlines()]
        self._read_audit()
        return judge(self.schedule, self.subject, history)

    async def _take_steps(self) -> None:
        start = time.time()
        for step in self.schedule.steps:
            await asyncio.sleep(max(0.0, start + step.at - time.time()))
            if step.is_fault:
                self._lifting.append(asyncio.create_task(self._disturb(step)))
            elif await self._patiently(lambda step=step: self.subject.act(self._client, step)):  # type: ignore[misc]
                self.history.changes.append(str(step))
        await asyncio.gather(*self._lifting)

    async def _disturb(self, step: Step) -> None:
        span = FaultSpan(step.name, step.target, time.time(), time.time())
        self.history.faults.append(span)
        kind, _, number = step.target.partition("/")
        seconds = 1.0 + LONGEST * step.amount
        if kind == "server":
            async with self._plane.restarting:
                await self._plane.restart_server()
        elif kind == "replica":
            await self._replicas[int(number)].disturb(step, seconds)
        else:
            await self.subject.disturb(step, seconds)
        span.ended = time.time()

    async def _converge(self) -> None:
        start = time.time()
        while time.time() < start + PATIENCE:
            unmet = await self._unmet()
            if not unmet:
                self.history.recovery = time.time() - start
                return
            await asyncio.sleep(0.5)
        self.history.unmet += unmet

    async def _unmet(self) -> list[str]:
        self._read_audit()
        return await self._patiently(lambda: self.subject.unmet(self._client, self.history))

    async def _rest(self) -> None:
        """Wait until nothing is written, then change something that does not matter."""
        start, before = time.time(), -1
        while time.time() < start + PATIENCE and before != len(self.history.operator_writes()):
            before = len(self.history.operator_writes())
            await asyncio.sleep(STILL)
            self._read_audit()
        self.history.rest = self.history.place
        await self._patiently(lambda: self.subject.touch(self._client))
        await asyncio.sleep(STILL)
        self._read_audit()

    async def _patiently(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Users try again while the API server is away."""
        while True:
            try:
                return await ask()
            except TooManyRequests:
                pass
            except KubeError as error:
                if not error.retryable:
                    raise
            await asyncio.sleep(0.3)

    def _read_audit(self) -> None:
        """Add what the audit log has more than before."""
        path = self._plane.folder / "audit.log"
        with path.open("rb") as file:
            file.seek(self._mark)
            text = file.read()
        lines = text[: text.rfind(b"\n") + 1]
        self._mark += len(lines)
        for line in lines.splitlines():
            event = msgspec.json.decode(line)
            self._add(event, event.get("objectRef") or {})

    def _add(self, event: dict[str, Any], target: dict[str, Any]) -> None:
        if target.get("namespace") != self.subject.namespace:
            return
        history, user, status = self.history, event["user"]["username"], event.get("responseStatus", {}).get("code", 0)
        agent = user if history.by_operator(user) else event.get("userAgent", "").rpartition(" ")[2]
        resource = ".".join(filter(None, (target["resource"], target.get("apiGroup", ""))))
        if event["verb"] in WRITES and status < 400:
            self._add_version(event, target, resource, agent)
        history.requests.append(
            RequestEntry(
                history.next_place(),
                datetime.fromisoformat(event["stageTimestamp"]).timestamp(),
                agent,
                event["verb"],
                resource,
                target["namespace"],
                target.get("name", ""),
                target.get("subresource", ""),
                event["requestURI"],
                status,
            )
        )

    def _add_version(self, event: dict[str, Any], target: dict[str, Any], resource: str, agent: str) -> None:
        """The object that a write left, unless it left everything as it was."""
        history, found = self.history, event.get("responseObject") or {}
        kind = {"create": "ADDED", "delete": "DELETED"}.get(event["verb"], "MODIFIED")
        last = next(
            (v for v in reversed(history.versions) if (v.resource, v.name) == (resource, target.get("name"))), None
        )
        if found.get("kind") == "Status" and last is not None:
            found = last.object  # the answer to a deletion
        meta = found.get("metadata") or {}
        if "name" not in meta or target.get("subresource") not in (None, "", "status"):
            return
        revision = int(meta.get("resourceVersion") or 0)
        if kind == "MODIFIED" and last is not None and last.revision == revision:
            return
        if kind == "DELETED" and "deletionTimestamp" in meta:
            kind = "MODIFIED"
        history.versions.append(ObjectVersion(history.next_place(), revision, kind, resource, found, agent))
