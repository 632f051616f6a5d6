"""Validation beyond the schema: every problem of a spec, each with its field. Pure.

`read_executor` and `read_performer` decode a stored object into its typed spec, or into problems. So a resource that an
older schema let in reports its own problems and affects no other. Values of environment variables and keys are never
part of a problem.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from steersman.errors import FormatError
from steersman.kube.api.quantities import Quantity
from steersman.kube.api.validation import (
    dns1035_label_errors,
    dns_subdomain_errors,
    label_key_errors,
    label_value_errors,
)
from steersman.operators.hourglass.api.types import ExecutorSpec, PerformerSpec, pod_name
from steersman.text import some_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from steersman.operators.hourglass.api.scheduling import Resources, Scheduling
    from steersman.operators.hourglass.api.types import DisruptionBudget, StoredExecutor, StoredPerformer

T = TypeVar("T")
NOT_ALLOWED: Final = "NotAllowed"

_ENV_NAME: Final = re.compile(r"[ -<>-~]+")  # printable ASCII without =, as the API server has it
_SECRET_KEY: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_PERCENT: Final = re.compile(r"([0-9]|[1-9][0-9]|100)%")
_PLACE: Final = re.compile(r"^(?P<what>.*) - at `\$\.?(?P<path>[^`]*)`$", re.DOTALL)


class FieldProblem(msgspec.Struct, frozen=True):
    """One thing that is wrong, and where."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def shown(problems: tuple[FieldProblem, ...]) -> str:
    """The problems in one line."""
    return some_of(problems, 5, separator="; ")


def read_executor(executor: StoredExecutor) -> tuple[ExecutorSpec | None, tuple[FieldProblem, ...]]:
    """The spec of an executor, and what is wrong with it; None when it cannot even be read."""
    spec, problems = _typed(executor.spec, ExecutorSpec)
    if spec is None:
        return None, problems
    return spec, tuple(_executor_problems(executor.name, spec))


def read_performer(performer: StoredPerformer) -> tuple[PerformerSpec | None, tuple[FieldProblem, ...]]:
    """The spec of a performer, and what is wrong with it; None when it cannot even be read."""
    spec, problems = _typed(performer.spec, PerformerSpec)
    if spec is None:
        return None, problems
    return spec, tuple(_performer_problems(performer.name, spec))


def account_rejections(
    namespace: str, spec: ExecutorSpec | PerformerSpec, allowed: tuple[str, ...]
) -> tuple[FieldProblem, ...]:
    """A ServiceAccount that a spec names and that its author may not run pods as; its token would be theirs.

    `allowed` are patterns, of names or of NAMESPACE/NAME.
    """
    if isinstance(spec, ExecutorSpec):
        field, account = "spec.serviceAccountName", spec.service_account_name
    else:
        field, account = "spec.config.serviceAccountName", (spec.config and spec.config.service_account_name) or ""
    whole = f"{namespace}/{account}"
    if not account or any(fnmatchcase(whole if "/" in pattern else account, pattern) for pattern in allowed):
        return ()
    text = f"{account} is not allowed (an administrator allows it with hourglass.serviceAccounts)"
    return (FieldProblem(field, text),)


def _typed(stored: dict[str, Any] | None, into: type[T]) -> tuple[T | None, tuple[FieldProblem, ...]]:
    if not stored:
        return None, (FieldProblem("spec", "is missing"),)
    try:
        return msgspec.convert(stored, into), ()
    except msgspec.ValidationError as error:
        found = _PLACE.match(str(error))
        path, what = (found["path"], found["what"]) if found else ("", str(error))
        return None, (FieldProblem(f"spec.{path}".removesuffix("[...]").rstrip("."), what),)


# ---------------------------------------------------------------------------------------------------------- executors
def _executor_problems(name: str, spec: ExecutorSpec) -> Iterator[FieldProblem]:
    if len(name) > 63:
        yield FieldProblem("metadata.name", f"has {len(name)} characters; a label holds the name and takes 63")
    config = spec.config
    if config.operator_keys and config.operator_keys_secret_ref:
        yield FieldProblem(
            "spec.config.operatorKeysSecretRef", "and operatorKeys are mutually exclusive: keep the reference"
        )
    if not config.operator_keys and not (config.operator_keys_secret_ref and config.operator_keys_secret_ref.name):
        yield FieldProblem("spec.config.operatorKeys", "is empty and no Secret is named in operatorKeysSecretRef")
    for key in config.operator_keys or ():
        if not _SECRET_KEY.fullmatch(key) or key in (".", ".."):
            yield FieldProblem(
                "spec.config.operatorKeys", f'"{key[:60]}" cannot be a file name (letters, digits, - _ .)'
            )
    names = [chain.name for chain in config.chains]
    for twice in sorted({name for name in names if names.count(name) > 1}):
        yield FieldProblem("spec.config.chains", f'"{twice}" is listed twice')
    if config.kubernetes is not None and (complaints := dns_subdomain_errors(config.kubernetes.namespace)):
        yield FieldProblem("spec.config.kubernetes.namespace", complaints[0])
    if config.kubernetes is not None and config.kubernetes.default_scheduling is not None:
        yield from _scheduling(config.kubernetes.default_scheduling, "spec.config.kubernetes.defaultScheduling")
    if complaints := dns_subdomain_errors(spec.service_account_name):
        yield FieldProblem("spec.serviceAccountName", complaints[0])
    yield from _labels(spec.node_selector, "spec.nodeSelector")
    yield from _resources(spec.resources, "spec.resources")
    yield from _budget(spec.disruption_budget, "spec.disruptionBudget")
    if spec.performers is not None and (wrong := budget_problem(spec.performers.max_unavailable)):
        yield FieldProblem("spec.performers.maxUnavailable", wrong)


# --------------------------------------------------------------------------------------------------------- performers
def _performer_problems(name: str, spec: PerformerSpec) -> Iterator[FieldProblem]:
    if complaints := dns1035_label_errors(pod_name(name)):
        yield FieldProblem("metadata.name", f"the Service would be called {pod_name(name)}: {complaints[0]}")
    if config := spec.config:
        names = [*(config.environment or ()), *(entry.name for entry in config.environment_from or ())]
        for variable in names:
            if not _ENV_NAME.fullmatch(variable):
                yield FieldProblem("spec.config.environment", f'"{variable[:60]}" cannot name an environment variable')
        for twice in sorted({name for name in names if names.count(name) > 1}):
            yield FieldProblem("spec.config.environmentFrom", f'"{twice[:60]}" is listed twice')
        for place, entry in enumerate(config.environment_from or ()):
            source = entry.value_from
            if (source.secret_key_ref is None) == (source.config_map_key_ref is None):
                yield FieldProblem(
                    f"spec.config.environmentFrom[{place}].valueFrom", "must name one of secretKeyRef, configMapKeyRef"
                )
        if config.service_account_name and (complaints := dns_subdomain_errors(config.service_account_name)):
            yield FieldProblem("spec.config.serviceAccountName", complaints[0])
    if spec.executor_ref and (complaints := dns_subdomain_errors(spec.executor_ref)):
        yield FieldProblem("spec.executorRef", complaints[0])
    yield from _resources(spec.resources, "spec.resources")
    yield from _budget(spec.disruption_budget, "spec.disruptionBudget")
    if spec.scheduling is not None:
        yield from _scheduling(spec.scheduling, "spec.scheduling")
    if spec.hardware_requirements is not None:
        yield from _labels(spec.hardware_requirements.custom_labels, "spec.hardwareRequirements.customLabels")


# -------------------------------------------------------------------------------------------------------------- parts
def _scheduling(scheduling: Scheduling, path: str) -> Iterator[FieldProblem]:
    if scheduling.node_affinity and scheduling.affinity and scheduling.affinity.node_affinity:
        yield FieldProblem(f"{path}.nodeAffinity", "is also in affinity.nodeAffinity: keep one of them")
    for field, name in (
        ("runtimeClass", scheduling.runtime_class),
        ("priorityClassName", scheduling.priority_class_name),
    ):
        if name and (complaints := dns_subdomain_errors(name)):
            yield FieldProblem(f"{path}.{field}", complaints[0])
    yield from _labels(scheduling.node_selector, f"{path}.nodeSelector")


def _labels(labels: Mapping[str, str] | None, path: str) -> Iterator[FieldProblem]:
    for key, value in (labels or {}).items():
        if complaints := [*label_key_errors(key), *label_value_errors(value)]:
            yield FieldProblem(f"{path}.{key}", complaints[0])


def _resources(resources: Resources | None, path: str) -> Iterator[FieldProblem]:
    if resources is None:
        return
    for part, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        for name, amount in (amounts or {}).items():
            where = f"{path}.{part}.{name}"
            if complaints := label_key_errors(name):
                yield FieldProblem(where, complaints[0])
            try:
                if Quantity.parse(amount) < Quantity.parse(0):
                    yield FieldProblem(where, f"{amount} is negative")
            except FormatError as error:
                yield FieldProblem(where, str(error))


def _budget(budget: DisruptionBudget | None, path: str) -> Iterator[FieldProblem]:
    if budget is None:
        return
    if (budget.max_unavailable is None) == (budget.min_available is None):
        yield FieldProblem(path, "must have one of maxUnavailable and minAvailable")
    for field, value in (("maxUnavailable", budget.max_unavailable), ("minAvailable", budget.min_available)):
        if wrong := budget_problem(value):
            yield FieldProblem(f"{path}.{field}", wrong)


def budget_problem(value: int | str | None) -> str | None:
    """What is wrong with a number or share of pods; None when nothing is."""
    if value is None or (isinstance(value, int) and value >= 0):
        return None
    if isinstance(value, str) and _PERCENT.fullmatch(value):
        return None
    return f"{value!r} is neither a number nor a share (try 1 or 25%)"
