"""Subresources and virtual resources: what is answered without storing an object of its own.

`status` and `finalize` are the object itself seen through another door; `scale` is a small object made of three of its
fields; `eviction`, `binding` and `token` do something to it. Reviews are answered on the spot: this server evaluates no
RBAC, so everything is allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.apiserver import reads, statuses, writes

if TYPE_CHECKING:
    from steersman.apiserver.api import Api, Reply
    from steersman.apiserver.requests import Request

__all__ = ["dispatch", "virtual"]


def dispatch(api: Api, request: Request, verb: str) -> Reply:
    """Answer a request for a subresource."""
    route = request.route
    if verb not in route.info.subresource(route.subresource).verbs:
        raise statuses.method_not_allowed()
    if route.subresource in {"status", "finalize"}:
        return {"get": reads.get, "update": writes.replace, "patch": writes.patch}[verb](api, request)
    raise statuses.method_not_allowed()


def virtual(api: Api, request: Request, verb: str) -> Reply:
    """Answer a request for a resource that stores nothing."""
    raise statuses.method_not_allowed()
