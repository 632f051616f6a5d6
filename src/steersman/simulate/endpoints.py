"""EndpointSlices: the pods behind a service, with their addresses and whether they take traffic.

One slice per service. A named target port has the number that the first pod gives it. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.kube.api.objects import ObjectMeta, owner_reference, to_wire
from steersman.kube.api.types.core import ObjectReference
from steersman.kube.api.types.discovery import Endpoint, EndpointConditions, EndpointSlice, EndpointSlicePort
from steersman.simulate.plan import Change, Plan
from steersman.simulate.workloads.pods import fingerprint, is_ready

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.kube.api.types.core import Service, ServicePort
    from steersman.simulate.kinds import SimulatedPod

_MANAGER = "endpointslice-controller.k8s.io"


def selects(service: Service, pod: SimulatedPod) -> bool:
    """Whether a service has a selector, and it matches."""
    selector = service.spec.selector
    return bool(selector) and (selector or {}).items() <= pod.labels.items()


def plan_endpoints(service: Service, pods: Sequence[SimulatedPod], slices: Sequence[EndpointSlice]) -> Plan:
    """The slice of a service, made or brought up to date."""
    if not service.spec.selector or service.spec.type == "ExternalName":
        return Plan(delete=tuple(slices))
    wanted = _slice(service, pods)
    known = next((known for known in slices if known.name == wanted.name), None)
    if known is None:
        return Plan(create=(wanted,))
    patch = _difference(known, wanted)
    return Plan(change=(Change(known, patch),)) if patch else Plan()


def _slice(service: Service, pods: Sequence[SimulatedPod]) -> EndpointSlice:
    backends = sorted((pod for pod in pods if selects(service, pod) and _has_address(pod)), key=lambda pod: pod.name)
    labels = {
        **service.labels,
        "kubernetes.io/service-name": service.name,
        "endpointslice.kubernetes.io/managed-by": _MANAGER,
        **({"service.kubernetes.io/headless": ""} if service.spec.cluster_ip == "None" else {}),
    }
    return EndpointSlice(
        metadata=ObjectMeta(
            name=f"{service.name}-{fingerprint(service.metadata.uid, 5)}",
            generate_name=f"{service.name}-",
            namespace=service.namespace,
            labels=labels,
            owner_references=[owner_reference(service)],
        ),
        address_type="IPv4",
        endpoints=[_endpoint(service, pod) for pod in backends],
        ports=[_port(port, backends) for port in service.spec.ports],
    )


def _endpoint(service: Service, pod: SimulatedPod) -> Endpoint:
    serving = is_ready(pod)
    published = service.spec.publish_not_ready_addresses
    return Endpoint(
        addresses=[pod.status.pod_ip],
        conditions=EndpointConditions(
            ready=published or (serving and not pod.deleting), serving=serving, terminating=pod.deleting
        ),
        hostname=pod.spec.get("hostname") if pod.spec.get("subdomain") == service.name else None,
        node_name=pod.spec.get("nodeName"),
        target_ref=ObjectReference(kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.metadata.uid),
    )


def _port(port: ServicePort, backends: Sequence[SimulatedPod]) -> EndpointSlicePort:
    return EndpointSlicePort(
        name=port.name,
        port=_number(port, backends),
        protocol=port.protocol or "TCP",
        app_protocol=port.app_protocol,
    )


def _number(port: ServicePort, backends: Sequence[SimulatedPod]) -> int | None:
    target = port.target_port
    if not isinstance(target, str):
        return target or port.port
    containers = (container for pod in backends for container in pod.spec.get("containers") or ())
    ports = (port for container in containers for port in container.get("ports") or ())
    return next((port["containerPort"] for port in ports if port.get("name") == target), None)


def _has_address(pod: SimulatedPod) -> bool:
    return bool(pod.status.pod_ip) and pod.status.phase not in {"Succeeded", "Failed"}


def _difference(known: EndpointSlice, wanted: EndpointSlice) -> dict[str, Any]:
    """A merge patch; lists that are empty are null on the wire."""
    before, after = to_wire(known), to_wire(wanted)
    fields = ("endpoints", "ports")
    patch: dict[str, Any] = {
        name: after.get(name) for name in fields if (before.get(name) or None) != (after.get(name) or None)
    }
    if not wanted.labels.items() <= known.labels.items():
        patch["metadata"] = {"labels": wanted.labels}
    return patch
