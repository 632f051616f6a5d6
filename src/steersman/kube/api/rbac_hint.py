"""Which access-control rule a request needs. Pure data.

The API server maps every request to a verb and a resource before it asks whether the caller may do it;
`policy_rule_for` is the same mapping, so that "forbidden" can be answered with the rule to add and not only with a
complaint.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

from steersman.kube.api.errors import Forbidden, KubeError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MissingRule", "policy_rule_for", "with_rbac_hint"]

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
# What the authorizer says. Quotas, admission and escalation checks also answer 403, in other words.
_DENIED = re.compile(r'User ".*?" cannot (\S+) (?:resource|path) "')


class MissingRule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """One rule of a Role or ClusterRole, and the namespace a Role would have to be in ("" needs a ClusterRole).

    >>> str(MissingRule(api_groups=("apps",), resources=("deployments/scale",), verbs=("update",)))
    '{"apiGroups":["apps"],"resources":["deployments/scale"],"verbs":["update"]}'
    """

    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = msgspec.field(default=(), name="nonResourceURLs")
    verbs: tuple[str, ...]
    namespace: str = ""

    def to_wire(self) -> dict[str, list[str]]:
        """The rule as RBAC objects hold it."""
        return {key: value for key, value in msgspec.to_builtins(self).items() if key != "namespace"}

    @property
    def declaration(self) -> str:
        """The rule for all names, as code writes it.

        >>> MissingRule(api_groups=("apps",), resources=("deployments/scale",), verbs=("update",)).declaration
        'rule("deployments.apps/scale", "update")'
        """
        resource, slash, subresource = "".join(self.resources).partition("/")
        qualified = ".".join(filter(None, (resource, *self.api_groups)))
        return f'rule("{qualified}{slash}{subresource}", "{self.verbs[0]}")'

    def __str__(self) -> str:
        return msgspec.json.encode(self.to_wire()).decode()


def policy_rule_for(method: str, path: str, params: Mapping[str, str]) -> MissingRule:
    """The rule that allows this request.

    >>> str(policy_rule_for("GET", "/api/v1/namespaces/shop/pods", {"watch": "1"}))
    '{"apiGroups":[""],"resources":["pods"],"verbs":["watch"]}'
    """
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        group, rest = "", parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, rest = parts[1], parts[3:]
    else:
        return MissingRule(non_resource_urls=(path,), verbs=(method.lower(),))
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in {"status", "finalize"}:
            rest = rest[2:]
    resource, name, *subresource = [*rest, ""] if len(rest) == 1 else rest
    return MissingRule(
        api_groups=(group,),
        resources=("/".join([resource, *subresource[:1]]),),
        resource_names=(name,) if name else (),
        verbs=(_verb(method, name, params),),
        namespace=namespace,
    )


def _verb(method: str, name: str, params: Mapping[str, str]) -> str:
    if method in {"GET", "HEAD"}:
        if params.get("watch") in {"1", "true"}:
            return "watch"
        return "get" if name else "list"
    if method == "DELETE" and not name:
        return "deletecollection"
    return _VERBS[method]


def with_rbac_hint(error: KubeError, method: str, path: str, params: Mapping[str, str]) -> KubeError:
    """`error` with the missing rule in its data and text, if a missing rule is what it is about."""
    denied = _DENIED.search(error.message) if isinstance(error, Forbidden) else None
    if denied is None:
        return error
    rule = policy_rule_for(method, path, params)
    if denied[1] == "create":  # also what a PUT or an apply needs to make an object
        rule = msgspec.structs.replace(rule, verbs=("create",))
    where = f"Role in namespace {rule.namespace}" if rule.namespace else "ClusterRole"
    explained = Forbidden(
        f"{error.message}; a {where} with this rule allows it: {rule}",
        request=error.request,
        reason=error.reason,
        code=error.code,
        causes=error.causes,
        details=error.details,
    )
    explained.rule = rule
    return explained
