"""A profile as a process: everything an original's process did, around the controllers of this operator.

    assemble    Lease with the original's name and timing, its port, paths and metrics, the watch of conflicting Leases
    run         until the first signal; then what waits for its window is restarted, within the time the original takes
                to stop, everything stops, and only then is the Lease given back

In the profile of shipshape a process that may not read what it watches ends, as the original does; with an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog
from aiohttp import web
from msgspec.structs import replace
from prometheus_client import REGISTRY

from steersman.cache.metrics import CacheMetrics
from steersman.clock import SYSTEM_CLOCK
from steersman.errors import SteersmanError
from steersman.kube.api.errors import KubeError
from steersman.kube.api.types.authorization import (
    ResourceAttributes,
    SelfSubjectAccessReview,
    SelfSubjectAccessReviewSpec,
)
from steersman.kube.client.client import Client
from steersman.operators.reload.compat.lease_conflict import LEASES
from steersman.operators.reload.compat.profiles.metric_aliases import NONE_YET, ProcessMetrics, aliases_for
from steersman.operators.reload.controllers.reconciler import SharedContext
from steersman.operators.reload.controllers.restart_guard import RestartGuard
from steersman.operators.reload.controllers.setup import parts
from steersman.runtime.leaderelection.elector import LeaderElector, LeaseLock, unique_identity
from steersman.runtime.leaderelection.rules import LeaseTimings
from steersman.runtime.manager.manager import Manager
from steersman.runtime.manager.operator_bundle import RuntimeEnvironment
from steersman.runtime.observability.health import HealthServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prometheus_client import CollectorRegistry

    from steersman.clock import Clock
    from steersman.kube.config.config import Config
    from steersman.operators.reload.compat.profiles.metric_aliases import Durations
    from steersman.operators.reload.compat.profiles.profile import Profile
    from steersman.runtime.observability.histogram import Histogram

RIGHTS_SECONDS: Final = 1.0  # between two checks for missing rights

log = structlog.get_logger(__name__)


class RightsMissing(SteersmanError):  # noqa: N818  # says what happened
    """Something that must be read may not be."""


async def run_profile(profile: Profile, config: Config, **options: Any) -> None:
    """Run until a signal comes; raises what went wrong. `options` are those of `Process`."""
    log.info("running in the place of another program", profile=profile.name)
    async with Client.connect(config) as client:
        profile = await with_namespaces(profile, client)
        for note in profile.notes:
            log.warning("not as it was", profile=profile.name, note=note)
        process = Process(profile, client, namespace=config.namespace, **options)
        with process.ended_by_signals():
            await process.run()


class Process:
    """One process in the place of an original."""

    def __init__(
        self,
        profile: Profile,
        client: Client,
        *,
        namespace: str,
        shadow: bool = False,
        dry_run: bool = False,
        rivals: tuple[str, ...] = (),
        registry: CollectorRegistry | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`namespace`: of the process. `rivals`: Leases of conflicting controllers besides the known ones."""
        self.profile = profile
        self.shared = SharedContext(guard=RestartGuard(shadow=shadow))
        self._registry = registry
        self._clock = clock
        asked = None if shadow or dry_run else profile.lease
        lease = None if asked is None else f"{asked.namespace or namespace}/{asked.name}"
        elector = None if lease is None else _elector(client, profile, lease, clock)
        self.manager = Manager(
            client,
            elector=elector,
            listen=profile.listen,
            grace_seconds=profile.stop_seconds,
            dry_run=dry_run or shadow,
            registry=registry,
            clock=clock,
        )
        self.leading: Callable[[], bool] = elector.leading if elector is not None else self.manager.working.is_set
        where = REGISTRY if registry is None else registry
        self.aliases = aliases_for(profile, self.shared.pending, self._process_metrics(), where)
        if self.aliases is not None:
            self.shared.listeners.append(self.aliases)
        around = RuntimeEnvironment(own_namespace=namespace, dry_run=dry_run, shadow=shadow, lease=lease, clock=clock)
        # Originals may not list pods, and what they may not list they do not have.
        config = replace(profile.config, rivals=(*LEASES, *rivals), pods=False, narrow="never")
        made = parts(config, around, dialects=profile.dialects, shared=self.shared, registry=registry)
        self.manager.include("reload", made)
        assert self.manager.health is not None
        self.manager.health.add_routes(routes_for(profile.name, ready=self.ready, leading=self.leading))
        self._ending: asyncio.Task[None] | None = None

    def ready(self) -> bool:
        """Whether everything that is watched has been seen once."""
        sources = [informer.health() for informer in self.manager.cluster().caches]
        return bool(sources) and all(source.synced and not source.refused for source in sources)

    async def run(self) -> None:
        """Run until `end`; raises what went wrong."""
        running = asyncio.create_task(self.manager.run(), name="manager")
        rights = asyncio.create_task(self._rights(), name="rights")
        leadership = asyncio.create_task(self._leadership(), name="leadership")
        async with AsyncExitStack() as stack:
            for address in self.profile.further_listens:
                server = HealthServer(
                    address, alive=self.manager.alive, ready=self.manager.ready, registry=self._registry
                )
                await server.start()
                stack.push_async_callback(server.stop)
            try:
                await asyncio.wait({running, rights}, return_when=asyncio.FIRST_COMPLETED)
                if not running.done():
                    self.manager.stop()
                await running
                if rights.done():
                    raise RightsMissing(rights.result())
            finally:
                others = [rights, leadership, *([self._ending] if self._ending is not None else [])]
                for task in others:
                    task.cancel()
                running.cancel()
                await asyncio.gather(running, *others, return_exceptions=True)

    def end(self) -> None:
        """Restart what waits, then stop; asked a second time, stop at once."""
        if self._ending is not None:
            self.manager.stop()
            return
        self._ending = asyncio.create_task(self._end(), name="end")

    @contextlib.contextmanager
    def ended_by_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT end it."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            loop.add_signal_handler(number, self.end)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    async def _end(self) -> None:
        log.info("stopping")
        left = await flush(self.manager, self.shared, self.profile.stop_seconds)
        if left and hasattr(self.aliases, "dropped"):
            self.aliases.dropped.inc(left)
        self.manager.stop()

    async def _rights(self) -> str:
        """Return when something that must be read may not be; where originals go on, never."""
        while True:
            await self._clock.sleep(RIGHTS_SECONDS)
            for informer in list(self.manager.cluster().caches) if self.profile.needs_rights else ():
                health = informer.health()
                if health.refused:
                    return f"{health.name}: {health.problem}"

    def _listen(self) -> None:
        """Report every change of a source to metrics that count them."""
        for informer in self.manager.cluster().caches if hasattr(self.aliases, "saw") else ():
            plural = informer.kind.plural
            if plural in ("configmaps", "secrets", "secretproviderclasspodstatuses"):
                informer.add_handler(partial(self.aliases.saw, plural))

    async def _leadership(self) -> None:
        """Report to the metrics when leadership is won and lost."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self.manager.working.wait()
        self._listen()
        if not hasattr(self.aliases, "elected"):
            return
        self.aliases.elected(loop.time() - began)
        try:
            await asyncio.Event().wait()
        finally:
            self.aliases.deposed()

    def _process_metrics(self) -> ProcessMetrics:
        metrics, manager = CacheMetrics.of(self._registry), self.manager

        def sources() -> int:
            held = [
                informer for informer in manager.cluster().caches if informer.kind.plural in ("configmaps", "secrets")
            ]
            return sum(informer.health().objects for informer in held)

        def queue() -> tuple[int, int, int]:
            queues = [engine.queue for engine in manager.runners.values()]
            depth = sum(sum(queue.depths().values()) for queue in queues)
            return depth, sum(queue.adds for queue in queues), sum(queue.retries for queue in queues)

        def evaluations() -> Durations:
            return _together(engine.tally.seconds for engine in manager.runners.values())

        def queued() -> Durations:
            return _together(engine.queue.queue_seconds for engine in manager.runners.values())

        return ProcessMetrics(
            evaluations=evaluations,
            queued=queued,
            leading=self.leading,
            watches=lambda: (_total(metrics.watches), _total(metrics.failures), _total(metrics.events)),
            sources=sources,
            queue=queue,
        )


def _together(histograms: Iterable[Histogram]) -> Durations:
    """Several histograms with the same bounds as one."""
    found = list(histograms)
    if not found:
        return NONE_YET
    rows = zip(*(histogram.cumulative() for histogram in found), strict=True)
    return [(row[0][0], sum(count for _, count in row)) for row in rows], sum(histogram.total for histogram in found)


def _total(family: Any) -> int:
    samples = (sample for found in family.collect() for sample in found.samples)
    return int(sum(sample.value for sample in samples if sample.name.endswith("_total")))


def _elector(client: Client, profile: Profile, lease: str, clock: Clock) -> LeaderElector:
    asked = profile.lease
    assert asked is not None
    timing = LeaseTimings(
        lease_seconds=asked.lease_seconds,
        renew_seconds=asked.renew_seconds,
        retry_seconds=asked.retry_seconds,
        jitter=asked.jitter,
    )
    namespace, _, name = lease.partition("/")
    kept = LeaseLock(client, name, namespace, replaces=True)  # the originals have no right to patch it
    return LeaderElector(kept, identity=unique_identity(asked.identity), timing=timing, clock=clock)


def routes_for(name: str, *, ready: Callable[[], bool], leading: Callable[[], bool]) -> Sequence[web.RouteDef]:
    """What the original of that profile serves beside metrics."""

    async def leadz(_request: web.Request) -> web.Response:
        return web.Response(text="ok") if leading() else web.Response(text="not leader", status=503)

    async def readyz(_request: web.Request) -> web.Response:
        now = ready(), leading()
        text = f"ready={str(now[0]).lower()} leader={str(now[1]).lower()}"
        return web.Response(text=text, status=200 if all(now) else 503)

    async def live(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    if name == "shipshape":
        return [web.get("/leadz", leadz), web.get("/readyz", readyz)]
    if name == "reloader":
        return [web.get("/live", live)]
    return []


_PAUSE = 0.05  # seconds between two checks


async def flush(manager: Manager, shared: SharedContext, seconds: float) -> int:
    """Restart everything that only waits for time, within `seconds`; returns how many still wait.

    A process that does not lead has nothing to flush: its leader has. What is held back by anything but its window
    stays pending for the next process.
    """
    if not manager.working.is_set() or shared.guard.blocked_by() is not None:
        return 0
    pending = shared.pending
    pending.skip_windows()
    waiting = {name: set(refs) for name, refs in pending.waiting().items() if refs}
    for name, refs in waiting.items():
        manager.runner(name).add_all(where=refs.__contains__)
    try:
        async with asyncio.timeout(seconds):
            while any(pending.not_evaluated(name, refs) for name, refs in waiting.items()):  # noqa: ASYNC110
                await asyncio.sleep(_PAUSE)
    except TimeoutError:
        pass
    left = sum(len(refs & set(pending.trackers[name].waiting())) for name, refs in waiting.items())
    if waiting:
        done = sum(map(len, waiting.values())) - left
        log.info("restarted what was waiting", restarted=done, left=left)
    return left


UNREAD: Final = "annotations steersman.dev/… on namespaces, a freeze too, are not read"
_VERBS: Final = ("list", "watch")


async def with_namespaces(profile: Profile, client: Client) -> Profile:
    """The profile, reading annotations of namespaces if it may; else with a note that it does not."""
    config = profile.config
    if config.namespaces:
        return replace(profile, notes=(*profile.notes, f"{UNREAD} where only some namespaces are watched"))
    if config.options().watch_namespaces or await _may_watch(client):
        return replace(profile, config=replace(config, namespace_settings=True))
    way_out = f"{UNREAD} (grant list and watch on namespaces, then start again)"
    return replace(profile, notes=(*profile.notes, way_out))


async def _may_watch(client: Client) -> bool:
    try:
        for verb in _VERBS:
            asked = SelfSubjectAccessReviewSpec(
                resource_attributes=ResourceAttributes(verb=verb, resource="namespaces")
            )
            if not (await client.create(SelfSubjectAccessReview(spec=asked))).status.allowed:
                return False
    except KubeError as error:
        log.warning("cannot ask whether namespaces may be read", error=str(error))
        return False
    return True
