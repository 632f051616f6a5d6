"""Health of candidates: the table of what probes and endpoints showed, and who is included by it.

Hysteresis: one success includes a Service. One timeout excludes none: it takes several failed probes in a row, or no
ready endpoint for a while. A Service that is in the ConfigMap already and has not been probed yet stays, because a new
process knows nothing. The probe controller and the reconciler share the table; neither calls the other.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from steersman.kube.api.gvk import NamespacedName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.operators.toolset.api.config import TargetSettings
    from steersman.operators.toolset.discovery.matching import Candidate


class ProbeOutcome(StrEnum):
    """How a probe ended; also a label of metrics."""

    OK = "healthy"
    AUTH_REQUIRED = "auth_required"
    STATUS = "bad_status"
    REDIRECTED = "redirected"
    TOO_LARGE = "too_large"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"  # by us: a forbidden address
    NOT_IDENTIFIED = "not_identified"


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a Service answered."""

    outcome: ProbeOutcome
    message: str = ""
    seconds: float = 0.0

    @property
    def reachable(self) -> bool:
        """Whether it answers, perhaps only with a request for credentials."""
        return self.outcome in (ProbeOutcome.OK, ProbeOutcome.AUTH_REQUIRED)


class ProbeKey(msgspec.Struct, frozen=True):
    """One Service, as one target probes it."""

    target: NamespacedName
    service: NamespacedName


class HealthRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one candidate."""

    probed_urls: str = ""  # other URLs make the result worthless
    result: ProbeResult | None = None
    failures: int = 0  # probes in a row
    checked_at: float | None = None  # wall clock
    found_at: float = 0.0  # wall clock
    empty_since: float | None = None  # monotonic: since when no endpoint is ready; None: some are, or it is unknown
    empty: bool = False  # no endpoint is ready for longer than allowed
    included: bool = False  # it was included in the last pass


class HealthState(StrEnum):
    """The health of a candidate."""

    HEALTHY = "Healthy"
    UNCHECKED = "Unchecked"  # probes are disabled
    UNKNOWN = "Unknown"  # not probed yet
    UNHEALTHY = "Unhealthy"
    AUTH_REQUIRED = "AuthRequired"
    NOT_IDENTIFIED = "NotIdentified"
    NO_ENDPOINTS = "NoEndpoints"


class Inclusion(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a candidate is included, and why."""

    included: bool
    state: HealthState
    message: str = ""


def decide_inclusion(
    candidate: Candidate, record: HealthRecord | None, settings: TargetSettings, *, incumbent: bool
) -> Inclusion:
    """Decide on one candidate; `incumbent`: it is included already."""
    record = record or HealthRecord()
    if record.empty:
        return Inclusion(included=False, state=HealthState.NO_ENDPOINTS, message="no endpoint is ready")
    if record.empty_since is not None:
        return Inclusion(included=incumbent, state=HealthState.NO_ENDPOINTS, message="no endpoint is ready right now")
    if not settings.health.enabled or candidate.health_skipped:
        if candidate.needs_identity and settings.strict:
            message = "matched by name or port only, and probes are disabled"
            return Inclusion(included=False, state=HealthState.NOT_IDENTIFIED, message=message)
        return Inclusion(included=True, state=HealthState.UNCHECKED, message="probes are disabled")
    if record.result is None:
        return Inclusion(included=incumbent, state=HealthState.UNKNOWN, message="not probed yet")
    result = record.result
    if result.outcome is ProbeOutcome.OK:
        return Inclusion(included=True, state=HealthState.HEALTHY)
    if result.outcome is ProbeOutcome.AUTH_REQUIRED:
        known = bool(candidate.auth_env)
        message = "requires credentials" + ("" if known else "; none are configured for its type and namespace")
        return Inclusion(included=known, state=HealthState.AUTH_REQUIRED, message=message)
    unidentified = result.outcome is ProbeOutcome.NOT_IDENTIFIED
    return Inclusion(
        included=incumbent and record.failures < settings.health.failures,
        state=HealthState.NOT_IDENTIFIED if unidentified else HealthState.UNHEALTHY,
        message=result.message,
    )


class HealthTable:
    """The candidates of every target and their health."""

    def __init__(self) -> None:
        self._records: dict[ProbeKey, HealthRecord] = {}
        self._targets: dict[NamespacedName, tuple[TargetSettings, dict[NamespacedName, Candidate]]] = {}

    def set_candidates(
        self, target: NamespacedName, settings: TargetSettings, candidates: Iterable[tuple[Candidate, bool]]
    ) -> list[ProbeKey]:
        """Replace the candidates of a target, each with whether it is included; returns those to probe first."""
        before, unprobed = self.candidates(target), []
        now: dict[NamespacedName, Candidate] = {}
        for candidate, included in candidates:
            now[candidate.ref] = candidate
            key = ProbeKey(target, candidate.ref)
            record = self._records.get(key)
            if record is not None and record.included != included:
                record = self._records[key] = replace(record, included=included)
            if record is None or (record.result is None and record.empty_since is None):
                unprobed.append(key)
        for ref in before.keys() - now.keys():
            self._records.pop(ProbeKey(target, ref), None)
        self._targets[target] = (settings, now)
        return unprobed

    def candidates(self, target: NamespacedName) -> Mapping[NamespacedName, Candidate]:
        """The candidates of a target, by Service."""
        return self._targets[target][1] if target in self._targets else {}

    def settings(self, target: NamespacedName) -> TargetSettings | None:
        """The settings that a target probes with."""
        return self._targets[target][0] if target in self._targets else None

    def targets(self) -> tuple[NamespacedName, ...]:
        """All targets with candidates."""
        return tuple(self._targets)

    def targets_of(self, service: NamespacedName) -> list[NamespacedName]:
        """The targets for which a Service is a candidate."""
        return [target for target, (_, candidates) in self._targets.items() if service in candidates]

    def get(self, key: ProbeKey) -> HealthRecord | None:
        """What is known of a candidate."""
        return self._records.get(key)

    def record_probe(self, key: ProbeKey, probed_urls: str, result: ProbeResult, *, now: float) -> HealthRecord:
        """Record the result of a probe."""
        before = self._record(key, probed_urls, now)
        failures = 0 if result.reachable else before.failures + 1
        return self._store(key, replace(before, result=result, failures=failures, checked_at=now))

    def record_endpoints(
        self, key: ProbeKey, probed_urls: str, ready: int | None, *, tick: float, now: float, limit: float
    ) -> HealthRecord:
        """Record how many endpoints are ready; None when there are no EndpointSlices."""
        before = self._record(key, probed_urls, now)
        if ready is None or ready > 0:
            return self._store(key, replace(before, empty_since=None, empty=False))
        since = tick if before.empty_since is None else before.empty_since
        record = replace(before, empty_since=since, empty=tick - since >= limit, result=None, failures=0)
        return self._store(key, record)

    def forget(self, target: NamespacedName) -> None:
        """Remove a target and its candidates."""
        for ref in self.candidates(target):
            self._records.pop(ProbeKey(target, ref), None)
        self._targets.pop(target, None)

    def _record(self, key: ProbeKey, probed_urls: str, now: float) -> HealthRecord:
        record = self._records.get(key)
        if record is None:
            return HealthRecord(probed_urls=probed_urls, found_at=now)
        same = record.probed_urls == probed_urls
        return record if same else HealthRecord(probed_urls=probed_urls, found_at=record.found_at)

    def _store(self, key: ProbeKey, record: HealthRecord) -> HealthRecord:
        self._records[key] = record
        return record
