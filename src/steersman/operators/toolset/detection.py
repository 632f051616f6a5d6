"""Which Services are tools, of which type, and where: one verdict per Service, with the reason. Pure.

    annotations ──► excludes ──► label (100) ▸ name (60) ▸ port (30)  ──► endpoint ──► Candidate | why not

A Service matches at most one type; what its author wrote on it comes first. `explain` shows the same verdict that the
reconciler uses. A match that is a guess says so (`Candidate.needs_identity`), and the gate after it asks the service.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.operators.toolset.annotations import Asked, read_annotations
from steersman.operators.toolset.detectors import EXCLUDED_COMPONENTS, EXCLUDED_SUFFIXES, Detector, selector_of
from steersman.operators.toolset.endpoints import (
    choose_port,
    forbidden_address,
    scheme_of,
    service_url,
    url_host,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.operators.toolset.objects import ServiceLook, ServicePort
    from steersman.operators.toolset.types import Settings

__all__ = ["Candidate", "Confidence", "Verdict", "detect", "distinct"]

_COMPONENT_LABELS: Final = ("app.kubernetes.io/component", "component")
_COMMON_PORTS: Final = frozenset({80, 443, 8080})  # say nothing about who listens there


class Confidence(IntEnum):
    """How sure a match is."""

    ANNOTATION = 200
    LABEL = 100
    NAME = 60
    PORT = 30


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A Service that is a tool, as far as can be told without asking it."""

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
    trusted: bool = False

    @property
    def needs_identity(self) -> bool:
        """Whether the match is a guess."""
        return self.confidence < Confidence.LABEL

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name of the Service."""
        return self.namespace, self.service

    @property
    def rank(self) -> tuple[object, ...]:
        """Best first: priority, confidence, age, name."""
        return -self.priority, -self.confidence, self.created, self.namespace, self.service


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a Service, and why."""

    candidate: Candidate | None = None
    reason: str  # one word
    message: str
    problems: tuple[str, ...] = ()  # worth telling its author


def detect(service: ServiceLook, settings: Settings) -> Verdict:
    """What a Service is."""
    if not settings.watches(service.namespace):
        return Verdict(reason="OutOfScope", message=f"namespace {service.namespace} is not looked at")
    if service.deleting:
        return Verdict(reason="Terminating", message="the Service is being deleted")
    asked = read_annotations(service.annotations, settings.prefix)
    if asked.opted_out:
        return Verdict(reason="OptedOut", message="its annotation says so")
    if asked.problems:
        return Verdict(reason="InvalidAnnotation", message=asked.problems[0], problems=asked.problems)
    if asked.opted_in:
        detector = settings.detector(asked.type) or Detector(type=asked.type, priority=30)
        return _located(service, detector, Confidence.ANNOTATION, asked, settings)
    if service.spec.type == "ExternalName":
        return Verdict(reason="ExternalName", message="a Service without ports of its own needs annotations")
    matched = _matched(service, settings)
    if isinstance(matched, Verdict):
        return matched
    return _located(service, *matched, asked, settings)


def _matched(service: ServiceLook, settings: Settings) -> tuple[Detector, Confidence] | Verdict:
    """The best entry, and how sure it is."""
    best: tuple[Detector, Confidence] | None = None
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
            return Verdict(reason="Excluded", message=excluded)
        return Verdict(reason="NoMatch", message="no label, name or port of it is known")
    if not _enabled(service, best[0], settings):
        return Verdict(reason="Excluded", message=f"type {best[0].type} is switched off for it")
    if best[0].ignored:
        return Verdict(reason="Excluded", message=f"it is a {best[0].type}, which answers no queries")
    return best


def _confidence(service: ServiceLook, detector: Detector) -> Confidence | None:
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


def _enabled(service: ServiceLook, detector: Detector, settings: Settings) -> bool:
    row = settings.types.get(detector.type)
    if row is None:
        return True
    return (
        row.enabled
        and (not row.namespaces or service.namespace in row.namespaces)
        and selector_of(row.labels).matches(service.labels)
        and all(service.annotations.get(name) == value for name, value in row.annotations.items())
    )


def _companion(service: ServiceLook, detector: Detector) -> str | None:
    """The part of a system that a Service is, when it is not the one that answers queries."""
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
    service: ServiceLook, detector: Detector, confidence: Confidence, asked: Asked, settings: Settings
) -> Verdict:
    """The match with its address."""
    if confidence is Confidence.ANNOTATION and not _enabled(service, detector, settings):
        return Verdict(reason="Excluded", message=f"type {detector.type} is switched off for it")
    trusted = settings.trusts(service.namespace)
    port = _port(service, detector, asked)
    if asked.endpoint:
        if (refusal := _foreign(service, asked.endpoint, settings)) is not None:
            message = f"annotation {settings.prefix}toolset-endpoint: {refusal}"
            return Verdict(reason="UntrustedEndpoint", message=message, problems=(message,))
        url = asked.endpoint + asked.path.rstrip("/")
    elif port is None or service.spec.type == "ExternalName":
        return Verdict(reason="NoPort", message="it has no port to use")
    else:
        url = service_url(service, port.port, asked.scheme or scheme_of(port), asked.path or detector.path, settings)
    root = url.removesuffix(asked.path or detector.path)
    auth_env = (
        asked.auth_env or settings.credentials.get(detector.type) or settings.credentials.get(detector.renderer, "")
    )
    candidate = Candidate(
        type=detector.type,
        renderer=detector.renderer,
        name=asked.name or service.name,
        namespace=service.namespace,
        service=service.name,
        uid=service.metadata.uid,
        created=service.metadata.creation_timestamp or "",
        url=url,
        health_url=root + (asked.health_path or detector.health_path),
        identity_url=root + detector.identity_path if detector.identity_path else "",
        identity_fields=detector.identity_fields,
        confidence=confidence,
        priority=detector.priority if asked.priority is None else asked.priority,
        health_skipped=asked.health_skipped,
        auth_env=auth_env if trusted else "",
        verify_tls=asked.verify_tls,
        tenant=asked.tenant,
        capabilities=asked.capabilities,
        headless=service.headless,
        same_as=_same_as(service, detector, None if port is None or asked.endpoint else port.target_port or port.port),
        trusted=trusted,
    )
    problems: tuple[str, ...] = ()
    if auth_env and not trusted:
        problems = (f"namespace {service.namespace} is not trusted: the toolset is rendered without credentials",)
    return Verdict(
        candidate=candidate,
        reason="Matched",
        message=f"{detector.type} by {confidence.name.lower()}, at {url}",
        problems=problems if asked.auth_env else (),
    )


def _port(service: ServiceLook, detector: Detector, asked: Asked) -> ServicePort | None:
    if asked.port is None:
        return choose_port(service, detector.port_names, detector.ports)
    return next((one for one in service.spec.ports if asked.port in (one.port, one.name)), None)


def _foreign(service: ServiceLook, endpoint: str, settings: Settings) -> str | None:
    """Why a Service may not name this endpoint; None when it may."""
    host, port = url_host(endpoint)
    own = f"{service.name}.{service.namespace}"
    if host in (own, f"{own}.svc", f"{own}.svc.{settings.cluster_domain}"):
        return None
    allowed = settings.trusts(service.namespace) or not settings.allowed_endpoints.isdisjoint({host, f"{host}:{port}"})
    if (why := forbidden_address(host, loopback=allowed)) is not None:
        return f"{host} {why}"
    if allowed:
        return None
    return f"{host} is not this Service; name it in allowedEndpoints, or trust the namespace"


def _same_as(service: ServiceLook, detector: Detector, port: int | str | None) -> tuple[str, ...]:
    if port is None or not service.spec.selector:
        return ()
    pairs = sorted(service.spec.selector.items())
    return (detector.renderer, service.namespace, str(port), *(f"{name}={value}" for name, value in pairs))


def distinct(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Each tool once, best first: of several Services that lead to the same pods the one with an address stays.

    A headless Service also gives way to one of its type and namespace that has an address.
    """
    addressed = {(one.renderer, one.namespace) for one in candidates if not one.headless}
    seen: set[tuple[str, ...]] = set()
    chosen: list[Candidate] = []
    for one in sorted(candidates, key=lambda one: (one.headless, one.rank)):
        annotated = one.confidence is Confidence.ANNOTATION
        if one.headless and not annotated and (one.renderer, one.namespace) in addressed:
            continue
        if one.same_as and not annotated and one.same_as in seen:
            continue
        seen.add(one.same_as)
        chosen.append(one)
    return tuple(sorted(chosen, key=lambda one: one.rank))
