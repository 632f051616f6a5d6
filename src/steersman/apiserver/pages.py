"""Everything that is not an object: discovery, OpenAPI, version, health, metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.apiserver import discovery, statuses
from steersman.apiserver.api import Reply

if TYPE_CHECKING:
    from aiohttp import web

    from steersman.apiserver.http import Frontend
    from steersman.apiserver.openapi import Document
    from steersman.apiserver.requests import Query

__all__ = ["PUBLIC", "page"]

PUBLIC = ("/healthz", "/livez", "/readyz", "/version")
_encode = msgspec.json.Encoder().encode


async def page(front: Frontend, http: web.BaseRequest, path: str, query: Query) -> Reply:  # noqa: ARG001
    """The page at `path`."""
    accept = http.headers.get("Accept", "")
    registry = front.api.registry
    match [part for part in path.split("/") if part]:
        case ["version"]:
            return _json(discovery.version())
        case [("healthz" | "livez" | "readyz") as check, *_]:
            text = f"[+]ping ok\n{check} check passed\n" if "verbose" in query else "ok"
            return Reply(200, text.encode(), "text/plain; charset=utf-8", {"X-Content-Type-Options": "nosniff"})
        case ["api"] | ["apis"] as parts if discovery.wants_aggregated(accept):
            document = discovery.aggregated(registry, core=parts == ["api"])
            etag = discovery.aggregated_etag(document)
            if http.headers.get("If-None-Match") == etag:
                return Reply(304, b"", discovery.AGGREGATED_TYPE, {"ETag": etag})
            return Reply(200, _encode(document) + b"\n", discovery.AGGREGATED_TYPE, {"ETag": etag, "Vary": "Accept"})
        case ["api"]:
            return _json(discovery.core_versions(front.address), {"Vary": "Accept"})
        case ["apis"]:
            return _json(discovery.group_list(registry), {"Vary": "Accept"})
        case ["api", version]:
            return _found(discovery.resource_list(registry, "", version), served=True)
        case ["apis", group]:
            return _found(discovery.group(registry, group), served=False)
        case ["apis", group, version]:
            served = any(info.kind.group == group for info in registry.resources())
            return _found(discovery.resource_list(registry, group, version), served=served)
        case ["openapi", "v3"]:
            return _json(front.documents.index())
        case ["openapi", "v3", *rest]:
            return _document(front.documents.document("/".join(rest)), http, query)
        case ["metrics"]:
            return Reply(200, _metrics(front), "text/plain; version=0.0.4; charset=utf-8")
    raise statuses.page_not_found()


def _json(document: dict[str, Any], headers: dict[str, str] | None = None) -> Reply:
    return Reply(200, _encode(document) + b"\n", "application/json", headers)


def _found(document: dict[str, Any] | None, *, served: bool) -> Reply:
    if document is not None:
        return _json(document)
    raise statuses.resource_not_found() if served else statuses.page_not_found()


def _document(document: Document | None, http: web.BaseRequest, query: Query) -> Reply:
    if document is None:
        raise statuses.page_not_found()
    etag = f'"{document.hash}"'
    headers = {"ETag": etag, "Vary": "Accept-Encoding, Accept"}
    if query.text("hash") == document.hash:
        headers["Cache-Control"] = "public, immutable"
    if http.headers.get("If-None-Match") == etag:
        return Reply(304, b"", "application/json", headers)
    return Reply(200, document.body, "application/json", headers)


def _metrics(front: Frontend) -> bytes:
    api = front.api
    lines = [
        "# HELP apiserver_storage_objects Number of stored objects at the time of last check split by resource.",
        "# TYPE apiserver_storage_objects gauge",
    ]
    lines += [
        f'apiserver_storage_objects{{resource="{table.kind.qualified}"}} {len(table.records)}'
        for table in api.store.tables()
    ]
    lines += [
        "# HELP apiserver_current_watches Watches that are open.",
        "# TYPE apiserver_current_watches gauge",
        f"apiserver_current_watches {len(api.hub.open)}",
        "# HELP apiserver_revision The current revision of the store.",
        "# TYPE apiserver_revision counter",
        f"apiserver_revision {api.store.revision}",
    ]
    return ("\n".join(lines) + "\n").encode()
