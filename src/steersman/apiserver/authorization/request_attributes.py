"""What a request does, in the words of RBAC: a verb on a resource, or on a path. Pure.

Attributes come from method, path and query alone, before it is known whether the resource exists: a user without rights
learns nothing about what is served. The grammar is the one of kube-apiserver's RequestInfo, odd cases included: the
namespace of a request for a Namespace is that Namespace, and a list of one `metadata.name` has that name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

if TYPE_CHECKING:
    from steersman.apiserver.http.requests import Query

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_A_NAMESPACE = {"status", "finalize"}  # subresources of a Namespace, not resources in it


class RequestAttributes(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be authorized. `path` is set for paths that are not resources, and then nothing else but the verb."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""  # empty: at the cluster scope
    name: str = ""
    path: str | None = None

    def __str__(self) -> str:
        """What the user cannot do, as kube-apiserver says it."""
        if self.path is not None:
            return f'{self.verb} path "{self.path}"'
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return f'{self.verb} resource "{resource}" in API group "{self.group}" {where}'


def request_attributes(method: str, path: str, query: Query) -> RequestAttributes:
    """What this request does; `path` is as it was sent, without the query."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) >= 3:
        group, rest = "", parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, rest = parts[1], parts[3:]
    else:
        return RequestAttributes(verb=method.lower(), path=unquote(path))
    verb = _VERBS.get(method, "")
    if rest[0] == "watch" and len(rest) > 1:  # the old form
        verb, rest = "watch", rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _OF_A_NAMESPACE:
            rest = rest[2:]
    resource, name, subresource = (*rest, "", "")[:3]
    if not name and verb == "get":
        verb = "watch" if query.flag("watch") else "list"
        name = _selected_name(query.text("fieldSelector"))
    elif not name and verb == "delete":
        verb = "deletecollection"
    return RequestAttributes(
        verb=verb,
        group=group,
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
    )


def _selected_name(selector: str) -> str:
    """The only name that a field selector lets through, if it names one."""
    for clause in selector.split(","):
        field, _, value = clause.partition("=")
        if field == "metadata.name" and value:
            return value.removeprefix("=")
    return ""
