"""Answers recorded from the real server: tools/record_cases.py writes them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from steersman.apiserver.resources.defaults import apply_defaults
from steersman.apiserver.resources.registry import Registry
from steersman.apiserver.validation.builtin_rules import kind_causes
from steersman.apiserver.validation.metadata_rules import validate_meta, validate_meta_update
from steersman.apiserver.validation.workload_rules import schedule_problem

if TYPE_CHECKING:
    from steersman.apiserver.resources.kinds import ResourceInfo

RECORDED = json.loads((Path(__file__).parents[1] / "recorded" / "builtin_rules.json").read_text())
REGISTRY = Registry()


def info_of(obj: dict[str, Any]) -> ResourceInfo:
    group, _, version = obj["apiVersion"].rpartition("/")
    info = REGISTRY.by_kind(group, version, obj["kind"])
    assert info is not None
    return info


def recorded(case: dict[str, Any]) -> set[tuple[str, str]]:
    return {(field, reason) for field, reason, _ in case.get("causes", [])}


def violations(causes: list[Any]) -> set[tuple[str, str]]:
    """Field and reason of every cause, once: what the server promises. The sentence is its own."""
    return {(cause.field, cause.reason) for cause in causes}


def label(case: dict[str, Any]) -> str:
    shown = case.get("object") or case["new"]
    return f"{shown['kind']} {json.dumps(shown.get('spec', shown['metadata']))[:60]}"


def prepared(obj: dict[str, Any]) -> dict[str, Any]:
    """Defaults as the server fills them in; a job also gets the selector that it generates."""
    filled: dict[str, Any] = apply_defaults(info_of(obj).kind, copy.deepcopy(obj))
    if filled["kind"] == "Job":
        filled["spec"]["selector"] = {"matchLabels": {"uid": "u"}}
        metadata = filled["spec"]["template"].setdefault("metadata", {})
        metadata["labels"] = {**metadata.get("labels", {}), "uid": "u"}
    return filled


@pytest.mark.parametrize("case", RECORDED["creates"], ids=label)
def test_a_new_object_is_validated_as_the_real_server_does(case: dict[str, Any]) -> None:
    obj = prepared(case["object"])
    info = info_of(obj)
    assert violations(validate_meta(info, obj) + kind_causes(info, obj, None)) == recorded(case)


@pytest.mark.parametrize("case", RECORDED["updates"], ids=label)
def test_an_update_is_validated_as_the_real_server_does(case: dict[str, Any]) -> None:
    new, old = case["new"], case["old"]
    info = info_of(new)
    assert violations(validate_meta_update(info, new, old) + kind_causes(info, new, old)) == recorded(case)


def test_a_config_map_larger_than_a_megabyte_is_refused() -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "x" * (1024 * 1024 + 1)}}
    (cause,) = kind_causes(info_of(obj), obj, None)
    assert cause.message == "Too long: may not be more than 1048576 bytes"


def test_the_value_of_a_secret_is_in_no_cause() -> None:
    old = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}, "type": "a", "data": {"k": "aHVudGVyMg=="}}
    new = {**old, "type": "b", "data": {"bad key": "aHVudGVyMg=="}}
    causes = kind_causes(info_of(new), new, old)
    assert causes
    assert "aHVudGVyMg" not in repr(causes)


def test_a_running_pod_may_change_its_images_and_hardly_anything_else() -> None:
    container = {"name": "a", "image": "x"}
    old: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "n"}}
    old["spec"] = {"containers": [container]}
    newer = {**old, "spec": {"containers": [{**container, "image": "y"}]}}
    other = {**old, "spec": {"containers": [container], "hostNetwork": True}}
    info = info_of(old)
    assert kind_causes(info, newer, old) == []
    (cause,) = kind_causes(info, other, old)
    assert (cause.reason, cause.field) == ("FieldValueForbidden", "spec")


@pytest.mark.parametrize(
    ("kind", "status", "fields"),
    [
        ("Deployment", {"replicas": 2, "readyReplicas": 2, "availableReplicas": 2, "unavailableReplicas": 5}, []),
        ("Deployment", {"replicas": 1, "updatedReplicas": 2}, ["status.updatedReplicas"]),
        ("ReplicaSet", {"replicas": 0, "readyReplicas": -1}, ["status.readyReplicas", "status.availableReplicas"]),
        ("StatefulSet", {"replicas": 2, "readyReplicas": 1, "availableReplicas": 2}, ["status.availableReplicas"]),
        ("ReplicaSet", {"replicas": 0, "readyReplicas": 1}, ["status.readyReplicas"]),
    ],
)
def test_no_part_of_a_workload_is_reported_larger_than_the_whole(
    kind: str, status: dict[str, Any], fields: list[str]
) -> None:
    obj = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "x"}, "status": status}
    assert [cause.field for cause in kind_causes(info_of(obj), obj, obj, subresource="status")] == fields


@pytest.mark.parametrize(
    "text",
    ["* * * * *", "*/5 0-6,12 1 jan-mar MON", "@hourly", "@every 1h30m", "0 0 ? * 5/2", "0 0 31 2 *", "0 0 * JUL 0/7"],
)
def test_schedules_that_cron_understands_are_taken(text: str) -> None:
    assert schedule_problem(text) == ""


@pytest.mark.parametrize(
    "text",
    [
        "* *",
        "61 * * * *",
        "* * 0 * *",
        "9-3 * * * *",
        "70/2 * * * *",
        "*/0 * * * *",
        "@never",
        "@every never",
        "x * * * *",
        "* * * * 7",
        "* * * * 1-7",
        "* * L * *",
        "* * * * 5L",
        "* * * * 1#2",
    ],
)
def test_other_schedules_are_refused_with_a_reason(text: str) -> None:
    assert schedule_problem(text)
