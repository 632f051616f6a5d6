"""LimitRanges: defaults for containers, and bounds for containers, pods and claims. Pure.

Bounds are checked in the order of the LimitRange, and every violation of one LimitRange is reported together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver.quota.pod_resources import Amounts, amounts, pod_resources

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from steersman.kube.api.quantities import Quantity

JSON = dict[str, Any]
ANNOTATION = "kubernetes.io/limit-ranger"
_CONTAINERS = (("containers", "container"), ("initContainers", "init container"))


def with_default_limits(limit_range: JSON, pod: JSON) -> JSON:
    """The pod, with the default requests and limits of a LimitRange where containers name none."""
    limits: JSON = {}
    requests: JSON = {}
    for item in limit_range["spec"].get("limits") or ():
        if item["type"] == "Container":
            limits |= item.get("default") or {}
            requests |= item.get("defaultRequest") or {}
    spec, notes = dict(pod["spec"]), []
    for group, called in _CONTAINERS:
        if not spec.get(group):
            continue
        filled = []
        for container in spec[group]:
            resources = dict(container.get("resources") or {})
            for field, defaults, word in (("requests", requests, "request"), ("limits", limits, "limit")):
                given = resources.get(field) or {}
                if added := sorted(defaults.keys() - given.keys()):
                    resources[field] = {**given, **{name: defaults[name] for name in added}}
                    notes.append(f"{', '.join(added)} {word} for {called} {container['name']}")
            filled.append({**container, "resources": resources} if resources else container)
        spec[group] = filled
    if not notes:
        return pod
    metadata = pod["metadata"]
    annotations = {**(metadata.get("annotations") or {}), ANNOTATION: f"LimitRanger plugin set: {'; '.join(notes)}"}
    return {**pod, "metadata": {**metadata, "annotations": annotations}, "spec": spec}


def limit_violations(limit_range: JSON, resource: str, obj: JSON) -> list[str]:
    """What a pod or a claim asks for beyond the bounds of a LimitRange."""
    found: list[str] = []
    for item in limit_range["spec"].get("limits") or ():
        for requests, limits in _bounded(item["type"], resource, obj):
            found += _outside(item, requests, limits)
    return found


def _bounded(type_: str, resource: str, obj: JSON) -> Iterator[tuple[Amounts, Amounts | None]]:
    """What bounds of a type apply to: requests and limits, or requests only."""
    spec = obj["spec"]
    match resource, type_:
        case "pods", "Container":
            for group, _ in _CONTAINERS:
                for container in spec.get(group) or ():
                    resources = container.get("resources") or {}
                    yield amounts(resources.get("requests")), amounts(resources.get("limits"))
        case "pods", "Pod":
            requests = pod_resources(spec, "requests", overhead=False)
            yield requests, pod_resources(spec, "limits", overhead=False)
        case "persistentvolumeclaims", "PersistentVolumeClaim":
            yield amounts((spec.get("resources") or {}).get("requests")), None


def _outside(item: JSON, requests: Amounts, limits: Amounts | None) -> Iterable[str]:
    type_ = item["type"]
    for name, least in amounts(item.get("min")).items():
        bound = f"minimum {name} usage per {type_} is {least}"
        yield from _below(bound, least, requests.get(name), (limits or {}).get(name))
    for name, most in amounts(item.get("max")).items():
        bound = f"maximum {name} usage per {type_} is {most}"
        if limits is None:
            yield from _above(bound, most, "request", requests.get(name), None)
        else:
            yield from _above(bound, most, "limit", limits.get(name), requests.get(name))
    for name, most in amounts(item.get("maxLimitRequestRatio")).items():
        bound = f"{name} max limit to request ratio per {type_} is {most}"
        yield from _ratio(bound, most, requests.get(name), (limits or {}).get(name))


def _below(bound: str, least: Quantity, request: Quantity | None, limit: Quantity | None) -> Iterator[str]:
    if request is None:
        yield f"{bound}.  No request is specified"
    elif request < least:
        yield f"{bound}, but request is {request}"
    elif limit is not None and limit < least:
        yield f"{bound}, but limit is {limit}"


def _above(bound: str, most: Quantity, word: str, checked: Quantity | None, request: Quantity | None) -> Iterator[str]:
    if checked is None:
        yield f"{bound}.  No {word} is specified"
    elif checked > most:
        yield f"{bound}, but {word} is {checked}"
    elif request is not None and request > most:
        yield f"{bound}, but request is {request}"


def _ratio(bound: str, most: Quantity, request: Quantity | None, limit: Quantity | None) -> Iterator[str]:
    if not request:
        yield f"{bound}, but no request is specified or request is 0"
    elif not limit:
        yield f"{bound}, but no limit is specified or limit is 0"
    elif (ratio := float(limit) / float(request)) > float(most):
        yield f"{bound}, but provided ratio is {ratio:f}"
