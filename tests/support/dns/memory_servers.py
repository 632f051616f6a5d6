"""Name servers in memory, each of which is its own driver: zones are published to them in microseconds.

    site = MemorySite(primaries=1, secondaries=1)
    site.want("www A 192.0.2.1")
    report = await site.publish()
    assert site.primaries[0].data() == {"@ NS", "www A 192.0.2.1"}

A server behaves as named does where the publisher depends on it: an update is conditional on the start of authority,
all or nothing, and a serial never goes back. What it does not do: sign zones, and transfer them by itself. A secondary
gets a zone with `transfer`, or when it is asked to refresh.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dns.rdata
import dns.rdatatype
import msgspec

from steersman.errors import DriverError
from steersman.kube.api.gvk import NamespacedName
from steersman.operators.dns.bind.driver import BadZone, Refused, Stale, Static
from steersman.operators.dns.bind.servers import Keys, Server
from steersman.operators.dns.bind.statements import Statement
from steersman.operators.dns.publish.copy_inspector import PublishJob, PublishReport
from steersman.operators.dns.publish.publisher import publish
from steersman.operators.dns.publish.zone_state import ZoneState
from steersman.operators.dns.wire.tsig import Key as TsigKey
from steersman.operators.dns.zone.compiler import CompiledZone
from steersman.operators.dns.zone.conflicts import ZONE
from steersman.operators.dns.zone.names import name_of, owner_of, text_of
from steersman.operators.dns.zone.rdata import NS, Contribution, Key, RRset, Soa, type_name, value_text
from steersman.operators.dns.zone.serial import is_later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from steersman.operators.dns.wire.messages import RRsetChange

__all__ = ["ORG", "MemoryServer", "MemorySite", "StoredZone", "key_of", "rrset_of"]

ORG = name_of("example.org")
START = Soa(name_of("ns.example.net"), name_of("hostmaster.example.org"), 0, 3600, 600, 86400, 60)
NAME_SERVER = Contribution(ZONE, (b"", NS), None, frozenset({START.primary}))
KEY = TsigKey("key", "hmac-sha256", b"secret")
TTL = 60


class StoredZone(msgspec.Struct):
    """A zone as a server has it."""

    config: tuple[Statement, ...] = ()
    soa: bytes | None = None  # None: a secondary that has not transferred it yet
    rrsets: dict[Key, RRset] = {}
    added: bool | None = True  # whether Steersman added it; None: the server cannot say
    static: bool = False  # part of the server's own configuration


class MemoryServer:
    """One server; see `steersman.operators.dns.bind.driver.Driver`."""

    def __init__(self, server: Server, source: MemoryServer | None = None) -> None:
        self.server, self.source = server, source
        self.zones: dict[bytes, StoredZone] = {}
        self.failure: DriverError | None = None  # raised by every request
        self.create_failure: DriverError | None = None  # raised where a zone is to be added
        self.write_failure: DriverError | None = None  # raised by updates that were applied: the answer was lost
        self.refuses: Callable[[RRsetChange], bool] = lambda _change: False
        self.before_write: list[Callable[[], None]] = []  # each happens once, just before an update arrives
        self.updates: list[list[str]] = []  # accepted ones: which names and types each changed
        self.attempts = 0  # updates that arrived
        self.refreshes = 0

    # -- for tests -----------------------------------------------------------------------------------------------------

    def data(self, zone: bytes = ORG) -> set[str]:
        """The records that are served, as zone files have them, name servers of the zone left out."""
        stored = self.zones.get(zone)
        return {
            f"{_title(owner)} {type_name(kind)} {value_text(kind, value)}"
            for (owner, kind), rrset in (stored.rrsets if stored is not None else {}).items()
            for value in rrset.values
            if (owner, kind) != NAME_SERVER.key
        }

    def serial(self, zone: bytes = ORG) -> int:
        """The serial that is served; 0 when none is."""
        stored = self.zones.get(zone)
        return 0 if stored is None or stored.soa is None else Soa.read(stored.soa).serial

    def put(self, *records: str, zone: bytes = ORG) -> None:
        """Another client changes a zone: records are added, and the serial moves by one."""
        stored = self.zones[zone]
        for record in records:
            stored.rrsets[key_of(record)] = rrset_of(record)
        assert stored.soa is not None
        start = Soa.read(stored.soa)
        stored.soa = msgspec.structs.replace(start, serial=start.serial + 1).value()

    def has(self, *records: str, serial: int = 1, zone: bytes = ORG, **options: Any) -> None:
        """The server has the zone already, with these records and a name server."""
        rrsets = {key_of(record): rrset_of(record) for record in records}
        rrsets[NAME_SERVER.key] = RRset(TTL, NAME_SERVER.values)
        soa = msgspec.structs.replace(START, serial=serial).value()
        self.zones[zone] = StoredZone(**{"soa": soa, "rrsets": rrsets, "added": False, **options})

    def transfer(self, zone: bytes = ORG) -> None:
        """A secondary takes the zone from its primary, as after a notification."""
        assert self.source is not None
        origin, mine = self.source.zones[zone], self.zones[zone]
        mine.soa, mine.rrsets = origin.soa, dict(origin.rrsets)

    # -- the driver ----------------------------------------------------------------------------------------------------

    def _zone(self, zone: bytes) -> StoredZone:
        self._answer()
        if zone not in self.zones:
            raise DriverError("the server does not have the zone", server=self.server.title)
        return self.zones[zone]

    def _answer(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def configuration(self, zone: bytes) -> tuple[Statement, ...] | None:
        self._answer()
        return self.zones[zone].config if zone in self.zones else None

    async def create_primary(
        self, zone: bytes, config: tuple[Statement, ...], soa: Soa, rrsets: Mapping[Key, RRset], ttl: int
    ) -> None:
        from steersman.operators.dns.wire.messages import RRsetChange

        self._answer()
        assert zone not in self.zones
        if self.create_failure is not None:
            raise self.create_failure
        if any(self.refuses(RRsetChange(key, None, rrset)) for key, rrset in rrsets.items()):
            raise BadZone("bad zone", server=self.server.title)
        self.zones[zone] = StoredZone(config, soa.value(), dict(rrsets))

    async def create_secondary(self, zone: bytes, config: tuple[Statement, ...]) -> None:
        self._answer()
        assert zone not in self.zones
        self.zones[zone] = StoredZone(config)

    async def configure(self, zone: bytes, config: tuple[Statement, ...]) -> None:
        self._zone(zone).config = config

    async def added(self, zone: bytes) -> bool | None:
        self._answer()
        return self.zones[zone].added if zone in self.zones else False

    async def remove(self, zone: bytes) -> None:
        self._answer()
        if zone in self.zones and self.zones[zone].static:
            raise Static("part of the configuration", server=self.server.title)
        self.zones.pop(zone, None)

    async def soa(self, zone: bytes) -> bytes | None:
        self._answer()
        return self.zones[zone].soa if zone in self.zones else None

    async def soa_ttl(self, zone: bytes) -> int | None:
        return None if self._zone(zone).soa is None else TTL

    async def read(self, zone: bytes, skip: frozenset[int]) -> tuple[bytes, Mapping[Key, RRset]]:
        stored = self._zone(zone)
        assert stored.soa is not None
        return stored.soa, {key: rrset for key, rrset in stored.rrsets.items() if key[1] not in skip}

    async def write(
        self, zone: bytes, expected: bytes | None, soa: bytes | None, ttl: int, changes: Sequence[RRsetChange]
    ) -> None:
        self.attempts += 1
        while self.before_write:
            self.before_write.pop(0)()
        stored = self._zone(zone)
        if expected != stored.soa:
            raise Stale("the zone has changed since it was read", server=self.server.title)
        if any(map(self.refuses, changes)):
            raise Refused("REFUSED", server=self.server.title)
        assert soa is not None
        assert stored.soa is not None
        now, later = Soa.read(stored.soa).serial, Soa.read(soa).serial
        assert is_later(later, now), f"serial {later} is not later than {now}: secondaries would not take the zone"
        for change in changes:
            assert change.have == stored.rrsets.get(change.key), f"{change} was not made for what the server has"
            if change.want is None:
                del stored.rrsets[change.key]
            else:
                stored.rrsets[change.key] = change.want
        stored.soa = soa
        self.updates.append([f"{_title(change.key[0])} {type_name(change.key[1])}" for change in changes])
        if self.write_failure is not None:
            raise self.write_failure

    async def refresh(self, zone: bytes) -> None:
        self._zone(zone)
        self.refreshes += 1
        self.transfer(zone)


class MemorySite:
    """One zone, its servers, and what one process knows of them."""

    def __init__(self, primaries: int = 1, secondaries: int = 0, **options: Any) -> None:
        """`options` are those of every server."""
        self.primaries = [MemoryServer(_server("primary", number, options)) for number in range(primaries)]
        self.secondaries = [
            MemoryServer(_server("secondary", number, options), self.primaries[0]) for number in range(secondaries)
        ]
        self._drivers = {driver.server.id: driver for driver in (*self.primaries, *self.secondaries)}
        self._wanted: set[str] = set()
        self.now = 0.0
        self.restart()

    def restart(self) -> None:
        """Another process takes over: everything that was only in memory is gone."""
        self.state = ZoneState(NamespacedName("org", "shop"))
        self.state.loader.desired = CompiledZone(ORG, TTL)
        self.state.loader.desired.put(ZONE, NAME_SERVER)
        wanted, self._wanted = self._wanted, set()
        self.want(*wanted)

    def want(self, *records: str) -> None:
        """The zone should hold exactly these records: `www A 192.0.2.1`."""
        desired = self.state.loader.desired
        for gone in self._wanted - set(records):
            desired.drop(gone)
        for record in set(records) - self._wanted:
            desired.put(record, Contribution(record, key_of(record), None, rrset_of(record).values))
        self._wanted = set(records)
        before = dict(desired.settle().before)
        for copy in self.state.copies.values():
            if copy.known:
                copy.rebase(before, desired.rrsets)

    def driver_of(self, server: Server) -> MemoryServer:
        """The driver of a server."""
        return self._drivers[server.id]

    async def publish(self, **options: Any) -> PublishReport:
        """One pass over all servers."""
        self.now += 10.0
        job = PublishJob(
            soa=START,
            ttl=TTL,
            primaries=tuple(driver.server for driver in self.primaries),
            secondaries=tuple(driver.server for driver in self.secondaries),
            now=self.now,
            **options,
        )
        return await publish(self.state, job, self.driver_of)


def _server(role: str, number: int, options: Mapping[str, Any]) -> Server:
    address = f"192.0.2.{number + (1 if role == 'primary' else 101)}"
    instance = NamespacedName(f"{role}{number}", "shop")
    return Server(instance, "0", role, address, 53, 953, Keys(KEY, KEY, KEY), **options)


def key_of(record: str) -> Key:
    """Owner and type of `www A 192.0.2.1`."""
    owner, kind, _ = record.split(maxsplit=2)
    return (b"" if owner == "@" else owner_of(owner, ORG)), int(dns.rdatatype.from_text(kind))


def rrset_of(record: str, *further: str) -> RRset:
    """The RRset of one record, or of several with the same name and type."""
    return RRset(TTL, frozenset(_values((record, *further))))


def _title(owner: bytes) -> str:
    return text_of(owner + b"\0").removesuffix(".") or "@"


def _values(records: Iterable[str]) -> Iterable[bytes]:
    for record in records:
        _, kind, text = record.split(maxsplit=2)
        wire = dns.rdata.from_text("IN", kind, text).to_wire()
        assert wire is not None
        yield wire
