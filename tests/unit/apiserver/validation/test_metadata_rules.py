from __future__ import annotations

from typing import Any

import pytest

from steersman.apiserver.resources.kinds import BUILTINS
from steersman.apiserver.validation.metadata_rules import ANNOTATIONS_LIMIT, validate_meta, validate_meta_update

CONFIG_MAPS = next(info for info in BUILTINS if info.kind.plural == "configmaps")
NODES = next(info for info in BUILTINS if info.kind.plural == "nodes")


def obj(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", "namespace": "n", "resourceVersion": "1", "uid": "u", **metadata}}


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[tuple[str, str]]:
    """Each cause once: the server repeats what several of its checks find."""
    found = validate_meta_update(CONFIG_MAPS, obj(**new), obj(**old))
    return list(dict.fromkeys((cause.field, cause.message) for cause in found))


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("uid", "v", '"v"'),
        ("creationTimestamp", "2026-01-01T00:00:00Z", '"2026-01-01T00:00:00Z"'),
        ("deletionTimestamp", "2026-01-01T00:00:00Z", '"2026-01-01T00:00:00Z"'),
        ("deletionGracePeriodSeconds", 30, "30"),
    ],
)
def test_what_the_server_sets_does_not_change(field: str, value: Any, shown: str) -> None:
    assert changes({}, {field: value}) == [(f"metadata.{field}", f"Invalid value: {shown}: field is immutable")]


def test_an_object_on_its_way_out_gets_no_new_finalizers_but_may_lose_some() -> None:
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.org/a", "example.org/b"]}
    assert changes(leaving, {**leaving, "finalizers": ["example.org/a"]}) == []
    refused = "Forbidden: no new finalizers can be added if the object is being deleted"
    expected = [("metadata.finalizers", f"{refused}: example.org/c")]
    assert changes(leaving, {**leaving, "finalizers": ["example.org/c"]}) == expected


def test_the_generation_never_goes_back() -> None:
    expected = [("metadata.generation", "Invalid value: 1: must not be decremented")]
    assert changes({"generation": 2}, {"generation": 1}) == expected


def test_an_update_names_the_version_it_is_based_on() -> None:
    expected = [("metadata.resourceVersion", 'Invalid value: "": must be specified for an update')]
    assert changes({}, {"resourceVersion": ""}) == expected


def test_a_namespace_belongs_to_namespaced_objects_and_only_to_them() -> None:
    (cause,) = validate_meta(NODES, {"metadata": {"name": "x", "namespace": "n"}})
    assert (cause.field, cause.message) == ("metadata.namespace", "Forbidden: not allowed on this type")
    (cause,) = validate_meta(CONFIG_MAPS, {"metadata": {"name": "x"}})
    assert (cause.field, cause.message) == ("metadata.namespace", "Required value")


def test_annotations_have_a_limit_together() -> None:
    fits = {"a": "x" * (ANNOTATIONS_LIMIT - 1)}
    assert validate_meta(CONFIG_MAPS, obj(annotations=fits)) == []
    (cause,) = validate_meta(CONFIG_MAPS, obj(annotations={**fits, "b": ""}))
    assert cause.message == "Too long: may not be more than 262144 bytes"


def test_a_prefix_for_a_generated_name_may_end_in_a_dash() -> None:
    assert validate_meta(CONFIG_MAPS, obj(generateName="web-")) == []
    assert [cause.field for cause in validate_meta(CONFIG_MAPS, obj(generateName="Web-"))] == ["metadata.generateName"]


@pytest.mark.parametrize(
    ("entry", "fields"),
    [
        ({"manager": "m", "operation": "Apply", "fieldsType": "FieldsV1"}, []),
        ({"manager": "m", "operation": "Steal"}, ["operation"]),
        ({"manager": "m" * 129, "operation": "Update"}, ["manager"]),
        ({"manager": "m", "operation": "Update", "fieldsType": "FieldsV2"}, ["fieldsType"]),
        ({"manager": "m", "operation": "Update", "subresource": "s" * 257}, ["subresource"]),
    ],
)
def test_managed_fields_name_a_manager_and_an_operation(entry: dict[str, Any], fields: list[str]) -> None:
    found = validate_meta(CONFIG_MAPS, obj(managedFields=[entry]))
    assert [cause.field for cause in found] == [f"metadata.managedFields[0].{field}" for field in fields]
