"""ClusterBind9Provider, Bind9Cluster and Bind9Instance: servers for all namespaces, for one, and a single server.

An instance is either made by the operator (a Deployment) or exists already (`endpoints`). What an instance leaves open
its cluster decides, for its role first; what that leaves open, the built-in default.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import field

from steersman.crd.markers import Atomic, Ge, Le, MaxLength, MinLength, Pattern, Schema
from steersman.kube.api.crd_options import PrinterColumn
from steersman.kube.api.objects import Resource, Struct
from steersman.operators.dns.api.config import GROUP, VERSION
from steersman.operators.dns.api.field_types import (
    AclEntry,
    Conditions,
    PolicyName,
    Port,
    SecretRef,
    TypedReference,
    ZoneSource,
)

Acl = Annotated[list[AclEntry] | None, Atomic(), Schema(maxItems=256)]
Replicas = Annotated[int, Ge(0), Le(100)]
Manifests = Annotated[list[dict[str, Any]] | None, Atomic(), Schema(maxItems=32)]
Address = Annotated[str, Pattern(r"^[0-9A-Fa-f:.]{2,45}$"), MaxLength(45)]
Driver = Literal["native", "bindcar"]
# How long a signing key lives, as named reads it: `unlimited`, seconds, 90d or P3M.
_DIGITS: Final = r"[0-9]{1,9}"
_DATE: Final = rf"({_DIGITS}[Yy])?({_DIGITS}[Mm])?({_DIGITS}[Dd])?"
_TIME: Final = rf"([Tt]({_DIGITS}[Hh])?({_DIGITS}[Mm])?({_DIGITS}[Ss])?)?"
LIFETIME: Final = rf"(unlimited|{_DIGITS}|({_DIGITS}[WwDdHhMmSs])+|[Pp]{_DIGITS}[Ww]|[Pp]{_DATE}{_TIME})"
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
    """Name of the Secret; it must begin with `bindy-`. Its fields are the files that `dnssec-keygen` writes, with `_`
    for every `+`."""
    namespace: Annotated[str, MaxLength(63)] = ""
    """Namespace of the Secret. Only the namespace of the servers is possible, which is meant when this is empty."""


class KeySource(Struct):
    """The source of DNSSEC keys: a Secret of the user, or a PersistentVolumeClaim on which named stores them."""

    RULES: ClassVar = (
        ("!(has(self.secretRef) && has(self.persistentVolume))", "keysFrom: either secretRef or persistentVolume"),
    )

    secret_ref: KeySecretRef | None = None
    """A Secret with your own keys, which the operator only reads. A zone without keys there reports `KeysMissing`."""
    persistent_volume: dict[str, Any] | None = None
    """The spec of a PersistentVolumeClaim for the keys, such as `resources` and `storageClassName`. named makes and
    replaces the keys on it."""


class Signing(Struct):
    """How zones are signed, and where the keys are stored."""

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
    """Whether the policy exists on these servers. Zones are signed when their `dnssecPolicy` names it."""
    policy: PolicyName = "bindy-default"
    """Name of the policy, for `dnssecPolicy` of zones. `default`, `insecure` and `none` are named's own and not
    allowed."""
    algorithm: Algorithm = "ECDSAP256SHA256"
    """Algorithm of both keys, by name or number (RFC 8624). It cannot change while a Secret holds keys of zones signed
    with the old one."""
    ksk_lifetime: Lifetime = "unlimited"
    """How long a key-signing key is used: `unlimited`, a number of seconds, `90d` or `P3M`. Keys that end are made and
    replaced by named, on its disk."""
    zsk_lifetime: Lifetime = "unlimited"
    """How long a zone-signing key is used, written as in `kskLifetime`. Keys that end are made and replaced by named,
    on its disk."""
    nsec3: bool = False
    """Whether the absence of names is proved by NSEC3, which hides the names of the zone, instead of NSEC."""
    nsec3_iterations: Annotated[int, Ge(0), Le(150)] = 0
    """Additional hash iterations of NSEC3. RFC 9276 asks for 0."""
    nsec3_salt: Annotated[str, Pattern(r"^(|-|[0-9A-Fa-f]{2,64})$"), MaxLength(64)] = ""
    """Salt of NSEC3 in hexadecimal; named uses a random one of this length. RFC 9276 asks for none, which is `-` or
    empty."""
    keys_from: KeySource | None = None
    """Where the keys come from. Without it, the operator makes them and stores them in the Secret `bind9-signing-keys`
    of the namespace."""
    auto_generate: bool | None = None
    """Whether keys are made for zones that have none; true when absent. With false such a zone is served unsigned and
    reports `KeysMissing`."""
    export_to_secret: bool | None = None
    """Whether keys of unlimited lifetime are stored in a Secret, where they outlive pods and disks; true when absent.
    With false named makes them on its disk."""


class DnssecConfig(Struct):
    """Validation and signing."""

    validation: bool | None = None
    """Whether a recursive server validates signed answers of other servers. Without it, the cluster decides; false by
    default."""
    signing: Signing | None = None
    """How zones of these servers are signed. Without it, no zone is signed."""


class BindcarConfig(Struct):
    """The sidecar that serves the HTTP interface."""

    image: str = ""
    """Image of the sidecar. Pods with `driver: bindcar` need one; external servers run their own."""
    image_pull_policy: str = ""
    """When the kubelet pulls the image: `Always`, `IfNotPresent` or `Never`. `IfNotPresent` when empty."""
    args: Annotated[list[str] | None, Atomic(), Schema(maxItems=64)] = None
    """Arguments of the container; `[dns, sidecar]` for the image of Steersman. The image decides when absent."""
    resources: dict[str, Any] | None = None
    """CPU and memory of the container, as `requests` and `limits` of a pod have them."""
    port: Port | None = None
    """Port on which the sidecar serves HTTP, 8080 when absent. External servers with `driver: bindcar` are reached
    there."""
    service_spec: dict[str, Any] | None = None
    """Accepted for objects of Bindy, and has no effect. The Service of the pods gets port 80 for the sidecar."""
    log_level: str = ""
    """Value of `RUST_LOG` in the container, such as `debug`; `info` when empty."""
    env_vars: Manifests = None
    """Further environment variables of the container, as a pod has them. They replace those that the operator sets."""


class Bind9Config(Struct):
    """The configuration of named. An empty list means none; an absent list inherits the one of the cluster."""

    recursion: bool | None = None
    """Whether the servers resolve names of other zones for clients. False unless the instance or its cluster says
    otherwise."""
    allow_query: Acl = None
    """Clients that may ask: addresses, networks, keys (`key NAME`), names of `acls`, or `any` and `none`; `!` excludes.
    Any client when absent."""
    allow_transfer: Acl = None
    """Clients that may transfer zones, besides the operator and the zone's own servers, written as in `allowQuery`. An
    instance overrides its role, and a role the cluster. No other client when absent."""
    dnssec: DnssecConfig | None = None
    """Validation of signed answers, and signing of zones."""
    forwarders: Annotated[list[Address] | None, Atomic(), Schema(maxItems=16)] = None
    """Addresses of servers that resolve names of other zones, for recursive servers. Without them, named starts at the
    root servers."""
    listen_on: Acl = None
    """IPv4 addresses of the pod that named listens on, written as in `allowQuery`. All when absent."""
    listen_on_v6: Acl = None
    """IPv6 addresses of the pod that named listens on, written as in `allowQuery`. All when absent."""
    rndc_secret_ref: SecretRef | None = None
    """Secret with the control key of the servers, used where neither `rndcKey` nor `rndcSecretRef` names one."""
    bindcar_config: BindcarConfig | None = None
    """The sidecar of the servers, used where the instance has no `bindcarConfig` of its own. It needs `driver:
    bindcar`."""
    catalog_zone: Annotated[str, Pattern(r"^[A-Za-z0-9_.-]+$"), MaxLength(253)] | None = None
    """Name of the catalog zone (RFC 9432) from which secondaries with `endpoints` take their zones. It has no effect on
    pods that the operator makes."""


class RndcKey(Struct):
    """A TSIG key: an existing one (`secretRef`), or one that the operator generates and optionally rotates."""

    auto_rotate: bool = False
    """Whether the operator replaces the keys it made after `rotateAfter`. Servers load the new keys without a restart.
    """
    rotate_after: Annotated[str, Pattern(r"^[1-9][0-9]{0,4}[hdw]$"), MaxLength(6)] = "720h"
    """Age at which keys are replaced, in hours, days or weeks, such as `720h` or `30d`; at least 1 hour and at most 1
    year. It has no effect without `autoRotate`."""
    secret_ref: SecretRef | None = None
    """Secret with an existing key. External servers need one; for pods the operator makes a key when absent."""
    secret: dict[str, Any] | None = None
    """A Secret manifest whose `stringData` holds the key in clear. Prefer `secretRef`, because specs are readable."""
    algorithm: Literal["hmac-sha224", "hmac-sha256", "hmac-sha384", "hmac-sha512"] = "hmac-sha256"
    """HMAC algorithm of keys that the operator makes. Another value replaces the keys."""


class Image(Struct):
    """The container image of named."""

    image: Annotated[str, MaxLength(512)] = ""
    """Full name of the image with its tag. Without it, the official BIND 9 image with `version` as its tag."""
    image_pull_policy: Literal["", "Always", "IfNotPresent", "Never"] = ""
    """When the kubelet pulls the image; `IfNotPresent` when empty."""
    image_pull_secrets: Annotated[list[str] | None, Atomic(), Schema(maxItems=16)] = None
    """Names of Secrets in the namespace of the pods with credentials of the registry."""


class ConfigMapRefs(Struct):
    """ConfigMaps whose keys are included in the configuration."""

    named_conf: str = ""
    """ConfigMap whose key `named.conf` replaces the whole configuration that the operator writes."""
    named_conf_options: str = ""
    """ConfigMap whose key `named.conf.options` replaces the `options` statement that the operator writes."""
    named_conf_zones: str = ""
    """ConfigMap whose key `named.conf.zones` is included after the configuration that the operator writes."""


class RoleService(Struct):
    """Fields of the Service of a role, besides its ports and selector."""

    annotations: dict[str, str] | None = None
    """Annotations of the Service, such as those of a load balancer."""
    spec: dict[str, Any] | None = None
    """Fields of the Service's spec, such as `type`. Ports with the same name are merged; `selector` has no effect."""


class Spread(Struct):
    """A topology spread constraint."""

    topology_key: Annotated[str, MinLength(1), MaxLength(317)]
    """Node label whose values are the places to spread over, such as `topology.kubernetes.io/zone`."""
    max_skew: Annotated[int, Ge(1)] = 1
    """By how many pods two places may differ."""
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "ScheduleAnyway"
    """Whether a pod that would break the rule stays pending (`DoNotSchedule`) or is placed as well as possible
    (`ScheduleAnyway`)."""
    min_domains: int | None = None
    """How many places there must be before pods may share one. It needs `DoNotSchedule`."""
    scope: Literal["", "Instance", "Role", "Cluster"] = ""
    """Which pods are counted: those of the same `Instance`, `Role` or `Cluster`. Empty means `Role`."""


class Placement(Struct):
    """The placement of pods."""

    spread: Annotated[list[Spread] | None, Atomic(), Schema(maxItems=8)] = None
    """Topology spread constraints of the pods. When absent, servers of one role prefer different nodes and zones; an
    empty list removes that."""


class RoleConfig(Struct):
    """Primaries or secondaries."""

    replicas: Replicas | None = None
    """How many instances of this role the cluster has, each a Bind9Instance with one pod. None when absent."""
    labels: dict[str, str] | None = None
    """Labels of these instances, for `bind9InstancesFrom` of zones."""
    service: RoleService | None = None
    """Changes to the Service of each instance."""
    allow_transfer: Acl = None
    """Clients that may transfer zones from this role, besides the operator and the zone's own servers. It replaces
    `global.allowTransfer`."""
    rndc_key: RndcKey | None = None
    """The control key of these instances. When absent, the operator makes one for each."""
    rndc_secret_ref: SecretRef | None = None
    """Secret with the control key of these instances, the older spelling of `rndcKey.secretRef`."""
    placement: Placement | None = None
    """Where the pods of this role run."""


class PersistentClaim(Struct):
    """The PersistentVolumeClaim for the zones of a server."""

    claim_name: str = ""
    """Name of an existing claim. When empty, the operator makes `INSTANCE-zones`."""
    storage_class_name: str | None = None
    """Storage class of the claim that the operator makes. The cluster's default class when absent."""
    size: Annotated[str, MaxLength(32)] = "1Gi"
    """Size of the claim that the operator makes."""
    access_modes: Annotated[list[str] | None, Atomic(), Schema(maxItems=4)] = None
    """Access modes of the claim that the operator makes; `ReadWriteOnce` when absent."""


class Storage(Struct):
    """The storage for the zones of a server."""

    storage_type: Literal["emptyDir", "persistentVolumeClaim"] = "emptyDir"
    """Where zones are stored. With `emptyDir` a new pod gets its zones from the operator; with `persistentVolumeClaim`
    they outlive the pod."""
    empty_dir: dict[str, Any] | None = None
    """Fields of the `emptyDir` volume, such as `sizeLimit`."""
    persistent_volume_claim: PersistentClaim | None = None
    """The claim for `storageType: persistentVolumeClaim`. When absent, the operator makes one of 1Gi."""


class ClusterSpec(Struct):
    """The desired state of a cluster of servers."""

    version: Annotated[str, Pattern(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"), MaxLength(128)] = "9.18"
    """Version of BIND 9, used as the tag of the image unless `image.image` is set."""
    primary: RoleConfig | None = None
    """The primaries of the cluster, which get zones and records from the operator."""
    secondary: RoleConfig | None = None
    """The secondaries of the cluster, which transfer zones from the primaries."""
    image: Image | None = None
    """Image of named for instances that name none."""
    config_map_refs: ConfigMapRefs | None = None
    """Your own configuration files, for instances that name none."""
    global_: Bind9Config | None = field(default=None, name="global")
    """Configuration of named for all instances. Each field applies where the instance does not set it."""
    rndc_secret_refs: Annotated[list[SecretRef] | None, Atomic(), Schema(maxItems=16)] = None
    """Secrets with the control key of the instances. Only the first has an effect; the condition `Ignored` of the
    instances names the others."""
    acls: dict[str, Acl] | None = None
    """Access lists by name, for `allowQuery` and `allowTransfer` of servers that the operator makes."""
    volumes: Manifests = None
    """Further volumes of the pods, as a pod has them, for instances that have none of their own."""
    volume_mounts: Manifests = None
    """Mounts of these volumes in the container of named, below `/data/` or `/var/log/bind/`, for instances that have
    none of their own."""
    zones_from: Annotated[list[ZoneSource] | None, Atomic(), Schema(maxItems=64)] = None
    """DNSZones of the namespace that all instances serve, by their labels. It adds to the selections of zones and
    instances."""
    storage: Storage | None = None
    """Storage for zones, for instances that name none."""
    driver: Driver = "native"
    """How zones of the instances are managed: `native` uses the control channel of named, `bindcar` the HTTP interface
    of a sidecar."""


class InstanceEntry(Struct):
    """One instance of a cluster."""

    name: str = ""
    """Name of the Bind9Instance; for a provider NAMESPACE/NAME of the Bind9Cluster."""
    role: str = ""
    """`primary` or `secondary`; empty for a Bind9Cluster of a provider."""
    ready: bool = False
    """Whether its condition `Ready` is true."""
    reason: str = ""
    """Reason of its condition `Ready`; `Pending` before there is one."""


class ClusterStatus(Struct):
    """The observed state of the servers."""

    conditions: Conditions = None
    """`Ready` says whether all instances are ready, and names those that are not."""
    observed_generation: int = 0
    """`metadata.generation` of the spec that this status describes."""
    instance_count: int = 0
    """How many instances (for a provider: clusters) there are."""
    ready_instances: int = 0
    """How many of them are ready."""
    instances: Annotated[list[InstanceEntry] | None, Atomic()] = None
    """The instances of the cluster, or the clusters of the provider, with the state of each."""


_READY: Final = ".status.conditions[?(@.type=='Ready')]"
_STATE: Final = (
    PrinterColumn(name="Ready", json_path=f"{_READY}.status", type="string"),
    PrinterColumn(name="Reason", json_path=f"{_READY}.reason", type="string", priority=1),
)
_CLUSTER_COLUMNS: Final = (
    PrinterColumn(name="Version", json_path=".spec.version", type="string"),
    PrinterColumn(name="Primary", json_path=".spec.primary.replicas", type="integer"),
    PrinterColumn(name="Secondary", json_path=".spec.secondary.replicas", type="integer"),
    *_STATE,
)


class Bind9Cluster(Resource, group=GROUP, version=VERSION, short_names=("b9c", "b9cs"), columns=_CLUSTER_COLUMNS):
    """A cluster of servers in one namespace."""

    spec: ClusterSpec = ClusterSpec()
    """The servers that the cluster has, and what they have in common."""
    status: ClusterStatus | None = None
    """What the operator observed. Absent before the first reconcile."""


class ProviderSpec(ClusterSpec):
    """The desired state of the servers of a provider, and their namespace."""

    namespace: Annotated[str, MaxLength(63)] = ""
    """Namespace of the provider's cluster; the operator's own when empty. Namespaces whose instances refer to the
    provider get a cluster too."""


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
    """The servers that the provider offers, and where they run."""
    status: ClusterStatus | None = None
    """What the operator observed. Absent before the first reconcile."""


class ServerEndpoint(Struct):
    """The address and ports of an external server."""

    address: Address
    """IP address of the server."""
    dns_port: Port = 53
    """Port on which the server answers queries, updates and transfers."""
    rndc_port: Port = 953
    """Port of its control channel. It has no effect with `driver: bindcar`."""


class ZoneReference(TypedReference):
    """A zone that an instance serves."""

    zone_name: str = ""
    """Domain name of the zone, such as `example.org`."""


class KeyRotation(Struct):
    """When the key was rotated and will be rotated next."""

    created_at: str = ""
    """When the current keys were made (RFC 3339, UTC)."""
    rotate_at: str = ""
    """When they will be replaced (RFC 3339, UTC). Empty without `autoRotate`."""
    last_rotated_at: str = ""
    """When they replaced earlier keys (RFC 3339, UTC). Empty for the first keys."""
    rotation_count: int = 0
    """How many times keys were replaced."""


class KeyRef(Struct):
    """A separate key for one purpose."""

    secret_ref: SecretRef
    """Secret with the key."""


class InstanceStatus(Struct):
    """The observed state of an instance."""

    conditions: Conditions = None
    """`Ready` says whether all replicas answer. `SigningKeys` and `Ignored` appear only when they apply."""
    observed_generation: int = 0
    """`metadata.generation` of the spec that the servers run."""
    observed_parent_generation: int = 0
    """`metadata.generation` of the cluster that this status takes into account; 0 without a cluster."""
    replicas: int = 0
    """How many servers there should be."""
    ready_replicas: int = 0
    """How many of them are ready."""
    service_address: str = ""
    """Cluster IP of the Service of the pods. Empty for external servers."""
    cluster_ref: TypedReference | None = None
    """The Bind9Cluster that the instance belongs to. Absent when it belongs to none."""
    zones: Annotated[list[ZoneReference] | None, Atomic()] = None
    """The zones that the instance serves; at most 200 are listed."""
    zones_count: int = 0
    """How many zones the instance serves."""
    left_behind: Annotated[list[str] | None, Atomic()] = None
    """Zones that were deleted while the server did not answer. The operator removes them when it answers again."""
    rndc_key_rotation: KeyRotation | None = None
    """Age and rotation of the keys that the operator made. Absent for external servers."""


class Bind9Instance(
    Resource,
    group=GROUP,
    version=VERSION,
    short_names=("b9", "b9s"),
    columns=(
        PrinterColumn(name="Cluster", json_path=".spec.clusterRef", type="string"),
        PrinterColumn(name="Role", json_path=".spec.role", type="string"),
        PrinterColumn(name="Replicas", json_path=".spec.replicas", type="integer"),
        PrinterColumn(name="Zones", json_path=".status.zonesCount", type="integer"),
        *_STATE,
    ),
):
    """A DNS server, or several independent replicas of it."""

    class Spec(Struct):
        """The desired state."""

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
        """Name of the Bind9Cluster of the same namespace, or of the ClusterBind9Provider, whose settings apply where
        the instance sets none. Empty for an instance that stands alone."""
        role: Literal["primary", "secondary"]
        """A primary gets zones and records from the operator; a secondary transfers zones from the primaries."""
        replicas: Replicas | None = None
        """How many pods run, each an independent server with all zones. 1 when absent; without effect for `endpoints`.
        """
        version: Annotated[str, Pattern(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"), MaxLength(128)] | None = None
        """Version of BIND 9, used as the tag of the image unless `image.image` is set. The cluster's, or 9.18, when
        absent."""
        image: Image | None = None
        """Image of named. The cluster's when absent."""
        config_map_refs: ConfigMapRefs | None = None
        """Your own configuration files. The cluster's when absent."""
        config: Bind9Config | None = None
        """Configuration of named. Each field that is absent is as in `global` of the cluster."""
        primary_servers: Annotated[list[Address] | None, Atomic(), Schema(maxItems=16)] = None
        """Addresses (port 53) from which a secondary transfers zones. When absent, the primaries of each zone."""
        volumes: Manifests = None
        """Further volumes of the pods, as a pod has them. The cluster's when absent."""
        volume_mounts: Manifests = None
        """Mounts of these volumes in the container of named, below `/data/` or `/var/log/bind/`. The cluster's when
        absent."""
        rndc_key: RndcKey | None = None
        """The control key. Pods get one made by the operator when absent; external servers need `rndcKey.secretRef`
        unless their cluster has a key."""
        rndc_secret_ref: SecretRef | None = None
        """Secret with the control key, the older spelling of `rndcKey.secretRef`."""
        update_key: KeyRef | None = None
        """A key for updates of an external server. The control key when absent."""
        transfer_key: KeyRef | None = None
        """A key for transfers from an external server. The control key when absent."""
        storage: Storage | None = None
        """Storage for zones. The cluster's, or an `emptyDir`, when absent."""
        bindcar_config: BindcarConfig | None = None
        """The sidecar, for `driver: bindcar`. That of `config` or of the cluster when absent."""
        driver: Driver = "native"
        """How zones are managed: `native` uses the control channel of named, `bindcar` the HTTP interface of the
        sidecar at `bindcarConfig.port`."""
        placement: Placement | None = None
        """Where the pods run. As the cluster has it for the role when absent."""
        zones_from: Annotated[list[ZoneSource] | None, Atomic(), Schema(maxItems=64)] = None
        """DNSZones of the namespace that the instance serves, by their labels. It adds to the selections of zones and
        of the cluster."""
        endpoints: Annotated[list[ServerEndpoint] | None, Atomic(), Schema(maxItems=64)] = None
        """Servers that exist already. With them the operator makes no Deployment, Service or key, and uses these
        addresses."""
        zone_directory: Annotated[str, Pattern(r"^[A-Za-z0-9_./-]*$"), MaxLength(1024)] = ""
        """Directory for zone files. For an external server, one that it shares with the operator, needed only where
        named cannot reach the operator."""
        records_only: bool = False
        """Whether the operator manages only records. Zones must exist on the server, and are not added, changed or
        removed."""

    spec: Spec
    """The desired servers: pods that the operator makes, or `endpoints` that exist already."""
    status: InstanceStatus | None = None
    """What the operator observed. Absent before the first reconcile."""
