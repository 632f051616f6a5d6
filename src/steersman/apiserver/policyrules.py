"""The rules of roles, autoscalers and ingresses that people meet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver import causes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.apiserver.causes import Cause

__all__ = ["autoscaler_causes", "ingress_causes", "role_causes"]

JSON = dict[str, Any]
_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")


def role_causes(obj: JSON, _old: JSON | None) -> list[Cause]:
    """Why a Role or ClusterRole cannot be stored; one without a namespace may speak of paths."""
    namespaced = bool(obj["metadata"].get("namespace"))
    rules = enumerate(obj.get("rules") or ())
    return [cause for at, rule in rules for cause in _rule(rule, f"rules[{at}]", namespaced=namespaced)]


def _rule(rule: JSON, path: str, *, namespaced: bool) -> Iterator[Cause]:
    if not rule.get("verbs"):
        yield causes.required(f"{path}.verbs", "verbs must contain at least one value")
    if urls := rule.get("nonResourceURLs"):
        if namespaced:
            text = "namespaced rules cannot apply to non-resource URLs"
            yield causes.invalid(f"{path}.nonResourceURLs", urls, text)
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            text = "rules cannot apply to both regular resources and non-resource URLs"
            yield causes.invalid(f"{path}.nonResourceURLs", urls, text)
        return
    if not rule.get("apiGroups"):
        yield causes.required(f"{path}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        yield causes.required(f"{path}.resources", "resource rules must supply at least one resource")


def autoscaler_causes(obj: JSON, _old: JSON | None) -> list[Cause]:
    """Why a HorizontalPodAutoscaler cannot be stored."""
    spec = obj.get("spec") or {}
    return [*_bounds(spec), *_target(spec.get("scaleTargetRef") or {}, "spec.scaleTargetRef")]


def _bounds(spec: JSON) -> Iterator[Cause]:
    least, most = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    if least is not None and least < 1:
        yield causes.invalid("spec.minReplicas", least, "must be greater than or equal to 1")
    if most == 0:
        yield causes.required("spec.maxReplicas", "must be set and greater than 0")
    elif most < 0:
        yield causes.invalid("spec.maxReplicas", most, "must be greater than or equal to 1")
    if least is not None and most < least:
        yield causes.invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`")


def _target(reference: JSON, path: str) -> Iterator[Cause]:
    if not reference.get("kind"):
        yield causes.required(f"{path}.kind")
    if not reference.get("name"):
        yield causes.required(f"{path}.name")
    version = reference.get("apiVersion", "")
    if "/" not in version and (version != "v1" or reference.get("kind") != "ReplicationController"):
        yield causes.invalid(f"{path}.apiVersion", version, "apiVersion must specify API group")


def ingress_causes(obj: JSON, _old: JSON | None) -> list[Cause]:
    """Why an Ingress cannot be stored."""
    spec = obj.get("spec") or {}
    found: list[Cause] = []
    if not spec.get("rules") and not spec.get("defaultBackend"):
        text = "either `defaultBackend` or `rules` must be specified"
        found.append(causes.invalid("spec", spec.get("rules"), text))
    if backend := spec.get("defaultBackend"):
        found += _backend(backend, "spec.defaultBackend")
    for at, rule in enumerate(spec.get("rules") or ()):
        http = rule.get("http")
        if http is None:
            continue
        where = f"spec.rules[{at}].http.paths"
        if not http.get("paths"):
            found.append(causes.required(where))
        for index, path in enumerate(http.get("paths") or ()):
            found += _path(path, f"{where}[{index}]")
    return found


def _path(path: JSON, where: str) -> Iterator[Cause]:
    kind, text = path.get("pathType"), path.get("path", "")
    if kind is None:
        yield causes.required(f"{where}.pathType", "pathType must be specified")
    elif kind not in _PATH_TYPES:
        yield causes.not_supported(f"{where}.pathType", kind, _PATH_TYPES)
    elif (kind != "ImplementationSpecific" or text) and not text.startswith("/"):
        yield causes.invalid(f"{where}.path", text, "must be an absolute path")
    yield from _backend(path.get("backend") or {}, f"{where}.backend")


def _backend(backend: JSON, where: str) -> Iterator[Cause]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        yield causes.invalid(where, "", "cannot set both resource and service backends")
    elif service is not None:
        if not service.get("name"):
            yield causes.required(f"{where}.service.name")
        port = service.get("port") or {}
        if port.get("name") and port.get("number"):
            yield causes.invalid(where, "", "cannot set both port name & port number")
        elif not port.get("name") and not port.get("number"):
            yield causes.required(where, "port name or number is required")
    elif resource is None:
        yield causes.required(where, "resource or service backend is required")
