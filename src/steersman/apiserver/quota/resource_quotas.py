"""ResourceQuotas: what objects use, which quotas count them, and whether one more is too many. Pure.

Every object counts as `count/RESOURCE.GROUP`; some core kinds also count under older names. Pods that have ended use
nothing but their count. A quota with scopes counts only the pods in all of its scopes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from steersman.apiserver.quota.pod_resources import Amounts, amounts, pod_resources
from steersman.kube.api.quantities import Quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Set

JSON = dict[str, Any]
_ONE: Final = Quantity.parse("1")
_COUNTED_BY_NAME: Final = frozenset(
    ("configmaps", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas", "secrets", "services")
)
_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
_REQUIRED: Final = frozenset(  # a quota on these needs containers that say how much
    ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
)
_STORAGE_CLASS: Final = ".storageclass.storage.k8s.io/"


def _resource_of(name: str) -> str:
    """The resource whose objects use up what a quota calls `name`."""
    if name.startswith("count/"):
        return name.removeprefix("count/")
    if name.startswith("services."):
        return "services"
    if name in _COUNTED_BY_NAME:
        return name
    if name == "requests.storage" or _STORAGE_CLASS in name:
        return "persistentvolumeclaims"
    return "pods"


def counts_resource(quota: JSON, resource: str) -> bool:
    """Whether a quota limits anything that objects of a qualified resource use."""
    return any(_resource_of(name) == resource for name in quota["spec"].get("hard") or ())


def _usage(resource: str, obj: JSON) -> Amounts:
    """What one object uses of everything a quota can limit. `resource` is qualified: `deployments.apps`."""
    found = {f"count/{resource}": _ONE}
    if resource in _COUNTED_BY_NAME:
        found[resource] = _ONE
    match resource:
        case "pods":
            found |= _pod_usage(obj)
        case "services":
            found |= _service_usage(obj["spec"])
        case "persistentvolumeclaims":
            found |= _claim_usage(obj["spec"])
    return found


def _pod_usage(pod: JSON) -> Amounts:
    if (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
        return {}
    return {"pods": _ONE, **_compute(pod_resources(pod["spec"], "requests"), pod_resources(pod["spec"], "limits"))}


def _compute(requests: Amounts, limits: Amounts) -> Amounts:
    found: Amounts = {}
    for name, amount in requests.items():
        if name in _COMPUTE or name.startswith("hugepages-"):
            found[name] = amount
        found[f"requests.{name}"] = amount
    return found | {f"limits.{name}": limits[name] for name in _COMPUTE if name in limits}


def _service_usage(spec: JSON) -> Amounts:
    ports = _ONE * len(spec.get("ports") or ())
    match spec.get("type"):
        case "NodePort":
            return {"services.nodeports": ports}
        case "LoadBalancer":
            allocated = spec.get("allocateLoadBalancerNodePorts", True)
            return {"services.loadbalancers": _ONE, **({"services.nodeports": ports} if allocated else {})}
    return {}


def _claim_usage(spec: JSON) -> Amounts:
    requested = amounts((spec.get("resources") or {}).get("requests")).get("storage")
    stored = {"requests.storage": requested} if requested is not None else {}
    if not (name := spec.get("storageClassName")):
        return stored
    prefix = f"{name}{_STORAGE_CLASS}"
    return {**stored, f"{prefix}persistentvolumeclaims": _ONE, **{prefix + key: value for key, value in stored.items()}}


def _counts(quota: JSON, resource: str, obj: JSON) -> bool:
    """Whether an object is in all scopes of a quota."""
    spec = quota["spec"]
    scopes = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
    scopes += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return all(resource == "pods" and _in_scope(scope, obj) for scope in scopes)


def _in_scope(scope: JSON, pod: JSON) -> bool:
    spec = pod["spec"]
    match scope["scopeName"]:
        case "Terminating":
            return spec.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return spec.get("activeDeadlineSeconds") is None
        case "BestEffort":
            return bool(pod["status"].get("qosClass") == "BestEffort")
        case "NotBestEffort":
            return bool(pod["status"].get("qosClass") != "BestEffort")
        case "PriorityClass":
            return _has_priority(scope, spec.get("priorityClassName"))
        case "CrossNamespacePodAffinity":
            return any(_crosses(spec.get("affinity") or {}, kind) for kind in ("podAffinity", "podAntiAffinity"))
    return False


def _has_priority(scope: JSON, name: str | None) -> bool:
    match scope["operator"]:
        case "In":
            return name in scope["values"]
        case "NotIn":
            return name not in scope["values"]
        case "DoesNotExist":
            return not name
    return bool(name)


def _crosses(affinity: JSON, kind: str) -> bool:
    terms = affinity.get(kind) or {}
    required = terms.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    preferred = terms.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    rows: Iterable[JSON] = [*required, *(row["podAffinityTerm"] for row in preferred)]
    return any(row.get("namespaces") or row.get("namespaceSelector") is not None for row in rows)


def namespace_usage(quota: JSON, objects: Callable[[str], Iterable[JSON]]) -> Amounts:
    """What a namespace uses of everything a quota limits; `objects` are those of a qualified resource in it."""
    used = dict.fromkeys(quota["spec"].get("hard") or (), Quantity.ZERO)
    for resource in {_resource_of(name): None for name in used}:
        for obj in objects(resource):
            for name, amount in object_usage(quota, resource, obj).items():
                used[name] = used[name] + amount
    return used


def object_usage(quota: JSON, resource: str, obj: JSON) -> Amounts:
    """What one object uses of everything a quota limits."""
    hard = quota["spec"].get("hard") or {}
    if not counts_resource(quota, resource) or not _counts(quota, resource, obj):
        return {}
    return {name: amount for name, amount in _usage(resource, obj).items() if name in hard}


def quota_problem(quota: JSON, usage: Callable[[], Amounts], resource: str, obj: JSON, old: JSON | None) -> str | None:
    """Why a quota does not admit an object over what `usage` counts, asked only if it matters; None when it does."""
    name, hard = quota["metadata"]["name"], amounts(quota["spec"].get("hard"))
    concerned = {limited for limited in hard if _resource_of(limited) == resource}
    if not concerned or not _counts(quota, resource, obj):
        return None
    if resource == "pods" and old is None and (missing := _unspecified(obj["spec"], concerned & _REQUIRED)):
        return f"failed quota: {name}: must specify {missing}"
    before = _usage(resource, old) if old is not None and _counts(quota, resource, old) else {}
    wanted = {key: value for key, value in _usage(resource, obj).items() if key in concerned}
    more = {key: value - before[key] if key in before else value for key, value in wanted.items()}
    if not any(value > Quantity.ZERO for value in more.values()):
        return None
    used = usage()
    over = sorted(key for key, value in more.items() if value > Quantity.ZERO and used[key] + value > hard[key])
    if not over:
        return None
    said = [f"exceeded quota: {name}"]
    for word, values in (("requested", more), ("used", used), ("limited", hard)):
        listed = ",".join(f"{key}={values[key].canonical}" for key in over)
        said.append(f"{word}: {listed}")
    return ", ".join(said)


def _unspecified(spec: JSON, required: Set[str]) -> str:
    """Which of these resources containers do not ask for, as the real server says it."""
    if spec.get("resources"):
        return ""
    lacking: dict[str, list[str]] = {}
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        resources = container.get("resources") or {}
        given = _compute(amounts(resources.get("requests")), amounts(resources.get("limits")))
        for name in required - given.keys():
            lacking.setdefault(name, []).append(container["name"])
    return "; ".join(f"{name} for: {','.join(sorted(lacking[name]))}" for name in sorted(lacking))
