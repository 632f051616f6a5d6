from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import FormatError
from steersman.kube.api.patches import (
    PatchError,
    PatchType,
    apply_json_patch,
    apply_merge_patch,
    json_patch,
    merge_patch,
)

keys = st.sampled_from(["a", "b", "c", "x/y", "~t", "0", ""])
leaves = st.one_of(st.booleans(), st.integers(0, 3), st.sampled_from(["", "a", "b"]))


def values(leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaf,
        lambda inner: st.one_of(st.dictionaries(keys, inner, max_size=3), st.lists(inner, max_size=4)),
        max_leaves=8,
    )


plain = values(leaves)
nullable = values(st.one_of(leaves, st.none()))
documents = st.dictionaries(keys, plain, max_size=4)
nullable_documents = st.dictionaries(keys, nullable, max_size=4)


def text(value: Any) -> str:
    """Tells True from 1, which `==` does not."""
    return json.dumps(value, sort_keys=True)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def test_a_patch_type_is_its_media_type() -> None:
    assert PatchType.MERGE == "application/merge-patch+json"
    assert PatchType("application/json-patch+json") is PatchType.JSON
    assert f"{PatchType.STRATEGIC} {PatchType.APPLY}" == (
        "application/strategic-merge-patch+json application/apply-patch+yaml"
    )


# ------------------------------------------------------------------------------------------------------ merge patches
@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [
        # the table of RFC 7386, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        # where the server goes further than the RFC
        ({"a": 1}, {"a": [{"b": None, "c": 1}, None]}, {"a": [{"c": 1}, None]}),
        ({"a": None}, {"a": {"b": None}}, {"a": {}}),
        ({"a": {"b": 1}}, {"a": [{"c": None}]}, {"a": [{"c": None}]}),
    ],
)
def test_a_merge_patch_applies_as_on_a_server(document: Any, patch: Any, result: Any) -> None:
    assert apply_merge_patch(document, patch) == result


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({}, {}, {}),
        ({"a": 1, "b": {"c": 1, "d": 2}}, {"a": 1, "b": {"c": 1}}, {"b": {"d": None}}),
        ({"a": {"b": 1}}, {"a": {}}, {"a": {"b": None}}),
        ({"a": {"b": 1}}, {}, {"a": None}),
        ({"a": {"b": 1}}, {"a": [1]}, {"a": [1]}),
        ({"a": [1, 2]}, {"a": [1, 3]}, {"a": [1, 3]}),
        ({"a": 1}, {"a": True}, {"a": True}),
        ({"a": [1]}, {"a": [True]}, {"a": [True]}),
        ({"a": 1}, {"a": 1.0}, {}),
        ({"a": 1}, {"a": "1"}, {"a": "1"}),
        ({}, {"a": {}}, {"a": {}}),
        ({"a": 1}, {"a": None}, {"a": None}),
        ({}, {"a": None}, {}),
        ({"a": None}, {}, {"a": None}),
        ({"a": None}, {"a": None}, {}),
    ],
)
def test_a_merge_patch_holds_only_what_differs(before: Any, after: Any, patch: Any) -> None:
    assert text(merge_patch(before, after)) == text(patch)


@given(documents, documents)
def test_a_merge_patch_turns_before_into_after(before: dict[str, Any], after: dict[str, Any]) -> None:
    originals = copy.deepcopy((before, after))
    patch = merge_patch(before, after)
    frozen = copy.deepcopy(patch)
    assert text(apply_merge_patch(before, patch)) == text(after)
    assert text((before, after, patch)) == text((*originals, frozen))


@given(nullable_documents, nullable_documents)
def test_nulls_count_as_absent_in_a_merge_patch(before: dict[str, Any], after: dict[str, Any]) -> None:
    result = apply_merge_patch(before, merge_patch(before, after))
    assert text(without_nulls(result)) == text(without_nulls(after))


@given(documents, documents)
def test_leaving_out_any_part_of_a_merge_patch_breaks_it(before: dict[str, Any], after: dict[str, Any]) -> None:
    patch = merge_patch(before, after)
    for key in patch:
        smaller = {other: value for other, value in patch.items() if other != key}
        assert text(apply_merge_patch(before, smaller)) != text(after)


# ------------------------------------------------------------------------------------------------------- JSON patches
@pytest.mark.parametrize(
    ("document", "operations", "result"),
    [
        ({"a": 1}, [], {"a": 1}),
        ({"a": 1}, [{"op": "add", "path": "/b", "value": [1]}], {"a": 1, "b": [1]}),
        ({"a": 1}, [{"op": "add", "path": "/a", "value": 2}], {"a": 2}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2]}),
        ({"a": [1, 2]}, [{"op": "add", "path": "/a/-1", "value": 3}], {"a": [1, 2, 3]}),
        ({"a": []}, [{"op": "add", "path": "/a/0"}], {"a": [None]}),
        ({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}),
        ({"a": [1, 2, 3]}, [{"op": "remove", "path": "/a/1"}], {"a": [1, 3]}),
        ({"a": [1, 2, 3]}, [{"op": "remove", "path": "/a/-1"}], {"a": [1, 2]}),
        ({"a": {"b": 1}}, [{"op": "replace", "path": "/a/b", "value": None}], {"a": {"b": None}}),
        ({"a": {}}, [{"op": "replace", "path": "/a/b", "value": 1}], {"a": {"b": 1}}),
        ({"a": [1, 2]}, [{"op": "replace", "path": "/a/-2", "value": 0}], {"a": [0, 2]}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
        ({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}),
        ({"a": [1, 2, 3]}, [{"op": "move", "from": "/a/0", "path": "/a/2"}], {"a": [2, 3, 1]}),
        ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
        ({"a": 1}, [{"op": "copy", "from": "/gone", "path": "/c"}], {"a": 1, "c": None}),
        ({"a/b": {"~": 1}}, [{"op": "replace", "path": "/a~1b/~0", "value": 2}], {"a/b": {"~": 2}}),
        ({"~1": 1}, [{"op": "remove", "path": "/~01"}], {}),
        ({"": {"": 1}}, [{"op": "remove", "path": "//"}], {"": {}}),
        ({"a": [{"b": 1}]}, [{"op": "test", "path": "/a", "value": [{"b": 1}]}], {"a": [{"b": 1}]}),
        ({"a": 1}, [{"op": "test", "path": "", "value": {"a": 1}}], {"a": 1}),
        ({"a": 1}, [{"op": "test", "path": "/b", "value": None}], {"a": 1}),
        (
            {"a": {"b": 1}},
            [
                {"op": "copy", "from": "/a", "path": "/c"},
                {"op": "add", "path": "/c/d", "value": 2},
                {"op": "move", "from": "/a", "path": "/c/a"},
                {"op": "remove", "path": "/c/a/b"},
            ],
            {"c": {"b": 1, "d": 2, "a": {}}},
        ),
        (
            {"a": {"b": 1}},
            [
                {"op": "add", "path": "/a/b", "value": 2},
                {"op": "copy", "from": "/a", "path": "/c"},
                {"op": "add", "path": "/c/b", "value": 3},
            ],
            {"a": {"b": 2}, "c": {"b": 3}},
        ),
    ],
)
def test_a_json_patch_applies_as_on_a_server(document: Any, operations: list[dict[str, Any]], result: Any) -> None:
    originals = copy.deepcopy((document, operations))
    assert text(apply_json_patch(document, operations)) == text(result)
    assert (document, operations) == originals


DOCUMENT = {"a": {"b": 1}, "list": [1, 2], "null": None}


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ({}, "Unexpected kind: unknown"),
        ({"op": 1}, "Unexpected kind: unknown"),
        ({"op": "fix"}, "Unexpected kind: fix"),
        ({"op": "add"}, "add operation failed to decode path: missing value"),
        ({"op": "add", "path": ""}, 'add operation does not apply: doc is missing path: "": missing value'),
        ({"op": "add", "path": "a"}, 'add operation does not apply: doc is missing path: "a": missing value'),
        ({"op": "add", "path": "/x/y"}, 'add operation does not apply: doc is missing path: "/x/y": missing value'),
        ({"op": "add", "path": "/a/b/c"}, 'add operation does not apply: doc is missing path: "/a/b/c": missing value'),
        (
            {"op": "add", "path": "/null/c"},
            'add operation does not apply: doc is missing path: "/null/c": missing value',
        ),
        (
            {"op": "add", "path": "/list/3"},
            "error in add for path: '/list/3': Unable to access invalid index: 3: invalid index referenced",
        ),
        (
            {"op": "add", "path": "/list/-4"},
            "error in add for path: '/list/-4': Unable to access invalid index: -4: invalid index referenced",
        ),
        (
            {"op": "add", "path": "/list/x"},
            (
                "error in add for path: '/list/x': value was not a proper array index: 'x': "
                'strconv.Atoi: parsing "x": invalid syntax'
            ),
        ),
        (
            {"op": "add", "path": "/list/99999999999999999999"},
            (
                "error in add for path: '/list/99999999999999999999': value was not a proper array index: "
                "'99999999999999999999': strconv.Atoi: parsing \"99999999999999999999\": value out of range"
            ),
        ),
        ({"op": "remove"}, "remove operation failed to decode path: missing value"),
        (
            {"op": "remove", "path": "/x"},
            "error in remove for path: '/x': Unable to remove nonexistent key: x: missing value",
        ),
        (
            {"op": "remove", "path": "/list/2"},
            "error in remove for path: '/list/2': Unable to access invalid index: 2: invalid index referenced",
        ),
        (
            {"op": "remove", "path": "/list/-"},
            "error in remove for path: '/list/-': strconv.Atoi: parsing \"-\": invalid syntax",
        ),
        (
            {"op": "remove", "path": "/x/y"},
            'remove operation does not apply: doc is missing path: "/x/y": missing value',
        ),
        ({"op": "replace"}, "replace operation failed to decode path: operation missing path field: missing value"),
        ({"op": "replace", "path": "", "value": 1}, "replace operation value must be object or array: %!w(<nil>)"),
        (
            {"op": "replace", "path": "/x/y"},
            "replace operation does not apply: doc is missing path: /x/y: missing value",
        ),
        (
            {"op": "replace", "path": "/list/2"},
            "replace operation does not apply: doc is missing key: /list/2: missing value",
        ),
        ({"op": "move"}, "move operation failed to decode from: operation, missing from field: missing value"),
        (
            {"op": "move", "from": "/a"},
            "move operation failed to decode path: operation missing path field: missing value",
        ),
        (
            {"op": "move", "from": "/x/y", "path": "/z"},
            "move operation does not apply: doc is missing from path: /x/y: missing value",
        ),
        (
            {"op": "move", "from": "/x", "path": "/z"},
            "error in move for path: 'x': Unable to remove nonexistent key: x: missing value",
        ),
        (
            {"op": "move", "from": "/a", "path": "/a/c"},
            "move operation does not apply: doc is missing destination path: /a/c: missing value",
        ),
        (
            {"op": "copy", "from": "/x/y", "path": "/z"},
            "copy operation does not apply: doc is missing from path: /x/y: missing value",
        ),
        (
            {"op": "copy", "from": "/list/9", "path": "/z"},
            "error in copy for from: '/list/9': Unable to access invalid index: 9: invalid index referenced",
        ),
        (
            {"op": "copy", "from": "/a", "path": "/x/y"},
            "copy operation does not apply: doc is missing destination path: /x/y: missing value",
        ),
        (
            {"op": "copy", "from": "/a", "path": "/list/9"},
            "error while adding value during copy: Unable to access invalid index: 9: invalid index referenced",
        ),
        ({"op": "test", "path": "/a/b", "value": 2}, "testing value /a/b failed: test failed"),
        ({"op": "test", "path": "/a/b", "value": True}, "testing value /a/b failed: test failed"),
        ({"op": "test", "path": "/a/b", "value": 1.0}, "testing value /a/b failed: test failed"),
        ({"op": "test", "path": "", "value": {}}, "testing value  failed: test failed"),
        ({"op": "test", "path": "/x/y"}, "test operation does not apply: is missing path: /x/y: missing value"),
    ],
)
def test_an_operation_that_does_not_fit_fails_in_the_words_of_the_server(
    operation: dict[str, Any], message: str
) -> None:
    with pytest.raises(PatchError) as caught:
        apply_json_patch(DOCUMENT, [operation])
    assert str(caught.value) == message


@pytest.mark.parametrize("patch", [{}, "x", None, 1, [1], [None], [[]]])
def test_a_json_patch_that_is_not_a_list_of_objects_is_malformed(patch: Any) -> None:
    with pytest.raises(FormatError):
        apply_json_patch({}, patch)


def test_copies_cannot_blow_up_a_document() -> None:
    document = {"a": "x" * 1024 * 1024}
    operations = [{"op": "copy", "from": "/a", "path": f"/{n}"} for n in range(3)]
    with pytest.raises(PatchError, match="exceeding the limit 3145728"):
        apply_json_patch(document, operations)


@pytest.mark.parametrize(
    ("before", "after", "operations"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": [1, 2, 3, 4]}, {"a": [1, 3, 4]}, [{"op": "remove", "path": "/a/1"}]),
        ({"a": [1, 3]}, {"a": [1, 2, 3]}, [{"op": "add", "path": "/a/1", "value": 2}]),
        ({"a": ["x", "y"]}, {"a": ["p", "q"]}, [{"op": "replace", "path": "/a", "value": ["p", "q"]}]),
        (
            {"a": [{"n": "long enough to matter", "v": 1}, {"n": 2}]},
            {"a": [{"n": "long enough to matter", "v": 2}, {"n": 2}]},
            [{"op": "replace", "path": "/a/0/v", "value": 2}],
        ),
        (
            {"a": {"b": 1}},
            {"a": {"c": 1}},
            [{"op": "remove", "path": "/a/b"}, {"op": "add", "path": "/a/c", "value": 1}],
        ),
        (
            {"a": ["x" * 90, 1, 2, "y" * 90]},
            {"a": ["x" * 90, "y" * 90]},
            [{"op": "remove", "path": "/a/2"}, {"op": "remove", "path": "/a/1"}],
        ),
        ({"a": {}}, {"a": []}, [{"op": "replace", "path": "/a", "value": []}]),
        ([1], {}, [{"op": "replace", "path": "", "value": {}}]),
    ],
)
def test_a_json_patch_is_short_and_never_replaces_whole_objects(before: Any, after: Any, operations: Any) -> None:
    assert json_patch(before, after) == operations


@given(nullable_documents, nullable_documents)
def test_a_json_patch_turns_before_into_after(before: dict[str, Any], after: dict[str, Any]) -> None:
    originals = text((before, after))
    operations = json_patch(before, after)
    frozen = text(operations)
    assert text(apply_json_patch(before, operations)) == text(after)
    assert text((before, after)) == originals
    assert text(operations) == frozen


items = st.lists(st.sampled_from([letter * 60 for letter in "abcd"]), max_size=6)


@given(items, items)
def test_lists_are_patched_whatever_moved(before: list[str], after: list[str]) -> None:
    assert apply_json_patch({"a": before}, json_patch({"a": before}, {"a": after})) == {"a": after}
