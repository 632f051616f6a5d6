from __future__ import annotations

import pytest

from steersman.apiserver.resources.schema import Schema, builtin_document, builtin_schema, custom_schema
from steersman.kube.api.gvk import Kind

DEPLOYMENT = Kind(group="apps", version="v1", kind="Deployment", plural="deployments")


def test_a_deployment_knows_how_its_lists_are_merged():
    pod = builtin_schema(DEPLOYMENT).fields["spec"].fields["template"].fields["spec"]
    containers = pod.fields["containers"]
    ports = containers.items.fields["ports"]
    assert (containers.list_type, containers.keys, containers.merge_key) == ("map", ("name",), "name")
    assert (ports.keys, ports.key_defaults["protocol"]) == (("containerPort", "protocol"), "TCP")
    assert pod.fields["tolerations"].list_type == "atomic"
    assert pod.fields["volumes"].strategy == {"merge", "retainKeys"}


def test_atomic_maps_and_free_maps_are_distinguished():
    schema = builtin_schema(DEPLOYMENT)
    assert schema.fields["spec"].fields["selector"].map_atomic
    labels = schema.fields["metadata"].fields["labels"]
    assert (labels.map_atomic, labels.fields, labels.element.scalar) == (False, {}, "string")


def test_quantities_and_int_or_strings_are_scalars_of_any_type():
    spec = builtin_schema(DEPLOYMENT).fields["spec"]
    container = spec.fields["template"].fields["spec"].fields["containers"].items
    assert container.fields["resources"].fields["limits"].element.scalar == "untyped"
    assert spec.fields["strategy"].fields["rollingUpdate"].fields["maxSurge"].scalar == "untyped"


def test_an_unrecorded_kind_is_an_error_that_names_it():
    with pytest.raises(LookupError, match=r"Nonsense in apps/v1"):
        builtin_schema(Kind(group="apps", version="v1", kind="Nonsense", plural="nonsenses"))
    with pytest.raises(LookupError, match=r"nowhere/v9"):
        builtin_schema(Kind(group="nowhere", version="v9", kind="X", plural="xs"))
    assert builtin_document("nowhere", "v9") is None


def test_a_recursive_type_loads_one_level_at_a_time():
    node = {
        "type": "object",
        "properties": {"child": {"$ref": "#/components/schemas/Node"}, "name": {"type": "string"}},
    }
    schema = Schema.from_openapi({"$ref": "#/components/schemas/Node"}, {"Node": node})
    for _ in range(50):
        schema = schema.fields["child"]
    assert schema.fields["name"].scalar == "string"


def test_a_custom_resource_has_the_metadata_every_object_has():
    schema = custom_schema({"type": "object", "properties": {"spec": {"type": "object"}}}, status=True)
    assert schema.fields["metadata"].fields["finalizers"].list_type == "set"
    assert schema.fields["apiVersion"].scalar == "string"


def test_embedded_resources_have_metadata_too():
    part = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    schema = custom_schema({"type": "object", "properties": {"template": part}}, status=False)
    template = schema.fields["template"]
    assert template.fields["metadata"].fields["ownerReferences"].keys == ("uid",)
    assert template.field("anything") is not None


def test_unknown_fields_are_allowed_below_preserve_unknown_fields_and_nowhere_else():
    inner = {"type": "object", "properties": {"known": {"type": "string"}}}
    outer = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"inner": inner}}
    schema = custom_schema({"type": "object", "properties": {"open": outer, "closed": inner}}, status=False)
    assert schema.fields["open"].fields["inner"].field("other") is not None
    assert schema.fields["closed"].field("other") is None
    assert schema.field("other") is None


def test_a_definition_without_a_schema_allows_anything():
    schema = custom_schema(None, status=False)
    assert schema.field("spec").field("deep").scalar == "untyped"


def test_status_writes_reset_the_spec_and_main_writes_the_status():
    assert builtin_schema(DEPLOYMENT).resets == {
        "": {"f:status": {}},
        "status": {"f:spec": {}, "f:metadata": {"f:labels": {}}},
    }
    assert custom_schema(None, status=True).resets[""] == {"f:status": {}}
    assert "" not in custom_schema(None, status=False).resets
