from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.apiserver.patch.strategic_merge import strategic_merge
from steersman.apiserver.resources.schema import builtin_schema
from steersman.apiserver.status_errors import StatusError
from steersman.kube.api.gvk import Kind

POD = builtin_schema(Kind(version="v1", kind="Pod", plural="pods"))
DEPLOYMENT = builtin_schema(Kind(group="apps", version="v1", kind="Deployment", plural="deployments"))
SERVICE = builtin_schema(Kind(version="v1", kind="Service", plural="services"))


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": list(containers), **spec}}


def patched(original: dict[str, Any], patch: dict[str, Any], schema: Any = POD) -> Any:
    return strategic_merge(schema, original, patch)


WEB, LOG = {"name": "web", "image": "web:1"}, {"name": "log", "image": "log:1"}


def containers(patch: list[Any], **directives: Any) -> Any:
    return patched(pod(WEB, LOG), {"spec": {"containers": patch, **directives}})["spec"]["containers"]


def test_maps_are_merged_and_null_removes_a_key():
    original = {"metadata": {"labels": {"a": "1", "b": "1"}, "annotations": {"x": "1"}}}
    patch = {"metadata": {"labels": {"a": "2", "b": None, "c": None}, "annotations": None}}
    assert patched(original, patch) == {"metadata": {"labels": {"a": "2"}}}


def test_items_are_merged_by_their_key_and_new_ones_come_first():
    assert containers([{"name": "log", "image": "log:2"}, {"name": "new"}]) == [
        WEB,
        {"name": "log", "image": "log:2"},
        {"name": "new"},
    ]
    assert containers([{"name": "new"}]) == [{"name": "new"}, WEB, LOG]


def test_an_item_can_be_deleted():
    assert containers([{"name": "web", "$patch": "delete"}]) == [LOG]


def test_a_list_can_be_replaced():
    assert containers([{"$patch": "replace"}, {"name": "only"}]) == [{"name": "only"}]


def test_a_list_without_a_merge_strategy_is_replaced():
    original = pod(WEB, tolerations=[{"key": "a"}])
    assert patched(original, {"spec": {"tolerations": [{"key": "b"}]}})["spec"]["tolerations"] == [{"key": "b"}]


def test_the_order_of_a_list_can_be_set():
    order = [{"name": "log"}, {"name": "web"}]
    assert patched(pod(WEB, LOG), {"spec": {"$setElementOrder/containers": order}})["spec"]["containers"] == [LOG, WEB]
    patch = [{"name": "web", "image": "web:2"}]
    assert containers(patch, **{"$setElementOrder/containers": order}) == [LOG, {"name": "web", "image": "web:2"}]


def test_items_the_order_does_not_name_keep_their_place():
    other = {"name": "mid", "image": "m"}
    merged = patched(
        pod(WEB, other, LOG), {"spec": {"$setElementOrder/containers": [{"name": "log"}, {"name": "web"}]}}
    )
    assert [item["name"] for item in merged["spec"]["containers"]] == ["mid", "log", "web"]


def test_lists_of_scalars_with_a_merge_strategy_are_unions():
    original = {"metadata": {"finalizers": ["a", "b"]}}
    assert patched(original, {"metadata": {"finalizers": ["c", "b"]}})["metadata"]["finalizers"] == ["c", "a", "b"]


def test_scalars_are_taken_out_by_a_parallel_list():
    original = {"metadata": {"finalizers": ["a", "b", "c"]}}
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["b", "z"]}}
    assert patched(original, patch)["metadata"]["finalizers"] == ["a", "c"]
    assert patched({"metadata": {}}, patch) == {"metadata": {}}


def test_the_order_of_scalars_can_be_set():
    original = {"metadata": {"finalizers": ["a", "b", "c"]}}
    patch = {"metadata": {"$setElementOrder/finalizers": ["c", "a"]}}
    assert patched(original, patch)["metadata"]["finalizers"] == ["b", "c", "a"]


def test_retain_keys_drops_every_other_key():
    original = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert patched(original, patch, DEPLOYMENT) == {"spec": {"strategy": {"type": "Recreate"}}}


def test_retain_keys_works_in_the_items_of_a_list():
    original = pod(WEB, volumes=[{"name": "v", "emptyDir": {}}])
    patch = {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "secret"], "secret": {"secretName": "s"}}]}}
    assert patched(original, patch)["spec"]["volumes"] == [{"name": "v", "secret": {"secretName": "s"}}]


def test_a_map_can_be_replaced_or_emptied():
    original = {"metadata": {"labels": {"a": "1"}}}
    assert patched(original, {"metadata": {"labels": {"$patch": "replace", "b": "1"}}})["metadata"]["labels"] == {
        "b": "1"
    }
    assert patched(original, {"metadata": {"labels": {"$patch": "delete"}}})["metadata"]["labels"] == {}


def test_a_new_field_loses_nulls_and_what_only_makes_sense_against_an_old_one():
    patch = {"spec": {"securityContext": {"runAsUser": 1, "fsGroup": None, "seccompProfile": {"$patch": "delete"}}}}
    assert patched(pod(WEB), patch)["spec"]["securityContext"] == {"runAsUser": 1}
    assert patched(pod(WEB), {"spec": {"affinity": {"$patch": "delete"}}}) == pod(WEB)


def test_a_value_of_another_shape_replaces_the_old_one():
    original = {"spec": {"ports": [{"port": 80, "targetPort": "http"}]}}
    patch = {"spec": {"ports": [{"port": 80, "targetPort": 8080}]}}
    assert patched(original, patch, SERVICE) == {"spec": {"ports": [{"port": 80, "targetPort": 8080}]}}


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        (
            {"spec": {"containers": [{"image": "x"}]}},
            500,
            '{"image":"x"} does not contain declared merge key: name',
        ),
        (
            {"spec": {"containers": [{"$patch": "delete"}]}},
            500,
            '{"$patch":"delete"} does not contain declared merge key: name',
        ),
        ({"spec": {"containers": [{"$patch": "merge"}]}}, 500, "merging lists cannot yet be specified in the patch"),
        ({"spec": {"$patch": "bogus"}}, 500, 'unknown $patch directive "bogus" (known: replace, delete)'),
        ({"spec": {"$patch": None}}, 500, "unknown $patch directive null (known: replace, delete)"),
        ({"spec": {"$retainKeys": "x"}}, 400, "invalid patch format of retainKeys"),
        ({"spec": {"$retainKeys": ["x"], "nodeName": "n"}}, 400, "invalid patch format of retainKeys"),
        ({"spec": {"$setElementOrder": []}}, 400, "invalid patch format of setElementOrder list"),
        ({"spec": {"$deleteFromPrimitiveList": []}}, 400, "invalid patch format of primitive list"),
        (
            {"spec": {"$setElementOrder/containers": [{"name": "log"}], "containers": [{"name": "web"}]}},
            500,
            "the order of the patch ",
        ),
        (
            {"spec": {"$setElementOrder/unheardOf": []}},
            500,
            "PodSpec has no field unheardOf",
        ),
        (
            {"spec": {"$setElementOrder/containers": {}}},
            500,
            "expected a list in the patch, got {}",
        ),
        (
            {"spec": {"$setElementOrder/containers": None}},
            500,
            "expected a list in the patch, got null",
        ),
        ({"spec": {"containers": ["x"]}}, 500, "items of a list must be of one type: "),
    ],
)
def test_a_patch_that_makes_no_sense_is_refused_with_a_reason(patch, code, message):
    with pytest.raises(StatusError) as refused:
        patched(pod(WEB, LOG), patch)
    assert refused.value.code == code
    assert refused.value.message.startswith(message)


def test_data_of_unknown_type_cannot_be_merged_into():
    revision = builtin_schema(Kind(group="apps", version="v1", kind="ControllerRevision", plural="controllerrevisions"))
    with pytest.raises(StatusError, match="RawExtension has no field a"):
        patched({"data": {"a": {"b": 1}}}, {"data": {"a": {"b": 2}}}, revision)


NAMES = st.lists(st.sampled_from("abcdef"), unique=True, max_size=5)


@given(NAMES, NAMES)
def test_merging_a_list_keeps_the_order_of_both_sides_and_loses_nothing(live, wanted):
    original = pod(*({"name": name, "image": "old"} for name in live))
    merged = patched(original, {"spec": {"containers": [{"name": name, "image": "new"} for name in wanted]}})
    names = [item["name"] for item in merged["spec"]["containers"]]
    assert sorted(names) == sorted({*live, *wanted})
    assert [name for name in names if name in wanted] == wanted
    assert [name for name in names if name not in wanted] == [name for name in live if name not in wanted]


@given(NAMES, NAMES)
def test_neither_side_is_changed(live, wanted):
    original = pod(*({"name": name, "env": [{"name": "A"}]} for name in live))
    patch = {"spec": {"containers": [{"name": name, "env": [{"name": "B"}]} for name in wanted]}}
    before = copy.deepcopy((original, patch))
    patched(original, patch)
    assert (original, patch) == before
