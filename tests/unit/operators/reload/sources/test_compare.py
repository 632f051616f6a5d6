"""Comparison in other forms than bytes: what means the same is no change, and switching it on or off is none either."""

from __future__ import annotations

import pytest

from steersman.certificates import Authority
from steersman.errors import FormatError
from steersman.operators.reload.api.config import CompareConfig, ReloadConfig
from steersman.operators.reload.sources.compare import (
    canonical,
    effective_compare_rules,
    form_for_key,
    parse_compare_rules,
)
from tests.support.reload.miniature import World, configmap, env, env_from, secret, workload

COMPARE = "steersman.dev/compare"


@pytest.mark.parametrize(
    ("form", "one", "other"),
    [
        ("json", '{"a": 1, "b": [1, 2]}', '{ "b":[1,2],"a":1 }\n'),
        ("yaml", "a: 1\nb: [1, 2]  # two\n", "b:\n- 1\n- 2\na: 1\n"),
        ("yaml", '{"a": 1}', "a: 1"),
        ("properties", "# note\na = 1\nb: two\\\n  three\n", "b=twothree\na=1\n"),
        ("ignore", "a", "b"),
    ],
)
def test_what_means_the_same_is_the_same(form, one, other):
    assert canonical(form, one.encode()) == canonical(form, other.encode())


@pytest.mark.parametrize(
    ("form", "one", "other"),
    [
        ("json", '{"a": 1}', '{"a": 2}'),
        ("json", "[1, 2]", "[2, 1]"),
        ("json", "{broken", "{broken "),  # not JSON: byte by byte
        ("yaml", "a: 1", "a: '1'"),
        ("yaml", "a: .inf", "a: -.inf"),
        ("yaml", "a: [.inf]", "a: [~]"),
        ("yaml", "a: .nan", "a: .inf"),
        ("yaml", "a: !!binary aGk=", "a: aGk="),
        ("yaml", "a: [", "a: [ "),
        ("properties", "a=1", "a=2"),
        ("certificate", "no certificate", "no certificate either"),
        ("bytes", '{"a":1}', '{"a": 1}'),
    ],
)
def test_what_means_something_else_is_another(form, one, other):
    assert canonical(form, one.encode()) != canonical(form, other.encode())


def test_certificates_are_compared_by_serial_and_end_whatever_stands_around_them():
    authority = Authority("one")
    first, second = authority.pem, Authority("two").pem
    assert canonical("certificate", first + second) == canonical("certificate", b"# chain\n" + second + b"\n" + first)
    assert canonical("certificate", first) != canonical("certificate", second)


@pytest.mark.parametrize("text", ["on: push", "1: one\na: b", "null: x", "2024-01-01: x"])
def test_keys_that_are_no_text_are_compared_byte_by_byte(text):
    assert canonical("yaml", text.encode()) == text.encode()


@pytest.mark.parametrize("part", ["[", "{a: ", "- ", "? "])
def test_a_document_deeper_than_anybody_writes_is_compared_byte_by_byte(part):
    deep = (part * (100_000 // len(part))).encode()
    assert canonical("yaml", deep) == deep


def test_a_document_that_takes_long_to_read_is_compared_byte_by_byte():
    long = b"- a\n" * 250_000
    assert canonical("yaml", long) == long


def test_a_key_that_merges_counts_as_it_is_written():
    assert canonical("yaml", b"a: &a {x: 1}\nb: {<<: *a, y: 2}") == b'[{"a":{"x":1},"b":{"<<":{"x":1},"y":2}}]'
    bomb = "a: &a {x: 1}\n" + "".join(
        f"{new}: &{new} {{<<: [{','.join([f'*{old}'] * 9)}]}}\n"
        for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert canonical("yaml", bomb.encode()) == bomb.encode()


def test_a_setting_of_very_many_lines_is_read_without_delay():
    assert canonical("properties", b"a=\\\n" + b"b\\\n" * 100_000 + b"c\n") == b'{"a":"%bc"}' % (b"b" * 100_000)


def test_a_document_that_stands_for_an_endless_one_is_compared_byte_by_byte():
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert canonical("yaml", bomb.encode()) == bomb.encode()


def test_the_first_glob_that_matches_says_how_a_key_is_compared():
    ways = parse_compare_rules("app.json=bytes, *.json=json,*=ignore")
    assert [form_for_key(key, ways) for key in ("app.json", "x.json", "rest")] == ["bytes", "json", "ignore"]


@pytest.mark.parametrize("text", ["*.json", "=json", "*.json=xml", "a=b=c"])
def test_what_cannot_be_read_says_what_would_be_right(text):
    with pytest.raises(FormatError, match="is not GLOB=FORM"):
        parse_compare_rules(text)


def test_another_order_of_keys_restarts_nothing_and_another_value_does():
    world = World()
    marks = {COMPARE: "*.json=json"}
    world.put(configmap("app", annotations=marks, **{"a.json": '{"x": 1, "y": 2}'}))
    world.put(workload("web", uses=[env_from("app")]))
    world.run()
    world.put(configmap("app", annotations=marks, **{"a.json": '{"y":2,"x":1}'}))
    assert world.run(after=60) == {}
    world.put(configmap("app", annotations=marks, **{"a.json": '{"y":3,"x":1}'}))
    world.run()
    assert world.run(after=60) == {"deployment/web": "restart"}


def test_a_new_key_is_still_a_change_for_who_uses_all_of_them():
    world = World()
    marks = {COMPARE: "*=json"}
    world.put(configmap("app", annotations=marks, a="{}"))
    world.put(workload("web", uses=[env_from("app")]))
    world.run()
    world.put(configmap("app", annotations=marks, a="{}", b="{}"))
    world.run()
    assert world.run(after=60) == {"deployment/web": "restart"}


@pytest.mark.parametrize("uses", [env_from("app"), env("app", "a")])
def test_switching_it_on_and_off_restarts_nothing(uses):
    world = World()
    data = {"a": '{"x": 1}', "b": "plain"}
    world.put(configmap("app", **data))
    world.put(workload("web", uses=[uses]))
    world.run()
    world.put(configmap("app", annotations={COMPARE: "a=json"}, **data))
    assert "restart" not in {**world.run(after=60), **world.run(after=60)}.values()
    world.put(configmap("app", **data))
    assert "restart" not in {**world.run(after=60), **world.run(after=60)}.values()
    world.put(configmap("app", **{**data, "a": '{"x": 2}'}))
    world.run()
    assert world.run(after=60) == {"deployment/web": "restart"}


def test_a_value_that_changes_together_with_the_way_it_is_compared_is_a_change():
    world = World()
    world.put(configmap("app", a='{"x": 1}'))
    world.put(workload("web", uses=[env("app", "a")]))
    world.run()
    world.put(configmap("app", annotations={COMPARE: "a=json"}, a='{"x": 2}'))
    world.run()
    assert world.run(after=60) == {"deployment/web": "restart"}


def test_an_ignored_key_is_not_missing_and_never_a_change():
    config = ReloadConfig(compare=(CompareConfig(source="secret/d*", keys="stamp", form="ignore"),))
    world = World(config.options())
    world.put(secret("db", stamp="1", password="a"))
    world.put(workload("web", uses=[env("db", "stamp", kind="secret"), env_from("db", kind="secret")]))
    world.run()
    world.put(secret("db", stamp="2", password="a"))
    assert world.run(after=60) == {}
    world.put(secret("db", stamp="2", password="b"))
    world.run()
    assert world.run(after=60) == {"deployment/web": "restart"}


def test_an_annotation_of_a_source_that_makes_no_sense_is_reported_and_bytes_count():
    world = World()
    marks = {COMPARE: "*.json=xml"}
    world.put(configmap("app", annotations=marks, a="1"))
    world.put(workload("web", uses=[env_from("app")]))
    world.run()
    problems = world.evaluate("Deployment", "web").plan.problems
    assert any("configmap/app: steersman.dev/compare:" in text and "*.json=xml" in text for text in problems)
    world.put(configmap("app", annotations=marks, a="1 "))
    world.run()
    assert world.run(after=60) == {"deployment/web": "restart"}


def test_of_two_rules_for_one_glob_the_first_applies_so_the_source_wins_over_the_configuration():
    said = (*parse_compare_rules("*.json=json", "the source"), *parse_compare_rules("*.json=ignore", "configuration"))
    rules, globs = effective_compare_rules(said)
    assert (globs, [str(rule) for rule in rules]) == (1, ["*.json=json"])
    assert form_for_key("app.json", rules) == "json"
