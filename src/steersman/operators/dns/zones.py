"""The controller of zones: from what the caches say to what servers serve, and what the zone says about it.

    snapshot ─► choose servers ─► load the draft ─► publish ─► status of the zone, news for its records

A pass that finds nothing changed and nothing due asks nobody and writes nothing. A zone that another one holds already
(same name, a common instance, older) writes nothing at all.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from steersman.errors import DriverError, PlanError
from steersman.kube.resources import ObjectRef
from steersman.kube.times import parse_time
from steersman.operators.dns.publisher import Job, publish, remove
from steersman.operators.dns.rrsets import contribution_of
from steersman.operators.dns.selection import source_of
from steersman.operators.dns.serverkinds import Bind9Instance
from steersman.operators.dns.signing import DNSKEY, status_of_keys
from steersman.operators.dns.types import DRIFT, DRIFT_IGNORE, Drift
from steersman.operators.dns.zonekinds import DNSZone
from steersman.operators.dns.zoneplan import own_contributions, soa_of, zone_name
from steersman.operators.dns.zonestatus import Summary, status_of
from steersman.runtime.cluster import Snapshots
from steersman.runtime.result import Result, done, requeue

if TYPE_CHECKING:
    from steersman.operators.dns.book import ZoneBook
    from steersman.operators.dns.desk import Desk
    from steersman.operators.dns.selection import Choice
    from steersman.operators.dns.servers import Server
    from steersman.runtime.context import Context

__all__ = ["ZoneKeeper"]

CATCH_UP: Final = 5.0  # seconds between two looks at a secondary that is behind, at most


class ZoneKeeper:
    """Keeps zones at what they should be."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    # -- a pass --------------------------------------------------------------------------------------------------------

    async def reconcile(self, ctx: Context, zone: DNSZone) -> Result:
        """One pass over a zone."""
        desk, book = self.desk, self.desk.books.open(zone.ref)
        summary = Summary()
        try:
            choice = desk.choose(zone, ctx.cache)
            self._check_choice(zone, choice, ctx.cache)
            servers, problems = desk.servers(choice.instances, ctx.cache)
            summary.instances, summary.methods = choice.instances, choice.methods
            summary.problems = {name: (error.reason, str(error)) for name, error in problems.items()}
            with desk.publishing():
                await self._publish(ctx, zone, book, servers, summary)
        except PlanError as error:
            summary.reason, summary.message = error.reason, str(error)
            book.problem = (error.reason, str(error))
            book.outcome_ready = True
        await self._retire(ctx, zone, summary)
        return await self._tell(ctx, zone, book, summary)

    def _check_choice(self, zone: DNSZone, choice: Choice, cache: Any) -> None:
        if not choice.instances:
            if choice.denied:
                raise PlanError(
                    f"{', '.join(choice.denied)} does not let namespace {zone.namespace} in "
                    "(annotation bindy.firestoned.io/allow-zone-namespaces)",
                    reason="CrossNamespaceDenied",
                )
            raise PlanError(
                "no Bind9Instance serves it (bind9InstancesFrom, clusterRef and zonesFrom select none)",
                reason="NoInstances",
            )
        if not any(instance.spec.role == "primary" for instance in choice.instances):
            raise PlanError("of the selected instances none is a primary", reason="NoPrimary")
        holder = self._holder(zone, choice, cache)
        if holder is not None:
            raise PlanError(
                f"{holder.ref} is older and serves the same name there", reason="DuplicateZone", field="spec.zoneName"
            )

    def _holder(self, zone: DNSZone, choice: Choice, cache: Any) -> DNSZone | None:
        """The zone that has the name already, on an instance that both want."""
        mine = {instance.metadata.uid for instance in choice.instances}
        for other in cache[DNSZone].by_index("dns-zone-name", zone.spec.zone_name.lower()):
            if other.ref == zone.ref or _age(other) > _age(zone):
                continue
            if mine & {instance.metadata.uid for instance in self.desk.choose(other, cache).instances}:
                return other  # type: ignore[no-any-return]  # the shelf of zones holds zones
        return None

    async def _publish(
        self, ctx: Context, zone: DNSZone, book: ZoneBook, servers: list[Server], summary: Summary
    ) -> None:
        desk, options = self.desk, self.desk.options
        name = zone_name(zone)
        primaries = tuple(server for server in servers if server.role == "primary")
        own = own_contributions(zone, name, [server.address for server in primaries if not server.managed])
        with Snapshots(ctx.cache, user="dns zones") as fresh:
            book.load(zone, name, own, fresh)
            leaving = self._leaving(zone, book, fresh) if not book.outcome_ready else {}
        if (b"", 2) not in book.draft.rrsets:
            held = next(iter(book.draft.held.get((b"", 2), {}).values()), None)
            raise PlanError(
                held.message if held else "it has no name server", reason="NoNameServer", field="spec.nameServers"
            )
        book.problem = None
        book.keep(server.id for server in servers)
        serial = zone.spec.soa_record.serial or 0
        if not book.serial and zone.status is not None and zone.status.serial:
            book.serial = zone.status.serial
        if not primaries:
            book.outcome_ready = True
            if not summary.problems:  # else those say more
                summary.reason, summary.message = "NoPrimary", "no primary has an address yet"
            return
        now = ctx.clock.monotonic()
        look = now - book.looked >= 0.95 * options.drift_period.total_seconds()
        job = Job(
            soa=soa_of(zone, serial),
            ttl=book.draft.default_ttl,
            primaries=primaries,
            secondaries=tuple(server for server in servers if server.role == "secondary"),
            drift=drift_of(zone, options.drift),
            ignore=tuple(part.strip() for part in zone.annotations.get(DRIFT_IGNORE, "").split(",") if part.strip()),
            policy=zone.spec.dnssec_policy,
            look=look,
            first=not book.outcome_ready,
            now=now,
            ours=frozenset(leaving.values()),
        )
        report = await publish(book, job, desk.fleet.driver)
        if look:
            book.looked = now
            summary.looked = True
        summary.report, summary.servers = report, servers
        if job.policy is not None and primaries[0].title not in report.errors:
            with suppress(DriverError):
                keys = await desk.fleet.driver(primaries[0]).values(name, DNSKEY)
                summary.dnssec = status_of_keys(name, keys)
        for server, names in report.drift.items():
            book.drifts += 1
            self._tell_drift(ctx, zone, server, names, job.drift)
        if report.ok or all(reason == "SecondaryFailed" for reason, _ in report.errors.values()):
            summary.news = book.published(report.serial)
        else:
            summary.news = set(book.pending)
        if not book.outcome_ready:  # also those that were deleted while nobody was here
            summary.news |= {*book.members, *leaving}
        book.outcome_ready = True
        if desk.metrics is not None:
            desk.metrics.published(zone, report)

    def _leaving(self, zone: DNSZone, book: ZoneBook, cache: Any) -> dict[str, Any]:
        """Records that are being deleted, and their keys: that data is ours to remove, whatever happens to drift."""
        keys = {}
        for kind in self.desk.records:
            for record in cache[kind].list(namespace=zone.namespace):
                if record.deleting:
                    try:
                        part = contribution_of(record, source_of(record), book.draft.zone)
                    except PlanError:
                        continue
                    keys[part.source] = part.key
        return keys

    def _tell_drift(self, ctx: Context, zone: DNSZone, server: str, names: list[str], mode: Drift) -> None:
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        ctx.event(zone, "DriftFound", f"{server} did not have what it should have at {shown}", warning=True)
        if mode is Drift.REPAIR:
            ctx.event(zone, "DriftRepaired", f"{server} has what it should have at {shown}")
        if self.desk.metrics is not None:
            self.desk.metrics.drifted(len(names), repaired=mode is Drift.REPAIR)

    # -- who no longer serves it ---------------------------------------------------------------------------------------

    async def _retire(self, ctx: Context, zone: DNSZone, summary: Summary) -> None:
        """Remove the zone from instances that served it and are no longer chosen."""
        if zone.status is None or summary.reason in {"InvalidName", "DuplicateZone"}:
            return
        chosen = {(one.namespace, one.name) for one in summary.instances}
        left = [
            row
            for row in zone.status.bind9_instances or ()
            if (row.namespace, row.name) not in chosen and row.status != "Failed"
        ]
        for row in left:
            instance = ctx.cache[Bind9Instance].get(ObjectRef(row.name, row.namespace))
            if instance is None:
                continue
            servers, problems = self.desk.servers([instance], ctx.cache)
            failed = await remove(zone_name(zone), servers, self.desk.fleet.driver) if not problems else {"": "no key"}
            if failed:
                why = "; ".join(f"{server}: {text}" for server, text in failed.items())
                summary.leaving.append((row, why))
            book = self.desk.books.open(zone.ref)
            for server in servers:
                book.copies.pop(server.id, None)

    # -- telling -------------------------------------------------------------------------------------------------------

    async def _tell(self, ctx: Context, zone: DNSZone, book: ZoneBook, summary: Summary) -> Result:
        self.desk.tell_records(zone.namespace, summary.news if summary.report is not None else book.members)
        # A pod that has the zone now may answer: the zone's own status need not change for that.
        settled = {server.id: server.instance for server in summary.servers if server.managed and book.has(server.id)}
        for server in settled.keys() - book.settled:
            self.desk.instances.send(settled[server])
        book.settled = frozenset(settled)
        await ctx.status(zone, status_of(zone, book, summary, now=ctx.clock.time()))
        options = self.desk.options
        behind = max((copy.behind for copy in book.copies.values()), default=0)
        soon = min(CATCH_UP, 0.1 * 2 ** min(8, behind)) if behind else None  # secondaries need no backoff, only a push
        if summary.ready and not summary.leaving:
            book.retry.succeeded()
            if soon is not None:
                return requeue(after=soon)
            return requeue(after=self.desk.later(options.drift_period.total_seconds()))
        wait = 60.0
        if not options.fixed_backoff:
            wait = book.retry.failed(tuple(summary.servers), ctx.clock.monotonic(), options.not_ready.total_seconds())
        return requeue(after=wait if soon is None else min(wait, soon))

    # -- the end -------------------------------------------------------------------------------------------------------

    async def clean_up(self, ctx: Context, zone: DNSZone) -> Result:
        """Remove a deleted zone from every server; done when it is gone there, or nobody can tell for too long."""
        desk = self.desk
        try:
            name = zone_name(zone)
        except PlanError:
            return done
        choice = desk.choose(zone, ctx.cache)
        if self._holder(zone, choice, ctx.cache) is not None:
            return done  # never was ours
        served = {(row.namespace, row.name) for row in (zone.status.bind9_instances if zone.status else None) or ()}
        instances = {one.ref: one for one in choice.instances}
        for namespace, name_of_it in served:
            ref = ObjectRef(name_of_it, namespace)
            if (found := ctx.cache[Bind9Instance].get(ref)) is not None:
                instances[ref] = found
        servers, problems = desk.servers(instances.values(), ctx.cache)
        failed = await remove(name, servers, desk.fleet.driver)
        failed |= {which: str(error) for which, error in problems.items() if tuple(which.split("/")) in served}
        if failed:
            began = parse_time(zone.metadata.deletion_timestamp or "").timestamp()
            grace = desk.options.deletion_grace.total_seconds()
            why = "; ".join(f"{server}: {text}" for server, text in sorted(failed.items()))
            if ctx.clock.time() - began < grace:
                ctx.log.warning("zone not removed yet", zone=zone.spec.zone_name, why=why)
                return requeue(after=min(desk.options.not_ready.total_seconds(), max(0.5, grace / 20)))
            ctx.event(zone, "ZoneLeftBehind", f"given up after {grace:g} s: {why}", warning=True)
        self._forget(zone.ref)
        return done

    async def gone(self, _ctx: Context, key: ObjectRef) -> None:
        """The zone no longer exists."""
        self._forget(key)

    def _forget(self, key: ObjectRef) -> None:
        book = self.desk.books.get(key)
        if book is not None:
            self.desk.books.close(key)
            self.desk.tell_records(key.namespace, book.members)


def drift_of(zone: DNSZone, default: Drift) -> Drift:
    """What to do about drift of this zone."""
    word = zone.annotations.get(DRIFT, "").strip().lower()
    return Drift(word) if word in tuple(Drift) else default


def _age(zone: DNSZone) -> tuple[str, str, str]:
    return zone.metadata.creation_timestamp or "", zone.namespace, zone.name
