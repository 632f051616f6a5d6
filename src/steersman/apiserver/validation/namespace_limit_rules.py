"""What makes a ResourceQuota or a LimitRange invalid: names, scopes and bounds that contradict each other. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver.validation import field_errors
from steersman.kube.api.quantities import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.kube.api.errors import Cause

JSON = dict[str, Any]
_SCOPES = {
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
}
_CONFLICTING = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_QUALIFIED_BY_NAME = {
    *("configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets"),
    *("services", "services.loadbalancers", "services.nodeports"),
    *("cpu", "memory", "ephemeral-storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage"),
    *("requests.cpu", "requests.memory", "requests.ephemeral-storage", "requests.storage"),
}
_TYPES = {"Container", "Pod", "PersistentVolumeClaim"}


def resource_quota_causes(obj: JSON, _old: JSON | None) -> list[Cause]:
    """Why a ResourceQuota cannot be stored."""
    spec = obj.get("spec") or {}
    return [*_hard(spec), *_scopes(spec), *_scope_selector(spec)]


def _hard(spec: JSON) -> Iterator[Cause]:
    for name, amount in (spec.get("hard") or {}).items():
        path = f"spec.hard[{name}]"
        if "/" not in name and name not in _QUALIFIED_BY_NAME and "hugepages-" not in name:
            yield field_errors.invalid(path, name, "must be a standard resource type or fully qualified")
        if Quantity.parse(amount) < Quantity.ZERO:
            yield field_errors.invalid(path, amount, "must be greater than or equal to 0")


def _scopes(spec: JSON) -> Iterator[Cause]:
    scopes = spec.get("scopes") or []
    if set(scopes) - _SCOPES:
        yield field_errors.invalid("spec.scopes", scopes, "unsupported scope")
    if any(pair <= set(scopes) for pair in _CONFLICTING):
        yield field_errors.invalid("spec.scopes", scopes, "conflicting scopes")


def _scope_selector(spec: JSON) -> Iterator[Cause]:
    path = "spec.scopeSelector.matchExpressions"
    for scope in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        name, operator, values = scope.get("scopeName", ""), scope.get("operator", ""), scope.get("values") or []
        if name not in _SCOPES:
            yield field_errors.invalid(f"{path}.scopeName", name, "unsupported scope")
        elif name not in {"PriorityClass", "VolumeAttributesClass"} and operator != "Exists":
            yield field_errors.invalid(f"{path}.operator", operator, "must be 'Exists' for this scope")
        if operator in {"In", "NotIn"}:
            if not values:
                yield field_errors.required(f"{path}.values", "must have a value when `operator` is 'In' or 'NotIn'")
        elif operator not in {"Exists", "DoesNotExist"}:
            yield field_errors.invalid(f"{path}.operator", operator, "not a valid selector operator")
        elif values:
            text = "must have no value when `operator` is 'Exists' or 'DoesNotExist'"
            yield field_errors.invalid(f"{path}.values", values, text)


def limit_range_causes(obj: JSON, _old: JSON | None) -> list[Cause]:
    """Why a LimitRange cannot be stored."""
    items = (obj.get("spec") or {}).get("limits") or []
    found: list[Cause] = []
    seen: set[str] = set()
    for at, item in enumerate(items):
        path, type_ = f"spec.limits[{at}]", item.get("type", "")
        if type_ not in _TYPES and "/" not in type_:
            text = "must be a standard limit type or fully qualified"
            found.append(field_errors.invalid(f"{path}.type", type_, text))
        if type_ in seen:
            found.append(field_errors.duplicate(f"{path}.type", type_))
        seen.add(type_)
        found += _bounds(item, path)
    return found


def _bounds(item: JSON, path: str) -> Iterator[Cause]:
    if item.get("type") == "Pod":
        for field in ("default", "defaultRequest"):
            if item.get(field):
                yield field_errors.forbidden(f"{path}.{field}", "may not be specified when `type` is 'Pod'")
    if item.get("type") == "PersistentVolumeClaim" and not any(
        "storage" in (item.get(field) or {}) for field in ("min", "max")
    ):
        yield field_errors.required(f"{path}.limits", "either minimum or maximum storage value is required")
    for low, high, blamed in (
        ("min", "max", "min"),
        ("min", "defaultRequest", "defaultRequest"),
        ("defaultRequest", "max", "defaultRequest"),
        ("defaultRequest", "default", "defaultRequest"),
        ("min", "default", "default"),
        ("default", "max", "default"),
    ):
        lower, higher = item.get(low) or {}, item.get(high) or {}
        for name in sorted(lower.keys() & higher.keys()):
            if Quantity.parse(lower[name]) > Quantity.parse(higher[name]):
                text = f"{low} value {lower[name]} is greater than {high} value {higher[name]}"
                yield field_errors.invalid(f"{path}.{blamed}[{name}]", (item.get(blamed) or {})[name], text)
    for name, ratio in (item.get("maxLimitRequestRatio") or {}).items():
        if Quantity.parse(ratio) < Quantity.parse("1"):
            yield field_errors.invalid(f"{path}.maxLimitRequestRatio[{name}]", ratio, f"ratio {ratio} is less than 1")
