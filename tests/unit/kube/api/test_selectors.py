from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import FormatError
from steersman.kube.api.objects import LabelSelector, LabelSelectorRequirement
from steersman.kube.api.selectors import FieldRequirement, FieldSelector, Requirement, Selector, SelectorOperator

BINARY = "in, notin, =, ==, !=, gt, lt"
LABEL_NAME = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


# ---------------------------------------------------------------------------------------------- parsing and printing
@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("", ""),
        (" \t", ""),
        ("x=a,y=b,z=c", "x=a,y=b,z=c"),
        ("x!=a,y=b", "x!=a,y=b"),
        ("x=", "x="),
        ("x= ", "x="),
        ("x= ,z= ", "x=,z="),
        ("!x", "!x"),
        ("x>1,z<5", "x>1,z<5"),
        ("x=a,a=x", "a=x,x=a"),
        ("\rx", "x"),
        ("a ", "a"),
        ("example.com/key-with-dash", "example.com/key-with-dash"),
        ("0.1.2.domain/99 notin (10.10.100.1, tick.tack)", "0.1.2.domain/99 notin (10.10.100.1,tick.tack)"),
        ("foo  in\t (abc)", "foo in (abc)"),
        ("x notin\n (b,a)", "x notin (a,b)"),
        ("x in (abc,)", "x in (,abc)"),
        ("x in (abc,abc)", "x in (abc)"),
        ("x in ()", "x in ()"),
        ("x in (a,,a,,)", "x in (,a)"),
        ("x notin ( )", "x notin ()"),
        ("x notin (, a)", "x notin (,a)"),
        ("x notin (abc,,def),bar,z in (),w", "bar,w,x notin (,abc,def),z in ()"),
        ("a in (x,y,notin, z,in)", "a in (in,notin,x,y,z)"),
        ("in in (in)", "in in (in)"),
        ("notin=in", "notin=in"),
        ("x==a", "x==a"),
        ("z!=a,z", "z!=a,z"),
        ("x=+1", None),
        ("x>007", "x>007"),
    ],
)
def test_a_label_selector_prints_canonically(text: str, printed: str | None) -> None:
    if printed is None:
        with pytest.raises(FormatError):
            Selector.parse(text)
        return
    selector = Selector.parse(text)
    assert str(selector) == printed
    assert Selector.parse(printed) == selector


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x=a||y=b", 'unable to parse requirement: values[0][x]: Invalid value: "a||y": a valid label must be'),
        ("x==a==b", "found '==', expected: ',' or 'end of string'"),
        ("!x=a", "found '=', expected: ',' or 'end of string'"),
        ("x<a", "unable to parse requirement: values[0]: Invalid value: \"a\": for 'Gt', 'Lt' operators, the value "),
        ("x,,y", "found ',', expected: identifier after ','"),
        (",x,y", "found ',', expected: !, identifier, or 'end of string'"),
        ("x nott in (y)", f"unable to parse requirement: found 'nott', expected: {BINARY}"),
        ("a in (xyz),", "found '', expected: identifier after ','"),
        ("a in (xyz)b notin ()", "found 'b', expected: ',' or 'end of string'"),
        ("a in (xyz abc)", "unable to parse requirement: found 'abc', expected: ',' or ')'"),
        ("a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("a in (,=)", "unable to parse requirement: found '=', expected: ',', or identifier"),
        ("a notin(", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a (", f"unable to parse requirement: found '(', expected: {BINARY}"),
        ("(", "found '(', expected: !, identifier, or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!!a", "unable to parse requirement: found '!', expected: identifier"),
        ("a=(", "unable to parse requirement: found '(', expected: identifier"),
        ("-x", f'unable to parse requirement: <nil>: Invalid value: "-x": name part {LABEL_NAME}'),
        ("x>1,y>9223372036854775808", "unable to parse requirement: values[0]: Invalid value"),
    ],
)
def test_a_bad_label_selector_gets_the_error_of_kube_apiserver(text: str, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        Selector.parse(text)
    assert str(caught.value).startswith(message)


def test_spelling_does_not_matter_to_equality_and_hash() -> None:
    one, other = Selector.parse("b in (y, x),a"), Selector.parse(" a , b in (x,y,x)")
    assert one == other
    assert len({one, other}) == 1


def test_none_spells_everything() -> None:
    assert Selector.parse(None) == Selector.parse("") == Selector.EVERYTHING
    assert Selector.EVERYTHING.empty


# -------------------------------------------------------------------------------------------------------- matching
@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("", {"x": "y"}, True),
        ("", None, True),
        ("x=y", {"x": "y"}, True),
        ("x=y,z=w", {"x": "y", "z": "w"}, True),
        ("x!=y,z!=w", {"x": "z", "z": "a"}, True),
        ("notin=in", {"notin": "in"}, True),
        ("x", {"x": "z"}, True),
        ("x", {"x": ""}, True),
        ("!x", {"y": "z"}, True),
        ("!x", None, True),
        ("x>1", {"x": "2"}, True),
        ("x<1", {"x": "0"}, True),
        ("x<1", {"x": "-7"}, True),
        ("x=z", {}, False),
        ("x=", {}, False),
        ("x=", {"x": ""}, True),
        ("x=y", None, False),
        ("x=y", {"x": "z"}, False),
        ("x=y,z=w", {"x": "w", "z": "w"}, False),
        ("x!=y,z!=w", {"x": "z", "z": "w"}, False),
        ("x!=y", {}, True),
        ("x!=y", None, True),
        ("x notin (y,z)", {"a": "b"}, True),
        ("x notin (y,z)", {"x": "z"}, False),
        ("x notin ()", {}, True),
        ("x notin ()", {"x": ""}, False),
        ("x in (y,z)", {"x": "z"}, True),
        ("x in (y,z)", None, False),
        ("x in ()", {}, False),
        ("x in ()", {"x": ""}, True),
        ("x", {"y": "z"}, False),
        ("x", None, False),
        ("!x", {"x": "z"}, False),
        ("x>1", {"x": "1"}, False),
        ("x<1", {"x": "1"}, False),
        ("x>1", {"x": "v2"}, False),
        ("x>1", {"x": "9223372036854775808"}, False),
        ("x>1", {}, False),
        ("x>1", None, False),
        ("x=a,x=a", {"x": "a"}, True),
        ("x=a,x=b", {"x": "a"}, False),
        ("x in (a,b),x!=a", {"x": "b"}, True),
        ("foo=bar,foobar=bar,baz=blah", {"foo": "bar", "baz": "blah"}, False),
    ],
)
def test_labels_match_as_on_a_server(text: str, labels: dict[str, str] | None, matches: bool) -> None:
    assert Selector.parse(text).matches(labels) is matches


keys = st.sampled_from(["app", "tier", "example.com/x"])
values = st.sampled_from(["", "a", "b", "1", "2"])
label_sets = st.dictionaries(keys, values)
requirements = st.one_of(
    st.builds(
        Requirement.checked,
        keys,
        st.sampled_from(["in", "notin"]),
        st.lists(values, min_size=1, max_size=3, unique=True),
    ),
    st.builds(Requirement.checked, keys, st.sampled_from(["=", "==", "!="]), st.lists(values, min_size=1, max_size=1)),
    st.builds(Requirement.checked, keys, st.sampled_from(["exists", "!"])),
    st.builds(Requirement.checked, keys, st.sampled_from(["gt", "lt"]), st.sampled_from([["1"], ["2"]])),
)
selectors = st.lists(requirements, max_size=4).map(Selector.of)


def holds(requirement: Requirement, labels: dict[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case SelectorOperator.IN | SelectorOperator.EQUALS | SelectorOperator.DOUBLE_EQUALS:
            return value in requirement.values
        case SelectorOperator.NOT_IN | SelectorOperator.NOT_EQUALS:
            return value not in requirement.values
        case SelectorOperator.EXISTS:
            return value is not None
        case SelectorOperator.DOES_NOT_EXIST:
            return value is None
        case SelectorOperator.GREATER_THAN:
            return value is not None and value.isdigit() and int(value) > int(requirement.values[0])
        case SelectorOperator.LESS_THAN:
            return value is not None and value.isdigit() and int(value) < int(requirement.values[0])


@given(selectors, label_sets)
def test_a_selector_matches_when_every_requirement_holds(selector: Selector, labels: dict[str, str]) -> None:
    assert selector.matches(labels) is all(holds(requirement, labels) for requirement in selector.requirements)


@given(selectors, label_sets)
def test_what_a_selector_prints_means_the_same(selector: Selector, labels: dict[str, str]) -> None:
    again = Selector.parse(str(selector))
    assert str(again) == str(selector)
    assert again.matches(labels) is selector.matches(labels)


@given(selectors, selectors, label_sets)
def test_and_matches_what_both_match(one: Selector, other: Selector, labels: dict[str, str]) -> None:
    assert (one & other).matches(labels) is (one.matches(labels) and other.matches(labels))


def test_nothing_stays_nothing() -> None:
    assert (Selector.NOTHING & Selector.EVERYTHING) == Selector.NOTHING
    assert (Selector.parse("a") & Selector.NOTHING).matches({"a": ""}) is False
    assert not Selector.NOTHING.empty
    assert str(Selector.NOTHING) == ""
    assert Selector.NOTHING != Selector.EVERYTHING


# ---------------------------------------------------------------------------------------------------- requirements
@pytest.mark.parametrize(
    ("key", "operator", "operands", "message"),
    [
        ("x1", "in", [], "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"),
        ("x2", "notin", [], "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"),
        (
            "x5",
            "=",
            ["bar", "foo"],
            'values: Invalid value: ["bar","foo"]: exact-match compatibility requires one single value',
        ),
        ("x8", "exists", ["foo"], 'values: Invalid value: ["foo"]: values set must be empty for exists and does not'),
        ("x13", "gt", [], "values: Invalid value: null: for 'Gt', 'Lt' operators, exactly one value is required"),
        (
            "x14",
            "gt",
            ["bar"],
            "values[0]: Invalid value: \"bar\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        ("a" * 254, "exists", [], f'key: Invalid value: "{"a" * 254}": name part must be no more than 63 bytes'),
        ("x16", "=", ["a" * 254], f'values[0][x16]: Invalid value: "{"a" * 254}": must be no more than 63 bytes'),
        ("x17", "=", ["a b"], 'values[0][x17]: Invalid value: "a b": a valid label must be an empty string or'),
        ("-", "=", ["-"], '[key: Invalid value: "-": name part must'),
        (
            "x18",
            "unsupportedOp",
            [],
            (
                'operator: Unsupported value: "unsupportedOp": supported values: '
                '"in", "notin", "=", "==", "!=", "gt", "lt", "exists", "!"'
            ),
        ),
    ],
)
def test_a_requirement_that_makes_no_sense_is_refused(
    key: str, operator: str, operands: list[str], message: str
) -> None:
    with pytest.raises(FormatError) as caught:
        Requirement.checked(key, operator, operands)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "value"),
    [("a=x", "x"), ("a==x", "x"), ("a in (x)", "x"), ("a=", ""), ("a in (x,y)", None), ("a!=x", None), ("b=x", None)],
)
def test_exact_is_the_one_value_a_label_must_have(text: str, value: str | None) -> None:
    assert Selector.parse(text).exact("a") == value


# -------------------------------------------------------------------------------------------------------- wire form
@pytest.mark.parametrize(
    ("wire", "printed"),
    [
        ({}, ""),
        ({"matchLabels": {}, "matchExpressions": []}, ""),
        ({"matchLabels": None}, ""),
        ({"matchLabels": {"b": "2", "a": "1"}}, "a=1,b=2"),
        (
            {
                "matchLabels": {"x": "a"},
                "matchExpressions": [
                    {"key": "y", "operator": "In", "values": ["c", "b"]},
                    {"key": "x", "operator": "NotIn", "values": ["z"]},
                    {"key": "a", "operator": "Exists"},
                    {"key": "c", "operator": "DoesNotExist", "values": []},
                ],
            },
            "a,!c,x=a,x notin (z),y in (b,c)",
        ),
    ],
)
def test_a_label_selector_of_an_object_means_the_same_as_its_text(wire: dict[str, Any], printed: str) -> None:
    selector = Selector.from_wire(wire)
    assert str(selector) == printed
    assert not selector.nothing


def test_the_struct_and_its_json_mean_the_same() -> None:
    expression = LabelSelectorRequirement(key="tier", operator="In", values=["web"])
    struct = LabelSelector(match_labels={"app": "shop"}, match_expressions=[expression])
    wire = {
        "matchLabels": {"app": "shop"},
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["web"]}],
    }
    assert Selector.from_wire(struct) == Selector.from_wire(wire)


def test_an_absent_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert Selector.from_wire(None).matches({"a": "b"}) is False
    assert Selector.from_wire(None).matches({}) is False
    assert Selector.from_wire({}).matches(None) is True


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        ({"matchExpressions": [{"key": "a", "operator": "Near"}]}, '"Near" is not a valid label selector operator'),
        ({"matchExpressions": [{"key": "a", "operator": "In"}]}, "values: Invalid value: null: for 'in', 'notin'"),
        ({"matchLabels": {"a": "-"}}, 'values[0][a]: Invalid value: "-": a valid label must be'),
        ({"matchLabels": {"a": 1}}, "not a label selector: Expected `str`, got `int` - at `$.matchLabels[...]`"),
    ],
)
def test_a_label_selector_that_makes_no_sense_is_refused(wire: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError) as caught:
        Selector.from_wire(wire)
    assert str(caught.value).startswith(message)


def test_plain_labels_select_objects_that_have_them() -> None:
    selector = Selector.from_labels({"b": "2", "a": "1"})
    assert str(selector) == "a=1,b=2"
    assert selector.matches({"a": "1", "b": "2", "c": "3"})
    assert not selector.matches({"a": "1"})
    assert Selector.from_labels(None).empty


# ----------------------------------------------------------------------------------------------------------- fields
@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("", ""),
        ("x=a,y=b,z=c", "x=a,y=b,z=c"),
        ("x!=a,y=b", "x!=a,y=b"),
        (r"x=a||y\=b", r"x=a||y\=b"),
        (r"x=a\=\=b", r"x=a\=\=b"),
        ("x=a,a=x", "a=x,x=a"),
        ("a==b", "a=b"),
        (",a=b,,", "a=b"),
        (r"k=\,,k2=v2", r"k2=v2,k=\,"),
        (r"k=\\,k2=v2", r"k2=v2,k=\\"),
        ("함=수,목=록", "목=록,함=수"),
        ("=", ""),
        ("a=", "a="),
        ("a=b\nc", "a=b\nc"),
    ],
)
def test_a_field_selector_prints_canonically(text: str, printed: str) -> None:
    selector = FieldSelector.parse(text)
    assert sorted(str(selector).split(",")) == sorted(printed.split(","))
    assert FieldSelector.parse(str(selector)) == selector


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x=a||y=b", "invalid field selector: unescaped character in value: 61"),
        ("x==a==b", "invalid field selector: unescaped character in value: 61"),
        ("x=a,b", "invalid selector: 'x=a,b'; can't understand 'b'"),
        ("x in (a)", "invalid selector: 'x in (a)'; can't understand 'x in (a)'"),
        ("x", "invalid selector: 'x'; can't understand 'x'"),
        ("k=\\", "invalid field selector: invalid escape sequence: \\"),
        ("k=\\\\\\", "invalid field selector: invalid escape sequence: \\"),
        (r"k=\a", r"invalid field selector: invalid escape sequence: \a"),
    ],
)
def test_a_bad_field_selector_gets_the_error_of_kube_apiserver(text: str, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        FieldSelector.parse(text)
    assert str(caught.value) == message


FIELDS = {"foo": "bar", "baz": "blah", "complex": "=value\\,\\"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("foo=bar", True),
        ("foo==bar,baz=blah", True),
        (r"foo=bar,baz=blah,complex=\=value\\\,\\", True),
        ("foo=blah", False),
        ("foo!=blah", True),
        ("absent=", True),
        ("absent!=", False),
        ("absent!=x", True),
        ("foo=bar,foobar=bar,baz=blah", False),
    ],
)
def test_fields_match_as_on_a_server(text: str, matches: bool) -> None:
    assert FieldSelector.parse(text).matches(FIELDS) is matches


@given(st.dictionaries(st.text("abc.", min_size=1), st.text("ab,=\\수"), max_size=3))
def test_any_field_value_survives_printing_and_parsing(fields: dict[str, str]) -> None:
    written = FieldSelector(tuple(FieldRequirement(field, value) for field, value in sorted(fields.items())))
    selector = FieldSelector.parse(str(written))
    assert {r.field: r.value for r in selector.requirements} == fields
    assert selector.matches(fields)


def test_exact_finds_the_one_value_of_a_field() -> None:
    selector = FieldSelector.parse("metadata.name=web,spec.nodeName!=n1")
    assert selector.exact("metadata.name") == "web"
    assert selector.exact("spec.nodeName") is None
    assert selector.exact("status.phase") is None
    assert (selector & FieldSelector.parse("status.phase=Running")).exact("status.phase") == "Running"
    assert FieldSelector.EVERYTHING.empty
    assert not selector.empty


@pytest.mark.parametrize("text", ["", "a=b", "a==b", "a!=b", "a in (b,c)", "a notin (b,c)", "a", "!a", "a=b,c,!d"])
def test_a_selector_keeps_its_meaning_in_an_object(text):
    selector = Selector.parse(text)
    held = Selector.from_wire(selector.to_wire())
    for labels in ({}, {"a": "b"}, {"a": "c", "c": ""}, {"a": "b", "c": "d"}, {"a": "b", "c": "d", "d": ""}):
        assert held.matches(labels) == selector.matches(labels)


def test_a_comparison_of_numbers_cannot_be_part_of_an_object():
    with pytest.raises(FormatError, match='"a>3" cannot be part of an object'):
        Selector.parse("a>3").to_wire()
