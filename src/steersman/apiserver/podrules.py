"""The rules of pods and pod templates that people meet: containers, ports, variables, volumes and their mounts.

Objects come here with their defaults, so what has a default is only checked when it has a wrong value. The real server
knows many more rules (security contexts, affinity, sources of volumes); those are taken as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver import causes
from steersman.apiserver.metadata import annotation_causes, label_causes
from steersman.apiserver.names import (
    is_config_key,
    is_dns1123_label,
    is_dns1123_subdomain,
    is_env_name,
    is_port_name,
    is_port_number,
    range_text,
)
from steersman.errors import FormatError
from steersman.kube.quantities import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.apiserver.causes import Cause

__all__ = ["pod_causes", "pod_spec_causes", "pod_template_causes", "pod_update_causes"]

JSON = dict[str, Any]

PROTOCOLS = ("SCTP", "TCP", "UDP")
_CHOICES = {
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "dnsPolicy": ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"),
}
_NAMES = {
    "serviceAccountName": is_dns1123_subdomain,
    "nodeName": is_dns1123_subdomain,
    "hostname": is_dns1123_label,
    "subdomain": is_dns1123_label,
    "priorityClassName": is_dns1123_subdomain,
}
_UPDATABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be "
    "set to 1 if it was previously negative)"
)


def pod_causes(obj: JSON) -> list[Cause]:
    """Why a pod cannot be stored."""
    return list(pod_spec_causes(obj.get("spec") or {}, "spec"))


def pod_template_causes(template: JSON, path: str) -> list[Cause]:
    """Why a template cannot make pods."""
    metadata = template.get("metadata") or {}
    found = label_causes(metadata.get("labels"), f"{path}.labels")
    found += annotation_causes(metadata.get("annotations") or {}, f"{path}.annotations")
    return [*found, *pod_spec_causes(template.get("spec") or {}, f"{path}.spec")]


def pod_spec_causes(spec: JSON, path: str) -> Iterator[Cause]:
    """Why a pod spec cannot run."""
    volumes, found = _volumes(spec.get("volumes") or [], f"{path}.volumes")
    yield from found
    if not (containers := spec.get("containers")):
        yield causes.required(f"{path}.containers")
    taken: set[str] = set()
    for kind, group in (("containers", containers or []), ("initContainers", spec.get("initContainers") or [])):
        for at, container in enumerate(group):
            where = f"{path}.{kind}[{at}]"
            yield from _container(container, where, volumes)
            name = container.get("name", "")
            if name in taken:
                yield causes.duplicate(f"{where}.name", name)
            taken.add(name)
            if kind == "initContainers" and container.get("restartPolicy") != "Always":
                yield from _runs_once(container, where)
    for field, allowed in _CHOICES.items():
        if (value := spec.get(field)) and value not in allowed:
            yield causes.not_supported(f"{path}.{field}", value, allowed)
    yield from label_causes(spec.get("nodeSelector"), f"{path}.nodeSelector")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        yield causes.invalid(f"{path}.activeDeadlineSeconds", deadline, range_text(1, 2**31 - 1))
    for field, rule in _NAMES.items():
        if value := spec.get(field):
            yield from (causes.invalid(f"{path}.{field}", value, text) for text in rule(value))


def _runs_once(container: JSON, path: str) -> Iterator[Cause]:
    """An init container that runs to its end is not probed."""
    for field in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
        if field in container:
            yield causes.forbidden(f"{path}.{field}", "may not be set for init containers without restartPolicy=Always")


def _volumes(volumes: list[JSON], path: str) -> tuple[set[str], list[Cause]]:
    """The names that can be mounted, and what is wrong with the volumes."""
    names: set[str] = set()
    found: list[Cause] = []
    for at, volume in enumerate(volumes):
        name, where = volume.get("name", ""), f"{path}[{at}].name"
        wrong: list[Cause] = []
        if len([key for key in volume if key != "name"]) > 1:
            kinds = sorted(key for key in volume if key != "name")
            text = "may not specify more than 1 volume type"
            wrong += [causes.forbidden(f"{path}[{at}].{key}", text) for key in kinds[1:]]
        if not name:
            wrong.append(causes.required(where))
        else:
            wrong += [causes.invalid(where, name, text) for text in is_dns1123_label(name)]
        if name in names:
            wrong.append(causes.duplicate(where, name))
        if not wrong:
            names.add(name)
        found += wrong
    return names, found


def _container(container: JSON, path: str, volumes: set[str]) -> Iterator[Cause]:
    name = container.get("name", "")
    if not name:
        yield causes.required(f"{path}.name")
    else:
        yield from (causes.invalid(f"{path}.name", name, text) for text in is_dns1123_label(name))
    if not container.get("image"):
        yield causes.required(f"{path}.image")
    policy = container.get("terminationMessagePolicy")
    if policy and policy not in {"File", "FallbackToLogsOnError"}:
        yield causes.not_supported(f"{path}.terminationMessagePolicy", policy, ("File", "FallbackToLogsOnError"))
    yield from _ports(container.get("ports") or [], f"{path}.ports")
    for at, variable in enumerate(container.get("env") or ()):
        yield from _variable(variable, f"{path}.env[{at}]")
    yield from _mounts(container.get("volumeMounts") or [], f"{path}.volumeMounts", volumes)
    pull = container.get("imagePullPolicy")
    if pull and pull not in {"Always", "IfNotPresent", "Never"}:
        yield causes.not_supported(f"{path}.imagePullPolicy", pull, ("Always", "IfNotPresent", "Never"))
    yield from _resources(container.get("resources") or {}, f"{path}.resources")


def _ports(ports: list[JSON], path: str) -> Iterator[Cause]:
    names: set[str] = set()
    for at, port in enumerate(ports):
        where = f"{path}[{at}]"
        if name := port.get("name"):
            complaints = is_port_name(name)
            yield from (causes.invalid(f"{where}.name", name, text) for text in complaints)
            if not complaints and name in names:
                yield causes.duplicate(f"{where}.name", name)
            names.add(name)
        number = port.get("containerPort", 0)
        if number == 0:
            yield causes.required(f"{where}.containerPort")
        else:
            yield from (causes.invalid(f"{where}.containerPort", number, text) for text in is_port_number(number))
        if host := port.get("hostPort", 0):
            yield from (causes.invalid(f"{where}.hostPort", host, text) for text in is_port_number(host))
        if (protocol := port.get("protocol")) and protocol not in PROTOCOLS:
            yield causes.not_supported(f"{where}.protocol", protocol, PROTOCOLS)


def _variable(variable: JSON, path: str) -> Iterator[Cause]:
    if not (name := variable.get("name")):
        yield causes.required(f"{path}.name")
    else:
        yield from (causes.invalid(f"{path}.name", name, text) for text in is_env_name(name))
    source = variable.get("valueFrom")
    if source is None:
        return
    given = [
        key
        for key in ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
        if source.get(key)
    ]
    if not given:
        text = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        yield causes.invalid(f"{path}.valueFrom", "", text)
    elif variable.get("value"):
        yield causes.invalid(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")
    elif len(given) > 1:
        yield causes.invalid(f"{path}.valueFrom", "", "may not have more than one field specified at a time")
    for key in ("configMapKeyRef", "secretKeyRef"):
        if (reference := source.get(key)) is not None:
            yield from _key_reference(reference, f"{path}.valueFrom.{key}")


def _key_reference(reference: JSON, path: str) -> Iterator[Cause]:
    name, key = reference.get("name", ""), reference.get("key", "")
    yield from (causes.invalid(f"{path}.name", name, text) for text in is_dns1123_subdomain(name))
    if not key:
        yield causes.required(f"{path}.key")
    else:
        yield from (causes.invalid(f"{path}.key", key, text) for text in is_config_key(key))


def _mounts(mounts: list[JSON], path: str, volumes: set[str]) -> Iterator[Cause]:
    used: set[str] = set()
    for at, mount in enumerate(mounts):
        name, target = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            yield causes.required(f"{path}[{at}].name")
        if name not in volumes:
            yield causes.not_found(f"{path}[{at}].name", name)
        if not target:
            yield causes.required(f"{path}[{at}].mountPath")
        if target in used:
            yield causes.invalid(f"{path}[{at}].mountPath", target, "must be unique")
        used.add(target)


def _resources(resources: JSON, path: str) -> Iterator[Cause]:
    """Requests stay within limits; amounts are not negative."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            quantity = _quantity(amount)
            if quantity is not None and quantity < _ZERO:
                yield causes.invalid(f"{path}.{kind}[{name}]", str(amount), "must be greater than or equal to 0")
    for name, amount in requests.items():
        wanted, most = _quantity(amount), _quantity(limits.get(name))
        if wanted is not None and most is not None and wanted > most:
            text = f"must be less than or equal to {name} limit of {most}"
            yield causes.invalid(f"{path}.requests", str(wanted), text)


_ZERO = Quantity.parse("0")


def _quantity(amount: Any) -> Quantity | None:
    try:
        return None if amount is None else Quantity.parse(amount)
    except FormatError:
        return None


def pod_update_causes(obj: JSON, old: JSON) -> list[Cause]:
    """What may not change in a pod: almost everything. The real server appends a diff of its Go types; we do not."""
    new, before = obj.get("spec") or {}, old.get("spec") or {}
    found: list[Cause] = []
    for kind in ("containers", "initContainers"):
        if len(new.get(kind) or ()) != len(before.get(kind) or ()):
            return [causes.forbidden(f"spec.{kind}", "pod updates may not add or remove containers")]
    masked = dict(new)
    for kind in ("containers", "initContainers"):
        pairs = zip(new.get(kind) or (), before.get(kind) or (), strict=True)
        if kind in new:
            masked[kind] = [{**container, "image": was.get("image")} for container, was in pairs]
    for field in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        masked.pop(field, None)
        if field in before:
            masked[field] = before[field]
    if masked != before:
        found.append(causes.forbidden("spec", f"pod updates may not change fields other than {_UPDATABLE}"))
    return found
