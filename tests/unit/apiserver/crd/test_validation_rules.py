"""What rules cost those who have none, and what happens without the packages that evaluate them. How rules are judged
is in tests/contract/apiserver/test_cel_rules.py, on both servers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from steersman.apiserver.cel import expressions
from steersman.apiserver.crd import validation_rules
from steersman.apiserver.crd.compiled_schema import Structural
from steersman.apiserver.crd.validation_rules import compile_rules, rule_causes

EMPTY = {"type": "string", "x-kubernetes-validations": [{"rule": "self == ''"}]}
RULED = {"type": "object", "properties": {"a": EMPTY}}


def test_without_the_packages_a_definition_with_rules_is_rejected_with_the_way_out(monkeypatch):
    monkeypatch.setattr(validation_rules, "is_installed", lambda: False)
    [cause] = compile_rules(RULED, "schema")[1]
    assert (cause.reason, cause.field) == (
        "FieldValueForbidden",
        "schema.properties[a].x-kubernetes-validations[0].rule",
    )
    assert "pip install 'steersman[cel]'" in cause.message
    assert compile_rules({"type": "object"}) == (None, [])


def test_a_schema_without_rules_never_loads_cel():
    code = """
import sys
from steersman.apiserver.crd.compiled_schema import Structural
from steersman.apiserver.crd.structural_schema_rules import schema_causes
schema = {"type": "object", "properties": {"a": {"type": "string"}}}
assert Structural.compile(schema).rules is None and schema_causes(schema, "") == []
assert not {"cel_expr_python", "google.protobuf"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("package", ["cel_expr_python", "google.protobuf"])
def test_both_packages_are_needed(monkeypatch, package):
    monkeypatch.setattr(expressions, "find_spec", lambda name: None if name == package else object())
    expressions.is_installed.cache_clear()
    assert not expressions.is_installed()
    monkeypatch.undo()
    expressions.is_installed.cache_clear()
    assert expressions.is_installed()


def test_a_schema_keeps_only_the_nodes_that_have_rules():
    rules = Structural.compile({**RULED, "properties": {**RULED["properties"], "b": {"type": "string"}}}).rules
    assert rules is not None
    assert list(rules.properties) == ["a"]


def test_an_object_with_more_values_than_rules_may_judge_is_reported_once_and_not_judged_on():
    schema = {"type": "array", "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 2"}]}}
    root, causes = compile_rules({"type": "object", "properties": {"numbers": schema}})
    assert causes == []
    found = rule_causes(root, {"numbers": [1] * 11 + [9]}, None, limit=10)
    assert [(cause.reason, cause.field) for cause in found] == [("FieldValueInvalid", "numbers[10]")]
    assert "running out of cost budget" in found[0].message
    assert rule_causes(root, {"numbers": [1] * 10}, None, limit=10) == []
