"""Which verbs the methods of a context and of a client need: the tables that `source_reader` looks calls up in.

A method without a row needs rights that cannot be known from its name.
"""

from __future__ import annotations

from typing import Final

import msgspec

from steersman.kube.api.gvk import Kind

__all__ = ["RETURN_THEMSELVES", "UNRESTRICTED", "MethodVerbs", "verbs_of"]


class MethodVerbs(msgspec.Struct, frozen=True):
    """What one call of a method needs."""

    verbs: tuple[str, ...]
    subresource: str = ""
    kind: Kind | None = None  # None: that of the first argument


RETURN_THEMSELVES: Final = {"snapshot", "with_options"}  # a context or a client with other options
UNRESTRICTED: Final = {"can_i", "server_version", "api_resources", "openapi", "effect", "sleep"}

_PODS: Final = Kind(version="v1", kind="Pod", plural="pods")
_EVENTS: Final = Kind(version="v1", kind="Event", plural="events")
_ACCOUNTS: Final = Kind(version="v1", kind="ServiceAccount", plural="serviceaccounts")

_OF_BOTH: Final = {
    "apply": MethodVerbs(("create", "patch")),
    "create": MethodVerbs(("create",)),
    "patch": MethodVerbs(("patch",)),
    "delete": MethodVerbs(("delete",)),
    # a stream is opened by GET, and newer servers ask for `create` as well
    "logs": MethodVerbs(("get",), "log", _PODS),
    "follow_logs": MethodVerbs(("get",), "log", _PODS),
    "exec": MethodVerbs(("get", "create"), "exec", _PODS),
    "open_exec": MethodVerbs(("get", "create"), "exec", _PODS),
    "port_forward": MethodVerbs(("get", "create"), "portforward", _PODS),
    "evict": MethodVerbs(("create",), "eviction", _PODS),
    "create_token": MethodVerbs(("create",), "token", _ACCOUNTS),
    "event": MethodVerbs(("create", "patch"), kind=_EVENTS),
}
_OF_CONTEXTS: Final = _OF_BOTH | {
    "status": MethodVerbs(("patch",), "status"),
    "set_condition": MethodVerbs(("patch",), "status"),
    "add_finalizer": MethodVerbs(("patch",)),
    "remove_finalizer": MethodVerbs(("patch",)),
}
_OF_CLIENTS: Final = _OF_BOTH | {
    "get": MethodVerbs(("get",)),
    "list": MethodVerbs(("list",)),
    "pages": MethodVerbs(("list",)),
    "watch": MethodVerbs(("watch",)),
    "replace": MethodVerbs(("update",)),
    "update_with_retry": MethodVerbs(("get", "update")),
    "delete_collection": MethodVerbs(("deletecollection",)),
    "scale": MethodVerbs(("get",), "scale"),  # `patch` when it is given a number of replicas
}


def verbs_of(method: str, *, of_client: bool) -> MethodVerbs | None:
    """What a method of a client, or of a context, needs; None when it is not known."""
    return (_OF_CLIENTS if of_client else _OF_CONTEXTS).get(method)
