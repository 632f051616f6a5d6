"""The OpenAPI 3.1 document, made from the types that are decoded and encoded. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from steersman.operators.toolset.reconcile.status import ServiceView, ToolsetView


class DiscoverRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Which services to probe."""

    namespaces: list[str] = []  # none: all
    service_types: list[str] = []  # none: all
    force: bool = False  # also healthy ones


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """No fields."""


class ValidateRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Tools to validate."""

    tools: list[dict[str, Any]]


_PROBLEM: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["type", "title", "detail", "status", "instance", "request_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "detail": {"type": "string"},
        "status": {"type": "integer"},
        "instance": {"type": "string"},
        "request_id": {"type": "string"},
    },
}
_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_MAYBE_TEXT: Final = {"anyOf": [{"type": "string"}, {"type": "null"}]}


def document(*, writes: bool = True) -> dict[str, Any]:
    """The whole document; without `writes` the paths that would answer 403 are left out."""
    shapes = [ServiceView, ToolsetView, DiscoverRequest, GenerateRequest, ValidateRequest]
    _, components = msgspec.json.schema_components(shapes, ref_template="#/components/schemas/{name}")
    toolset, service = _ref("ToolsetView"), _ref("ServiceView")
    listing = _object(toolsets=_list(toolset), total=_NUMBER, configMapVersion=_TEXT, lastDiscovery=_MAYBE_TEXT)
    targets = _object(targets=_list({"type": "object"}), total=_NUMBER)
    booleans = [_query("enabled", {"type": "boolean"}), _query("healthy", {"type": "boolean"})]
    filters = [_query("namespace", _TEXT), _query("type", _TEXT)]
    accepted = _object(message=_TEXT, jobId=_TEXT, estimatedCompletion=_TEXT)
    paths: dict[str, Any] = {
        "/api/v1/toolsets": {"get": _get("toolsets", listing, parameters=booleans, bad=True)},
        "/api/v1/toolsets/{name}": {"get": _get("toolset", toolset, parameters=[_path("name")], missing=True)},
        "/api/v1/toolset": {"get": _get("legacyToolset", _object(tools=_list({"type": "object"})))},
        "/api/v1/services": {
            "get": _get("services", _object(services=_list(service), total=_NUMBER), parameters=filters)
        },
        "/api/v1/drift": {"get": _get("drift", targets)},
        "/api/v1/plan": {"get": _get("plan", targets)},
        "/api/v1/toolsets/validate": {
            "post": _post(
                "validate",
                "ValidateRequest",
                200,
                _object(valid={"type": "boolean"}, errors=_list(_object(field=_TEXT, message=_TEXT))),
            )
        },
    }
    if writes:
        job = _object(jobId=_TEXT, done={"type": "boolean"}, services=_list(service), total=_NUMBER)
        paths |= {
            "/api/v1/discover": {"post": _post("discover", "DiscoverRequest", 202, accepted)},
            "/api/v1/discover/{job}": {"get": _get("job", job, parameters=[_path("job")], missing=True)},
            "/api/v1/toolsets/generate": {"post": _post("generate", "GenerateRequest", 202, listing)},
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Steersman toolset", "version": "1", "description": "Services, toolsets and drift."},
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": _PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": sorted(properties), "properties": properties}


def _list(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


def _query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _responses(status: int, schema: dict[str, Any], refusals: dict[str, str]) -> dict[str, Any]:
    problem = {"application/problem+json": {"schema": _ref("Problem")}}
    common = {
        "401": "no valid token",
        "403": "not allowed",
        "429": "too many",
        "500": "internal error",
    }
    answers: dict[str, Any] = {
        str(status): {"description": "the answer", "content": {"application/json": {"schema": schema}}}
    }
    return answers | {code: {"description": why, "content": problem} for code, why in (common | refusals).items()}


def _get(
    name: str,
    schema: dict[str, Any],
    *,
    parameters: list[dict[str, Any]] | None = None,
    bad: bool = False,
    missing: bool = False,
) -> dict[str, Any]:
    refusals = ({"400": "a parameter is invalid"} if bad else {}) | ({"404": "not found"} if missing else {})
    return {"operationId": name, "parameters": parameters or [], "responses": _responses(200, schema, refusals)}


def _post(name: str, shape: str, status: int, schema: dict[str, Any]) -> dict[str, Any]:
    refusals = {"400": "the body is invalid", "413": "the body is too large", "415": "not JSON"}
    return {
        "operationId": name,
        "requestBody": {"required": True, "content": {"application/json": {"schema": _ref(shape)}}},
        "responses": _responses(status, schema, refusals),
    }
