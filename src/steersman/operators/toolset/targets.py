"""Which ConfigMaps are kept, and by which settings: that of the configuration file, and those of ToolsetConfigs. Pure.

A ToolsetConfig keeps a ConfigMap of its own namespace. It takes the file's place when both name the same one; of two
ToolsetConfigs the older wins. Whoever may write one must not reach further by it than they could themselves: it writes
to another namespace, and sees Services of another namespace, only when its own is trusted by the configuration. The
namespace of the file's own ConfigMap is: who lives there has all of it before their eyes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from steersman.errors import FormatError, SteersmanError
from steersman.kube.durations import parse_duration
from steersman.kube.resources import ObjectRef
from steersman.operators.toolset.objects import ToolsetConfig
from steersman.operators.toolset.types import Settings, TypeConfig, target_name_errors

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Claim", "Targets", "claimed_by", "find_targets"]


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What a ToolsetConfig asks for, and why it does not get it."""

    config: ToolsetConfig
    target: ObjectRef
    refusal: str = ""
    reason: str = ""


class Targets(msgspec.Struct, frozen=True, kw_only=True):
    """All that is kept."""

    settings: Mapping[ObjectRef, Settings] = {}  # by ConfigMap
    claims: tuple[Claim, ...] = ()

    def claims_on(self, target: ObjectRef) -> tuple[Claim, ...]:
        """The ToolsetConfigs that name a ConfigMap."""
        return tuple(claim for claim in self.claims if claim.target == target)


def claimed_by(config: ToolsetConfig, default_name: str) -> ObjectRef:
    """The ConfigMap that a ToolsetConfig names."""
    wanted = config.spec.config_map
    name = (wanted.name if wanted else "") or default_name or config.name
    return ObjectRef(name, (wanted.namespace if wanted else "") or config.namespace)


def find_targets(file: Settings, configs: Iterable[ToolsetConfig]) -> Targets:
    """What the file and the ToolsetConfigs ask for."""
    settings: dict[ObjectRef, Settings] = {}
    claims: list[Claim] = []
    ordered = sorted(configs, key=lambda one: (one.metadata.creation_timestamp or "", one.namespace, one.name))
    for config in ordered:
        target = claimed_by(config, file.name)
        refusal, reason = "", ""
        if target.namespace != config.namespace and not file.trusts(config.namespace):
            reason = "UntrustedNamespace"
            refusal = f"it may not name a ConfigMap of namespace {target.namespace}: its own is not trusted"
        elif target in settings:
            reason, refusal = "AlreadyKept", f"an older ToolsetConfig keeps {target}"
        else:
            try:
                settings[target] = _overlaid(file, config, target)
            except FormatError as error:
                reason, refusal = "InvalidSpec", str(error)
            except _OutOfBounds as error:
                reason, refusal = "UntrustedNamespace", str(error)
        claims.append(Claim(config=config, target=target, refusal=refusal, reason=reason))
    if file.name:
        settings.setdefault(ObjectRef(file.name, file.namespace), file)
    return Targets(settings=settings, claims=tuple(claims))


class _OutOfBounds(SteersmanError):  # noqa: N818  what it asks for
    """A ToolsetConfig asks for more than its namespace may see."""


def _namespaces(file: Settings, config: ToolsetConfig) -> frozenset[str] | None:
    """Where a ToolsetConfig may look for Services, of what it asks for; None: everywhere."""
    asked = frozenset(config.spec.namespaces or ()) - {"*"}
    everywhere = not asked or "*" in (config.spec.namespaces or ())
    if not file.trusts(config.namespace) and (not file.name or config.namespace != file.namespace):
        if beyond := sorted(asked - {config.namespace}):
            raise _OutOfBounds(f"it may not look into namespace {', '.join(beyond)}: its own is not trusted")
        asked, everywhere = frozenset({config.namespace}), False
    if everywhere:
        return file.namespaces
    return asked if file.namespaces is None else asked & file.namespaces


def _overlaid(file: Settings, config: ToolsetConfig, target: ObjectRef) -> Settings:
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
