"""Everything that is not an object: discovery, OpenAPI, version, health, metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.apiserver import status_errors
from steersman.apiserver.discovery import documents
from steersman.apiserver.discovery.openapi import Documents
from steersman.apiserver.http.state import Reply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.apiserver.http.requests import Query
    from steersman.apiserver.http.state import Api

PUBLIC = ("/healthz", "/livez", "/readyz", "/version")  # for everyone, without credentials
_OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_encode = msgspec.json.Encoder().encode
JSON = dict[str, Any]


class NonResourceEndpoints:
    """The pages of one server."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._documents = Documents(api.registry)
        self.address = ""  # where the server listens, once it does

    def page(self, path: str, query: Query, headers: Mapping[str, str]) -> Reply:
        """The page at `path`; 404 when there is none."""
        parts = [part for part in path.split("/") if part]
        match parts:
            case ["version"]:
                return _json(documents.version())
            case [("healthz" | "livez" | "readyz") as check, *_]:
                return _text(f"[+]ping ok\n{check} check passed\n" if "verbose" in query else "ok")
            case ["metrics"]:
                return Reply(200, self._metrics(), "text/plain; version=0.0.4; charset=utf-8")
            case ["openapi", "v2"]:
                return _legacy_openapi(headers)
            case ["openapi", "v3", *rest]:
                return self._openapi("/".join(rest), query, headers)
            case [("api" | "apis") as root, *rest]:
                return self._discovery(root, rest, headers)
            case []:
                return _json({"paths": self._paths()})
        raise status_errors.page_not_found()

    def _discovery(self, root: str, rest: list[str], headers: Mapping[str, str]) -> Reply:
        registry = self._api.registry
        if not rest and documents.wants_aggregated(headers.get("Accept", "")):
            document = documents.aggregated(registry, core=root == "api")
            tag = documents.aggregated_etag(document)
            return _tagged(_encode(document) + b"\n", documents.AGGREGATED_TYPE, tag, headers, {"Vary": "Accept"})
        served = True
        found: JSON | None
        match root, rest:
            case "api", []:
                found = documents.core_versions(self.address)
            case "apis", []:
                found = documents.group_list(registry)
            case "api", [version]:
                found = documents.resource_list(registry, "", version)
            case "apis", [group]:
                found, served = documents.group(registry, group), False
            case _, [group, version]:
                found = documents.resource_list(registry, group, version)
                served = documents.group(registry, group) is not None
            case _:
                found = None
        if found is None:
            raise status_errors.resource_not_found() if served else status_errors.page_not_found()
        return _json(found, {} if rest else {"Vary": "Accept"})

    def _openapi(self, path: str, query: Query, headers: Mapping[str, str]) -> Reply:
        if not path:
            return _json(self._documents.index())
        document = self._documents.document(path)
        if document is None:
            raise status_errors.page_not_found()
        more = {"Vary": "Accept-Encoding, Accept"}
        if query.text("hash") == document.hash:
            more["Cache-Control"] = "public, immutable"
        return _tagged(document.body, "application/json", f'"{document.hash}"', headers, more)

    def _paths(self) -> list[str]:
        versions = {info.kind.root for info in self._api.registry.resources()}
        groups = {root.rpartition("/")[0] for root in versions if root.startswith("/apis/")}
        return sorted({"/api", "/apis", "/metrics", "/openapi/v2", "/openapi/v3", *PUBLIC, *versions, *groups})

    def _metrics(self) -> bytes:
        store = self._api.store
        lines = [
            "# HELP apiserver_storage_objects Number of stored objects at the time of last check split by resource.",
            "# TYPE apiserver_storage_objects gauge",
            *(
                f'apiserver_storage_objects{{resource="{table.kind.qualified}"}} {len(table.records)}'
                for table in store.tables()
            ),
            "# HELP apiserver_current_watches Watches that are open.",
            "# TYPE apiserver_current_watches gauge",
            f"apiserver_current_watches {len(self._api.hub.open)}",
            "# HELP apiserver_revision The current revision of the store.",
            "# TYPE apiserver_revision counter",
            f"apiserver_revision {store.revision}",
        ]
        return ("\n".join(lines) + "\n").encode()


def _json(document: JSON, headers: dict[str, str] | None = None) -> Reply:
    return Reply(200, _encode(document) + b"\n", "application/json", headers)


def _legacy_openapi(headers: Mapping[str, str]) -> Reply:
    """OpenAPI v2 without content: everything is in v3, where clients look first; here they find no type, and say so."""
    if "proto-openapi.spec.v2" in headers.get("Accept", ""):
        return Reply(200, b"\x0a\x032.0", _OPENAPI_V2)  # the message with only `swagger` set
    info = {"title": "Kubernetes", "version": documents.KUBERNETES_VERSION}
    return _json({"swagger": "2.0", "info": info, "paths": {}, "definitions": {}})


def _text(text: str) -> Reply:
    return Reply(200, text.encode(), "text/plain; charset=utf-8", {"X-Content-Type-Options": "nosniff"})


def _tagged(body: bytes, media: str, tag: str, headers: Mapping[str, str], more: dict[str, str]) -> Reply:
    """A document that the client may still have."""
    if headers.get("If-None-Match") == tag:
        return Reply(304, b"", media, {"ETag": tag, **more})
    return Reply(200, body, media, {"ETag": tag, **more})
