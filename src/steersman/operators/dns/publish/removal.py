"""Taking zones off servers, and remembering the servers that could not be reached.

A zone that we added is removed as a whole. Whether we added it the server says (`Driver.added`), every time, so no
memory of ours can be wrong about it. A zone of the server's own configuration, of a catalog, or that others added stays
unless it was adopted (`dns-adopt`); only the data of our records is removed from it, value by value. The same holds
for a server that takes records only.

Servers that still have a zone they should not have are listed in the cluster, so the process that runs when they come
back removes it:

    instance no longer selected    the zone's status keeps it as Unclaimed until its servers have removed the zone
    zone deleted                   the zone waits for `deletionGrace`; then the instance's status lists it in
                                   leftBehind, and only then is the DNSZone released
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from steersman.errors import DriverError, FormatError, PlanError
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.times import format_time, parse_time
from steersman.operators.dns.api.records import RECORD_KINDS
from steersman.operators.dns.api.servers import Bind9Instance
from steersman.operators.dns.api.zone import DNSZone
from steersman.operators.dns.bind.driver import Refused, Stale, Static
from steersman.operators.dns.deploy.manifests import is_lasting
from steersman.operators.dns.publish.ownership import is_adopted, values_of
from steersman.operators.dns.publish.refused_updates import search
from steersman.operators.dns.publish.servers import cluster_of, resolve_servers
from steersman.operators.dns.wire.messages import RRsetChange, pieces
from steersman.operators.dns.zone.conflicts import ZONE
from steersman.operators.dns.zone.names import index_name, name_of, short_text, text_of
from steersman.operators.dns.zone.ptr import contributions_to, is_reverse, named_in
from steersman.operators.dns.zone.rdata import GENERATED, NS, Key, RRset, Soa, contribution_of, type_name
from steersman.operators.dns.zone.selection import (
    age_of,
    is_namespace_allowed,
    may_adopt,
    selected_records,
    source_of,
    zones_selecting,
)
from steersman.operators.dns.zone.serial import next_serial
from steersman.operators.dns.zone.soa import has_adopt_annotation, zone_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from steersman.clock import Ages
    from steersman.operators.dns.api.zone import InstanceState
    from steersman.operators.dns.bind.driver import Driver
    from steersman.operators.dns.bind.servers import Server
    from steersman.operators.dns.publish.zone_state import ZoneStates
    from steersman.operators.dns.zone.ptr import PtrIndex
    from steersman.operators.dns.zone.selection import InstanceSelector
    from steersman.runtime.controller.channel import Channel
    from steersman.runtime.reconcile.context import Context

    DriverOf = Callable[[Server], Driver]

LISTED_IN: Final = "still serves the zone, which is no longer listed in "
RETRIED: Final = "the zone is removed when the server answers again"
NO_ADDRESS: Final = "the server has no address now, and its disk may have the zone"
TRIES: Final = 4  # to write a copy that keeps changing

Data = dict[Key, frozenset[bytes]]


# -- one zone, some servers --------------------------------------------------------------------------------------------


async def remove(
    zone: bytes,
    servers: Sequence[Server],
    driver_of: DriverOf,
    *,
    adopted: bool = False,
    is_known: bool = False,
    data: Callable[[], Data] = dict,
) -> dict[str, str]:
    """Remove a zone from servers; returns by server why that failed.

    `adopted`: also where others added it. `is_known`: the cluster says that we added it, where the server cannot say.
    `data` gives what records have put into the zone, to be removed from a zone that stays.
    """
    failed: dict[str, str] = {}

    async def remove_from(server: Server) -> None:
        driver = driver_of(server)
        if server.catalog:
            await _remove_unlisted(zone, server, driver, failed)
            return
        if not server.records_only and (adopted or await _is_added(zone, driver, is_known=is_known)):
            try:
                await driver.remove(zone)
            except Static:
                pass
            else:
                return
        if server.role == "primary" and (values := data()):
            await _remove_data(zone, driver, values)

    async def guarded(server: Server) -> None:
        try:
            await remove_from(server)
        except DriverError as error:
            failed[server.title] = error.message

    await asyncio.gather(*(guarded(server) for server in servers))
    return failed


async def _is_added(zone: bytes, driver: Driver, *, is_known: bool) -> bool:
    found = await driver.added(zone)
    return is_known if found is None else found


async def _remove_unlisted(zone: bytes, server: Server, driver: Driver, failed: dict[str, str]) -> None:
    """A secondary with a catalog removes zones by itself, except those it was given before it had the catalog."""
    if server.catalog == text_of(zone).removesuffix("."):
        return  # the catalog itself is in the server's own configuration
    if await driver.added(zone):
        await driver.remove(zone)
    elif await driver.soa(zone) is not None:
        failed[server.title] = f"{LISTED_IN}{server.catalog}"


async def _remove_data(zone: bytes, driver: Driver, data: Data) -> None:
    """Remove data from a zone that stays."""
    if await driver.soa(zone) is None:
        return
    for attempt in range(TRIES):
        try:
            await _try_remove_data(zone, driver, data)
        except Stale:
            if attempt == TRIES - 1:
                raise
        else:
            return


async def _try_remove_data(zone: bytes, driver: Driver, data: Data) -> None:
    start, rrsets = await driver.read(zone, GENERATED)
    ttl = min((rrset.ttl for rrset in rrsets.values()), default=0)

    async def attempt(changes: Sequence[RRsetChange]) -> bool:
        nonlocal start
        soa = Soa.read(start)
        value = replace(soa, serial=next_serial(soa.serial)).value()
        try:
            await driver.write(zone, start, value, ttl, changes)
        except Refused:
            return False
        start = value
        return True

    for changes in pieces(without(rrsets, data)):
        if await attempt(changes):
            continue
        found = await search(changes, attempt)
        if kept := (*found.refused, *found.untried):
            names = ", ".join(f"{short_text(change.key[0], zone)} {type_name(change.key[1])}" for change in kept[:5])
            raise DriverError(f"the server refuses to remove {len(kept)} RRsets: {names}", server=driver.server.title)


def without(rrsets: Mapping[Key, RRset], data: Data) -> list[RRsetChange]:
    """The changes that remove these values from a zone that is served on; it keeps a name server."""
    changes = []
    for key, values in sorted(data.items()):
        have = rrsets.get(key)
        if have is None or not have.values & values:
            continue
        left = have.values - values
        if left or key[0] or key[1] != NS:
            changes.append(RRsetChange(key, have, RRset(have.ttl, left) if left else None))
    return changes


# -- zones and instances of the cluster --------------------------------------------------------------------------------


class ZoneRemover:
    """Removes zones from instances that should no longer have them. See the module."""

    def __init__(
        self,
        states: ZoneStates,
        ptr_index: PtrIndex,
        driver_of: DriverOf,
        instances: Channel,
        *,
        ages: Ages,
        grace_seconds: float,
    ) -> None:
        """`instances` wakes instances that have to list a zone as left behind."""
        self._states, self._ptr_index, self._driver_of, self._instances = states, ptr_index, driver_of, instances
        self._ages, self._grace = ages, grace_seconds
        self._handed_over: dict[NamespacedName, set[str]] = {}  # zones that instances are to list in leftBehind

    # -- zones ---------------------------------------------------------------------------------------------------------

    async def retire(
        self, ctx: Context, zone: DNSZone, selector: InstanceSelector, chosen: Iterable[Bind9Instance]
    ) -> list[tuple[InstanceState, str]]:
        """Remove a zone from instances that are no longer selected; returns those that still have it, and why."""
        selected = {(instance.namespace, instance.name) for instance in chosen}
        rows = (zone.status.bind9_instances if zone.status is not None else None) or ()
        left = [row for row in rows if (row.namespace, row.name) not in selected]
        leaving: list[tuple[InstanceState, str]] = []
        for row in left:
            instance = ctx.cache[Bind9Instance].get(NamespacedName(row.name, row.namespace))
            if instance is None or _serves_another(zone, instance, selector):
                continue
            if str(instance.ref) in selector.of(zone).unrequested:  # perhaps only the requirement to name it is new
                leaving.append((row, f"neither the zone nor dns.serverNamespaces names namespace {row.namespace}"))
                continue
            if failed := await self._remove_zone(ctx, zone, instance, row):
                leaving.append(self._waiting(ctx, zone, row, _joined(failed)))
        return leaving

    def _waiting(self, ctx: Context, zone: DNSZone, row: InstanceState, why: str) -> tuple[InstanceState, str]:
        """An instance that still has the zone, and since when; after the grace period an Event says so, once."""
        since = row.last_reconciled_at if row.status == "Unclaimed" else ""
        since = since or format_time(ctx.clock.time())
        if self._ages.since(parse_time(since).timestamp()) >= self._grace:
            if RETRIED not in row.message:
                ctx.event(zone, "NotRemoved", f"{row.name} still has the zone: {why}; {RETRIED}", warning=True)
            why = f"{why}; {RETRIED}"
        return replace(row, last_reconciled_at=since), why

    async def withdraw(
        self, ctx: Context, zone: DNSZone, selector: InstanceSelector, chosen: Iterable[Bind9Instance]
    ) -> tuple[dict[str, str], list[Bind9Instance]]:
        """Remove a deleted zone from every server; returns by server why that failed, and the instances of those."""
        rows = {(row.namespace, row.name): row for row in (zone.status.bind9_instances if zone.status else None) or ()}
        instances = {instance.ref: instance for instance in chosen}
        for namespace, name in rows:
            served = ctx.cache[Bind9Instance].get(NamespacedName(name, namespace))
            if served is not None and not _serves_another(zone, served, selector):
                instances[served.ref] = served

        async def failures(instance: Bind9Instance) -> dict[str, str]:
            row = rows.get((instance.namespace, instance.name))
            found = await self._remove_zone(ctx, zone, instance, row)
            if row is None:  # it never had the zone, so that its servers are not known does not matter
                found.pop(str(instance.ref), None)
            return found

        found = await asyncio.gather(*map(failures, instances.values()))
        away = [instance for instance, failed in zip(instances.values(), found, strict=True) if failed]
        return {server: why for failed in found for server, why in failed.items()}, away

    async def _remove_zone(
        self, ctx: Context, zone: DNSZone, instance: Bind9Instance, row: InstanceState | None
    ) -> dict[str, str]:
        is_trusted = may_adopt(zone, instance)
        return await self._remove_name(
            ctx,
            zone_name(zone),
            instance,
            may_have=row is not None and row.status != "Claimed",
            adopted=is_trusted and has_adopt_annotation(zone),
            is_known=is_trusted and is_adopted(row),
            data=partial(self._data, zone, ctx.cache) if is_namespace_allowed(zone, instance) else dict,
        )

    async def _remove_name(
        self, ctx: Context, name: bytes, instance: Bind9Instance, *, may_have: bool, is_known: bool, **options: Any
    ) -> dict[str, str]:
        """Remove a zone from an instance; returns by server, or for the instance, why that failed. See `remove`."""
        servers, problems = resolve_servers([instance], ctx.cache)
        if problems:
            return {ref: str(problem) for ref, problem in problems.items()}
        if not servers and may_have and _may_return(instance, ctx.cache):
            return {str(instance.ref): NO_ADDRESS}
        failed = await remove(name, servers, self._driver_of, is_known=is_known, **options)
        for state in self._states.values():
            if state.desired.zone == name:
                for server in servers:
                    state.copies.pop(server.id, None)
        return failed

    def _data(self, zone: DNSZone, cache: Any) -> Data:
        """What records have, or may have, put into a zone, apart from what the zone itself contributes."""
        name, state = zone_name(zone), self._states.get(zone.ref)
        known = state.desired.contributions if state is not None and state.desired.zone == name else {}
        parts = [part for source, parts in known.items() if source != ZONE for part in parts]
        for kind in RECORD_KINDS:
            for record in selected_records(zone, cache[kind]):
                others = [other for other in zones_selecting(record, cache) if other.ref != zone.ref]
                if not others or age_of(zone) < age_of(others[0]):
                    with suppress(PlanError):
                        parts.append(contribution_of(record, source_of(record), name))
        if is_reverse(name):
            for origin in {origin for origin, _ in self._ptr_index.below(name)}:
                parts += contributions_to(zone, name, origin, self._ptr_index.of(origin), named_in(cache))
        found = values_of(parts)
        for part in known.get(ZONE, ()):
            found[part.key] = found.get(part.key, frozenset()) - part.values
        return found

    def hand_over(self, zone: DNSZone, away: Iterable[Bind9Instance], cache: Any) -> bool:
        """Have instances list a zone that they still have; returns whether the status of all of them does."""
        title, all_listed = index_name(zone.spec.zone_name), True
        for unreachable in away:
            instance = cache[Bind9Instance].get(unreachable.ref)
            if instance is not None and instance.spec.driver == "bindcar" and not _is_known(zone, unreachable):
                continue  # later it could not be known who added the zone
            listed = instance is None or title in ((instance.status.left_behind if instance.status else None) or ())
            if not listed and not instance.deleting:
                self._handed_over.setdefault(unreachable.ref, set()).add(title)
                self._instances.send(unreachable.ref)
                all_listed = False
        return all_listed

    # -- instances -----------------------------------------------------------------------------------------------------

    async def remove_left_behind(
        self, ctx: Context, instance: Bind9Instance, selector: InstanceSelector
    ) -> list[str] | None:
        """Remove zones that were left behind on an instance, as far as its servers answer; returns the others."""
        known = (instance.status.left_behind if instance.status is not None else None) or ()
        handed_over = self._handed_over.get(instance.ref, set())
        listed = sorted({*known, *handed_over})
        handed_over -= set(known)  # the cluster has it now
        kept = []
        for title in listed:
            zones = [
                zone
                for zone in ctx.cache[DNSZone].by_index("dns-zone-name", title)
                if selector.among(zone, [instance]).instances
            ]
            if any(not zone.deleting for zone in zones):
                continue  # a DNSZone wants it here again
            if zones or title not in known:  # its own zone still tries, or does not see it in our status yet
                kept.append(title)
                continue
            try:
                failed = await self._remove_name(ctx, name_of(title), instance, may_have=True, is_known=True)
            except FormatError:
                continue
            if failed:
                kept.append(title)
            else:
                ctx.event(instance, "LeftBehindRemoved", f"Removed orphaned zone {title}")
        return kept or None

    def forget(self, instance: NamespacedName) -> None:
        """The instance is gone."""
        self._handed_over.pop(instance, None)


def _joined(failed: Mapping[str, str]) -> str:
    return "; ".join(f"{server}: {why}" for server, why in sorted(failed.items()))


def _may_return(instance: Bind9Instance, cache: Any) -> bool:
    """Whether a server that is not there now would come back with what it had."""
    return not instance.spec.endpoints and is_lasting(instance, cluster_of(instance, cache))


def _serves_another(zone: DNSZone, instance: Bind9Instance, selector: InstanceSelector) -> bool:
    """Whether another zone has the name on that instance: a status row alone does not justify a removal."""
    return any(
        other.ref != zone.ref and selector.among(other, [instance]).instances
        for other in selector.cache[DNSZone].by_index("dns-zone-name", index_name(zone.spec.zone_name))
    )


def _is_known(zone: DNSZone, instance: Bind9Instance) -> bool:
    """Whether the zone's status says that we added it to an instance, or adopted it there, and may be believed."""
    if not may_adopt(zone, instance):
        return False
    rows = (zone.status.bind9_instances if zone.status is not None else None) or ()
    return any(is_adopted(row) for row in rows if (row.name, row.namespace) == (instance.name, instance.namespace))
