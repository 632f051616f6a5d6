"""The desk: what the controllers of this operator share. Books, servers, metrics, and the channels between them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from steersman.clock import Deadline
from steersman.errors import DriverError, PlanError
from steersman.kube.resources import ObjectRef
from steersman.kube.types.core import Secret
from steersman.kube.types.pods import Pod
from steersman.operators.dns.book import Books
from steersman.operators.dns.catalogs import catalogs_of
from steersman.operators.dns.fleet import Fleet, catalog_of, keys_of, servers_of
from steersman.operators.dns.outages import Outages
from steersman.operators.dns.pointers import Directory, lets_in, named_in, zones_above
from steersman.operators.dns.recordkinds import RECORD_KINDS
from steersman.operators.dns.selection import choose_instances
from steersman.operators.dns.serverkinds import Bind9Cluster, Bind9Instance, ClusterBind9Provider
from steersman.operators.dns.types import CATALOG
from steersman.operators.dns.zonekinds import DNSZone
from steersman.runtime.channel import Channel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from steersman.clock import Clock
    from steersman.operators.dns.book import ZoneBook
    from steersman.operators.dns.metrics import DnsMetrics
    from steersman.operators.dns.pointers import Origin
    from steersman.operators.dns.selection import Choice
    from steersman.operators.dns.servers import Server
    from steersman.operators.dns.types import Options

__all__ = ["INSTANCE_LABEL", "Desk"]

K = TypeVar("K")

INSTANCE_LABEL = "app.kubernetes.io/instance"
PATIENCE = 1.0  # seconds that a report waits for zones


class Desk:
    """See the module."""

    def __init__(self, options: Options, *, clock: Clock, metrics: DnsMetrics | None = None) -> None:
        self.options = options
        self.clock = clock
        self.metrics = metrics
        self.books = Books()
        self.directory = Directory()
        self.catalogs = self.directory.catalogs
        self.fleet = Fleet(
            clock=clock,
            timeout=options.request_timeout.total_seconds(),
            pause=options.server_pause.total_seconds(),
            token_file=options.bindcar_token_file,
        )
        self.records = {kind: Channel() for kind in RECORD_KINDS}
        self.zones = Channel()
        self.instances = Channel()
        self.outages = Outages(self.instances.send)
        self.left: dict[ObjectRef, set[str]] = {}  # zones that instances are to remember as left behind
        self._probes: dict[str, asyncio.Task[None]] = {}
        self._busy = 0
        self._calm = asyncio.Event()  # not set before the first zone has been published: see `turn`
        self._by_name = {kind.KIND.kind.lower(): kind for kind in RECORD_KINDS}

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """While a zone is being published, reports wait: answers come before words about them."""
        self._busy += 1
        self._calm.clear()
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                self._calm.set()

    @property
    def busy(self) -> bool:
        """Whether a zone is being published."""
        return self._busy > 0

    async def turn(self) -> None:
        """Return when no zone is being published; not much later than that in any case."""
        if not self._calm.is_set():
            try:
                async with Deadline(self.clock, PATIENCE):
                    await self._calm.wait()
            except TimeoutError:
                if not self._busy:  # there is no zone to wait for, and the next record need not find that out again
                    self._calm.set()

    def choose(self, zone: DNSZone, cache: Any) -> Choice:
        """Who serves a zone."""
        return self.choose_from(zone, cache[Bind9Instance], cache)

    def choose_from(self, zone: DNSZone, instances: Iterable[Bind9Instance], cache: Any) -> Choice:
        """Who of these serves a zone."""
        return choose_instances(
            zone,
            instances,
            _Named(cache[Bind9Cluster], lambda place: ObjectRef(place[1], place[0])),
            _Named(cache[ClusterBind9Provider], ObjectRef),
            self.options.server_namespaces,
        )

    def servers(self, instances: Iterable[Bind9Instance], cache: Any) -> tuple[list[Server], dict[str, PlanError]]:
        """The servers of instances, and for which instances that cannot be said."""
        found: list[Server] = []
        problems: dict[str, PlanError] = {}
        secrets = _Shelf(cache[Secret])
        for instance in instances:
            cluster = cache[Bind9Cluster].get(ObjectRef(instance.spec.cluster_ref, instance.namespace))
            try:
                keys = keys_of(instance, cluster, secrets)  # type: ignore[arg-type]  # a mapping, as far as it is used
                pods: Sequence[Pod] = ()
                if not instance.spec.endpoints:
                    pods = cache[Pod].by_index("dns-instance", f"{instance.namespace}/{instance.name}")
                found += servers_of(instance, cluster, keys, pods)
            except PlanError as error:
                problems[str(instance.ref)] = error
        return found, problems

    def catalogs_of(
        self, zone: DNSZone, instances: Iterable[Bind9Instance], cache: Any
    ) -> dict[tuple[str, str], ObjectRef]:
        """The catalogs that a zone should be in, each with an instance that takes its zones from there."""
        clusters = cache[Bind9Cluster]
        return catalogs_of(
            zone,
            [
                (one.ref, catalog)
                for one in instances
                for catalog in (
                    catalog_of(one, clusters.get(ObjectRef(one.spec.cluster_ref, one.namespace))),
                    *self._catalogs_of_pods(one, cache),
                )
            ],
        )

    def _catalogs_of_pods(self, instance: Bind9Instance, cache: Any) -> list[str]:
        """The catalogs that pods of an instance have: while one of them is there its zones stay listed."""
        if instance.spec.endpoints:
            return []
        pods: Sequence[Pod] = cache[Pod].by_index("dns-instance", f"{instance.namespace}/{instance.name}")
        return [pod.annotations.get(CATALOG, "") for pod in pods]

    def tell_followers(self, book: ZoneBook, servers: Iterable[Server]) -> None:
        """Have secondaries looked at whose configuration names the primaries of a zone, when these are others now."""
        known = list(servers)
        primaries = frozenset((one.address, one.dns_port) for one in known if one.role == "primary")
        if primaries != book.primaries:
            book.primaries = primaries
            for instance in {one.instance for one in known if one.managed and one.catalog}:
                self.instances.send(instance)

    def tell_records(self, namespace: str, sources: Iterable[str]) -> None:
        """Have these records reported. Those of PTR records name the namespace they come from themselves."""
        for source in sources:
            kind, _, name = source.partition("/")
            if (found := self._by_name.get(kind)) is not None:
                elsewhere, _, short = name.rpartition("/")
                self.records[found].send(ObjectRef(short, elsewhere or namespace))

    def tell_reverse(self, moved: Iterable[tuple[Origin, bytes]], cache: Any) -> None:
        """Have the reverse zones published that may get or lose a PTR record; without one, the record says so."""
        named = named_in(cache)
        for origin, name in moved:
            homeless = True
            for zones in zones_above(name, named):
                for zone in zones:
                    if (book := self.books.get(zone.ref)) is not None:
                        book.mark_origin(origin)
                    self.zones.send(zone.ref)
                    homeless = homeless and not lets_in(zone, origin[0])
            if homeless:
                self.tell_records(origin[0], [origin[1]])

    def tell_catalogs(self, catalogs: Iterable[tuple[str, str]], cache: Any) -> None:
        """Have catalogs published whose members are others now."""
        for namespace, name in catalogs:
            for zone in cache[DNSZone].by_index("dns-zone-name", name):
                if zone.namespace == namespace and zone.spec.catalog:
                    self.zones.send(zone.ref)

    def probe(self, server: Server) -> None:
        """Have the zones of a server that kept silent published there when it has shown a sign of life."""
        if server.id not in self._probes:
            self._probes[server.id] = asyncio.create_task(self._probe(server))

    async def _probe(self, server: Server) -> None:
        try:
            driver = self.fleet.driver(server)
            await driver.soa(b"\0")
            if not server.records_only:
                await driver.ready()
        except DriverError as error:
            if not (getattr(error, "rcode", "") or getattr(error, "text", "")):
                return
        finally:
            self._probes.pop(server.id, None)
        for book in self.books:
            copy = book.copies.get(server.id)
            if copy is not None and copy.silent:
                copy.silent, copy.slow = False, True
                self.zones.send(book.ref)

    def later(self, seconds: float) -> float:
        """About so many seconds: keys that were looked at together need not stay together."""
        return seconds * (0.9 + 0.2 * random.random())  # noqa: S311  # spreads load

    async def hold(self, _cluster: Any) -> None:
        """Keep connections until told to stop."""
        try:
            while True:
                await self.clock.sleep(3600)
        finally:
            for task in self._probes.values():
                task.cancel()
            self.fleet.close()


class _Named(Mapping[K, Any]):
    """A snapshot as a mapping by other keys: zones ask for one or two parents, and there may be many."""

    def __init__(self, snapshot: Any, ref: Callable[[K], ObjectRef]) -> None:
        self._snapshot, self._ref = snapshot, ref

    def __getitem__(self, key: K) -> Any:
        found = self._snapshot.get(self._ref(key))
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[K]:
        raise TypeError("only asked for single ones")

    def __len__(self) -> int:
        return len(self._snapshot)


class _Shelf:
    """A snapshot as a mapping."""

    def __init__(self, snapshot: Any) -> None:
        self._snapshot = snapshot

    def get(self, ref: ObjectRef) -> Any:
        return self._snapshot.get(ref)
