from __future__ import annotations

import pytest

from steersman.apiserver.cel.expressions import CELEnvironment, CostLimitExceeded, EvaluationError, ExpressionError

ANYTHING = CELEnvironment({"object": "dyn", "oldObject": "dyn"})


def value(source: str, *, returns: str = "bool", **variables):
    return ANYTHING.compile(source, returns=(returns,)).evaluate(ANYTHING.bind(variables))


def test_programs_of_one_environment_share_the_values_of_its_variables():
    bound = ANYTHING.bind({"object": {"a": 1}, "oldObject": None})
    sources = ("object.a == 1", "oldObject == null", "has(object.b)")
    assert [ANYTHING.compile(source).evaluate(bound) for source in sources] == [True, True, False]


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("object.", "Syntax error"),
        ("subject", "undeclared reference to 'subject'"),
        ("'a' + 1 == 'a1'", "no matching overload"),
        ("object.a + 1", "must evaluate to a bool"),
        ("'text'", "must evaluate to a bool, not to string"),
        ("(" * 300 + "true" + ")" * 300, "recursion"),
    ],
)
def test_an_expression_that_cannot_be_right_does_not_compile(source, word):
    with pytest.raises(ExpressionError, match=word):
        ANYTHING.compile(source)


@pytest.mark.parametrize(
    ("function", "source"),
    [
        ("url", "url('http://x').getHost() == 'x'"),
        ("isURL", "isURL('http://x')"),
        ("semver", "semver('1.2.3').major() == 1"),
        ("format", "!format.dns1123Label().validate('a').hasValue()"),
        ("sortBy", "[2, 1].sortBy(x, x) == [1, 2]"),
        ("transformList", "[1].transformList(i, x, x) == [1]"),
    ],
)
def test_a_function_of_kubernetes_that_is_missing_here_is_named(function, source):
    with pytest.raises(ExpressionError, match=f"^{function}: supported by Kubernetes, not by the embedded server"):
        ANYTHING.compile(source)


@pytest.mark.parametrize(
    "source",
    ["object.b == 1", "object.list[3] == 1", "1 / object.zero == 1", "object.text < 1", "!object.text"],
)
def test_what_the_data_breaks_is_an_error_of_the_evaluation(source):
    program = ANYTHING.compile(f"({source}) == true")
    with pytest.raises(EvaluationError):
        program.evaluate(ANYTHING.bind({"object": {"list": [], "zero": 0, "text": "x"}}))


@pytest.mark.parametrize("variables", [{"object": "\ud800"}, {"object": 2**70}, {"object": (1,)}])
def test_a_value_that_cel_cannot_hold_is_an_error_of_the_evaluation(variables):
    with pytest.raises(EvaluationError):
        value("object == 1", **variables)


@pytest.mark.parametrize(
    "source",
    [
        "object == \"use duration('often')\"",
        "object == 'timestamp(\"now\")'",
        "object == '''matches: a.matches(\"[\")'''",
        "object == 'a' // as in duration('b')",
        "object == r'\\d' && object == \".matches('[')\"",
    ],
)
def test_what_a_text_or_a_comment_says_is_not_compiled(source):
    ANYTHING.compile(source)


@pytest.mark.parametrize(
    "source", ["object == duration('often')", "'a' == object && object.matches('[')", "object < timestamp(r'now')"]
)
def test_a_literal_that_can_never_be_evaluated_is_an_error_of_the_expression(source):
    with pytest.raises(ExpressionError):
        ANYTHING.compile(source)


def test_an_evaluation_with_too_many_steps_is_stopped():
    program = ANYTHING.compile("object.all(x, object.all(y, true))")
    assert program.evaluate(ANYTHING.bind({"object": list(range(99))})) is True
    with pytest.raises(CostLimitExceeded, match="cost limit exceeded"):
        program.evaluate(ANYTHING.bind({"object": list(range(1000))}))
