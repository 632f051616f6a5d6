"""The controller of zones: one straight way from what the caches hold to what servers serve.

    select ─► compile ─► inspect ─► diff ─► write ─► verify ─► status

Select, compile and the plan of a pass are here; `publisher` does the four steps at servers; `zone_status` reports. A
pass that finds nothing changed and nothing due contacts no server and writes nothing. A zone that overlaps an older one
on the same servers writes nothing at all.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from steersman.clock import Ages
from steersman.errors import DriverError, PlanError
from steersman.kube.api.times import parse_time
from steersman.operators.dns.api.config import ADOPT, DRIFT, DRIFT_IGNORE, DnsOptions, DriftPolicy
from steersman.operators.dns.api.records import RECORD_KINDS
from steersman.operators.dns.api.zone import DnssecStatus, DNSZone
from steersman.operators.dns.bind.pool import DriverPool
from steersman.operators.dns.controllers.context import ControllerChannels, PublishActivity, ServerProbes, spread
from steersman.operators.dns.controllers.metrics import DnsMetrics
from steersman.operators.dns.controllers.zone_status import (
    DEFERRAL,
    Summary,
    defer_status,
    is_status_deferred,
    next_dnssec,
    status_of,
)
from steersman.operators.dns.dnssec.keys import status_of_keys
from steersman.operators.dns.dnssec.signer import Signers
from steersman.operators.dns.publish.copy_inspector import PublishJob
from steersman.operators.dns.publish.ownership import (
    adopted_servers,
    deleted_contributions,
    owned_keys,
    trusted_servers,
    values_of,
)
from steersman.operators.dns.publish.publisher import publish
from steersman.operators.dns.publish.removal import LISTED_IN, ZoneRemover
from steersman.operators.dns.publish.servers import catalogs_for, resolve_servers
from steersman.operators.dns.publish.zone_state import ZoneStates
from steersman.operators.dns.zone.conflicts import ZONE
from steersman.operators.dns.zone.overlap import blocker_of, check_overlap, refused_zones
from steersman.operators.dns.zone.ptr import PtrIndex, allows_ptr_records, is_reverse
from steersman.operators.dns.zone.rdata import DNSKEY, NS
from steersman.operators.dns.zone.selection import (
    InstanceSelector,
    check_choice,
    check_selectors,
    empty_selectors,
    missing_cluster,
    selected_records,
    source_of,
)
from steersman.operators.dns.zone.soa import has_adopt_annotation, ignored_names, own_contributions, soa_of, zone_name
from steersman.runtime.cluster import ClusterSnapshot
from steersman.runtime.controller.result import Result, done, requeue
from steersman.runtime.reconcile.conditions import find_condition, is_news
from steersman.runtime.workqueue.queue import LOW_PRIORITY
from steersman.text import some_of

if TYPE_CHECKING:
    from steersman.kube.api.gvk import NamespacedName
    from steersman.operators.dns.bind.servers import Server
    from steersman.operators.dns.dnssec.signer import SignedBy
    from steersman.operators.dns.publish.copy_inspector import PublishReport
    from steersman.operators.dns.publish.zone_state import ZoneState
    from steersman.operators.dns.zone.rdata import Contribution, Key
    from steersman.runtime.reconcile.context import Context

FIRST_RETRY: Final = 0.05  # seconds until a zone checks again whether the zones it waits for are loaded
HAND_OVER: Final = 60.0  # seconds that a deleted zone waits for instances to list it as left behind
CATCH_UP: Final = 5.0  # seconds between two checks of a secondary that is behind, at most

# Reasons with which a zone's status rows say nothing about where the zone may be removed.
NOT_RETIRED: Final = frozenset({"InvalidName", "InvalidSelector", "DuplicateZone", "ZoneOverlap"})


class _WaitsForZones(Exception):  # noqa: N818  a state, not a fault
    """Zones whose PTR records or catalog entries belong here are not loaded yet."""


class ZoneReconciler(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """See the module."""

    options: DnsOptions
    states: ZoneStates
    ptr_index: PtrIndex
    drivers: DriverPool
    channels: ControllerChannels
    activity: PublishActivity
    probes: ServerProbes
    remover: ZoneRemover
    ages: Ages
    metrics: DnsMetrics | None
    _signers: Signers = msgspec.field(default_factory=Signers)

    async def reconcile(self, ctx: Context, zone: DNSZone) -> Result:
        """One pass over a zone."""
        state, summary = self.states[zone.ref], Summary()
        if is_status_deferred(zone, state, busy=self.activity.is_busy, now=ctx.clock.monotonic()):
            return requeue(after=DEFERRAL, priority=LOW_PRIORITY)
        self._warn_of_empty_selectors(ctx, zone)
        selector = InstanceSelector(ctx.cache, self.options.server_namespaces)
        try:
            servers = self._select(zone, selector, summary)
            with self.activity.publishing():
                deleted = self._compile(ctx, zone, state, servers)
                signed = await self._sign(ctx, zone, servers, summary)
                if (job := self._plan(ctx, zone, state, servers, signed, deleted, summary)) is not None:
                    refused = state.refusals()
                    report = await publish(state, job, self.drivers.driver, self.probes.start)
                    summary.report, summary.servers = report, servers
                    await self._observe(ctx, zone, state, summary, job, report, signed)
                    self._collect_changes(state, summary, refused, deleted)
            if not _was_served(zone) and summary.report is not None and summary.report.ok:
                self._list_in_catalogs(zone, summary, ctx.cache)
        except _WaitsForZones as waiting:
            return self._wait_for_zones(ctx, zone, state, str(waiting))
        except PlanError as error:
            self._cannot_serve(zone, state, summary, error, ctx.cache)
        state.passes_waiting = 0
        if zone.status is not None and summary.reason not in NOT_RETIRED:
            summary.leaving = await self.remover.retire(ctx, zone, selector, summary.instances)
        return await self._report(ctx, zone, state, summary)

    def _warn_of_empty_selectors(self, ctx: Context, zone: DNSZone) -> None:
        """Once per generation: an empty selector selects everything, which may be intended."""
        if zone.status is None or zone.status.observed_generation != zone.metadata.generation:
            for field in dict.fromkeys(empty_selectors(zone)):
                text = f"{field}: an empty selector selects every object of namespace {zone.namespace}"
                ctx.event(zone, "EmptySelector", text, warning=True)

    # -- select --------------------------------------------------------------------------------------------------------

    def _select(self, zone: DNSZone, selector: InstanceSelector, summary: Summary) -> list[Server]:
        """Choose the instances of a zone and find their servers; PlanError when there is nowhere to publish it."""
        check_selectors(zone)
        choice, cache = selector.of(zone), selector.cache
        check_choice(zone, choice)
        check_overlap(selector, zone)
        summary.instances, summary.methods = choice.instances, choice.methods
        servers, problems = resolve_servers(choice.instances, cache)
        summary.problems = {name: (error.reason, str(error)) for name, error in problems.items()}
        summary.contested = refused_zones(selector, zone)
        reference = zone.spec.cluster_ref or ""
        if not any(instance.spec.cluster_ref == reference for instance in choice.instances):
            summary.hint = missing_cluster(reference, zone.namespace, cache)
        if _was_served(zone):  # else the zone is listed when its primaries have it: secondaries retry much later
            self._list_in_catalogs(zone, summary, cache)
        if not choice.has_primary:
            raise PlanError("no selected Bind9Instance has the role primary", reason="NoPrimary")
        return servers

    def _list_in_catalogs(self, zone: DNSZone, summary: Summary, cache: Any) -> None:
        """Have the zone in the catalogs of its secondaries, and in no other."""
        catalogs = catalogs_for(zone, summary.instances, cache)
        for (namespace, name), instance in catalogs.items():
            rows = cache[DNSZone].by_index("dns-zone-name", name)
            if not any(row.namespace == namespace and row.spec.catalog and not row.deleting for row in rows):
                text = f"namespace {namespace} has no DNSZone {name} with spec.catalog: true"
                summary.problems[str(instance)] = ("CatalogMissing", text)
        self._put_in_catalogs(zone.ref, zone_name(zone), frozenset(catalogs), cache)

    def _put_in_catalogs(
        self, ref: NamespacedName, name: bytes, catalogs: frozenset[tuple[str, str]], cache: Any
    ) -> None:
        changed = self.ptr_index.catalogs.put(ref, name, catalogs)
        self.channels.catalogs_changed(changed, cache)

    # -- compile -------------------------------------------------------------------------------------------------------

    def _compile(self, ctx: Context, zone: DNSZone, state: ZoneState, servers: list[Server]) -> list[Contribution]:
        """Compile the desired zone; returns what records contributed that are being deleted, at the first pass."""
        name = zone_name(zone)
        addresses = [server.address for server in servers if server.role == "primary" and not server.managed]
        own = own_contributions(zone, name, addresses)
        deleted: list[Contribution] = []
        with ClusterSnapshot(ctx.cache, user="dns zones", brief=True) as fresh:
            self.channels.pointers_changed(state.load(zone, name, own, fresh, self.ptr_index).pointers, fresh)
            if not state.published_once:
                deleted = deleted_contributions(zone, name, fresh)
                if unloaded := self._unloaded_zones(zone, name, fresh):
                    raise _WaitsForZones(some_of(unloaded, 5))
        if (b"", NS) not in state.desired.rrsets:
            held = next(iter(state.desired.held.get((b"", NS), {}).values()), None)
            raise PlanError(
                held.message if held else "the zone has no name server",
                reason="NoNameServer",
                field="spec.nameServers",
            )
        state.problem = None
        state.keep(server.id for server in servers)
        return deleted

    def _unloaded_zones(self, zone: DNSZone, name: bytes, cache: Any) -> list[str]:
        """The zones that may contribute to this one and that this process has not loaded yet.

        Publishing before that would remove data: addresses of zones have PTR records here, and catalogs list zones.
        """
        if not is_reverse(name) and not zone.spec.catalog:
            return []
        found: list[str] = []
        for other in cache[DNSZone]:
            if (
                other.deleting
                or other.ref == zone.ref
                or not (zone.spec.catalog or allows_ptr_records(zone, other.namespace))
            ):
                continue
            state = self.states.get(other.ref)
            if state is None or not state.records_loaded:
                found.append(str(other.ref))
        return found

    def _wait_for_zones(self, ctx: Context, zone: DNSZone, state: ZoneState, zones: str) -> Result:
        state.passes_waiting += 1
        if not state.passes_waiting % 30:
            ctx.log.warning("waiting for zones that are not loaded yet", zone=zone.name, zones=zones)
        return requeue(after=min(1.0, FIRST_RETRY * state.passes_waiting))

    def _cannot_serve(self, zone: DNSZone, state: ZoneState, summary: Summary, error: PlanError, cache: Any) -> None:
        """A zone that cannot be published keeps the PTR records of its addresses, unless an older zone has its name.

        Its records come and go meanwhile, and their PTR records with them.
        """
        summary.reason, summary.message = error.reason, str(error)
        state.problem = (error.reason, str(error))
        if state.is_unserved:
            self._put_in_catalogs(zone.ref, b"", frozenset(), cache)
        if error.reason in {"DuplicateZone", "ZoneOverlap"}:
            self._remove_pointers(zone.ref, cache)
        elif error.reason != "InvalidSelector":  # which does not say what its records are
            own = state.desired.contributions.get(ZONE, ())
            with suppress(PlanError), ClusterSnapshot(cache, user="dns zones", brief=True) as fresh:
                loaded = state.load(zone, zone_name(zone), own, fresh, self.ptr_index)
                self.channels.pointers_changed(loaded.pointers, fresh)
        state.pending |= state.sources  # all of them are reported when the zone is served again
        state.outcome_ready = state.records_loaded = True

    def _remove_pointers(self, ref: NamespacedName, cache: Any) -> None:
        for source in self.ptr_index.sources(ref):
            names = self.ptr_index.put(ref, source, ())
            self.channels.pointers_changed([((ref.namespace, source), name) for name in names], cache)

    # -- plan: what is inspected, diffed, written and verified ---------------------------------------------------------

    async def _sign(self, ctx: Context, zone: DNSZone, servers: list[Server], summary: Summary) -> SignedBy:
        """Decide which primary signs the zone with which keys, and make keys that are missing."""
        primaries = tuple(server for server in servers if server.role == "primary")
        signed = await self._signers.prepare(ctx, zone, summary.instances, primaries)
        if signed.reason:
            summary.problems[str(signed.instance or primaries[0].instance)] = (signed.reason, signed.message)
        return signed

    def _plan(
        self,
        ctx: Context,
        zone: DNSZone,
        state: ZoneState,
        servers: list[Server],
        signed: SignedBy,
        deleted: list[Contribution],
        summary: Summary,
    ) -> PublishJob | None:
        """What is to be published, and where; None while no primary has an address."""
        if not state.serial and zone.status is not None and zone.status.serial:
            state.serial = zone.status.serial
        if not signed.primaries:
            state.outcome_ready = True
            if not summary.problems:  # else those say more
                summary.reason, summary.message = "NoPrimary", "no primary has an address yet"
            return None
        options, now = self.options, ctx.clock.monotonic()
        drift = drift_mode(zone, options.drift)
        is_due = now - state.checked_at >= 0.95 * options.drift_period.total_seconds()
        trusted = trusted_servers(zone, servers, summary.instances)
        adopted = adopted_servers(zone, trusted)
        needs_owned = not state.published_once and len(adopted) < len(servers)
        return PublishJob(
            soa=soa_of(zone, zone.spec.soa_record.serial or 0),
            ttl=state.desired.default_ttl,
            primaries=signed.primaries,
            secondaries=tuple(server for server in servers if server.role == "secondary"),
            drift=drift,
            ignore=ignored_names(zone),
            policy=signed.policy,
            key_directory=signed.directory,
            tags=signed.tags,
            hold=signed.hold,
            # what was only reported in another drift mode may have to be repaired now
            check_all=is_due or (state.published_once and drift != state.checked_drift_mode),
            first=not state.published_once,
            now=now,
            deleted=values_of(deleted),
            owned=owned_keys(zone, state.desired.zone, ctx.cache, trusted) if needs_owned else {},
            adopted=adopted,
            adopt=frozenset(server.id for server in trusted) if has_adopt_annotation(zone) else frozenset(),
        )

    # -- observe -------------------------------------------------------------------------------------------------------

    async def _observe(
        self,
        ctx: Context,
        zone: DNSZone,
        state: ZoneState,
        summary: Summary,
        job: PublishJob,
        report: PublishReport,
        signed: SignedBy,
    ) -> None:
        """Note what publishing came to: keys, drift, foreign data, metrics."""
        if job.check_all and report.ok:  # else every copy is checked again
            state.checked_at, state.checked_drift_mode = job.now, job.drift
        await self._observe_keys(ctx, zone, summary, report, signed)
        self._observe_drift(ctx, zone, report, job.drift)
        self._observe_foreign_data(ctx, zone, summary, report)
        if self.metrics is not None:
            self.metrics.published(zone, report, summary.servers)

    async def _observe_keys(
        self, ctx: Context, zone: DNSZone, summary: Summary, report: PublishReport, signed: SignedBy
    ) -> None:
        """The DNSSEC status, from what is served; an Event when the parent needs other DS records."""
        signer = signed.primaries[0]
        if signer.title in report.errors:
            return
        if signed.policy is None:
            summary.dnssec = DnssecStatus()
            return
        if report.unsigned:
            text = f"{', '.join(report.unsigned)} has not signed the zone with its keys yet"
            summary.problems[str(signer.instance)] = ("KeysPending", text)
        with suppress(DriverError):
            name = zone_name(zone)
            keys = await self.drivers.driver(signer).values(name, DNSKEY)
            found = replace(status_of_keys(name, keys), signed_by=str(signer.instance))
            known = zone.status.dnssec if zone.status is not None else None
            summary.dnssec, is_changed = next_dnssec(known, found, is_pending=signed.hold and bool(report.unsigned))
            if is_changed:
                text = f"the zone is signed with other keys: the parent needs {', '.join(found.ds_records or ())}"
                ctx.event(zone, "SigningKeysChanged", text, warning=True)

    def _observe_drift(self, ctx: Context, zone: DNSZone, report: PublishReport, mode: DriftPolicy) -> None:
        is_repaired = mode is DriftPolicy.REPAIR
        for server, names in report.drift.items():
            ctx.event(zone, "DriftFound", f"{server} differed from the zone at {some_of(names, 5)}", warning=True)
            if self.metrics is not None:
                self.metrics.drifted(len(names), repaired=is_repaired)
        for server, names in (*report.repaired.items(), *(report.drift.items() if is_repaired else ())):
            ctx.event(zone, "DriftRepaired", f"{server}: repaired {some_of(names, 5)}")

    def _observe_foreign_data(self, ctx: Context, zone: DNSZone, summary: Summary, report: PublishReport) -> None:
        for server, names in report.adopted.items():
            ctx.event(zone, "Adopted", f"{server}: removed unmanaged records at {some_of(names, 5)}")
        if not report.foreign:
            return
        where = "; ".join(f"{server} has {some_of(names, 5)}" for server, names in sorted(report.foreign.items()))
        summary.reason = "ForeignData"
        summary.message = (
            f"unmanaged records kept: {where}. Make records of them (steersman dns import), keep them unmanaged "
            f'(annotation {DRIFT_IGNORE}), or have them removed (annotation {ADOPT}: "true")'
        )
        ready = find_condition(zone.status.conditions if zone.status else None, "Ready")
        if ready is None or ready.reason != summary.reason:
            ctx.event(zone, summary.reason, summary.message, warning=True)

    def _collect_changes(
        self, state: ZoneState, summary: Summary, before: dict[Key, list[str]], deleted: list[Contribution]
    ) -> None:
        """Collect the records whose outcome changed; refused data of the zone itself is the zone's problem."""
        assert summary.report is not None
        errors = summary.report.errors.values()
        if all(reason == "SecondaryFailed" for reason, _ in errors):
            summary.changed |= state.published(summary.report.serial)
        else:
            summary.changed |= state.pending
        refused = state.refusals()
        for key in before.keys() | refused.keys():
            if before.get(key) != refused.get(key):
                summary.changed |= set(state.desired.sources_of(key))
        if not state.published_once:  # also records that were deleted while no process ran
            summary.changed |= {*state.sources, *(part.source for part in deleted)}
        state.outcome_ready = state.published_once = True
        own = state.desired.outcome(ZONE)
        if own is not None and own.held is not None:
            summary.reason, summary.message = own.held.reason, f"spec.nameServers: {own.held.message}"
        elif own is not None and not summary.reason and (keys := [key for key in own.keys if key in refused]):
            summary.reason, summary.message = state.refusal_reason(keys), state.refusal_text(keys)

    # -- status --------------------------------------------------------------------------------------------------------

    async def _report(self, ctx: Context, zone: DNSZone, state: ZoneState, summary: Summary) -> Result:
        """Notify records and instances, and write the status, unless it can wait."""
        self._notify(ctx, zone, state, summary)
        if self.metrics is not None:
            self.metrics.reconciled(zone, ready=summary.ready)
        if defer_status(zone, state, summary, busy=self.activity.is_busy, now=ctx.clock.monotonic()):
            return requeue(after=DEFERRAL, priority=LOW_PRIORITY)
        status = status_of(zone, state, summary, now=ctx.clock.time())
        before = zone.status.conditions if zone.status is not None else None
        for kind in ("Contested", "Ignored"):
            condition = find_condition(status.conditions, kind)
            if condition is not None and is_news(find_condition(before, kind), condition):
                ctx.event(zone, kind, condition.message, warning=True)
        await ctx.status(zone, status)
        state.status_deferred_since = None
        return self._next_pass(ctx, state, summary)

    def _notify(self, ctx: Context, zone: DNSZone, state: ZoneState, summary: Summary) -> None:
        changed = summary.changed | state.unreported
        state.unreported = set()
        if summary.report is None:
            changed |= state.sources
            changed |= {
                source_of(record) for kind in RECORD_KINDS for record in selected_records(zone, ctx.cache[kind])
            }
        self.channels.records_changed(zone.namespace, changed)
        # A pod that has the zone now may become ready; the zone's own status need not change for that.
        complete = {server.id: server.instance for server in summary.servers if server.managed and state.has(server.id)}
        for server in complete.keys() - state.complete_servers:
            self.channels.instances.send(complete[server])
        state.complete_servers = frozenset(complete)

    def _next_pass(self, ctx: Context, state: ZoneState, summary: Summary) -> Result:
        options = self.options
        behind = max((copy.behind or copy.unsigned for copy in state.copies.values()), default=0)
        soon = min(CATCH_UP, 0.1 * 2 ** min(8, behind)) if behind else None  # secondaries need a refresh, no backoff
        if summary.ready and not summary.leaving:
            state.retry.succeeded()
            return requeue(after=spread(options.drift_period.total_seconds()) if soon is None else soon)
        wait = 60.0
        if not options.fixed_backoff:
            longest = options.not_ready.total_seconds()
            wait = state.retry.failed(tuple(summary.servers), ctx.clock.monotonic(), longest)
        return requeue(after=wait if soon is None else min(wait, soon))

    # -- deletion ------------------------------------------------------------------------------------------------------

    async def clean_up(self, ctx: Context, zone: DNSZone) -> Result:
        """Remove a deleted zone from every server; done when it is gone there, or handed over to instances."""
        try:
            name = zone_name(zone)
        except PlanError:
            return done
        selector = InstanceSelector(ctx.cache, self.options.server_namespaces)
        self._put_in_catalogs(zone.ref, name, frozenset(), ctx.cache)
        chosen = () if blocker_of(selector, zone) is not None else selector.of(zone).instances
        failed, away = await self.remover.withdraw(ctx, zone, selector, chosen)
        if failed:
            grace = self.options.deletion_grace.total_seconds()
            waited = self.ages.since(parse_time(zone.metadata.deletion_timestamp or "").timestamp())
            why = "; ".join(f"{server}: {text}" for server, text in sorted(failed.items()))
            if all(text.startswith(LISTED_IN) for text in failed.values()) and waited < grace:
                return requeue(after=FIRST_RETRY * 5)  # the notification of the catalog is on its way
            if waited < grace:
                ctx.log.warning("zone not removed yet", zone=zone.spec.zone_name, why=why)
                return requeue(after=min(self.options.not_ready.total_seconds(), max(0.5, grace / 20)))
            if not self.remover.hand_over(zone, away, ctx.cache) and waited < 2 * grace + HAND_OVER:
                return requeue(after=FIRST_RETRY)
            ctx.event(zone, "ZoneLeftBehind", f"not removed within {grace:g} s: {why}", warning=True)
        self._forget(zone.ref, ctx.cache)
        return done

    async def gone(self, ctx: Context, key: NamespacedName) -> None:
        """The zone no longer exists."""
        self._forget(key, ctx.cache)

    def _forget(self, key: NamespacedName, cache: Any) -> None:
        self._remove_pointers(key, cache)
        self._put_in_catalogs(key, b"", frozenset(), cache)
        state = self.states.get(key)
        if state is not None:
            del self.states[key]
            self.channels.records_changed(key.namespace, state.sources)
        if self.metrics is not None:
            self.metrics.forget(key)


def drift_mode(zone: DNSZone, default: DriftPolicy) -> DriftPolicy:
    """What to do about drift of this zone."""
    mode = zone.annotations.get(DRIFT, "").strip().lower()
    return DriftPolicy(mode) if mode in tuple(DriftPolicy) else default


def _was_served(zone: DNSZone) -> bool:
    return zone.status is not None and bool(zone.status.serial)
