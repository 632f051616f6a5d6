"""The discovery documents: what a client may ask this server for.

Each function is a pure view of the `Registry` and returns the JSON value of one endpoint. Two dialects say the same:
the legacy documents (`/api`, `/apis`, one per group, one per group and version) and the aggregated one
(`apidiscovery.k8s.io/v2`, served at `/api` and `/apis` to clients that ask for it in `Accept`).

The aggregated document leaves the group and version of a built-in resource's kind empty, as the real server does.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.apiserver import status_errors
from steersman.apiserver.storage.selection import Selection
from steersman.apiserver.storage.store import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.apiserver.http.requests import Request
    from steersman.apiserver.http.state import Api, Reply
    from steersman.apiserver.resources.kinds import ResourceInfo, Subresource
    from steersman.apiserver.resources.registry import Registry

JSON = dict[str, Any]

KUBERNETES_VERSION = "v1.36.3"  # whose behaviour this server models
AGGREGATED_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_PARAMETERS = {"g": "apidiscovery.k8s.io", "v": "v2", "as": "APIGroupDiscoveryList"}


def wants_aggregated(accept: str) -> bool:
    """Whether the first usable media type of an `Accept` header asks for the aggregated document in JSON.

    >>> wants_aggregated("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json")
    True
    >>> wants_aggregated("application/json")
    False
    """
    for clause in accept.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        if media not in {"application/json", "application/*", "*/*"}:
            continue
        named = dict(part.partition("=")[::2] for part in parameters)
        if "as" not in named:
            return False
        if all(named.get(key) == value for key, value in _PARAMETERS.items()):
            return True
    return False


def version() -> JSON:
    """`/version`. The build fields say what this is: the embedded server, not a build of Kubernetes."""
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": KUBERNETES_VERSION,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "steersman",
        "platform": "python",
    }


def core_versions(address: str) -> JSON:
    """`/api`. `address` is the host and port the server listens on."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def group_list(registry: Registry) -> JSON:
    """`/apis`."""
    groups = [_group(name, versions) for name, versions in _groups(registry) if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: Registry, name: str) -> JSON | None:
    """`/apis/GROUP`; None when there is no such group."""
    for other, versions in _groups(registry):
        if other == name and name:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}
    return None


def resource_list(registry: Registry, group_name: str, version_name: str) -> JSON | None:
    """`/api/v1` and `/apis/GROUP/VERSION`; None when there is no such version."""
    for name, versions in _groups(registry):
        if name == group_name and version_name in versions:
            rows = [row for info in versions[version_name] for row in _legacy_rows(info)]
            group_version = f"{name}/{version_name}" if name else version_name
            head = {"kind": "APIResourceList"} if not name else {"kind": "APIResourceList", "apiVersion": "v1"}
            return {**head, "groupVersion": group_version, "resources": rows}
    return None


def aggregated(registry: Registry, *, core: bool) -> JSON:
    """The aggregated document of `/api` (core) or `/apis` (everything else)."""
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": name} if name else {},
                "versions": [
                    {"version": version, "resources": [_aggregated_row(i) for i in infos], "freshness": "Current"}
                    for version, infos in versions.items()
                ],
            }
            for name, versions in _groups(registry)
            if core == (not name)
        ],
    }


def aggregated_etag(document: JSON) -> str:
    """The entity tag of an aggregated document: equal documents, equal tags."""
    return f'"{hashlib.sha512(msgspec.json.encode(document)).hexdigest().upper()}"'


def _groups(registry: Registry) -> Iterable[tuple[str, dict[str, list[ResourceInfo]]]]:
    """Groups in order, each with its versions in order of preference."""
    groups: dict[str, dict[str, list[ResourceInfo]]] = {}
    for info in registry.resources():
        groups.setdefault(info.kind.group, {}).setdefault(info.kind.version, []).append(info)
    return groups.items()


def _group(name: str, versions: Iterable[str]) -> JSON:
    rows = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": rows, "preferredVersion": rows[0]}


def _legacy_rows(info: ResourceInfo) -> Iterable[JSON]:
    kind = info.kind
    row: JSON = {
        "name": kind.plural,
        "singularName": info.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(info.verbs),
        **_names(info),
    }
    if info.storage_hash:
        row["storageVersionHash"] = info.storage_hash
    yield row
    for name in info.subresources:
        sub = info.subresource(name)
        own = sub.kind is not None and sub.kind.group != kind.group
        yield {
            "name": f"{kind.plural}/{name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            **({"group": sub.kind.group, "version": sub.kind.version} if own and sub.kind else {}),
            "kind": sub.kind.kind if sub.kind else kind.kind,
            "verbs": list(sub.verbs),
        }


def _names(info: ResourceInfo) -> JSON:
    names: JSON = {}
    if info.short_names:
        names["shortNames"] = list(info.short_names)
    if info.categories:
        names["categories"] = list(info.categories)
    return names


def _aggregated_row(info: ResourceInfo) -> JSON:
    row: JSON = {
        "resource": info.kind.plural,
        "responseKind": _response_kind(info, None),
        "scope": "Namespaced" if info.kind.namespaced else "Cluster",
        "singularResource": info.singular,
        "verbs": list(info.verbs),
        **_names(info),
    }
    if info.subresources:
        subs = ((name, info.subresource(name)) for name in info.subresources)
        row["subresources"] = [
            {"subresource": name, "responseKind": _response_kind(info, sub), "verbs": list(sub.verbs)}
            for name, sub in subs
        ]
    return row


def _response_kind(info: ResourceInfo, sub: Subresource | None) -> JSON:
    if sub is not None and sub.kind is not None and sub.kind.group != info.kind.group:
        return {"group": sub.kind.group, "version": sub.kind.version, "kind": sub.kind.kind}
    kind = sub.kind.kind if sub is not None and sub.kind is not None else info.kind.kind
    if info.custom is None:
        return {"group": "", "version": "", "kind": kind}
    return {"group": info.kind.group, "version": info.kind.version, "kind": kind}


def read_virtual(api: Api, request: Request, verb: str) -> Reply:
    """GET of one or of all APIServices, or ComponentStatuses.

    Every group and version is served by this server, and this server has no components.
    """
    from steersman.apiserver.http.state import Reply

    route = request.route
    records = _api_services(api) if route.info.kind.plural == "apiservices" else []
    if verb == "get":
        found = next((record for record in records if record.key == route.name), None)
        if found is None:
            raise status_errors.not_found(route.info.kind, route.name)
        return api.answer(request, found)
    query = request.query
    selection = Selection.parse(route.info, "", query.text("labelSelector"), query.text("fieldSelector"))
    metadata = {"resourceVersion": str(api.store.revision)}
    return Reply(
        200, api.view(request).encode_list(list(selection.filter(records)), metadata), request.media.content_type
    )


def _api_services(api: Api) -> list[Record]:
    versions = dict.fromkeys((info.kind.group, info.kind.version) for info in api.registry.resources())
    return [
        _api_service(group, version, api.started) for group, version in sorted(versions, key=lambda gv: (gv[1], gv[0]))
    ]


def _api_service(group: str, version: str, since: str) -> Record:
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
