"""Cells of what carries traffic: services, endpoints, ingresses, network policies.

Columns and their order are those of the real server, the wide ones included.
"""

from __future__ import annotations

from typing import Any

from steersman.apiserver.celltext import (
    NONE,
    UNKNOWN,
    UNSET,
    Cells,
    age_of,
    default_marked,
    labels,
    limited,
    name_of,
    selector,
    spec_of,
    status_of,
)

__all__ = ["endpoint_slice", "endpoints", "ingress", "ingress_class", "network_policy", "service"]

JSON = dict[str, Any]


def _balancers(status: JSON) -> list[str]:
    entries = (status.get("loadBalancer") or {}).get("ingress") or []
    return sorted({entry.get("ip") or entry.get("hostname") or "" for entry in entries} - {""})


def service(obj: JSON, now: float) -> Cells:
    """The row of one."""
    spec = spec_of(obj)
    kind = spec.get("type", "")
    external = list(spec.get("externalIPs") or ())
    if kind in {"ClusterIP", "NodePort"}:
        shown = ",".join(external) or NONE
    elif kind == "LoadBalancer":
        shown = ",".join([*_balancers(status_of(obj)), *external]) or "<pending>"
    else:
        shown = spec.get("externalName", "") if kind == "ExternalName" else UNKNOWN
    internal = (spec.get("clusterIPs") or [NONE])[0]
    ports = ",".join(_service_port(port) for port in spec.get("ports") or ()) or NONE
    return [name_of(obj), kind, internal, shown, ports, age_of(obj, now), labels(spec.get("selector"))]


def _service_port(port: JSON) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort", 0) > 0 else ""
    return f"{port.get('port', 0)}{node}/{port.get('protocol', '')}"


def endpoints(obj: JSON, now: float) -> Cells:
    """The row of one."""
    found: list[str] = []
    for subset in obj.get("subsets") or ():
        addresses = [address.get("ip", "") for address in subset.get("addresses") or ()]
        ports = subset.get("ports") or []
        if not ports:
            found += addresses
        for port in ports:
            found += [f"[{ip}]:{port['port']}" if ":" in ip else f"{ip}:{port['port']}" for ip in addresses]
    shown = limited(found) if obj.get("subsets") else NONE
    return [name_of(obj), shown, age_of(obj, now)]


def endpoint_slice(obj: JSON, now: float) -> Cells:
    """The row of one."""
    ports = [str(port.get("port") or port.get("name") or "*") for port in obj.get("ports") or ()]
    addresses = [ip for endpoint in obj.get("endpoints") or () for ip in endpoint.get("addresses") or ()]
    shown = [limited(items) or UNSET for items in (ports, addresses)]
    return [name_of(obj), obj.get("addressType", ""), *shown, age_of(obj, now)]


def ingress(obj: JSON, now: float) -> Cells:
    """The row of one."""
    spec = spec_of(obj)
    rules = spec.get("rules") or []
    hosts: list[str] = []
    more = False
    for rule in rules:
        more = more or len(hosts) == 3
        if not more and rule.get("host"):
            hosts.append(rule["host"])
    shown = ",".join(hosts) + (f" + {len(rules) - 3} more..." if more else "") if hosts else "*"
    ports = "80, 443" if spec.get("tls") else "80"
    address = ",".join(_balancers(status_of(obj)))
    return [name_of(obj), spec.get("ingressClassName") or NONE, shown, address, ports, age_of(obj, now)]


def network_policy(obj: JSON, now: float) -> Cells:
    """The row of one."""
    return [name_of(obj), selector(spec_of(obj).get("podSelector") or {}), age_of(obj, now)]


def ingress_class(obj: JSON, now: float) -> Cells:
    """The row of one."""
    spec = spec_of(obj)
    parameters = NONE
    if given := spec.get("parameters"):
        group = f".{given['apiGroup']}" if given.get("apiGroup") is not None else ""
        parameters = f"{given.get('kind', '')}{group}/{given.get('name', '')}"
    name = default_marked(obj, "ingressclass.kubernetes.io/is-default-class")
    return [name, spec.get("controller", ""), parameters, age_of(obj, now)]
