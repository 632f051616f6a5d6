from __future__ import annotations

import json
from typing import Any

from steersman.apiserver.discovery.openapi import Documents
from steersman.apiserver.resources.registry import Registry

NOW = "2026-01-01T00:00:00Z"
META = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1."


def definition(scope: str = "Namespaced", **properties: Any) -> dict[str, Any]:
    schema = {
        "type": "object",
        "description": "A widget.",
        "properties": {"spec": {"type": "object", "properties": properties}},
    }
    return {
        "metadata": {"name": "widgets.my-co.org"},
        "spec": {
            "group": "my-co.org",
            "scope": scope,
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def installed(crd: dict[str, Any]) -> Documents:
    registry = Registry()
    registry.install(crd, now=NOW)
    return Documents(registry)


def custom(crd: dict[str, Any]) -> dict[str, Any]:
    document = installed(crd).document("apis/my-co.org/v1")
    assert document is not None
    found: dict[str, Any] = json.loads(document.body)
    return found


def test_the_index_leads_to_every_document_and_names_its_content() -> None:
    documents = installed(definition())
    index = documents.index()["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/my-co.org/v1"} <= index.keys()
    for path, entry in index.items():
        document = documents.document(path)
        assert document is not None
        assert entry["serverRelativeURL"] == f"/openapi/v3/{path}?hash={document.hash}"


def test_built_in_documents_describe_their_kinds() -> None:
    document = Documents(Registry()).document("apis/apps/v1")
    assert document is not None
    schemas = json.loads(document.body)["components"]["schemas"]
    assert "io.k8s.api.apps.v1.Deployment" in schemas


def test_nothing_is_found_where_nothing_is_served() -> None:
    documents = Documents(Registry())
    for path in ("apis/my-co.org/v1", "apis/apps", "api", "", "apis/../api/v1"):
        assert documents.document(path) is None


def test_a_custom_kind_has_the_metadata_every_object_has() -> None:
    schemas = custom(definition(size={"type": "integer"}))["components"]["schemas"]
    widget = schemas["org.my-co.v1.Widget"]
    assert widget["description"] == "A widget."
    assert widget["x-kubernetes-group-version-kind"] == [{"group": "my-co.org", "kind": "Widget", "version": "v1"}]
    assert widget["properties"]["metadata"]["allOf"] == [{"$ref": f"{META}ObjectMeta"}]
    assert widget["properties"]["spec"]["properties"] == {"size": {"type": "integer"}}
    assert schemas["org.my-co.v1.WidgetList"]["properties"]["items"]["items"] == {
        "$ref": "#/components/schemas/org.my-co.v1.Widget"
    }


def test_extensions_are_spelled_out() -> None:
    schemas = custom(
        definition(
            port={"x-kubernetes-int-or-string": True},
            inner={
                "type": "object",
                "x-kubernetes-embedded-resource": True,
                "x-kubernetes-preserve-unknown-fields": True,
            },
        )
    )["components"]["schemas"]
    spec = schemas["org.my-co.v1.Widget"]["properties"]["spec"]["properties"]
    assert spec["port"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert spec["inner"]["required"] == ["kind", "apiVersion"]
    assert set(spec["inner"]["properties"]) == {"apiVersion", "kind", "metadata"}


def test_kubectl_finds_the_parameters_it_looks_for() -> None:
    paths = custom(definition())["paths"]
    patch = paths["/apis/my-co.org/v1/namespaces/{namespace}/widgets/{name}"]["patch"]
    assert {"dryRun", "fieldManager", "fieldValidation", "force"} == {
        parameter["name"] for parameter in patch["parameters"]
    }
    assert patch["x-kubernetes-group-version-kind"] == {"group": "my-co.org", "version": "v1", "kind": "Widget"}
    assert patch["operationId"] == "patchMyCoOrgV1NamespacedWidget"


def test_paths_follow_scope_and_subresources() -> None:
    assert set(custom(definition())["paths"]) == {
        "/apis/my-co.org/v1/widgets",
        "/apis/my-co.org/v1/namespaces/{namespace}/widgets",
        "/apis/my-co.org/v1/namespaces/{namespace}/widgets/{name}",
        "/apis/my-co.org/v1/namespaces/{namespace}/widgets/{name}/status",
    }
    assert set(custom(definition(scope="Cluster"))["paths"]) == {
        "/apis/my-co.org/v1/widgets",
        "/apis/my-co.org/v1/widgets/{name}",
        "/apis/my-co.org/v1/widgets/{name}/status",
    }


def test_every_reference_of_a_generated_document_leads_somewhere() -> None:
    found = custom(definition())
    text = json.dumps(found)
    named = {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert named
    assert named <= found["components"]["schemas"].keys()


def test_a_changed_definition_changes_the_document_and_an_unchanged_one_is_built_once() -> None:
    registry = Registry()
    registry.install(definition(), now=NOW)
    documents = Documents(registry)
    first = documents.document("apis/my-co.org/v1")
    assert documents.document("apis/my-co.org/v1") is first
    registry.install(definition(extra={"type": "string"}), now=NOW)
    second = documents.document("apis/my-co.org/v1")
    assert first is not None
    assert second is not None
    assert second.hash != first.hash
