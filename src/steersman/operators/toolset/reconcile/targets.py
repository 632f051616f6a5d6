"""Which ConfigMaps are written, with which settings: that of the configuration file, and those of ToolsetConfigs. Pure.

A ToolsetConfig configures a ConfigMap in its own namespace. It replaces the file's settings when both name the same
ConfigMap; of two ToolsetConfigs the older wins. A ToolsetConfig must not extend the rights of its author: it writes to
another namespace, and includes Services of another namespace, only when the configuration trusts its own. In the
namespace of the file's ConfigMap Services of all namespaces are allowed: its users can read that ConfigMap anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from steersman.errors import FormatError, SteersmanError
from steersman.kube.api.durations import parse_duration
from steersman.kube.api.gvk import NamespacedName
from steersman.operators.toolset.api.config import TargetSettings, TypeConfig, target_name_errors
from steersman.operators.toolset.api.crd import ToolsetConfig

if TYPE_CHECKING:
    from collections.abc import Iterable


class TargetClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The ConfigMap that a ToolsetConfig names, and why it is refused."""

    config: ToolsetConfig
    target: NamespacedName
    refusal: str = ""
    reason: str = ""


class Targets(msgspec.Struct, frozen=True, kw_only=True):
    """All targets."""

    settings: Mapping[NamespacedName, TargetSettings] = {}  # by ConfigMap
    claims: tuple[TargetClaim, ...] = ()

    def refusing(self, target: NamespacedName, reason: str, refusal: str) -> Targets:
        """The same without this ConfigMap."""
        claims = [
            replace(claim, reason=reason, refusal=refusal) if claim.target == target and not claim.refusal else claim
            for claim in self.claims
        ]
        return replace(self, claims=tuple(claims))

    def claims_on(self, target: NamespacedName) -> tuple[TargetClaim, ...]:
        """The ToolsetConfigs that name a ConfigMap."""
        return tuple(claim for claim in self.claims if claim.target == target)


def claimed_by(config: ToolsetConfig, default_name: str) -> NamespacedName:
    """The ConfigMap that a ToolsetConfig names."""
    wanted = config.spec.config_map
    name = (wanted.name if wanted else "") or default_name or config.name
    return NamespacedName(name, (wanted.namespace if wanted else "") or config.namespace)


def find_targets(file: TargetSettings, configs: Iterable[ToolsetConfig]) -> Targets:
    """The targets of the file and the ToolsetConfigs."""
    settings: dict[NamespacedName, TargetSettings] = {}
    claims: list[TargetClaim] = []
    ordered = sorted(
        configs, key=lambda config: (config.metadata.creation_timestamp or "", config.namespace, config.name)
    )
    for config in ordered:
        target = claimed_by(config, file.name)
        refusal, reason = "", ""
        if target.namespace != config.namespace and not file.trusts(config.namespace):
            reason = "UntrustedNamespace"
            refusal = (
                f"spec.configMap.namespace: {target.namespace} is another namespace, "
                f"and {config.namespace} is not in toolset.trustedNamespaces"
            )
        elif target in settings:
            reason, refusal = "AlreadyKept", f"spec.configMap: an older ToolsetConfig names {target} already"
        else:
            try:
                settings[target] = _overlaid(file, config, target)
            except FormatError as error:
                reason, refusal = "InvalidSpec", str(error)
            except _OutOfBounds as error:
                reason, refusal = "UntrustedNamespace", str(error)
        claims.append(TargetClaim(config=config, target=target, refusal=refusal, reason=reason))
    if file.name:
        settings.setdefault(NamespacedName(file.name, file.namespace), file)
    return Targets(settings=settings, claims=tuple(claims))


class _OutOfBounds(SteersmanError):  # noqa: N818  says what happened
    """A ToolsetConfig names namespaces that its own may not see."""


def _namespaces(file: TargetSettings, config: ToolsetConfig) -> frozenset[str] | None:
    """The namespaces of a ToolsetConfig in which Services are discovered; None: all."""
    namespaces = frozenset(config.spec.namespaces or ()) - {"*"}
    everywhere = not namespaces or "*" in (config.spec.namespaces or ())
    if not file.trusts(config.namespace) and (not file.name or config.namespace != file.namespace):
        if beyond := sorted(namespaces - {config.namespace}):
            names = ", ".join(beyond)
            why = f"{config.namespace} is not in toolset.trustedNamespaces"
            raise _OutOfBounds(f"spec.namespaces: {names} not allowed, because {why}")
        namespaces, everywhere = frozenset({config.namespace}), False
    if everywhere:
        return file.namespaces
    return namespaces if file.namespaces is None else namespaces & file.namespaces


def _overlaid(file: TargetSettings, config: ToolsetConfig, target: NamespacedName) -> TargetSettings:
    spec = config.spec
    if complaints := target_name_errors(target.name):
        raise FormatError(f"spec.configMap.name: {complaints[0]}")
    made = replace(file, name=target.name, namespace=target.namespace, namespaces=_namespaces(file, config))
    if spec.discovery_interval:
        made = replace(made, discovery_interval=_seconds(spec.discovery_interval, "discoveryInterval", 60.0, 3600.0))
    if spec.health_check is not None:
        health = replace(
            made.health,
            enabled=spec.health_check.enabled,
            timeout=_seconds(spec.health_check.timeout, "healthCheck.timeout", 0.1, 60.0),
        )
        made = replace(made, health=health)
    if spec.service_types is not None:
        types = dict(made.types)
        for name, row in spec.service_types.items():
            known = types.get(name, TypeConfig())
            wanted = ",".join(f"{key}={value}" for key, value in sorted((row.labels or {}).items()))
            types[name] = replace(
                known,
                enabled=row.enabled and known.enabled,
                labels=",".join(filter(None, [known.labels, wanted])),
                annotations={**known.annotations, **(row.annotations or {})},
            )
        made = replace(made, types=types)
    if spec.config_map is not None:
        made = replace(made, preserve_overrides=spec.config_map.preserve_overrides)
    return made


def _seconds(text: str, field: str, least: float, most: float) -> float:
    try:
        seconds = parse_duration(text).total_seconds()
    except FormatError as error:
        raise FormatError(f"spec.{field}: {error}") from None
    if not least <= seconds <= most:
        raise FormatError(f"spec.{field}: must be between {least:g}s and {most:g}s")
    return seconds
