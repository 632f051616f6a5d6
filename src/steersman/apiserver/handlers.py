"""From a parsed request to the function that answers it.

`dispatch` is the whole table of verbs. Answers are either a `Reply` or a `Watch`, whose bytes the HTTP layer sends as
they come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.apiserver import lifecycle, reads, statuses, subresources, writes

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.apiserver.api import Api, Reply
    from steersman.apiserver.kinds import ResourceInfo
    from steersman.apiserver.requests import Request
    from steersman.apiserver.watch import Watch

__all__ = ["dispatch"]

_VERBS: dict[str, Callable[[Api, Request], Reply | Watch]] = {
    "get": reads.get,
    "list": reads.list_objects,
    "watch": reads.watch,
    "create": writes.create,
    "update": writes.replace,
    "patch": writes.patch,
    "delete": lifecycle.delete,
    "deletecollection": lifecycle.delete_collection,
}
_WHILE_TERMINATING = {"patch", "update"}  # so that finalizers can be taken off; discovery does not show them
_NEEDS_NAMESPACE = {"create", "deletecollection"}


def dispatch(api: Api, request: Request) -> Reply | Watch:
    """Answer a request, or raise the StatusError that refuses it."""
    route, verb = request.route, request.verb
    info = route.info
    if info.deprecation:
        request.warnings.append(info.deprecation)
    if route.subresource:
        return subresources.dispatch(api, request, verb)
    allowed = _allowed(info, verb, route.name)
    if info.kind.namespaced and not route.namespace and verb in _NEEDS_NAMESPACE:
        allowed = False
    if not allowed:
        raise statuses.method_not_allowed()
    if info.virtual:
        return subresources.virtual(api, request, verb)
    return _VERBS[verb](api, request)


def _allowed(info: ResourceInfo, verb: str, name: str) -> bool:
    if verb == "create" and name:
        return False
    if verb in info.verbs or info.custom is None:
        return verb in info.verbs
    if verb == "create":
        raise statuses.StatusError(
            405,
            "create not allowed while custom resource definition is terminating",
            reason="MethodNotAllowed",
            details={"group": info.kind.group, "kind": info.kind.plural},
        )
    return verb in _WHILE_TERMINATING
