"""ValidatingAdmissionPolicies and their bindings, compiled: what a policy decides about one request. Pure.

    policy ─ matchConstraints ─► binding ─ matchResources ─► params ─► match conditions ─► variables ─► validations

A policy without a binding decides nothing. Policies and bindings are ordered by name. They are read from the store when
a request needs them, so a write that follows the write of a policy is already judged by it.

An expression that fails denies the request, or with the failure policy `Ignore` decides nothing. What a denial means is
the binding's: an error (Deny), a warning (Warn) or an audit annotation (Audit).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.apiserver.admission.configurations import GROUP
from steersman.apiserver.admission.match_conditions import compile_condition, is_excluded
from steersman.apiserver.admission.match_resources import MatchResources
from steersman.apiserver.admission.request_environment import (
    policy_environment,
    request_environment,
    request_values,
    variable_value,
)
from steersman.apiserver.cel.expressions import (
    LONGEST_MESSAGE,
    CELEnvironment,
    CompiledExpression,
    EvaluationError,
    ExpressionError,
)
from steersman.kube.api.gvk import Kind
from steersman.kube.api.selectors import Selector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.apiserver.storage.store import Record, Store

JSON = dict[str, Any]
POLICY: Final = Kind(
    group=GROUP,
    version="v1",
    kind="ValidatingAdmissionPolicy",
    plural="validatingadmissionpolicies",
    namespaced=False,
)
BINDING: Final = Kind(
    group=GROUP,
    version="v1",
    kind="ValidatingAdmissionPolicyBinding",
    plural="validatingadmissionpolicybindings",
    namespaced=False,
)
LONGEST_ANNOTATION: Final = 10 << 10  # bytes of the value of an audit annotation
ANNOTATION_TYPES: Final = ("string", "null")
_EVERYTHING: Final = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}
_MISSING_VARIABLE: Final = 'No value with name "variables.'


class PolicyDecision(msgspec.Struct, frozen=True):
    """One reason to deny a request."""

    message: str
    reason: str = "Invalid"
    index: int = 0  # of the validation
    always: bool = False  # whatever the actions of the binding are


class PolicyVariables:
    """The variables of a policy, compiled in order; each may use those before it."""

    def __init__(self, *, params: bool) -> None:
        self._params = params
        self._types: dict[str, Any] = {}
        self._programs: list[tuple[str, CELEnvironment, CompiledExpression]] = []

    @property
    def environment(self) -> CELEnvironment:
        """Where expressions that may use all variables so far are compiled."""
        if not self._types:
            return request_environment(params=self._params)
        return policy_environment(params=self._params, variables=self._types)

    def add(self, name: str, expression: str) -> None:
        """Define a variable; an `ExpressionError` says why that is impossible, and others may still use the name."""
        environment, kind = self.environment, "dyn"
        try:
            program = environment.compile(expression, returns=())
            kind = _declared_type(program.returns)
            self._programs.append((name, environment, program))
        finally:
            self._types[name] = kind

    def evaluate(self, values: JSON) -> tuple[JSON, dict[str, str]]:
        """`values` with those of the variables, and why some have none."""
        errors: dict[str, str] = {}
        values = dict(values)
        for name, environment, program in self._programs:
            try:
                values[f"variables.{name}"] = variable_value(program.evaluate(environment.bind(values)))
            except EvaluationError as error:
                errors[name] = _explained(error, errors)
        return values, errors


def _declared_type(returns: Any) -> Any:
    """The type of a variable, given that of its expression; messages and types of Kubernetes have none."""
    text = str(returns)
    if text.startswith("optional_type"):
        raise ExpressionError(
            "a variable with an optional value: supported by Kubernetes, not by the embedded server; use orValue()"
        )
    return returns if "." not in text else "dyn"


def _explained(error: EvaluationError, errors: dict[str, str]) -> str:
    """An error of evaluation; of an expression that used a variable without a value, why it has none."""
    text = str(error)
    if _MISSING_VARIABLE in text:
        name = text.split(_MISSING_VARIABLE, 1)[1].split('"', 1)[0]
        return f'composited variable "{name}" fails to evaluate: {errors.get(name, text)}'
    return text


class PolicyValidation(msgspec.Struct, frozen=True):
    """One validation of a policy."""

    expression: str
    holds: CompiledExpression
    message: str
    message_expression: CompiledExpression | None
    reason: str


class BindingParams(msgspec.Struct, frozen=True):
    """The `paramRef` of a binding: which objects are the parameters of its policy."""

    name: str
    namespace: str
    selector: Selector | None
    required: bool  # parameterNotFoundAction: Deny

    @classmethod
    def from_wire(cls, ref: JSON) -> BindingParams:
        """Of a stored binding."""
        selector = ref.get("selector")
        return cls(
            name=ref.get("name") or "",
            namespace=ref.get("namespace") or "",
            selector=Selector.from_wire(selector) if selector is not None else None,
            required=ref.get("parameterNotFoundAction") == "Deny",
        )


class PolicyBinding(msgspec.Struct, frozen=True, kw_only=True):
    """A ValidatingAdmissionPolicyBinding."""

    name: str
    policy: str
    match: MatchResources | None  # None: everything that the policy matches
    params: BindingParams | None
    actions: tuple[str, ...]  # Deny, Warn, Audit

    @classmethod
    def from_wire(cls, obj: JSON) -> PolicyBinding:
        """Of a stored, therefore valid and defaulted, object."""
        spec = obj["spec"]
        match, ref = spec.get("matchResources"), spec.get("paramRef")
        return cls(
            name=obj["metadata"]["name"],
            policy=spec["policyName"],
            match=MatchResources.from_wire(match, match.get("resourceRules") or [_EVERYTHING]) if match else None,
            params=BindingParams.from_wire(ref) if ref else None,
            actions=tuple(spec.get("validationActions") or ()),
        )


class ValidatingPolicy:
    """A ValidatingAdmissionPolicy."""

    def __init__(self, obj: JSON) -> None:
        """Of a stored, therefore valid and defaulted, object."""
        spec = obj["spec"]
        constraints = spec["matchConstraints"]
        self.name: str = obj["metadata"]["name"]
        self.match = MatchResources.from_wire(constraints, constraints.get("resourceRules") or [])
        self.ignores_failures = spec.get("failurePolicy") == "Ignore"
        self.param_kind: JSON | None = spec.get("paramKind")
        has_params = self.param_kind is not None
        self._conditions = tuple(
            compile_condition(condition["expression"].strip(), params=has_params)
            for condition in spec.get("matchConditions") or ()
        )
        self._variables = PolicyVariables(params=has_params)
        for variable in spec.get("variables") or ():
            self._variables.add(variable["name"], variable["expression"])
        self._environment = self._variables.environment
        self._validations = tuple(self._validation(validation) for validation in spec.get("validations") or ())
        self._annotations = tuple(
            (annotation["key"], source, self._environment.compile(source, returns=ANNOTATION_TYPES))
            for annotation in spec.get("auditAnnotations") or ()
            for source in [annotation["valueExpression"].strip()]
        )

    def _validation(self, validation: JSON) -> PolicyValidation:
        expression = validation.get("messageExpression") or ""
        return PolicyValidation(
            expression=validation["expression"].strip(),
            holds=self._environment.compile(validation["expression"]),
            message=(validation.get("message") or "").strip(),
            message_expression=self._environment.compile(expression, returns=("string",)) if expression else None,
            reason=validation.get("reason") or "Invalid",
        )

    def evaluate(
        self, question: JSON, namespace: JSON | None, params: JSON | None
    ) -> tuple[list[PolicyDecision], dict[str, str]]:
        """What the policy denies about the request of a review, and its audit annotations."""
        given = {"params": params} if self.param_kind is not None else {}
        try:
            if is_excluded(self._conditions, question, **given):
                return [], {}
        except EvaluationError as error:
            return self._failed(str(error), 0), {}
        values, errors = self._variables.evaluate({**request_values(question), "namespaceObject": namespace, **given})
        activation = self._environment.bind(values)
        decisions = [
            decision
            for index, validation in enumerate(self._validations)
            for decision in self._decide(validation, index, activation, errors)
        ]
        annotations: dict[str, str] = {}
        for key, source, program in self._annotations:
            try:
                value = program.evaluate(activation)
            except EvaluationError as error:
                why = f"expression '{source}' resulted in error: {_explained(error, errors)}"
                decisions += [msgspec.structs.replace(failed, always=True) for failed in self._failed(why, 0)]
                continue
            if isinstance(value, str) and value.strip():
                annotations[key] = value.strip().encode()[:LONGEST_ANNOTATION].decode(errors="ignore")
        return decisions, annotations

    def _decide(
        self, validation: PolicyValidation, index: int, activation: Any, errors: dict[str, str]
    ) -> Iterator[PolicyDecision]:
        try:
            if validation.holds.evaluate(activation):
                return
        except EvaluationError as error:
            why = f"expression '{validation.expression}' resulted in error: {_explained(error, errors)}"
            yield from self._failed(why, index)
            return
        message = _evaluated_message(validation.message_expression, activation)
        message = message or validation.message or f"failed expression: {validation.expression}"
        yield PolicyDecision(message, validation.reason, index)

    def _failed(self, why: str, index: int) -> list[PolicyDecision]:
        return [] if self.ignores_failures else [PolicyDecision(why, index=index)]


def _evaluated_message(expression: CompiledExpression | None, activation: Any) -> str:
    """The message that an expression makes, if it makes one line of text."""
    if expression is None:
        return ""
    try:
        text = str(expression.evaluate(activation)).strip()
    except EvaluationError:
        return ""
    return text if "\n" not in text and len(text.encode()) <= LONGEST_MESSAGE else ""


class AdmissionPolicies:
    """The policies in a store that have a binding. False while there is no binding."""

    def __init__(self, store: Store) -> None:
        self._policies = store.table(POLICY)
        self._bindings = store.table(BINDING)
        self._compiled: dict[Record, ValidatingPolicy] = {}
        self._parsed: dict[Record, PolicyBinding] = {}

    def __bool__(self) -> bool:
        return bool(self._bindings.keys and self._policies.keys)

    def bound(self) -> Iterator[tuple[ValidatingPolicy, list[PolicyBinding]]]:
        """Every policy with its bindings."""
        bindings: dict[str, list[PolicyBinding]] = {}
        for record in self._bindings.scan():
            binding = self._parsed.get(record)
            if binding is None:
                _forget_if_many(self._parsed)
                binding = self._parsed[record] = PolicyBinding.from_wire(record.obj)
            bindings.setdefault(binding.policy, []).append(binding)
        for record in self._policies.scan():
            if record.key not in bindings:
                continue
            policy = self._compiled.get(record)
            if policy is None:
                _forget_if_many(self._compiled)
                policy = self._compiled[record] = ValidatingPolicy(record.obj)
            yield policy, bindings[record.key]


def _forget_if_many(values: dict[Record, Any]) -> None:
    """Objects that changed leave values behind."""
    if len(values) > 1000:
        values.clear()
