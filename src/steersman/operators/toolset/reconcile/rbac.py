"""The RBAC rules that a configuration needs. Pure.

ConfigMaps are read and written by name: that of the configuration file and those of `configMaps`, which ToolsetConfigs
may name, each with its parts and its backup. `create` has a rule of its own: resourceNames never match a creation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from steersman.operators.toolset.api.config import BACKUP_SUFFIX, ToolsetSection
from steersman.operators.toolset.render.layout import part_name
from steersman.runtime.rbac import EVENTS, REVIEWS, rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.kube.api.types.rbac import PolicyRule

_CONFIGS: Final = "toolsetconfigs.steersman.dev"


def names_in(section: ToolsetSection) -> list[str]:
    """The names of all ConfigMaps that are written; none: any name."""
    if "*" in section.config_maps:
        return []
    kept = dict.fromkeys(filter(None, (section.name, *section.config_maps)))
    return [
        name
        for base in kept
        for name in (
            base,
            f"{base}{BACKUP_SUFFIX}",
            *(part_name(base, number) for number in range(1, section.max_parts + 1)),
        )
    ]


def rules(section: ToolsetSection | None) -> Sequence[PolicyRule]:
    """The rules of a Role or ClusterRole."""
    section = section or ToolsetSection()
    rules = [
        rule("services", "list", "watch"),
        rule("endpointslices.discovery.k8s.io", "list", "watch"),
        rule("configmaps", "create"),
        EVENTS,
        rule(_CONFIGS, "list", "watch"),
        rule(f"{_CONFIGS}/status", "patch"),
    ]
    names = names_in(section)
    if names or "*" in section.config_maps:
        rules.append(rule("configmaps", "get", "list", "watch", "patch", "delete", names=names))
    if section.api.enabled and section.api.authenticate:
        rules += REVIEWS
    if section.notify.mode == "template":
        rules.append(rule("deployments.apps", "patch", names=[section.notify.deployment.partition("/")[2]]))
    return rules
