"""Merge, JSON and strategic merge patches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from steersman.testing.raw_api import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from tests.support.manifests import configmap, container, deployment, service

if TYPE_CHECKING:
    from steersman.testing.raw_api import RawApi
    from tests.support.manifests import Space

KINDS = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)


async def test_a_merge_patch_adds_changes_and_removes_keys(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a", {"keep": "1", "change": "1", "remove": "1"}))
    got = await api.patch(ns.core("configmaps/a"), {"data": {"change": "2", "remove": None, "add": "3"}})
    assert (got.status, got.body["data"]) == (200, {"keep": "1", "change": "2", "add": "3"})


async def test_a_merge_patch_replaces_lists(api: RawApi, ns: Space):
    await api.post(
        ns.core("services"), service("web", spec={"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]})
    )
    got = await api.patch(ns.core("services/web"), {"spec": {"ports": [{"port": 90}]}})
    assert [port["port"] for port in got.body["spec"]["ports"]] == [90]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_patch_of_what_is_not_there_is_not_found(api: RawApi, ns: Space, kind: str):
    got = await api.patch(ns.core("configmaps/a"), [] if kind == JSON_PATCH else {}, kind)
    assert (got.status, got.body["message"]) == (404, 'configmaps "a" not found')


async def test_a_patch_that_changes_nothing_keeps_the_resource_version(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a", {"k": "1"}))
    got = await api.patch(ns.core("configmaps/a"), {"data": {"k": "1"}})
    assert got.body == made.body


async def test_a_patch_with_an_old_resource_version_conflicts(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a", {"k": "1"}))
    await api.patch(ns.core("configmaps/a"), {"data": {"k": "2"}})
    got = await api.patch(ns.core("configmaps/a"), {"metadata": {"resourceVersion": made.revision}, "data": {"k": "3"}})
    assert (got.status, got.body["reason"]) == (409, "Conflict")


async def test_a_patch_cannot_rename_or_move(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a"))
    renamed = await api.patch(ns.core("configmaps/a"), {"metadata": {"name": "b"}})
    assert (renamed.status, renamed.body["message"]) == (
        400,
        "the name of the object (b) does not match the name on the URL (a)",
    )
    moved = await api.patch(ns.core("configmaps/a"), {"metadata": {"namespace": "default"}})
    assert moved.status == 400


async def test_a_json_patch_runs_its_operations_in_order(api: RawApi, ns: Space):
    operations = [
        {"op": "test", "path": "/data/k", "value": "1"},
        {"op": "add", "path": "/data/new", "value": "2"},
        {"op": "copy", "from": "/data/new", "path": "/data/copy"},
        {"op": "move", "from": "/data/k", "path": "/data/moved"},
        {"op": "replace", "path": "/data/copy", "value": "9"},
    ]
    await api.post(ns.core("configmaps"), configmap("b", {"k": "1"}))
    got = await api.patch(ns.core("configmaps/b"), operations, JSON_PATCH)
    assert (got.status, got.body["data"]) == (200, {"new": "2", "copy": "9", "moved": "1"})


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/k", "value": "other"},
        {"op": "remove", "path": "/data/missing"},
        {"op": "add", "path": "/missing/key", "value": "1"},
        {"op": "unheard-of", "path": "/data/k"},
        {"path": "/data/k", "value": "1"},
    ],
)
async def test_a_json_patch_that_cannot_be_done_is_invalid_and_changes_nothing(
    api: RawApi, ns: Space, operation: dict[str, Any]
):
    made = await api.post(ns.core("configmaps"), configmap("a", {"k": "1"}))
    first = {"op": "add", "path": "/data/new", "value": "1"}
    got = await api.patch(ns.core("configmaps/a"), [first, operation], JSON_PATCH)
    assert got.status == 422
    assert got.body["message"] == "the server rejected our request due to an error in our request"
    assert got.body["reason"] == "Invalid"
    assert (await api.get(ns.core("configmaps/a"))).body == made.body


async def test_json_pointers_escape_the_slash(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a", annotations={"example.org/ab": "1"}))
    operation = {"op": "replace", "path": "/metadata/annotations/example.org~1ab", "value": "2"}
    got = await api.patch(ns.core("configmaps/a"), [operation], JSON_PATCH)
    assert got.body["metadata"]["annotations"] == {"example.org/ab": "2"}


async def test_json_patch_inserts_into_and_appends_to_lists(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a", finalizers=["example.org/b"]))
    operations = [
        {"op": "add", "path": "/metadata/finalizers/0", "value": "example.org/a"},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "example.org/c"},
    ]
    got = await api.patch(ns.core("configmaps/a"), operations, JSON_PATCH)
    assert got.body["metadata"]["finalizers"] == ["example.org/a", "example.org/b", "example.org/c"]
    await api.patch(ns.core("configmaps/a"), {"metadata": {"finalizers": None}})


@pytest.mark.parametrize("kind", KINDS)
async def test_a_body_that_is_not_a_patch_is_a_bad_request(api: RawApi, ns: Space, kind: str):
    await api.post(ns.core("configmaps"), configmap("a"))
    got = await api.patch(ns.core("configmaps/a"), "{" if kind == JSON_PATCH else "[]", kind)
    assert (got.status, got.body["reason"]) == (400, "BadRequest")


async def test_an_unknown_patch_type_is_unsupported(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a"))
    got = await api.patch(ns.core("configmaps/a"), {}, "application/json")
    assert (got.status, got.body["reason"]) == (415, "UnsupportedMediaType")
    assert got.body["message"] == "415: Unsupported Media Type"


async def test_a_patch_to_a_wrong_type_is_invalid(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a", {"k": "1"}))
    got = await api.patch(ns.core("configmaps/a"), {"data": {"k": 5}})
    assert (got.status, got.body["reason"]) == (422, "Invalid")
    (cause,) = got.causes
    assert cause[:2] == ("FieldValueInvalid", "patch")


async def test_the_result_of_a_patch_is_validated(api: RawApi, ns: Space):
    await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    got = await api.patch(ns.at("apps/v1", "deployments/web"), {"spec": {"replicas": -1}})
    assert got.causes == [
        ("FieldValueInvalid", "spec.replicas", "Invalid value: -1: must be greater than or equal to 0")
    ]


async def test_dry_run_patches_store_nothing(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a", {"k": "1"}))
    got = await api.patch(ns.core("configmaps/a"), {"data": {"k": "2"}}, dryRun="All")
    assert got.body["data"] == {"k": "2"}
    assert (await api.get(ns.core("configmaps/a"))).body == made.body


async def test_force_belongs_to_apply(api: RawApi, ns: Space):
    got = await api.patch(ns.core("configmaps/a"), {}, force="true")
    assert got.causes == [("FieldValueForbidden", "force", "Forbidden: may not be specified for non-apply patch")]


async def test_each_manager_of_patches_owns_what_it_set(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a", {"k": "1"}), fieldManager="one")
    got = await api.patch(ns.core("configmaps/a"), {"data": {"l": "1"}}, fieldManager="two")
    owners = {entry["manager"]: entry["fieldsV1"] for entry in got.body["metadata"]["managedFields"]}
    assert owners == {"one": {"f:data": {".": {}, "f:k": {}}}, "two": {"f:data": {"f:l": {}}}}


# Strategic merge


def images(body: dict[str, Any]) -> list[tuple[str, str]]:
    return [(part["name"], part["image"]) for part in body["spec"]["template"]["spec"]["containers"]]


async def web(api: RawApi, ns: Space, *names: str) -> str:
    path = ns.at("apps/v1", "deployments/web")
    containers = [container(name, "registry.example/app:1") for name in names]
    await api.post(ns.at("apps/v1", "deployments"), deployment("web", pod_spec={"containers": containers}))
    return path


def template(**spec: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": spec}}}


async def test_strategic_merge_joins_containers_by_name(api: RawApi, ns: Space):
    path = await web(api, ns, "a", "b")
    got = await api.patch(
        path, template(containers=[{"name": "b", "image": "registry.example/app:2"}]), STRATEGIC_PATCH
    )
    assert got.status == 200
    assert images(got.body) == [("a", "registry.example/app:1"), ("b", "registry.example/app:2")]


async def test_strategic_merge_puts_new_elements_where_the_server_puts_them(api: RawApi, ns: Space):
    path = await web(api, ns, "a", "b")
    got = await api.patch(
        path, template(containers=[{"name": "c", "image": "registry.example/app:3"}]), STRATEGIC_PATCH
    )
    assert [name for name, _ in images(got.body)] == ["c", "a", "b"]


async def test_strategic_merge_deletes_an_element_by_directive(api: RawApi, ns: Space):
    path = await web(api, ns, "a", "b")
    got = await api.patch(path, template(containers=[{"name": "a", "$patch": "delete"}]), STRATEGIC_PATCH)
    assert [name for name, _ in images(got.body)] == ["b"]


async def test_strategic_merge_replaces_a_list_by_directive(api: RawApi, ns: Space):
    path = await web(api, ns, "a", "b")
    parts = [{"name": "z", "image": "registry.example/app:9"}, {"$patch": "replace"}]
    got = await api.patch(path, template(containers=parts), STRATEGIC_PATCH)
    assert images(got.body) == [("z", "registry.example/app:9")]


async def test_strategic_merge_replaces_a_map_by_directive(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a", {"k": "1", "l": "2"}))
    got = await api.patch(ns.core("configmaps/a"), {"data": {"$patch": "replace", "m": "3"}}, STRATEGIC_PATCH)
    assert got.body["data"] == {"m": "3"}


async def test_strategic_merge_orders_by_set_element_order(api: RawApi, ns: Space):
    path = await web(api, ns, "a", "b", "c")
    patch = template(
        **{
            "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}],
            "containers": [{"name": "a", "image": "registry.example/app:2"}],
        }
    )
    got = await api.patch(path, patch, STRATEGIC_PATCH)
    assert images(got.body) == [
        ("c", "registry.example/app:1"),
        ("a", "registry.example/app:2"),
        ("b", "registry.example/app:1"),
    ]


async def test_strategic_merge_retains_only_the_named_keys(api: RawApi, ns: Space):
    path = await web(api, ns, "a")
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    got = await api.patch(path, patch, STRATEGIC_PATCH)
    assert got.body["spec"]["strategy"] == {"type": "Recreate"}


async def test_strategic_merge_adds_to_and_removes_from_lists_of_strings(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a", finalizers=["example.org/a", "example.org/b"]))
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.org/a"], "finalizers": ["example.org/c"]}}
    got = await api.patch(ns.core("configmaps/a"), patch, STRATEGIC_PATCH)
    assert got.body["metadata"]["finalizers"] == ["example.org/c", "example.org/b"]
    await api.patch(ns.core("configmaps/a"), {"metadata": {"finalizers": None}})


async def test_strategic_merge_joins_service_ports_by_port(api: RawApi, ns: Space):
    await api.post(ns.core("services"), service("web", spec={"ports": [{"port": 80, "name": "a"}]}))
    patch = {"spec": {"ports": [{"port": 80, "targetPort": 8080}, {"port": 81, "name": "b"}]}}
    got = await api.patch(ns.core("services/web"), patch, STRATEGIC_PATCH)
    ports = {port["port"]: (port["name"], port["targetPort"]) for port in got.body["spec"]["ports"]}
    assert ports == {80: ("a", 8080), 81: ("b", 81)}


async def test_strategic_merge_joins_environment_and_mounts_by_their_keys(api: RawApi, ns: Space):
    part = container(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "1"}])
    await api.post(ns.at("apps/v1", "deployments"), deployment("web", pod_spec={"containers": [part]}))
    change = {"name": "main", "env": [{"name": "B", "value": "2"}]}
    got = await api.patch(ns.at("apps/v1", "deployments/web"), template(containers=[change]), STRATEGIC_PATCH)
    assert got.body["spec"]["template"]["spec"]["containers"][0]["env"] == [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "2"},
    ]


async def test_strategic_merge_without_a_merge_key_is_refused(api: RawApi, ns: Space):
    path = await web(api, ns, "a")
    got = await api.patch(path, template(containers=[{"image": "registry.example/app:2"}]), STRATEGIC_PATCH)
    assert got.status == 500
    assert "does not contain declared merge key: name" in got.body["message"]


async def test_custom_resources_have_no_strategic_merge(api: RawApi, ns: Space, widgets: str):
    await api.post(
        ns.at(f"{widgets}/v1", "widgets"), {"apiVersion": f"{widgets}/v1", "kind": "Widget", "metadata": {"name": "a"}}
    )
    got = await api.patch(ns.at(f"{widgets}/v1", "widgets/a"), {}, STRATEGIC_PATCH)
    assert (got.status, got.body["reason"]) == (415, "UnsupportedMediaType")
    assert got.body["message"].startswith(
        "the body of the request was in an unknown format - accepted media types include: "
    )
