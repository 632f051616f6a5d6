"""What a target is known to be, for whoever wants to show it: the API, the page, a status. Immutable values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.kube.times import format_time
from steersman.operators.toolset.health import State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.operators.toolset.look import Look, Seen

__all__ = ["ServiceView", "TargetView", "ToolsetView", "services_of", "toolsets_of"]


class ServiceView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One candidate."""

    name: str
    namespace: str
    type: str
    endpoint: str
    state: str
    included: bool
    healthy: bool
    reason: str
    message: str
    last_check: str | None = None
    discovered_at: str | None = None


class ToolsetView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One toolset."""

    name: str
    type: str
    enabled: bool
    healthy: bool
    config: dict[str, Any]
    service_endpoint: str
    namespace: str = ""
    discovered_at: str | None = None
    last_health_check: str | None = None


class TargetView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One ConfigMap and what it is made of."""

    name: str
    namespace: str
    services: tuple[ServiceView, ...] = ()
    toolsets: tuple[ToolsetView, ...] = ()
    drift: tuple[str, ...] = ()  # found at the last look
    plan: tuple[dict[str, Any], ...] = ()  # what the last look wanted to do, object by object
    resource_version: str = ""
    last_discovery: str | None = None
    override_error: str = ""
    overrides: int = 0
    parts: int = 0
    phase: str = ""
    message: str = ""


def services_of(look: Look) -> tuple[ServiceView, ...]:
    """The candidates of a look."""
    return tuple(_service(one) for one in look.seen)


def _service(one: Seen) -> ServiceView:
    seen = one.observed
    return ServiceView(
        name=one.candidate.service,
        namespace=one.candidate.namespace,
        type=one.candidate.type,
        endpoint=one.candidate.url,
        state=one.admission.state.value,
        included=one.admission.included,
        healthy=one.admission.state is State.HEALTHY,
        reason=one.candidate.confidence.name.title(),
        message=one.admission.message,
        last_check=None if seen is None or seen.checked_at is None else format_time(seen.checked_at),
        discovered_at=None if seen is None else format_time(seen.found_at),
    )


def toolsets_of(look: Look) -> tuple[ToolsetView, ...]:
    """The toolsets of a look, the kubernetes one first."""
    by_service = {(one.candidate.namespace, one.candidate.service): _service(one) for one in look.seen}
    disabled = _disabled(look)
    made = [
        ToolsetView(
            name="kubernetes",
            type="kubernetes",
            enabled="kubernetes" not in disabled,
            healthy=True,
            config={"incluster": True, "namespaces": list(look.model.kubernetes_namespaces)},
            service_endpoint="",
        )
    ]
    for one in look.model.toolsets:
        service = by_service[one.namespace, one.service]
        made.append(
            ToolsetView(
                name=one.instance,
                type=one.type,
                enabled=one.type not in disabled,
                healthy=service.healthy,
                config={"url": one.url, **({"apiKey": "[redacted]"} if one.auth_env else {})},
                service_endpoint=one.url,
                namespace=one.namespace,
                discovered_at=service.discovered_at,
                last_health_check=service.last_check,
            )
        )
    return tuple(made)


def _disabled(look: Look) -> frozenset[str]:
    """Types that overrides switch off."""
    return frozenset(name for name, entry in look.overrides.toolsets.items() if entry is None or _off(entry))


def _off(entry: dict[str, Any]) -> bool:
    return entry.get("enabled") is False


def find(views: Iterable[ToolsetView], name: str) -> ToolsetView | None:
    """A toolset by its name, else the first of that type."""
    known = tuple(views)
    named = next((one for one in known if one.name == name), None)
    return named or next((one for one in known if one.type == name), None)
