"""What the server accepts in a pod but warns about: things that work otherwise than their author thinks.

The real server has more of these, for volume types and annotations that went out of use years ago.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.errors import FormatError
from steersman.kube.quantities import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["pod_warnings"]

JSON = dict[str, Any]

# Where the kinds that make pods keep the template of them.
_TEMPLATES = {
    "pods": (),
    "podtemplates": ("template",),
    "replicationcontrollers": ("spec", "template"),
    "deployments.apps": ("spec", "template"),
    "replicasets.apps": ("spec", "template"),
    "statefulsets.apps": ("spec", "template"),
    "daemonsets.apps": ("spec", "template"),
    "jobs.batch": ("spec", "template"),
    "cronjobs.batch": ("spec", "jobTemplate", "spec", "template"),
}


def pod_warnings(resource: str, obj: JSON, old: JSON | None) -> list[str]:
    """Warnings for a new object, or for one whose spec has changed; a pod is warned about only when it is made."""
    path = _TEMPLATES.get(resource)
    if path is None:
        return []
    if old is not None and (not path or obj["metadata"].get("generation") == old["metadata"].get("generation")):
        return []
    template: Any = obj
    for part in path:
        template = template.get(part) or {}
    return list(_spec_warnings(template.get("spec") or {}, ".".join((*path, "spec"))))


def _spec_warnings(spec: JSON, path: str) -> Iterator[str]:
    yield from _twice(spec.get("hostAliases"), "ip", f"{path}.hostAliases")
    yield from _twice(spec.get("imagePullSecrets"), "name", f"{path}.imagePullSecrets")
    for at, secret in enumerate(spec.get("imagePullSecrets") or ()):
        if not secret.get("name"):
            yield f'{path}.imagePullSecrets[{at}].name: invalid empty name ""'
    containers = [
        (container, f"{path}.{group}[{at}]")
        for group in ("initContainers", "containers")
        for at, container in enumerate(spec.get(group) or ())
    ]
    for container, where in containers:
        yield from _fractions(container.get("resources") or {}, f"{where}.resources")
        yield from _hidden_variables(container.get("env") or [], f"{where}.env")
    ports = [
        (port, f"{where}.ports[{at}]")
        for container, where in containers
        for at, port in enumerate(container.get("ports") or ())
    ]
    yield from _clashing_ports(ports)
    yield from _clashing_names(ports)
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        text = "must be >= 0; negative values are invalid and will be treated as 1"
        yield f"{path}.terminationGracePeriodSeconds: {text}"


def _twice(items: list[JSON] | None, key: str, path: str) -> Iterator[str]:
    seen: set[str] = set()
    for at, item in enumerate(items or ()):
        value = item.get(key, "")
        if value in seen:
            yield f'{path}[{at}].{key}: duplicate {key} "{value}"'
        seen.add(value)


def _fractions(resources: JSON, path: str) -> Iterator[str]:
    for resource in ("memory", "ephemeral-storage"):
        for group in ("limits", "requests"):
            amount = (resources.get(group) or {}).get(resource)
            if amount is not None and _fractional(amount):
                where = f"{path}.{group}[{resource}]"
                yield f'{where}: fractional byte value "{amount}" is invalid, must be an integer'


def _fractional(amount: str) -> bool:
    try:
        return Quantity.parse(amount).nanos % 10**9 != 0
    except FormatError:
        return False  # refused elsewhere


def _hidden_variables(variables: list[JSON], path: str) -> Iterator[str]:
    seen: set[str] = set()
    for at, variable in enumerate(variables):
        name, value = variable["name"], variable.get("value", "")
        reference = f"$({name})"
        if name in seen and ("valueFrom" in variable or value == reference or reference not in value):
            yield f'{path}[{at}]: hides previous definition of "{name}", which may be dropped when using apply'
        seen.add(name)


def _clashing_ports(ports: list[tuple[JSON, str]]) -> Iterator[str]:
    seen: dict[tuple[int, str], list[tuple[JSON, str]]] = {}
    for port, where in ports:
        others = seen.setdefault((port["containerPort"], port.get("protocol", "TCP")), [])
        for other, place in others:
            mine, theirs = port.get("hostPort", 0), other.get("hostPort", 0)
            my_ip, their_ip = port.get("hostIP", ""), other.get("hostIP", "")
            if (my_ip, mine) == (their_ip, theirs):
                yield f"{where}: duplicate port definition with {place}"
            elif not mine or not theirs:
                yield f"{where}: overlapping port definition with {place}"
            elif mine == theirs and bool(my_ip) != bool(their_ip):
                yield f"{where}: dangerously ambiguous port definition with {place}"
        others.append((port, where))


def _clashing_names(ports: list[tuple[JSON, str]]) -> Iterator[str]:
    seen: dict[str, str] = {}
    for port, where in ports:
        name = port.get("name")
        if name and name in seen:
            first = seen[name]
            yield (
                f'{where}: duplicate port name "{name}" with {first}, services and probes that select ports by name '
                f"will use {first}"
            )
        elif name:
            seen[name] = where
