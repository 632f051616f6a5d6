"""APIServices: which group versions are served, and by whom. By this server, always; the list is made on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver import statuses
from steersman.apiserver.selection import Selection
from steersman.apiserver.store import Record

if TYPE_CHECKING:
    from steersman.apiserver.api import Api, Reply
    from steersman.apiserver.requests import Request

__all__ = ["read"]


def read(api: Api, request: Request, verb: str) -> Reply:
    """GET of one or of all."""
    from steersman.apiserver.api import Reply

    records = _records(api)
    route = request.route
    if verb == "get":
        found = next((record for record in records if record.key == route.name), None)
        if found is None:
            raise statuses.not_found(route.info.kind, route.name)
        return api.answer(request, found)
    query = request.query
    selection = Selection.parse(route.info, "", query.text("labelSelector"), query.text("fieldSelector"))
    metadata = {"resourceVersion": str(api.store.revision)}
    return Reply(200, api.view(request).many(list(selection.filter(records)), metadata), request.media.content_type)


def _records(api: Api) -> list[Record]:
    versions = dict.fromkeys((info.kind.group, info.kind.version) for info in api.registry.resources())
    return [_record(group, version, api.started) for group, version in sorted(versions, key=lambda gv: (gv[1], gv[0]))]


def _record(group: str, version: str, since: str) -> Record:
    name = f"{version}.{group}"
    spec: dict[str, Any] = {
        "version": version,
        "groupPriorityMinimum": 18000 if not group else 17000,
        "versionPriority": 15,
    }
    if group:
        spec = {"group": group, **spec}
    available = {
        "type": "Available",
        "status": "True",
        "lastTransitionTime": since,
        "reason": "Local",
        "message": "Local APIServices are always available",
    }
    metadata = {
        "name": name,
        "creationTimestamp": since,
        "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"},
        "resourceVersion": "1",
    }
    return Record(name, 1, {"metadata": metadata, "spec": spec, "status": {"conditions": [available]}})
