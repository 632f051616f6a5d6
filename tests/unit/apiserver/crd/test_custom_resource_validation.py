"""Answers recorded from the real server: tools/record_cases.py writes them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.apiserver.crd.custom_resource_validation import validate, validate_status
from steersman.apiserver.resources.registry import Registry
from steersman.apiserver.validation.metadata_rules import finalizer_warnings, validate_meta

if TYPE_CHECKING:
    from steersman.apiserver.resources.kinds import ResourceInfo

RECORDED = json.loads((Path(__file__).parents[1] / "recorded" / "custom_resources.json").read_text())
NOW = "2026-01-01T00:00:00Z"


def resource(schema: dict[str, Any] | None = None, **version: Any) -> ResourceInfo:
    definition = copy.deepcopy(RECORDED["definition"])
    if schema is not None:
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
        definition["spec"]["versions"][0].pop("subresources", None)
    definition["spec"]["versions"][0].update(version)
    (info,) = Registry().install(definition, now=NOW).resources
    return info


def spec_schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}


def obj(spec: Any, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.org/v1",
        "kind": "Val",
        "metadata": {"name": "x", "namespace": "default"},
        "spec": spec,
        **more,
    }


def recorded(case: dict[str, Any]) -> set[tuple[str, str]]:
    return {(field, reason) for field, reason, _ in case.get("causes", [])}


def violations(causes: list[Any]) -> set[tuple[str, str]]:
    """Field and reason of every cause, once: what the server promises. The sentence is its own."""
    return {(cause.field, cause.reason) for cause in causes}


INFO = resource()


@pytest.mark.parametrize("case", RECORDED["cases"], ids=lambda case: json.dumps(case["spec"])[:60])
def test_a_custom_resource_is_validated_as_the_real_server_does(case: dict[str, Any]) -> None:
    admitted = INFO.structural.admit(obj(case["spec"]))
    assert violations(validate_meta(INFO, admitted) + validate(INFO, admitted)) == recorded(case)
    if "stored" in case:
        assert admitted["spec"] == case["stored"]


def test_an_unchanged_part_is_not_held_against_the_writer_but_a_changed_one_is() -> None:
    info = resource(spec_schema(a={"type": "string", "maxLength": 1}, b={"type": "string", "maxLength": 1}))
    old = obj({"a": "too long", "b": "x"})
    assert validate(info, obj({"a": "too long", "b": "y"}), old) == []
    assert [cause.field for cause in validate(info, obj({"a": "too long", "b": "long too"}), old)] == ["spec.b"]
    assert [cause.field for cause in validate(info, old)] == ["spec.a"]


def test_items_of_a_list_map_are_compared_by_key_and_items_of_other_lists_are_not() -> None:
    item = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "v": {"type": "integer", "maximum": 1}},
    }
    keyed = {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    old = {"l": [{"name": "a", "v": 5}]}
    new = {"l": [{"name": "b", "v": 1}, {"name": "a", "v": 5}]}
    assert validate(resource(spec_schema(l=keyed)), obj(new), obj(old)) == []
    plain = {"type": "array", "items": item}
    assert [c.field for c in validate(resource(spec_schema(l=plain)), obj(new), obj(old))] == ["spec.l[1].v"]


def test_duplicates_are_not_reported_when_the_stored_object_already_had_some() -> None:
    info = resource(spec_schema(s={"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}))
    doubled = obj({"s": ["a", "a"]})
    assert [cause.field for cause in validate(info, doubled, obj({"s": ["a"]}))] == ["spec.s[1]"]
    assert validate(info, obj({"s": ["b", "b"]}), doubled) == []


def test_a_status_is_validated_on_its_own_with_paths_relative_to_it() -> None:
    old = obj({}, status={"n": 1})
    (cause,) = [c for c in validate_status(INFO, obj({}, status={"n": "x"}), old) if c.field == "status.n"]
    assert cause.message == 'Invalid value: "string": must be of type integer'
    assert validate_status(INFO, obj({"i": "wrong"}, status={"n": 2}), old) == []


@pytest.mark.parametrize(
    ("given_spec", "unknown"),
    [
        ({"known": 1, "foo": 2}, ["spec.foo"]),
        ({"list": [{"a": 1, "b": 2}]}, ["spec.list[0].b"]),
        ({"free": {"anything": {"goes": 1}}}, []),
        (
            {"emb": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "nope": 1}, "data": {}}},
            ["spec.emb.metadata.nope"],
        ),
        ({"typed": {"x": {"deep": 1}}}, ["spec.typed.x.deep"]),
    ],
)
def test_unknown_fields_are_named_and_pruned(given_spec: dict[str, Any], unknown: list[str]) -> None:
    info = resource(
        spec_schema(
            known={"type": "integer"},
            list={"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}}},
            free={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            emb={
                "type": "object",
                "x-kubernetes-embedded-resource": True,
                "x-kubernetes-preserve-unknown-fields": True,
            },
            typed={"type": "object", "additionalProperties": {"type": "object"}},
        )
    )
    given_object = obj(given_spec)
    assert info.structural.unknown_fields(given_object) == unknown
    assert info.structural.unknown_fields(info.structural.prune(given_object)) == []


def test_unknown_metadata_is_named_first_and_dropped() -> None:
    given_object = obj({"zzz": 1})
    given_object["metadata"] = {"name": "x", "foo": 1, "ownerReferences": [{"name": "a", "bar": 2}]}
    assert INFO.structural.unknown_fields(given_object) == [
        "metadata.foo",
        "metadata.ownerReferences[0].bar",
        "spec.zzz",
    ]
    assert INFO.structural.prune(given_object)["metadata"] == {"name": "x", "ownerReferences": [{"name": "a"}]}


def test_defaults_are_filled_in_at_every_depth_and_inside_defaults() -> None:
    inner = {"type": "object", "default": {}, "properties": {"port": {"type": "integer", "default": 80}}}
    info = resource(
        spec_schema(
            one=inner,
            many={
                "type": "array",
                "items": {"type": "object", "properties": {"port": {"type": "integer", "default": 81}}},
            },
            named={
                "type": "object",
                "additionalProperties": {"type": "object", "properties": {"on": {"type": "boolean", "default": True}}},
            },
        )
    )
    admitted = info.structural.admit(obj({"many": [{}, {"port": 1}], "named": {"a": {}}}))
    assert admitted["spec"] == {
        "one": {"port": 80},
        "many": [{"port": 81}, {"port": 1}],
        "named": {"a": {"on": True}},
    }


def test_an_object_that_needs_no_change_is_returned_as_it_is() -> None:
    given_object = obj({"i": 1, "defnul": "y", "nested": {"x": {"y": 1}}})
    assert INFO.structural.admit(given_object) is given_object


def test_finalizers_of_custom_resources_that_could_clash_are_warned_about_when_they_are_new() -> None:
    given_object = {"metadata": {"finalizers": ["mine", "example.org", "example.org/mine"]}}
    clash = "to avoid accidental conflicts with other finalizer writers"
    assert finalizer_warnings(INFO, given_object) == [
        f'metadata.finalizers: "example.org": prefer a domain-qualified finalizer name including a path (/) {clash}',
        f'metadata.finalizers: "mine": prefer a domain-qualified finalizer name {clash}',
    ]
    assert finalizer_warnings(INFO, given_object, given_object) == []


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-10, 2**65)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=4), children, max_size=3),
    max_leaves=10,
)


@given(
    st.dictionaries(
        st.sampled_from([*INFO.structural.root.properties["spec"].properties, "unknown"]), json_values, max_size=5
    )
)
def test_admitting_is_idempotent_never_changes_its_input_and_judging_never_fails(spec: dict[str, Any]) -> None:
    given_object = obj(spec)
    before = copy.deepcopy(given_object)
    admitted = INFO.structural.admit(given_object)
    assert INFO.structural.admit(admitted) == admitted
    assert INFO.structural.unknown_fields(admitted) == []
    validate(INFO, admitted)
    assert given_object == before
