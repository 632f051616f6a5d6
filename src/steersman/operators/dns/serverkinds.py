"""ClusterBind9Provider, Bind9Cluster and Bind9Instance: the servers, from a whole fleet down to one.

An instance is either made by the operator (a Deployment) or exists already (`endpoints`). What an instance leaves open
its cluster decides, for its role first; what that leaves open, the built-in default.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import field

from steersman.crd.markers import Atomic, Ge, Le, MaxLength, MinLength, Pattern, Schema
from steersman.kube.definitions import ColumnSpec
from steersman.kube.objects import Resource, Struct
from steersman.operators.dns.lifetimes import LIFETIME
from steersman.operators.dns.parts import (
    AclEntry,
    Conditions,
    ObjectReference,
    PolicyName,
    Port,
    SecretRef,
    ZoneSource,
)
from steersman.operators.dns.types import GROUP, VERSION

__all__ = [
    "Bind9Cluster",
    "Bind9Config",
    "Bind9Instance",
    "BindcarConfig",
    "ClusterBind9Provider",
    "ClusterSpec",
    "ClusterStatus",
    "DnssecConfig",
    "Endpoint",
    "InstanceStatus",
    "KeyRotation",
    "RndcKey",
    "RoleConfig",
    "Signing",
    "Storage",
    "ZoneReference",
]

Acl = Annotated[list[AclEntry] | None, Atomic(), Schema(maxItems=256)]
Replicas = Annotated[int, Ge(0), Le(100)]
Manifests = Annotated[list[dict[str, Any]] | None, Atomic(), Schema(maxItems=32)]
Address = Annotated[str, Pattern(r"^[0-9A-Fa-f:.]{2,45}$"), MaxLength(45)]
Driver = Literal["native", "bindcar"]
Lifetime = Annotated[str, Pattern(rf"^{LIFETIME}$"), MaxLength(32)]
Algorithm = Annotated[
    str,
    Pattern(r"^(?i:rsasha256|rsasha512|ecdsap256sha256|ecdsap384sha384|ed25519|ed448|8|10|13|14|15|16)$"),
    MaxLength(32),
]
RESERVED_POLICIES: Final = "['default', 'insecure', 'none']"


class KeySecretRef(Struct):
    """A Secret with keys, in the namespace of the servers."""

    name: Annotated[str, Pattern(r"^bindy-[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"), MaxLength(253)]
    namespace: Annotated[str, MaxLength(63)] = ""


class KeySource(Struct):
    """Where DNSSEC keys come from: a Secret that people keep, or a claim that named keeps them on."""

    RULES: ClassVar = (
        ("!(has(self.secretRef) && has(self.persistentVolume))", "keysFrom: either secretRef or persistentVolume"),
    )

    secret_ref: KeySecretRef | None = None
    persistent_volume: dict[str, Any] | None = None


class Signing(Struct):
    """How zones are signed, with which keys, and where those are kept."""

    RULES: ClassVar = (
        (
            f"!has(self.policy) || !(self.policy in {RESERVED_POLICIES})",
            "policy: default, insecure and none are named's own; choose another name (bindy-default)",
        ),
        (
            (
                "!(has(self.autoGenerate) && !self.autoGenerate && has(self.keysFrom) "
                "&& has(self.keysFrom.persistentVolume))"
            ),
            "autoGenerate: keys on a volume are made by named; give them in keysFrom.secretRef instead",
        ),
        (
            (
                "!(has(self.keysFrom) && has(self.keysFrom.secretRef)) || ["
                "has(self.kskLifetime) ? self.kskLifetime : 'unlimited', "
                "has(self.zskLifetime) ? self.zskLifetime : 'unlimited'].all(one, one in ['unlimited', '0'])"
            ),
            "keysFrom.secretRef: its keys are not replaced, so kskLifetime and zskLifetime are to be unlimited",
        ),
    )

    enabled: bool = False
    policy: PolicyName = "bindy-default"
    algorithm: Algorithm = "ECDSAP256SHA256"
    ksk_lifetime: Lifetime = "unlimited"
    zsk_lifetime: Lifetime = "unlimited"
    nsec3: bool = False
    nsec3_iterations: Annotated[int, Ge(0), Le(150)] = 0
    nsec3_salt: Annotated[str, Pattern(r"^(|-|[0-9A-Fa-f]{2,64})$"), MaxLength(64)] = ""
    keys_from: KeySource | None = None
    auto_generate: bool | None = None
    """Whether keys are made for zones that have none; they are unless it says no."""
    export_to_secret: bool | None = None
    """Whether keys whose lifetime does not end are kept in a Secret, and not on a disk; they are unless it says no."""


class DnssecConfig(Struct):
    """Validation and signing."""

    validation: bool | None = None
    signing: Signing | None = None


class BindcarConfig(Struct):
    """The sidecar that serves the HTTP interface."""

    image: str = ""
    image_pull_policy: str = ""
    args: Annotated[list[str] | None, Atomic(), Schema(maxItems=64)] = None
    resources: dict[str, Any] | None = None
    port: Port | None = None
    service_spec: dict[str, Any] | None = None
    log_level: str = ""
    env_vars: Manifests = None


class Bind9Config(Struct):
    """What named is told. Lists that are empty mean nobody; lists that are absent leave it to the cluster."""

    recursion: bool | None = None
    allow_query: Acl = None
    allow_transfer: Acl = None
    dnssec: DnssecConfig | None = None
    forwarders: Annotated[list[Address] | None, Atomic(), Schema(maxItems=16)] = None
    listen_on: Acl = None
    listen_on_v6: Acl = None
    rndc_secret_ref: SecretRef | None = None
    bindcar_config: BindcarConfig | None = None
    catalog_zone: Annotated[str, Pattern(r"^[A-Za-z0-9_.-]+$"), MaxLength(253)] | None = None
    """The catalog zone (RFC 9432) that secondaries take their zones from; those with endpoints must know it already."""


class RndcKey(Struct):
    """A key: one that exists (`secretRef`), or one that is made here and, if wanted, replaced from time to time."""

    auto_rotate: bool = False
    rotate_after: Annotated[str, Pattern(r"^[1-9][0-9]{0,4}[hdw]$"), MaxLength(6)] = "720h"
    secret_ref: SecretRef | None = None
    secret: dict[str, Any] | None = None
    algorithm: Literal["hmac-sha224", "hmac-sha256", "hmac-sha384", "hmac-sha512"] = "hmac-sha256"


class Image(Struct):
    """The image that named runs in."""

    image: Annotated[str, MaxLength(512)] = ""
    image_pull_policy: Literal["", "Always", "IfNotPresent", "Never"] = ""
    image_pull_secrets: Annotated[list[str] | None, Atomic(), Schema(maxItems=16)] = None


class ConfigMapRefs(Struct):
    """ConfigMaps whose keys are included in the configuration."""

    named_conf: str = ""
    named_conf_options: str = ""
    named_conf_zones: str = ""


class RoleService(Struct):
    """What the Service of a role has besides its ports and selector."""

    annotations: dict[str, str] | None = None
    spec: dict[str, Any] | None = None


class Spread(Struct):
    """Keep pods apart."""

    topology_key: Annotated[str, MinLength(1), MaxLength(317)]
    max_skew: Annotated[int, Ge(1)] = 1
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "ScheduleAnyway"
    min_domains: int | None = None
    scope: Literal["", "Instance", "Role", "Cluster"] = ""


class Placement(Struct):
    """Where pods go."""

    spread: Annotated[list[Spread] | None, Atomic(), Schema(maxItems=8)] = None


class RoleConfig(Struct):
    """Primaries or secondaries."""

    replicas: Replicas | None = None
    labels: dict[str, str] | None = None
    service: RoleService | None = None
    allow_transfer: Acl = None
    rndc_key: RndcKey | None = None
    rndc_secret_ref: SecretRef | None = None
    placement: Placement | None = None


class PersistentClaim(Struct):
    """The claim that a server keeps its zones in."""

    claim_name: str = ""
    storage_class_name: str | None = None
    size: Annotated[str, MaxLength(32)] = "1Gi"
    access_modes: Annotated[list[str] | None, Atomic(), Schema(maxItems=4)] = None


class Storage(Struct):
    """Where a server keeps its zones."""

    storage_type: Literal["emptyDir", "persistentVolumeClaim"] = "emptyDir"
    empty_dir: dict[str, Any] | None = None
    persistent_volume_claim: PersistentClaim | None = None


class ClusterSpec(Struct):
    """What a cluster of servers should be."""

    version: Annotated[str, Pattern(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"), MaxLength(128)] = "9.18"
    primary: RoleConfig | None = None
    secondary: RoleConfig | None = None
    image: Image | None = None
    config_map_refs: ConfigMapRefs | None = None
    global_: Bind9Config | None = field(default=None, name="global")
    rndc_secret_refs: Annotated[list[SecretRef] | None, Atomic(), Schema(maxItems=16)] = None
    acls: dict[str, Acl] | None = None
    volumes: Manifests = None
    volume_mounts: Manifests = None
    zones_from: Annotated[list[ZoneSource] | None, Atomic(), Schema(maxItems=64)] = None
    storage: Storage | None = None
    driver: Driver = "native"
    """Of the instances that the cluster makes."""


class InstanceEntry(Struct):
    """One instance of a cluster."""

    name: str = ""
    role: str = ""
    ready: bool = False
    reason: str = ""


class ClusterStatus(Struct):
    """How the servers are doing."""

    conditions: Conditions = None
    observed_generation: int = 0
    instance_count: int = 0
    ready_instances: int = 0
    instances: Annotated[list[InstanceEntry] | None, Atomic()] = None


_READY: Final = ".status.conditions[?(@.type=='Ready')]"
_STATE: Final = (
    ColumnSpec(name="Ready", json_path=f"{_READY}.status", type="string"),
    ColumnSpec(name="Reason", json_path=f"{_READY}.reason", type="string", priority=1),
)
_CLUSTER_COLUMNS: Final = (
    ColumnSpec(name="Version", json_path=".spec.version", type="string"),
    ColumnSpec(name="Primary", json_path=".spec.primary.replicas", type="integer"),
    ColumnSpec(name="Secondary", json_path=".spec.secondary.replicas", type="integer"),
    *_STATE,
)


class Bind9Cluster(Resource, group=GROUP, version=VERSION, short_names=("b9c", "b9cs"), columns=_CLUSTER_COLUMNS):
    """Servers of one namespace that belong together."""

    spec: ClusterSpec = ClusterSpec()
    status: ClusterStatus | None = None


class ProviderSpec(ClusterSpec):
    """What the servers of a provider should be, and where."""

    namespace: Annotated[str, MaxLength(63)] = ""


class ClusterBind9Provider(
    Resource,
    group=GROUP,
    version=VERSION,
    namespaced=False,
    short_names=("cb9p", "cb9ps"),
    columns=_CLUSTER_COLUMNS,
):
    """Servers for every namespace."""

    spec: ProviderSpec = ProviderSpec()
    status: ClusterStatus | None = None


class Endpoint(Struct):
    """Where a server listens that exists already."""

    address: Address
    dns_port: Port = 53
    rndc_port: Port = 953


class ZoneReference(ObjectReference):
    """A zone that an instance serves."""

    zone_name: str = ""


class KeyRotation(Struct):
    """When the key was and will be replaced."""

    created_at: str = ""
    rotate_at: str = ""
    last_rotated_at: str = ""
    rotation_count: int = 0


class KeyRef(Struct):
    """A key of its own for one purpose."""

    secret_ref: SecretRef


class InstanceStatus(Struct):
    """How one instance is doing."""

    conditions: Conditions = None
    observed_generation: int = 0
    observed_parent_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    service_address: str = ""
    cluster_ref: ObjectReference | None = None
    zones: Annotated[list[ZoneReference] | None, Atomic()] = None
    zones_count: int = 0
    left_behind: Annotated[list[str] | None, Atomic()] = None
    """Zones that were deleted while it was away; they are removed when it is back."""
    rndc_key_rotation: KeyRotation | None = None


class Bind9Instance(
    Resource,
    group=GROUP,
    version=VERSION,
    short_names=("b9", "b9s"),
    columns=(
        ColumnSpec(name="Cluster", json_path=".spec.clusterRef", type="string"),
        ColumnSpec(name="Role", json_path=".spec.role", type="string"),
        ColumnSpec(name="Replicas", json_path=".spec.replicas", type="integer"),
        ColumnSpec(name="Zones", json_path=".status.zonesCount", type="integer"),
        *_STATE,
    ),
):
    """One server, or several independent copies of it."""

    class Spec(Struct):
        """What is wanted."""

        _KEYED: ClassVar = (
            "!has(self.endpoints) || size(self.endpoints) == 0 || has(self.rndcKey) || has(self.rndcSecretRef)"
            " || (has(self.config) && has(self.config.rndcSecretRef))"
            " || (has(self.clusterRef) && self.clusterRef != '')"  # it may have the key
        )
        RULES: ClassVar = (
            (
                _KEYED,
                "rndcKey: a server that exists already needs the Secret of its key (rndcKey.secretRef.name)",
            ),
        )

        cluster_ref: Annotated[str, MaxLength(253)] = ""
        role: Literal["primary", "secondary"]
        replicas: Replicas | None = None
        version: Annotated[str, Pattern(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"), MaxLength(128)] | None = None
        image: Image | None = None
        config_map_refs: ConfigMapRefs | None = None
        config: Bind9Config | None = None
        primary_servers: Annotated[list[Address] | None, Atomic(), Schema(maxItems=16)] = None
        volumes: Manifests = None
        volume_mounts: Manifests = None
        rndc_key: RndcKey | None = None
        rndc_secret_ref: SecretRef | None = None
        update_key: KeyRef | None = None
        transfer_key: KeyRef | None = None
        storage: Storage | None = None
        bindcar_config: BindcarConfig | None = None
        driver: Driver = "native"
        """How zones are managed: over named's control channel, or through the sidecar at bindcarConfig.port."""
        placement: Placement | None = None
        zones_from: Annotated[list[ZoneSource] | None, Atomic(), Schema(maxItems=64)] = None
        endpoints: Annotated[list[Endpoint] | None, Atomic(), Schema(maxItems=64)] = None
        zone_directory: Annotated[str, Pattern(r"^[A-Za-z0-9_./-]*$"), MaxLength(1024)] = ""
        records_only: bool = False
        """Zones exist there already and are not added, changed or removed; only records are."""

    spec: Spec
    status: InstanceStatus | None = None
