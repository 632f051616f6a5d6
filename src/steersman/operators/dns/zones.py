"""The controller of zones: from what the caches say to what servers serve, and what the zone says about it.

    snapshot ─► choose servers ─► load the draft ─► publish ─► status of the zone, news for its records

A pass that finds nothing changed and nothing due asks nobody and writes nothing. A zone that another one holds already
(same name, a common instance, older) writes nothing at all.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from steersman.errors import DriverError, PlanError
from steersman.kube.times import parse_time
from steersman.operators.dns.claims import check_choice, holder_of, lost_cluster
from steersman.operators.dns.compiler import ZONE
from steersman.operators.dns.names import some
from steersman.operators.dns.ownership import adopted_servers, leaving_parts, owned_places, values_of
from steersman.operators.dns.pointers import is_reverse, lets_in
from steersman.operators.dns.publisher import Job, Report, publish
from steersman.operators.dns.removal import LISTED_IN
from steersman.operators.dns.retiring import Retirer
from steersman.operators.dns.selection import check_selectors, empty_selectors, records_wanted, source_of
from steersman.operators.dns.signers import Signers
from steersman.operators.dns.signing import DNSKEY, status_of_keys
from steersman.operators.dns.types import ADOPT, DRIFT, DRIFT_IGNORE, Drift
from steersman.operators.dns.words import LATER, only_words_left, puts_off
from steersman.operators.dns.zonekinds import DnssecStatus, DNSZone
from steersman.operators.dns.zoneplan import ignored_names, is_told_ours, own_contributions, soa_of, zone_name
from steersman.operators.dns.zonestatus import Summary, status_of
from steersman.runtime.cluster import Snapshots
from steersman.runtime.conditions import find_condition
from steersman.runtime.queue import LOW_PRIORITY
from steersman.runtime.result import Result, done, requeue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.kube.resources import ObjectRef
    from steersman.operators.dns.book import ZoneBook
    from steersman.operators.dns.desk import Desk
    from steersman.operators.dns.rrsets import Key
    from steersman.operators.dns.serverkinds import Bind9Instance
    from steersman.operators.dns.servers import Server
    from steersman.operators.dns.signers import SignedBy
    from steersman.runtime.context import Context

__all__ = ["ZoneKeeper"]

FIRST_WORDS: Final = 0.05  # seconds until a reverse zone asks again whether all zones have been looked at
HAND_OVER: Final = 60.0  # seconds that a deleted zone waits for instances to remember it
CATCH_UP: Final = 5.0  # seconds between two looks at a secondary that is behind, at most


class _TooEarly(Exception):  # noqa: N818  a state, not a fault
    """Not everybody has had a say yet."""


class ZoneKeeper:
    """Keeps zones at what they should be."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._signers, self._retirer = Signers(), Retirer(desk)

    # -- a pass --------------------------------------------------------------------------------------------------------

    async def reconcile(self, ctx: Context, zone: DNSZone) -> Result:
        """One pass over a zone."""
        desk, book = self.desk, self.desk.books.open(zone.ref)
        if only_words_left(zone, book, busy=desk.busy, now=ctx.clock.monotonic()):
            return requeue(after=LATER, priority=LOW_PRIORITY)
        summary = Summary()
        self._warn_of_empty(ctx, zone)
        try:
            check_selectors(zone)
            choice = desk.choose(zone, ctx.cache)
            check_choice(desk, zone, choice, ctx.cache)
            servers, problems = desk.servers(choice.instances, ctx.cache)
            summary.instances, summary.methods = choice.instances, choice.methods
            summary.hint = self._lost_reference(zone, choice.instances, ctx.cache)
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
        await self._retirer.retire(ctx, zone, summary)
        return await self._tell(ctx, zone, book, summary)

    def _warn_of_empty(self, ctx: Context, zone: DNSZone) -> None:
        """Say once for what a zone asks that its selectors mean everything; it may be meant."""
        if zone.status is None or zone.status.observed_generation != zone.metadata.generation:
            for field in dict.fromkeys(empty_selectors(zone)):
                text = f"{field}: an empty selector means every object of namespace {zone.namespace}"
                ctx.event(zone, "EmptySelector", text, warning=True)

    def _lost_reference(self, zone: DNSZone, instances: Iterable[Bind9Instance], cache: Any) -> str:
        """What to say of a cluster that a zone names and that nobody knows, when others serve it."""
        name = zone.spec.cluster_ref or ""
        if not name or any(one.spec.cluster_ref == name for one in instances):
            return ""
        return lost_cluster(name, zone.namespace, cache)

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

    async def _publish(
        self, ctx: Context, zone: DNSZone, book: ZoneBook, servers: list[Server], summary: Summary
    ) -> None:
        desk, options = self.desk, self.desk.options
        name = zone_name(zone)
        primaries = tuple(server for server in servers if server.role == "primary")
        own = own_contributions(zone, name, [server.address for server in primaries if not server.managed])
        with Snapshots(ctx.cache, user="dns zones", brief=True) as fresh:
            desk.tell_reverse(book.load(zone, name, own, fresh, desk.directory), fresh)
            leaving = leaving_parts(zone, name, fresh) if not book.began else []
            if not book.began and (unheard := self._unheard(zone, name, fresh)):
                raise _TooEarly(", ".join(unheard[:5]))
        if (b"", 2) not in book.draft.rrsets:
            held = next(iter(book.draft.held.get((b"", 2), {}).values()), None)
            raise PlanError(
                held.message if held else "it has no name server", reason="NoNameServer", field="spec.nameServers"
            )
        book.problem = None
        book.keep(server.id for server in servers)
        desk.tell_followers(book, servers)
        serial = zone.spec.soa_record.serial or 0
        if not book.serial and zone.status is not None and zone.status.serial:
            book.serial = zone.status.serial
        signed = await self._signers.prepare(ctx, zone, summary.instances, primaries)
        if signed.reason:
            summary.problems[str(signed.instance or primaries[0].instance)] = (signed.reason, signed.message)
        if not signed.primaries:
            book.outcome_ready = True
            if not summary.problems:  # else those say more
                summary.reason, summary.message = "NoPrimary", "no primary has an address yet"
            return
        now = ctx.clock.monotonic()
        drift = drift_of(zone, options.drift)
        due = now - book.looked >= 0.95 * options.drift_period.total_seconds()
        look = due or (book.began and drift != book.mode)  # what was left alone may be for us to repair now
        mine = adopted_servers(zone, servers)
        job = Job(
            soa=soa_of(zone, serial),
            ttl=book.draft.default_ttl,
            primaries=signed.primaries,
            secondaries=tuple(server for server in servers if server.role == "secondary"),
            drift=drift,
            ignore=ignored_names(zone),
            policy=signed.policy,
            key_directory=signed.directory,
            tags=signed.tags,
            hold=signed.hold,
            look=look,
            first=not book.began,
            now=now,
            ours=values_of(leaving),
            owned={} if book.began or len(mine) == len(servers) else owned_places(zone, name, ctx.cache),
            mine=mine,
            adopt=is_told_ours(zone),
        )
        refused = book.refusals()
        report = await publish(book, job, desk.fleet.driver, desk.probe)
        if look:
            book.looked, book.mode = (now, drift) if report.ok else (book.looked, book.mode)  # else it is done again
            summary.looked = True
        summary.report, summary.servers = report, servers
        await self._tell_signed(ctx, zone, name, signed, summary)
        self._tell_drift(ctx, zone, book, report, job.drift)
        self._tell_foreign(ctx, zone, summary)
        if report.ok or all(reason == "SecondaryFailed" for reason, _ in report.errors.values()):
            summary.news = book.published(report.serial)
        else:
            summary.news = set(book.pending)
        self._note_refusals(book, refused, summary)
        if not book.began:  # also those that were deleted while nobody was here
            summary.news |= {*book.sources, *(part.source for part in leaving)}
        book.outcome_ready = book.began = True
        if desk.metrics is not None:
            desk.metrics.published(zone, report)

    async def _tell_signed(self, ctx: Context, zone: DNSZone, name: bytes, signed: SignedBy, summary: Summary) -> None:
        """What a zone says about its keys, from what is served; a parent has to hear of other ones."""
        report, first = summary.report, signed.primaries[0]
        if report is None or first.title in report.errors:
            return
        if signed.policy is None:
            summary.dnssec = DnssecStatus()
            return
        if report.unsigned:
            text = f"{', '.join(report.unsigned)} has not signed it with its keys yet"
            summary.problems[str(first.instance)] = ("KeysPending", text)
        with suppress(DriverError):
            keys = await self.desk.fleet.driver(first).values(name, DNSKEY)
            summary.dnssec = replace(status_of_keys(name, keys), signed_by=str(first.instance))
            before = set((zone.status.dnssec.ds_records if zone.status and zone.status.dnssec else None) or ())
            if not before.isdisjoint(summary.dnssec.ds_records or ()) or not before:
                return
            if signed.hold and report.unsigned:
                summary.dnssec = None  # what was known still holds
            elif summary.dnssec.ds_records:
                text = f"it is signed with other keys: the parent needs {', '.join(summary.dnssec.ds_records)}"
                ctx.event(zone, "SigningKeysChanged", text, warning=True)

    def _note_refusals(self, book: ZoneBook, before: dict[Key, list[str]], summary: Summary) -> None:
        """What servers would not have is for the records to say that want it, or for the zone itself."""
        now = book.refusals()
        for key in before.keys() | now.keys():
            if before.get(key) != now.get(key):
                summary.news |= set(book.draft.sources_of(key))
        own = book.draft.outcome(ZONE)
        refused = [] if own is None else [key for key in own.keys if key in now]
        if own is not None and own.held is not None:
            summary.reason, summary.message = own.held.reason, f"spec.nameServers: {own.held.message}"
        elif refused and not summary.reason:
            summary.reason, summary.message = book.refusal_reason(refused), book.refusal_text(refused)

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
        elif reason != "InvalidSelector":  # which does not say what its records are
            own = book.draft.contributions.get(ZONE, ())
            with suppress(PlanError), Snapshots(cache, user="dns zones", brief=True) as fresh:
                desk.tell_reverse(book.load(zone, zone_name(zone), own, fresh, desk.directory), fresh)

    def _unpoint(self, ref: ObjectRef, cache: Any) -> None:
        directory = self.desk.directory
        for source in directory.sources(ref):
            names = directory.put(ref, source, ())
            self.desk.tell_reverse([((ref.namespace, source), name) for name in names], cache)

    def _tell_foreign(self, ctx: Context, zone: DNSZone, summary: Summary) -> None:
        """Say what servers have that no resource speaks for, and what is to be done about it."""
        assert summary.report is not None
        for server, names in summary.report.adopted.items():
            ctx.event(zone, "Adopted", f"{server} no longer has {some(names)}, which no resource speaks for")
        if not summary.report.foreign:
            return
        text = "; ".join(f"{server} has {some(names)}" for server, names in sorted(summary.report.foreign.items()))
        summary.reason = "ForeignData"
        summary.message = (
            f"{text}, which no resource speaks for; it is kept. Make records of it (steersman dns import), leave the "
            f'names to others ({DRIFT_IGNORE}), or have it deleted ({ADOPT}: "true")'
        )
        ready = next(
            (row for row in (zone.status.conditions if zone.status else None) or () if row.type == "Ready"), None
        )
        if ready is None or ready.reason != summary.reason:
            ctx.event(zone, summary.reason, summary.message, warning=True)

    def _tell_drift(self, ctx: Context, zone: DNSZone, book: ZoneBook, report: Report, mode: Drift) -> None:
        book.drifts += len(report.drift)
        for server, names in report.drift.items():
            shown = some(names)
            ctx.event(zone, "DriftFound", f"{server} did not have what it should have at {shown}", warning=True)
            if self.desk.metrics is not None:
                self.desk.metrics.drifted(len(names), repaired=mode is Drift.REPAIR)
        for server, names in (*report.repaired.items(), *(report.drift.items() if mode is Drift.REPAIR else ())):
            ctx.event(zone, "DriftRepaired", f"{server} has what it should have at {some(names)}")

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
        if self.desk.metrics is not None:
            self.desk.metrics.told(zone, ready=summary.ready)
        if puts_off(zone, book, summary, busy=self.desk.busy, now=ctx.clock.monotonic()):
            return requeue(after=LATER, priority=LOW_PRIORITY)
        status = status_of(zone, book, summary, now=ctx.clock.time())
        said = find_condition(status.conditions, "Ignored")
        before = find_condition(zone.status.conditions if zone.status is not None else None, "Ignored")
        if said is not None and (before is None or before.message != said.message):
            ctx.event(zone, "Ignored", said.message, warning=True)
        await ctx.status(zone, status)
        book.owed = None
        options = self.desk.options
        behind = max((copy.behind or copy.unsigned for copy in book.copies.values()), default=0)
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
        mine = () if holder_of(desk, zone, choice, ctx.cache) is not None else choice.instances
        failed, away = await self._retirer.withdraw(ctx, zone, mine)
        if failed:
            began = parse_time(zone.metadata.deletion_timestamp or "").timestamp()
            grace = desk.options.deletion_grace.total_seconds()
            why = "; ".join(f"{server}: {text}" for server, text in sorted(failed.items()))
            if all(text.startswith(LISTED_IN) for text in failed.values()) and ctx.clock.time() - began < grace:
                return requeue(after=FIRST_WORDS * 5)  # a matter of a notification
            if ctx.clock.time() - began < grace:
                ctx.log.warning("zone not removed yet", zone=zone.spec.zone_name, why=why)
                return requeue(after=min(desk.options.not_ready.total_seconds(), max(0.5, grace / 20)))
            if not self._retirer.hand_over(zone, away, ctx.cache) and ctx.clock.time() - began < 2 * grace + HAND_OVER:
                return requeue(after=FIRST_WORDS)
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
