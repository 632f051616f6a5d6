"""CEL about a request: the variables of match conditions and policies, with their types and values. Pure.

`object`, `oldObject`, `params` and the options of the request have no type until an expression runs; `request` and
`namespaceObject` have one, so a typo in them is an error of the expression. A variable of a policy is the CEL variable
`variables.NAME` with the type of its expression.

Not here: `authorizer`. An expression that uses it does not compile.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from steersman.apiserver.cel.expressions import CELEnvironment
from steersman.apiserver.cel.schema_types import SchemaTypes, duration_value, timestamp_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.apiserver.cel.expressions import Type

JSON = dict[str, Any]


def _fields(text: str, **others: JSON) -> JSON:
    return {"type": "object", "properties": {**{name: {"type": "string"} for name in text.split()}, **others}}


_TEXTS: JSON = {"type": "array", "items": {"type": "string"}}
_TEXT_MAP: JSON = {"type": "object", "additionalProperties": {"type": "string"}}
_ANYTHING: JSON = {"x-kubernetes-int-or-string": True}
_TIME: JSON = {"type": "string", "format": "date-time"}
_INTEGER: JSON = {"type": "integer"}
_REQUEST = _fields(
    "subResource requestSubResource name namespace operation",
    kind=_fields("group version kind"),
    resource=_fields("group version resource"),
    requestKind=_fields("group version kind"),
    requestResource=_fields("group version resource"),
    userInfo=_fields("username uid", groups=_TEXTS, extra={"type": "object", "additionalProperties": _TEXTS}),
    dryRun={"type": "boolean"},
    options=_ANYTHING,
)
_NAMESPACE_METADATA = _fields(
    "name generateName namespace UID resourceVersion",
    labels=_TEXT_MAP,
    annotations=_TEXT_MAP,
    creationTimestamp=_TIME,
    deletionTimestamp=_TIME,
    deletionGracePeriodSeconds=_INTEGER,
    generation=_INTEGER,
    finalizers=_TEXTS,
)
_CONDITION = _fields("status type message reason", lastTransitionTime=_TIME)
_NAMESPACE_STATUS = _fields("phase", conditions={"type": "array", "items": _CONDITION})
# Wrapped, because the root of a schema is a resource, of whose metadata expressions see only the names.
_NAMESPACE = _fields("", metadata=_NAMESPACE_METADATA, spec=_fields("", finalizers=_TEXTS), status=_NAMESPACE_STATUS)
_ROOT = _fields("", request=_REQUEST, namespaceObject=_NAMESPACE)


@cache
def _types() -> SchemaTypes:
    return SchemaTypes(_ROOT, names=str)


@cache
def request_environment(*, params: bool = False) -> CELEnvironment:
    """The environment of expressions without variables of a policy."""
    return policy_environment(params=params, variables={})


def policy_environment(*, params: bool, variables: Mapping[str, Type]) -> CELEnvironment:
    """The environment of expressions; `variables` are the names and types of what a policy has defined so far."""
    types = _types()
    request, namespace = types.of(_REQUEST), types.of(_NAMESPACE)
    assert request is not None
    assert namespace is not None
    declared: dict[str, Type] = {
        "object": "dyn",
        "oldObject": "dyn",
        "request": request,
        "namespaceObject": namespace,
        **({"params": "dyn"} if params else {}),
        **{f"variables.{name}": kind for name, kind in variables.items()},
    }
    return CELEnvironment(declared, types.pool)


def request_values(question: JSON) -> JSON:
    """The variables of a request, given the request of its review. Match conditions see no namespace."""
    request = {key: value for key, value in question.items() if key not in {"object", "oldObject"}}
    return {
        "object": question["object"],
        "oldObject": question["oldObject"],
        "request": request,
        "namespaceObject": None,
    }


def namespace_value(namespace: Mapping[str, Any] | None) -> JSON | None:
    """A stored namespace as `namespaceObject`: without its managers, owners and self link."""
    if namespace is None:
        return None
    known = (*_NAMESPACE_METADATA["properties"], "uid")
    metadata = {key: value for key, value in namespace["metadata"].items() if key in known}
    return {**{key: namespace[key] for key in ("spec", "status") if key in namespace}, "metadata": metadata}


def variable_value(value: Any) -> Any:
    """The value of an expression, as the value of a variable of other expressions."""
    if isinstance(value, datetime):
        return timestamp_value(value)
    if isinstance(value, timedelta):
        return duration_value(value)
    if isinstance(value, list):
        return [variable_value(item) for item in value]
    if isinstance(value, dict):
        return {key: variable_value(item) for key, item in value.items()}
    return value
