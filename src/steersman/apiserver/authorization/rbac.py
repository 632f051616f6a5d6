"""RBAC: from roles and bindings to whether a request is allowed, and why. Pure.

A request is allowed when one rule allows it: a rule of a role that a ClusterRoleBinding gives to the user or one of
their groups, or that a RoleBinding gives them in the namespace of the request. Rules only add; nothing denies.

Invariant: an `RBACPolicy` never changes; another state of the objects is another policy. Bindings are indexed by
subject, so a decision reads the bindings of one user only, whatever the number of users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.kube.api.types.rbac import PolicyRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from steersman.apiserver.authorization.request_attributes import RequestAttributes
    from steersman.kube.api.types.authorization import UserInfo

JSON = dict[str, Any]
_NO_RULES: tuple[PolicyRule, ...] = ()


class AccessDecision(msgspec.Struct, frozen=True):
    """Whether a request is allowed. The reason names the binding that allows it, or roles that could not be read."""

    allowed: bool
    reason: str = ""


class RoleNotFoundError(LookupError):
    """A binding names a role that does not exist."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f'{kind.lower()}.rbac.authorization.k8s.io "{name}" not found')
        self.kind, self.name = kind, name


class _Grant(msgspec.Struct, frozen=True):
    """One role given to one subject. Without a namespace it holds everywhere."""

    binding: str
    namespace: str
    role_kind: str
    role: str
    subject: str  # as reasons describe it

    def __str__(self) -> str:
        kind, name = ("RoleBinding", f"{self.binding}/{self.namespace}") if self.namespace else (_CLUSTER, self.binding)
        return f'{kind} "{name}" of {self.role_kind} "{self.role}" to {self.subject}'


_CLUSTER = "ClusterRoleBinding"


class RBACPolicy:
    """Roles and bindings as they were at one moment, as manifests. Those without a namespace are the cluster's."""

    def __init__(self, roles: Iterable[Mapping[str, Any]] = (), bindings: Iterable[Mapping[str, Any]] = ()) -> None:
        self._roles = {_key(role): role for role in roles}
        self._rules: dict[tuple[str, str], tuple[PolicyRule, ...]] = {}  # of roles that were needed
        self._grants: dict[tuple[str, str, str], list[_Grant]] = {}  # by namespace, subject's kind, subject's name
        for binding in bindings:
            namespace, name = _key(binding)
            reference = binding["roleRef"]
            for subject in binding.get("subjects") or ():
                kind, known_as, described = _subject(subject, namespace)
                grant = _Grant(name, namespace, reference["kind"], reference["name"], described)
                self._grants.setdefault((namespace, kind, known_as), []).append(grant)

    def authorize(self, user: UserInfo, attributes: RequestAttributes) -> AccessDecision:
        """Whether `user` may do this."""
        missing = []
        for grant in self._grants_of(user, attributes.namespace):
            try:
                rules = self.role_rules(grant.role_kind, grant.role, grant.namespace)
            except RoleNotFoundError as error:
                missing.append(str(error))
                continue
            if any(rule_allows(rule, attributes) for rule in rules):
                return AccessDecision(True, f"RBAC: allowed by {grant}")
        return AccessDecision(False, f"RBAC: {_joined(missing)}" if missing else "")

    def rules_for(self, user: UserInfo, namespace: str) -> tuple[list[PolicyRule], str]:
        """Every rule of `user` in a namespace, or at the cluster scope without one; and which roles are missing."""
        found: list[PolicyRule] = []
        missing = []
        for grant in self._grants_of(user, namespace):
            try:
                found += self.role_rules(grant.role_kind, grant.role, grant.namespace)
            except RoleNotFoundError as error:
                missing.append(str(error))
        return found, _joined(missing)

    def role_rules(self, kind: str, name: str, namespace: str) -> tuple[PolicyRule, ...]:
        """The rules of a role that a binding in `namespace` refers to."""
        key = (namespace if kind == "Role" else "", name)
        rules = self._rules.get(key)
        if rules is None:
            role = self._roles.get(key)
            if role is None:
                raise RoleNotFoundError(kind, name)
            rules = self._rules[key] = tuple(policy_rule(rule) for rule in role.get("rules") or ())
        return rules

    def _grants_of(self, user: UserInfo, namespace: str) -> Iterator[_Grant]:
        for scope in ("", namespace) if namespace else ("",):
            yield from self._grants.get((scope, "User", user.username), ())
            for group in user.groups:
                yield from self._grants.get((scope, "Group", group), ())


def policy_rule(rule: Mapping[str, Any]) -> PolicyRule:
    """A rule of a stored role."""
    return PolicyRule(
        verbs=rule.get("verbs") or (),
        api_groups=rule.get("apiGroups") or (),
        resources=rule.get("resources") or (),
        resource_names=rule.get("resourceNames") or (),
        non_resource_urls=rule.get("nonResourceURLs") or (),
    )


def rule_allows(rule: PolicyRule, attributes: RequestAttributes) -> bool:
    """Whether one rule is enough for a request."""
    verbs = rule.verbs or ()
    if attributes.verb not in verbs and "*" not in verbs:
        return False
    if attributes.path is not None:
        return any(_path_matches(url, attributes.path) for url in rule.non_resource_urls)
    return (
        (attributes.group in rule.api_groups or "*" in rule.api_groups)
        and _resource_matches(rule, attributes)
        and (not rule.resource_names or attributes.name in rule.resource_names)
    )


def _resource_matches(rule: PolicyRule, attributes: RequestAttributes) -> bool:
    if "*" in rule.resources:
        return True
    if not attributes.subresource:
        return attributes.resource in rule.resources
    return (
        f"{attributes.resource}/{attributes.subresource}" in rule.resources
        or f"*/{attributes.subresource}" in rule.resources
    )


def _path_matches(url: str, path: str) -> bool:
    return url == path or (url.endswith("*") and path.startswith(url.rstrip("*")))


def _key(obj: Mapping[str, Any]) -> tuple[str, str]:
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _subject(subject: Mapping[str, Any], namespace: str) -> tuple[str, str, str]:
    """Kind and name by which a request's user is compared with it, and its description."""
    kind, name = subject["kind"], subject["name"]
    if kind != "ServiceAccount":
        return kind, name, f'{kind} "{name}"'
    home = subject.get("namespace") or namespace
    return "User", f"system:serviceaccount:{home}:{name}", f'{kind} "{name}/{home}"'


def _joined(messages: list[str]) -> str:
    unique = list(dict.fromkeys(messages))
    return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]" if unique else ""
