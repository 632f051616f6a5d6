"""What a zone says about itself. Pure: equal facts give an equal status, so nothing is written twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.kube.times import format_time
from steersman.operators.dns.compiler import ZONE
from steersman.operators.dns.foreign import names_in
from steersman.operators.dns.names import short_text, some, text_of
from steersman.operators.dns.ownership import is_adopted
from steersman.operators.dns.publisher import Report
from steersman.operators.dns.recordkinds import RECORD_KINDS
from steersman.operators.dns.rrsets import type_name
from steersman.operators.dns.serverkinds import Bind9Instance
from steersman.operators.dns.servers import Server
from steersman.operators.dns.types import DRIFT, GROUP, VERSION, Drift
from steersman.operators.dns.zonekinds import Conflict, InstanceState, RecordEntry, ZoneStatus
from steersman.runtime.conditions import Condition, condition, find_condition, with_conditions, without_conditions

if TYPE_CHECKING:
    from steersman.operators.dns.book import Copy, ZoneBook
    from steersman.operators.dns.zonekinds import DNSZone

__all__ = ["Summary", "status_of"]

LISTED: Final = 100  # records and conflicts: a status is no database
API: Final = f"{GROUP}/{VERSION}"
_KINDS: Final = {kind.KIND.kind.lower(): kind.KIND.kind for kind in RECORD_KINDS}


class Summary(msgspec.Struct):
    """What one pass over a zone came to."""

    instances: tuple[Bind9Instance, ...] = ()
    methods: tuple[str, ...] = ()
    servers: list[Server] = []
    problems: dict[str, tuple[str, str]] = {}  # instance -> reason, message
    report: Report | None = None
    news: set[str] = set()  # records whose outcome may be another now
    reason: str = ""  # why nothing was published
    message: str = ""
    hint: str = ""  # what is said though all is well
    leaving: list[tuple[InstanceState, str]] = []  # instances that still have what they should not
    looked: bool = False
    dnssec: Any = None

    @property
    def ready(self) -> bool:
        """Whether every primary serves the zone as it should be."""
        return not self.reason and not self.problems and self.report is not None and not self.report.errors


def status_of(zone: DNSZone, book: ZoneBook, summary: Summary, *, now: float) -> ZoneStatus:
    """The whole status."""
    known = zone.status or ZoneStatus()
    generation = zone.metadata.generation
    held = list(book.draft.problems()[:LISTED])
    conflicts = [
        Conflict(
            name=short_text(key[0], book.draft.zone),
            type=type_name(key[1]),
            reason=why.reason,
            message=why.message,
            records=[source] if source != ZONE else None,
        )
        for key, source, why in held
    ]
    conflicts += [
        Conflict(
            name=short_text(key[0], book.draft.zone),
            type=type_name(key[1]),
            reason=book.refusal_reason([key]),
            message=book.refusal_text([key]),
            records=[source for source in book.draft.sources_of(key) if source != ZONE] or None,
        )
        for key in sorted(book.refusals())[:LISTED]
    ]
    conflicts += [
        Conflict(name=source, reason=why.reason, message=why.message, records=[source])
        for source, why in sorted(book.draft.invalid.items())[:LISTED]
    ]
    conditions = [_ready(summary, generation), _degraded(summary, generation)]
    merged = with_conditions(known.conditions, *conditions, now=now)
    if conflicts:
        names = ", ".join(dict.fromkeys(row.name for row in conflicts))
        merged = with_conditions(
            merged, condition("Conflict", True, "HeldBack", f"not published: {names}", generation=generation), now=now
        )
    else:
        merged = without_conditions(merged, "Conflict")
    for kind, found in (("Drift", _drift(book, known, summary, generation)), ("Ignored", _ignored(zone, generation))):
        merged = with_conditions(merged, found, now=now) if found else without_conditions(merged, kind)
    count = len(book.members)
    status = ZoneStatus(
        conditions=merged,
        observed_generation=generation,
        serial=summary.report.serial if summary.report is not None and summary.report.serial else known.serial,
        records_count=count,
        record_count=count,
        records=_records(book, zone) if count <= LISTED else None,
        bind9_instances=_instances(zone, book, summary),
        bind9_instances_count=len(summary.instances),
        selection_method=",".join(summary.methods),
        conflicts=conflicts or None,
        dnssec=summary.dnssec if summary.dnssec is not None else known.dnssec,
        last_drift_check=known.last_drift_check,
        drift_count=known.drift_count + (len(summary.report.drift) if summary.report is not None else 0),
    )
    if status.drift_count != known.drift_count:
        status.last_drift_check = format_time(now)
    return status


def _ready(summary: Summary, generation: int) -> Condition:
    if summary.reason:
        return condition("Ready", False, summary.reason, summary.message, generation=generation)
    report = summary.report
    if summary.problems:
        reason, message = next(iter(summary.problems.values()))
        return condition("Ready", False, reason, message, generation=generation)
    if report is not None and report.errors:
        failed = {server: why for server, (_, why) in report.errors.items()}
        reasons = {reason for reason, _ in report.errors.values()}
        total = sum(1 for server in summary.servers if server.role == "primary")
        primaries = sum(reason != "SecondaryFailed" for reason, _ in report.errors.values())
        if "ZoneFileAccess" in reasons:
            reason = "ZoneFileAccess"
        elif not primaries:
            reason = "SecondaryFailed"
        else:
            reason = "PrimaryFailed" if primaries >= total else "PartialReconciliation"
        text = "; ".join(f"{server}: {why}" for server, why in sorted(failed.items()))
        return condition("Ready", False, reason, text, generation=generation)
    return condition("Ready", True, "ReconcileSucceeded", summary.hint, generation=generation)


def _degraded(summary: Summary, generation: int) -> Condition:
    report = summary.report
    if summary.leaving:
        text = "; ".join(f"{row.name} still has the zone: {why}" for row, why in summary.leaving)
        return condition("Degraded", True, "NotRemoved", text, generation=generation)
    if report is not None and report.errors:
        text = ", ".join(sorted(report.errors))
        return condition("Degraded", True, "PartialReconciliation", text, generation=generation)
    if report is not None and report.behind and not summary.reason:
        text = f"{', '.join(sorted(report.behind))} have not reached serial {report.serial}"
        return condition("Degraded", True, "SerialBehind", text, generation=generation)
    return condition("Degraded", False, "ReconcileSucceeded", "", generation=generation)


def _drift(book: ZoneBook, known: ZoneStatus, summary: Summary, generation: int) -> Condition | None:
    """What is known to differ on servers and is left alone, as the zone says."""
    if summary.report is None:  # nobody was asked: what was known still holds
        return find_condition(known.conditions, "Drift")
    titles = {server.id: server.title for server in summary.servers}
    rows = {
        titles[place]: names_in(copy.drift, book.draft.zone)
        for place, copy in book.copies.items()
        if copy.drift and place in titles
    }
    if not rows:
        return None
    text = "; ".join(f"{server} does not have what it should have at {some(rows[server])}" for server in sorted(rows))
    return condition("Drift", True, "NotRepaired", text, generation=generation)


def _ignored(zone: DNSZone, generation: int) -> Condition | None:
    """What is asked for and comes to nothing."""
    word = zone.annotations.get(DRIFT, "").strip()
    if not word or word.lower() in tuple(Drift):
        return None
    text = f'{DRIFT}: "{word}" is none of {", ".join(Drift)}; the mode of the operator holds (dns.drift)'
    return condition("Ignored", True, "NoEffect", text, generation=generation)


def _records(book: ZoneBook, zone: DNSZone) -> list[RecordEntry]:
    entries = []
    for source in sorted(book.members):
        kind, _, name = source.partition("/")
        parts = book.draft.contributions.get(source) or ()
        entries.append(
            RecordEntry(
                api_version=API,
                kind=_KINDS[kind],
                name=name,
                namespace=zone.namespace,
                record_name=text_of(parts[0].key[0]) if parts else "",
            )
        )
    return entries


def _instances(zone: DNSZone, book: ZoneBook, summary: Summary) -> list[InstanceState] | None:
    rows = []
    before = {(row.namespace, row.name): row for row in (zone.status.bind9_instances if zone.status else None) or ()}
    for instance in summary.instances:
        servers = [server for server in summary.servers if server.instance == instance.ref]
        copies = [book.copies.get(server.id) for server in servers]
        errors = [copy.error for copy in copies if copy is not None and copy.error]
        problem = summary.problems.get(str(instance.ref))
        if problem is not None:
            errors.append(problem[1])
        serials = [copy.serial for copy in copies if copy is not None and not copy.error]
        settled = bool(servers) and not errors and all(serials) and len(serials) == len(servers)
        rows.append(
            InstanceState(
                api_version=API,
                kind="Bind9Instance",
                name=instance.name,
                namespace=instance.namespace,
                status="Failed" if errors else ("Configured" if settled else "Claimed"),
                message="; ".join(errors),
                role=instance.spec.role,
                serial=min(serials, default=0),
                adopted=is_adopted(before.get((instance.namespace, instance.name)))
                or (bool(copies) and all(copy is not None and _is_ours(copy, instance.spec.role) for copy in copies)),
            )
        )
    if summary.report is None:  # nothing was asked of anybody: what we knew of them still holds
        rows = [before.get((row.namespace, row.name), row) if row.status == "Claimed" else row for row in rows]
        if summary.reason == "DuplicateZone":
            here = {(row.namespace, row.name) for row in rows}
            return [*rows, *(r for at, r in before.items() if at not in here and r.status == "Unclaimed")] or None
        rows += [
            row
            for place, row in before.items()
            if place not in {(r.namespace, r.name) for r in rows}
            and not summary.instances
            and summary.reason in {"NoNameServer", "InvalidSOA", "InvalidName", "InvalidSelector"}
        ]
    for row, why in summary.leaving:
        rows.append(msgspec.structs.replace(row, status="Unclaimed", message=why))
    return rows or None


def _is_ours(copy: Copy, role: str) -> bool:
    return copy.ours if role == "primary" else copy.known and bool(copy.serial)
