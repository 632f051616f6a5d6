"""One schedule, run: an embedded API server, users, faults, and replicas of an operator behind a proxy each.

Everything is in one event loop and in virtual time. Users and the simulation of workloads connect directly;
only the operator is disturbed. The history is taken from the API server itself, so nothing that happens is missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from contextvars import copy_context
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import structlog
from prometheus_client import CollectorRegistry

from steersman.apiserver import EmbeddedServer, Fault
from steersman.kube.api.errors import Forbidden, ServerError
from steersman.kube.client.client import Client
from steersman.kube.config.config import AuthInfo, Config
from steersman.kube.transport.request_headers import user_agent
from steersman.runtime.leaderelection.elector import LeaderElector, LeadershipLost, LeaseLock
from steersman.runtime.manager.manager import Manager
from steersman.simulate import simulation
from steersman.testing import FaultProxy
from tests.support.chaos.checkers import check
from tests.support.chaos.history import FaultSpan, Footprint, History, Life
from tests.support.chaos.obstacles import exhausted_quota, expired_webhook
from tests.support.chaos.operators import NAMESPACE, subject
from tests.support.chaos.report import Outcome
from tests.support.chaos.schedule import Step
from tests.support.chaos.virtual_loop import PROCESS, LoopClock, VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.chaos.operators import Subject
    from tests.support.chaos.schedule import Schedule

__all__ = ["Run", "judge", "run", "run_guarded"]

PATIENCE = 1800.0  # seconds in which the expected state must come
STILL = 60.0  # seconds without a write after which the operator is at rest
LONGEST = 40.0  # seconds of a fault that lasts
EFFECTS: dict[str, Any] = {"429": "throttle", "500": "error", "503": "unavailable", "stutter": "drop"}
CHURN = 12  # objects that come and go before the memory is compared
CHURN_SECONDS = 10.0  # that they stay
HOUR = 3600.0
ROLLOUT_SECONDS = 5.0  # from one replica to the next
VERBS = (None, "list", "watch", "patch", "create")


def run(schedule: Schedule) -> Outcome:
    """Run a schedule in virtual time and judge its history."""
    random.seed(str(schedule))  # jitter of clients and queues
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_judged(schedule))


def run_guarded(schedule: Schedule) -> Outcome:
    """Run a schedule in a process of its own; what goes wrong with the run itself is a finding too."""
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # connections that a fault cut
    try:
        return run(schedule)
    except Exception as error:  # noqa: BLE001  # the other schedules go on
        return Outcome(schedule=schedule, findings={"the run itself": [repr(error)]})


def judge(schedule: Schedule, subject: Subject, history: History) -> Outcome:
    """What the checkers find in a history."""
    acts = subject.acts(history)
    return Outcome(
        schedule=schedule,
        findings=check(history, acts, subject.causes(history)),
        faults=len(history.faults),
        changes=len(history.changes),
        processes=len(history.lives),
        acts=len(acts),
        recovery=history.recovery,
    )


async def _judged(schedule: Schedule) -> Outcome:
    return await Run(schedule).outcome()


class ReplicaClock(LoopClock):
    """The clock of one process, whose wall clock can be wrong."""

    _offset = 0.0

    def time(self) -> float:
        return super().time() + self._offset

    def step(self, seconds: float) -> None:
        """Set the wall clock forward, or back."""
        self._offset += seconds


class Replica:
    """One place for processes of the operator: when one ends, another is started, as by a kubelet."""

    def __init__(self, run: Run, number: int) -> None:
        self._run, self._number = run, number
        self._lives = 0
        self._why = ""
        self._task: asyncio.Task[None] | None = None
        self._manager: Manager | None = None
        self.agent, self.clock = "", ReplicaClock()
        self.proxy: FaultProxy | None = None

    async def live(self) -> None:
        """Start processes until cancelled."""
        while True:
            await self._one_life()

    async def _one_life(self) -> None:
        run, clock = self._run, self._run.clock
        self._lives += 1
        self.agent, self._why = f"{run.history.agent}-{self._number}-{self._lives}", ""
        self.clock = ReplicaClock()
        life = Life(self.agent, clock.monotonic())
        run.history.lives.append(life)
        address = urlsplit(run.server.url)
        async with FaultProxy(address.hostname or "", address.port or 0) as self.proxy:
            context = copy_context()
            context.run(PROCESS.set, self.agent)
            self._task = asyncio.create_task(self._process(f"http://{self.proxy.address}"), context=context)
            try:
                await self._task
            except LeadershipLost:
                life.end = "lost leadership"
            except asyncio.CancelledError:
                if not self._why:
                    raise
            except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
                life.end = repr(error)
            finally:
                self._manager = None
                run.loop.continue_process(self.agent)
                self._task.cancel()
                await self.proxy.cut()
                await asyncio.gather(self._task, return_exceptions=True)
                life.end, life.ended = self._why or life.end, clock.monotonic()
        if life.end not in {"crash", "restart"}:
            await clock.sleep(1.0)  # what a kubelet waits, and more after each time

    async def _process(self, server: str) -> None:
        config = Config(server=server, auth=AuthInfo(token=self._run.server.token))
        async with Client.connect(config, user_agent=self.agent, clock=self.clock) as client:
            self._manager = self._manage(client)
            await self._manager.run()

    def _manage(self, client: Client) -> Manager:
        run, registry = self._run, CollectorRegistry()
        self._registry = registry
        options: dict[str, Any] = {"registry": registry, "clock": self.clock}
        if run.schedule.replicas > 1:
            lock = LeaseLock(client, f"{run.subject.name}-leader", "default")
            options["elector"] = LeaderElector(lock, identity=self.agent, clock=self.clock)
        manager = Manager(client, grace_seconds=5.0, **options)
        manager.include(run.subject.name, run.subject.bundle(self.clock, registry))
        return manager

    async def crash(self) -> None:
        """The process is gone at once: nothing that it would still send arrives."""
        if self._task is not None and self.proxy is not None:
            self._why = "crash"
            self.proxy.refuse()
            await self.proxy.cut()
            self._run.loop.continue_process(self.agent)  # SIGKILL ends a stopped process too
            self._task.cancel()

    def stop(self) -> None:
        """The process is asked to stop."""
        if self._manager is not None:
            self._why = "restart"
            self._manager.stop()

    def footprint(self) -> Footprint | None:
        """What its process holds in memory now; None when none is at work."""
        if self._manager is None:
            return None
        families = list(self._registry.collect())
        samples = [sample for family in families for sample in family.samples]
        queued, cached = (
            int(sum(sample.value for sample in samples if sample.name == name))
            for name in ("workqueue_depth", "steersman_cache_objects")
        )
        elector = self._manager.elector
        leads = elector is None or elector.leading()  # keys wait on a standby, up to a limit
        series = {
            (family.name, *sorted(label for label in sample.labels.items() if label[0] != "le"))
            for family in families
            for sample in family.samples
        }
        return Footprint(self.agent, len(series), queued if leads else 0, cached)


class Run:
    """One schedule on a server of its own."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.subject: Subject = subject(schedule.operator)
        self.clock = LoopClock()
        self.history = History()
        self.loop: VirtualLoop = asyncio.get_running_loop()  # type: ignore[assignment]
        self.subject.clock, self.subject.history = self.clock, self.history
        self.server = EmbeddedServer(
            tls=False, token="chaos", clock=self.clock, random=random.Random(schedule.seed), seed=schedule.seed
        )
        self._replicas = [Replica(self, number) for number in range(schedule.replicas)]
        self._lifting: set[asyncio.Task[None]] = set()
        self._rules: list[Fault] = []

    async def outcome(self) -> Outcome:
        """Run, and judge."""
        with structlog.testing.capture_logs() as lines:
            await self._run()
        history = self.history
        history.logs += [str(line) for line in lines]
        return judge(self.schedule, self.subject, history)

    async def _run(self) -> None:
        self.server.api.store.listen(self._stored)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.server)
            config = Config(server=self.server.url, auth=AuthInfo(token=self.server.token))
            client = await stack.enter_async_context(Client.connect(config, user_agent="user", clock=self.clock))
            if self.subject.simulated:
                nodes = await stack.enter_async_context(
                    Client.connect(config, user_agent="simulation", clock=self.clock)
                )
                await stack.enter_async_context(simulation(nodes, clock=self.clock))
            await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
            stack.push_async_callback(self.subject.close)
            await self.subject.install(client)
            await self.subject.prepare(client)
            living = [asyncio.create_task(replica.live()) for replica in self._replicas]
            try:
                await self._converge(client)  # the operator is at work when the first step is taken
                if not self.history.unmet:
                    await self._take_steps(client)
                    await asyncio.gather(*self._lifting)
                    await self.subject.finish(client)
                    await self._converge(client)
                recovery = self.history.recovery
                if not self.history.unmet:
                    await self._churn(client)
                await self._rest(client)
                self.history.recovery, self.history.after_churn = recovery, self._footprints()
            finally:
                self._drain()
                for task in (*living, *self._lifting):
                    task.cancel()
                await asyncio.gather(*living, *self._lifting, return_exceptions=True)

    def _stored(self, table: Any, event: Any) -> None:
        self._drain()
        self.history.add_version(event.type, event.revision, table.kind.qualified, event.record.obj)

    def _drain(self) -> None:
        log, now = self.server.requests, self.clock.monotonic()
        while log:
            self.history.add_request(log.popleft(), now)

    async def _take_steps(self, client: Client) -> None:
        start = self.clock.monotonic()
        for step in self.schedule.steps:
            await self.clock.sleep(start + step.at - self.clock.monotonic())
            self._drain()
            if step.is_fault and not step.target.startswith("replica/"):
                self._lifting.add(asyncio.create_task(self._disturb_around(client, step)))
            elif step.is_fault:
                await self._disturb(step)
            elif await self._act(client, step):
                self.history.changes.append(str(step))

    async def _act(self, client: Client, step: Step) -> bool:
        try:
            return await self.subject.act(client, step)
        except (Forbidden, ServerError):  # a quota or a webhook: the user is told, and nothing happened
            return False

    async def _converge(self, client: Client) -> None:
        """Wait for the end of the faults, and then until everything is as it should be and nothing is written."""
        await asyncio.gather(*self._lifting)
        start = self.clock.monotonic()
        while self.clock.monotonic() < start + PATIENCE:
            self._drain()
            if not await self.subject.unmet(client, self.history):
                self.history.recovery = self.clock.monotonic() - start
                return
            await self.clock.sleep(0.5)
        self.history.unmet += await self.subject.unmet(client, self.history)

    async def _churn(self, client: Client) -> None:
        """Let many objects come and go, so that what is kept of objects that are gone shows."""
        await self.clock.sleep(STILL)  # a process that has only just begun to work holds less
        self.history.before_churn = self._footprints()
        create, delete, kind = self.subject.churn
        for action in (create, delete):
            for number in range(CHURN):
                await self.subject.act(client, Step(0.0, action, f"{kind}/x{number}"))
            await self.clock.sleep(CHURN_SECONDS)
        await self._converge(client)

    def _footprints(self) -> list[Footprint]:
        return [found for replica in self._replicas if (found := replica.footprint()) is not None]

    async def _rest(self, client: Client) -> None:
        """Wait until nothing is written, then change something that does not matter."""
        if self.history.unmet:
            return
        start = self.clock.monotonic()
        while self.clock.monotonic() < start + PATIENCE:
            before = len(self.history.operator_writes())
            await self.clock.sleep(STILL)
            self._drain()
            if len(self.history.operator_writes()) == before:
                break
        self.history.rest = self.history.place
        await self.subject.touch(client)
        await self.clock.sleep(STILL)
        self._drain()

    async def _disturb(self, step: Step) -> None:
        replica = self._replicas[int(step.target.partition("/")[2])]
        span = FaultSpan(step.name, step.target, self.clock.monotonic(), self.clock.monotonic())
        self.history.faults.append(span)
        if (proxy := replica.proxy) is None:  # it has not begun yet
            return
        match step.name:
            case "cut" | "410":
                await proxy.cut()
            case "reset":
                await proxy.reset()
            case "half-close":
                proxy.half_close()
            case "crash":
                await replica.crash()
            case "restart":
                replica.stop()
            case "rollout":
                self._lifting.add(asyncio.create_task(self._roll_out()))
            case _:
                if step.name == "refuse":
                    await proxy.cut()
                self._until(step, span, proxy, *self._lasting(step, replica, proxy))
        if step.name == "410":
            self.server.compact()

    def _lasting(self, step: Step, replica: Replica, proxy: FaultProxy) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """How a fault that lasts begins and ends."""
        process, clock, rate = replica.agent, replica.clock, 20_000 + 200_000 * step.amount
        offset = HOUR * step.amount * (1 if step.name == "clock-forward" else -1)
        rule = self._rule(step, user_agent(f"{self.history.agent}-{step.target.partition('/')[2]}-"))
        faults, loop = self.server.faults, self.loop
        ways: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
            "freeze": (proxy.freeze, proxy.thaw),
            "refuse": (proxy.refuse, proxy.accept),
            "slow": (lambda: proxy.delay(0.02 * step.amount), lambda: proxy.delay(0.0)),
            "throttle": (lambda: proxy.throttle(rate), lambda: proxy.throttle(None)),
            "pause": (lambda: loop.stop_process(process), lambda: loop.continue_process(process)),
            "clock-forward": (lambda: clock.step(offset), lambda: clock.step(-offset)),
            "clock-back": (lambda: clock.step(offset), lambda: clock.step(-offset)),
        }
        return ways.get(step.name) or (lambda: faults.add(rule), lambda: faults.remove(rule))

    async def _roll_out(self) -> None:
        for replica in self._replicas:
            replica.stop()
            await self.clock.sleep(ROLLOUT_SECONDS)

    async def _disturb_around(self, client: Client, step: Step) -> None:
        """A fault in the namespace, or in what only this operator uses."""
        span = FaultSpan(step.name, step.target, self.clock.monotonic(), self.clock.monotonic())
        self.history.faults.append(span)
        seconds = 1.0 + LONGEST * step.amount
        if step.target.startswith("namespace/"):
            name = f"chaos-{self.history.faults.index(span)}"
            obstacle = expired_webhook if step.name == "webhook" else exhausted_quota
            async with obstacle(client, NAMESPACE, name):
                await self.clock.sleep(seconds)
        else:
            await self.subject.disturb(step, seconds)
        span.ended = self.clock.monotonic()

    def _rule(self, step: Step, agent: str) -> Fault:
        short = step.name in {"drop-after", "truncate", "drop"}
        return Fault(
            EFFECTS.get(step.name, step.name),
            verb=VERBS[int(step.amount * len(VERBS)) % len(VERBS)],
            user_agent=agent,
            count=1 + int(step.amount * 10) if short else None,
            probability=0.3 if step.name == "stutter" else 1.0,
            bytes=int(step.amount * 2000),
            seconds=1.0,
        )

    def _until(self, step: Step, span: FaultSpan, proxy: FaultProxy, begin: Any, end: Any) -> None:
        """Begin a fault now, and end it later."""
        begin()
        before = proxy.accepted

        async def lift() -> None:
            try:
                await self.clock.sleep(1.0 + LONGEST * step.amount)
            finally:
                end()
            self._drain()
            span.ended, span.connections = self.clock.monotonic(), proxy.accepted - before

        task = asyncio.create_task(lift())
        self._lifting.add(task)
