"""The objects that this operator reads and writes, with the fields it needs, and the kind ToolsetConfig."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import field
from msgspec.structs import replace

from steersman.crd.markers import Column, ListMap, MaxLength
from steersman.kube.api.objects import ObjectMeta, OwnedMeta, Resource, Struct
from steersman.runtime.reconcile.conditions import Condition

SERVICE_NAME = "kubernetes.io/service-name"
MAX_STATUS_SERVICES = 50


class ServiceSummaryPort(Struct):
    """One port of a Service."""

    port: int
    name: str = ""
    protocol: str = ""
    app_protocol: str | None = None
    target_port: int | str | None = None


class ServiceSummarySpec(Struct):
    """The fields of a Service that matching needs."""

    type: str = ""
    selector: dict[str, str] | None = None
    ports: Sequence[ServiceSummaryPort] = ()
    cluster_ip: str = field(default="", name="clusterIP")
    external_name: str = ""


class ServiceSummary(Resource, version="v1", kind="Service"):
    """A Service with the fields that matching needs."""

    spec: ServiceSummarySpec = field(default_factory=ServiceSummarySpec)

    @property
    def headless(self) -> bool:
        """Whether it has no address of its own."""
        return self.spec.cluster_ip == "None"


class _Conditions(Struct):
    ready: bool | None = None


class _Endpoint(Struct):
    conditions: _Conditions | None = None


class EndpointSliceSummary(Resource, group="discovery.k8s.io", version="v1", kind="EndpointSlice"):
    """How many endpoints of a Service take traffic, of one slice."""

    endpoints: Sequence[_Endpoint] | None = ()
    ready: int = 0  # counted when it is cached, instead of the endpoints

    @property
    def service(self) -> str:
        """The name of the Service it belongs to."""
        return self.labels.get(SERVICE_NAME, "")


class TargetConfigMap(Resource, version="v1", kind="ConfigMap"):
    """A target ConfigMap, with the field managers that own its keys."""

    metadata: OwnedMeta = field(default_factory=OwnedMeta)
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None  # as on the wire: only restored, never read
    immutable: bool | None = None
    owners: dict[str, list[str]] | None = None  # manager -> keys it applied; made of managedFields when it is read


def with_key_owners(obj: TargetConfigMap) -> TargetConfigMap:
    """A ConfigMap with `owners` set from managedFields, which a cache drops."""
    entries = obj.metadata.managed_fields
    if entries is None:
        return obj
    owners: dict[str, list[str]] = {}
    for entry in entries:
        fields: Any = (entry.fields_v1 or {}).get("f:data") or {}
        if entry.operation == "Apply" and not entry.subresource:
            owners[entry.manager] = sorted(name.removeprefix("f:") for name in fields if name.startswith("f:"))
    return replace(obj, metadata=replace(obj.metadata, managed_fields=None), owners=owners)


def summarize_service(service: ServiceSummary) -> ServiceSummary:
    """What the cache keeps of a Service."""
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


def summarize_slice(found: EndpointSliceSummary) -> EndpointSliceSummary:
    """What the cache keeps of a slice: the number of ready endpoints."""
    ready = sum(
        endpoint.conditions is None or endpoint.conditions.ready is not False for endpoint in found.endpoints or ()
    )
    meta = found.metadata
    kept = ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation,
        labels={SERVICE_NAME: (meta.labels or {}).get(SERVICE_NAME, "")},
    )
    return EndpointSliceSummary(metadata=kept, endpoints=(), ready=ready)


# -- the optional kind -------------------------------------------------------------------------------------------------


class ServiceTypeSpec(Struct):
    """One type of service."""

    enabled: bool = True
    """Whether services of this type are discovered. It cannot turn on a type that the operator's configuration turns
    off."""
    labels: dict[str, str] | None = None
    """Labels that Services of this type must have, besides those that the operator's configuration asks for."""
    annotations: dict[str, str] | None = None
    """Annotations that Services of this type must have, besides those that the operator's configuration asks for."""


class HealthCheckSpec(Struct):
    """How services are probed."""

    enabled: bool = True
    """Whether services are probed. Without probes, every service that is discovered counts as healthy."""
    timeout: str = "5s"
    """How long one request of a probe may take, from `100ms` to `1m`."""


class ConfigMapSpec(Struct):
    """Where the toolsets are written."""

    name: Annotated[str, MaxLength(200)] = ""
    """Name of the ConfigMap. When empty, `toolset.name` of the operator's configuration, else the name of the
    ToolsetConfig."""
    namespace: str = ""
    """Namespace of the ConfigMap. Only a ToolsetConfig of a trusted namespace may name another than its own, which is
    used when empty."""
    preserve_overrides: bool = True
    """Whether `overrides.yaml` and keys of other owners are restored after the ConfigMap was deleted."""


class ToolsetConfigSpec(Struct):
    """The settings of this target; a field that is not set is as in the operator's configuration file."""

    discovery_interval: str = ""
    """Time between two passes over all services when nothing changes, from `1m` to `1h`. As in the operator's
    configuration when empty."""
    namespaces: list[str] | None = None
    """Namespaces in which Services are discovered; `*` or none is all of them. A ToolsetConfig outside trusted
    namespaces sees only its own."""
    service_types: dict[str, ServiceTypeSpec] | None = None
    """Settings for types of services by name, such as `prometheus`. Types that are not named are as in the operator's
    configuration."""
    health_check: HealthCheckSpec | None = None
    """How services are probed. As in the operator's configuration when absent."""
    config_map: ConfigMapSpec | None = None
    """The ConfigMap that is written, in the namespace of the ToolsetConfig unless it names another."""


class ServiceStatusEntry(Struct):
    """One service that was discovered."""

    name: str
    """Name of the Service."""
    namespace: str
    """Namespace of the Service."""
    type: str = ""
    """Type that was recognised, such as `prometheus`."""
    endpoint: str = ""
    """URL that is written to the toolset."""
    state: str = ""
    """Whether the service is part of the toolset, and if not, why."""


class ToolsetConfigStatus(Struct):
    """The state of the target."""

    observed_generation: int = 0
    """`metadata.generation` of the spec that this status describes."""
    phase: Annotated[Literal["", "Ready", "Refused", "Failing", "Paused"], Column("Phase")] = ""
    """`Ready` when the ConfigMap is up to date, `Refused` when the spec is invalid or not allowed, `Failing` when it
    cannot be written, `Paused` while an annotation of the ConfigMap stops writing. Empty before the first pass."""
    config_map: Annotated[str, Column("ConfigMap")] = ""
    """The ConfigMap that is written, as NAMESPACE/NAME."""
    toolsets: Annotated[int, Column("Toolsets")] = 0
    """How many toolsets the ConfigMap has."""
    services: list[ServiceStatusEntry] | None = None
    """The services that were discovered, the best candidates first; at most 50."""
    omitted: int = 0
    """How many services `services` leaves out."""
    conditions: Annotated[list[Condition] | None, ListMap("type")] = None
    """`Ready` says whether the ConfigMap is up to date, and why not."""


class ToolsetConfig(Resource, group="steersman.dev", version="v1alpha1", short_names=("tsc",)):
    """One toolset ConfigMap that the operator writes."""

    spec: ToolsetConfigSpec = field(default_factory=ToolsetConfigSpec)
    """Settings of this ConfigMap. A field that is absent is as in the operator's configuration."""
    status: ToolsetConfigStatus = field(default_factory=ToolsetConfigStatus)
    """What the operator observed."""
