"""Which Services are tools, of which type, and at which URL: one match per Service, with the reason. Pure.

    annotations ──► excludes ──► label (100) ▸ name (60) ▸ port (30)  ──► endpoint ──► Candidate | why not

A Service matches at most one type; its annotations come first. `steersman toolset explain` shows the same match that
the reconciler uses. A match that is a guess is marked (`Candidate.needs_identity`) and must be confirmed by a probe.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.kube.api.gvk import NamespacedName
from steersman.operators.toolset.api.annotations import ServiceAnnotations, read_annotations
from steersman.operators.toolset.discovery.detectors import (
    EXCLUDED_COMPONENTS,
    EXCLUDED_SUFFIXES,
    ServiceDetector,
    selector_of,
)
from steersman.operators.toolset.discovery.endpoints import (
    choose_port,
    forbidden_address,
    scheme_of,
    service_url,
    url_host,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.operators.toolset.api.config import TargetSettings
    from steersman.operators.toolset.api.crd import ServiceSummary, ServiceSummaryPort

_COMPONENT_LABELS: Final = ("app.kubernetes.io/component", "component")
_COMMON_PORTS: Final = frozenset({80, 443, 8080})  # say nothing about who listens there


class Confidence(IntEnum):
    """How sure a match is."""

    ANNOTATION = 200
    LABEL = 100
    NAME = 60
    PORT = 30


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A Service that is a tool, as far as the Service itself shows."""

    type: str
    renderer: str  # the type whose toolset is rendered
    name: str  # of the instance
    namespace: str
    service: str
    uid: str
    created: str
    url: str
    health_url: str
    identity_url: str = ""
    identity_fields: tuple[str, ...] = ()
    confidence: Confidence
    priority: int
    health_skipped: bool = False
    auth_env: str = ""
    verify_tls: bool | None = None
    tenant: str = ""
    capabilities: tuple[str, ...] = ()
    headless: bool = False
    same_as: tuple[str, ...] = ()  # Services with equal ones lead to the same pods
    may_be_local: bool = False  # its address may be this machine: the configuration allows it

    @property
    def needs_identity(self) -> bool:
        """Whether the match is a guess."""
        return self.confidence < Confidence.LABEL

    @property
    def ref(self) -> NamespacedName:
        """The Service."""
        return NamespacedName(self.service, self.namespace)

    @property
    def probed_urls(self) -> str:
        """What a probe requests: other URLs make earlier results worthless."""
        return f"{self.health_url} {self.identity_url if self.needs_identity else ''}"

    @property
    def rank(self) -> tuple[object, ...]:
        """Best first: priority, confidence, age, name."""
        return -self.priority, -self.confidence, self.created, self.namespace, self.service


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """What a Service matched, and why."""

    candidate: Candidate | None = None
    reason: str  # one word
    message: str
    problems: tuple[str, ...] = ()  # reported as Events


def detect(service: ServiceSummary, settings: TargetSettings) -> Match:
    """Match one Service."""
    if not settings.watches(service.namespace):
        return Match(reason="OutOfScope", message=f"namespace {service.namespace} is not watched by this target")
    if service.deleting:
        return Match(reason="Terminating", message="the Service is being deleted")
    wanted = read_annotations(service.annotations, settings.prefix)
    if wanted.opted_out:
        return Match(reason="OptedOut", message=f"annotation {settings.prefix}toolset is false")
    if wanted.problems:
        return Match(reason="InvalidAnnotation", message=wanted.problems[0], problems=wanted.problems)
    if wanted.opted_in:
        detector = settings.detector(wanted.type) or ServiceDetector(type=wanted.type, priority=30)
        return _located(service, detector, Confidence.ANNOTATION, wanted, settings)
    if service.spec.type == "ExternalName":
        return Match(reason="ExternalName", message="an ExternalName Service has no ports; use annotations")
    matched = _matched(service, settings)
    if isinstance(matched, Match):
        return matched
    return _located(service, *matched, wanted, settings)


def _matched(service: ServiceSummary, settings: TargetSettings) -> tuple[ServiceDetector, Confidence] | Match:
    """The best detector, and its confidence."""
    best: tuple[ServiceDetector, Confidence] | None = None
    excluded: str | None = None
    for detector in settings.detectors:
        confidence = _confidence(service, detector)
        if confidence is None or (best is not None and confidence <= best[1]):
            continue
        if (companion := _companion(service, detector)) is not None:
            excluded = excluded or f"it is the {companion} of a {detector.type}"
        else:
            best = detector, confidence
    if best is None:
        if excluded is not None:
            return Match(reason="Excluded", message=excluded)
        return Match(reason="NoMatch", message="no detector matches its labels, name or ports")
    if not _enabled(service, best[0], settings):
        return Match(reason="Excluded", message=f"type {best[0].type} is disabled for it")
    if best[0].ignored:
        return Match(reason="Excluded", message=f"it is a {best[0].type}, which does not answer queries")
    return best


def labels_read(settings: TargetSettings) -> frozenset[str]:
    """The labels of Services that decide a match under these settings."""
    selectors = [text for detector in settings.detectors for text in detector.labels]
    selectors += [row.labels for row in settings.types.values()]
    read = (requirement.key for text in selectors for requirement in selector_of(text).requirements)
    return frozenset((*_COMPONENT_LABELS, *read))


def _confidence(service: ServiceSummary, detector: ServiceDetector) -> Confidence | None:
    numbers = {port.port for port in service.spec.ports}
    if detector.port_required and not (
        numbers.intersection(detector.ports) or any(port.name in detector.port_names for port in service.spec.ports)
    ):
        return None
    if any(selector_of(text).matches(service.labels) for text in detector.labels):
        return Confidence.LABEL
    if any(part in service.name for part in detector.names):
        return Confidence.NAME
    if numbers.intersection(detector.ports) - _COMMON_PORTS:
        return Confidence.PORT
    return None


def _enabled(service: ServiceSummary, detector: ServiceDetector, settings: TargetSettings) -> bool:
    row = settings.types.get(detector.type)
    if row is None:
        return True
    return (
        row.enabled
        and (not row.namespaces or service.namespace in row.namespaces)
        and selector_of(row.labels).matches(service.labels)
        and all(service.annotations.get(name) == value for name, value in row.annotations.items())
    )


def _companion(service: ServiceSummary, detector: ServiceDetector) -> str | None:
    """The component that a Service is, when it is one that does not answer queries."""
    own = {*detector.names, detector.type}
    for label in _COMPONENT_LABELS:
        component = service.labels.get(label, "")
        if component in EXCLUDED_COMPONENTS and component not in own:
            return component
    for suffix in EXCLUDED_SUFFIXES:
        if suffix not in own and (service.name == suffix or service.name.endswith(f"-{suffix}")):
            return suffix
    return None


def _located(
    service: ServiceSummary,
    detector: ServiceDetector,
    confidence: Confidence,
    wanted: ServiceAnnotations,
    settings: TargetSettings,
) -> Match:
    """The match with its URL."""
    if confidence is Confidence.ANNOTATION and not _enabled(service, detector, settings):
        return Match(reason="Excluded", message=f"type {detector.type} is disabled for it")
    trusted = settings.trusts(service.namespace)
    port = _port(service, detector, wanted)
    if wanted.endpoint:
        if (refusal := _foreign(service, wanted.endpoint, settings)) is not None:
            message = f"annotation {settings.prefix}toolset-endpoint: {refusal}"
            return Match(reason="UntrustedEndpoint", message=message, problems=(message,))
        url = wanted.endpoint + wanted.path.rstrip("/")
    elif port is None or service.spec.type == "ExternalName":
        return Match(reason="NoPort", message="it has no TCP port")
    else:
        url = service_url(service, port.port, wanted.scheme or scheme_of(port), wanted.path or detector.path, settings)
    root = url.removesuffix(wanted.path or detector.path)
    auth_env = (
        wanted.auth_env or settings.credentials.get(detector.type) or settings.credentials.get(detector.renderer, "")
    )
    candidate = Candidate(
        type=detector.type,
        renderer=detector.renderer,
        name=wanted.name or service.name,
        namespace=service.namespace,
        service=service.name,
        uid=service.metadata.uid,
        created=service.metadata.creation_timestamp or "",
        url=url,
        health_url=root + (wanted.health_path or detector.health_path),
        identity_url=root + detector.identity_path if detector.identity_path else "",
        identity_fields=detector.identity_fields,
        confidence=confidence,
        priority=detector.priority if wanted.priority is None else wanted.priority,
        health_skipped=wanted.health_skipped,
        auth_env=auth_env if trusted else "",
        verify_tls=wanted.verify_tls,
        tenant=wanted.tenant,
        capabilities=wanted.capabilities,
        headless=service.headless,
        same_as=_same_as(service, detector, None if port is None or wanted.endpoint else port.target_port or port.port),
        may_be_local=trusted or _is_allowed(wanted.endpoint, settings),
    )
    problems: tuple[str, ...] = ()
    if auth_env and not trusted:
        problems = (f"namespace {service.namespace} is not trusted: the toolset is rendered without credentials",)
    return Match(
        candidate=candidate,
        reason="Matched",
        message=f"{detector.type} by {confidence.name.lower()}, at {url}",
        problems=problems if wanted.auth_env else (),
    )


def _port(service: ServiceSummary, detector: ServiceDetector, wanted: ServiceAnnotations) -> ServiceSummaryPort | None:
    if wanted.port is None:
        return choose_port(service, detector.port_names, detector.ports)
    return next((port for port in service.spec.ports if wanted.port in (port.port, port.name)), None)


def _foreign(service: ServiceSummary, endpoint: str, settings: TargetSettings) -> str | None:
    """Why a Service may not use this endpoint; None when it may."""
    host, _ = url_host(endpoint)
    own = f"{service.name}.{service.namespace}"
    if host in (own, f"{own}.svc", f"{own}.svc.{settings.cluster_domain}"):
        return None
    allowed = settings.trusts(service.namespace) or _is_allowed(endpoint, settings)
    if (why := forbidden_address(host, loopback=allowed)) is not None:
        return f"{host} {why}"
    if allowed:
        return None
    return f"{host} is not this Service; add it to toolset.allowedEndpoints, or trust the namespace"


def _is_allowed(endpoint: str | None, settings: TargetSettings) -> bool:
    """Whether the configuration names this endpoint."""
    if not endpoint:
        return False
    host, port = url_host(endpoint)
    return not settings.allowed_endpoints.isdisjoint({host, f"{host}:{port}"})


def _same_as(service: ServiceSummary, detector: ServiceDetector, port: int | str | None) -> tuple[str, ...]:
    if port is None or not service.spec.selector:
        return ()
    pairs = sorted(service.spec.selector.items())
    return (detector.renderer, service.namespace, str(port), *(f"{name}={value}" for name, value in pairs))


def deduplicate(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Each tool once, best first: of several Services that lead to the same pods the one with an address stays.

    A headless Service also gives way to one of its type and namespace that has an address.
    """
    addressed = {(candidate.renderer, candidate.namespace) for candidate in candidates if not candidate.headless}
    seen: set[tuple[str, ...]] = set()
    chosen: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda candidate: (candidate.headless, candidate.rank)):
        if candidate.confidence is not Confidence.ANNOTATION:
            if candidate.headless and (candidate.renderer, candidate.namespace) in addressed:
                continue
            if candidate.same_as and candidate.same_as in seen:
                continue
        seen.add(candidate.same_as)
        chosen.append(candidate)
    return tuple(sorted(chosen, key=lambda candidate: candidate.rank))
