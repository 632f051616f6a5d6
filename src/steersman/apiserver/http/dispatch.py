"""From a parsed request to the function that answers it: one table of verbs, one of subresources.

Answers are either a `Reply` or a `Watch`, whose bytes the listener sends as they come. `status`, `approval`,
`finalize`, `ephemeralcontainers` and `resize` are the object itself under another path; `scale` is a small object made
of three of its fields; `eviction`, `binding` and `token` do something to it. Virtual resources (reviews, APIServices,
ComponentStatuses) are answered without storing anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from steersman.apiserver import status_errors
from steersman.apiserver.discovery import documents
from steersman.apiserver.http.requests import Request
from steersman.apiserver.http.state import Api, Reply
from steersman.apiserver.storage import reads
from steersman.apiserver.subresources import access_reviews, pods, scale
from steersman.apiserver.write import deletion, verbs

if TYPE_CHECKING:
    from steersman.apiserver.resources.kinds import ResourceInfo
    from steersman.apiserver.storage.watch import Watch

Handler = Callable[[Api, Request], Reply]
_VERBS: dict[str, Callable[[Api, Request], Reply | Watch]] = {
    "get": reads.get,
    "list": reads.list_objects,
    "watch": reads.watch,
    "create": verbs.create,
    "update": verbs.replace,
    "patch": verbs.patch,
    "delete": deletion.delete,
    "deletecollection": deletion.delete_collection,
}
_OBJECT: dict[str, Handler] = {"get": reads.get, "update": verbs.replace, "patch": verbs.patch}
_SUBRESOURCES: dict[str, dict[str, Handler]] = {
    "approval": _OBJECT,
    "binding": {"create": pods.bind},
    "ephemeralcontainers": _OBJECT,
    "eviction": {"create": pods.evict},
    "finalize": _OBJECT,
    "resize": _OBJECT,
    "scale": {"get": scale.get_scale, "update": scale.replace_scale, "patch": scale.patch_scale},
    "status": _OBJECT,
    "token": {"create": access_reviews.issue_token},
}
_WHILE_TERMINATING = {"patch", "update"}  # so that finalizers can be taken off; discovery does not show them
_NEEDS_NAMESPACE = {"create", "deletecollection"}


def dispatch(api: Api, request: Request) -> Reply | Watch:
    """Answer a request, or raise the StatusError that rejects it."""
    route, verb = request.route, request.verb
    info = route.info
    if info.deprecation:
        request.warnings.append(info.deprecation)
    if route.subresource:
        if verb not in info.subresource(route.subresource).verbs:
            raise status_errors.method_not_allowed()
        return _SUBRESOURCES[route.subresource][verb](api, request)
    allowed = _allowed(info, verb, route.name)
    if info.kind.namespaced and not route.namespace and verb in _NEEDS_NAMESPACE:
        allowed = False
    if not allowed:
        raise status_errors.method_not_allowed()
    return _virtual(api, request, verb) if info.virtual else _VERBS[verb](api, request)


def _allowed(info: ResourceInfo, verb: str, name: str) -> bool:
    if verb == "create" and name:
        return False
    if verb in info.verbs or info.custom is None:
        return verb in info.verbs
    if verb == "create":
        raise status_errors.StatusError(
            405,
            "create not allowed while custom resource definition is terminating",
            reason="MethodNotAllowed",
            details={"group": info.kind.group, "kind": info.kind.plural},
        )
    return verb in _WHILE_TERMINATING


def _virtual(api: Api, request: Request, verb: str) -> Reply:
    """Answer a request for a resource that stores nothing."""
    if request.route.info.kind.qualified == "bindings":
        return pods.bind(api, request)
    if verb == "create":
        return access_reviews.review(api, request)
    return documents.read_virtual(api, request, verb)
