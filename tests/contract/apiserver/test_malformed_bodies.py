"""Bodies of the wrong shape: every one is refused with the code of kube-apiserver, and none makes the server fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from steersman.testing.raw_api import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from tests.support.manifests import configmap, crd, deployment, pod, widget

if TYPE_CHECKING:
    from steersman.testing.raw_api import RawApi, RawResponse
    from tests.support.manifests import Space

DEPTH = 20_000  # more than Go's decoder follows; the embedded server stops earlier
DEEP = '{"a":' * DEPTH + "1" + "}" * DEPTH
WRONG = ["x", 5, True, [], [None]]


def outcome(answer: RawResponse) -> tuple[int, str]:
    return answer.status, answer.body.get("reason", "")


def with_field(obj: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    head, _, rest = path.partition(".")
    return {**obj, head: with_field(obj.get(head, {}), rest, value) if rest else value}


async def test_a_body_nested_too_deeply_is_a_bad_request(api: RawApi, ns: Space, widgets: str):
    for path in (ns.core("configmaps"), ns.at(f"{widgets}/v1", "widgets"), ns.core("serviceaccounts/default/token")):
        assert outcome(await api.post(path, DEEP)) == (400, "BadRequest")
    assert outcome(await api.delete(ns.core("configmaps/a"), DEEP)) == (400, "BadRequest")


@pytest.mark.parametrize("type_", [MERGE_PATCH, STRATEGIC_PATCH, JSON_PATCH])
async def test_a_patch_nested_too_deeply_is_a_bad_request(api: RawApi, ns: Space, type_: str):
    await api.post(ns.core("configmaps"), configmap("a"))
    body = f'[{{"op":"add","path":"/data","value":{DEEP}}}]' if type_ == JSON_PATCH else DEEP
    assert outcome(await api.patch(ns.core("configmaps/a"), body, type_)) == (400, "BadRequest")


async def test_an_applied_configuration_nested_too_deeply_is_a_bad_request(api: RawApi, ns: Space):
    assert outcome(await api.apply(ns.core("configmaps/a"), DEEP)) == (400, "BadRequest")


async def test_a_custom_resource_may_be_nested_a_hundred_and_fifty_levels(api: RawApi, ns: Space, widgets: str):
    levels: dict[str, Any] = {}
    for _ in range(150):
        levels = {"a": levels}
    path = ns.at(f"{widgets}/v1", "widgets")
    assert (await api.post(path, widget(widgets, "made", {"free": levels}))).status == 201
    assert (await api.patch(f"{path}/made", {"spec": {"free": {"b": levels}}})).status == 200
    assert (await api.apply(f"{path}/applied", widget(widgets, "applied", {"free": levels}))).status == 201


@pytest.mark.parametrize("value", [*WRONG, {}])
@pytest.mark.parametrize("field", ["apiVersion", "kind"])
async def test_a_type_that_is_not_text_is_a_bad_request(api: RawApi, ns: Space, widgets: str, field: str, value: Any):
    for path, body in (
        (ns.core("configmaps"), configmap("a")),
        (ns.at(f"{widgets}/v1", "widgets"), widget(widgets, "a")),
    ):
        if value == "x" and "widgets" in path:
            continue  # text, and another type: custom resources refuse that as invalid
        assert outcome(await api.post(path, {**body, field: value})) == (400, "BadRequest")


@pytest.mark.parametrize("value", [*WRONG, None])
@pytest.mark.parametrize("field", ["apiVersion", "kind"])
async def test_an_applied_configuration_says_what_it_is(api: RawApi, ns: Space, field: str, value: Any):
    refused = await api.apply(ns.core("configmaps/a"), {**configmap("a"), field: value})
    assert outcome(refused) == (400, "BadRequest")
    assert refused.body["message"].startswith("invalid object type: ")


@pytest.mark.parametrize("value", [5, True, [], {}])
@pytest.mark.parametrize("field", ["apiVersion", "kind"])
@pytest.mark.parametrize("type_", [MERGE_PATCH, STRATEGIC_PATCH])
async def test_a_patch_cannot_make_the_type_something_else_than_text(
    api: RawApi, ns: Space, type_: str, field: str, value: Any
):
    await api.post(ns.core("configmaps"), configmap("a"))
    refused = await api.patch(ns.core("configmaps/a"), {field: value}, type_)
    assert (outcome(refused), [cause[:2] for cause in refused.causes]) == (
        (422, "Invalid"),
        [("FieldValueInvalid", "patch")],
    )


@pytest.mark.parametrize("value", WRONG)
async def test_metadata_that_is_not_an_object_is_a_bad_request(api: RawApi, ns: Space, widgets: str, value: Any):
    for path, body in (
        (ns.core("configmaps"), configmap("a")),
        (ns.at(f"{widgets}/v1", "widgets"), widget(widgets, "a")),
    ):
        assert outcome(await api.post(path, {**body, "metadata": value})) == (400, "BadRequest")


async def test_applied_metadata_that_is_not_an_object_is_named(api: RawApi, ns: Space):
    refused = await api.apply(ns.core("configmaps/a"), {**configmap("a"), "metadata": "x"})
    assert outcome(refused) == (500, "")  # kube-apiserver means it, too
    assert refused.body["message"].startswith(
        "failed to create typed patch object (/; /v1, Kind=ConfigMap): .metadata: expected "
    )


async def test_applied_metadata_that_is_null_has_no_name(api: RawApi, ns: Space, widgets: str):
    for path, body in (
        (ns.core("configmaps/a"), configmap("a")),
        (ns.at(f"{widgets}/v1", "widgets/a"), widget(widgets, "a")),
    ):
        assert outcome(await api.apply(path, {**body, "metadata": None})) == (400, "BadRequest")


SUBRESOURCES = {
    "pods/web/eviction": {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}},
    "pods/web/binding": {"metadata": {"name": "web"}, "target": {"name": "node"}},
    "bindings": {"metadata": {"name": "web"}, "target": {"name": "node"}},
    "serviceaccounts/default/token": {"spec": {}},
}


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        ("pods/web/eviction", "metadata", "x"),
        ("pods/web/eviction", "metadata.namespace", "elsewhere"),
        ("pods/web/eviction", "deleteOptions", []),
        ("pods/web/eviction", "deleteOptions.preconditions", "x"),
        ("pods/web/binding", "metadata", []),
        ("pods/web/binding", "metadata.annotations", {"a": 5}),
        ("pods/web/binding", "target", "x"),
        ("pods/web/binding", "target.name", 5),
        ("bindings", "metadata", None),
        ("bindings", "metadata.name", 5),
        ("serviceaccounts/default/token", "spec", "x"),
        ("serviceaccounts/default/token", "spec.expirationSeconds", "x"),
        ("serviceaccounts/default/token", "spec.audiences", [5]),
    ],
)
async def test_the_body_of_a_subresource_has_its_type(api: RawApi, pods: Space, path: str, field: str, value: Any):
    await api.post(pods.core("pods"), pod("web"))
    body = with_field(SUBRESOURCES[path], field, value)
    assert outcome(await api.post(pods.core(path), body)) == (400, "BadRequest")


async def test_options_of_an_eviction_are_checked_like_those_of_a_delete(api: RawApi, pods: Space):
    await api.post(pods.core("pods"), pod("web"))
    body = SUBRESOURCES["pods/web/eviction"] | {"deleteOptions": {"dryRun": ["x"]}}
    refused = await api.post(pods.core("pods/web/eviction"), body)
    assert [cause[:2] for cause in refused.causes] == [("FieldValueNotSupported", "dryRun")]


async def test_unknown_fields_of_a_subresource_are_reported(api: RawApi, pods: Space):
    await api.post(pods.core("pods"), pod("web"))
    body = SUBRESOURCES["pods/web/eviction"] | {"colour": "red"}
    strict = await api.post(pods.core("pods/web/eviction"), body, fieldValidation="Strict")
    assert outcome(strict) == (400, "BadRequest")
    warned = await api.post(pods.core("pods/web/eviction"), body)
    assert (warned.status, warned.warnings) == (201, ('unknown field "colour"',))


@pytest.mark.parametrize(
    ("field", "value"), [("metadata", "x"), ("metadata.namespace", "elsewhere"), ("spec", []), ("spec.replicas", "1")]
)
async def test_a_scale_has_its_type(api: RawApi, ns: Space, field: str, value: Any):
    await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    body = with_field({"metadata": {"name": "web"}, "spec": {"replicas": 1}}, field, value)
    assert outcome(await api.put(ns.at("apps/v1", "deployments/web/scale"), body)) == (400, "BadRequest")


async def test_a_scale_of_a_custom_resource_needs_no_resource_version(api: RawApi, ns: Space, widgets: str):
    path = ns.at(f"{widgets}/v1", "widgets")
    await api.post(path, widget(widgets, "w", {"replicas": 1}))
    scaled = await api.put(f"{path}/w/scale", {"metadata": {"name": "w"}, "spec": {"replicas": 3}})
    assert (scaled.status, scaled.body["spec"]) == (200, {"replicas": 3})


@pytest.mark.parametrize(
    ("field", "value"),
    [("manager", 5), ("operation", []), ("apiVersion", {}), ("time", "yesterday"), ("time", 5), ("fieldsType", True)],
)
async def test_managed_fields_have_their_type(api: RawApi, ns: Space, widgets: str, field: str, value: Any):
    entry = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}
    managed = [entry | {field: value}]
    for path, body in (
        (ns.core("configmaps"), configmap("a", managedFields=managed)),
        (ns.at(f"{widgets}/v1", "widgets"), widget(widgets, "a", managedFields=managed)),
    ):
        assert outcome(await api.post(path, body)) == (400, "BadRequest")


@pytest.mark.parametrize("entry", ["x", 5, []])
async def test_entries_of_managed_fields_are_objects(api: RawApi, ns: Space, entry: Any):
    refused = await api.post(ns.core("configmaps"), configmap("a", managedFields=[entry]))
    assert outcome(refused) == (400, "BadRequest")


@pytest.mark.parametrize(
    "operations", [["x"], [5], [[]], [{"op": 5, "path": "/data"}], [{"op": "remove", "path": 5}], [{"from": []}]]
)
async def test_operations_of_a_json_patch_have_their_type(api: RawApi, ns: Space, operations: Any):
    await api.post(ns.core("configmaps"), configmap("a"))
    assert outcome(await api.patch(ns.core("configmaps/a"), operations, JSON_PATCH)) == (400, "BadRequest")


async def test_a_null_among_the_operations_of_a_json_patch_cannot_be_done(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a"))
    assert (await api.patch(ns.core("configmaps/a"), "[null]", JSON_PATCH)).status == 422


async def test_a_body_that_is_null_is_an_object_without_fields(api: RawApi, ns: Space):
    refused = await api.post(ns.core("configmaps"), "null")
    assert [cause[:2] for cause in refused.causes] == [("FieldValueRequired", "metadata.name")]


@pytest.mark.parametrize(
    "schema",
    [
        "x",
        [],
        {"type": 5},
        {"type": "object", "properties": "x"},
        {"type": "object", "properties": {"a": []}},
        {"type": "object", "properties": {"a": {"type": "string", "maxLength": "5"}}},
        {"type": "object", "additionalProperties": 5},
        {"type": "object", "required": "x"},
        {"type": "object", "required": [5]},
        {"type": "object", "allOf": {}},
        {"type": "object", "not": []},
        {"type": "object", "nullable": "x"},
    ],
)
async def test_a_schema_has_its_type_at_every_level(api: RawApi, schema: Any):
    definition = crd("Gadget", group="malformed.example.org", schema=schema)
    refused = await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition, dryRun="All")
    assert outcome(refused) == (400, "BadRequest")


async def test_a_field_with_a_line_break_in_its_name_is_answered(api: RawApi, ns: Space):
    answer = await api.post(f"{ns.core('configmaps')}?fieldValidation=Warn", {**configmap("a"), "a\nb": 1})
    assert (answer.status, len(answer.warnings)) == (201, 1)


async def test_paths_of_watches_are_for_reading_only(api: RawApi, ns: Space):
    path = ns.core("configmaps").replace("/api/v1/", "/api/v1/watch/")
    for answer in (await api.post(path, configmap("a")), await api.delete(path)):
        assert outcome(answer) == (405, "MethodNotAllowed")
    assert (await api.get(ns.core("configmaps/a"))).status == 404


@pytest.mark.parametrize(
    ("kind", "subject", "fields"),
    [
        ("RoleBinding", {"kind": "User", "name": "bob"}, None),
        ("RoleBinding", {"kind": "User"}, {"subjects[0].name"}),
        ("RoleBinding", {"kind": "Robot", "name": "bob"}, {"subjects[0].kind"}),
        ("RoleBinding", {"kind": "Group", "name": "bob", "apiGroup": "apps"}, {"subjects[0].apiGroup"}),
        ("ClusterRoleBinding", {"kind": "ServiceAccount", "name": "bob"}, {"subjects[0].namespace"}),
    ],
)
async def test_subjects_of_bindings_are_validated(api: RawApi, ns: Space, kind: str, subject, fields):
    group = "rbac.authorization.k8s.io"
    role = {"apiGroup": group, "kind": "ClusterRole", "name": "view"}
    body = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "subjects"}, "roleRef": role}
    path = ns.at(f"{group}/v1", "rolebindings") if kind == "RoleBinding" else f"/apis/{group}/v1/clusterrolebindings"
    answer = await api.post(path, {**body, "subjects": [subject]})
    if fields is None:
        assert answer.status == 201
    else:
        assert outcome(answer) == (422, "Invalid")
        assert {cause["field"] for cause in answer.body["details"]["causes"]} == fields
