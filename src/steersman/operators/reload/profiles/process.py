"""A profile as a process: everything an original's process did, around the controllers of this operator.

    assemble    Lease with the original's name and timing, its port and paths, its metrics, the guard against rivals
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
from msgspec.structs import replace
from prometheus_client import REGISTRY

from steersman.cache.metrics import CacheMetrics
from steersman.errors import SteersmanError
from steersman.kube.client import Client
from steersman.operators.reload.controller import parts
from steersman.operators.reload.oversight import Oversight
from steersman.operators.reload.profiles.aliases import NONE_YET, Standing, aliases_for
from steersman.operators.reload.profiles.endpoints import routes_for
from steersman.operators.reload.profiles.flush import flush
from steersman.operators.reload.profiles.namespaces import with_namespaces
from steersman.operators.reload.rivals import LEASES
from steersman.runtime.election import Timing
from steersman.runtime.elector import KubeLease, LeaderElector, unique_identity
from steersman.runtime.health import HealthServer
from steersman.runtime.manager import Manager
from steersman.runtime.parts import Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client import CollectorRegistry

    from steersman.kube.clusterconfig import ClusterConfig
    from steersman.operators.reload.profiles.aliases import Durations
    from steersman.operators.reload.profiles.profile import Profile
    from steersman.runtime.histogram import Histogram

__all__ = ["Process", "RightsMissing", "run_profile"]

RIGHTS_SECONDS: Final = 1.0  # between two looks at whether rights are missing

log = structlog.get_logger(__name__)


class RightsMissing(SteersmanError):  # noqa: N818  # says what happened
    """Something that must be read may not be."""


async def run_profile(profile: Profile, config: ClusterConfig, **options: Any) -> None:
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
    ) -> None:
        """`namespace`: where the process is at home. `rivals`: Leases to respect beside those that are known."""
        self.profile = profile
        self.oversight = Oversight(pretends=shadow)
        self._registry = registry
        asked = None if shadow else profile.lease
        lease = None if asked is None else f"{asked.namespace or namespace}/{asked.name}"
        elector = None if lease is None else _elector(client, profile, lease)
        self.manager = Manager(
            client,
            elector=elector,
            listen=profile.listen,
            grace_seconds=profile.stop_seconds,
            dry_run=dry_run,
            registry=registry,
        )
        self.leading: Callable[[], bool] = elector.leading if elector is not None else self.manager.working.is_set
        where = REGISTRY if registry is None else registry
        self.aliases = aliases_for(profile, self.oversight, self._standing(), where)
        if self.aliases is not None:
            self.oversight.listeners.append(self.aliases)
        around = Surroundings(own_namespace=namespace, dry_run=dry_run, shadow=shadow, lease=lease)
        # Originals may not list pods, and what they may not list they do not have.
        config = replace(profile.config, rivals=(*LEASES, *rivals), pods=False, narrow="never")
        made = parts(config, around, dialects=profile.dialects, oversight=self.oversight, registry=registry)
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
        left = await flush(self.manager, self.oversight, self.profile.stop_seconds)
        if left and hasattr(self.aliases, "dropped"):
            self.aliases.dropped.inc(left)
        self.manager.stop()

    async def _rights(self) -> str:
        """Return when something that must be read may not be; where originals go on, never."""
        while True:
            await asyncio.sleep(RIGHTS_SECONDS)
            for informer in list(self.manager.cluster().caches) if self.profile.needs_rights else ():
                health = informer.health()
                if health.refused:
                    return f"{health.name}: {health.problem}"

    def _listen(self) -> None:
        """Tell the metrics of every change of a source, where they count them."""
        for informer in self.manager.cluster().caches if hasattr(self.aliases, "saw") else ():
            plural = informer.kind.plural
            if plural in ("configmaps", "secrets", "secretproviderclasspodstatuses"):
                informer.add_handler(partial(self.aliases.saw, plural))

    async def _leadership(self) -> None:
        """Tell the metrics when leadership comes and goes."""
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

    def _standing(self) -> Standing:
        metrics, manager = CacheMetrics.of(self._registry), self.manager

        def sources() -> int:
            held = [one for one in manager.cluster().caches if one.kind.plural in ("configmaps", "secrets")]
            return sum(one.health().objects for one in held)

        def queue() -> tuple[int, int, int]:
            queues = [engine.queue for engine in manager.engines.values()]
            depth = sum(sum(one.depths().values()) for one in queues)
            return depth, sum(one.adds for one in queues), sum(one.retries for one in queues)

        def looks() -> Durations:
            return _together(engine.tally.seconds for engine in manager.engines.values())

        def queued() -> Durations:
            return _together(engine.queue.queue_seconds for engine in manager.engines.values())

        return Standing(
            looks=looks,
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
    rows = zip(*(one.cumulative() for one in found), strict=True)
    return [(row[0][0], sum(count for _, count in row)) for row in rows], sum(one.total for one in found)


def _total(family: Any) -> int:
    samples = (one for found in family.collect() for one in found.samples)
    return int(sum(one.value for one in samples if one.name.endswith("_total")))


def _elector(client: Client, profile: Profile, lease: str) -> LeaderElector:
    asked = profile.lease
    assert asked is not None
    timing = Timing(
        lease_seconds=asked.lease_seconds,
        renew_seconds=asked.renew_seconds,
        retry_seconds=asked.retry_seconds,
        jitter=asked.jitter,
    )
    namespace, _, name = lease.partition("/")
    kept = KubeLease(client, name, namespace, replaces=True)  # the originals have no right to patch it
    return LeaderElector(kept, identity=unique_identity(asked.identity), timing=timing)
