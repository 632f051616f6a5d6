"""The core group without pods: namespaces, configuration, services, nodes, claims, events. Pure data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import field

from steersman.kube.api.objects import LabelSelector, Resource, Struct
from steersman.kube.api.types.meta import Amount, BaseCondition, IntOrString, StatusCondition
from steersman.kube.api.types.volumes import LocalObjectReference

__all__ = [
    "ConfigMap",
    "EndpointAddress",
    "EndpointPort",
    "EndpointSubset",
    "Endpoints",
    "Event",
    "EventSeries",
    "EventSource",
    "LoadBalancerIngress",
    "LoadBalancerStatus",
    "Namespace",
    "NamespaceCondition",
    "NamespaceSpec",
    "NamespaceStatus",
    "Node",
    "NodeAddress",
    "NodeCondition",
    "NodeSpec",
    "NodeStatus",
    "NodeSystemInfo",
    "ObjectReference",
    "PersistentVolumeClaim",
    "PersistentVolumeClaimCondition",
    "PersistentVolumeClaimSpec",
    "PersistentVolumeClaimStatus",
    "Secret",
    "Service",
    "ServiceAccount",
    "ServicePort",
    "ServiceSpec",
    "ServiceStatus",
    "Taint",
    "TypedLocalObjectReference",
    "VolumeResourceRequirements",
]


class ObjectReference(Struct):
    """An object of any kind."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class TypedLocalObjectReference(Struct):
    """An object of a named kind in the same namespace."""

    api_group: str | None = None
    kind: str = ""
    name: str = ""


# --------------------------------------------------------------------------------------------------------- namespaces
class NamespaceCondition(BaseCondition):
    """Why a namespace is not gone yet."""


class NamespaceSpec(Struct):
    """What keeps a namespace from being removed."""

    finalizers: Sequence[str] = ()


class NamespaceStatus(Struct):
    """Whether a namespace is in use or on its way out."""

    phase: str = ""  # Active or Terminating
    conditions: Sequence[NamespaceCondition] = ()


class Namespace(Resource, version="v1", namespaced=False):
    """A room for names."""

    spec: NamespaceSpec = field(default_factory=NamespaceSpec)
    status: NamespaceStatus = field(default_factory=NamespaceStatus)


# ------------------------------------------------------------------------------------------------------ configuration
class ConfigMap(Resource, version="v1"):
    """Configuration that is not confidential."""

    data: dict[str, str] = field(default_factory=dict)
    binary_data: dict[str, bytes | None] = field(default_factory=dict)  # decoded; a key set to null stays null
    immutable: bool | None = None


class Secret(Resource, version="v1"):
    """Configuration that few may read. Its values are never part of its `repr`."""

    type: str = ""
    data: dict[str, bytes | None] = field(default_factory=dict)  # decoded; a key set to null stays null
    string_data: dict[str, str] = field(default_factory=dict)
    immutable: bool | None = None

    def __repr__(self) -> str:
        return f"Secret({str(self.ref)!r}, type={self.type!r}, keys={sorted({*self.data, *self.string_data})})"


class ServiceAccount(Resource, version="v1"):
    """The identity of pods."""

    secrets: Sequence[ObjectReference] = ()
    image_pull_secrets: Sequence[LocalObjectReference] = ()
    automount_service_account_token: bool | None = None


# ----------------------------------------------------------------------------------------------------------- services
class ServicePort(Struct):
    """One port of a service."""

    port: int
    name: str = ""
    protocol: str = ""
    app_protocol: str | None = None
    target_port: IntOrString | None = None
    node_port: int = 0


class ServiceSpec(Struct):
    """What a service should be."""

    type: str = ""  # ClusterIP, NodePort, LoadBalancer or ExternalName
    selector: dict[str, str] | None = None
    ports: Sequence[ServicePort] = ()
    cluster_ip: str = field(default="", name="clusterIP")  # "None" is a headless service
    cluster_ips: Sequence[str] = field(default=(), name="clusterIPs")
    external_ips: Sequence[str] = field(default=(), name="externalIPs")
    external_name: str = ""
    external_traffic_policy: str = ""
    internal_traffic_policy: str | None = None
    ip_families: Sequence[str] = ()
    ip_family_policy: str | None = None
    load_balancer_ip: str = field(default="", name="loadBalancerIP")
    load_balancer_class: str | None = None
    load_balancer_source_ranges: Sequence[str] = ()
    allocate_load_balancer_node_ports: bool | None = None
    health_check_node_port: int = 0
    publish_not_ready_addresses: bool = False
    session_affinity: str = ""
    session_affinity_config: dict[str, Any] | None = None
    traffic_distribution: str | None = None


class LoadBalancerIngress(Struct):
    """One address of a load balancer."""

    ip: str = ""
    hostname: str = ""
    ip_mode: str | None = None


class LoadBalancerStatus(Struct):
    """The addresses of a load balancer."""

    ingress: Sequence[LoadBalancerIngress] = ()


class ServiceStatus(Struct):
    """What a service is."""

    load_balancer: LoadBalancerStatus | None = None
    conditions: Sequence[StatusCondition] = ()


class Service(Resource, version="v1"):
    """One address for many pods."""

    spec: ServiceSpec = field(default_factory=ServiceSpec)
    status: ServiceStatus = field(default_factory=ServiceStatus)


class EndpointAddress(Struct):
    """One address behind a service."""

    ip: str = ""
    hostname: str = ""
    node_name: str | None = None
    target_ref: ObjectReference | None = None


class EndpointPort(Struct):
    """One port behind a service."""

    port: int
    name: str = ""
    protocol: str = ""
    app_protocol: str | None = None


class EndpointSubset(Struct):
    """Addresses that share their ports."""

    addresses: Sequence[EndpointAddress] = ()
    not_ready_addresses: Sequence[EndpointAddress] = ()
    ports: Sequence[EndpointPort] = ()


class Endpoints(Resource, version="v1", plural="endpoints"):
    """The addresses behind a service, in the old form; `EndpointSlice` has replaced it."""

    subsets: Sequence[EndpointSubset] = ()


# -------------------------------------------------------------------------------------------------------------- nodes
class Taint(Struct):
    """What keeps pods away from a node."""

    key: str
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(Struct):
    """What a node should be."""

    unschedulable: bool = False
    taints: Sequence[Taint] = ()
    provider_id: str = field(default="", name="providerID")
    pod_cidr: str = field(default="", name="podCIDR")
    pod_cidrs: Sequence[str] = field(default=(), name="podCIDRs")


class NodeCondition(BaseCondition):
    """One aspect of a node's state: Ready, MemoryPressure, DiskPressure, PIDPressure, NetworkUnavailable."""

    last_heartbeat_time: str | None = None


class NodeAddress(Struct):
    """One address of a node."""

    type: str
    address: str = ""


class NodeSystemInfo(Struct):
    """What a node runs."""

    machine_id: str = field(default="", name="machineID")
    system_uuid: str = field(default="", name="systemUUID")
    boot_id: str = field(default="", name="bootID")
    kernel_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""
    kubelet_version: str = ""
    kube_proxy_version: str = ""
    operating_system: str = ""
    architecture: str = ""


class NodeStatus(Struct):
    """What a node is."""

    capacity: dict[str, Amount] | None = None
    allocatable: dict[str, Amount] | None = None
    conditions: Sequence[NodeCondition] = ()
    addresses: Sequence[NodeAddress] = ()
    node_info: NodeSystemInfo | None = None


class Node(Resource, version="v1", namespaced=False):
    """A machine."""

    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)


# ------------------------------------------------------------------------------------------------------------- claims
class VolumeResourceRequirements(Struct):
    """How much storage is asked for."""

    requests: dict[str, Amount] | None = None
    limits: dict[str, Amount] | None = None


class PersistentVolumeClaimSpec(Struct):
    """What storage is asked for."""

    access_modes: Sequence[str] = ()
    resources: VolumeResourceRequirements | None = None
    storage_class_name: str | None = None  # "" asks for no class at all, None for the default one
    volume_mode: str | None = None
    volume_name: str = ""
    volume_attributes_class_name: str | None = None
    selector: LabelSelector | None = None
    data_source: TypedLocalObjectReference | None = None
    data_source_ref: dict[str, Any] | None = None


class PersistentVolumeClaimCondition(BaseCondition):
    """One aspect of a claim's state: Resizing, FileSystemResizePending, ModifyingVolume."""

    last_probe_time: str | None = None


class PersistentVolumeClaimStatus(Struct):
    """What storage was given."""

    phase: str = ""  # Pending, Bound or Lost
    access_modes: Sequence[str] = ()
    capacity: dict[str, Amount] | None = None
    conditions: Sequence[PersistentVolumeClaimCondition] = ()


class PersistentVolumeClaim(Resource, version="v1"):
    """Storage that outlives a pod."""

    spec: PersistentVolumeClaimSpec = field(default_factory=PersistentVolumeClaimSpec)
    status: PersistentVolumeClaimStatus = field(default_factory=PersistentVolumeClaimStatus)


# ------------------------------------------------------------------------------------------------------------- events
class EventSource(Struct):
    """The reporting component, in the old form."""

    component: str = ""
    host: str = ""


class EventSeries(Struct):
    """An event that goes on."""

    count: int = 0
    last_observed_time: str | None = None


class Event(Resource, version="v1"):
    """Something that happened to an object."""

    involved_object: ObjectReference = field(default_factory=ObjectReference)
    reason: str = ""
    message: str = ""
    type: str = ""  # Normal or Warning
    action: str = ""
    count: int = 0
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: EventSeries | None = None
    source: EventSource | None = None
    related: ObjectReference | None = None
    reporting_component: str = ""
    reporting_instance: str = ""
