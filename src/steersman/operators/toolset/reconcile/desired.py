"""From the current state to the desired one: which Services are included, and what the ConfigMaps should hold. Pure.

    CurrentState ─► discover ─► DiscoveryResult ─► render ─► DesiredState
                    match, include                 model ─► entries ─► overrides ─► layout

The reconciler, `steersman toolset render`, `diff`, `explain`, the API and the page all show these two values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from steersman.kube.api.gvk import NamespacedName
from steersman.operators.toolset.api.config import INDEX_KEY
from steersman.operators.toolset.discovery.health import HealthRecord, HealthState, Inclusion, decide_inclusion
from steersman.operators.toolset.discovery.matching import Candidate, Match, detect
from steersman.operators.toolset.reconcile.current import CurrentState, ToolsetProblem, mentions_url, record_services
from steersman.operators.toolset.render.holmes import HolmesProfile, entries_of
from steersman.operators.toolset.render.layout import Layout, lay_out, size_of
from steersman.operators.toolset.render.model import Model, build_model
from steersman.operators.toolset.render.overrides import Merged, Overrides, merge_overrides, read_overrides

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.operators.toolset.api.config import TargetSettings


class DiscoveredService(msgspec.Struct, frozen=True, kw_only=True):
    """A Service that matched a type, with its health."""

    candidate: Candidate
    inclusion: Inclusion
    health: HealthRecord | None = None


class DiscoveryResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the Services are."""

    matches: Mapping[NamespacedName, Match] = {}  # every Service, also those that are not a tool
    services: tuple[DiscoveredService, ...] = ()  # all candidates, best first

    @property
    def included(self) -> tuple[DiscoveredService, ...]:
        """The candidates that are rendered."""
        return tuple(service for service in self.services if service.inclusion.included)

    @property
    def is_settled(self) -> bool:
        """Whether every candidate is healthy, or not to be probed."""
        return all(service.inclusion.state in (HealthState.HEALTHY, HealthState.UNCHECKED) for service in self.services)


class DesiredState(msgspec.Struct, frozen=True, kw_only=True):
    """What the ConfigMaps of a target should hold."""

    discovery: DiscoveryResult
    model: Model
    overrides: Overrides
    override_error: str = ""
    merged: Merged
    layout: Layout
    known_services: str | None = None  # the record of included Services for the backup
    problems: tuple[ToolsetProblem, ...] = ()

    @property
    def is_oversized(self) -> bool:
        """Whether the base itself is too large."""
        return INDEX_KEY in self.layout.skipped


def match_services(
    current: CurrentState,
    settings: TargetSettings,
    known: Mapping[str, tuple[str, TargetSettings, Match]] | None = None,
) -> dict[NamespacedName, Match]:
    """Match every Service; `known` holds earlier matches by uid, each for a resourceVersion and settings."""
    matches = {}
    for service in current.services:
        version, matched_with, match = (known or {}).get(service.metadata.uid, ("", None, None))
        if match is None or version != service.metadata.resource_version or matched_with != settings:
            try:
                match = detect(service, settings)
            except Exception as error:  # noqa: BLE001  a Service that breaks a detector must not stop the others
                message = f"the detector failed: {type(error).__name__}"
                match = Match(reason="DetectorFailed", message=message, problems=(message,))
        matches[service.ref] = match
    return matches


def discover(
    matches: Mapping[NamespacedName, Match],
    settings: TargetSettings,
    *,
    current: CurrentState,
    health: Mapping[NamespacedName, HealthRecord] | None = None,
) -> DiscoveryResult:
    """Decide which candidates are included, by their health and by what is written already."""
    services, written = [], current.text
    for ref, match in matches.items():
        if (candidate := match.candidate) is not None:
            record = (health or {}).get(ref)
            incumbent = (record is not None and record.included) or mentions_url(written, candidate.url)
            inclusion = decide_inclusion(candidate, record, settings, incumbent=incumbent)
            services.append(DiscoveredService(candidate=candidate, inclusion=inclusion, health=record))
    services.sort(key=lambda service: service.candidate.rank)
    return DiscoveryResult(matches=matches, services=tuple(services))


def render(
    discovery: DiscoveryResult,
    settings: TargetSettings,
    *,
    current: CurrentState,
    overrides: tuple[Overrides, str] | None = None,
) -> DesiredState:
    """Render the included Services and lay the texts out; `overrides` saves parsing those of `current` again."""
    model = build_model((service.candidate for service in discovery.included), settings)
    profile = HolmesProfile(settings.profile)
    entries, not_loadable = entries_of(model, profile)
    parsed, error = overrides or read_overrides(current.overrides, current.backup.last_valid)
    merged = merge_overrides(entries, parsed, profile)
    layout = lay_out(
        model,
        merged.entries,
        settings.dialects,
        name=settings.name,
        limit=settings.max_bytes,
        most=settings.max_parts,
        others=size_of(current.foreign),
        places=current.places,
        avoid=current.taken_parts,
    )
    known_services = None
    if settings.namespaces is not None:
        included = {service.candidate.ref for service in discovery.included}
        services = (service for service in current.services if service.ref in included)
        known_services = record_services(services, settings)
    desired = DesiredState(
        discovery=discovery,
        model=model,
        overrides=parsed,
        override_error=error,
        merged=merged,
        layout=layout,
        known_services=known_services,
    )
    problems = [*_problems(desired), *current.problems]
    if "holmesgpt" in settings.dialects:
        problems += [ToolsetProblem("NotLoadable", "", text) for text in not_loadable]
    return msgspec.structs.replace(desired, problems=tuple(problems))


def desired_state(
    current: CurrentState, settings: TargetSettings, *, health: Mapping[NamespacedName, HealthRecord] | None = None
) -> DesiredState:
    """`match_services`, `discover` and `render` in one call."""
    discovery = discover(match_services(current, settings), settings, current=current, health=health)
    return render(discovery, settings, current=current)


def _problems(desired: DesiredState) -> Iterable[ToolsetProblem]:
    for ref, match in desired.discovery.matches.items():
        for message in match.problems:
            kind = match.candidate.type if match.candidate is not None else ""
            reason = match.reason if match.candidate is None else "CredentialsWithheld"
            yield ToolsetProblem(reason, kind, f"Service {ref.namespace}/{ref.name}: {message}")
    for service in desired.discovery.services:
        failing = service.inclusion.state in (
            HealthState.UNHEALTHY,
            HealthState.NOT_IDENTIFIED,
            HealthState.AUTH_REQUIRED,
        )
        result = service.health.result if service.health is not None else None
        if failing and result is not None and not service.inclusion.included:
            candidate = service.candidate
            reason = "".join(word.title() for word in result.outcome.value.split("_"))
            message = f"Service {candidate.namespace}/{candidate.service}: {service.inclusion.message}"
            yield ToolsetProblem(f"Service{reason}", candidate.type, message)
    if desired.override_error:
        yield ToolsetProblem("OverridesInvalid", "", f"overrides.yaml {desired.override_error}")
    for text in desired.overrides.warnings:
        yield ToolsetProblem("OverridesSecret", "", f"overrides.yaml: {text}")
    for text in desired.merged.unmappable:
        yield ToolsetProblem("UnmappableOverride", "", f"overrides.yaml: {text}")
    for key in desired.layout.skipped:
        what = "the toolsets that are always present and the keys of other owners" if key == INDEX_KEY else key
        yield ToolsetProblem("SizeLimit", "", f"{what}: larger than toolset.maxBytes; not written")
    for key in desired.layout.left_over:
        message = "all parts are full; raise toolset.maxParts and apply what `steersman rbac` then prints"
        yield ToolsetProblem("SizeLimit", "", f"{key}: {message}")
