"""The rules of ValidatingAdmissionPolicies and their bindings: what they match, parameters, actions and expressions.

Expressions are CEL and compiled here. One that this server cannot evaluate is rejected; so every stored policy can be
evaluated.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from steersman.apiserver.admission.policies import ANNOTATION_TYPES, PolicyVariables
from steersman.apiserver.cel.expressions import INSTALL, is_installed
from steersman.apiserver.cel.schema_types import RESERVED
from steersman.apiserver.validation import field_errors
from steersman.apiserver.validation.metadata_rules import selector_causes
from steersman.apiserver.validation.names import is_dns1123_subdomain, is_path_segment
from steersman.apiserver.validation.webhook_rules import (
    FAILURE_POLICIES,
    MATCH_POLICIES,
    expression_causes,
    match_condition_causes,
    rule_causes,
)
from steersman.kube.api.validation import label_key_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.apiserver.cel.expressions import CELEnvironment
    from steersman.kube.api.errors import Cause

JSON = dict[str, Any]
MAX_ANNOTATIONS: Final = 20
LONGEST_EXPRESSION: Final = 5 << 10  # bytes, of an audit annotation
REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
ACTIONS: Final = ("Audit", "Deny", "Warn")
_IDENTIFIER = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*", re.ASCII)
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_BOTH = "validations or auditAnnotations must contain at least one item"
_EXCLUSIVE = "name and selector are mutually exclusive"


def policy_causes(obj: JSON, _old: JSON | None) -> list[Cause]:
    """Why a policy cannot be stored."""
    return list(_policy_causes(obj.get("spec") or {}, obj["metadata"].get("name", "")))


def _policy_causes(spec: JSON, name: str) -> Iterator[Cause]:
    if (policy := spec.get("failurePolicy", "Fail")) not in FAILURE_POLICIES:
        yield field_errors.not_supported("spec.failurePolicy", policy, FAILURE_POLICIES)
    if (kind := spec.get("paramKind")) is not None:
        yield from _param_kind_causes(kind, "spec.paramKind")
    constraints = spec.get("matchConstraints")
    if constraints is None:
        yield field_errors.required("spec.matchConstraints")
    else:
        yield from _match_causes(constraints, "spec.matchConstraints")
        if not constraints.get("resourceRules"):
            yield field_errors.required("spec.matchConstraints.resourceRules")
    has_params = kind is not None
    yield from match_condition_causes(spec.get("matchConditions") or [], "spec.matchConditions", params=has_params)
    if not is_installed():
        yield field_errors.forbidden("spec", INSTALL)
        return
    variables = PolicyVariables(params=has_params)
    for index, variable in enumerate(spec.get("variables") or ()):
        yield from _variable_causes(variables, variable, f"spec.variables[{index}]")
    validations, annotations = spec.get("validations") or [], spec.get("auditAnnotations") or []
    if not validations and not annotations:
        yield field_errors.required("spec.validations", _BOTH)
        yield field_errors.required("spec.auditAnnotations", _BOTH)
    environment = variables.environment
    for index, validation in enumerate(validations):
        yield from _validation_causes(environment, validation, f"spec.validations[{index}]")
    yield from _annotations_causes(environment, name, annotations, "spec.auditAnnotations")


def _param_kind_causes(kind: JSON, path: str) -> Iterator[Cause]:
    given, name = kind.get("apiVersion") or "", kind.get("kind") or ""
    group, _, version = given.rpartition("/")
    if not given:
        yield field_errors.required(f"{path}.apiVersion")
    elif given.count("/") > 1:
        yield field_errors.invalid(f"{path}.apiVersion", given, f"unexpected GroupVersion string: {given}")
    else:
        if group:
            yield from _invalid(f"{path}.apiVersion", group, is_dns1123_subdomain(group))
        if not version:
            yield field_errors.invalid(f"{path}.apiVersion", given, "version must be specified")
        elif not _LABEL.fullmatch(version):
            yield field_errors.invalid(f"{path}.apiVersion", version, "must be a lower case DNS label")
    if not name:
        yield field_errors.required(f"{path}.kind")
    elif not _LABEL.fullmatch(name.lower()):
        yield field_errors.invalid(f"{path}.kind", name, "may have mixed case, but should otherwise be a DNS label")


def _invalid(path: str, value: str, problems: list[str]) -> Iterator[Cause]:
    if problems:
        yield field_errors.invalid(path, value, ", ".join(problems))


def _match_causes(match: JSON, path: str) -> Iterator[Cause]:
    if (policy := match.get("matchPolicy", "Equivalent")) not in MATCH_POLICIES:
        yield field_errors.not_supported(f"{path}.matchPolicy", policy, MATCH_POLICIES)
    for field in ("namespaceSelector", "objectSelector"):
        yield from selector_causes(match.get(field), f"{path}.{field}")
    for field in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(match.get(field) or ()):
            yield from _resource_name_causes(rule.get("resourceNames") or [], f"{path}.{field}[{index}].resourceNames")
            yield from rule_causes(rule, f"{path}.{field}[{index}]")


def _resource_name_causes(names: list[str], path: str) -> Iterator[Cause]:
    for index, name in enumerate(names):
        yield from _invalid(f"{path}[{index}]", name, is_path_segment(name))
        if name in names[:index]:
            yield field_errors.duplicate(f"{path}[{index}]", name)


def _variable_causes(variables: PolicyVariables, variable: JSON, path: str) -> Iterator[Cause]:
    name, expression = variable.get("name") or "", variable.get("expression") or ""
    if not name.strip():
        yield field_errors.required(f"{path}.name", "name is not specified")
    elif not _IDENTIFIER.fullmatch(name) or name in RESERVED:
        yield field_errors.invalid(f"{path}.name", name, "must be a valid CEL identifier")
    if not expression.strip():
        yield field_errors.required(f"{path}.expression", "expression is not specified")
    else:
        yield from expression_causes(partial(variables.add, name, expression), expression, f"{path}.expression")


def _validation_causes(environment: CELEnvironment, validation: JSON, path: str) -> Iterator[Cause]:
    expression, message = validation.get("expression") or "", validation.get("message") or ""
    if not expression.strip():
        yield field_errors.required(f"{path}.expression", "expression is not specified")
    else:
        compiled = partial(environment.compile, expression)
        yield from expression_causes(compiled, expression, f"{path}.expression")
    if (source := validation.get("messageExpression") or "") and not source.strip():
        yield field_errors.invalid(f"{path}.messageExpression", source, "must be non-empty if specified")
    elif source:
        compiled = partial(environment.compile, source, returns=("string",))
        yield from expression_causes(compiled, source, f"{path}.messageExpression")
    if message and not message.strip():
        yield field_errors.invalid(f"{path}.message", message, "must be non-empty if specified")
    elif "\n" in message.strip() or "\r" in message.strip():
        yield field_errors.invalid(f"{path}.message", message, "must not contain line breaks")
    if (reason := validation.get("reason")) is not None and reason not in REASONS:
        yield field_errors.not_supported(f"{path}.reason", reason, REASONS)


def _annotations_causes(
    environment: CELEnvironment, policy: str, annotations: list[JSON], path: str
) -> Iterator[Cause]:
    if len(annotations) > MAX_ANNOTATIONS:
        why = f"must not have more than {MAX_ANNOTATIONS} auditAnnotations"
        yield field_errors.invalid(path, annotations, why)
    keys: set[str] = set()
    for index, annotation in enumerate(annotations):
        where, key, given = f"{path}[{index}]", annotation.get("key") or "", annotation.get("valueExpression") or ""
        for problem in label_key_errors(f"{policy}/{key}") if policy else ["requires metadata.name be non-empty"]:
            yield field_errors.invalid(f"{where}.key", key, problem)
        source = given.strip()
        if not source:
            yield field_errors.required(f"{where}.valueExpression", "valueExpression is not specified")
        elif len(source.encode()) > LONGEST_EXPRESSION:
            why = f"must not exceed {LONGEST_EXPRESSION} bytes in length"
            yield field_errors.required(f"{where}.valueExpression", why)
        else:
            compiled = partial(environment.compile, source, returns=ANNOTATION_TYPES)
            yield from expression_causes(compiled, given, f"{where}.valueExpression")
        if key in keys:
            yield field_errors.duplicate(f"{where}.key", key)
        keys.add(key)


def policy_binding_causes(obj: JSON, _old: JSON | None) -> list[Cause]:
    """Why a binding cannot be stored."""
    return list(_binding_causes(obj.get("spec") or {}))


def _binding_causes(spec: JSON) -> Iterator[Cause]:
    if not (name := spec.get("policyName") or ""):
        yield field_errors.required("spec.policyName")
    else:
        yield from _invalid("spec.policyName", name, is_dns1123_subdomain(name))
    if (ref := spec.get("paramRef")) is not None:
        yield from _param_ref_causes(ref, "spec.paramRef")
    if (match := spec.get("matchResources")) is not None:
        yield from _match_causes(match, "spec.matchResources")
    actions = spec.get("validationActions") or []
    for index, action in enumerate(actions):
        if action not in ACTIONS:
            yield field_errors.not_supported(f"spec.validationActions[{index}]", action, ACTIONS)
        if action in actions[:index]:
            yield field_errors.duplicate(f"spec.validationActions[{index}]", action)
    if {"Deny", "Warn"} <= set(actions):
        yield field_errors.invalid("spec.validationActions", actions, "must not contain both Deny and Warn")
    if not actions:
        yield field_errors.required("spec.validationActions", "at least one validation action is required")


def _param_ref_causes(ref: JSON, path: str) -> Iterator[Cause]:
    name, selector, action = ref.get("name") or "", ref.get("selector"), ref.get("parameterNotFoundAction")
    if name:
        yield from _invalid(f"{path}.name", name, is_path_segment(name))
    if name and selector is not None:
        yield field_errors.forbidden(f"{path}.name", _EXCLUSIVE)
    yield from selector_causes(selector, f"{path}.selector")
    if name and selector is not None:
        yield field_errors.forbidden(f"{path}.selector", _EXCLUSIVE)
    if not name and selector is None:
        yield field_errors.required(path, "one of name or selector must be specified")
    if not action:
        yield field_errors.required(f"{path}.parameterNotFoundAction")
    elif action not in {"Allow", "Deny"}:
        yield field_errors.not_supported(f"{path}.parameterNotFoundAction", action, ("Deny", "Allow"))
