"""Looking without touching: what zones would be, what servers serve, and where the two differ.

The same functions that run the operator, on objects that were listed once (and manifests laid over them) instead of on
caches. Servers are only read.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import ConfigError, DriverError, PlanError
from steersman.kube.document import did_you_mean
from steersman.kube.resources import ObjectRef
from steersman.kube.types.core import Secret
from steersman.kube.types.pods import Pod
from steersman.operators.dns.book import ZoneBook
from steersman.operators.dns.checks import RRSIG, delegation_problems, parent_of, signature_problems
from steersman.operators.dns.claims import check_holder
from steersman.operators.dns.desk import Desk
from steersman.operators.dns.foreign import kept_in
from steersman.operators.dns.names import name_of, owner_in, short_text
from steersman.operators.dns.ownership import adopted_servers, leaving_parts, owned_places, values_of
from steersman.operators.dns.pointers import Directory, is_reverse
from steersman.operators.dns.recordkinds import RECORD_KINDS
from steersman.operators.dns.rrsets import GENERATED, RRset, Soa, type_name, value_text
from steersman.operators.dns.selection import check_selectors
from steersman.operators.dns.serials import latest
from steersman.operators.dns.serverkinds import Bind9Cluster, Bind9Instance, ClusterBind9Provider
from steersman.operators.dns.shelf import Shelf
from steersman.operators.dns.types import ADOPT, GROUP, Options
from steersman.operators.dns.zoneconfig import changes, is_made_here, primary_config, secondary_config
from steersman.operators.dns.zonekinds import DNSZone
from steersman.operators.dns.zoneplan import (
    ignored_names,
    is_ignored,
    is_told_ours,
    own_contributions,
    soa_of,
    zone_name,
)
from steersman.runtime.conditions import find_condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from steersman.kube.client import Client
    from steersman.operators.dns.rrsets import Key
    from steersman.operators.dns.servers import Server

__all__ = ["KINDS", "Difference", "Finding", "Reason", "Survey", "objects_of"]

OWN = (ClusterBind9Provider, Bind9Cluster, Bind9Instance, DNSZone, *RECORD_KINDS)
KINDS = (*OWN, Secret, Pod)


class Difference(msgspec.Struct, frozen=True):
    """One RRset that differs between a server and what is wanted."""

    zone: str
    server: str
    name: str
    type: str
    action: str  # add, change, remove, create (the zone), configure (it), keep, held, unreachable, invalid
    have: tuple[str, ...] = ()
    want: tuple[str, ...] = ()
    why: str = ""


class Finding(msgspec.Struct, frozen=True):
    """One thing that is not as it should be."""

    zone: str
    check: str  # serial, drift, foreign, held, server, signatures, delegation
    server: str
    message: str


class Reason(msgspec.Struct, frozen=True):
    """What is known of one name."""

    name: str
    type: str
    source: str
    state: str  # published or a reason
    message: str
    served: dict[str, tuple[str, ...]] = {}  # server -> values


_BY_NAME = {kind.KIND.kind.lower(): kind for kind in RECORD_KINDS}


async def objects_of(client: Client) -> dict[Any, list[Any]]:
    """Everything the survey needs, as the cluster has it."""
    found: dict[Any, list[Any]] = {}
    for kind in KINDS:
        if kind is Pod:
            found[kind] = (await client.list(kind, label_selector="app=bind9", namespace="")).items
        else:
            found[kind] = (await client.list(kind, namespace="")).items
    return found


class Survey:
    """Zones and servers at one moment."""

    def __init__(
        self, objects: dict[Any, list[Any]], *, namespace: str | None = None, options: Options | None = None
    ) -> None:
        """`namespace` leaves out the zones of others."""
        self._namespace = namespace
        self._cache: Any = {kind: Shelf(objects.get(kind, [])) for kind in KINDS}
        self._pointers: Directory | None = None
        self.desk = Desk(options or Options(), clock=SYSTEM_CLOCK)

    def close(self) -> None:
        """Hang up."""
        self.desk.fleet.close()

    def zones(self, names: Iterable[str] = ()) -> list[DNSZone]:
        """All zones, or those of these names; ConfigError when one of them is none."""
        wanted = {name.lower().removesuffix(".") for name in names}
        rows = self._cache[DNSZone].list(namespace=self._namespace)
        known = {zone.spec.zone_name.lower().removesuffix(".") for zone in rows}
        for name in sorted(wanted - known):
            where = f" in namespace {self._namespace}" if self._namespace else ""
            raise ConfigError(f'no DNSZone is called "{name}"{where}{did_you_mean(name, known)}')
        return [zone for zone in rows if not wanted or zone.spec.zone_name.lower().removesuffix(".") in wanted]

    def book(self, zone: DNSZone) -> tuple[ZoneBook, list[Server]]:
        """A zone as it should be, and its servers; PlanError when there is no saying."""
        check_selectors(zone)
        choice = self.desk.choose(zone, self._cache)
        check_holder(self.desk, zone, choice, self._cache)
        servers, problems = self.desk.servers(choice.instances, self._cache)
        for problem in problems.values():
            raise problem
        book, name = ZoneBook(zone.ref), zone_name(zone)
        own = own_contributions(
            zone, name, [one.address for one in servers if one.role == "primary" and not one.managed]
        )
        book.load(zone, name, own, self._cache, self._directory_for(zone, name))
        return book, servers

    def _directory_for(self, zone: DNSZone, name: bytes) -> Directory:
        """What all zones want of others, if this zone is one that needs to know: a reverse zone or a catalog."""
        if self._pointers is None and (is_reverse(name) or zone.spec.catalog):
            self._pointers = Directory()
            for other in self._cache[DNSZone]:
                with suppress(PlanError):
                    chosen = self.desk.choose(other, self._cache).instances
                    listed = frozenset(self.desk.catalogs_of(other, chosen, self._cache))
                    self._pointers.catalogs.put(other.ref, zone_name(other), listed)
                    ZoneBook(other.ref).load(
                        other,
                        zone_name(other),
                        own_contributions(other, zone_name(other)),
                        self._cache,
                        self._pointers,
                    )
        return self._pointers if self._pointers is not None else Directory()

    async def differences(self, zone: DNSZone) -> list[Difference]:
        """What publishing the zone would change, by primary."""
        title = zone.spec.zone_name
        try:
            book, servers = self.book(zone)
        except PlanError as error:
            return [Difference(title, "", "", "", "invalid", why=str(error))]
        rows = [
            Difference(
                title,
                "",
                short_text(key[0], book.draft.zone),
                type_name(key[1]),
                "held",
                why=f"{source}: {why.message}",
            )
            for key, source, why in book.draft.problems()
        ]
        rows += [
            Difference(title, "", "", "", "held", why=f"{source}: {why.reason}: {why.message}")
            for source, why in sorted(book.draft.invalid.items())
        ]
        primaries = [one for one in servers if one.role == "primary"]
        if not primaries:
            return [*rows, Difference(title, "", "", "", "invalid", why="no primary serves it")]
        theirs: set[str] = set()  # servers whose copy is not ours
        for server in primaries:
            try:
                driver = self.desk.fleet.driver(server)
                if await driver.soa(book.draft.zone) is None:
                    rows.append(
                        Difference(title, server.title, title, "SOA", "create", why=f"{len(book.draft.rrsets)} RRsets")
                    )
                    continue
                skip = GENERATED if zone.spec.dnssec_policy else frozenset[int]()
                soa, rrsets = await driver.read(book.draft.zone, skip)
            except DriverError as error:
                rows.append(Difference(title, server.title, "", "", "unreachable", why=error.message))
                continue
            lag = book.learn(book.copy(server.id), soa, rrsets)
            ignored = ignored_names(zone)
            seen = {
                key: have
                for key, have in sorted(lag.items(), key=lambda item: item[0])
                if key in book.draft.rrsets or not is_ignored(key, book.draft.zone, ignored)
            }
            kept = await self._kept(zone, book, server, seen)
            if kept is not None:
                theirs.add(server.id)
            start = _start_of(zone, server, soa)
            rows += start if kept is None else [_as_kept(row) for row in start]
            for key, have in seen.items():
                row = _difference(title, server, key, have, book)
                rows.append(_as_kept(row) if kept is not None and key in kept else row)
        configured = await self._configurations(zone, book, servers)
        return [*rows, *(_as_kept(row) if place in theirs else row for place, row in configured)]

    async def _kept(
        self, zone: DNSZone, book: ZoneBook, server: Server, lag: Mapping[Key, RRset | None]
    ) -> frozenset[Key] | None:
        """What of a copy stays as it is until somebody says whose it is; None when it is ours."""
        if server.managed or is_told_ours(zone) or server.id in adopted_servers(zone, [server]):
            return None
        name = book.draft.zone
        if not server.records_only:
            with suppress(DriverError):
                if is_made_here(await self.desk.fleet.driver(server).configuration(name) or (), server, name):
                    return None
        owned = owned_places(zone, name, self._cache).get(str(server.instance), frozenset())
        spoken = values_of(leaving_parts(zone, name, self._cache))
        return kept_in(lag, book.draft.rrsets, name, owned=owned, spoken=spoken)

    async def _configurations(
        self, zone: DNSZone, book: ZoneBook, servers: Sequence[Server]
    ) -> list[tuple[str, Difference]]:
        """What servers would be told otherwise about a zone. Who signs a zone is seen only when it is published."""
        rows = []
        policy, name, title = zone.spec.dnssec_policy, book.draft.zone, zone.spec.zone_name
        primaries = [one for one in servers if one.role == "primary"]
        secondaries = [one for one in servers if one.role == "secondary"]
        for server in servers:
            first = server.role == "primary"
            if server.records_only or (policy and len(primaries) > 1) or (server.catalog and not first):
                continue
            with suppress(DriverError):  # that it does not answer is said elsewhere
                found = await self.desk.fleet.driver(server).configuration(name)
                wanted = (
                    primary_config(server, name, secondaries, policy=policy)
                    if first
                    else secondary_config(server, name, primaries)
                )
                rows += [
                    (server.id, Difference(title, server.title, title, statement, "configure", (have,), (want,)))
                    for statement, (have, want) in changes(found or wanted, wanted).items()
                ]
        return rows

    async def findings(self, zone: DNSZone) -> list[Finding]:
        """What is wrong with a zone: on its servers, and in what they serve."""
        title = zone.spec.zone_name
        found = []
        for row in await self.differences(zone):
            check = {
                "held": "held",
                "unreachable": "server",
                "invalid": "zone",
                "create": "server",
                "keep": "foreign",
            }.get(row.action, "drift")
            text = row.why or f"{row.action} {row.type} {', '.join(row.have or row.want)}"
            found.append(Finding(title, check, row.server, f"{row.name}: {text}" if row.name else text))
        try:
            book, servers = self.book(zone)
        except PlanError:
            return found
        serials: dict[str, int] = {}
        for server in servers:
            try:
                soa = await self.desk.fleet.driver(server).soa(book.draft.zone)
            except DriverError as error:
                if server.role == "secondary":
                    found.append(Finding(title, "server", server.title, error.message))
                continue
            if soa is not None:
                serials[server.title] = Soa.read(soa).serial
            elif server.role == "secondary":
                found.append(Finding(title, "serial", server.title, "it does not serve the zone"))
        found += [Finding(title, "serial", server, text) for server, text in lagging(serials)]
        found += [Finding(title, "delegation", "", text) for text in self._delegation(book)]
        if zone.spec.dnssec_policy:
            found += [row for server in servers for row in await self._signatures(title, book, server)]
        return found

    def _delegation(self, book: ZoneBook) -> list[str]:
        """What is wrong with the delegation of a zone whose parent is ours too."""
        others = {}
        for zone in self._cache[DNSZone]:
            with suppress(PlanError):
                others[zone_name(zone)] = zone
        above = parent_of(book.draft.zone, others)
        if above is None:
            return []
        try:
            return delegation_problems(book.draft, self.book(others[above])[0].draft)
        except PlanError as error:
            return [f"its parent {others[above].spec.zone_name} cannot be served: {error}"]

    async def _signatures(self, title: str, book: ZoneBook, server: Server) -> list[Finding]:
        try:
            values = await self.desk.fleet.driver(server).values(book.draft.zone, RRSIG)
        except DriverError:
            return []  # that it does not answer is said elsewhere
        texts = signature_problems(values, SYSTEM_CLOCK.time())
        return [Finding(title, "signatures", server.title, text) for text in texts]

    async def reasons(self, name: str) -> list[Reason]:
        """Why a name is answered as it is."""
        wanted = name_of(name)
        rows = []
        for zone in self.zones():
            try:
                book, servers = self.book(zone)
            except PlanError as error:
                if _holds(zone, wanted):
                    rows.append(Reason(name, "", zone.name, error.reason, str(error), {}))
                continue
            rows += self._invalid(name, zone, book)
            owner = owner_in(wanted, book.draft.zone)
            if owner is None:
                continue
            drift = find_condition(zone.status.conditions if zone.status is not None else None, "Drift")
            if drift is not None and drift.status == "True":
                rows.append(Reason(name, "", zone.name, drift.type, drift.message))
            keys = sorted(
                {part.key for parts in book.draft.contributions.values() for part in parts if part.key[0] == owner}
            )
            for key in keys:
                served = {server.title: await self._served(server, wanted, key[1]) for server in servers}
                for source in book.draft.sources_of(key):
                    outcome = book.draft.outcome(source)
                    held = book.draft.held.get(key, {}).get(source) or (outcome.held if outcome else None)
                    state, text = ("published", "") if held is None else (held.reason, held.message)
                    rows.append(Reason(name, type_name(key[1]), f"{zone.name}: {source}", state, text, served))
        return rows

    def _invalid(self, name: str, zone: DNSZone, book: ZoneBook) -> list[Reason]:
        """Records that want this name and cannot have it, whatever zone it would be in."""
        rows = []
        asked, inside = name.lower().rstrip("."), zone.spec.zone_name.lower()
        for source, held in sorted(book.draft.invalid.items()):
            kind, _, title = source.partition("/")
            record = self._cache[_BY_NAME[kind]].get(ObjectRef(title, zone.namespace)) if kind in _BY_NAME else None
            said = record.spec.name.lower().rstrip(".") if record is not None else ""
            if asked in (said, f"{said}.{inside}"):
                rows.append(Reason(name, "", f"{zone.name}: {source}", held.reason, held.message))
        return rows

    async def _served(self, server: Server, name: bytes, kind: int) -> tuple[str, ...]:
        from steersman.operators.dns.dnsclient import DnsClient

        client = DnsClient(server.address, server.dns_port, clock=SYSTEM_CLOCK, timeout=5.0)
        try:
            answer = await client.ask(name, kind)
        except DriverError as error:
            return (error.message,)
        finally:
            client.close()
        return tuple(
            sorted(value_text(kind, row.value) for row in answer.rows if row.kind == kind and row.name == name)
        )


def _holds(zone: DNSZone, name: bytes) -> bool:
    """Whether a name is one of the zone's, as far as the zone can be read."""
    try:
        return owner_in(name, zone_name(zone)) is not None
    except PlanError:
        return False


def _difference(title: str, server: Server, key: Key, have: RRset | None, book: ZoneBook) -> Difference:
    want = book.draft.rrsets.get(key)
    action = "add" if have is None else ("remove" if want is None else "change")
    return Difference(
        title,
        server.title,
        short_text(key[0], book.draft.zone),
        type_name(key[1]),
        action,
        _texts(key[1], have),
        _texts(key[1], want),
        ", ".join(book.draft.sources_of(key)),
    )


def _as_kept(row: Difference) -> Difference:
    """A difference that stays, for data of others is in the zone and nobody has said what becomes of it."""
    if row.action == "add" and row.have == ():
        text = "ForeignData: it has no place beside what others have there"
    else:
        text = f"ForeignData; with {ADOPT}: {row.action}"
    return msgspec.structs.replace(row, action="keep", why=text)


def _start_of(zone: DNSZone, server: Server, served: bytes) -> list[Difference]:
    """The start of authority, where it would be another but for its serial."""
    want, title = soa_of(zone, Soa.read(served).serial).value(), zone.spec.zone_name
    if want == served:
        return []
    return [Difference(title, server.title, "@", "SOA", "change", (value_text(6, served),), (value_text(6, want),))]


def _texts(kind: int, rrset: RRset | None) -> tuple[str, ...]:
    return () if rrset is None else tuple(f"{rrset.ttl} {value_text(kind, value)}" for value in sorted(rrset.values))


def lay_over(objects: dict[Any, list[Any]], manifests: Iterable[dict[str, Any]], namespace: str) -> list[str]:
    """Put manifests in the place of what the cluster has; returns what is wrong with them."""
    by_kind = {kind.KIND.kind: kind for kind in OWN} | {"Secret": Secret}
    problems = []
    for number, manifest in enumerate(manifests):
        group = str(manifest.get("apiVersion", "")).rpartition("/")[0]
        kind = by_kind.get(str(manifest.get("kind")))
        if kind is None or (kind is not Secret and group != GROUP):
            continue
        meta = {
            "generation": 1,
            "uid": f"manifest-{number}",
            "creationTimestamp": "9999-01-01T00:00:00Z",
            **manifest["metadata"],
        }
        if kind.KIND.namespaced:
            meta.setdefault("namespace", namespace)
        try:
            made = msgspec.json.decode(msgspec.json.encode({**manifest, "metadata": meta}), type=kind)
        except msgspec.ValidationError as error:
            problems.append(f"{manifest['kind']} {meta.get('name')}: {error}")
            continue
        if isinstance(made, Secret):
            made.data.update({name: text.encode() for name, text in made.string_data.items()})
        rows = objects.setdefault(kind, [])
        known = next((row for row in rows if row.ref == made.ref), None)
        if known is not None:
            rows.remove(known)
            made.metadata.uid = known.metadata.uid
            made.metadata.creation_timestamp = known.metadata.creation_timestamp
            made.metadata.generation = known.metadata.generation + 1
            if hasattr(known, "status"):  # whose a copy is stands there
                setattr(made, "status", known.status)  # noqa: B010  not every kind has one
        rows.append(made)
    return problems


def lagging(serials: Mapping[str, int]) -> list[tuple[str, str]]:
    """Who serves an older serial than others, by the arithmetic of serials, in words."""
    newest = latest(*serials.values()) if serials else 0
    return [
        (server, f"it serves serial {number}, others {newest}")
        for server, number in sorted(serials.items())
        if number != newest
    ]
