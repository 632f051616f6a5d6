"""The OpenAPI 3.1 document of the JSON API, made of the table of paths and the types of their answers. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.web.api import ENDPOINTS, PREFIX
from steersman.web.health import own_version
from steersman.web.model import ApiProblem

if TYPE_CHECKING:
    from steersman.web.api import ApiPath

_REFERENCES = "#/components/schemas/{name}"


@lru_cache(maxsize=1)
def openapi() -> dict[str, Any]:
    """The document."""
    types = [*(endpoint.answer for endpoint in ENDPOINTS), ApiProblem]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCES)
    shown = dict(zip([*(endpoint.path for endpoint in ENDPOINTS), ""], schemas, strict=True))
    paths = {f"{PREFIX}{endpoint.path}": {"get": _operation(endpoint, shown)} for endpoint in ENDPOINTS}
    paths[f"{PREFIX}/events"] = {"get": _events(shown)}
    paths[f"{PREFIX}/openapi.json"] = {"get": _document()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Steersman",
            "version": own_version(),
            "description": "What a running Steersman knows. Read-only; names, keys and digests, never a value.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"bearer": []}],
    }


def _operation(endpoint: ApiPath, shown: dict[str, Any]) -> dict[str, Any]:
    problem = shown[""]
    parameters = [*_parameters(endpoint.within, "path"), *_parameters(endpoint.query, "query")]
    answers = {"200": _answer("The answer.", shown[endpoint.path]), "400": _answer("A parameter is wrong.", problem)}
    if endpoint.within.__struct_fields__:
        answers["404"] = _answer("Not found.", problem)
    return {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": parameters,
        "responses": answers | _refusals(problem),
    }


def _refusals(problem: dict[str, Any]) -> dict[str, Any]:
    return {"401": _answer("No token, or an unknown one.", problem), "403": _answer("Not for this caller.", problem)}


def _answer(text: str, schema: dict[str, Any], media: str = "application/json") -> dict[str, Any]:
    return {"description": text, "content": {media: {"schema": schema}}}


def _parameters(shape: type[msgspec.Struct], place: str) -> list[dict[str, Any]]:
    (schema,), components = msgspec.json.schema_components([shape], ref_template=_REFERENCES)
    described = components[schema["$ref"].rpartition("/")[2]]
    found = []
    for name, described_field in described["properties"].items():
        own = {key: value for key, value in described_field.items() if key not in {"description", "default"}}
        parameter: dict[str, Any] = {"name": name, "in": place, "schema": own}
        if "anyOf" in own:  # an optional parameter is left out, not null
            parameter["schema"] = next(kind for kind in own["anyOf"] if kind != {"type": "null"})
        if place == "path":
            parameter["required"] = True
        if "description" in described_field:
            parameter["description"] = described_field["description"]
        found.append(parameter)
    return found


def _events(shown: dict[str, Any]) -> dict[str, Any]:
    text = "Server-sent events: `change` when a view is out of date, `beat` every few seconds."
    busy = {"503": _answer("Too many listeners.", shown[""])}
    return {
        "operationId": "events",
        "summary": text,
        "responses": {"200": _answer(text, {"type": "string"}, "text/event-stream")} | busy | _refusals(shown[""]),
    }


def _document() -> dict[str, Any]:
    return {
        "operationId": "openapi",
        "summary": "This document.",
        "responses": {"200": _answer("This document.", {"type": "object"})},
    }
