"""The rules of services: ports, types, and the address that may not change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver import causes
from steersman.apiserver.causes import Cause
from steersman.apiserver.metadata import label_causes
from steersman.apiserver.names import is_dns1123_label, is_dns1123_subdomain, is_port_name, is_port_number
from steersman.apiserver.podrules import PROTOCOLS
from steersman.kube.names import label_key_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["service_causes"]

JSON = dict[str, Any]

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


def service_causes(obj: JSON, old: JSON | None) -> list[Cause]:
    """Why a service cannot be stored."""
    spec = obj.get("spec") or {}
    found = list(_update_causes(spec, old["spec"])) if old is not None else []
    headless = spec.get("clusterIP") == "None" or (spec.get("clusterIPs") or [""])[0] == "None"
    kind = spec.get("type", "ClusterIP")
    ports = spec.get("ports") or []
    if not ports and not headless and kind != "ExternalName":
        found.append(causes.required("spec.ports"))
    if headless and kind in {"LoadBalancer", "NodePort"}:
        found.append(causes.invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services"))
    if kind == "ExternalName":
        found += _external_name_causes(spec)
    found += _port_list_causes(ports)
    found += label_causes(spec.get("selector"), "spec.selector")
    found += _affinity_causes(spec)
    if kind not in TYPES:
        found.append(causes.not_supported("spec.type", kind, TYPES))
    if kind == "ClusterIP":
        text = "may not be used when `type` is 'ClusterIP'"
        found += [
            causes.forbidden(f"spec.ports[{at}].nodePort", text)
            for at, port in enumerate(ports)
            if port.get("nodePort")
        ]
    return found + list(_repeated_ports(ports))


def _external_name_causes(spec: JSON) -> list[Cause]:
    found = [
        causes.forbidden(f"spec.{field}", "may not be set for ExternalName services")
        for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy")
        if spec.get(field)
    ]
    name = spec.get("externalName", "").removesuffix(".")
    if not name:
        return [*found, causes.required("spec.externalName")]
    return found + [causes.invalid("spec.externalName", name, text) for text in is_dns1123_subdomain(name)]


def _affinity_causes(spec: JSON) -> list[Cause]:
    affinity = spec.get("sessionAffinity", "None")
    if affinity not in {"ClientIP", "None"}:
        return [causes.not_supported("spec.sessionAffinity", affinity, ("ClientIP", "None"))]
    if affinity == "None" and spec.get("sessionAffinityConfig") is not None:
        text = "must not be set when session affinity is None"
        return [causes.forbidden("spec.sessionAffinityConfig", text)]
    return []


def _port_list_causes(ports: list[JSON]) -> list[Cause]:
    names: set[str] = set()
    found: list[Cause] = []
    for at, port in enumerate(ports):
        path = f"spec.ports[{at}]"
        name = port.get("name", "")
        if not name:
            found += [causes.required(f"{path}.name")] if len(ports) > 1 else []
        else:
            found += [causes.invalid(f"{path}.name", name, text) for text in is_dns1123_label(name)]
            found += [causes.duplicate(f"{path}.name", name)] if name in names else []
            names.add(name)
        number = port.get("port", 0)
        found += [causes.invalid(f"{path}.port", number, text) for text in is_port_number(number)]
        if (protocol := port.get("protocol", "TCP")) not in PROTOCOLS:
            found.append(causes.not_supported(f"{path}.protocol", protocol, PROTOCOLS))
        found += _target_causes(port.get("targetPort"), f"{path}.targetPort")
        if (protocol := port.get("appProtocol")) is not None:
            found += [causes.invalid(f"{path}.appProtocol", protocol, text) for text in label_key_errors(protocol)]
    return found


def _target_causes(target: Any, field: str) -> list[Cause]:
    if target is None:
        return []
    complaints = is_port_name(target) if isinstance(target, str) else is_port_number(target)
    return [causes.invalid(field, target, text) for text in complaints]


def _repeated_ports(ports: list[JSON]) -> Iterator[Cause]:
    """Two ports are the same when protocol and number are."""
    seen: set[tuple[str, int]] = set()
    for at, port in enumerate(ports):
        if node := port.get("nodePort"):
            key = (port.get("protocol", "TCP"), node)
            if key in seen:
                yield causes.duplicate(f"spec.ports[{at}].nodePort", node)
            seen.add(key)
    seen.clear()
    for at, port in enumerate(ports):
        key = (port.get("protocol", "TCP"), port.get("port", 0))
        if key in seen:
            shown = (
                f'{{"Name":"","Protocol":"{key[0]}","AppProtocol":null,"Port":{key[1]},"TargetPort":0,"NodePort":0}}'
            )
            yield Cause("FieldValueDuplicate", f"Duplicate value: {shown}", f"spec.ports[{at}]")
        seen.add(key)


def _update_causes(spec: JSON, old: JSON) -> Iterator[Cause]:
    """The cluster IP stays once it is there, unless the service stops having one."""
    external = "ExternalName"
    if old.get("type") == external or spec.get("type") == external or not (before := old.get("clusterIPs")):
        return
    now = spec.get("clusterIPs") or []
    if before[0] != (now[0] if now else ""):
        text = "may not change once set"
        shown = causes.go_json(now) if now else "null"
        yield Cause("FieldValueInvalid", f"Invalid value: {shown}: {text}", "spec.clusterIPs[0]")
