"""CEL expressions: checked and compiled once, evaluated often.

An expression is checked against the types of its variables, as the real server checks it when it is stored, and then
evaluated over plain JSON values without types. So a `CompiledExpression` uses only known fields, known functions and
fitting types; what is left to fail is the data: a missing key, an index out of range, an overflow.

    environment = CELEnvironment({"object": "dyn", "request": "dyn"})
    program = environment.compile("object.spec.replicas <= 5")
    program.evaluate(environment.bind({"object": {...}, "request": {...}}))  # True, False, or an EvaluationError
"""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from steersman.apiserver.cel.functions import FUNCTIONS, UNSUPPORTED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

INSTALL: Final = "CEL needs the packages of an extra: pip install 'steersman[cel]'"
_UNDECLARED = re.compile(r"undeclared reference to '([^']+)'")
_TEXT = r"""\s*(?:[rR]"[^"\n]*"|[rR]'[^'\n]*'|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')\s*"""
_LONG_TEXT = r"""[rR]?(?:\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3})"""
_LITERALS = re.compile(  # other texts and comments are matched too, so that nothing is found inside of them
    rf"\b(?P<convert>(?:duration|timestamp)\({_TEXT}\))|\.matches\((?P<pattern>{_TEXT})\)|{_LONG_TEXT}|{_TEXT}|//[^\n]*",
    re.DOTALL,
)
_OVER_BUDGET: Final = "Iteration budget exceeded"  # the library stops an evaluation after 10,000 steps of its loops
LONGEST_MESSAGE: Final = 5 << 10  # bytes of a message that an expression makes
COST_LIMIT: Final = "operation cancelled: actual cost limit exceeded"
_STATUS = re.compile(r"^[A-Z_]+: ")  # the code with which the library begins its errors

Type = Any  # "int", "dyn", the name of a message, ("list", Type), ("map", Type), or a type of the library


class ExpressionError(ValueError):
    """An expression that does not compile: syntax, an unknown name, types that do not fit."""


class EvaluationError(ValueError):
    """An expression that has no value for these variables: a missing key, an overflow, a division by zero."""


class CostLimitExceeded(EvaluationError):  # noqa: N818  says what happened
    """An expression that was stopped: its loops take more steps than one evaluation may."""


@cache
def is_installed() -> bool:
    """Whether expressions can be evaluated at all."""
    return find_spec("cel_expr_python") is not None and find_spec("google.protobuf") is not None


class CompiledExpression:
    """A compiled expression."""

    __slots__ = ("_expression", "returns")

    def __init__(self, expression: Any, returns: Type) -> None:
        self._expression = expression
        self.returns = returns

    def evaluate(self, activation: Any) -> Any:
        """The value of the expression for what `CELEnvironment.bind` returned."""
        try:
            result = self._expression.eval(activation)
        except RuntimeError as error:  # a value that the library cannot represent, or too much work
            text = _plain(error)
            raise (CostLimitExceeded(COST_LIMIT) if _OVER_BUDGET in text else EvaluationError(text)) from None
        value = result.value()
        if isinstance(value, bool):
            return value
        from cel_expr_python import cel  # type: ignore[import-untyped]  # loaded with the first expression

        if result.type() == cel.Type.ERROR:
            raise EvaluationError(_plain(value))
        return result.plain_value()


class CELEnvironment:
    """Variables with their types; `pool` holds the message types among them."""

    def __init__(self, variables: Mapping[str, Type], pool: Any = None) -> None:
        self._checker = _environment(variables, pool)
        self._evaluator = _evaluator(tuple(sorted(variables)))

    def compile(self, source: str, *, returns: tuple[str, ...] = ("bool",)) -> CompiledExpression:
        """The program of an expression whose value has one of the types `returns`, or any type when there are none.

        An `ExpressionError` says what is wrong with it.
        """
        from cel_expr_python import cel

        try:
            checked = self._checker.compile(source)
        except RuntimeError as error:
            raise ExpressionError(_explained(error)) from None
        found = checked.return_type()
        if returns and not any(found == cel.Type(kind) for kind in returns):
            raise ExpressionError(f"must evaluate to a {' or '.join(returns)}, not to {str(found).lower()}")
        _check_literals(source)
        return CompiledExpression(self._evaluator.compile(source), found)

    def bind(self, values: Mapping[str, Any]) -> Any:
        """The values of the variables, for any number of programs of this environment."""
        return self._evaluator.Activation(values)


def _check_literals(source: str) -> None:
    """A literal that is not a regular expression, a duration or a time is an error of the expression, not of data."""
    for literal in _LITERALS.finditer(source):
        if literal["convert"] is None and literal["pattern"] is None:
            continue
        constant = literal["convert"] or f"''.matches({literal['pattern']})"
        evaluator = _evaluator(())
        try:
            CompiledExpression(evaluator.compile(constant), "dyn").evaluate(evaluator.Activation({}))
        except EvaluationError as error:
            raise ExpressionError(f"{literal.group()}: {error}") from None


@cache
def _evaluator(names: tuple[str, ...]) -> Any:
    return _environment(dict.fromkeys(names, "dyn"), None, untyped=True)


def _environment(variables: Mapping[str, Type], pool: Any, *, untyped: bool = False) -> Any:
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_optional, ext_strings  # type: ignore[import-untyped]

    return cel.NewEnv(
        pool,
        variables={name: _type(kind) for name, kind in variables.items()},
        extensions=[ext_optional.ExtOptional(), ext_strings.ExtStrings()],
        functions=_declarations(untyped=untyped),
    )


@cache
def _declarations(*, untyped: bool) -> list[Any]:
    """The functions of Kubernetes as the library wants them, with types or to be evaluated."""
    from cel_expr_python import cel

    return [
        cel.FunctionDecl(
            function.name,
            [
                cel.Overload(
                    f"{function.name}_{at}",
                    return_type=_type(result),
                    parameters=[_type(parameter) for parameter in parameters],
                    is_member=is_member,
                    impl=function.evaluate if untyped else _never_called,
                )
                for at, (is_member, parameters, result) in enumerate(function.overloads(untyped=untyped))
            ],
        )
        for function in FUNCTIONS
    ]


def _never_called(*_: Any) -> Any:
    raise AssertionError("the checker does not evaluate")


def _type(kind: Type) -> Any:
    from cel_expr_python import cel

    if isinstance(kind, str):
        return cel.Type(kind)
    if isinstance(kind, cel.Type):
        return kind
    make: Callable[[Any], Any] = cel.Type.List if kind[0] == "list" else _map_type
    return make(_type(kind[1]))


def _map_type(values: Any) -> Any:
    from cel_expr_python import cel

    return cel.Type.Map(cel.Type.STRING, values)


def _plain(error: object) -> str:
    """The library's error without its code."""
    return _STATUS.sub("", str(error)).removesuffix("[INVALID_ARGUMENT]").strip()


def _explained(error: RuntimeError) -> str:
    """The library's error, and which function of Kubernetes is not supported here if that is the reason."""
    text = " ".join(_plain(error).split())
    missing = sorted({name for name in _UNDECLARED.findall(text) if name in UNSUPPORTED})
    if not missing:
        return text
    return f"{', '.join(missing)}: supported by Kubernetes, not by the embedded server ({text})"
