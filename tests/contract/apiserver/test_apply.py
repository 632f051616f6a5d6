"""Server-side apply: who owns which field, who may change it, and what disappears."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.manifests import configmap, container, deployment, service, widget

if TYPE_CHECKING:
    from steersman.testing.raw_api import RawApi, RawResponse
    from tests.support.manifests import Space


def owners(answer: RawResponse) -> dict[tuple[str, str], Any]:
    """Fields by manager and operation."""
    entries = answer.body["metadata"].get("managedFields", [])
    return {(entry["manager"], entry["operation"]): entry["fieldsV1"] for entry in entries}


async def test_apply_creates_what_is_not_there(api: RawApi, ns: Space):
    made = await api.apply(ns.core("configmaps/a"), configmap("a", {"k": "1"}))
    assert made.status == 201
    (entry,) = made.body["metadata"]["managedFields"]
    assert entry == {
        "manager": "alpha",
        "operation": "Apply",
        "apiVersion": "v1",
        "time": made.body["metadata"]["creationTimestamp"],
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:k": {}}},
    }


async def test_apply_again_changes_nothing_and_keeps_the_resource_version(api: RawApi, ns: Space):
    made = await api.apply(ns.core("configmaps/a"), configmap("a", {"k": "1"}))
    again = await api.apply(ns.core("configmaps/a"), configmap("a", {"k": "1"}))
    assert (again.status, again.body) == (200, made.body)


async def test_yaml_may_be_applied(api: RawApi, ns: Space):
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: '1'\n"
    made = await api.apply(ns.core("configmaps/a"), text)
    assert made.body["data"] == {"k": "1"}


async def test_a_field_no_longer_applied_is_removed(api: RawApi, ns: Space):
    await api.apply(ns.core("configmaps/a"), configmap("a", {"k": "1", "l": "2"}, labels={"x": "y"}))
    got = await api.apply(ns.core("configmaps/a"), configmap("a", {"k": "1"}))
    assert got.body["data"] == {"k": "1"}
    assert "labels" not in got.body["metadata"]


async def test_a_field_two_managers_apply_stays_until_both_let_go(api: RawApi, ns: Space):
    path = ns.core("configmaps/a")
    await api.apply(path, configmap("a", {"shared": "1", "mine": "1"}), manager="one")
    both = await api.apply(path, configmap("a", {"shared": "1"}), manager="two")
    assert owners(both) == {
        ("one", "Apply"): {"f:data": {"f:mine": {}, "f:shared": {}}},
        ("two", "Apply"): {"f:data": {"f:shared": {}}},
    }
    first = await api.apply(path, configmap("a"), manager="one")
    assert first.body["data"] == {"shared": "1"}
    second = await api.apply(path, configmap("a"), manager="two")
    assert "data" not in second.body


async def test_another_value_for_an_owned_field_conflicts(api: RawApi, ns: Space):
    await api.apply(ns.core("configmaps/a"), configmap("a", {"k": "1"}), manager="one")
    got = await api.apply(ns.core("configmaps/a"), configmap("a", {"k": "2"}), manager="two")
    assert got.status == 409
    assert got.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'Apply failed with 1 conflict: conflict with "one": .data.k',
        "reason": "Conflict",
        "details": {
            "causes": [{"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.k"}]
        },
        "code": 409,
    }


async def test_every_conflict_is_listed_by_manager(api: RawApi, ns: Space):
    path = ns.core("configmaps/a")
    await api.apply(path, configmap("a", {"a": "1", "b": "1"}), manager="one")
    await api.apply(path, configmap("a", {"c": "1"}), manager="two")
    got = await api.apply(path, configmap("a", {"a": "2", "b": "2", "c": "2"}), manager="three")
    assert got.body["message"] == (
        'Apply failed with 3 conflicts: conflicts with "one":\n- .data.a\n- .data.b\nconflicts with "two":\n- .data.c'
    )
    assert sorted(got.causes) == [
        ("FieldManagerConflict", ".data.a", 'conflict with "one"'),
        ("FieldManagerConflict", ".data.b", 'conflict with "one"'),
        ("FieldManagerConflict", ".data.c", 'conflict with "two"'),
    ]


async def test_a_conflict_with_an_updater_names_its_version(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a", {"k": "1"}), fieldManager="editor")
    got = await api.apply(ns.core("configmaps/a"), configmap("a", {"k": "2"}))
    assert got.causes == [("FieldManagerConflict", ".data.k", 'conflict with "editor" using v1')]


async def test_force_takes_the_field_over(api: RawApi, ns: Space):
    path = ns.core("configmaps/a")
    await api.apply(path, configmap("a", {"k": "1", "l": "1"}), manager="one")
    got = await api.apply(path, configmap("a", {"k": "2"}), manager="two", force=True)
    assert (got.status, got.body["data"]) == (200, {"k": "2", "l": "1"})
    assert owners(got) == {("one", "Apply"): {"f:data": {"f:l": {}}}, ("two", "Apply"): {"f:data": {"f:k": {}}}}


async def test_force_that_takes_everything_removes_the_other_entry(api: RawApi, ns: Space):
    path = ns.core("configmaps/a")
    await api.apply(path, configmap("a", {"k": "1"}), manager="one")
    got = await api.apply(path, configmap("a", {"k": "2"}), manager="two", force=True)
    assert owners(got) == {("two", "Apply"): {"f:data": {"f:k": {}}}}


async def test_an_update_takes_a_changed_field_from_an_applier(api: RawApi, ns: Space):
    path = ns.core("configmaps/a")
    await api.apply(path, configmap("a", {"k": "1", "l": "1"}), manager="one")
    got = await api.patch(path, {"data": {"k": "2"}}, fieldManager="editor")
    assert owners(got) == {("one", "Apply"): {"f:data": {"f:l": {}}}, ("editor", "Update"): {"f:data": {"f:k": {}}}}


async def test_the_same_value_is_co_owned_without_conflict(api: RawApi, ns: Space):
    path = ns.core("configmaps/a")
    await api.post(ns.core("configmaps"), configmap("a", {"k": "1"}), fieldManager="editor")
    got = await api.apply(path, configmap("a", {"k": "1"}))
    assert got.status == 200
    assert owners(got)[("alpha", "Apply")] == {"f:data": {"f:k": {}}}
    assert owners(got)[("editor", "Update")] == {"f:data": {".": {}, "f:k": {}}}


async def test_one_manager_applying_and_updating_has_two_entries(api: RawApi, ns: Space):
    path = ns.core("configmaps/a")
    await api.apply(path, configmap("a", {"k": "1"}), manager="one")
    got = await api.patch(path, {"data": {"l": "1"}}, fieldManager="one")
    assert set(owners(got)) == {("one", "Apply"), ("one", "Update")}


async def test_a_field_manager_is_required(api: RawApi, ns: Space):
    got = await api.apply(ns.core("configmaps/a"), configmap("a"), manager="")
    assert got.status == 422
    assert got.causes == [("FieldValueRequired", "fieldManager", "Required value: is required for apply patch")]


async def test_managed_fields_must_not_be_applied(api: RawApi, ns: Space):
    got = await api.apply(ns.core("configmaps/a"), configmap("a", managedFields=[]))
    assert (got.status, got.body["message"]) == (400, "metadata.managedFields must be nil")


async def test_kind_is_required(api: RawApi, ns: Space):
    got = await api.apply(ns.core("configmaps/a"), {"metadata": {"name": "a"}})
    assert (got.status, got.body["message"]) == (400, "invalid object type: /, Kind=")


async def test_an_unknown_field_cannot_be_applied(api: RawApi, ns: Space):
    got = await api.apply(ns.core("configmaps/a"), configmap("a") | {"foo": 1})
    assert got.status == 500
    assert got.body["message"] == (
        "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .foo: field not declared in schema"
    )


async def test_a_uid_that_is_not_there_is_never_created(api: RawApi, ns: Space):
    got = await api.apply(ns.core("configmaps/a"), configmap("a", uid="123"))
    assert got.status == 409
    assert got.body["message"].endswith(
        "uid mismatch: the provided object specified uid 123, and no existing object was found"
    )


async def test_dry_run_apply_stores_nothing(api: RawApi, ns: Space):
    got = await api.apply(ns.core("configmaps/a"), configmap("a", {"k": "1"}), dryRun="All")
    assert got.status == 201
    assert (await api.get(ns.core("configmaps/a"))).status == 404


# Lists


def app(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return deployment("web", pod_spec={"containers": list(containers)}, **spec)


async def test_two_managers_own_their_own_containers(api: RawApi, ns: Space):
    path = ns.at("apps/v1", "deployments/web")
    await api.apply(path, app(container("a")), manager="one")
    sidecar = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"template": {"spec": {"containers": [container("b")]}}},
    }
    got = await api.apply(path, sidecar, manager="two")
    assert [part["name"] for part in got.body["spec"]["template"]["spec"]["containers"]] == ["a", "b"]
    assert owners(got)[("two", "Apply")] == {
        "f:spec": {
            "f:template": {"f:spec": {"f:containers": {'k:{"name":"b"}': {".": {}, "f:image": {}, "f:name": {}}}}}
        }
    }
    del sidecar["spec"]
    gone = await api.apply(path, sidecar, manager="two")
    assert [part["name"] for part in gone.body["spec"]["template"]["spec"]["containers"]] == ["a"]


async def test_service_ports_are_keyed_by_port_and_protocol(api: RawApi, ns: Space):
    path = ns.core("services/web")
    ports = [{"port": 53, "name": "a", "protocol": "UDP"}, {"port": 53, "name": "b", "protocol": "TCP"}]
    got = await api.apply(path, service("web", spec={"ports": ports}))
    assert got.status == 201
    fields = owners(got)[("alpha", "Apply")]["f:spec"]["f:ports"]
    assert set(fields) == {'k:{"port":53,"protocol":"TCP"}', 'k:{"port":53,"protocol":"UDP"}'}


async def test_the_default_of_a_key_completes_it(api: RawApi, ns: Space):
    got = await api.apply(ns.core("services/web"), service("web"))
    assert set(owners(got)[("alpha", "Apply")]["f:spec"]["f:ports"]) == {'k:{"port":80,"protocol":"TCP"}'}


async def test_a_duplicate_key_cannot_be_applied(api: RawApi, ns: Space):
    got = await api.apply(ns.at("apps/v1", "deployments/web"), app(container("a"), container("a")))
    assert got.status == 500
    assert 'duplicate entries for key [name="a"]' in got.body["message"]


async def test_a_set_is_joined_by_value(api: RawApi, ns: Space, widgets: str):
    path = ns.at(f"{widgets}/v1", "widgets/w")
    await api.apply(path, widget(widgets, spec={"tags": ["a", "b"]}), manager="one")
    got = await api.apply(path, widget(widgets, spec={"tags": ["b", "c"]}), manager="two")
    assert got.body["spec"]["tags"] == ["a", "b", "c"]
    assert owners(got)[("two", "Apply")] == {"f:spec": {"f:tags": {'v:"b"': {}, 'v:"c"': {}}}}
    less = await api.apply(path, widget(widgets, spec={"tags": ["b"]}), manager="one")
    assert less.body["spec"]["tags"] == ["b", "c"]


async def test_an_atomic_list_has_one_owner(api: RawApi, ns: Space, widgets: str):
    path = ns.at(f"{widgets}/v1", "widgets/w")
    await api.apply(path, widget(widgets, spec={"words": ["a"]}), manager="one")
    got = await api.apply(path, widget(widgets, spec={"words": ["b"]}), manager="two")
    assert got.body["message"] == 'Apply failed with 1 conflict: conflict with "one": .spec.words'
    forced = await api.apply(path, widget(widgets, spec={"words": ["b"]}), manager="two", force=True)
    assert forced.body["spec"]["words"] == ["b"]
    assert owners(forced)[("two", "Apply")] == {"f:spec": {"f:words": {}}}


async def test_an_atomic_map_has_one_owner(api: RawApi, ns: Space, widgets: str):
    path = ns.at(f"{widgets}/v1", "widgets/w")
    await api.apply(path, widget(widgets, spec={"frozen": {"a": "1"}}), manager="one")
    got = await api.apply(path, widget(widgets, spec={"frozen": {"b": "1"}}), manager="two")
    assert got.status == 409
    forced = await api.apply(path, widget(widgets, spec={"frozen": {"b": "1"}}), manager="two", force=True)
    assert forced.body["spec"]["frozen"] == {"b": "1"}


async def test_a_list_map_of_a_custom_resource_is_keyed_by_its_keys(api: RawApi, ns: Space, widgets: str):
    path = ns.at(f"{widgets}/v1", "widgets/w")
    await api.apply(path, widget(widgets, spec={"ports": [{"port": 1, "note": "x"}]}), manager="one")
    got = await api.apply(path, widget(widgets, spec={"ports": [{"port": 1, "protocol": "UDP"}]}), manager="two")
    assert got.body["spec"]["ports"] == [
        {"port": 1, "protocol": "TCP", "note": "x"},
        {"port": 1, "protocol": "UDP"},
    ]
    assert set(owners(got)[("one", "Apply")]["f:spec"]["f:ports"]) == {'k:{"port":1,"protocol":"TCP"}'}


async def test_fields_without_a_schema_are_tracked_one_by_one(api: RawApi, ns: Space, widgets: str):
    path = ns.at(f"{widgets}/v1", "widgets/w")
    await api.apply(path, widget(widgets, spec={"free": {"a": {"b": 1}}}), manager="one")
    got = await api.apply(path, widget(widgets, spec={"free": {"a": {"c": 2}}}), manager="two")
    assert got.body["spec"]["free"] == {"a": {"b": 1, "c": 2}}


async def test_defaults_are_never_owned_by_an_applier(api: RawApi, ns: Space, widgets: str):
    got = await api.apply(ns.at(f"{widgets}/v1", "widgets/w"), widget(widgets, spec={"color": "red"}))
    assert got.body["spec"] == {"color": "red", "size": 1}
    assert owners(got) == {("alpha", "Apply"): {"f:spec": {"f:color": {}}}}


# Status


async def test_status_is_applied_through_its_subresource(api: RawApi, ns: Space, widgets: str):
    path = ns.at(f"{widgets}/v1", "widgets/w")
    await api.apply(path, widget(widgets, spec={"color": "red"}), manager="spec")
    status = {"status": {"phase": "Fine", "conditions": [{"type": "Ready", "status": "True"}]}}
    got = await api.apply(path + "/status", widget(widgets) | status, manager="controller")
    assert got.body["status"] == status["status"]
    entry = next(item for item in got.body["metadata"]["managedFields"] if item["manager"] == "controller")
    assert entry["subresource"] == "status"
    assert entry["fieldsV1"] == {
        "f:status": {
            "f:conditions": {'k:{"type":"Ready"}': {".": {}, "f:status": {}, "f:type": {}}},
            "f:phase": {},
        }
    }


async def test_status_applied_to_the_object_itself_is_dropped(api: RawApi, ns: Space, widgets: str):
    got = await api.apply(
        ns.at(f"{widgets}/v1", "widgets/w"), widget(widgets, spec={"color": "red"}) | {"status": {"phase": "x"}}
    )
    assert "status" not in got.body
    assert owners(got) == {("alpha", "Apply"): {"f:spec": {"f:color": {}}}}


async def test_scaling_hands_the_replicas_to_the_scaler(api: RawApi, ns: Space):
    path = ns.at("apps/v1", "deployments/web")
    await api.apply(path, app(container("a"), spec={"replicas": 2}), manager="one")
    scaled = await api.patch(path + "/scale", {"spec": {"replicas": 5}}, fieldManager="scaler")
    assert scaled.status == 200
    got = await api.get(path)
    entry = next(item for item in got.body["metadata"]["managedFields"] if item["manager"] == "scaler")
    assert (entry["subresource"], entry["fieldsV1"]) == ("scale", {"f:spec": {"f:replicas": {}}})


async def test_the_eleventh_updater_sends_the_oldest_to_the_ancient_ones(api: RawApi, ns: Space):
    path = ns.core("configmaps/a")
    await api.post(ns.core("configmaps"), configmap("a", {"k0": "1"}), fieldManager="m0")
    for number in range(1, 12):
        got = await api.patch(path, {"data": {f"k{number}": "1"}}, fieldManager=f"m{number}")
    managers = [entry["manager"] for entry in got.body["metadata"]["managedFields"]]
    assert len(managers) == 10
    assert "ancient-changes" in managers


async def test_an_apply_with_a_resource_version_that_no_object_has_only_creates(api: RawApi, ns: Space):
    path = ns.core("configmaps/a")
    made = await api.apply(path, configmap("a", {"k": "1"}, resourceVersion="1"), manager="one")
    assert (made.status, made.body["data"]) == (201, {"k": "1"})
    assert made.body["metadata"]["resourceVersion"] != "1"
    again = await api.apply(path, configmap("a", {"k": "2"}, resourceVersion="1"), manager="one", force=True)
    assert (again.status, again.body["reason"]) == (409, "Conflict")
    assert "causes" not in again.body.get("details", {})
    same = await api.apply(path, configmap("a", {"k": "1"}, resourceVersion="1"), manager="one")
    assert same.status == 409
    assert (await api.get(path)).body["data"] == {"k": "1"}


async def test_a_custom_object_too_is_only_created_with_a_resource_version_that_no_object_has(
    api: RawApi, ns: Space, widgets: str
):
    path = ns.at(f"{widgets}/v1", "widgets/w")
    body = widget(widgets, spec={"color": "red"})
    body["metadata"]["resourceVersion"] = "1"
    assert (await api.apply(path, body, manager="one")).status == 201
    again = await api.apply(path, body, manager="one", force=True)
    assert (again.status, again.body["reason"]) == (409, "Conflict")


async def test_an_apply_with_a_uid_changes_only_the_object_that_has_it(api: RawApi, ns: Space):
    path = ns.core("configmaps/a")
    made = await api.apply(path, configmap("a", {"k": "1"}))
    uid = made.body["metadata"]["uid"]
    same = await api.apply(path, configmap("a", {"k": "2"}, uid=uid))
    assert (same.status, same.body["data"]) == (200, {"k": "2"})
    other = await api.apply(path, configmap("a", {"k": "3"}, uid="00000000-0000-0000-0000-000000000000"), force=True)
    assert (other.status, other.body["reason"]) == (422, "Invalid")
    assert {cause["field"] for cause in other.body["details"]["causes"]} == {"metadata.uid"}
    assert (await api.get(path)).body["data"] == {"k": "2"}
