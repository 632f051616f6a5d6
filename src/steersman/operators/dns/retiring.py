"""Servers that should no longer have a zone, and have not been seen without it: who they are, until they have.

    no longer chosen    the zone's own status keeps the instance as Unclaimed until its servers have let go
    zone deleted        the zone waits for `deletionGrace`; then the instance's status has it in leftBehind, and only
                        then does the zone's object go

Both are in the cluster, so whoever comes back is told, by whatever process is there then. Only what is ours is removed:
a zone that was added with the file we give it. What a server has in its own configuration, or got from others, stays,
without the data of our records.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from steersman.errors import FormatError, PlanError
from steersman.kube.resources import ObjectRef
from steersman.kube.times import format_time, parse_time
from steersman.operators.dns.book import zones_wanting
from steersman.operators.dns.compiler import ZONE
from steersman.operators.dns.manifests import is_lasting
from steersman.operators.dns.names import name_of
from steersman.operators.dns.ownership import values_of
from steersman.operators.dns.pointers import contributions_to, is_reverse, named_in
from steersman.operators.dns.removal import remove
from steersman.operators.dns.rrsets import contribution_of
from steersman.operators.dns.selection import records_wanted, source_of, zone_of
from steersman.operators.dns.serverkinds import Bind9Cluster, Bind9Instance
from steersman.operators.dns.zonekinds import DNSZone
from steersman.operators.dns.zoneplan import zone_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from steersman.operators.dns.desk import Desk
    from steersman.operators.dns.removal import Data
    from steersman.operators.dns.servers import Server
    from steersman.operators.dns.zonekinds import InstanceState
    from steersman.operators.dns.zonestatus import Summary
    from steersman.runtime.context import Context

__all__ = ["GIVEN_UP", "Retirer"]

GIVEN_UP: Final = "it is told when it is back"
NO_ADDRESS: Final = "it has no address now, and its disk may have the zone"


class Retirer:
    """See the module."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    # -- zones ---------------------------------------------------------------------------------------------------------

    async def retire(self, ctx: Context, zone: DNSZone, summary: Summary) -> None:
        """Remove a zone from instances that may have it and are no longer chosen."""
        if zone.status is None or summary.reason in {"InvalidName", "InvalidSelector", "DuplicateZone"}:
            return
        chosen = {(one.namespace, one.name) for one in summary.instances}
        left = [row for row in zone.status.bind9_instances or () if (row.namespace, row.name) not in chosen]
        uninvited = self.desk.choose(zone, ctx.cache).uninvited if left else ()
        for row in left:
            instance = ctx.cache[Bind9Instance].get(ObjectRef(row.name, row.namespace))
            if instance is None or self.serves_another(zone, instance, ctx.cache):
                continue
            if str(instance.ref) in uninvited:  # it serves, and what changed may be only that we ask now
                summary.leaving.append((row, f"nobody asked for servers of namespace {row.namespace}"))
                continue
            data = partial(self._data, zone, ctx.cache)
            why = await self._taken_back(ctx, zone_name(zone), instance, began=row.status != "Claimed", data=data)
            if why:
                summary.leaving.append(self._waiting(ctx, zone, row, why))

    def _waiting(self, ctx: Context, zone: DNSZone, row: InstanceState, why: str) -> tuple[InstanceState, str]:
        """An instance that could not be told, since when; after the grace people hear of it, once."""
        now = ctx.clock.time()
        since = row.last_reconciled_at if row.status == "Unclaimed" else ""
        since = since or format_time(now)
        if now - parse_time(since).timestamp() >= self.desk.options.deletion_grace.total_seconds():
            if GIVEN_UP not in row.message:
                ctx.event(zone, "NotRemoved", f"{row.name} still has the zone: {why}; {GIVEN_UP}", warning=True)
            why = f"{why}; {GIVEN_UP}"
        return replace(row, last_reconciled_at=since), why

    async def _taken_back(
        self, ctx: Context, name: bytes, instance: Bind9Instance, *, began: bool, data: Callable[[], Data] = dict
    ) -> str:
        """Remove a zone from an instance; says what is in the way. `began`: it may have it."""
        servers, problems = self.desk.servers([instance], ctx.cache)
        for problem in problems.values():
            return str(problem)
        if not servers and began and self._may_return(instance, ctx.cache):
            return NO_ADDRESS
        failed = await remove(name, servers, self.desk.fleet.driver, ours=True, data=data)
        for book in self.desk.books:
            if book.draft.zone == name:
                for server in servers:
                    book.copies.pop(server.id, None)
        return "; ".join(f"{server}: {text}" for server, text in sorted(failed.items()))

    def _may_return(self, instance: Bind9Instance, cache: Any) -> bool:
        """Whether a server that is not there now would come back with what it had."""
        cluster = cache[Bind9Cluster].get(ObjectRef(instance.spec.cluster_ref, instance.namespace))
        return not instance.spec.endpoints and is_lasting(instance, cluster)

    def serves_another(self, zone: DNSZone, instance: Bind9Instance, cache: Any) -> bool:
        """Whether the name on that instance is another zone's: a status may say anything, and is no right to remove."""
        return any(
            other.ref != zone.ref and self.desk.choose_from(other, [instance], cache).instances
            for other in cache[DNSZone].by_index("dns-zone-name", zone.spec.zone_name.lower())
        )

    async def withdraw(
        self, ctx: Context, zone: DNSZone, chosen: Iterable[Bind9Instance]
    ) -> tuple[dict[str, str], list[Bind9Instance]]:
        """Remove a deleted zone from every server; returns where that failed and why, and the instances of those."""
        rows = {(row.namespace, row.name): row for row in (zone.status.bind9_instances if zone.status else None) or ()}
        instances = {one.ref: one for one in chosen}
        for namespace, name in rows:
            served = ctx.cache[Bind9Instance].get(ObjectRef(name, namespace))
            if served is not None and not self.serves_another(zone, served, ctx.cache):
                instances[served.ref] = served
        failed: dict[str, str] = {}
        away: dict[ObjectRef, Bind9Instance] = {}
        servers: list[Server] = []
        for ref, instance in instances.items():
            found, problems = self.desk.servers([instance], ctx.cache)
            row = rows.get((ref.namespace, ref.name))
            if problems and row is not None:
                failed[str(ref)], away[ref] = str(problems[str(ref)]), instance
            elif not found and row is not None and row.status != "Claimed" and self._may_return(instance, ctx.cache):
                failed[str(ref)], away[ref] = NO_ADDRESS, instance
            servers += found
        data = partial(self._data, zone, ctx.cache)
        for title, why in (await remove(zone_name(zone), servers, self.desk.fleet.driver, data=data)).items():
            failed[title] = why
            away |= {server.instance: instances[server.instance] for server in servers if server.title == title}
        return failed, list(away.values())

    def _data(self, zone: DNSZone, cache: Any) -> Data:
        """What records have, or may have, put into a zone, apart from what the zone says itself."""
        desk, name, book = self.desk, zone_name(zone), self.desk.books.get(zone.ref)
        known = book.draft.contributions if book is not None and book.draft.zone == name else {}
        parts = [part for source, row in known.items() if source != ZONE for part in row]
        for kind in desk.records:
            for record in records_wanted(zone, cache[kind]):
                if zone_of(record, [zone, *zones_wanting(record, cache)]) is zone:
                    with suppress(PlanError):
                        parts.append(contribution_of(record, source_of(record), name))
        if is_reverse(name):
            for origin in {origin for origin, _ in desk.directory.below(name)}:
                parts += contributions_to(zone, name, origin, desk.directory.of(origin), named_in(cache))
        found = values_of(parts)
        for part in known.get(ZONE, ()):
            found[part.key] = found.get(part.key, frozenset()) - part.values
        return found

    def hand_over(self, zone: DNSZone, away: Iterable[Bind9Instance], cache: Any) -> bool:
        """Have instances remember a zone that they still have; says whether all do, in the cluster."""
        title, known = _title(zone), True
        for one in away:
            instance = cache[Bind9Instance].get(one.ref)
            listed = instance is None or title in ((instance.status.left_behind if instance.status else None) or ())
            if not listed and not instance.deleting:
                self.desk.left.setdefault(one.ref, set()).add(title)
                self.desk.instances.send(one.ref)
                known = False
        return known

    # -- instances -----------------------------------------------------------------------------------------------------

    async def sweep(self, ctx: Context, instance: Bind9Instance) -> list[str] | None:
        """Remove what was left behind on an instance, as far as its servers are there; returns what still is."""
        known = (instance.status.left_behind if instance.status is not None else None) or ()
        asked = self.desk.left.get(instance.ref, set())
        listed = sorted({*known, *asked})
        asked -= set(known)  # the cluster has it now
        kept = []
        for title in listed:
            zones = [
                zone
                for zone in ctx.cache[DNSZone].by_index("dns-zone-name", title)
                if self.desk.choose_from(zone, [instance], ctx.cache).instances
            ]
            if any(not zone.deleting for zone in zones):
                continue  # it is wanted again, and whoever wants it sees to it
            if zones or title not in known:  # its own zone still tries, or has not heard that we know of it
                kept.append(title)
                continue
            try:
                why = await self._taken_back(ctx, name_of(title), instance, began=True)
            except FormatError:
                continue
            if why:
                kept.append(title)
            else:
                ctx.event(instance, "LeftBehindRemoved", f"zone {title}, which nobody wants any more, is gone from it")
        return kept or None


def _title(zone: DNSZone) -> str:
    return zone.spec.zone_name.lower().removesuffix(".")
