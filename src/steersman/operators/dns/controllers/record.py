"""The controllers of records: one reconciler for all eight kinds.

    owner zone ─► its ZoneState ─► outcome of the record ─► status, finalizer

A record is published by its zone. What is left to do here is to report what became of it, and to hold it back from
deletion until its data is gone. Nothing is reported before the zone has compiled this very generation of the record.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.clock import Ages
from steersman.errors import PlanError
from steersman.kube.api.errors import Conflict, NotFound
from steersman.kube.api.times import format_time, parse_time
from steersman.operators.dns.api.config import GROUP, PTR_NAMESPACES, VERSION, DnsOptions, finalizer_of
from steersman.operators.dns.api.records import AAAARecord, ARecord, EndpointState, RecordStatus, ZoneRef
from steersman.operators.dns.controllers.context import PublishActivity
from steersman.operators.dns.publish.zone_state import ZoneStates
from steersman.operators.dns.zone.conflicts import CNAME_CONFLICT, WILDCARD, Held
from steersman.operators.dns.zone.names import short_text, text_of
from steersman.operators.dns.zone.ptr import (
    PtrIndex,
    contributions_to,
    named_in,
    place_of,
    pointers_of,
    source_in_reverse,
    wants_ptr,
)
from steersman.operators.dns.zone.rdata import contribution_of, type_name
from steersman.operators.dns.zone.selection import source_of, zone_of, zones_selecting
from steersman.operators.dns.zone.soa import zone_name
from steersman.runtime.controller.result import Result, done, requeue
from steersman.runtime.reconcile.conditions import find_condition, new_condition, set_conditions, without_conditions
from steersman.runtime.reconcile.finalizers import has_finalizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from steersman.operators.dns.api.records import Record
    from steersman.operators.dns.api.zone import DNSZone
    from steersman.operators.dns.publish.zone_state import ZoneState
    from steersman.operators.dns.zone.compiler import RecordOutcome
    from steersman.operators.dns.zone.ptr import Origin, Pointer
    from steersman.runtime.reconcile.conditions import Condition
    from steersman.runtime.reconcile.context import Context

TRANSIENT: Final = ("Conflict", "PTR", "TTLMismatch")  # conditions that exist only while they are True
UNDECIDED: Final = frozenset({"NotSelected", "ReconcileFailed", "ZoneNotConfigured"})  # not because of the record

PTR_PUBLISHED: Final = Held("Published", "")
PTR_PENDING: Final = Held("Pending", "")


class RecordReconciler(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Reports on records."""

    options: DnsOptions
    states: ZoneStates
    ptr_index: PtrIndex
    activity: PublishActivity
    ages: Ages

    async def reconcile(self, ctx: Context, record: Record) -> Result:
        """Report what became of a record, or release it.

        The finalizer is added here and not before: publishing a record does not wait for it. If the process ends in
        between, the next one finds the data by comparing servers with records.
        """
        finalizer = finalizer_of(type(record).KIND.kind)
        if record.deleting:
            result = self.clean_up(ctx, record) if has_finalizer(record, finalizer) else done
            if result == done:
                await ctx.remove_finalizer(record, finalizer)
            return result
        await self.activity.wait_idle()
        try:
            record = await ctx.add_finalizer(record, finalizer)
        except Conflict:
            return requeue(after=0.05)  # it changed meanwhile
        except NotFound:
            return done
        status = self._status(record, ctx.cache, now=ctx.clock.time())
        if status is None:
            return done  # its zone has not compiled it yet, and wakes us when it has
        before = find_condition(record.status.conditions if record.status else None, "Ready")
        after = find_condition(status.conditions, "Ready")
        if await ctx.status(record, status) and after is not None and _needs_event(before, after):
            ctx.event(record, after.reason, after.message or "published", warning=after.status != "True")
        return done

    # -- deletion ------------------------------------------------------------------------------------------------------

    def clean_up(self, ctx: Context, record: Record) -> Result:
        """Release a deleted record when none of its data is served any more."""
        zone = zone_of(record, ctx.cache)
        if zone is None or not (self._is_served(record, zone) or self._has_ptr_records(record, zone, ctx.cache)):
            return done
        grace = self.options.deletion_grace.total_seconds()
        left = grace - self.ages.since(parse_time(record.metadata.deletion_timestamp or "").timestamp())
        if left > 0:  # its zone wakes us before that
            return requeue(after=max(0.5, min(left, self.options.not_ready.total_seconds())))
        text = f"not removed within {grace:g} s: a server may still have it"
        ctx.event(record, "RecordLeftBehind", text, warning=True)
        return done

    def _is_served(self, record: Record, zone: DNSZone) -> bool:
        """Whether servers of a zone have, or may have, data of a record."""
        state, source = self.states.get(zone.ref), source_of(record)
        if state is None:
            return True
        if state.is_unserved:
            return False
        # Servers may have what an earlier process published, until this one has written to them.
        was_served = zone.status is not None and bool(zone.status.serial)
        is_unknown = not state.outcome_ready or (was_served and not state.published_once and state.problem is None)
        return is_unknown or source in state.members or source in state.pending

    def _has_ptr_records(self, record: Record, zone: DNSZone, cache: Any) -> bool:
        """Whether a reverse zone has, or may have, PTR records of a deleted record."""
        origin = (record.namespace, source_of(record))
        source = source_in_reverse(origin)
        if any(source in state.desired.contributions or source in state.pending for state in self.states.values()):
            return True
        if not wants_ptr(record, zone.spec.ptr):
            return False
        try:
            pointers = pointers_of([contribution_of(record, origin[1], zone_name(zone))], zone_name(zone))
        except PlanError:
            return False
        zones = [place_of(pointer.name, record.namespace, named_in(cache)).zone for pointer in pointers]
        states = [self.states.get(reverse.ref) for reverse in zones if reverse is not None]
        return any(state is None or not state.outcome_ready for state in states)

    # -- status --------------------------------------------------------------------------------------------------------

    def _status(self, record: Record, cache: Any, *, now: float) -> RecordStatus | None:
        """The status of a record; None while its zone, or its reverse zone, has not compiled it."""
        known, generation = record.status or RecordStatus(), record.metadata.generation
        zones = zones_selecting(record, cache)
        if not zones:
            text = f"no DNSZone of namespace {record.namespace} selects it: compare its labels with spec.recordsFrom"
            ready = new_condition("Ready", False, "NotSelected", text, generation=generation)
            kept = without_conditions(known.conditions, *TRANSIENT)
            return RecordStatus(conditions=set_conditions(kept, ready, now=now), observed_generation=generation)
        zone, *others = zones
        state = self.states.get(zone.ref)
        if state is None or not state.outcome_ready:
            return None
        member = state.members.get(source_of(record))
        is_compiled = member is not None and (member.uid, member.generation) == (record.metadata.uid, generation)
        if not is_compiled and state.problem is None:
            return None
        ptr = self._ptr_outcome(record, zone, state, cache)
        if ptr is PTR_PENDING:
            return None
        return _status_of(record, zone, sorted(other.name for other in others), state, ptr, now)

    def _ptr_outcome(self, record: Record, zone: DNSZone, state: ZoneState, cache: Any) -> Held | None:
        """What became of the PTR records of a record; None when it has none."""
        if not wants_ptr(record, zone.spec.ptr):
            return None
        origin = (record.namespace, source_of(record))
        pointers = self.ptr_index.of(origin)
        if pointers:
            return ptr_outcome(origin, pointers, self.states, named_in(cache))
        outcome = state.desired.outcome(origin[1])
        if outcome is None or outcome.held is not None:
            return Held("NotPublished", "the address itself is not published")
        if outcome.keys[0][0].startswith(WILDCARD):
            return Held("WildcardName", "a wildcard is not a single name that a PTR record could point to")
        return PTR_PENDING  # the zone has not compiled the change of spec.ptr yet


def _status_of(
    record: Record, zone: DNSZone, others: list[str], state: ZoneState, ptr: Held | None, now: float
) -> RecordStatus:
    known, generation, source = record.status or RecordStatus(), record.metadata.generation, source_of(record)
    outcome, member = state.desired.outcome(source), state.members.get(source)
    ready = _ready(zone, state, source, outcome, generation)
    published = ready.status == "True"
    if published and ptr is not None and ptr is not PTR_PUBLISHED:
        ready = new_condition("Ready", False, ptr.reason, f"PTR: {ptr.message}", generation=generation)
    transient = []
    if ptr is not None:
        transient.append(new_condition("PTR", ptr is PTR_PUBLISHED, ptr.reason, ptr.message, generation=generation))
    if outcome is not None and outcome.ttl is not None and published:
        text = f"served with TTL {outcome.ttl}: an RRset has one TTL, the lowest of its records"
        transient.append(new_condition("TTLMismatch", True, "TTLMismatch", text, generation=generation))
    if conflicts := _conflicts(others, zone, outcome):
        reason, text = next(iter(conflicts)), "; ".join(conflicts.values())
        transient.append(new_condition("Conflict", True, reason, text, generation=generation))
    kept = without_conditions(known.conditions, *TRANSIENT)
    key = outcome.keys[0] if outcome is not None and outcome.keys else None
    name = "" if key is None else short_text(key[0], state.desired.zone)
    digest = hashlib.sha256(msgspec.json.encode(record.spec)).hexdigest()
    status = RecordStatus(
        conditions=set_conditions(kept, ready, *_with_known_times(known, transient), now=now),
        observed_generation=generation,
        zone=zone.spec.zone_name,
        zone_ref=ZoneRef(
            api_version=f"{GROUP}/{VERSION}",
            kind="DNSZone",
            name=zone.name,
            namespace=zone.namespace,
            zone_name=zone.spec.zone_name,
        ),
        record_hash=digest if published else known.record_hash,
        addresses=_addresses(record),
        published_name=name if published else known.published_name,
        contributes_to="" if key is None else f"{name} {type_name(key[1])}",
        endpoints=_endpoints(state, 0 if member is None else member.serial, published=published) or None,
    )
    has_changed = (status.record_hash, status.published_name) != (known.record_hash, known.published_name)
    status.last_updated = format_time(now) if has_changed and published else known.last_updated
    return status


def _ready(zone: DNSZone, state: ZoneState, source: str, outcome: RecordOutcome | None, generation: int) -> Condition:
    if state.problem is not None:
        reason, message = "ZoneNotConfigured", f"zone {zone.name}: {state.problem[1]}"
    elif outcome is not None and outcome.held is not None:
        reason, message = outcome.held.reason, outcome.held.message
    elif outcome is not None and (refused := state.refusal_text(outcome.keys)):
        reason, message = state.refusal_reason(outcome.keys), refused
    elif source in state.pending:
        reason, message = "ReconcileFailed", state.error_text() or "not published yet"
    else:
        return new_condition("Ready", True, "ReconcileSucceeded", "", generation=generation)
    return new_condition("Ready", False, reason, message, generation=generation)


def _endpoints(state: ZoneState, serial: int, *, published: bool) -> list[EndpointState]:
    rows = []
    for server, copy in sorted(state.copies.items()):
        namespace, instance, pod, *_ = f"{server}////".split("/")
        outcome = "Failed" if copy.error else ("Published" if published else "Pending")
        rows.append(EndpointState(instance=f"{namespace}/{instance}", pod=pod, serial=serial, state=outcome))
    return rows


def _conflicts(others: list[str], zone: DNSZone, outcome: RecordOutcome | None) -> dict[str, str]:
    """Other resources that lose against this record or its zone, by reason."""
    found = {}
    if outcome is not None and outcome.displaced:
        names = ", ".join(outcome.displaced)
        found[CNAME_CONFLICT] = f"{names} cannot be published: a name with a CNAME has no other data"
    if others:
        found["SelectedByMultipleZones"] = f"zones {', '.join(others)} select it too; {zone.name} is the oldest"
    return found


def _with_known_times(known: RecordStatus, conditions: list[Condition]) -> list[Condition]:
    """Transient conditions keep their transition time while they stay."""
    before = {row.type: row for row in known.conditions or ()}
    return [
        msgspec.structs.replace(row, last_transition_time=before[row.type].last_transition_time)
        if row.type in before and before[row.type].status == row.status
        else row
        for row in conditions
    ]


def _addresses(record: Any) -> str:
    if isinstance(record, ARecord):
        several, single = record.spec.ipv4_addresses, record.spec.ipv4_address
    elif isinstance(record, AAAARecord):
        several, single = record.spec.ipv6_addresses, record.spec.ipv6_address
    else:
        return ""
    return ",".join([*(several or ()), *([single] if single else ())])


def _needs_event(before: Condition | None, after: Condition) -> bool:
    """Whether a record was published or is no longer, or cannot be for another reason than before."""
    if before is not None and before.status != after.status:
        return True
    is_rejected = after.status != "True" and after.reason not in UNDECIDED
    return is_rejected and (before is None or before.reason != after.reason)


# -- PTR records -------------------------------------------------------------------------------------------------------


def ptr_outcome(
    origin: Origin, pointers: Sequence[Pointer], states: ZoneStates, named: Callable[[str], Iterable[DNSZone]]
) -> Held:
    """PTR_PUBLISHED when all PTR records of a record are served, PTR_PENDING while that is not known, else why not."""
    zones: dict[object, DNSZone] = {}
    for pointer in pointers:
        place = place_of(pointer.name, origin[0], named)
        name = text_of(pointer.name).removesuffix(".")
        if place.zone is not None:
            zones[place.zone.ref] = place.zone
        elif place.denied:
            text = f"{', '.join(place.denied)} does not allow namespace {origin[0]} (annotation {PTR_NAMESPACES})"
            return Held("ReverseZoneDenied", f"{name}: {text}")
        else:
            return Held("NoReverseZone", f"no DNSZone contains {name}")
    outcomes = [_ptr_outcome_in(zone, origin, pointers, states, named) for zone in zones.values()]
    failed = (outcome for outcome in outcomes if outcome not in (PTR_PUBLISHED, PTR_PENDING))
    return next(failed, PTR_PENDING if PTR_PENDING in outcomes else PTR_PUBLISHED)


def _ptr_outcome_in(
    zone: DNSZone,
    origin: Origin,
    pointers: Sequence[Pointer],
    states: ZoneStates,
    named: Callable[[str], Iterable[DNSZone]],
) -> Held:
    state, source = states.get(zone.ref), source_in_reverse(origin)
    if state is None or not state.outcome_ready:
        return PTR_PENDING
    if state.problem is not None:
        return Held("ReverseZoneNotConfigured", f"zone {zone.name}: {state.problem[1]}")
    wanted = tuple(contributions_to(zone, state.desired.zone, origin, pointers, named))
    if state.desired.contributions.get(source) != wanted:
        return PTR_PENDING
    held = next((why for part in wanted if (why := state.desired.held.get(part.key, {}).get(source))), None)
    if held is not None:
        return held
    if refused := state.refusal_text(part.key for part in wanted):
        return Held("Refused", refused)
    if source not in state.pending:
        return PTR_PUBLISHED
    errors = state.error_text()
    return Held("ReconcileFailed", errors) if errors else PTR_PENDING
