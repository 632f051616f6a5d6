"""The status step of a zone's pass: what the status says, and whether it can wait. Pure.

Equal facts give an equal status, so nothing is written twice. Answers to DNS queries come first: when five hundred
zones change together they are served before the first of them writes a status that only confirms the last one. What a
user or another controller waits for is never deferred: a first serial, a problem and its end, and one-time reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.kube.api.times import format_time
from steersman.operators.dns.api.config import DRIFT, GROUP, VERSION, DriftPolicy
from steersman.operators.dns.api.records import RECORD_KINDS
from steersman.operators.dns.api.servers import Bind9Instance
from steersman.operators.dns.api.zone import DnssecStatus, InstanceState, RecordConflict, RecordEntry, ZoneStatus
from steersman.operators.dns.bind.servers import Server
from steersman.operators.dns.publish.copy_inspector import PublishReport
from steersman.operators.dns.publish.ownership import is_adopted, names_in
from steersman.operators.dns.zone.conflicts import ZONE
from steersman.operators.dns.zone.names import short_text, text_of
from steersman.operators.dns.zone.ptr import is_reverse
from steersman.operators.dns.zone.rdata import type_name
from steersman.runtime.reconcile.conditions import (
    Condition,
    find_condition,
    new_condition,
    set_conditions,
    without_conditions,
)
from steersman.text import some_of

if TYPE_CHECKING:
    from steersman.operators.dns.api.zone import DNSZone
    from steersman.operators.dns.publish.zone_state import ServerCopy, ZoneState

LISTED: Final = 100  # records and conflicts in a status
DEFERRAL: Final = 0.1  # seconds until a deferred status is considered again
LONGEST_DEFERRAL: Final = 1.0  # seconds that a status waits for zones that are being published
API: Final = f"{GROUP}/{VERSION}"

# Reasons with which a zone is not selected again, so that its rows of instances stay.
KEPT_ROWS: Final = frozenset({"NoNameServer", "InvalidSOA", "InvalidName", "InvalidSelector", "ZoneOverlap"})
_KINDS: Final = {kind.KIND.kind.lower(): kind.KIND.kind for kind in RECORD_KINDS}


class Summary(msgspec.Struct):
    """What one pass over a zone came to."""

    instances: tuple[Bind9Instance, ...] = ()
    methods: tuple[str, ...] = ()  # fields that selected them
    servers: list[Server] = []  # empty unless the zone was published
    problems: dict[str, tuple[str, str]] = {}  # instance -> reason, message
    report: PublishReport | None = None  # None: nothing was published
    changed: set[str] = set()  # records whose outcome may have changed
    reason: str = ""  # why the zone is not ready
    message: str = ""
    hint: str = ""  # message of a zone that is ready
    contested: tuple[str, ...] = ()  # younger zones that are refused because of this one
    leaving: list[tuple[InstanceState, str]] = []  # instances that still have the zone and should not, and why
    dnssec: Any = None

    @property
    def ready(self) -> bool:
        """Whether every server has the desired zone."""
        return not self.reason and not self.problems and self.report is not None and not self.report.errors


def next_dnssec(
    known: DnssecStatus | None, found: DnssecStatus, *, is_pending: bool
) -> tuple[DnssecStatus | None, bool]:
    """The DNSSEC status to write (None: it stays), and whether the parent needs other DS records.

    A server that has just started may serve the zone before it has its keys. That shows as not signed, and the DS
    records that the parent has are kept to be compared with the next keys.
    """
    before, now = set((known and known.ds_records) or ()), set(found.ds_records or ())
    if not before or before & now:
        return found, False
    if is_pending:
        return None, False
    if known is not None and not now:
        kept = {"ds_records": known.ds_records, "key_tag": known.key_tag, "algorithm": known.algorithm}
        return msgspec.structs.replace(found, **kept), False
    return found, True


def status_of(zone: DNSZone, state: ZoneState, summary: Summary, *, now: float) -> ZoneStatus:
    """The whole status."""
    known = zone.status or ZoneStatus()
    generation = zone.metadata.generation
    conflicts = _conflicts(state)
    conditions = [_ready(summary, generation), _degraded(summary, generation)]
    merged = set_conditions(known.conditions, *conditions, now=now)
    if conflicts:
        names = ", ".join(dict.fromkeys(row.name for row in conflicts))
        merged = set_conditions(
            merged,
            new_condition(
                "Conflict",
                True,
                "HeldBack",
                f"not published: {names}; status.conflicts says why",
                generation=generation,
            ),
            now=now,
        )
    else:
        merged = without_conditions(merged, "Conflict")
    further = {
        "Contested": _contested(summary, generation),
        "Drift": _drift(state, known, summary, generation),
        "Ignored": _ignored(zone, generation),
    }
    for kind, found in further.items():
        merged = set_conditions(merged, found, now=now) if found else without_conditions(merged, kind)
    count = len(state.members)
    status = ZoneStatus(
        conditions=merged,
        observed_generation=generation,
        serial=summary.report.serial if summary.report is not None and summary.report.serial else known.serial,
        records_count=count,
        record_count=count,
        records=_records(state, zone) if count <= LISTED else None,
        bind9_instances=_instances(zone, state, summary),
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


def _conflicts(state: ZoneState) -> list[RecordConflict]:
    """What is not published: held back by the compiler, refused by servers, or invalid."""
    desired = state.desired
    rows = [(key, why.reason, why.message, [source]) for key, source, why in desired.problems()[:LISTED]]
    rows += [
        (key, state.refusal_reason([key]), state.refusal_text([key]), desired.sources_of(key))
        for key in sorted(state.refusals())[:LISTED]
    ]
    found = [
        RecordConflict(
            name=short_text(key[0], desired.zone),
            type=type_name(key[1]),
            reason=reason,
            message=message,
            records=[source for source in sources if source != ZONE] or None,
        )
        for key, reason, message, sources in rows
    ]
    return found + [
        RecordConflict(name=source, reason=why.reason, message=why.message, records=[source])
        for source, why in sorted(desired.invalid.items())[:LISTED]
    ]


def _ready(summary: Summary, generation: int) -> Condition:
    if summary.reason:
        return new_condition("Ready", False, summary.reason, summary.message, generation=generation)
    report = summary.report
    if summary.problems:
        reason, message = next(iter(summary.problems.values()))
        return new_condition("Ready", False, reason, message, generation=generation)
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
        return new_condition("Ready", False, reason, text, generation=generation)
    return new_condition("Ready", True, "ReconcileSucceeded", summary.hint, generation=generation)


def _degraded(summary: Summary, generation: int) -> Condition:
    report = summary.report
    if summary.leaving:
        text = "; ".join(f"{row.name} still has the zone: {why}" for row, why in summary.leaving)
        return new_condition("Degraded", True, "NotRemoved", text, generation=generation)
    if report is not None and report.errors:
        text = ", ".join(sorted(report.errors))
        return new_condition("Degraded", True, "PartialReconciliation", text, generation=generation)
    if report is not None and report.behind and not summary.reason:
        text = f"behind serial {report.serial}: {', '.join(sorted(report.behind))}"
        return new_condition("Degraded", True, "SerialBehind", text, generation=generation)
    return new_condition("Degraded", False, "ReconcileSucceeded", "", generation=generation)


def _drift(state: ZoneState, known: ZoneStatus, summary: Summary, generation: int) -> Condition | None:
    """What differs on servers and is not repaired, because of the drift mode."""
    if summary.report is None:  # no server was contacted: what was known still holds
        return find_condition(known.conditions, "Drift")
    titles = {server.id: server.title for server in summary.servers}
    rows = {
        titles[server]: names_in(copy.drift, state.desired.zone)
        for server, copy in state.copies.items()
        if copy.drift and server in titles
    }
    if not rows:
        return None
    text = "; ".join(f"{server} differs from the zone at {some_of(rows[server], 5)}" for server in sorted(rows))
    return new_condition("Drift", True, "NotRepaired", text, generation=generation)


def _contested(summary: Summary, generation: int) -> Condition | None:
    """Younger zones that claim names of this one, which is served."""
    if not summary.contested:
        return None
    return new_condition("Contested", True, "OthersRefused", "; ".join(summary.contested[:5]), generation=generation)


def _ignored(zone: DNSZone, generation: int) -> Condition | None:
    """A setting that has no effect."""
    mode = zone.annotations.get(DRIFT, "").strip()
    if not mode or mode.lower() in tuple(DriftPolicy):
        return None
    known = ", ".join(DriftPolicy)
    text = f'annotation {DRIFT}: unknown mode "{mode}" (known: {known}); dns.drift of the operator applies'
    return new_condition("Ignored", True, "NoEffect", text, generation=generation)


def _records(state: ZoneState, zone: DNSZone) -> list[RecordEntry]:
    entries = []
    for source in sorted(state.members):
        kind, _, name = source.partition("/")
        parts = state.desired.contributions.get(source) or ()
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


def _instances(zone: DNSZone, state: ZoneState, summary: Summary) -> list[InstanceState] | None:
    rows = []
    before = {(row.namespace, row.name): row for row in (zone.status.bind9_instances if zone.status else None) or ()}
    for instance in summary.instances:
        servers = [server for server in summary.servers if server.instance == instance.ref]
        copies = [state.copies.get(server.id) for server in servers]
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
                or (
                    bool(copies) and all(copy is not None and _is_managed(copy, instance.spec.role) for copy in copies)
                ),
            )
        )
    if summary.report is None:  # no server was contacted: what was known of them still holds
        rows = [before.get((row.namespace, row.name), row) if row.status == "Claimed" else row for row in rows]
        if summary.reason == "DuplicateZone":
            listed = {(row.namespace, row.name) for row in rows}
            left = (row for ref, row in before.items() if ref not in listed and row.status == "Unclaimed")
            return [*rows, *left] or None
        if not summary.instances and summary.reason in KEPT_ROWS:
            rows = list(before.values())
    for row, why in summary.leaving:
        rows.append(msgspec.structs.replace(row, status="Unclaimed", message=why))
    return rows or None


def _is_managed(copy: ServerCopy, role: str) -> bool:
    return copy.managed if role == "primary" else copy.known and bool(copy.serial)


# -- when the status is written ----------------------------------------------------------------------------------------


def defer_status(zone: DNSZone, state: ZoneState, summary: Summary, *, busy: bool, now: float) -> bool:
    """Whether the status of this pass is written later; `busy` while other zones are being published."""
    if not (busy and summary.ready and _is_confirmation(zone, state, summary)):
        return False
    if state.status_deferred_since is None and not (summary.report and summary.report.written):
        return False  # nothing was published, so the status hardly differs
    since = now if state.status_deferred_since is None else state.status_deferred_since[0]
    state.status_deferred_since = (since, zone.metadata.resource_version)
    return now - since < LONGEST_DEFERRAL


def is_status_deferred(zone: DNSZone, state: ZoneState, *, busy: bool, now: float) -> bool:
    """Whether a pass would have nothing to do but to write a deferred status, too early."""
    if state.status_deferred_since is None or not busy or not state.loader.is_current:
        return False
    since, resource_version = state.status_deferred_since
    return resource_version == zone.metadata.resource_version and now - since < LONGEST_DEFERRAL


def _is_confirmation(zone: DNSZone, state: ZoneState, summary: Summary) -> bool:
    """Whether a status only confirms the last one: the zone was ready, and is."""
    report, status = summary.report, zone.status
    if report is None or status is None or not status.serial:
        return False
    if report.drift or report.adopted or report.foreign or report.behind or summary.leaving:
        return False
    if zone.spec.catalog or zone.spec.dnssec_policy or is_reverse(state.desired.zone):
        return False  # other controllers wait for these
    ready = find_condition(status.conditions, "Ready")
    return ready is not None and ready.status == "True"
