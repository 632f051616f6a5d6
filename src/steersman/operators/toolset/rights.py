"""The least rights this operator needs, from its configuration. Pure.

`create` stands in a rule of its own: rights on names never match a creation, because it has no name yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.kube.types.rbac import PolicyRule
from steersman.operators.toolset.layout import part_name
from steersman.operators.toolset.types import BACKUP_SUFFIX, ToolsetSection

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MAX_PARTS", "rules"]

MAX_PARTS = 8  # named in the rights; more need rights on all names


def rules(section: ToolsetSection | None) -> Sequence[PolicyRule]:
    """What a Role or ClusterRole must allow."""
    section = section or ToolsetSection()
    names = [section.name, f"{section.name}{BACKUP_SUFFIX}"]
    names += [part_name(section.name, number) for number in range(1, MAX_PARTS + 1)]
    made = [
        PolicyRule(api_groups=[""], resources=["services"], verbs=["list", "watch"]),
        PolicyRule(api_groups=["discovery.k8s.io"], resources=["endpointslices"], verbs=["list", "watch"]),
        PolicyRule(
            api_groups=[""],
            resources=["configmaps"],
            resource_names=names,
            verbs=["get", "list", "watch", "patch", "delete"],
        ),
        PolicyRule(api_groups=[""], resources=["configmaps"], verbs=["create"]),
        PolicyRule(api_groups=[""], resources=["events"], verbs=["create", "patch"]),
        PolicyRule(api_groups=["steersman.dev"], resources=["toolsetconfigs"], verbs=["list", "watch"]),
        PolicyRule(api_groups=["steersman.dev"], resources=["toolsetconfigs/status"], verbs=["patch"]),
    ]
    if section.api.enabled and section.api.authenticate:
        made += [
            PolicyRule(api_groups=["authentication.k8s.io"], resources=["tokenreviews"], verbs=["create"]),
            PolicyRule(api_groups=["authorization.k8s.io"], resources=["subjectaccessreviews"], verbs=["create"]),
        ]
    if section.notify.mode == "template":
        made.append(
            PolicyRule(
                api_groups=["apps"],
                resources=["deployments"],
                resource_names=[section.notify.deployment.partition("/")[2]],
                verbs=["patch"],
            )
        )
    return made
