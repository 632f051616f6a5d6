from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.apiserver.patch import field_sets

ELEMENTS = st.sampled_from(["f:a", "f:b", "f:c", 'k:{"name":"x"}', "v:1", 'v:"1"'])
PATHS = st.frozensets(st.lists(ELEMENTS, min_size=1, max_size=4).map(tuple), max_size=8)


def tree(paths: frozenset[tuple[str, ...]]) -> field_sets.FieldSet:
    """The set of these paths, built one path at a time."""
    out: field_sets.FieldSet = {}
    for path in paths:
        single: field_sets.FieldSet = {}
        for element in reversed(path):
            single = {element: single}
        out = field_sets.union(out, single)
    return out


def members(value: field_sets.FieldSet) -> frozenset[tuple[str, ...]]:
    return frozenset(field_sets.paths(value))


@given(PATHS)
def test_a_field_set_holds_exactly_the_paths_put_in(paths):
    assert members(tree(paths)) == paths
    assert all(field_sets.contains(tree(paths), path) for path in paths)


@given(PATHS, PATHS)
def test_union_difference_and_intersection_are_those_of_sets_of_paths(a, b):
    assert members(field_sets.union(tree(a), tree(b))) == a | b
    assert members(field_sets.difference(tree(a), tree(b))) == a - b
    assert members(field_sets.intersection(tree(a), tree(b))) == a & b


@given(PATHS, PATHS)
def test_pruning_removes_members_and_everything_below_them(a, b):
    left = {path for path in a if not any(path[: len(gone)] == gone for gone in b)}
    assert members(field_sets.prune(tree(a), tree(b))) == left


@given(PATHS, PATHS)
def test_results_have_no_empty_branches(a, b):
    for value in (
        field_sets.difference(tree(a), tree(b)),
        field_sets.intersection(tree(a), tree(b)),
        field_sets.prune(tree(a), tree(b)),
    ):
        assert value == tree(members(value))


@given(PATHS)
def test_parsing_what_is_stored_changes_nothing(paths):
    stored = field_sets.ordered(tree(paths))
    parsed = field_sets.parse(stored)
    assert parsed == stored
    assert list(map(str, parsed)) == list(map(str, stored))


@given(PATHS, PATHS)
def test_operations_leave_their_arguments_alone(a, b):
    left, right = tree(a), tree(b)
    for operation in (field_sets.union, field_sets.difference, field_sets.intersection, field_sets.prune):
        operation(left, right)
    assert (members(left), members(right)) == (a, b)


def test_keys_are_written_fields_first_then_items_with_numbers_in_numeric_order():
    value = {
        'v:"a"': {},
        "v:10": {},
        "v:9": {},
        'k:{"port":443}': {},
        'k:{"port":80}': {},
        "f:b": {},
        "f:a": {},
        ".": {},
    }
    assert list(field_sets.ordered({"f:x": value})["f:x"]) == [
        ".", "f:a", "f:b", 'k:{"port":80}', 'k:{"port":443}', "v:9", "v:10", 'v:"a"',
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ({"f:a": {"f:b": {}, ".": {}}}, {"f:a": {".": {}, "f:b": {}}}),
        ({"f:a": {".": {}}}, {"f:a": {}}),
        ({"f:a": None}, {"f:a": {}}),
        ({'k:{"b":1,"a":"x"}': {}}, {'k:{"a":"x","b":1}': {}}),
        ({"v:1.0": {}}, {"v:1": {}}),
        ({"x:new": {"f:a": {}}, "f:b": {}}, {"f:b": {}}),
        ({".": {}, "i:01": {}}, {"i:1": {}}),
    ],
)
def test_a_field_set_from_a_request_is_brought_into_canonical_form(sent, kept):
    assert field_sets.parse(sent) == kept


@pytest.mark.parametrize("sent", [[], "f:a", {"a": {}}, {"f": {}}, {"k:{": {}}, {"v:x": {}}, {"f:a": 1}, {"i:x": {}}])
def test_what_is_no_field_set_is_refused(sent):
    with pytest.raises(ValueError, match=r".+"):
        field_sets.parse(sent)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("f:spec", "f:replicas"), ".spec.replicas"),
        (("f:containers", 'k:{"name":"web"}', "f:image"), '.containers[name="web"].image'),
        (("f:ports", 'k:{"containerPort":80,"protocol":"TCP"}'), '.ports[containerPort=80,protocol="TCP"]'),
        (("f:finalizers", 'v:"a\\"b"'), '.finalizers[="a\\"b"]'),
        (("f:set", "v:1000000"), ".set[=1000000]"),
        (("f:set", "v:true"), ".set[=true]"),
        (("f:list", "i:0"), ".list[0]"),
    ],
)
def test_paths_read_as_the_server_prints_them(path, text):
    assert field_sets.path_text(path) == text


def test_list_items_are_named_in_the_json_go_writes():
    assert field_sets.key_element({"b": 1, "a": "<x>"}) == 'k:{"a":"\\u003cx\\u003e","b":1}'
    assert field_sets.value_element("é") == 'v:"é"'
    assert field_sets.value_element(2.0) == "v:2"
    assert field_sets.value_element(1e21) == "v:1e+21"
