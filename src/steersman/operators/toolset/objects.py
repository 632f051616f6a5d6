"""The objects this operator reads and writes, as small as it needs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import field
from msgspec.structs import replace

from steersman.crd.markers import Column, Doc, ListMap, MaxLength
from steersman.kube.objects import ObjectMeta, OwnedMeta, Resource, Struct
from steersman.runtime.conditions import Condition

__all__ = [
    "MAX_STATUS_SERVICES",
    "ServiceLook",
    "ServicePort",
    "ServiceSpec",
    "SliceLook",
    "TargetMap",
    "ToolsetConfig",
    "service_look",
    "slice_look",
    "target_look",
]

SERVICE_NAME = "kubernetes.io/service-name"
MAX_STATUS_SERVICES = 50


class ServicePort(Struct):
    """One port of a Service."""

    port: int
    name: str = ""
    protocol: str = ""
    app_protocol: str | None = None
    target_port: int | str | None = None


class ServiceSpec(Struct):
    """What detection asks of a Service."""

    type: str = ""
    selector: dict[str, str] | None = None
    ports: Sequence[ServicePort] = ()
    cluster_ip: str = field(default="", name="clusterIP")
    external_name: str = ""


class ServiceLook(Resource, version="v1", kind="Service"):
    """A Service as detection sees it."""

    spec: ServiceSpec = field(default_factory=ServiceSpec)

    @property
    def headless(self) -> bool:
        """Whether it has no address of its own."""
        return self.spec.cluster_ip == "None"


class _Conditions(Struct):
    ready: bool | None = None


class _Endpoint(Struct):
    conditions: _Conditions | None = None


class SliceLook(Resource, group="discovery.k8s.io", version="v1", kind="EndpointSlice"):
    """How many endpoints of a Service take traffic, of one slice."""

    endpoints: Sequence[_Endpoint] | None = ()
    ready: int = 0  # counted when it is stored, in the place of the endpoints

    @property
    def service(self) -> str:
        """The name of the Service it belongs to."""
        return self.labels.get(SERVICE_NAME, "")


class TargetMap(Resource, version="v1", kind="ConfigMap"):
    """A ConfigMap that is kept true, with who owns which of its keys."""

    metadata: OwnedMeta = field(default_factory=OwnedMeta)
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None  # as on the wire: it is only ever carried along
    immutable: bool | None = None
    owners: dict[str, list[str]] | None = None  # manager -> keys it applied; made of managedFields when it is read


def target_look(obj: TargetMap) -> TargetMap:
    """A ConfigMap with its owners read, because a cache keeps no managedFields."""
    entries = obj.metadata.managed_fields
    if entries is None:
        return obj
    owners: dict[str, list[str]] = {}
    for entry in entries:
        fields: Any = (entry.fields_v1 or {}).get("f:data") or {}
        if entry.operation == "Apply" and not entry.subresource:
            owners[entry.manager] = sorted(name.removeprefix("f:") for name in fields if name.startswith("f:"))
    return replace(obj, metadata=replace(obj.metadata, managed_fields=None), owners=owners)


def service_look(service: ServiceLook) -> ServiceLook:
    """What is kept of a Service."""
    meta = service.metadata
    kept = ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation,
        creation_timestamp=meta.creation_timestamp,
        deletion_timestamp=meta.deletion_timestamp,
        labels=meta.labels,
        annotations={
            name: value
            for name, value in (meta.annotations or {}).items()
            if not name.startswith("kubectl.kubernetes.io/")
        }
        or None,
    )
    return replace(service, metadata=kept)


def slice_look(piece: SliceLook) -> SliceLook:
    """What is kept of a slice: a number."""
    ready = sum(1 for one in piece.endpoints or () if one.conditions is None or one.conditions.ready is not False)
    meta = piece.metadata
    kept = ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation,
        labels={SERVICE_NAME: (meta.labels or {}).get(SERVICE_NAME, "")},
    )
    return SliceLook(metadata=kept, endpoints=(), ready=ready)


# -- the optional kind -------------------------------------------------------------------------------------------------


class ServiceTypeSpec(Struct):
    """One type of service."""

    enabled: bool = True
    labels: Annotated[dict[str, str] | None, Doc("Labels that Services of the type must have.")] = None
    annotations: Annotated[dict[str, str] | None, Doc("Annotations that Services of the type must have.")] = None


class HealthCheckSpec(Struct):
    """How services are probed."""

    enabled: bool = True
    timeout: Annotated[str, Doc("Of one request, such as 5s.")] = "5s"


class ConfigMapSpec(Struct):
    """Where the toolsets are written."""

    name: Annotated[str, MaxLength(200)] = ""
    namespace: Annotated[str, Doc("Another namespace only for objects in a trusted one.")] = ""
    preserve_overrides: Annotated[
        bool, Doc("Restore overrides.yaml and other people's keys when the ConfigMap is deleted.")
    ] = True


class ToolsetConfigSpec(Struct):
    """What this target is kept by; what is left out is as in the operator's configuration file."""

    discovery_interval: Annotated[str, Doc("Between two looks at everything when all is well, 1m to 1h.")] = ""
    namespaces: Annotated[list[str] | None, Doc("Where Services are looked for.")] = None
    service_types: dict[str, ServiceTypeSpec] | None = None
    health_check: HealthCheckSpec | None = None
    config_map: ConfigMapSpec | None = None


class ServiceStatusEntry(Struct):
    """One service that was found."""

    name: str
    namespace: str
    type: str = ""
    endpoint: str = ""
    state: str = ""


class ToolsetConfigStatus(Struct):
    """What became of it."""

    observed_generation: int = 0
    phase: Annotated[Literal["", "Ready", "Refused", "Failing", "Paused"], Column("Phase")] = ""
    config_map: Annotated[str, Column("ConfigMap")] = ""
    toolsets: Annotated[int, Column("Toolsets")] = 0
    services: Annotated[list[ServiceStatusEntry] | None, Doc(f"The first {MAX_STATUS_SERVICES}, by rank.")] = None
    omitted: Annotated[int, Doc("How many services the list leaves out.")] = 0
    conditions: Annotated[list[Condition] | None, ListMap("type")] = None


class ToolsetConfig(Resource, group="steersman.dev", version="v1alpha1", short_names=("tsc",)):
    """One toolset ConfigMap that is kept true."""

    spec: ToolsetConfigSpec = field(default_factory=ToolsetConfigSpec)
    status: ToolsetConfigStatus = field(default_factory=ToolsetConfigStatus)
