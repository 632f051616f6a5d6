"""Subresources and virtual resources: what is answered without storing an object of its own.

`status` and `finalize` are the object itself seen through another door; `scale` is a small object made of three of its
fields; `eviction`, `binding` and `token` do something to it. Reviews are answered on the spot: this server evaluates no
RBAC, so everything is allowed.
"""

from __future__ import annotations

from collections.abc import Callable

from steersman.apiserver import apiservices, pods, reads, reviews, scale, statuses, writes
from steersman.apiserver.api import Api, Reply
from steersman.apiserver.requests import Request
from steersman.kube.resources import Kind

__all__ = ["dispatch", "virtual"]

Handler = Callable[[Api, Request], Reply]
BINDING_RESOURCE = Kind(version="v1", kind="Binding", plural="bindings")


def dispatch(api: Api, request: Request, verb: str) -> Reply:
    """Answer a request for a subresource."""
    route = request.route
    if verb not in route.info.subresource(route.subresource).verbs:
        raise statuses.method_not_allowed()
    return _HANDLERS[route.subresource][verb](api, request)


def virtual(api: Api, request: Request, verb: str) -> Reply:
    """Answer a request for a resource that stores nothing."""
    kind = request.route.info.kind
    if kind == BINDING_RESOURCE:
        return pods.bind(api, request)
    if verb == "create":
        return reviews.review(api, request)
    return apiservices.read(api, request, verb)


_OBJECT: dict[str, Handler] = {"get": reads.get, "update": writes.replace, "patch": writes.patch}
_HANDLERS: dict[str, dict[str, Handler]] = {
    "binding": {"create": pods.bind},
    "eviction": {"create": pods.evict},
    "finalize": _OBJECT,
    "scale": {"get": scale.get_scale, "update": scale.replace_scale, "patch": scale.patch_scale},
    "status": _OBJECT,
    "token": {"create": reviews.issue_token},
}
