"""The manager: starts everything in order, watches over it, and stops it in order.

    start   listener ─► webhooks ─► caches and sources ─► tasks ─► election ─► workers
    stop    tasks ─► workers ─► caches ─► webhooks ─► listener ─► lease released

- Caches and queues fill before this process leads (warm standby), so a takeover begins at once.
- A controller works as soon as *its own* sources are synced; one that waits for a missing kind delays no other.
- Nothing dies unnoticed: a source that fails is started again, a worker that fails ends the process.
- On the first signal what is being reconciled may end within `grace_seconds`; on the second it is cancelled.
- The lease is released after everything that acts has stopped. When it is *lost*, workers and tasks are cancelled
  first, without grace, and `run` raises: two must never act at once.
"""

from __future__ import annotations

import asyncio
import random as randomness
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from steersman.cache import SharedInformerFactory
from steersman.clock import SYSTEM_CLOCK, Deadline
from steersman.errors import ConfigError, summary_of, traceback_of
from steersman.logger import Logger
from steersman.runtime.cluster import Cluster
from steersman.runtime.controller.runner import ControllerRunner
from steersman.runtime.manager.loop_watchdog import LoopLag
from steersman.runtime.manager.operator_bundle import OperatorBundle
from steersman.runtime.manager.operator_report import report_of, tables_of_kinds, unreadable
from steersman.runtime.manager.supervisor import Supervisor, TaskFailed, cancel_all, retrieved
from steersman.runtime.observability.metrics import RuntimeCollector
from steersman.runtime.observability.readiness import Readiness, SyncTimeout
from steersman.runtime.reconcile.event_recorder import EventRecorder
from steersman.runtime.reconcile.write_guard import NOT_LEADER, NOT_OWNER, WriteGuard
from steersman.runtime.sharding.assignment import SLOTS
from steersman.runtime.sharding.handover import ShardHandover, namespace_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from aiohttp import web
    from prometheus_client import CollectorRegistry

    from steersman.cache.interfaces import Informer, SourceHealth
    from steersman.clock import Clock
    from steersman.kube.client.client import Client
    from steersman.runtime.controller.builder import Controller
    from steersman.runtime.leaderelection.elector import LeaderElector
    from steersman.runtime.leaderelection.rules import LeaseTimings
    from steersman.runtime.manager.operator_report import OperatorReport
    from steersman.runtime.observability.health import HealthServer
    from steersman.runtime.sharding.member import ShardMember, ShardStore
    from steersman.runtime.webhook.cert_watcher import CertWatcher
    from steersman.runtime.webhook.certificate_source import CertificateSource
    from steersman.runtime.webhook.server import WebhookServer

__all__ = ["Manager", "SyncTimeout"]

REVIEW_SECONDS = 5.0  # for the API server to say who reads the metrics
STOP_SECONDS = 5.0  # for a cancelled task to end
OWN_TASKS = frozenset({"event loop watch", "sync watch", "shards", "webhooks", "events", "listener certificate"})
OWN_PREFIXES = ("source ", "events ")  # one for each source, and for the events of each further cluster
FLUSH_SECONDS = 2.0  # for the last events to be sent

log = Logger(__name__)


class Manager:
    """Runs controllers. Make one, `await run()`; from elsewhere, `stop()` it."""

    def __init__(
        self,
        client: Client,
        controllers: Iterable[Controller] = (),
        *,
        clusters: Mapping[str, Client] | None = None,
        elector: LeaderElector | None = None,
        webhooks: WebhookServer | None = None,
        listen: str | None = None,
        certificates: CertificateSource | None = None,
        probe_listen: str | None = None,
        metrics: Literal["open", "token"] = "open",
        profiling: bool = False,
        routes: Iterable[web.AbstractRouteDef] = (),
        registry: CollectorRegistry | None = None,
        component: str = "steersman",
        permit: Callable[[str], bool] | None = None,
        grace_seconds: float = 30.0,
        sync_seconds: float | None = None,
        dry_run: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        network_clock: Clock | None = None,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        """`clusters` are further clusters by name; `permit` says which namespaces this process may act on.

        `grace_seconds`: how long running reconciles may take at the end; below zero: as long as they need.
        `sync_seconds`: fail when a source is not synced by then; None: keep waiting, and say so in log and readiness.
        `network_clock`: by which lists and watches wait for servers, where `clock` does not run by itself.
        `certificates`: `listen` serves TLS; probes are also answered without it on `probe_listen`.
        `metrics="token"`: to read /metrics, a caller needs a token (TokenReview) whose user may `get` this path
        (SubjectAccessReview).
        `profiling`: callers on this machine may take profiles at /debug/profile and /debug/heap.
        `dry_run`: nothing at all is written: no Lease is held, no share taken, and webhooks, whose certificates are
        kept in the cluster, are not served.
        """
        if dry_run:
            _leave_out(elector=elector, webhooks=webhooks)
            elector = webhooks = None
        self._clock = clock
        self._network_clock = clock if network_clock is None else network_clock
        self._random = random
        self._registry = registry
        self._elector = elector
        self._webhooks = webhooks
        self._permit = permit
        self._grace = grace_seconds
        self._sync = sync_seconds
        self._controllers: list[Controller] = []
        self._tasks: list[tuple[str, Callable[[], Awaitable[Any]], bool]] = []
        self._operators: dict[str, OperatorBundle] = {}
        self._guard = WriteGuard(dry_run=dry_run)
        self._guard.fence = self._barrier
        self._clusters = {
            name: self._cluster(name, connected, component)
            for name, connected in {"": client, **(clusters or {})}.items()
        }
        self._share: ShardHandover | None = None
        self._runners: dict[str, ControllerRunner] = {}
        self._workers: list[asyncio.Task[None]] = []
        self._holding: asyncio.Task[None] | None = None  # ends when leadership does
        self._supervisor: Supervisor | None = None
        self._lag = LoopLag(clock=clock)
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self.working = asyncio.Event()  # set while workers may run, i.e. while this process leads
        self._readiness = Readiness(
            informers=self._informers,
            runners=self._runners.values,
            tasks=self._task_problems,
            stopping=self._stopping.is_set,
            clock=clock,
        )
        if webhooks is not None:
            self.add_check("webhook certificate", webhooks.certificate_problem)
        self.health: HealthServer | None = None
        self._certificates: CertWatcher | None = None
        if listen is not None:
            # an HTTP server is a lot to load for those who need none
            from steersman.runtime.http.authentication import TokenAuthenticator
            from steersman.runtime.observability.health import HealthServer

            reviewer = None
            if metrics == "token":
                reviews = self._clusters[""].client.with_options(timeout=REVIEW_SECONDS, retry=False)  # a caller waits
                reviewer = TokenAuthenticator(reviews)
            if certificates is not None:
                from steersman.runtime.webhook.cert_watcher import CertWatcher

                self._certificates = CertWatcher(certificates, clock=clock)
            self.health = HealthServer(
                listen,
                alive=self.alive,
                ready=self.ready,
                queues=lambda: [runner.queue.describe() for runner in self._runners.values()],
                caches=self.watches,
                warnings=self.warnings,
                details=self._readiness.details,
                unknown=self._readiness.unknown,
                routes=routes,
                registry=registry,
                certificates=self._certificates,
                probes=probe_listen,
                profiling=profiling,
                reviewer=reviewer,
            )
        for controller in controllers:
            self.add(controller)

    def _cluster(self, name: str, client: Client, component: str) -> Cluster:
        pool = SharedInformerFactory(client, clock=self._network_clock, registry=self._registry, cluster=name)
        cluster = Cluster(client, pool, name=name, guard=self._guard, clock=self._clock)
        cluster.recorder = EventRecorder(cluster.client, component=component, clock=self._clock)
        return cluster

    # -- what is run --------------------------------------------------------------------------------------------------

    def add(self, controller: Controller) -> None:
        """Run this controller too; also while running."""
        if any(known.name == controller.name for known in self._controllers):
            raise ConfigError(
                f"there are two controllers called {controller.name}: give one another name with .named(…)",
                field="controllers",
            )
        runner = ControllerRunner(
            controller, self._clusters, permit=self._permits, clock=self._clock, random=self._random
        )
        self._controllers.append(controller)
        self._runners[controller.name] = runner
        if self._supervisor is not None and not self._stopping.is_set():
            runner.start_sources()
            if self.working.is_set():
                self._start_worker(runner)

    def include(self, name: str, parts: OperatorBundle) -> None:
        """Run a configured operator: its controllers, tasks and checks, with its routes and tables at hand."""
        cluster = self._clusters[""]
        for controller in parts.controllers:
            self.add(controller)
        for task in parts.tasks:
            self.add_task(f"{name} {task.name}", partial(task.run, cluster), leader_only=task.leader_only)
        for check, problem in parts.checks.items():
            self.add_check(f"{name} {check}", problem)
        if parts.routes is not None and self.health is not None:
            self.health.add_routes(parts.routes(cluster))
        self._operators[name] = parts

    @property
    def reports(self) -> Mapping[str, Callable[[], OperatorReport]]:
        """What every operator shows of itself, by its name; each is computed when it is called.

        A controller that belongs to no operator is one of its own.
        """
        included = {controller.name for parts in self._operators.values() for controller in parts.controllers}
        alone = {
            name: OperatorBundle(controllers=[runner.controller])
            for name, runner in self._runners.items()
            if name not in included
        }
        return {name: partial(self._report, name, parts) for name, parts in {**self._operators, **alone}.items()}

    def _report(self, name: str, parts: OperatorBundle) -> OperatorReport:
        runners = [self._runners[controller.name] for controller in parts.controllers]
        tables = tables_of_kinds(runners) if parts.tables is None else parts.tables(self._clusters[""])
        return report_of(name, tables, headline=parts.headline, unreadable=unreadable(runners))

    def add_task(self, name: str, run: Callable[[], Awaitable[Any]], *, leader_only: bool = True) -> None:
        """Run a background task for ever beside the controllers; started again when it fails. Names are unique."""
        if any(name == known for known, _, _ in self._tasks):
            raise ConfigError(f"there are two tasks called {name}: give one another name", field="tasks")
        if name in OWN_TASKS or name.startswith(OWN_PREFIXES):
            raise ConfigError(f"{name} is the name of a task of the manager: choose another", field="tasks")
        self._tasks.append((name, run, leader_only))

    def add_check(self, name: str, problem: Callable[[], str | None]) -> None:
        """One more condition of readiness: `problem` answers None while all is well."""
        self._readiness.add_check(name, problem)

    def share(
        self, store: ShardStore, *, identity: str | None = None, slots: int = SLOTS, timing: LeaseTimings | None = None
    ) -> ShardMember:
        """Work on a share of the namespaces only, beside the other processes that use the same `store`.

        For clusters that outgrow one process. It takes the place of leader election: all members act, each on its own.
        Tasks for leaders are run by one of them: the one whose share holds what is in no namespace. No two processes
        may have the same `identity`; None makes one up.
        """
        if self._elector is not None:
            raise ConfigError("sharding and leader election exclude each other: choose one", field="share")

        made = ShardHandover(
            store,
            runners=self._runners.values,
            start_tasks=self._start_leaders_tasks,
            cancel_tasks=self._cancel_leaders_tasks,
            identity=identity,
            slots=slots,
            timing=timing,
            clock=self._clock,
        )
        if self._guard.dry_run:
            _leave_out(share=store)
        else:
            self._share = made
            self._permit = made.member.owns
        return made.member

    def runner(self, name: str) -> ControllerRunner:
        """The runner of a controller, by the controller's name."""
        return self._runners[name]

    def cluster(self, name: str = "") -> Cluster:
        """A cluster by its name."""
        return self._clusters[name]

    @property
    def runners(self) -> Mapping[str, ControllerRunner]:
        """Every controller at work, by its name."""
        return self._runners

    @property
    def elector(self) -> LeaderElector | None:
        """Who decides whether this process acts; None: it always does."""
        return self._elector

    def watches(self) -> list[SourceHealth]:
        """How every watch is doing."""
        return self._readiness.sources()

    # -- life ---------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End gracefully; asked a second time, end at once."""
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()
        for runner in self._runners.values():
            runner.stop()

    async def run(self) -> None:
        """Run until `stop` (then return) or until something fails that must not (then raise)."""
        with self._guard.acting_for(None):  # whatever is started from here on has its effects by this guard
            await self._run()

    async def _run(self) -> None:
        supervisor = self._supervisor = Supervisor(clock=self._clock)
        collector = self._collector(supervisor)
        failure: BaseException | None = None
        try:
            await self._start(supervisor)
            elected = asyncio.create_task(self._elected(), name="leader election")
            await self._first(elected)
            if elected.done() and not self._stopping.is_set():
                self._start_working()
                await self._first(*([self._holding] if self._holding is not None else []))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  raised below, when all has been stopped
            failure = error
        ending = asyncio.create_task(self._shut_down(supervisor, failure))
        while not ending.done():
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError as error:  # at once, but still in order
                failure = failure or error
                self._hurry.set()
        collector.close()
        ending.result()
        if failure is not None:
            raise failure

    # -- starting -----------------------------------------------------------------------------------------------------

    async def _start(self, supervisor: Supervisor) -> None:
        supervisor.start("event loop watch", self._lag.run)
        if self.health is not None:
            await self.health.start()
        if self._certificates is not None:
            supervisor.start("listener certificate", self._certificates.run)
        if self._webhooks is not None:
            supervisor.start("webhooks", self._webhooks.run)
            await self._first(asyncio.create_task(self._webhooks.serving.wait()))
        for runner in self._runners.values():
            runner.start_sources()
        for cluster in self._clusters.values():
            for informer in cluster.caches:
                self._run_informer(cluster.name, informer)
            cluster.caches.on_new = partial(self._run_informer, cluster.name)
            if cluster.recorder is not None:
                supervisor.start(f"events {cluster.name}".rstrip(), cluster.recorder.run)
        supervisor.start("sync watch", partial(self._readiness.watch_sync, self._sync), critical=True)
        for name, run, leader_only in self._tasks:
            if not leader_only:
                supervisor.start(name, run)
        if self._share is not None:
            supervisor.start("shards", self._share.member.run)

    def _run_informer(self, cluster: str, informer: Informer[Any]) -> None:
        assert self._supervisor is not None
        name = f"source {cluster}/{informer.health().name}" if cluster else f"source {informer.health().name}"
        self._supervisor.start(name, informer.run)

    def _start_leaders_tasks(self) -> None:
        if self._supervisor is not None and not self._stopping.is_set():
            for name, run, leader_only in self._tasks:
                if leader_only:
                    self._supervisor.start(name, run)

    def _cancel_leaders_tasks(self) -> list[asyncio.Task[None]]:
        assert self._supervisor is not None
        return self._supervisor.cancel(name for name, _, leader_only in self._tasks if leader_only)

    async def _elected(self) -> None:
        if self._elector is not None:
            await self._elector.acquire()

    def _start_working(self) -> None:
        """This process leads: let everything work that waited for it."""
        if self._elector is not None:
            self._holding = asyncio.create_task(self._elector.hold(), name="leader election")
            self._holding.add_done_callback(retrieved)  # who stops anyway does not ask how it ended
            self._holding.add_done_callback(self._deposed)
        self.working.set()
        for runner in self._runners.values():
            self._start_worker(runner)
        if self._share is None:  # else it says when
            self._start_leaders_tasks()

    def _start_worker(self, runner: ControllerRunner) -> None:
        worker = asyncio.create_task(runner.run(), name=f"controller {runner.name}")
        worker.add_done_callback(self._worker_ended)
        self._workers.append(worker)

    def _deposed(self, _holding: asyncio.Task[None]) -> None:
        """Leadership is over. Stop at once: the supervisor may not notice in time while everything is being stopped."""
        if self._stopping.is_set():
            for worker in self._workers:
                worker.cancel()

    def _worker_ended(self, worker: asyncio.Task[None]) -> None:
        if worker.cancelled() or self._supervisor is None:
            return
        error = worker.exception()
        if error is not None:
            log.error("controller broke", task=worker.get_name(), traceback=traceback_of(error))
            self._supervisor.fail(TaskFailed(f"{worker.get_name()}: {summary_of(error)}"))
        elif not self._stopping.is_set():
            self._supervisor.fail(TaskFailed(f"{worker.get_name()}: it ended unexpectedly"))

    # -- waiting ------------------------------------------------------------------------------------------------------

    async def _first(self, *tasks: asyncio.Task[Any]) -> None:
        """Return when one of the tasks has ended or `stop` was called; raise what failed."""
        assert self._supervisor is not None
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            outcomes: list[asyncio.Future[Any]] = [self._supervisor.failure, *tasks]
            await asyncio.wait([stopping, *outcomes], return_when=asyncio.FIRST_COMPLETED)
            for outcome in outcomes:
                if outcome.done():
                    outcome.result()
        finally:
            leaving = [stopping, *(task for task in tasks if task is not self._holding)]
            await cancel_all(leaving, self._clock, STOP_SECONDS)

    # -- stopping -----------------------------------------------------------------------------------------------------

    async def _shut_down(self, supervisor: Supervisor, failure: BaseException | None) -> None:
        """Stop in order. Leadership that was lost, or a cancellation from outside, leaves no time for grace."""
        if not self._stopping.is_set():
            self.stop()
        lost = self._holding is not None and self._holding.done()
        tasks = [name for name, _, _ in self._tasks]
        if lost or isinstance(failure, asyncio.CancelledError):
            # both at once: a slow one must not leave time for the other to act
            ends = await asyncio.gather(cancel_all(self._workers, self._clock, STOP_SECONDS), supervisor.stop(tasks))
            acting = [task for left in ends for task in left]
        else:
            acting = await supervisor.stop(tasks)
            await self._drain()
            acting += await cancel_all(self._workers, self._clock, STOP_SECONDS)
        self.working.clear()
        await self._send_events()
        await supervisor.stop(name for name in supervisor.names() if name != "webhooks")
        await supervisor.stop()
        if self.health is not None:
            await self.health.stop()
        if self._holding is not None:
            await cancel_all([self._holding], self._clock, STOP_SECONDS)
        acting = [task for task in acting if not task.done()]
        if self._elector is not None and acting:
            log.error("the lease is left to expire: not all work has ended", tasks=[task.get_name() for task in acting])
        elif self._elector is not None and not lost:
            await self._elector.release()
        log.info("stopped", why=str(failure) or type(failure).__name__ if failure is not None else "asked to")

    async def _drain(self) -> None:
        """Let running reconciles end: within the grace period, unless a second signal came or leadership is lost."""
        running = [worker for worker in self._workers if not worker.done()]
        if not running:
            return
        ended = asyncio.create_task(asyncio.wait(running))
        hurry = asyncio.create_task(self._hurry.wait())
        try:
            async with Deadline(self._clock, None if self._grace < 0 else self._grace):
                ends: list[asyncio.Task[Any]] = [ended, hurry, *([self._holding] if self._holding is not None else [])]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            left = {
                runner.name: [str(key) for key in runner.queue.processing_keys()] for runner in self._runners.values()
            }
            log.warning("reconciles cancelled: they took longer than the grace", running=left)
        finally:
            await cancel_all([ended, hurry], self._clock, STOP_SECONDS)

    async def _send_events(self) -> None:
        recorders = [cluster.recorder for cluster in self._clusters.values() if cluster.recorder is not None]
        try:
            async with Deadline(self._clock, FLUSH_SECONDS):
                await asyncio.gather(*(recorder.flush() for recorder in recorders))
        except TimeoutError:
            log.warning("events not sent in time")

    # -- health -------------------------------------------------------------------------------------------------------

    def late(self) -> float:
        """How many seconds the event loop is late at this moment; may be asked from any thread."""
        return self._lag.now()

    def alive(self) -> dict[str, str | None]:
        """Checks that a restart would help with."""
        return {
            "loop": self._lag.problem(),
            "election": self._elector.problem() if self._elector is not None else None,
        }

    def ready(self) -> dict[str, str | None]:
        """Checks of everything that should work: sources, tasks, and what others added."""
        return self._readiness.ready()

    def warnings(self) -> list[str]:
        """Issues of a process that is ready."""
        found = {
            "webhooks": self._webhooks.certificate_warning() if self._webhooks is not None else None,
            "listener": self._certificates and (self._certificates.problem() or self._certificates.warning()),
        }
        return [*self._readiness.warnings(), *(f"{name}: {text}" for name, text in found.items() if text)]

    def _task_problems(self) -> dict[str, str]:
        return self._supervisor.problems() if self._supervisor is not None else {"manager": "not started"}

    def _informers(self) -> list[Informer[Any]]:
        return [informer for cluster in self._clusters.values() for informer in cluster.caches]

    def _permits(self, key: Any) -> bool:
        """Whether a reconcile of `key` may begin."""
        leads = self._elector is None or self._elector.leading()
        return leads and (self._permit is None or self._permit(namespace_of(key)))

    def _barrier(self, key: Any) -> str:
        """Why nothing may be written for `key` now, empty when it may; None stands for what has no key."""
        if self._elector is not None and not self._elector.leading():
            return NOT_LEADER
        if self._share is not None:
            return "" if self._share.member.write_allowed(namespace_of(key)) else NOT_OWNER
        permitted = key is None or self._permit is None or self._permit(namespace_of(key))
        return "" if permitted else NOT_OWNER

    def _collector(self, supervisor: Supervisor) -> RuntimeCollector:
        return RuntimeCollector(
            self._runners.values,
            elector=lambda: self._elector,
            recorders=lambda: [c.recorder for c in self._clusters.values() if c.recorder is not None],
            restarts=lambda: supervisor.restarts,
            withheld=lambda: self._guard.withheld,
            registry=self._registry,
        )


def _leave_out(**parts: object) -> None:
    """Say what a dry run does without."""
    if names := [name for name, part in parts.items() if part is not None]:
        log.warning("dry run: left out", parts=names)
