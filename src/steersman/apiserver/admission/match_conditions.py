"""Match conditions: CEL expressions about a request, all of which must hold for a webhook or policy to be asked. Pure.

An expression sees the `request` of the review, `object` and `oldObject`, in the version that is asked in.
One condition that is false excludes the request, whatever the others are; only then do errors count.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from steersman.apiserver.admission.request_environment import request_environment, request_values
from steersman.apiserver.cel.expressions import EvaluationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.apiserver.cel.expressions import CompiledExpression

JSON = dict[str, Any]


@cache
def compile_condition(expression: str, *, params: bool = False) -> CompiledExpression:
    """The program of a condition; an `ExpressionError` says what is wrong. Those of a policy may see `params`."""
    return request_environment(params=params).compile(expression)


def is_excluded(conditions: Iterable[CompiledExpression], question: JSON, **params: Mapping[str, Any] | None) -> bool:
    """Whether a condition is false for the request of a review; an `EvaluationError` when that cannot be said."""
    activation = request_environment(params=bool(params)).bind({**request_values(question), **params})
    errors: list[EvaluationError] = []
    for condition in conditions:
        try:
            if not condition.evaluate(activation):
                return True
        except EvaluationError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return False
