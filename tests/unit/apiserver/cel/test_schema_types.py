from __future__ import annotations

from typing import Any

import pytest

from steersman.apiserver.cel.schema_types import converter, escape
from steersman.apiserver.crd.validation_rules import compile_rules, rule_causes

TEXT, TEXTS = {"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}


def in_spec(rule: str, **properties: Any) -> dict[str, Any]:
    spec = {"type": "object", "properties": properties, "x-kubernetes-validations": [{"rule": rule}]}
    return {"type": "object", "properties": {"spec": spec}}


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("plain", "plain"),
        ("in", "__in__"),
        ("while", "__while__"),
        ("a.b/c-d", "a__dot__b__slash__c__dash__d"),
        ("a__b", "a__underscores__b"),
        ("_", "_"),
        ("1st", None),
        ("a b", None),
        ("", None),
        ("ä", None),
    ],
)
def test_property_names_are_escaped_into_identifiers(name, escaped):
    assert escape(name) == escaped


def test_a_value_that_is_already_a_cel_value_is_not_copied():
    assert converter({"type": "object", "properties": {"a": TEXT, "b": TEXTS}}) is None


def test_only_the_names_of_a_resource_are_visible():
    convert = converter({"type": "object", "properties": {"spec": TEXT}}, resource=True)
    assert convert is not None
    shown = convert({"kind": "K", "metadata": {"name": "n", "labels": {"a": "b"}}, "spec": "s", "unknown": 1})
    assert shown == {"kind": "K", "metadata": {"name": "n"}, "spec": "s"}


@pytest.mark.parametrize(
    ("rule", "properties"),
    [
        ("self.foo_bar.a == self.fooBar.a", {"foo_bar": TEXTS, "fooBar": TEXTS}),
        ("self.foo.a == self.FooEntry", {"foo": TEXTS, "FooEntry": TEXT}),
        ("self.a[0][0] == 'x'", {"a": {"type": "array", "items": {"type": "array", "items": TEXT}}}),
        ("self.a.b.c == 'x'", {"a": {"type": "object", "additionalProperties": TEXTS}}),
        ("self.a == 'x'", {"a": TEXT, "free": {"x-kubernetes-preserve-unknown-fields": True}}),
    ],
    ids=["two names for one message", "a field named as a message", "lists of lists", "maps of maps", "no type"],
)
def test_every_structural_schema_has_types(rule, properties):
    assert compile_rules(in_spec(rule, **properties))[1] == []


def test_a_field_without_a_type_is_not_visible():
    [cause] = compile_rules(in_spec("has(self.free)", free={"x-kubernetes-preserve-unknown-fields": True}), "schema")[1]
    assert cause.field == "schema.properties[spec].x-kubernetes-validations[0].rule"


def test_a_duration_in_the_long_notation_is_rejected_and_not_ignored():
    wait = {"type": "string", "format": "duration", "x-kubernetes-validations": [{"rule": "self > duration('1h')"}]}
    rules, _ = compile_rules({"type": "object", "properties": {"spec": wait}})
    assert rules is not None
    assert [cause.field for cause in rule_causes(rules, {"spec": "3 days"}, None)] == ["spec"]
