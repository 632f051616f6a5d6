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
from steersman.operators.dns.book import zones_wanting
from steersman.operators.dns.compiler import ZONE
from steersman.operators.dns.pointers import asks, contributions_to, is_reverse, lets_in, named_in, pointers_of
from steersman.operators.dns.publisher import LISTED_IN, Job, publish, remove
from steersman.operators.dns.recordkinds import AAAARecord, ARecord
from steersman.operators.dns.rrsets import Key, contribution_of
from steersman.operators.dns.selection import records_wanted, source_of, zone_of
from steersman.operators.dns.serverkinds import Bind9Instance
from steersman.operators.dns.signing import DNSKEY, status_of_keys
from steersman.operators.dns.types import DRIFT, DRIFT_IGNORE, SERVED_BY, Drift
from steersman.operators.dns.zonekinds import DNSZone
from steersman.operators.dns.zoneplan import own_contributions, soa_of, zone_name
from steersman.operators.dns.zonestatus import Summary, status_of
from steersman.runtime.cluster import Snapshots
from steersman.runtime.result import Result, done, requeue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.operators.dns.book import ZoneBook
    from steersman.operators.dns.desk import Desk
    from steersman.operators.dns.selection import Choice
    from steersman.operators.dns.servers import Server
    from steersman.runtime.context import Context

__all__ = ["ZoneKeeper"]

FIRST_WORDS: Final = 0.05  # seconds until a reverse zone asks again whether all zones have been looked at
CATCH_UP: Final = 5.0  # seconds between two looks at a secondary that is behind, at most


class _TooEarly(Exception):  # noqa: N818  a state, not a fault
    """Not everybody has had a say yet."""


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
            known = zone.status is not None and bool(zone.status.serial)
            if known:  # a secondary that hears of a zone before its primaries have it tries again much later
                self._list(zone, summary, ctx.cache)
            if not any(instance.spec.role == "primary" for instance in choice.instances):
                raise PlanError("of the selected instances none is a primary", reason="NoPrimary")  # noqa: TRY301
            with desk.publishing():
                await self._publish(ctx, zone, book, servers, summary)
            if not known and summary.report is not None and not summary.report.errors:
                self._list(zone, summary, ctx.cache)
        except _TooEarly as early:
            book.early += 1
            if not book.early % 30:
                ctx.log.warning("waiting for zones that were not looked at yet", zone=zone.name, zones=str(early))
            return requeue(after=min(1.0, FIRST_WORDS * book.early))
        except PlanError as error:
            summary.reason, summary.message = error.reason, str(error)
            book.problem = (error.reason, str(error))
            self._load_all_the_same(zone, book, error.reason, ctx.cache)
            book.pending |= book.sources  # all of them hear when it is over
            book.outcome_ready = book.heard = True
        book.early = 0
        await self._retire(ctx, zone, summary)
        return await self._tell(ctx, zone, book, summary)

    def _list(self, zone: DNSZone, summary: Summary, cache: Any) -> None:
        """See to it that a zone is in the catalogs of its secondaries, and in no other."""
        wanted = self.desk.catalogs_of(zone, summary.instances, cache)
        for (namespace, name), instance in wanted.items():
            rows = cache[DNSZone].by_index("dns-zone-name", name)
            if not any(one.namespace == namespace and one.spec.catalog and not one.deleting for one in rows):
                text = f"{namespace} has no DNSZone {name} with catalog: true"
                summary.problems[str(instance)] = ("CatalogMissing", text)
        news = self.desk.catalogs.put(zone.ref, zone_name(zone), frozenset(wanted))
        self.desk.tell_catalogs(news, cache)

    def _check_choice(self, zone: DNSZone, choice: Choice, cache: Any) -> None:
        if not choice.instances:
            if choice.denied:
                raise PlanError(
                    f"{', '.join(choice.denied)} does not let namespace {zone.namespace} in "
                    "(annotation bindy.firestoned.io/allow-zone-namespaces)",
                    reason="CrossNamespaceDenied",
                )
            if choice.uninvited:
                raise PlanError(
                    f"{', '.join(choice.uninvited)} is of another namespace, which nobody asked for: name it in the "
                    f"annotation {SERVED_BY} of the zone, or in dns.serverNamespaces",
                    reason="CrossNamespaceDenied",
                )
            raise PlanError(
                "no Bind9Instance serves it (bind9InstancesFrom, clusterRef and zonesFrom select none)",
                reason="NoInstances",
            )
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
            desk.tell_reverse(book.load(zone, name, own, fresh, desk.directory), fresh)
            leaving = self._leaving(zone, book, fresh) if not book.began else []
            if not book.began and (unheard := self._unheard(zone, name, fresh)):
                raise _TooEarly(", ".join(unheard[:5]))
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
            first=not book.began,
            now=now,
            ours=frozenset(key for _, key in leaving),
        )
        refused = book.refusals()
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
        self._note_refusals(book, refused, summary)
        if not book.began:  # also those that were deleted while nobody was here
            summary.news |= {*book.sources, *(source for source, _ in leaving)}
        book.outcome_ready = book.began = True
        if desk.metrics is not None:
            desk.metrics.published(zone, report)

    def _note_refusals(self, book: ZoneBook, before: dict[Key, list[str]], summary: Summary) -> None:
        """What servers would not have is for the records to say that want it, or for the zone itself."""
        now = book.refusals()
        for key in before.keys() | now.keys():
            if before.get(key) != now.get(key):
                summary.news |= set(book.draft.sources_of(key))
        own = [key for key in now if ZONE in book.draft.sources_of(key)]
        if own:
            summary.reason, summary.message = "Refused", book.refusal_text(own)

    def _leaving(self, zone: DNSZone, book: ZoneBook, cache: Any) -> list[tuple[str, Key]]:
        """Records that are being deleted, and their keys: that data is ours to remove, whatever happens to drift."""
        keys = []
        for kind in self.desk.records:
            for record in cache[kind].list(namespace=zone.namespace):
                if record.deleting:
                    with suppress(PlanError):
                        part = contribution_of(record, source_of(record), book.draft.zone)
                        keys.append((part.source, part.key))
        if is_reverse(book.draft.zone):
            keys += self._leaving_pointers(zone, book, cache)
        return keys

    def _leaving_pointers(self, zone: DNSZone, book: ZoneBook, cache: Any) -> Iterator[tuple[str, Key]]:
        for kind in (ARecord, AAAARecord):
            for record in cache[kind]:
                owner = zone_of(record, zones_wanting(record, cache)) if record.deleting else None
                if owner is None or not asks(record, owner.spec.ptr):
                    continue
                origin = (record.namespace, source_of(record))
                with suppress(PlanError):
                    pointers = pointers_of([contribution_of(record, origin[1], zone_name(owner))], zone_name(owner))
                    for part in contributions_to(zone, book.draft.zone, origin, pointers, named_in(cache)):
                        yield part.source, part.key

    def _unheard(self, zone: DNSZone, name: bytes, cache: Any) -> list[str]:
        """The zones that may have PTR records in this one and have not been looked at by this process.

        Publishing before that would take records away that are wanted: addresses point into reverse zones, and members
        stand in catalogs.
        """
        found: list[str] = []
        if not is_reverse(name) and not zone.spec.catalog:
            return found
        for other in cache[DNSZone]:
            if other.deleting or other.ref == zone.ref or not (zone.spec.catalog or lets_in(zone, other.namespace)):
                continue
            book = self.desk.books.get(other.ref)
            if book is None or not book.heard:
                found.append(str(other.ref))
        return found

    def _load_all_the_same(self, zone: DNSZone, book: ZoneBook, reason: str, cache: Any) -> None:
        """A zone that cannot be published keeps the PTR records of its addresses, unless its name is not its own.

        Its records come and go meanwhile, and their PTR records with them.
        """
        desk = self.desk
        if book.unwanted:
            desk.tell_catalogs(desk.catalogs.put(zone.ref, b"", frozenset()), cache)
        if reason == "DuplicateZone":
            self._unpoint(zone.ref, cache)
        else:
            own = book.draft.contributions.get(ZONE, ())
            with suppress(PlanError), Snapshots(cache, user="dns zones") as fresh:
                desk.tell_reverse(book.load(zone, zone_name(zone), own, fresh, desk.directory), fresh)

    def _unpoint(self, ref: ObjectRef, cache: Any) -> None:
        directory = self.desk.directory
        for source in directory.sources(ref):
            names = directory.put(ref, source, ())
            self.desk.tell_reverse([((ref.namespace, source), name) for name in names], cache)

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
        uninvited = self.desk.choose(zone, ctx.cache).uninvited if left else ()
        for row in left:
            instance = ctx.cache[Bind9Instance].get(ObjectRef(row.name, row.namespace))
            if instance is None or self._serves_another(zone, instance, ctx.cache):
                continue
            if str(instance.ref) in uninvited:  # it serves, and what changed may be only that we ask now
                summary.leaving.append((row, f"nobody asked for servers of namespace {row.namespace}"))
                continue
            servers, problems = self.desk.servers([instance], ctx.cache)
            failed = await remove(zone_name(zone), servers, self.desk.fleet.driver) if not problems else {"": "no key"}
            if failed:
                why = "; ".join(f"{server}: {text}" for server, text in failed.items())
                summary.leaving.append((row, why))
            book = self.desk.books.open(zone.ref)
            for server in servers:
                book.copies.pop(server.id, None)

    def _serves_another(self, zone: DNSZone, instance: Bind9Instance, cache: Any) -> bool:
        """Whether the name on that instance is another zone's: a status may say anything, and is no right to remove."""
        return any(
            other.ref != zone.ref and self.desk.choose_from(other, [instance], cache).instances
            for other in cache[DNSZone].by_index("dns-zone-name", zone.spec.zone_name.lower())
        )

    # -- telling -------------------------------------------------------------------------------------------------------

    async def _tell(self, ctx: Context, zone: DNSZone, book: ZoneBook, summary: Summary) -> Result:
        news = summary.news | book.untold
        book.untold = set()
        if summary.report is None:
            news |= book.sources
            news |= {
                source_of(record) for kind in self.desk.records for record in records_wanted(zone, ctx.cache[kind])
            }
        self.desk.tell_records(zone.namespace, news)
        # A pod that has the zone now may answer: the zone's own status need not change for that.
        settled = {server.id: server.instance for server in summary.servers if server.managed and book.has(server.id)}
        for server in settled.keys() - book.settled:
            self.desk.instances.send(settled[server])
        book.settled = frozenset(settled)
        await ctx.status(zone, status_of(zone, book, summary, now=ctx.clock.time()))
        if self.desk.metrics is not None:
            self.desk.metrics.told(zone, ready=summary.ready)
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
        desk.tell_catalogs(desk.catalogs.put(zone.ref, name, frozenset()), ctx.cache)
        if self._holder(zone, choice, ctx.cache) is not None:
            return done  # never was ours
        served = {(row.namespace, row.name) for row in (zone.status.bind9_instances if zone.status else None) or ()}
        instances = {one.ref: one for one in choice.instances}
        for namespace, name_of_it in served:
            ref = ObjectRef(name_of_it, namespace)
            found = ctx.cache[Bind9Instance].get(ref)
            if found is not None and not self._serves_another(zone, found, ctx.cache):
                instances[ref] = found
        servers, problems = desk.servers(instances.values(), ctx.cache)
        failed = await remove(name, servers, desk.fleet.driver)
        failed |= {which: str(error) for which, error in problems.items() if tuple(which.split("/")) in served}
        if failed:
            began = parse_time(zone.metadata.deletion_timestamp or "").timestamp()
            grace = desk.options.deletion_grace.total_seconds()
            why = "; ".join(f"{server}: {text}" for server, text in sorted(failed.items()))
            if all(text.startswith(LISTED_IN) for text in failed.values()) and ctx.clock.time() - began < grace:
                return requeue(after=FIRST_WORDS * 5)  # a matter of a notification
            if ctx.clock.time() - began < grace:
                ctx.log.warning("zone not removed yet", zone=zone.spec.zone_name, why=why)
                return requeue(after=min(desk.options.not_ready.total_seconds(), max(0.5, grace / 20)))
            ctx.event(zone, "ZoneLeftBehind", f"given up after {grace:g} s: {why}", warning=True)
        self._forget(zone.ref, ctx.cache)
        return done

    async def gone(self, ctx: Context, key: ObjectRef) -> None:
        """The zone no longer exists."""
        self._forget(key, ctx.cache)

    def _forget(self, key: ObjectRef, cache: Any) -> None:
        self._unpoint(key, cache)
        self.desk.tell_catalogs(self.desk.catalogs.put(key, b"", frozenset()), cache)
        book = self.desk.books.get(key)
        if book is not None:
            self.desk.books.close(key)
            self.desk.tell_records(key.namespace, book.sources)
        if self.desk.metrics is not None:
            self.desk.metrics.forget(key)


def drift_of(zone: DNSZone, default: Drift) -> Drift:
    """What to do about drift of this zone."""
    word = zone.annotations.get(DRIFT, "").strip().lower()
    return Drift(word) if word in tuple(Drift) else default


def _age(zone: DNSZone) -> tuple[str, str, str]:
    return zone.metadata.creation_timestamp or "", zone.namespace, zone.name
