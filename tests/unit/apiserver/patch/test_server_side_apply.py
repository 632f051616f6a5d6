from __future__ import annotations

import json
from typing import Any

import pytest

from steersman.apiserver.patch.apply import LAST_APPLIED, ApplyConflicts, apply
from steersman.apiserver.patch.managed_fields import track_update
from steersman.apiserver.resources.defaults import apply_defaults
from steersman.apiserver.resources.schema import builtin_schema, custom_schema
from steersman.apiserver.status_errors import StatusError
from steersman.kube.api.gvk import Kind

DEPLOYMENT = Kind(group="apps", version="v1", kind="Deployment", plural="deployments")
T0, T1, T2 = (f"2026-01-01T00:00:0{second}Z" for second in range(3))

ITEM = {"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "string"}}}
PORT = {
    "type": "object",
    "properties": {
        "port": {"type": "integer"},
        "protocol": {"type": "string", "default": "TCP"},
        "target": {"type": "string"},
    },
}
THING = custom_schema(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "a": {"type": "string"},
                    "b": {"type": "string"},
                    "n": {"type": "integer"},
                    "map": {"type": "object", "additionalProperties": {"type": "string"}},
                    "unit": {
                        "type": "object",
                        "x-kubernetes-map-type": "atomic",
                        "additionalProperties": {"type": "string"},
                    },
                    "list": {"type": "array", "items": {"type": "string"}},
                    "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                    "items": {
                        "type": "array",
                        "items": ITEM,
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                    },
                    "ports": {
                        "type": "array",
                        "items": PORT,
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["port", "protocol"],
                    },
                    "any": {"x-kubernetes-preserve-unknown-fields": True},
                },
            },
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        },
    },
    status=True,
)


def thing(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "x/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": "n"}, "spec": spec}


def run(
    live: dict[str, Any] | None,
    config: dict[str, Any],
    by: str = "alice",
    at: str = T0,
    *,
    force: bool = False,
    **more: Any,
) -> dict[str, Any]:
    done = apply(THING, live, config, manager=by, force=force, api_version="x/v1", now=at, **more)
    return {**done, "metadata": {**done["metadata"], "uid": "1"}}


def update(live: dict[str, Any], new: dict[str, Any], by: str = "alice", at: str = T1) -> dict[str, Any]:
    merged = {**new, "metadata": {**live["metadata"]}}
    return track_update(THING, live, merged, manager=by, api_version="x/v1", now=at)


def owned(obj: dict[str, Any]) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"].get("managedFields", [])}


def test_an_applier_owns_the_leaves_it_states():
    done = run(None, thing(a="1", map={"k": "v"}, any={"deep": {"er": 1}}))
    assert done["metadata"]["managedFields"] == [
        {
            "manager": "alice",
            "operation": "Apply",
            "apiVersion": "x/v1",
            "time": T0,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:spec": {
                    "f:a": {},
                    "f:any": {"f:deep": {".": {}, "f:er": {}}},
                    "f:map": {"f:k": {}},
                }
            },
        }
    ]


def test_a_field_no_longer_applied_is_removed():
    done = run(run(None, thing(a="1", b="1")), thing(a="1"), at=T1)
    assert done["spec"] == {"a": "1"}


def test_a_field_no_longer_applied_stays_while_someone_else_owns_it():
    live = run(run(None, thing(a="1", b="1")), thing(b="1"), by="bob", at=T1)
    done = run(live, thing(a="1"), at=T2)
    assert done["spec"] == {"a": "1", "b": "1"}
    assert owned(done)["bob"] == {"f:spec": {"f:b": {}}}


def test_a_field_an_updater_changed_is_not_the_appliers_to_remove():
    live = run(None, thing(a="1", b="1"))
    live = update(live, {**live, "spec": {"a": "1", "b": "2"}}, by="bob")
    assert run(live, thing(a="1"), at=T2)["spec"] == {"a": "1", "b": "2"}


def test_changing_another_managers_field_is_a_conflict_that_names_manager_and_field():
    live = run(None, thing(a="1"))
    with pytest.raises(ApplyConflicts) as refused:
        run(live, thing(a="2"), by="bob", at=T1)
    assert refused.value.code == 409
    assert refused.value.message == 'Apply failed with 1 conflict: conflict with "alice": .spec.a'
    assert refused.value.details == {
        "causes": [{"reason": "FieldManagerConflict", "message": 'conflict with "alice"', "field": ".spec.a"}]
    }


def test_several_conflicts_are_listed_by_manager():
    live = run(run(None, thing(a="1", n=1)), thing(b="1"), by="bob", at=T1)
    live = update(live, {**live, "spec": {**live["spec"], "n": 2}}, by="carol", at=T1)
    with pytest.raises(ApplyConflicts) as refused:
        run(live, thing(a="2", b="2", n=3), by="dave", at=T2)
    assert refused.value.message == (
        "Apply failed with 3 conflicts: "
        'conflicts with "alice":\n- .spec.a\nconflicts with "bob":\n- .spec.b\n'
        'conflicts with "carol" using x/v1:\n- .spec.n'
    )


def test_force_takes_the_field_from_everyone_else():
    live = run(run(None, thing(a="1", b="1")), thing(a="1"), by="bob", at=T1)
    done = run(live, thing(a="2"), by="carol", at=T2, force=True)
    assert owned(done) == {"alice": {"f:spec": {"f:b": {}}}, "carol": {"f:spec": {"f:a": {}}}}


def test_applying_the_value_a_field_has_shares_it_and_has_no_time():
    live = run(None, thing(a="1"))
    done = run(live, thing(a="1"), by="bob", at=T1)
    assert owned(done) == {"bob": {"f:spec": {"f:a": {}}}, "alice": {"f:spec": {"f:a": {}}}}
    assert [entry.get("time") for entry in done["metadata"]["managedFields"]] == [None, T0]


def test_applying_the_same_twice_changes_nothing():
    live = run(None, thing(a="1", items=[{"name": "x"}], ports=[{"port": 1}]))
    assert run(live, thing(a="1", items=[{"name": "x"}], ports=[{"port": 1}]), at=T2) == live


def test_an_apply_with_nothing_in_it_gives_everything_up():
    done = run(run(None, thing(a="1")), {key: value for key, value in thing().items() if key != "spec"}, at=T1)
    assert owned(done) == {}
    assert "spec" not in done


def test_items_of_a_map_list_are_owned_one_by_one_and_keep_their_order():
    live = run(None, thing(items=[{"name": "a"}, {"name": "b", "value": "1"}]))
    done = run(live, thing(items=[{"name": "c"}, {"name": "a", "value": "2"}]), by="bob", at=T1)
    assert done["spec"]["items"] == [{"name": "c"}, {"name": "a", "value": "2"}, {"name": "b", "value": "1"}]
    assert owned(done)["bob"]["f:spec"]["f:items"] == {
        'k:{"name":"a"}': {".": {}, "f:name": {}, "f:value": {}},
        'k:{"name":"c"}': {".": {}, "f:name": {}},
    }


def test_an_item_no_longer_applied_is_removed_unless_it_is_shared():
    live = run(None, thing(items=[{"name": "a"}, {"name": "b"}]))
    live = run(live, thing(items=[{"name": "b"}]), by="bob", at=T1)
    assert run(live, thing(items=[]), at=T2)["spec"]["items"] == [{"name": "b"}]


def test_a_missing_key_counts_with_its_default():
    live = run(None, thing(ports=[{"port": 80, "protocol": "TCP", "target": "x"}]))
    done = run(live, thing(ports=[{"port": 80, "target": "y"}, {"port": 80, "protocol": "UDP"}]), at=T1)
    assert done["spec"]["ports"] == [{"port": 80, "target": "y"}, {"port": 80, "protocol": "UDP"}]
    assert list(owned(done)["alice"]["f:spec"]["f:ports"]) == [
        'k:{"port":80,"protocol":"TCP"}',
        'k:{"port":80,"protocol":"UDP"}',
    ]


def test_sets_are_unions_and_lists_and_atomic_maps_are_replaced():
    live = run(None, thing(set=["a", "b"], list=["a", "b"], unit={"a": "1", "b": "1"}))
    done = run(live, thing(set=["c"], list=["c"], unit={"c": "1"}), by="bob", at=T1, force=True)
    assert done["spec"] == {"set": ["a", "b", "c"], "list": ["c"], "unit": {"c": "1"}}
    assert owned(done)["alice"] == {"f:spec": {"f:set": {'v:"a"': {}, 'v:"b"': {}}}}


def test_null_in_a_configuration_is_owned():
    done = run(None, thing(any=None))
    assert owned(done) == {"alice": {"f:spec": {"f:any": {}}}}


def test_everything_there_before_the_first_apply_belongs_to_one_manager():
    live = thing(a="1", b="1")
    live["metadata"]["uid"] = "1"
    done = run(live, thing(a="1"), at=T1)
    assert owned(done) == {
        "alice": {"f:spec": {"f:a": {}}},
        "before-first-apply": {"f:spec": {".": {}, "f:a": {}, "f:b": {}}},
    }
    with pytest.raises(ApplyConflicts, match=r'conflict with "before-first-apply" using x/v1: .spec.a'):
        run(live, thing(a="2"), at=T1)


def test_a_status_apply_owns_status_only_and_a_main_apply_never_does():
    config = {**thing(a="2"), "status": {"phase": "Ready"}}
    live = run(None, thing(a="1"))
    done = run(live, config, by="operator", at=T1, force=True, subresource="status")
    entry = next(e for e in done["metadata"]["managedFields"] if e["manager"] == "operator")
    assert (entry["subresource"], entry["fieldsV1"]) == ("status", {"f:status": {"f:phase": {}}})
    assert owned(run(live, config, at=T1, force=True))["alice"] == {"f:spec": {"f:a": {}}}


def client_side(**spec: Any) -> dict[str, Any]:
    """An object kubectl applied on the client's side."""
    obj = thing(**spec)
    obj["metadata"]["annotations"] = {LAST_APPLIED: json.dumps(thing(**spec))}
    created = track_update(THING, None, obj, manager="kubectl-client-side-apply", api_version="x/v1", now=T0)
    return {**created, "metadata": {**created["metadata"], "uid": "1"}}


def test_kubectl_takes_over_what_client_side_apply_owned():
    done = run(client_side(a="1"), thing(a="2"), by="kubectl", at=T1)
    assert done["spec"] == {"a": "2"}
    assert json.loads(done["metadata"]["annotations"][LAST_APPLIED]) == thing(a="2")
    assert done["metadata"]["annotations"][LAST_APPLIED].endswith("}\n")


def test_only_kubectl_takes_over_from_client_side_apply():
    with pytest.raises(ApplyConflicts, match=r'"kubectl-client-side-apply" using x/v1: .spec.a'):
        run(client_side(a="1"), thing(a="2"), by="other", at=T1)


def test_kubectl_still_conflicts_where_the_object_differs_from_the_annotation():
    live = client_side(a="1", b="1")
    live = update(live, {**live, "spec": {"a": "9", "b": "1"}}, by="bob")
    with pytest.raises(ApplyConflicts, match=r'1 conflict: conflict with "bob" using x/v1: .spec.a'):
        run(live, thing(a="2", b="2"), by="kubectl", at=T2)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**thing(), "spec": {"zzz": 1}}, ".spec.zzz: field not declared in schema"),
        (thing(a=1), ".spec.a: expected string, got 1"),
        (
            thing(a={"x": ["y", 1]}),
            '.spec.a: expected string, got {"x":["y",1]}',
        ),
        (thing(n="1"), '.spec.n: expected numeric, got "1"'),
        (thing(map=["x"]), '.spec.map: expected a map, got ["x"]'),
        (thing(list={"b": True, "a": None}), '.spec.list: expected a list, got {"b":true,"a":null}'),
        (thing(set=["a", "a"]), '.spec.set: duplicate entries for key [="a"]'),
        (thing(items=[{"name": "a"}, {"name": "a"}]), '.spec.items: duplicate entries for key [name="a"]'),
        (thing(items=[None]), ".spec.items: element 0: associative list with keys may not have a null element"),
        (thing(items=["x"]), ".spec.items: element 0: associative list with keys may not have non-map elements"),
        (
            thing(items=[{"value": "x"}]),
            (
                '.spec.items: element 0: associative list with keys has an element that omits all key fields ["name"] '
                "(and doesn't have default values for any key fields)"
            ),
        ),
        (
            thing(a=1, n="x"),
            'errors:\n  .spec.a: expected string, got 1\n  .spec.n: expected numeric, got "x"',
        ),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused_with_every_reason(config, message):
    with pytest.raises(StatusError) as refused:
        run(None, config)
    assert refused.value.code == 500
    assert refused.value.message == f"failed to create typed patch object (n/t; x/v1, Kind=Thing): {message}"


def test_a_configuration_of_another_type_or_with_managers_is_a_bad_request():
    for config, message in (
        ({**thing(), "apiVersion": "v2"}, "invalid object type: /v2, Kind=Thing"),
        ({**thing(), "kind": "Other"}, "invalid object type: x/v1, Kind=Other"),
        ({**thing(), "metadata": {"name": "t", "managedFields": []}}, "metadata.managedFields must be nil"),
    ):
        with pytest.raises(StatusError) as refused:
            run(None, config, kind="Thing")
        assert (refused.value.code, refused.value.message) == (400, message)


def test_a_built_in_object_is_applied_field_by_field():
    schema = builtin_schema(DEPLOYMENT)

    def deployment(**container: Any) -> dict[str, Any]:
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", **container}]}}
        spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}

    options: dict[str, Any] = {"force": False, "api_version": "apps/v1"}
    live = apply(schema, None, deployment(image="a", ports=[{"containerPort": 80}]), manager="alice", now=T0, **options)
    live = apply_defaults(DEPLOYMENT, {**live, "metadata": {**live["metadata"], "uid": "1"}})
    assert live["spec"]["template"]["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    same = apply(schema, live, deployment(image="a", ports=[{"containerPort": 80}]), manager="alice", now=T1, **options)
    assert same == live
    with pytest.raises(ApplyConflicts, match=r'"alice": .spec.template.spec.containers\[name="web"\].image'):
        apply(schema, live, deployment(image="b"), manager="bob", now=T1, **options)
