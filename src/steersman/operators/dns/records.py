"""The controllers of records: one class for all eight kinds.

A record is published by its zone. What is left to do here is to hold a record back from deletion until its data is
gone, and to tell what became of it. Nothing is said about a record before its zone has looked at this very state of it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.errors import PlanError
from steersman.kube.errors import Conflict, NotFound
from steersman.kube.times import format_time, parse_time
from steersman.operators.dns.book import zones_wanting
from steersman.operators.dns.compiler import WILDCARD, Held
from steersman.operators.dns.names import short_text
from steersman.operators.dns.pointers import asks, named_in, place_of, pointers_of, source_in_reverse
from steersman.operators.dns.recordkinds import AAAARecord, ARecord, EndpointState, RecordStatus, ZoneRef
from steersman.operators.dns.reverse import FINE, WAIT, reverse_state
from steersman.operators.dns.rrsets import contribution_of, type_name
from steersman.operators.dns.selection import source_of, zone_of
from steersman.operators.dns.types import GROUP, VERSION, finalizer_of
from steersman.operators.dns.zoneplan import zone_name
from steersman.runtime.conditions import condition, with_conditions, without_conditions
from steersman.runtime.finalizers import has_finalizer
from steersman.runtime.result import Result, done, requeue

if TYPE_CHECKING:
    from steersman.operators.dns.book import ZoneBook
    from steersman.operators.dns.desk import Desk
    from steersman.operators.dns.recordkinds import Record
    from steersman.operators.dns.zonekinds import DNSZone
    from steersman.runtime.context import Context

__all__ = ["RecordKeeper"]

PASSING: Final = ("Conflict", "PTR", "TTLMismatch")  # conditions that are there only while there is something to say

UNDECIDED: Final = frozenset({"NotSelected", "ReconcileFailed", "ZoneNotConfigured"})  # not for anything it says


class RecordKeeper:
    """Reports on records."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    async def reconcile(self, ctx: Context, record: Record) -> Result:
        """Say what became of a record, or let it go.

        The finalizer is added here and not before: publishing a record does not wait for it. What is lost with a
        process that ends in between is found again by comparing servers with records.
        """
        finalizer = finalizer_of(type(record).KIND.kind)
        if record.deleting:
            result = await self.clean_up(ctx, record) if has_finalizer(record, finalizer) else done
            if result == done:
                await ctx.remove_finalizer(record, finalizer)
            return result
        await self.desk.turn()
        try:
            record = await ctx.add_finalizer(record, finalizer)
        except Conflict:
            return requeue(after=0.05)  # it has changed, and the next look sees how
        except NotFound:
            return done
        candidates = list(zones_wanting(record, ctx.cache))
        zone = zone_of(record, candidates)
        status = self._status(record, zone, candidates, ctx.cache, now=ctx.clock.time())
        if status is None:
            return done  # its zone has not looked at it yet, and will say when it has
        before = _ready_of(record.status)
        if await ctx.status(record, status):
            after = _ready_of(status)
            if _is_news(before, after):
                ctx.event(record, after.reason, after.message or "published", warning=after.status != "True")
        return done

    async def clean_up(self, ctx: Context, record: Record) -> Result:
        """Let a deleted record go when none of its data is served any more."""
        candidates = list(zones_wanting(record, ctx.cache))
        zone = zone_of(record, candidates)
        book = None if zone is None else self.desk.books.get(zone.ref)
        if zone is None:
            return done  # nobody publishes it
        source = source_of(record)
        served = book is None or (
            not book.unwanted and (_unasked(zone, book) or source in book.members or source in book.pending)
        )
        if not served and not self._is_pointed_to(record, zone, ctx.cache):
            return done
        began = parse_time(record.metadata.deletion_timestamp or "").timestamp()
        grace = self.desk.options.deletion_grace.total_seconds()
        left = grace - (ctx.clock.time() - began)
        if left > 0:  # the zone tells us before that
            return requeue(after=max(0.5, min(left, self.desk.options.not_ready.total_seconds())))
        ctx.event(record, "RecordLeftBehind", f"given up after {grace:g} s: a server may still have it", warning=True)
        return done

    def _is_pointed_to(self, record: Record, zone: DNSZone, cache: Any) -> bool:
        """Whether a reverse zone has PTR records of a record that is going, or nobody has looked at that zone yet."""
        origin = (record.namespace, source_of(record))
        name = source_in_reverse(origin)
        if any(name in book.draft.contributions or name in book.pending for book in self.desk.books):
            return True
        if not asks(record, zone.spec.ptr):
            return False
        try:
            pointers = pointers_of([contribution_of(record, origin[1], zone_name(zone))], zone_name(zone))
        except PlanError:
            return False
        places = [place_of(pointer.name, record.namespace, named_in(cache)).zone for pointer in pointers]
        books = [self.desk.books.get(place.ref) for place in places if place is not None]
        return any(book is None or not book.outcome_ready for book in books)

    def _status(
        self, record: Record, zone: DNSZone | None, candidates: list[DNSZone], cache: Any, *, now: float
    ) -> RecordStatus | None:
        known = record.status or RecordStatus()
        generation = record.metadata.generation
        if zone is None:
            ready = condition(
                "Ready", False, "NotSelected", "no DNSZone of this namespace selects it", generation=generation
            )
            kept = without_conditions(known.conditions, *PASSING)
            return RecordStatus(conditions=with_conditions(kept, ready, now=now), observed_generation=generation)
        book = self.desk.books.get(zone.ref)
        source = source_of(record)
        member = None if book is None else book.members.get(source)
        if (
            book is None
            or not book.outcome_ready
            or (
                book.problem is None
                and (member is None or (member.uid, member.generation) != (record.metadata.uid, generation))
            )
        ):
            return None
        wanting = [one for one in candidates if one.name != zone.name]
        reverse = self._reverse(record, zone, book, cache)
        if reverse is WAIT:
            return None  # its reverse zone says when it has looked
        return self._outcome(record, zone, book, source, _also(record, wanting), reverse, known, now)

    def _reverse(self, record: Record, zone: DNSZone, book: ZoneBook, cache: Any) -> Held | None:
        """What became of the PTR records that were asked for: FINE, why they are not there, or None if nobody asked."""
        if not asks(record, zone.spec.ptr):
            return None
        origin = (record.namespace, source_of(record))
        pointers = self.desk.directory.of(origin)
        if not pointers:
            outcome = book.draft.outcome(origin[1])
            if outcome is None or outcome.held is not None:
                return Held("NotPublished", "the address itself is not published")
            if outcome.keys[0][0].startswith(WILDCARD):
                return Held("WildcardName", "addresses of a wildcard have no one name to point back to")
            return WAIT  # the zone has not heard yet that it should
        return reverse_state(origin, pointers, self.desk.books, named_in(cache))

    def _outcome(
        self,
        record: Record,
        zone: DNSZone,
        book: ZoneBook,
        source: str,
        also: list[str],
        reverse: Held | None,
        known: RecordStatus,
        now: float,
    ) -> RecordStatus:
        generation = record.metadata.generation
        outcome = book.draft.outcome(source)
        member = book.members.get(source)
        kept = without_conditions(known.conditions, *PASSING)
        extra = []
        published = False
        if book.problem is not None:
            reason, message = ("ZoneNotConfigured", f"zone {zone.name}: {book.problem[1]}")
            ready = condition("Ready", False, reason, message, generation=generation)
        elif outcome is not None and outcome.held is not None:
            ready = condition("Ready", False, outcome.held.reason, outcome.held.message, generation=generation)
        elif outcome is not None and (refused := book.refusal_text(outcome.keys)):
            ready = condition("Ready", False, book.refusal_reason(outcome.keys), refused, generation=generation)
        elif source in book.pending:
            errors = "; ".join(sorted({copy.error for copy in book.copies.values() if copy.error}))
            ready = condition("Ready", False, "ReconcileFailed", errors or "not published yet", generation=generation)
        else:
            published = True
            ready = condition("Ready", True, "ReconcileSucceeded", "", generation=generation)
        if reverse is not None:
            extra.append(condition("PTR", reverse is FINE, reverse.reason, reverse.message, generation=generation))
            if published and reverse is not FINE:  # not all that was asked for is there
                ready = condition("Ready", False, reverse.reason, f"PTR: {reverse.message}", generation=generation)
        if outcome is not None and outcome.ttl is not None and published:
            text = f"{outcome.ttl} s is served: records of one name and type have one TTL, the lowest"
            extra.append(condition("TTLMismatch", True, "TTLMismatch", text, generation=generation))
        if also:
            text = f"zones {', '.join(also)} select it too; {zone.name} is the oldest"
            extra.append(condition("Conflict", True, "SelectedByMultipleZones", text, generation=generation))
        conditions = with_conditions(kept, ready, *_since(known, extra), now=now)
        digest = hashlib.sha256(msgspec.json.encode(record.spec)).hexdigest()
        key = outcome.keys[0] if outcome is not None and outcome.keys else None
        name = "" if key is None else short_text(key[0], book.draft.zone)
        serial = 0 if member is None else member.serial
        status = RecordStatus(
            conditions=conditions,
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
            endpoints=self._endpoints(book, serial, published=published) or None,
        )
        changed = (status.record_hash, status.published_name) != (known.record_hash, known.published_name)
        status.last_updated = format_time(now) if changed and published else known.last_updated
        return status

    def _endpoints(self, book: ZoneBook, serial: int, *, published: bool) -> list[EndpointState]:
        rows = []
        for place, copy in sorted(book.copies.items()):
            namespace, instance, pod, *_ = f"{place}////".split("/")
            state = "Failed" if copy.error else ("Published" if published else "Pending")
            rows.append(EndpointState(instance=f"{namespace}/{instance}", pod=pod, serial=serial, state=state))
        return rows


def _unasked(zone: DNSZone, book: ZoneBook) -> bool:
    """Whether servers may have what an earlier process gave them: this one has not written to any of them yet."""
    published = zone.status is not None and bool(zone.status.serial)
    return not book.outcome_ready or (published and not book.began and book.problem is None)


def _also(record: Record, zones: list[DNSZone]) -> list[str]:
    from steersman.operators.dns.selection import selects

    return sorted(zone.name for zone in zones if selects(zone, record))


def _since(known: RecordStatus, fresh: list[Any]) -> list[Any]:
    """Conditions that come and go keep their time while they stay."""
    before = {row.type: row for row in known.conditions or ()}
    return [
        msgspec.structs.replace(row, last_transition_time=before[row.type].last_transition_time)
        if row.type in before and before[row.type].status == row.status
        else row
        for row in fresh
    ]


def _addresses(record: Any) -> str:
    if isinstance(record, ARecord):
        return ",".join(
            [*(record.spec.ipv4_addresses or ()), *([record.spec.ipv4_address] if record.spec.ipv4_address else ())]
        )
    if isinstance(record, AAAARecord):
        return ",".join(
            [*(record.spec.ipv6_addresses or ()), *([record.spec.ipv6_address] if record.spec.ipv6_address else ())]
        )
    return ""


def _is_news(before: Any, after: Any) -> bool:
    """Whether somebody should hear of what became of a record: it is published or no longer, or it is refused."""
    if after is None or (before is not None and before.status != after.status):
        return after is not None
    refused = after.status != "True" and after.reason not in UNDECIDED
    return refused and (before is None or before.reason != after.reason)


def _ready_of(status: RecordStatus | None) -> Any:
    return next((row for row in (status.conditions if status else None) or () if row.type == "Ready"), None)
