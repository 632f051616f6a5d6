"""What the dns controllers share: the states of zones, drivers of servers, and the channels between controllers.

`DnsContext` is a plain struct of collaborators, built once; `setup` gives each reconciler those that it uses. Each
collaborator does one thing; none of them decides what is published.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from steersman.clock import Ages, Clock, Deadline
from steersman.errors import DriverError
from steersman.kube.api.errors import BadRequest, Forbidden, Invalid
from steersman.kube.api.gvk import NamespacedName
from steersman.operators.dns.api.config import DnsOptions
from steersman.operators.dns.api.records import RECORD_KINDS
from steersman.operators.dns.api.zone import DNSZone
from steersman.operators.dns.bind.breaker import PAUSE, Outages
from steersman.operators.dns.bind.pool import DriverPool
from steersman.operators.dns.controllers.metrics import DnsMetrics
from steersman.operators.dns.publish.removal import ZoneRemover
from steersman.operators.dns.publish.zone_state import ZoneStates
from steersman.operators.dns.wire.rndc import ControlRefused
from steersman.operators.dns.zone.ptr import PtrIndex, allows_ptr_records, named_in, zones_above
from steersman.runtime.controller.channel import Channel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from steersman.kube.api.errors import KubeError
    from steersman.operators.dns.bind.driver import Driver
    from steersman.operators.dns.bind.servers import Server
    from steersman.operators.dns.zone.ptr import Origin

LONGEST_WAIT: Final = 1.0  # seconds that a record's status waits for zones that are being published
PROBE_PERIOD: Final = 1.0  # seconds
LONGEST_MESSAGE: Final = 500  # characters of an API server's message: an admission policy may say anything


def make_drivers(options: DnsOptions, clock: Clock) -> DriverPool:
    """The drivers of servers, as the settings say."""
    return DriverPool(
        clock=clock,
        timeout=options.request_timeout.total_seconds(),
        pause=options.server_pause.total_seconds(),
        token_file=options.bindcar_token_file,
        token_namespaces=options.bindcar_token_namespaces,
    )


class ControllerChannels:
    """The channels between controllers: what one of them did that another has to reconcile for."""

    def __init__(self, states: ZoneStates) -> None:
        self._states = states
        self.zones, self.instances = Channel(), Channel()
        self.records = {kind: Channel() for kind in RECORD_KINDS}
        self._kinds = {kind.KIND.kind.lower(): kind for kind in RECORD_KINDS}

    def records_changed(self, namespace: str, sources: Iterable[str]) -> None:
        """The outcome of records may have changed. Sources of PTR records name their namespace themselves."""
        for source in sources:
            kind, _, name = source.partition("/")
            if (found := self._kinds.get(kind)) is not None:
                elsewhere, _, short = name.rpartition("/")
                self.records[found].send(NamespacedName(short, elsewhere or namespace))

    def pointers_changed(self, moved: Iterable[tuple[Origin, bytes]], cache: Any) -> None:
        """Reverse zones may get or lose PTR records; a record without a reverse zone reports that itself."""
        named = named_in(cache)
        for origin, name in moved:
            has_zone = False
            for zones in zones_above(name, named):
                for zone in zones:
                    if (state := self._states.get(zone.ref)) is not None:
                        state.loader.mark_origin(origin)
                    self.zones.send(zone.ref)
                    has_zone = has_zone or allows_ptr_records(zone, origin[0])
            if not has_zone:
                self.records_changed(origin[0], [origin[1]])

    def catalogs_changed(self, catalogs: Iterable[tuple[str, str]], cache: Any) -> None:
        """The members of catalogs changed."""
        for namespace, name in catalogs:
            for zone in cache[DNSZone].by_index("dns-zone-name", name):
                if zone.namespace == namespace and zone.spec.catalog:
                    self.zones.send(zone.ref)


class PublishActivity:
    """Which zones are being published: statuses wait, because answers to DNS queries matter more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._publishing = 0
        self._idle = asyncio.Event()  # not set before the first zone has been published

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """While a zone is being published."""
        self._publishing += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._publishing -= 1
            if not self._publishing:
                self._idle.set()

    @property
    def is_busy(self) -> bool:
        """Whether a zone is being published."""
        return self._publishing > 0

    async def wait_idle(self) -> None:
        """Return when no zone is being published, or after `LONGEST_WAIT`."""
        if not self._idle.is_set():
            try:
                async with Deadline(self._clock, LONGEST_WAIT):
                    await self._idle.wait()
            except TimeoutError:
                if not self._publishing:  # nothing to wait for, and the next record need not wait to learn that
                    self._idle.set()


class ServerProbes:
    """Asks servers that did not answer whether they answer again, and has their zones published when they do.

    A probe is one question a second, whatever the number of zones, and is sent while the breaker is open. A server that
    answers probes and then fails again is probed less and less often: its zones would fail in every pass.
    """

    def __init__(self, states: ZoneStates, drivers: DriverPool, zones: Channel, clock: Clock) -> None:
        self._states, self._drivers, self._zones, self._clock = states, drivers, zones, clock
        self._tasks: dict[Server, asyncio.Task[None]] = {}
        self._answered: dict[Server, tuple[float, float]] = {}  # when a probe was answered, and the wait before it

    def start(self, server: Server) -> None:
        """Probe a server until it answers; harmless while it is being probed."""
        if server not in self._tasks:
            self._tasks[server] = asyncio.create_task(self._run(server))

    async def _run(self, server: Server) -> None:
        now = self._clock.monotonic()
        self._answered = {known: row for known, row in self._answered.items() if now - row[0] < 2 * PAUSE}
        _, before = self._answered.get(server, (0.0, 0.0))
        wait = min(PAUSE, max(PROBE_PERIOD, 2 * before))
        try:
            await self._clock.sleep(wait)
            while (driver := self._drivers.current(server)) is not None:
                began = self._clock.monotonic()
                if await _answers(driver):
                    break
                await self._clock.sleep(max(0.0, began + PROBE_PERIOD - self._clock.monotonic()))
            else:
                return
        finally:
            self._tasks.pop(server, None)
        self._answered[server] = (self._clock.monotonic(), wait)
        self._wake_zones(server)

    def _wake_zones(self, server: Server) -> None:
        for state in self._states.values():
            copy = state.copies.get(server.id)
            if copy is not None and copy.failure is not None:
                if copy.is_silent:
                    copy.failure, copy.awaited = replace(copy.failure, silent=False), True
                self._zones.send(state.ref)

    def stop(self) -> None:
        """End all probes."""
        for task in self._tasks.values():
            task.cancel()


async def _answers(driver: Driver) -> bool:
    """Whether a server answers, be it with a rejection."""
    try:
        await driver.probe()
        if not driver.server.records_only:
            await driver.ready()
    except DriverError as error:
        said = getattr(error, "rcode", "") or getattr(error, "text", "")
        return bool(said) or isinstance(error, ControlRefused)
    return True


class DnsContext(msgspec.Struct, frozen=True, kw_only=True):
    """The collaborators of the dns controllers."""

    options: DnsOptions
    clock: Clock
    ages: Ages
    metrics: DnsMetrics | None
    states: ZoneStates
    ptr_index: PtrIndex
    drivers: DriverPool
    channels: ControllerChannels
    activity: PublishActivity
    probes: ServerProbes
    outages: Outages
    remover: ZoneRemover


def make_context(options: DnsOptions, *, clock: Clock, metrics: DnsMetrics | None = None) -> DnsContext:
    """The collaborators, connected."""
    states, ptr_index, ages, drivers = ZoneStates(), PtrIndex(), Ages(clock), make_drivers(options, clock)
    channels = ControllerChannels(states)
    outages, probes = Outages(channels.instances.send), ServerProbes(states, drivers, channels.zones, clock)

    def record_attempt(server: Server, channel: str, problem: str) -> None:
        outages.record(server, channel, problem)
        if problem:
            probes.start(server)

    drivers.listen(record_attempt)
    return DnsContext(
        options=options,
        clock=clock,
        ages=ages,
        metrics=metrics,
        states=states,
        ptr_index=ptr_index,
        drivers=drivers,
        channels=channels,
        activity=PublishActivity(clock),
        probes=probes,
        outages=outages,
        remover=ZoneRemover(
            states,
            ptr_index,
            drivers.driver,
            channels.instances,
            ages=ages,
            grace_seconds=options.deletion_grace.total_seconds(),
        ),
    )


def spread(seconds: float) -> float:
    """About so many seconds, so that keys that were reconciled together do not stay together."""
    return seconds * (0.9 + 0.2 * random.random())  # noqa: S311  # spreads load


def rejection_of(error: KubeError) -> tuple[str, str] | None:
    """Reason and message of a condition, when the API server rejected an object that we apply.

    Such an answer stays the same until the user changes the object, or a quota or policy. Missing permissions are
    another matter: the runtime reports those, with the Role that would help.
    """
    text = f"the API server rejected it: {error.message[:LONGEST_MESSAGE]}"
    if isinstance(error, (BadRequest, Invalid)):
        return "ConfigurationInvalid", text
    if isinstance(error, Forbidden) and error.rule is None:  # a quota, or an admission policy
        return "Forbidden", text
    return None
