from __future__ import annotations

from typing import Any

import pytest

from steersman.apiserver.patch.managed_fields import keep_times, track_update
from steersman.apiserver.resources.schema import builtin_schema, custom_schema
from steersman.kube.api.gvk import Kind

CONFIG_MAP = builtin_schema(Kind(version="v1", kind="ConfigMap", plural="configmaps"))
DEPLOYMENT = builtin_schema(Kind(group="apps", version="v1", kind="Deployment", plural="deployments"))
T0, T1, T2 = (f"2026-01-01T00:00:0{second}Z" for second in range(3))


def config_map(*, managed: Any = None, labels: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "app", "namespace": "shop"}
    if labels is not None:
        metadata["labels"] = labels
    if managed is not None:
        metadata["managedFields"] = managed
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **({"data": data} if data else {})}


def write(
    old: dict[str, Any] | None, new: dict[str, Any], by: str = "alice", at: str = T0, **more: Any
) -> dict[str, Any]:
    written = track_update(CONFIG_MAP, old, new, manager=by, api_version="v1", now=at, **more)
    return {**written, "metadata": {**written["metadata"], "uid": "1"}}


def entries(obj: dict[str, Any]) -> list[dict[str, Any]]:
    return obj["metadata"].get("managedFields", [])


def owned(obj: dict[str, Any]) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in entries(obj)}


def test_a_creator_of_an_object_owns_all_of_it_but_its_identity():
    created = write(None, config_map(labels={"app": "x"}, mode="fast"))
    assert entries(created) == [
        {
            "manager": "alice",
            "operation": "Update",
            "apiVersion": "v1",
            "time": T0,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:data": {".": {}, "f:mode": {}},
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            },
        }
    ]


def test_a_manager_that_changes_a_field_owns_it():
    created = write(None, config_map(a="1", b="1"))
    changed = write(created, config_map(managed=entries(created), a="2", b="1"), by="bob", at=T1)
    assert owned(changed) == {"alice": {"f:data": {".": {}, "f:b": {}}}, "bob": {"f:data": {"f:a": {}}}}


def test_time_moves_only_for_the_manager_that_took_something():
    created = write(None, config_map(a="1", b="1"))
    changed = write(created, config_map(a="2", b="1"), by="bob", at=T1)
    assert {entry["manager"]: entry["time"] for entry in entries(changed)} == {"alice": T0, "bob": T1}
    again = write(changed, config_map(a="2", b="1"), by="bob", at=T2)
    assert entries(again) == entries(changed)


def test_a_field_that_disappears_has_no_owner_and_a_manager_without_fields_is_gone():
    created = write(None, config_map(a="1"))
    joined = write(created, config_map(a="1", b="1"), by="bob", at=T1)
    left = write(joined, config_map(a="1"), by="carol", at=T2)
    assert owned(left) == {"alice": {"f:data": {".": {}, "f:a": {}}}}


def test_an_emptied_list_of_managers_is_forgotten_and_stays_so():
    created = write(None, config_map(a="1"))
    for reset in ([], [{}]):
        forgotten = write(created, config_map(managed=reset, a="1"), at=T1)
        assert entries(forgotten) == []
        assert entries(write(forgotten, config_map(a="2"), at=T2)) == []


def test_leaving_the_managers_out_keeps_them():
    created = write(None, config_map(a="1"))
    assert entries(write(created, config_map(a="1"), at=T1)) == entries(created)


def test_a_manager_sent_without_fields_is_gone():
    created = write(None, config_map(a="1"))
    sent = [*entries(created), {**entries(created)[0], "manager": "nobody", "fieldsV1": {}}]
    assert entries(write(created, config_map(managed=sent, a="1"), at=T1)) == entries(created)


def test_a_request_may_set_the_managers_itself():
    created = write(None, config_map(a="1"))
    sent = [{**entries(created)[0], "manager": "zoe", "time": "2026-01-01T01:00:00+01:00"}]
    renamed = write(created, config_map(managed=sent, a="1"), at=T1)
    assert [(entry["manager"], entry["time"]) for entry in entries(renamed)] == [("zoe", T0)]


@pytest.mark.parametrize(
    "broken",
    [
        {"operation": "Guess"},
        {"apiVersion": ""},
        {"fieldsType": "FieldsV2"},
        {"fieldsV1": {"a": {}}},
        {"fieldsV1": []},
        {"time": "yesterday"},
    ],
)
def test_managers_that_make_no_sense_are_ignored(broken):
    created = write(None, config_map(a="1"))
    sent = [{**entries(created)[0], **broken}]
    assert entries(write(created, config_map(managed=sent, a="1"), at=T1)) == entries(created)


def test_a_subresource_never_sets_the_managers():
    created = write(None, config_map(a="1"))
    after = write(created, config_map(managed=[], a="1"), at=T1, subresource="status")
    assert entries(after) == entries(created)


def test_writers_of_a_subresource_are_managers_of_their_own():
    old = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "uid": "1"},
        "spec": {},
        "status": {},
    }
    old["metadata"]["managedFields"] = [
        {"manager": "m", "operation": "Update", "apiVersion": "apps/v1", "time": T0, "fieldsType": "FieldsV1",
         "fieldsV1": {"f:spec": {"f:paused": {}}}}
    ]  # fmt: skip
    new = {
        **old,
        "metadata": {**old["metadata"], "labels": {"x": "y"}},
        "spec": {"paused": True},
        "status": {"replicas": 1},
    }
    done = track_update(DEPLOYMENT, old, new, manager="m", api_version="apps/v1", now=T1, subresource="status")
    assert [(e.get("subresource"), e["fieldsV1"]) for e in entries(done)] == [
        (None, {"f:spec": {"f:paused": {}}}),
        ("status", {"f:status": {"f:replicas": {}}}),
    ]


def test_an_unnamed_manager_is_called_unknown():
    assert entries(write(None, config_map(a="1"), by=""))[0]["manager"] == "unknown"


def test_only_ten_updaters_are_kept_apart():
    obj = write(None, config_map(k00="x"), by="m00")
    for index in range(1, 13):
        data = {f"k{known:02}": "x" for known in range(index + 1)}
        obj = write(obj, config_map(**data), by=f"m{index:02}", at=f"2026-01-01T00:00:{index:02}Z")
    names = [entry["manager"] for entry in entries(obj)]
    assert names == ["ancient-changes", *(f"m{index:02}" for index in range(4, 13))]
    ancient = owned(obj)["ancient-changes"]["f:data"]
    assert list(ancient) == [".", "f:k00", "f:k01", "f:k02", "f:k03"]
    assert entries(obj)[0]["time"] == "2026-01-01T00:00:03Z"


def test_appliers_come_before_updaters_and_the_older_before_the_younger():
    shared = {"apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}}
    sent = [
        {"manager": "z", "operation": "Update", "time": T0, **shared},
        {"manager": "b", "operation": "Apply", "time": T1, **shared},
        {"manager": "c", "operation": "Apply", **shared},
        {"manager": "a", "operation": "Update", "time": T0, **shared},
    ]
    obj = write(write(None, config_map(a="1")), config_map(managed=sent, a="1"), at=T2)
    assert [entry["manager"] for entry in entries(obj)] == ["c", "b", "a", "z"]


def test_a_value_of_another_shape_takes_the_field_and_frees_what_was_below():
    schema = custom_schema(
        {"type": "object", "properties": {"any": {"x-kubernetes-preserve-unknown-fields": True}}}, status=False
    )
    old = {"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "x"}, "any": {"deep": {"er": 1}}}
    created = track_update(schema, None, old, manager="a", api_version="x/v1", now=T0)
    new = {**created, "any": 1}
    changed = track_update(schema, created, new, manager="b", api_version="x/v1", now=T1)
    assert owned(changed) == {"b": {"f:any": {}}}


def test_true_and_one_are_different_values():
    schema = custom_schema(
        {"type": "object", "properties": {"any": {"x-kubernetes-preserve-unknown-fields": True}}}, status=False
    )
    old = {"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "x"}, "any": {"a": 1, "b": [True]}}
    created = track_update(schema, None, old, manager="a", api_version="x/v1", now=T0)
    changed = track_update(
        schema, created, {**created, "any": {"a": True, "b": [1]}}, manager="b", api_version="x/v1", now=T1
    )
    assert owned(changed)["b"] == {"f:any": {"f:a": {}, "f:b": {}}}


def test_an_object_that_does_not_fit_its_type_has_no_managers():
    items = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {}}
    schema = custom_schema({"type": "object", "properties": {"items": items}}, status=False)
    odd = {"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "x"}, "items": [{"no": "name"}]}
    assert entries(track_update(schema, None, odd, manager="a", api_version="x/v1", now=T0)) == []


def test_a_field_the_type_no_longer_has_can_be_owned_and_dropped():
    wide = custom_schema({"type": "object", "properties": {"old": {"type": "string"}}}, status=False)
    narrow = custom_schema({"type": "object", "properties": {"n": {"type": "integer"}}}, status=False)
    obj = {"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "x", "uid": "1"}}
    created = track_update(wide, None, {**obj, "old": "1"}, manager="a", api_version="x/v1", now=T0)
    changed = track_update(narrow, created, {**obj, "n": 1}, manager="b", api_version="x/v1", now=T1)
    assert owned(changed) == {"b": {"f:n": {}}}


def test_managers_of_a_version_that_is_gone_are_dropped_and_others_see_the_change_in_theirs():
    schema = custom_schema(
        {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}, status=False
    )

    def convert(obj, version):
        if version == "x/v0":
            return None
        renamed = {"a": "b", "b": "a"} if version == "x/v2" else {}
        return schema, {renamed.get(key, key): value for key, value in obj.items()}

    sent = [
        {"manager": version, "operation": "Update", "apiVersion": f"x/{version}", "time": T0, "fieldsType": "FieldsV1",
         "fieldsV1": {"f:a": {}, "f:b": {}}}
        for version in ("v0", "v1", "v2")
    ]  # fmt: skip
    old = {
        "apiVersion": "x/v1",
        "kind": "X",
        "metadata": {"name": "x", "uid": "1", "managedFields": sent},
        "a": "1",
        "b": "1",
    }
    new = {**old, "a": "2"}
    done = track_update(schema, old, new, manager="w", api_version="x/v1", now=T1, convert=convert)
    assert owned(done) == {"v1": {"f:b": {}}, "v2": {"f:a": {}}, "w": {"f:a": {}}}


def test_who_owned_parts_of_what_became_one_unit_owns_the_unit():
    def thing(**unit: str):
        inner = {"type": "object", "additionalProperties": {"type": "string"}, **unit}
        return custom_schema({"type": "object", "properties": {"a": inner, "n": {"type": "integer"}}}, status=False)

    old = {"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "x", "uid": "1"}, "a": {"k": "v"}, "n": 1}
    created = track_update(thing(), None, old, manager="a", api_version="x/v1", now=T0)
    assert owned(created) == {"a": {"f:a": {".": {}, "f:k": {}}, "f:n": {}}}
    atomic = thing(**{"x-kubernetes-map-type": "atomic"})
    changed = track_update(atomic, created, {**created, "n": 2}, manager="b", api_version="x/v1", now=T1)
    assert owned(changed) == {"a": {"f:a": {}}, "b": {"f:n": {}}}


def test_a_write_that_changes_nothing_but_times_is_not_a_write():
    created = write(None, config_map(a="1"))
    later = {**created, "metadata": {**created["metadata"], "managedFields": [{**entries(created)[0], "time": T2}]}}
    assert keep_times(created, later) is created
    changed = {**later, "data": {"a": "2"}}
    assert keep_times(created, changed) is changed


def test_stored_objects_are_never_changed():
    created = write(None, config_map(a="1", b="2"))
    copy = {**created, "metadata": {**created["metadata"]}}
    before = repr(created)
    write(copy, config_map(a="2"), by="bob", at=T1)
    assert repr(created) == before
