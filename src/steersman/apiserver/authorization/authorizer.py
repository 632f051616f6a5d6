"""The authorizer of one server: RBAC over the roles and bindings that the server stores.

Every request is authorized before it is known whether what it names exists. Members of `system:masters` may do
everything. Writes of roles and bindings are checked a second time: they must not grant more than the writer holds.

Invariant: a decision is made on the roles and bindings as they are at that moment. The index is made again at the
first decision after a change, so requests that change no rights share one.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from steersman.apiserver import status_errors
from steersman.apiserver.authorization import escalation
from steersman.apiserver.authorization.impersonation import (
    impersonated_user,
    impersonation_attributes,
    with_implied_groups,
)
from steersman.apiserver.authorization.rbac import AccessDecision, RBACPolicy, RoleNotFoundError, policy_rule
from steersman.apiserver.authorization.request_attributes import RequestAttributes, request_attributes
from steersman.apiserver.http.authenticator import MASTERS
from steersman.kube.api.gvk import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.apiserver.http.requests import Query, Request
    from steersman.apiserver.storage.store import ResourceTable, Store, StoreEvent
    from steersman.kube.api.types.authorization import UserInfo
    from steersman.kube.api.types.rbac import PolicyRule

JSON = dict[str, Any]
GROUP = "rbac.authorization.k8s.io"
_ALLOWED = AccessDecision(True)
_OWNERSHIP = {"ownerReferences", "finalizers", "managedFields"}  # what garbage collection changes


class RBACAuthorizer:
    """Says whether users may do what they ask for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._policy: RBACPolicy | None = None
        store.listen(self._observe)

    def _observe(self, table: ResourceTable, event: StoreEvent) -> None:  # noqa: ARG002  the shape of a listener
        if table.kind.group == GROUP:
            self._policy = None

    @property
    def policy(self) -> RBACPolicy:
        """The rights as they are now."""
        if self._policy is None:
            self._policy = RBACPolicy(
                roles=[*self._objects("clusterroles"), *self._objects("roles")],
                bindings=[*self._objects("clusterrolebindings"), *self._objects("rolebindings")],
            )
        return self._policy

    def _objects(self, plural: str) -> Iterable[JSON]:
        table = self._store.find_table(f"{plural}.{GROUP}")
        return [record.obj for record in table.scan()] if table is not None else []

    def authorize(self, user: UserInfo, attributes: RequestAttributes) -> AccessDecision:
        """Whether `user` may do this."""
        if MASTERS in user.groups:
            return _ALLOWED
        return self.policy.authorize(user, attributes)

    def impersonate(self, user: UserInfo, headers: Mapping[str, str]) -> UserInfo:
        """The user a request is made as; raises the 403 when `user` may not act as the one that the headers name."""
        acting = impersonated_user(headers)
        if acting is None:
            return user
        for attributes in impersonation_attributes(acting):
            self._require(user, attributes)
        return with_implied_groups(acting)

    def check(self, user: UserInfo, method: str, path: str, query: Query) -> None:
        """Raise the 403 when `user` may not make this request."""
        if MASTERS not in user.groups:
            self._require(user, request_attributes(method, path, query))

    def _require(self, user: UserInfo, attributes: RequestAttributes) -> None:
        decision = self.authorize(user, attributes)
        if not decision.allowed:
            raise forbidden_request(user, attributes, decision.reason)

    def check_create(self, request: Request, obj: JSON) -> None:
        """What the routing of a request could not know: a PUT or an apply creates, a role grants more than is held."""
        if MASTERS in request.user.groups:
            return
        if request.verb != "create":
            self._require(request.user, _attributes(request, "create"))
        if request.route.info.kind.group == GROUP:
            self._check_escalation(request, obj, None)

    def check_change(self, request: Request, old: JSON, obj: JSON) -> None:
        """A changed role or binding must not grant more than the writer holds."""
        if request.route.info.kind.group == GROUP and MASTERS not in request.user.groups:
            self._check_escalation(request, obj, old)

    def _check_escalation(self, request: Request, obj: JSON, old: JSON | None) -> None:
        if old is not None and _granted(obj) == _granted(old):
            return
        if "roleRef" in obj:
            self._check_binding(request, obj)
        else:
            self._check_role(request, obj, old)

    def _check_role(self, request: Request, role: JSON, old: JSON | None) -> None:
        if self.authorize(request.user, _attributes(request, "escalate")).allowed:
            return
        self._check_held(request, role, [policy_rule(rule) for rule in role.get("rules") or ()])
        if _aggregates(role) or (old is not None and _aggregates(old)):
            held, _ = self.policy.rules_for(request.user, "")
            if escalation.uncovered(held, escalation.FULL_AUTHORITY):
                why = "must have cluster-admin privileges to use the aggregationRule"
                raise status_errors.forbidden(request.route.info.kind, _name(role), why)

    def _check_binding(self, request: Request, binding: JSON) -> None:
        reference, namespace = binding["roleRef"], request.route.namespace
        kind, name = reference.get("kind", ""), reference.get("name", "")
        plural = "clusterroles" if kind == "ClusterRole" else "roles"
        bind = RequestAttributes(verb="bind", group=GROUP, resource=plural, namespace=namespace, name=name)
        if self.authorize(request.user, bind).allowed:
            return
        if kind not in {"Role", "ClusterRole"}:
            raise status_errors.internal(f'unsupported role reference kind: "{kind}"')
        if not name:
            raise status_errors.bad_request("Name parameter required.")
        try:
            rules = self.policy.role_rules(kind, name, namespace)
        except RoleNotFoundError as error:
            raise status_errors.not_found(
                Kind(group=GROUP, version="v1", kind=error.kind, plural=plural), error.name
            ) from None
        self._check_held(request, binding, rules)

    def _check_held(self, request: Request, obj: JSON, rules: Iterable[PolicyRule]) -> None:
        user = request.user
        held, errors = self.policy.rules_for(user, request.route.namespace)
        missing = escalation.uncovered(held, rules)
        if not missing:
            return
        groups = " ".join(f'"{group}"' for group in user.groups)
        why = f'user "{user.username}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:'
        why = "\n".join([why, *sorted(escalation.describe_rule(rule) for rule in missing)])
        if errors:
            why += f"; resolution errors: [{errors}]"
        raise status_errors.forbidden(request.route.info.kind, _name(obj), why)


def _attributes(request: Request, verb: str) -> RequestAttributes:
    """Another verb on what a request names."""
    route = request.route
    return RequestAttributes(
        verb=verb,
        group=route.info.kind.group,
        resource=route.info.kind.plural,
        subresource=route.subresource,
        namespace=route.namespace,
        name=route.name,
    )


def forbidden_request(user: UserInfo, attributes: RequestAttributes, reason: str = "") -> status_errors.StatusError:
    """The 403 of a user who may not do this."""
    why = escape(f'User "{user.username}" cannot {attributes}', quote=False)
    if reason:
        why = f"{why}: {reason}"
    if attributes.path is not None:
        return status_errors.StatusError(403, f"forbidden: {why}", reason="Forbidden", details={})
    kind = Kind(group=attributes.group, version="", kind="", plural=attributes.resource)
    return status_errors.forbidden(kind, attributes.name, why)


def _aggregates(role: JSON) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def _name(obj: JSON) -> str:
    name: str = obj["metadata"].get("name", "")
    return name


def _granted(obj: JSON) -> JSON:
    """An object without what garbage collection changes."""
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _OWNERSHIP}
    return {**obj, "metadata": metadata}
