"""What a schema cannot say: every problem of a spec, each with the field it is about. Pure.

`read_executor` and `read_performer` turn a stored object into its typed spec, or into the problems that keep it from
being one. So a resource that an older schema let in says what is wrong with itself and harms nobody else.
Values of environment variables and keys are never part of a problem.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from steersman.errors import FormatError
from steersman.kube.names import dns1035_label_errors, dns_subdomain_errors, label_key_errors, label_value_errors
from steersman.kube.quantities import Quantity
from steersman.operators.hourglass.types import ExecutorSpec, PerformerSpec, pod_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from steersman.operators.hourglass.scheduling import Resources, Scheduling
    from steersman.operators.hourglass.types import Budget, StoredExecutor, StoredPerformer

__all__ = ["Problem", "budget_problem", "read_executor", "read_performer", "shown"]

T = TypeVar("T")

_ENV_NAME: Final = re.compile(r"[ -<>-~]+")  # printable ASCII without =, as the API server has it
_SECRET_KEY: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_PERCENT: Final = re.compile(r"([0-9]|[1-9][0-9]|100)%")
_PLACE: Final = re.compile(r"^(?P<what>.*) - at `\$\.?(?P<path>[^`]*)`$", re.DOTALL)


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong, and where."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def shown(problems: tuple[Problem, ...], limit: int = 5) -> str:
    """The problems in one line."""
    rest = f"; and {len(problems) - limit} more" if len(problems) > limit else ""
    return "; ".join(map(str, problems[:limit])) + rest


def read_executor(executor: StoredExecutor) -> tuple[ExecutorSpec | None, tuple[Problem, ...]]:
    """The spec of an executor, and what is wrong with it; None when it cannot even be read."""
    spec, problems = _typed(executor.spec, ExecutorSpec)
    if spec is None:
        return None, problems
    return spec, tuple(_executor_problems(executor.name, spec))


def read_performer(performer: StoredPerformer) -> tuple[PerformerSpec | None, tuple[Problem, ...]]:
    """The spec of a performer, and what is wrong with it; None when it cannot even be read."""
    spec, problems = _typed(performer.spec, PerformerSpec)
    if spec is None:
        return None, problems
    return spec, tuple(_performer_problems(performer.name, spec))


def _typed(stored: dict[str, Any] | None, into: type[T]) -> tuple[T | None, tuple[Problem, ...]]:
    if not stored:
        return None, (Problem("spec", "is missing"),)
    try:
        return msgspec.convert(stored, into), ()
    except msgspec.ValidationError as error:
        found = _PLACE.match(str(error))
        path, what = (found["path"], found["what"]) if found else ("", str(error))
        return None, (Problem(f"spec.{path}".removesuffix("[...]").rstrip("."), what),)


# ---------------------------------------------------------------------------------------------------------- executors
def _executor_problems(name: str, spec: ExecutorSpec) -> Iterator[Problem]:
    if len(name) > 63:
        yield Problem("metadata.name", f"has {len(name)} characters; a label holds the name and takes 63")
    config = spec.config
    if config.operator_keys and config.operator_keys_secret_ref:
        yield Problem("spec.config.operatorKeysSecretRef", "and operatorKeys exclude each other: keep the reference")
    if not config.operator_keys and not (config.operator_keys_secret_ref and config.operator_keys_secret_ref.name):
        yield Problem("spec.config.operatorKeys", "is empty and no Secret is named in operatorKeysSecretRef")
    for key in config.operator_keys or ():
        if not _SECRET_KEY.fullmatch(key) or key in (".", ".."):
            yield Problem("spec.config.operatorKeys", f'"{key[:60]}" cannot be a file name (letters, digits, - _ .)')
    names = [chain.name for chain in config.chains]
    for twice in sorted({name for name in names if names.count(name) > 1}):
        yield Problem("spec.config.chains", f'"{twice}" is there twice')
    if config.kubernetes is not None and (complaints := dns_subdomain_errors(config.kubernetes.namespace)):
        yield Problem("spec.config.kubernetes.namespace", complaints[0])
    if config.kubernetes is not None and config.kubernetes.default_scheduling is not None:
        yield from _scheduling(config.kubernetes.default_scheduling, "spec.config.kubernetes.defaultScheduling")
    if complaints := dns_subdomain_errors(spec.service_account_name):
        yield Problem("spec.serviceAccountName", complaints[0])
    yield from _labels(spec.node_selector, "spec.nodeSelector")
    yield from _resources(spec.resources, "spec.resources")
    yield from _budget(spec.disruption_budget, "spec.disruptionBudget")
    if spec.performers is not None and (wrong := budget_problem(spec.performers.max_unavailable)):
        yield Problem("spec.performers.maxUnavailable", wrong)


# --------------------------------------------------------------------------------------------------------- performers
def _performer_problems(name: str, spec: PerformerSpec) -> Iterator[Problem]:
    if complaints := dns1035_label_errors(pod_name(name)):
        yield Problem("metadata.name", f"the Service would be called {pod_name(name)}: {complaints[0]}")
    if config := spec.config:
        names = [*(config.environment or ()), *(entry.name for entry in config.environment_from or ())]
        for variable in names:
            if not _ENV_NAME.fullmatch(variable):
                yield Problem("spec.config.environment", f'"{variable[:60]}" cannot name an environment variable')
        for twice in sorted({name for name in names if names.count(name) > 1}):
            yield Problem("spec.config.environmentFrom", f'"{twice[:60]}" is there twice')
        for place, entry in enumerate(config.environment_from or ()):
            source = entry.value_from
            if (source.secret_key_ref is None) == (source.config_map_key_ref is None):
                yield Problem(
                    f"spec.config.environmentFrom[{place}].valueFrom", "must name one of secretKeyRef, configMapKeyRef"
                )
        if config.service_account_name and (complaints := dns_subdomain_errors(config.service_account_name)):
            yield Problem("spec.config.serviceAccountName", complaints[0])
    if spec.executor_ref and (complaints := dns_subdomain_errors(spec.executor_ref)):
        yield Problem("spec.executorRef", complaints[0])
    yield from _resources(spec.resources, "spec.resources")
    yield from _budget(spec.disruption_budget, "spec.disruptionBudget")
    if spec.scheduling is not None:
        yield from _scheduling(spec.scheduling, "spec.scheduling")
    if spec.hardware_requirements is not None:
        yield from _labels(spec.hardware_requirements.custom_labels, "spec.hardwareRequirements.customLabels")


# -------------------------------------------------------------------------------------------------------------- parts
def _scheduling(scheduling: Scheduling, path: str) -> Iterator[Problem]:
    if scheduling.node_affinity and scheduling.affinity and scheduling.affinity.node_affinity:
        yield Problem(f"{path}.nodeAffinity", "is also in affinity.nodeAffinity: keep one of them")
    for field, name in (
        ("runtimeClass", scheduling.runtime_class),
        ("priorityClassName", scheduling.priority_class_name),
    ):
        if name and (complaints := dns_subdomain_errors(name)):
            yield Problem(f"{path}.{field}", complaints[0])
    yield from _labels(scheduling.node_selector, f"{path}.nodeSelector")


def _labels(labels: Mapping[str, str] | None, path: str) -> Iterator[Problem]:
    for key, value in (labels or {}).items():
        if complaints := [*label_key_errors(key), *label_value_errors(value)]:
            yield Problem(f"{path}.{key}", complaints[0])


def _resources(resources: Resources | None, path: str) -> Iterator[Problem]:
    if resources is None:
        return
    for part, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        for name, amount in (amounts or {}).items():
            where = f"{path}.{part}.{name}"
            if complaints := label_key_errors(name):
                yield Problem(where, complaints[0])
            try:
                if Quantity.parse(amount) < Quantity.parse(0):
                    yield Problem(where, f"{amount} is negative")
            except FormatError as error:
                yield Problem(where, str(error))


def _budget(budget: Budget | None, path: str) -> Iterator[Problem]:
    if budget is None:
        return
    if (budget.max_unavailable is None) == (budget.min_available is None):
        yield Problem(path, "must have one of maxUnavailable and minAvailable")
    for field, value in (("maxUnavailable", budget.max_unavailable), ("minAvailable", budget.min_available)):
        if wrong := budget_problem(value):
            yield Problem(f"{path}.{field}", wrong)


def budget_problem(value: int | str | None) -> str | None:
    """What is wrong with a number or share of pods; None when nothing is."""
    if value is None or (isinstance(value, int) and value >= 0):
        return None
    if isinstance(value, str) and _PERCENT.fullmatch(value):
        return None
    return f"{value!r} is neither a number nor a share (try 1 or 25%)"
