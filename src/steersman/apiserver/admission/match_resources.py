"""Which requests a webhook, a policy or a binding is for, as its object says. `matching` decides with it."""

from __future__ import annotations

from typing import Any

import msgspec

from steersman.kube.api.selectors import Selector

JSON = dict[str, Any]


class AdmissionRule(msgspec.Struct, frozen=True):
    """Names requests; `*` stands for everything, `*/*` also for subresources."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]  # resource, subresource
    scope: str = "*"  # Namespaced, Cluster or *
    names: frozenset[str] = frozenset()  # of objects; empty: all

    @classmethod
    def from_wire(cls, rule: JSON) -> AdmissionRule:
        """A rule of a webhook or policy."""
        resources = (name.partition("/") for name in rule.get("resources") or ())
        return cls(
            operations=frozenset(rule.get("operations") or ()),
            groups=frozenset(rule.get("apiGroups") or ()),
            versions=frozenset(rule.get("apiVersions") or ()),
            resources=tuple((resource, subresource) for resource, _, subresource in resources),
            scope=rule.get("scope") or "*",
            names=frozenset(rule.get("resourceNames") or ()),
        )


class MatchResources(msgspec.Struct, frozen=True, kw_only=True):
    """What a webhook, a policy or a binding says about the requests it is for."""

    rules: tuple[AdmissionRule, ...]
    excluded: tuple[AdmissionRule, ...] = ()
    namespaces: Selector
    objects: Selector
    equivalent: bool  # matchPolicy: also for other versions of what the rules name

    @classmethod
    def from_wire(cls, match: JSON, rules: list[JSON]) -> MatchResources:
        """`match` is a webhook, or the `matchConstraints` or `matchResources` of a policy or binding."""
        return cls(
            rules=tuple(AdmissionRule.from_wire(rule) for rule in rules),
            excluded=tuple(AdmissionRule.from_wire(rule) for rule in match.get("excludeResourceRules") or ()),
            namespaces=Selector.from_wire(match.get("namespaceSelector") or {}),
            objects=Selector.from_wire(match.get("objectSelector") or {}),
            equivalent=match["matchPolicy"] == "Equivalent",
        )
