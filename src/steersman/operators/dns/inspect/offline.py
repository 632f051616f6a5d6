"""The read-only questions of the CLI: what zones should be, what servers serve, and where the two differ.

It uses the functions of the operator on objects that were listed once, with manifests on top, instead of on caches.
Nothing is written, neither to the cluster nor to servers.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.cache.static import StaticCache
from steersman.clock import SYSTEM_CLOCK
from steersman.errors import ConfigError, DriverError, PlanError
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.selectors import Selector
from steersman.kube.api.types.core import Secret
from steersman.kube.api.types.pods import Pod
from steersman.kube.config.yaml_document import did_you_mean
from steersman.operators.dns.api.config import ADOPT, GROUP, INSTANCE_LABEL, DnsOptions
from steersman.operators.dns.api.records import RECORD_KINDS
from steersman.operators.dns.api.servers import Bind9Cluster, Bind9Instance, ClusterBind9Provider
from steersman.operators.dns.api.zone import DNSZone
from steersman.operators.dns.bind.zone_statements import (
    borrowed,
    changes,
    is_made_here,
    primary_config,
    secondary_config,
)
from steersman.operators.dns.controllers.context import make_drivers
from steersman.operators.dns.inspect.checks import RRSIG, delegation_problems, parent_of, signature_problems
from steersman.operators.dns.publish.ownership import (
    adopted_servers,
    deleted_contributions,
    kept_keys,
    owned_keys,
    trusted_servers,
    values_of,
)
from steersman.operators.dns.publish.servers import catalogs_for, resolve_servers
from steersman.operators.dns.publish.zone_state import ZoneState
from steersman.operators.dns.zone.names import name_of, owner_in, short_text
from steersman.operators.dns.zone.overlap import check_overlap
from steersman.operators.dns.zone.ptr import PtrIndex, is_reverse
from steersman.operators.dns.zone.rdata import GENERATED, RRset, Soa, type_name, value_text
from steersman.operators.dns.zone.selection import (
    InstanceSelector,
    check_selectors,
    label_values,
    leaving_values,
    published_values,
    selector_values,
    zone_names,
    zone_names_above,
)
from steersman.operators.dns.zone.serial import latest
from steersman.operators.dns.zone.soa import (
    has_adopt_annotation,
    ignored_names,
    is_ignored,
    own_contributions,
    soa_of,
    zone_name,
)
from steersman.runtime.reconcile.conditions import find_condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from steersman.kube.client.client import Client
    from steersman.operators.dns.bind.servers import Server
    from steersman.operators.dns.zone.rdata import Key

OWN = (ClusterBind9Provider, Bind9Cluster, Bind9Instance, DNSZone, *RECORD_KINDS)
KINDS = (*OWN, Secret, Pod)
INDEXES: Any = {  # as `controllers.setup` has them on the caches
    "dns-labels": label_values,
    "dns-records-from": selector_values,
    "dns-zone-name": zone_names,
    "dns-zone-above": zone_names_above,
    "dns-leaving": leaving_values,
    "dns-published": published_values,
    "dns-instance": lambda pod: [f"{pod.namespace}/{pod.labels.get(INSTANCE_LABEL, '')}"],
}


class Difference(msgspec.Struct, frozen=True):
    """One RRset or statement that differs between a server and the desired state."""

    zone: str
    server: str
    name: str
    type: str
    action: str  # add, change, remove, create (the zone), configure (it), keep, held, unreachable, invalid
    have: tuple[str, ...] = ()
    want: tuple[str, ...] = ()
    why: str = ""


class Finding(msgspec.Struct, frozen=True):
    """One problem of a zone."""

    zone: str
    check: str  # serial, drift, foreign, held, server, signatures, delegation
    server: str
    message: str


class Reason(msgspec.Struct, frozen=True):
    """One resource that contributes to a name, and whether it is published."""

    name: str
    type: str
    source: str
    state: str  # published or a reason
    message: str
    served: dict[str, tuple[str, ...]] = {}  # server -> values


_BY_NAME = {kind.KIND.kind.lower(): kind for kind in RECORD_KINDS}


async def objects_of(client: Client) -> dict[Any, list[Any]]:
    """All objects of the cluster that an inspection reads."""
    found: dict[Any, list[Any]] = {}
    for kind in KINDS:
        if kind is Pod:
            found[kind] = (await client.list(kind, label_selector="app=bind9", namespace="")).items
        else:
            found[kind] = (await client.list(kind, namespace="")).items
    return found


class ZoneInspection:
    """Zones and servers at one moment."""

    def __init__(
        self, objects: dict[Any, list[Any]], *, namespace: str | None = None, options: DnsOptions | None = None
    ) -> None:
        """`namespace` leaves out the zones of other namespaces."""
        self._namespace = namespace
        self._cache: Any = StaticCache({kind: objects.get(kind, []) for kind in KINDS}, indexes=INDEXES)
        self._pointers: PtrIndex | None = None
        options = options or DnsOptions()
        self._selector = InstanceSelector(self._cache, options.server_namespaces)
        self._drivers = make_drivers(options, SYSTEM_CLOCK)

    def close(self) -> None:
        """Close all connections."""
        self._drivers.close()

    def zones(self, names: Iterable[str] = (), selector: str = "") -> list[DNSZone]:
        """All zones, or those of these names and labels; ConfigError for an unknown name."""
        wanted = {name.lower().removesuffix(".") for name in names}
        rows = self._cache[DNSZone].list(namespace=self._namespace)
        known = {zone.spec.zone_name.lower().removesuffix(".") for zone in rows}
        for name in sorted(wanted - known):
            where = f" in namespace {self._namespace}" if self._namespace else ""
            raise ConfigError(f'no DNSZone is called "{name}"{where}{did_you_mean(name, known)}')
        chosen = Selector.parse(selector)
        return [
            zone
            for zone in rows
            if chosen.matches(zone.labels) and (not wanted or zone.spec.zone_name.lower().removesuffix(".") in wanted)
        ]

    def desired_state(self, zone: DNSZone) -> tuple[ZoneState, list[Server]]:
        """The desired state of a zone, and its servers; PlanError when it cannot be determined."""
        check_selectors(zone)
        check_overlap(self._selector, zone)
        servers, problems = resolve_servers(self._selector.of(zone).instances, self._cache)
        for problem in problems.values():
            raise problem
        state, name = ZoneState(zone.ref), zone_name(zone)
        own = own_contributions(
            zone, name, [server.address for server in servers if server.role == "primary" and not server.managed]
        )
        state.load(zone, name, own, self._cache, self._directory_for(zone, name))
        return state, servers

    def _directory_for(self, zone: DNSZone, name: bytes) -> PtrIndex:
        """The PTR records and catalog members of all zones, which only reverse zones and catalogs need."""
        if self._pointers is None and (is_reverse(name) or zone.spec.catalog):
            self._pointers = PtrIndex()
            for other in self._cache[DNSZone]:
                with suppress(PlanError):
                    chosen = self._selector.of(other).instances
                    listed = frozenset(catalogs_for(other, chosen, self._cache))
                    self._pointers.catalogs.put(other.ref, zone_name(other), listed)
                    ZoneState(other.ref).load(
                        other,
                        zone_name(other),
                        own_contributions(other, zone_name(other)),
                        self._cache,
                        self._pointers,
                    )
        return self._pointers if self._pointers is not None else PtrIndex()

    async def differences(self, zone: DNSZone) -> list[Difference]:
        """What publishing the zone would change, by primary."""
        title = zone.spec.zone_name
        try:
            state, servers = self.desired_state(zone)
        except PlanError as error:
            return [Difference(title, "", "", "", "invalid", why=str(error))]
        rows = [
            Difference(
                title,
                "",
                short_text(key[0], state.desired.zone),
                type_name(key[1]),
                "held",
                why=f"{source}: {why.message}",
            )
            for key, source, why in state.desired.problems()
        ]
        rows += [
            Difference(title, "", "", "", "held", why=f"{source}: {why.reason}: {why.message}")
            for source, why in sorted(state.desired.invalid.items())
        ]
        primaries = [server for server in servers if server.role == "primary"]
        if not primaries:
            return [*rows, Difference(title, "", "", "", "invalid", why="no primary server")]
        foreign: set[str] = set()  # servers whose copy of the zone was added by others
        for server in primaries:
            try:
                driver = self._drivers.driver(server)
                if await driver.soa(state.desired.zone) is None:
                    rows.append(
                        Difference(
                            title, server.title, title, "SOA", "create", why=f"{len(state.desired.rrsets)} RRsets"
                        )
                    )
                    continue
                skip = GENERATED if zone.spec.dnssec_policy else frozenset[int]()
                soa, rrsets = await driver.read(state.desired.zone, skip)
            except DriverError as error:
                rows.append(Difference(title, server.title, "", "", "unreachable", why=error.message))
                continue
            diff = state.record_content(state.copy(server.id), soa, rrsets)
            ignored = ignored_names(zone)
            seen = {
                key: have
                for key, have in sorted(diff.items(), key=lambda item: item[0])
                if key in state.desired.rrsets or not is_ignored(key, state.desired.zone, ignored)
            }
            kept = await self._kept(zone, state, server, seen)
            if kept is not None:
                foreign.add(server.id)
            start = _start_of(zone, server, soa)
            rows += start if kept is None else [_as_kept(row) for row in start]
            for key, have in seen.items():
                row = _difference(title, server, key, have, state)
                rows.append(_as_kept(row) if kept is not None and key in kept else row)
        configured = await self._configurations(zone, state, servers)
        return [*rows, *(_as_kept(row) if place in foreign else row for place, row in configured)]

    async def _kept(
        self, zone: DNSZone, state: ZoneState, server: Server, diff: Mapping[Key, RRset | None]
    ) -> frozenset[Key] | None:
        """The RRsets of a foreign zone that stay until it is adopted; None when the zone is ours."""
        hosted = self._hosted(zone, server)
        if server.managed or (hosted and (has_adopt_annotation(zone) or adopted_servers(zone, hosted))):
            return None
        name = state.desired.zone
        if not server.records_only:
            with suppress(DriverError):
                if is_made_here(await self._drivers.driver(server).configuration(name) or (), server, name):
                    return None
        owned = owned_keys(zone, name, self._cache, hosted).get(str(server.instance), frozenset())
        declared = values_of(deleted_contributions(zone, name, self._cache))
        return kept_keys(diff, state.desired.rrsets, name, owned=owned, declared=declared)

    def _hosted(self, zone: DNSZone, server: Server) -> list[Server]:
        """The server in a list, if the zone may refer to it as its own; else an empty list."""
        instance = self._cache[Bind9Instance].get(server.instance)
        return [] if instance is None else trusted_servers(zone, [server], [instance])

    async def _configurations(
        self, zone: DNSZone, state: ZoneState, servers: Sequence[Server]
    ) -> list[tuple[str, Difference]]:
        """The configuration changes of a zone. The signer is only known when a zone is published."""
        rows = []
        policy, name, title = zone.spec.dnssec_policy, state.desired.zone, zone.spec.zone_name
        primaries = [server for server in servers if server.role == "primary"]
        secondaries = [server for server in servers if server.role == "secondary"]
        for server in servers:
            first = server.role == "primary"
            if server.records_only or (policy and len(primaries) > 1) or (server.catalog and not first):
                continue
            with suppress(DriverError):  # reported elsewhere as unreachable
                found = await self._drivers.driver(server).configuration(name)
                wanted = (
                    primary_config(server, name, secondaries, policy=policy)
                    if first
                    else secondary_config(server, name, primaries)
                )
                is_adopted = has_adopt_annotation(zone) and self._hosted(zone, server)
                if found and not (is_made_here(found, server, name) or is_adopted or server.api_port):
                    wanted = borrowed(wanted)
                rows += [
                    (server.id, Difference(title, server.title, title, statement, "configure", (have,), (want,)))
                    for statement, (have, want) in changes(found or wanted, wanted).items()
                ]
        return rows

    async def findings(self, zone: DNSZone) -> list[Finding]:
        """The problems of a zone: on its servers, and in the data that they serve."""
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
            state, servers = self.desired_state(zone)
        except PlanError:
            return found
        serials: dict[str, int] = {}
        for server in servers:
            try:
                soa = await self._drivers.driver(server).soa(state.desired.zone)
            except DriverError as error:
                if server.role == "secondary":
                    found.append(Finding(title, "server", server.title, error.message))
                continue
            if soa is not None:
                serials[server.title] = Soa.read(soa).serial
            elif server.role == "secondary":
                found.append(Finding(title, "serial", server.title, "the server does not serve the zone"))
        found += [Finding(title, "serial", server, text) for server, text in lagging(serials)]
        found += [Finding(title, "delegation", "", text) for text in self._delegation(state)]
        if zone.spec.dnssec_policy:
            found += [row for server in servers for row in await self._signatures(title, state, server)]
        return found

    def _delegation(self, state: ZoneState) -> list[str]:
        """The problems of a zone's delegation, when the parent is a DNSZone too."""
        others = {}
        for zone in self._cache[DNSZone]:
            with suppress(PlanError):
                others[zone_name(zone)] = zone
        above = parent_of(state.desired.zone, others)
        if above is None:
            return []
        try:
            return delegation_problems(state.desired, self.desired_state(others[above])[0].desired)
        except PlanError as error:
            return [f"the parent zone {others[above].spec.zone_name} is invalid: {error}"]

    async def _signatures(self, title: str, state: ZoneState, server: Server) -> list[Finding]:
        try:
            values = await self._drivers.driver(server).values(state.desired.zone, RRSIG)
        except DriverError:
            return []  # reported elsewhere as unreachable
        texts = signature_problems(values, SYSTEM_CLOCK.time())
        return [Finding(title, "signatures", server.title, text) for text in texts]

    async def reasons(self, name: str) -> list[Reason]:
        """The resources that contribute to a name, and what each server answers."""
        wanted = name_of(name)
        rows = []
        for zone in self.zones():
            try:
                state, servers = self.desired_state(zone)
            except PlanError as error:
                if _holds(zone, wanted):
                    rows.append(Reason(name, "", zone.name, error.reason, str(error), {}))
                continue
            rows += self._invalid(name, zone, state)
            owner = owner_in(wanted, state.desired.zone)
            if owner is None:
                continue
            drift = find_condition(zone.status.conditions if zone.status is not None else None, "Drift")
            if drift is not None and drift.status == "True":
                rows.append(Reason(name, "", zone.name, drift.type, drift.message))
            keys = sorted(
                {part.key for parts in state.desired.contributions.values() for part in parts if part.key[0] == owner}
            )
            for key in keys:
                served = {server.title: await self._served(server, wanted, key[1]) for server in servers}
                for source in state.desired.sources_of(key):
                    outcome = state.desired.outcome(source)
                    held = state.desired.held.get(key, {}).get(source) or (outcome.held if outcome else None)
                    outcome_name, text = ("published", "") if held is None else (held.reason, held.message)
                    rows.append(Reason(name, type_name(key[1]), f"{zone.name}: {source}", outcome_name, text, served))
        return rows

    def _invalid(self, name: str, zone: DNSZone, state: ZoneState) -> list[Reason]:
        """Invalid records of this name, inside or outside the zone."""
        rows = []
        asked, inside = name.lower().rstrip("."), zone.spec.zone_name.lower()
        for source, held in sorted(state.desired.invalid.items()):
            kind, _, title = source.partition("/")
            record = (
                self._cache[_BY_NAME[kind]].get(NamespacedName(title, zone.namespace)) if kind in _BY_NAME else None
            )
            wanted = record.spec.name.lower().rstrip(".") if record is not None else ""
            if asked in (wanted, f"{wanted}.{inside}"):
                rows.append(Reason(name, "", f"{zone.name}: {source}", held.reason, held.message))
        return rows

    async def _served(self, server: Server, name: bytes, kind: int) -> tuple[str, ...]:
        from steersman.operators.dns.wire.client import DnsClient

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
    """Whether a name lies in a zone whose own name is valid."""
    try:
        return owner_in(name, zone_name(zone)) is not None
    except PlanError:
        return False


def _difference(title: str, server: Server, key: Key, have: RRset | None, state: ZoneState) -> Difference:
    want = state.desired.rrsets.get(key)
    action = "add" if have is None else ("remove" if want is None else "change")
    return Difference(
        title,
        server.title,
        short_text(key[0], state.desired.zone),
        type_name(key[1]),
        action,
        _texts(key[1], have),
        _texts(key[1], want),
        ", ".join(state.desired.sources_of(key)),
    )


def _as_kept(row: Difference) -> Difference:
    """A difference that stays: the zone has foreign data and is not adopted."""
    if row.action == "add" and row.have == ():
        text = "ForeignData: conflicts with foreign data of that name"
    else:
        text = f"ForeignData; with {ADOPT}: {row.action}"
    return msgspec.structs.replace(row, action="keep", why=text)


def _start_of(zone: DNSZone, server: Server, served: bytes) -> list[Difference]:
    """The SOA record, if it differs in more than its serial."""
    want, title = soa_of(zone, Soa.read(served).serial).value(), zone.spec.zone_name
    if want == served:
        return []
    return [Difference(title, server.title, "@", "SOA", "change", (value_text(6, served),), (value_text(6, want),))]


def _texts(kind: int, rrset: RRset | None) -> tuple[str, ...]:
    return () if rrset is None else tuple(f"{rrset.ttl} {value_text(kind, value)}" for value in sorted(rrset.values))


def lay_over(objects: dict[Any, list[Any]], manifests: Iterable[dict[str, Any]], namespace: str) -> list[str]:
    """Replace the cluster's objects by manifests; returns the problems of the manifests."""
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
            if hasattr(known, "status"):  # it says which servers have adopted the zone
                setattr(made, "status", known.status)  # noqa: B010  not every kind has one
        rows.append(made)
    return problems


def lagging(serials: Mapping[str, int]) -> list[tuple[str, str]]:
    """The servers with an older serial than others (RFC 1982), and a message."""
    newest = latest(*serials.values()) if serials else 0
    return [
        (server, f"serves serial {number}, others serve {newest}")
        for server, number in sorted(serials.items())
        if number != newest
    ]
