"""Names by expression: what Go's engine finds is found, and nobody can stop the program with an expression."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import FormatError
from steersman.operators.reload.compat.dialects.patterns import name_pattern


@pytest.mark.parametrize(
    ("expression", "yes", "no"),
    [
        ("app", ["app"], ["app2", "xapp", ""]),
        ("app.cfg", ["app.cfg", "appxcfg"], ["appcfg"]),
        ("app-.*", ["app-", "app-1"], ["app", "xapp-1"]),
        ("a|b", ["a", "ax", "xb"], ["xa", "bx"]),  # begins with a, or ends with b
        ("(a|b)", ["a", "b"], ["ax", "xb"]),
        ("[a-c]{2,3}", ["ab", "abc"], ["a", "abca", "ad"]),
        ("[^a]+?", ["b", "bb"], ["a", ""]),
        (r"v\d+", ["v1", "v12"], ["v", "vx"]),
        (r"\w+-\D", ["a-b"], ["a-1"]),
    ],
)
def test_an_expression_is_tied_to_both_ends_without_a_group(expression, yes, no):
    assert [name for name in [*yes, *no] if name_pattern(expression).matches(name)] == yes


PART = st.one_of(st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "(a|b)", "(ab|a)", "(a|)"]))
EXPRESSION = st.lists(st.tuples(PART, st.sampled_from(["", "*", "+", "?", "{2}", "{1,2}", "*?"])), max_size=4).map(
    lambda parts: "".join(part + sign for part, sign in parts)
)


@given(st.lists(EXPRESSION, min_size=1, max_size=2).map("|".join), st.text("abc", max_size=6))
def test_it_agrees_with_an_engine_that_tries_everything(expression, name):
    assert name_pattern(expression).matches(name) == bool(re.search(f"^(?:){expression}$", name))


@pytest.mark.parametrize(
    "expression", ["(", "[", "a{2", "a**", r"(a)\1", "(?=a)b", "a++", "a" * 1001, "a{5000}x", "((a?){900}){900}b"]
)
def test_what_is_not_an_expression_is_a_problem_with_words(expression):
    if expression == "a{2":
        assert name_pattern(expression).matches("a{2")  # as in Go, an open brace is a brace
        return
    with pytest.raises(FormatError):
        name_pattern(f"{expression}.")


@pytest.mark.parametrize("expression", ["(a+)+b", "(a|a)*b", "(.*)(.*)(.*)(.*)(.*)(.*)x"])
def test_an_expression_that_stops_other_engines_is_answered(expression):
    assert not name_pattern(expression).matches("a" * 253)


def test_flags_and_word_boundaries_are_those_of_go():
    assert name_pattern("(?i)APP-.*").matches("app-1")
    assert not name_pattern(r"app\b.*").matches("apple")


def test_repetitions_inside_each_other_are_answered():
    assert name_pattern("((((a*)*)*)*)*").matches("aaa")
