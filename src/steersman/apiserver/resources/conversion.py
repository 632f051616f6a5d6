"""Between the version objects are stored in and the version that is served.

Custom resources convert by their webhook, or by name only (`conversion.strategy: None`): then the content is the same,
the type is not, and the views write the type. With a webhook, objects that were stored in an earlier storage version
stay as they are until they are written again. The built-in resources that are served in two versions are
HorizontalPodAutoscaler (v1 and v2) and Event (core and events.k8s.io). Functions here are pure and keep what the other
version cannot say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver.resources.conform import at_rest, conform
from steersman.apiserver.resources.conversion_webhook import converted, prepare
from steersman.apiserver.resources.schema import builtin_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from steersman.apiserver.resources.kinds import ResourceInfo

JSON = dict[str, Any]

# events.k8s.io/v1 name -> core/v1 name; everything else is spelled the same
_EVENT_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_CORE_NAMES = {old: new for new, old in _EVENT_NAMES.items()}


def converter(info: ResourceInfo, *, reread: bool = False) -> Callable[[JSON], JSON] | None:
    """From the stored content to the content of `info`'s version; None when they are the same.

    A custom resource is pruned and defaulted by the schema of the version it is stored in, then pruned by that of the
    version it is read in. `reread` asks for the first even in the stored version, after the schema changed.
    """
    kind, stored = info.kind, info.storage
    same = (kind.group, kind.version) == (stored.group, stored.version)
    if info.custom is not None:
        webhook = info.custom.conversion
        if webhook is not None:
            return lambda obj: info.structural.admit(converted(webhook, obj, kind.api_version))
        if same:
            return info.structural.admit if reread else None
        return info.structural.prune
    if same:
        return None
    rename = _FROM_STORAGE[kind.api_version, kind.kind]
    return lambda obj: conform(info.schema, rename(obj))


def in_version(info: ResourceInfo, stored: JSON, *, reread: bool = False) -> JSON:
    """The stored object as `info`'s version has it, type included. `reread` converts even from the same version."""
    convert = converter(info, reread=reread)
    if convert is None and stored.get("apiVersion") == info.kind.api_version:
        return stored
    content = convert(stored) if convert else stored
    return {**content, "apiVersion": info.kind.api_version, "kind": info.kind.kind}


def prepare_versions(info: ResourceInfo, objects: Iterable[JSON]) -> None:
    """Have stored objects converted to `info`'s version in one call, where a webhook converts them."""
    if info.custom is not None and info.custom.conversion is not None:
        prepare(info.custom.conversion, objects, info.kind.api_version)


def to_storage(info: ResourceInfo, obj: JSON) -> JSON:
    """What `obj`, written in `info`'s version, is stored as; the type is that of the storage version."""
    kind, stored = info.kind, info.storage
    if (kind.group, kind.version) == (stored.group, stored.version):
        return obj
    typed = {"apiVersion": stored.api_version, "kind": stored.kind}
    if info.custom is not None:
        webhook = info.custom.conversion
        if webhook is None:
            return {**info.storage_structural.admit(obj), **typed}
        result = converted(webhook, obj, stored.api_version)
        converted(webhook, result, kind.api_version)  # what the writer will be shown, known before the write
        return result
    schema = builtin_schema(stored)
    return at_rest(schema, conform(schema, {**_TO_STORAGE[kind.api_version, kind.kind](obj), **typed}))


def _renamed(obj: JSON, names: dict[str, str]) -> JSON:
    return {names.get(key, key): value for key, value in obj.items()}


def _event_from_core(obj: JSON) -> JSON:
    return _renamed(obj, _CORE_NAMES)


def _event_to_core(obj: JSON) -> JSON:
    return _renamed(obj, _EVENT_NAMES)


def _autoscaler_from_v2(obj: JSON) -> JSON:
    """v1 knows one target, CPU utilisation; other metrics and the behaviour stay out of sight."""
    spec = {k: v for k, v in obj.get("spec", {}).items() if k not in {"metrics", "behavior"}}
    status = {k: v for k, v in obj.get("status", {}).items() if k not in {"currentMetrics", "conditions"}}
    for metric in obj.get("spec", {}).get("metrics") or ():
        target = metric.get("resource", {}).get("target", {})
        if (
            metric.get("type") == "Resource"
            and metric["resource"].get("name") == "cpu"
            and "averageUtilization" in target
        ):
            spec["targetCPUUtilizationPercentage"] = target["averageUtilization"]
    for metric in obj.get("status", {}).get("currentMetrics") or ():
        current = metric.get("resource", {}).get("current", {})
        if metric.get("type") == "Resource" and metric["resource"].get("name") == "cpu":
            status["currentCPUUtilizationPercentage"] = current.get("averageUtilization")
    return {**obj, "spec": spec, "status": status}


def _autoscaler_to_v2(obj: JSON) -> JSON:
    spec = dict(obj.get("spec", {}))
    status = dict(obj.get("status", {}))
    utilisation = spec.pop("targetCPUUtilizationPercentage", None)
    if utilisation is not None:
        target = {"type": "Utilization", "averageUtilization": utilisation}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    current = status.pop("currentCPUUtilizationPercentage", None)
    if current is not None:
        status["currentMetrics"] = [
            {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": current}}}
        ]
    return {**obj, "spec": spec, "status": status}


_FROM_STORAGE: dict[tuple[str, str], Callable[[JSON], JSON]] = {
    ("events.k8s.io/v1", "Event"): _event_from_core,
    ("autoscaling/v1", "HorizontalPodAutoscaler"): _autoscaler_from_v2,
}
_TO_STORAGE: dict[tuple[str, str], Callable[[JSON], JSON]] = {
    ("events.k8s.io/v1", "Event"): _event_to_core,
    ("autoscaling/v1", "HorizontalPodAutoscaler"): _autoscaler_to_v2,
}
