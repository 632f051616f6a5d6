"""RBAC rules: written short, merged, and made into the Roles that grant them. Pure data.

    rule("deployments.apps", "list", "watch", "patch")
    rule(["configmaps", "secrets"], "get", names=["app"])
    Permissions(namespace=[...]).manifests("shop-operator", "ops")      # ServiceAccount, Roles and bindings

Where a process works in a few namespaces only, what can be granted there is granted there by Roles, and only what has
no namespace needs a ClusterRole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.kube.api.types.rbac import PolicyRule

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "EVENTS",
    "REVIEWS",
    "Permissions",
    "lease_rules",
    "merge_rules",
    "missing_rules",
    "rule",
    "rule_manifest",
    "shard_rules",
    "split_rules",
]

_RBAC: Final = "rbac.authorization.k8s.io"


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


def rule(resources: str | Iterable[str], *verbs: str, names: Iterable[str] = ()) -> PolicyRule:
    """The rule that allows `verbs` on resources, written as kubectl writes them: `pods`, `deployments.apps/scale`.

    >>> rule(["bindings", "pods/eviction"], "create").resources
    ['bindings', 'pods/eviction']
    >>> rule("deployments.apps/scale", "patch", names=["web"]).api_groups
    ['apps']
    """
    groups, found = set(), []
    for text in [resources] if isinstance(resources, str) else resources:
        qualified, _, subresource = text.partition("/")
        resource, _, group = qualified.partition(".")
        groups.add(group)
        found.append(f"{resource}/{subresource}" if subresource else resource)
    if len(groups) != 1:
        raise ValueError(f"one rule is for resources of one API group, not of {sorted(groups)}")
    return PolicyRule(api_groups=list(groups), resources=found, resource_names=list(names), verbs=list(verbs))


EVENTS: Final = rule("events", "create", "patch")  # what `Context.event` needs
# To ask the API server who shows a token and what that user may do: what `Authenticator` needs.
REVIEWS: Final = (
    rule("tokenreviews.authentication.k8s.io", "create"),
    rule("subjectaccessreviews.authorization.k8s.io", "create"),
)


class Permissions(msgspec.Struct, frozen=True, kw_only=True):
    """Rules by where they can be granted: in one namespace, only for the whole cluster, or where the process is."""

    namespace: Sequence[PolicyRule] = ()
    cluster: Sequence[PolicyRule] = ()
    own: Sequence[PolicyRule] = ()  # in the namespace of the process itself

    def manifests(
        self, name: str, own_namespace: str, *, namespaces: Sequence[str] = (), lease: str = ""
    ) -> list[dict[str, Any]]:
        """A ServiceAccount in `own_namespace` with these permissions in `namespaces`, or in all when none is named.

        `lease` is the name of the Lease it elects its leader with, if it does.
        """
        account = {"kind": "ServiceAccount", "name": name, "namespace": own_namespace}
        made: list[dict[str, Any]] = [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": own_namespace}}
        ]
        if lease:
            made += _grant(f"{name}-lease", own_namespace, lease_rules(lease), account)
        made += _grant(f"{name}-own", own_namespace, self.own, account)
        if namespaces:
            for namespace in namespaces:
                made += _grant(name, namespace, self.namespace, account)
            made += _grant(f"{own_namespace}-{name}", "", self.cluster, account)
        else:
            made += _grant(f"{own_namespace}-{name}", "", [*self.namespace, *self.cluster], account)
        return made


def split_rules(rules: Iterable[PolicyRule], *, cluster_wide: Iterable[tuple[str, str]] = ()) -> Permissions:
    """Rules by where they can be granted. `cluster_wide` names further kinds without a namespace: (group, resource)."""
    wide = _CLUSTER_WIDE | frozenset(cluster_wide)
    singles = [single for row in rules for single in _singles(row)]
    return Permissions(
        namespace=merge_rules(row for row in singles if not _is_wide(row, wide)),
        cluster=merge_rules(row for row in singles if _is_wide(row, wide)),
    )


def lease_rules(name: str) -> list[PolicyRule]:
    """For leader election: any Lease may be created, only this one read and written."""
    leases = "leases.coordination.k8s.io"
    return [rule(leases, "create"), rule(leases, "get", "patch", names=[name])]


def shard_rules() -> list[PolicyRule]:
    """For sharding: members find each other by their Leases, and remove those of members that have ended."""
    return [rule("leases.coordination.k8s.io", "get", "list", "create", "patch", "delete")]


def merge_rules(rules: Iterable[PolicyRule]) -> list[PolicyRule]:
    """The same permissions in fewer rules: verbs of the same resource together, then resources with the same verbs."""
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


def missing_rules(wanted: Iterable[PolicyRule], granted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """What is wanted and not granted. A rule for all names includes each of them."""
    have = {single for row in granted for single in _permissions(row)}
    return merge_rules(
        PolicyRule(api_groups=[group], resources=[resource], resource_names=[name] if name else [], verbs=[verb])
        for rule in wanted
        for group, resource, name, verb in _permissions(rule)
        if not {(group, resource, name, verb), (group, resource, "", verb)} & have
    )


def _permissions(rule: PolicyRule) -> Iterable[tuple[str, str, str, str]]:
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


def _is_wide(single: PolicyRule, wide: frozenset[tuple[str, str]]) -> bool:
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
            "rules": [rule_manifest(rule) for rule in rules],
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": f"{prefix}RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": _RBAC, "kind": f"{prefix}Role", "name": name},
            "subjects": [account],
        },
    ]


def rule_manifest(rule: PolicyRule) -> dict[str, list[str]]:
    """The rule as a manifest holds it, without what is empty."""
    fields = {
        "apiGroups": rule.api_groups,
        "resources": rule.resources,
        "resourceNames": rule.resource_names,
        "nonResourceURLs": rule.non_resource_urls,
        "verbs": rule.verbs,
    }
    return {name: list(values) for name, values in fields.items() if values}
