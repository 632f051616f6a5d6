"""The rights a set of operators needs, as the objects that grant them. Pure data.

Operators say their least rules (`Operator.rules`); here they become Roles and ClusterRoles. Where the process works in
a few namespaces only, what can be granted there is granted there, and only what has no namespace needs a ClusterRole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.kube.types.core import Event
from steersman.kube.types.rbac import PolicyRule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.operators import Operator

__all__ = ["EVENTS", "REVIEWS", "Rights", "beyond", "lease_rules", "merged", "rights_of", "rule_as_written"]

_RBAC: Final = "rbac.authorization.k8s.io"

EVENTS: Final = PolicyRule(  # as the recorder writes them
    api_groups=[Event.KIND.group], resources=[Event.KIND.plural], verbs=["create", "patch"]
)
# To ask the API server who somebody is and what they may do: for the page behind a token.
REVIEWS: Final = (
    PolicyRule(api_groups=["authentication.k8s.io"], resources=["tokenreviews"], verbs=["create"]),
    PolicyRule(api_groups=["authorization.k8s.io"], resources=["subjectaccessreviews"], verbs=["create"]),
)

# (group, resource) of built-in kinds that are in no namespace and that an operator may ask for
_CLUSTER_WIDE: Final = frozenset(
    {
        ("", "namespaces"),
        ("", "nodes"),
        ("", "persistentvolumes"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("authentication.k8s.io", "tokenreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "subjectaccessreviews"),
        ("node.k8s.io", "runtimeclasses"),
        (_RBAC, "clusterroles"),
        (_RBAC, "clusterrolebindings"),
        ("scheduling.k8s.io", "priorityclasses"),
        ("storage.k8s.io", "storageclasses"),
    }
)


class Rights(msgspec.Struct, frozen=True, kw_only=True):
    """Rules by where they can be granted: in one namespace, or only for the whole cluster."""

    namespace: Sequence[PolicyRule] = ()
    cluster: Sequence[PolicyRule] = ()

    def manifests(
        self, name: str, own_namespace: str, *, namespaces: Sequence[str] = (), lease: str = ""
    ) -> list[dict[str, Any]]:
        """A ServiceAccount in `own_namespace` with these rights: in `namespaces`, or in all of them when none is named.

        `lease` is the name of the Lease it elects its leader with, if it does.
        """
        account = {"kind": "ServiceAccount", "name": name, "namespace": own_namespace}
        made: list[dict[str, Any]] = [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": own_namespace}}
        ]
        if lease:
            made += _grant(f"{name}-lease", own_namespace, lease_rules(lease), account)
        if namespaces:
            for namespace in namespaces:
                made += _grant(name, namespace, self.namespace, account)
            made += _grant(f"{own_namespace}-{name}", "", self.cluster, account)
        else:
            made += _grant(f"{own_namespace}-{name}", "", [*self.namespace, *self.cluster], account)
        return made


def rights_of(operators: Iterable[tuple[Operator, Any]]) -> Rights:
    """What these operators need together, each with its configuration."""
    found: list[PolicyRule] = []
    wide = set(_CLUSTER_WIDE)
    for operator, config in operators:
        found += operator.rules(config)
        wide |= {(kind.KIND.group, kind.KIND.plural) for kind in operator.kinds if not kind.KIND.namespaced}
    singles = [single for rule in [*found, EVENTS] for single in _singles(rule)]
    return Rights(
        namespace=merged(rule for rule in singles if not _is_wide(rule, wide)),
        cluster=merged(rule for rule in singles if _is_wide(rule, wide)),
    )


def lease_rules(name: str) -> list[PolicyRule]:
    """For leader election: any Lease may be created, only this one read and written."""
    group, resource = ["coordination.k8s.io"], ["leases"]
    return [
        PolicyRule(api_groups=group, resources=resource, verbs=["create"]),
        PolicyRule(api_groups=group, resources=resource, resource_names=[name], verbs=["get", "patch"]),
    ]


def merged(rules: Iterable[PolicyRule]) -> list[PolicyRule]:
    """The same rights in fewer rules: verbs of the same resource together, then resources with the same verbs."""
    verbs: dict[tuple[str, str, tuple[str, ...], tuple[str, ...]], set[str]] = {}
    for rule in rules:
        for single in _singles(rule):
            group = single.api_groups[0] if single.api_groups else ""
            resource = single.resources[0] if single.resources else ""
            key = group, resource, tuple(single.resource_names), tuple(single.non_resource_urls)
            verbs.setdefault(key, set()).update(single.verbs or ())
    together: dict[tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (group, resource, names, urls), allowed in sorted(verbs.items()):
        together.setdefault((group, names, urls, _in_order(allowed)), []).append(resource)
    return [
        PolicyRule(verbs=list(allowed), non_resource_urls=list(urls))
        if urls
        else PolicyRule(api_groups=[group], resources=resources, resource_names=list(names), verbs=list(allowed))
        for (group, names, urls, allowed), resources in together.items()
    ]


def beyond(wanted: Iterable[PolicyRule], granted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """What of the wanted rights is not among the granted ones. A right on everything includes that on one name."""
    have = {right for rule in granted for right in _rights(rule)}
    return merged(
        PolicyRule(api_groups=[group], resources=[resource], resource_names=[name] if name else [], verbs=[verb])
        for rule in wanted
        for group, resource, name, verb in _rights(rule)
        if not {(group, resource, name, verb), (group, resource, "", verb)} & have
    )


def _rights(rule: PolicyRule) -> Iterable[tuple[str, str, str, str]]:
    return [
        (single.api_groups[0], single.resources[0], name, verb)
        for single in _singles(rule)
        if not single.non_resource_urls
        for name in single.resource_names or ("",)
        for verb in single.verbs or ()
    ]


_VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


def _in_order(verbs: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(verbs, key=lambda verb: (_VERBS.index(verb) if verb in _VERBS else len(_VERBS), verb)))


def _singles(rule: PolicyRule) -> list[PolicyRule]:
    """The rule as rules about one resource each."""
    if rule.non_resource_urls:
        return [rule]
    return [
        PolicyRule(api_groups=[group], resources=[resource], resource_names=rule.resource_names, verbs=rule.verbs)
        for group in rule.api_groups
        for resource in rule.resources
    ]


def _is_wide(single: PolicyRule, wide: set[tuple[str, str]]) -> bool:
    if single.non_resource_urls:
        return True
    return (single.api_groups[0], single.resources[0].partition("/")[0]) in wide


def _grant(name: str, namespace: str, rules: Sequence[PolicyRule], account: dict[str, str]) -> list[dict[str, Any]]:
    """A Role in a namespace, or a ClusterRole, and its binding; nothing when there are no rules."""
    if not rules:
        return []
    prefix = "" if namespace else "Cluster"
    meta = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return [
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": f"{prefix}Role",
            "metadata": meta,
            "rules": [rule_as_written(rule) for rule in rules],
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": f"{prefix}RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": _RBAC, "kind": f"{prefix}Role", "name": name},
            "subjects": [account],
        },
    ]


def rule_as_written(rule: PolicyRule) -> dict[str, list[str]]:
    """The rule as a manifest holds it, without what is empty."""
    fields = {
        "apiGroups": rule.api_groups,
        "resources": rule.resources,
        "resourceNames": rule.resource_names,
        "nonResourceURLs": rule.non_resource_urls,
        "verbs": rule.verbs,
    }
    return {name: list(values) for name, values in fields.items() if values}
