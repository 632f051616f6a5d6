"""The function libraries of Kubernetes, function by function. That both servers agree on them is a contract test of
validation rules."""

from __future__ import annotations

import pytest

from steersman.apiserver.cel.expressions import CELEnvironment, EvaluationError, ExpressionError

SELF = CELEnvironment({"self": "dyn", "numbers": ("list", "int"), "words": ("list", "string")})

TRUE = [
    "[1, 2, 2].isSorted() && !['b', 'a'].isSorted() && [].isSorted()",
    "[duration('1s'), duration('2s')].isSorted()",
    "[1.5, 2.5].sum() == 4.0 && [1, 2].sum() == 3",
    "['b', 'a'].min() == 'a' && [true, false].max()",
    "[1, 2, 3].slice(1, 3) == [2, 3]",
    "[1, 1, 2].distinct() == [1, 2] && [true, true].distinct() == [true]",
    "[3, 1, 2].sort() == [1, 2, 3] && lists.range(2) == [0, 1]",
    "sets.contains([1, 2], []) && !sets.contains([1], [2]) && !sets.contains([dyn(1)], [dyn(true)])",
    "sets.intersects([1, 2], [2, 3]) && !sets.intersects([1], [])",
    "sets.equivalent([1, 1], [1]) && !sets.equivalent([1], [1, 2])",
    "'a1b22'.find('[0-9]+') == '1' && 'abc'.find('[0-9]+') == ''",
    "'a1b22'.findAll('[0-9]+') == ['1', '22'] && 'a1b22'.findAll('([a-z])[0-9]', 1) == ['a1']",
    "isQuantity('1.5Gi') && !isQuantity('1.5GB')",
    "quantity('1.5') == quantity('1500m') && quantity('1').compareTo(quantity('2')) == -1",
    "quantity('1').add(quantity('500m')).sub(1) == quantity('0.5')",
    "quantity('-1').sign() == -1 && quantity('0').sign() == 0",
    "quantity('1k').asInteger() == 1000 && !quantity('1m').isInteger()",
    "quantity('250m').asApproximateFloat() == 0.25 && quantity('1').isLessThan(quantity('1Ki'))",
    "isIP('::1') && !isIP('1.2.3') && !isIP('::ffff:1.2.3.4') && !isIP('fe80::1%eth0') && !isIP('01.2.3.4')",
    "ip('::1').family() == 6 && ip('::1').isLoopback() && ip('0.0.0.0').isUnspecified()",
    "ip('169.254.1.1').isLinkLocalUnicast() && ip('224.0.0.1').isLinkLocalMulticast()",
    "ip('ff02::1').isLinkLocalMulticast() && !ip('ff05::1').isLinkLocalMulticast()",
    "ip('10.0.0.1').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast()",
    "ip.isCanonical('2001:db8::1') && !ip.isCanonical('2001:DB8::1')",
    "isCIDR('10.0.0.0/8') && !isCIDR('10.0.0.0') && !isCIDR('10.0.0.0/33') && !isCIDR('10.0.0.0/08')",
    "cidr('10.1.0.0/16').containsIP(ip('10.1.2.3')) && !cidr('10.1.0.0/16').containsIP('10.2.0.0')",
    "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR(cidr('10.0.0.0/8'))",
    "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && cidr('10.1.2.3/8').ip() == ip('10.1.2.3')",
    "cidr('::/0').prefixLength() == 0",
]


@pytest.mark.parametrize("source", TRUE)
def test_functions_mean_what_they_mean_in_kubernetes(source):
    assert SELF.compile(source).evaluate(SELF.bind({})) is True


@pytest.mark.parametrize(
    "source",
    [
        "[].max() == 1",
        "[9223372036854775807, 1].sum() > 0",
        "[-9223372036854775808, -1].sum() < 0",
        "[1].slice(0, 2) == []",
        "'x'.find('[') == ''",
        "quantity('x').sign() == 1",
        "quantity('1m').asInteger() == 1",
        "ip('x').family() == 4",
        "cidr('10.0.0.0').prefixLength() == 8",
    ],
)
def test_arguments_without_a_result_are_errors_of_the_evaluation(source):
    with pytest.raises(EvaluationError):
        SELF.compile(source).evaluate(SELF.bind({}))


@pytest.mark.parametrize(
    "source",
    [
        "words.sum() == ''",
        "numbers.max() == 'a'",
        "quantity('1') == '1'",
        "ip('::1').prefixLength() == 1",
    ],
)
def test_the_types_of_functions_are_checked(source):
    with pytest.raises(ExpressionError, match="no matching overload"):
        SELF.compile(source)
