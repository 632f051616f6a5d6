"""The rules of pods and pod templates that people meet: containers, ports, variables, volumes and their mounts.

Objects come here with their defaults, so what has a default is only checked when it has a wrong value. The real server
knows many more rules (security contexts, affinity, sources of volumes); those are taken as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver.validation import field_errors
from steersman.apiserver.validation.handler_rules import handler_causes
from steersman.apiserver.validation.metadata_rules import annotation_causes, label_causes
from steersman.apiserver.validation.names import (
    is_config_key,
    is_dns1123_label,
    is_dns1123_subdomain,
    is_env_name,
    is_port_name,
    is_port_number,
    range_text,
)
from steersman.apiserver.validation.scheduling_rules import (
    gate_causes,
    scheduling_update_causes,
    toleration_causes,
)
from steersman.apiserver.validation.volume_rules import source_causes
from steersman.errors import FormatError
from steersman.kube.api.quantities import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.kube.api.errors import Cause

JSON = dict[str, Any]

_NAMES = {
    "serviceAccountName": is_dns1123_subdomain,
    "nodeName": is_dns1123_subdomain,
    "hostname": is_dns1123_label,
    "subdomain": is_dns1123_label,
    "priorityClassName": is_dns1123_subdomain,
}
_NOT_EPHEMERAL = ("lifecycle", "livenessProbe", "ports", "readinessProbe", "resources", "startupProbe", "resizePolicy")
_UPDATABLE = "images of containers, activeDeadlineSeconds, tolerations (additions) and terminationGracePeriodSeconds"


def pod_causes(obj: JSON, old: JSON | None) -> list[Cause]:
    """Why a pod cannot be stored."""
    spec = obj.get("spec") or {}
    found = list(pod_spec_causes(spec, "spec"))
    if old is not None:
        found += _update_causes(obj, old)
        return found
    if spec.get("nodeName") and spec.get("schedulingGates"):
        text = "cannot be set until all schedulingGates have been cleared"
        found.append(field_errors.forbidden("spec.nodeName", text))
    if spec.get("ephemeralContainers"):
        found.append(field_errors.forbidden("spec.ephemeralContainers", "cannot be set on create"))
    return found


def pod_template_causes(template: JSON, path: str) -> list[Cause]:
    """Why a template cannot make pods."""
    metadata = template.get("metadata") or {}
    found = label_causes(metadata.get("labels"), f"{path}.labels")
    found += annotation_causes(metadata.get("annotations") or {}, f"{path}.annotations")
    spec = template.get("spec") or {}
    if spec.get("ephemeralContainers"):
        text = "ephemeral containers not allowed in pod template"
        found.append(field_errors.forbidden(f"{path}.spec.ephemeralContainers", text))
    return [*found, *pod_spec_causes(spec, f"{path}.spec")]


def pod_spec_causes(spec: JSON, path: str) -> Iterator[Cause]:
    """Why a pod spec cannot run."""
    volumes, found = _volumes(spec.get("volumes") or [], f"{path}.volumes")
    yield from found
    if not (containers := spec.get("containers")):
        yield field_errors.required(f"{path}.containers")
    grace = spec.get("terminationGracePeriodSeconds") or 0
    taken: set[str] = set()
    for kind, group in (("containers", containers or []), ("initContainers", spec.get("initContainers") or [])):
        for at, container in enumerate(group):
            where = f"{path}.{kind}[{at}]"
            yield from _container(container, where, volumes)
            name = container.get("name", "")
            if name in taken:
                yield field_errors.duplicate(f"{where}.name", name)
            taken.add(name)
            if kind == "initContainers" and container.get("restartPolicy") != "Always":
                yield from _runs_once(container, where)
            else:
                yield from handler_causes(container, where, grace)
    yield from _ephemeral_containers(spec, f"{path}.ephemeralContainers", volumes, taken)
    yield from field_errors.enum_causes(spec, "core.v1.PodSpec", path, "restartPolicy", "dnsPolicy")
    yield from label_causes(spec.get("nodeSelector"), f"{path}.nodeSelector")
    yield from toleration_causes(spec.get("tolerations") or [], f"{path}.tolerations")
    yield from gate_causes(spec.get("schedulingGates") or [], f"{path}.schedulingGates")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        yield field_errors.invalid(f"{path}.activeDeadlineSeconds", deadline, range_text(1, 2**31 - 1))
    for field, rule in _NAMES.items():
        if value := spec.get(field):
            yield from (field_errors.invalid(f"{path}.{field}", value, text) for text in rule(value))


def _ephemeral_containers(spec: JSON, path: str, volumes: set[str], taken: set[str]) -> Iterator[Cause]:
    """They run beside the others, for a person who looks for an error: without ports, probes and resources."""
    others = set(taken)
    for at, container in enumerate(spec.get("ephemeralContainers") or ()):
        where, name, target = f"{path}[{at}]", container.get("name", ""), container.get("targetContainerName")
        yield from _container(container, where, volumes)
        if name in taken:
            yield field_errors.duplicate(f"{where}.name", name)
        taken.add(name)
        if target and target not in others:
            yield field_errors.not_found(f"{where}.targetContainerName", target)
        for field in _NOT_EPHEMERAL:
            if container.get(field):
                yield field_errors.forbidden(f"{where}.{field}", "cannot be set for an Ephemeral Container")


def _runs_once(container: JSON, path: str) -> Iterator[Cause]:
    """An init container that runs to its end is not probed."""
    for field in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
        if field in container:
            yield field_errors.forbidden(
                f"{path}.{field}", "may not be set for init containers without restartPolicy=Always"
            )


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
            wrong += [field_errors.forbidden(f"{path}[{at}].{key}", text) for key in kinds[1:]]
        else:
            for kind in volume.keys() - {"name"}:
                wrong += source_causes(kind, volume[kind], f"{path}[{at}].{kind}")
        if not name:
            wrong.append(field_errors.required(where))
        else:
            wrong += [field_errors.invalid(where, name, text) for text in is_dns1123_label(name)]
        if name in names:
            wrong.append(field_errors.duplicate(where, name))
        if not wrong:
            names.add(name)
        found += wrong
    return names, found


def _container(container: JSON, path: str, volumes: set[str]) -> Iterator[Cause]:
    name = container.get("name", "")
    if not name:
        yield field_errors.required(f"{path}.name")
    else:
        yield from (field_errors.invalid(f"{path}.name", name, text) for text in is_dns1123_label(name))
    if not container.get("image"):
        yield field_errors.required(f"{path}.image")
    choices = ("terminationMessagePolicy", "imagePullPolicy")
    yield from field_errors.enum_causes(container, "core.v1.Container", path, *choices)
    yield from _ports(container.get("ports") or [], f"{path}.ports")
    for at, variable in enumerate(container.get("env") or ()):
        yield from _variable(variable, f"{path}.env[{at}]")
    for at, source in enumerate(container.get("envFrom") or ()):
        yield from _variables(source, f"{path}.envFrom", at)
    yield from _mounts(container.get("volumeMounts") or [], f"{path}.volumeMounts", volumes)
    yield from _resources(container.get("resources") or {}, f"{path}.resources")


def _ports(ports: list[JSON], path: str) -> Iterator[Cause]:
    names: set[str] = set()
    for at, port in enumerate(ports):
        where = f"{path}[{at}]"
        if name := port.get("name"):
            complaints = is_port_name(name)
            yield from (field_errors.invalid(f"{where}.name", name, text) for text in complaints)
            if not complaints and name in names:
                yield field_errors.duplicate(f"{where}.name", name)
            names.add(name)
        number = port.get("containerPort", 0)
        if number == 0:
            yield field_errors.required(f"{where}.containerPort")
        else:
            yield from (field_errors.invalid(f"{where}.containerPort", number, text) for text in is_port_number(number))
        if host := port.get("hostPort", 0):
            yield from (field_errors.invalid(f"{where}.hostPort", host, text) for text in is_port_number(host))
        yield from field_errors.enum_causes(port, "core.v1.ContainerPort", where, "protocol")


def _variable(variable: JSON, path: str) -> Iterator[Cause]:
    if not (name := variable.get("name")):
        yield field_errors.required(f"{path}.name")
    else:
        yield from (field_errors.invalid(f"{path}.name", name, text) for text in is_env_name(name))
    source = variable.get("valueFrom")
    if source is None:
        return
    given = [
        key
        for key in ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
        if source.get(key) is not None
    ]
    if not given:
        text = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        yield field_errors.invalid(f"{path}.valueFrom", "", text)
    elif variable.get("value"):
        yield field_errors.invalid(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")
    elif len(given) > 1:
        yield field_errors.invalid(f"{path}.valueFrom", "", "may not have more than one field specified at a time")
    if (reference := source.get("fieldRef")) is not None and not reference.get("fieldPath"):
        yield field_errors.required(f"{path}.valueFrom.fieldRef.fieldPath")
    if (reference := source.get("resourceFieldRef")) is not None and not reference.get("resource"):
        yield field_errors.required(f"{path}.valueFrom.resourceFieldRef.resource")
    for key in ("configMapKeyRef", "secretKeyRef"):
        if (reference := source.get(key)) is not None:
            yield from _key_reference(reference, f"{path}.valueFrom.{key}")


def _variables(source: JSON, path: str, at: int) -> Iterator[Cause]:
    given = [kind for kind in ("configMapRef", "secretRef") if source.get(kind) is not None]
    if len(given) != 1:
        yield field_errors.invalid(path, "", "must specify exactly one of: `configMapRef` or `secretRef`")
    elif not source[given[0]].get("name"):
        yield field_errors.required(f"{path}[{at}].{given[0]}.name")


def _key_reference(reference: JSON, path: str) -> Iterator[Cause]:
    name, key = reference.get("name", ""), reference.get("key", "")
    yield from (field_errors.invalid(f"{path}.name", name, text) for text in is_dns1123_subdomain(name))
    if not key:
        yield field_errors.required(f"{path}.key")
    else:
        yield from (field_errors.invalid(f"{path}.key", key, text) for text in is_config_key(key))


def _mounts(mounts: list[JSON], path: str, volumes: set[str]) -> Iterator[Cause]:
    used: set[str] = set()
    for at, mount in enumerate(mounts):
        name, target = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            yield field_errors.required(f"{path}[{at}].name")
        if name not in volumes:
            yield field_errors.not_found(f"{path}[{at}].name", name)
        if not target:
            yield field_errors.required(f"{path}[{at}].mountPath")
        if target in used:
            yield field_errors.invalid(f"{path}[{at}].mountPath", target, "must be unique")
        used.add(target)


def _resources(resources: JSON, path: str) -> Iterator[Cause]:
    """Requests stay within limits; amounts are not negative."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            quantity = _quantity(amount)
            if quantity is not None and quantity < _ZERO:
                yield field_errors.invalid(f"{path}.{kind}[{name}]", str(amount), "must be greater than or equal to 0")
    for name, amount in requests.items():
        wanted, most = _quantity(amount), _quantity(limits.get(name))
        if wanted is not None and most is not None and wanted > most:
            text = f"must be less than or equal to {name} limit of {most}"
            yield field_errors.invalid(f"{path}.requests", str(wanted), text)


_ZERO = Quantity.parse("0")


def _quantity(amount: Any) -> Quantity | None:
    try:
        return None if amount is None else Quantity.parse(amount)
    except FormatError:
        return None


def _update_causes(obj: JSON, old: JSON) -> list[Cause]:
    """What may not change in a pod: almost everything."""
    new, before = obj.get("spec") or {}, old.get("spec") or {}
    found: list[Cause] = []
    for kind in ("containers", "initContainers"):
        if len(new.get(kind) or ()) != len(before.get(kind) or ()):
            return [field_errors.forbidden(f"spec.{kind}", "pod updates may not add or remove containers")]
    masked = dict(new)
    for kind in ("containers", "initContainers"):
        pairs = zip(new.get(kind) or (), before.get(kind) or (), strict=True)
        if kind in new:
            masked[kind] = [{**container, "image": was.get("image")} for container, was in pairs]
    open_fields = ["activeDeadlineSeconds", "tolerations", "schedulingGates"]
    open_fields += ["nodeSelector"] if before.get("schedulingGates") else []  # where it may go is still open
    for field in open_fields:
        masked.pop(field, None)
        if field in before:
            masked[field] = before[field]
    found += scheduling_update_causes(new, before)
    if masked != before:
        found.append(field_errors.forbidden("spec", f"pod updates may not change fields other than {_UPDATABLE}"))
    return found


def ephemeral_causes(obj: JSON, old: JSON) -> list[Cause]:
    """Ephemeral containers are only ever added."""
    path = "spec.ephemeralContainers"
    wanted = {container.get("name"): container for container in obj["spec"].get("ephemeralContainers") or ()}
    found = list(pod_spec_causes(obj["spec"], "spec"))
    for container in old["spec"].get("ephemeralContainers") or ():
        if (new := wanted.get(container["name"])) != container:
            verb = "removed" if new is None else "changed"
            text = f'existing ephemeral containers "{container["name"]}" may not be {verb}'
            found.append(field_errors.forbidden(path, text))
    return found


def resize_causes(obj: JSON, old: JSON) -> list[Cause]:
    """CPU and memory of a pod may change, as long as nothing is removed and its quality of service stays."""
    spec, before = obj["spec"], old["spec"]
    found = list(pod_spec_causes(spec, "spec"))
    status = old.get("status") or {}
    quality = status.get("qosClass") or quality_of_service(before)
    if quality_of_service(spec) != quality:
        text = "Pod QOS Class may not change as a result of resizing"
        found.append(field_errors.invalid("spec", quality, text))
    running = [
        item for item in (old.get("status") or {}).get("containerStatuses") or () if item["state"].get("running")
    ]
    if running and running[0].get("resources") is None:
        found.append(field_errors.forbidden("spec", "Pod running on node without support for resize"))
    others = False
    for kind in ("containers", "initContainers"):
        for at, (new, was) in enumerate(zip(spec.get(kind) or (), before.get(kind) or (), strict=True)):
            for part in ("requests", "limits"):
                amounts, known = ((item.get("resources") or {}).get(part) or {} for item in (new, was))
                if known.keys() - amounts.keys():
                    where = f"spec.{kind}[{at}].resources.{part}"
                    found.append(field_errors.forbidden(where, f"resource {part} cannot be removed"))
                changed = {name for name in amounts.keys() | known.keys() if amounts.get(name) != known.get(name)}
                once = kind == "initContainers" and was.get("restartPolicy") != "Always"
                others = others or bool(changed if once else changed - {"cpu", "memory"})
            others = others or new.get("resizePolicy") != was.get("resizePolicy")
    if others:
        found.append(field_errors.forbidden("spec", "only cpu and memory resources are mutable"))
    return found


POD_PARTS = {"ephemeralcontainers": ephemeral_causes, "resize": resize_causes}


def quality_of_service(spec: JSON) -> str:
    """Guaranteed when every container limits what it requests, BestEffort when none says anything."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    requests: list[tuple[Any, Any]] = []
    guaranteed = bool(containers)
    for container in containers:
        resources = container.get("resources") or {}
        limits, wanted = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            pair = (wanted.get(name, limits.get(name)), limits.get(name))
            if pair != (None, None):
                requests.append(pair)
            if pair[1] in (None, "0") or pair[0] != pair[1]:
                guaranteed = False
    if not any(value not in (None, "0") for pair in requests for value in pair):
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


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
