"""Who may do what. Pure data."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import field

from steersman.kube.api.objects import LabelSelector, Resource, Struct

__all__ = [
    "AggregationRule",
    "ClusterRole",
    "ClusterRoleBinding",
    "PolicyRule",
    "Role",
    "RoleBinding",
    "RoleRef",
    "Subject",
]


class PolicyRule(Struct):
    """Verbs on resources, or on paths that are not resources. `*` stands for all."""

    verbs: Sequence[str] | None = ()
    api_groups: Sequence[str] = ()
    resources: Sequence[str] = ()
    resource_names: Sequence[str] = ()
    non_resource_urls: Sequence[str] = field(default=(), name="nonResourceURLs")


class RoleRef(Struct):
    """The role that a binding gives."""

    kind: str  # Role or ClusterRole
    name: str
    api_group: str = ""  # a server reads nothing as rbac.authorization.k8s.io


class Subject(Struct):
    """Who gets it."""

    kind: str  # ServiceAccount, User or Group
    name: str
    namespace: str = ""
    api_group: str = ""


class AggregationRule(Struct):
    """The rules of other ClusterRoles, chosen by label."""

    cluster_role_selectors: Sequence[LabelSelector] = ()


class Role(Resource, group="rbac.authorization.k8s.io", version="v1"):
    """Rules for one namespace. A role without any is sent with null."""

    rules: Sequence[PolicyRule] | None = ()


class ClusterRole(Resource, group="rbac.authorization.k8s.io", version="v1", namespaced=False):
    """Rules for all namespaces. A role without any is sent with null."""

    rules: Sequence[PolicyRule] | None = ()
    aggregation_rule: AggregationRule | None = None


class RoleBinding(Resource, group="rbac.authorization.k8s.io", version="v1"):
    """Gives a role in one namespace."""

    role_ref: RoleRef
    subjects: Sequence[Subject] = ()


class ClusterRoleBinding(Resource, group="rbac.authorization.k8s.io", version="v1", namespaced=False):
    """Gives a role everywhere."""

    role_ref: RoleRef
    subjects: Sequence[Subject] = ()
