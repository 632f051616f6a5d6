"""Pods and what they are made of: the part of the API that workloads and controllers read most. Pure data.

Everything that makes a pod refer to another object is typed (environment, volumes, pull secrets, claims); what only
the kubelet or the scheduler interprets (probes, affinity, security contexts) stays plain JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import field

from steersman.kube.api.objects import ObjectMeta, Resource, Struct
from steersman.kube.api.types.meta import Amount, BaseCondition
from steersman.kube.api.types.volumes import LocalObjectReference, Volume, VolumeMount

__all__ = [
    "ConfigMapEnvSource",
    "ConfigMapKeySelector",
    "Container",
    "ContainerPort",
    "ContainerState",
    "ContainerStateRunning",
    "ContainerStateTerminated",
    "ContainerStateWaiting",
    "ContainerStatus",
    "EnvFromSource",
    "EnvVar",
    "EnvVarSource",
    "EphemeralContainer",
    "Pod",
    "PodCondition",
    "PodIP",
    "PodSpec",
    "PodStatus",
    "PodTemplateSpec",
    "ResourceRequirements",
    "SecretEnvSource",
    "SecretKeySelector",
    "Toleration",
]


# -------------------------------------------------------------------------------------------------------- environment
class ConfigMapKeySelector(Struct):
    """One key of a ConfigMap."""

    name: str = ""
    key: str
    optional: bool | None = None


class SecretKeySelector(Struct):
    """One key of a Secret."""

    name: str = ""
    key: str
    optional: bool | None = None


class EnvVarSource(Struct):
    """Where the value of an environment variable comes from: one of these."""

    config_map_key_ref: ConfigMapKeySelector | None = None
    secret_key_ref: SecretKeySelector | None = None
    field_ref: dict[str, Any] | None = None
    resource_field_ref: dict[str, Any] | None = None
    file_key_ref: dict[str, Any] | None = None


class EnvVar(Struct):
    """One environment variable."""

    name: str
    value: str = ""
    value_from: EnvVarSource | None = None


class ConfigMapEnvSource(Struct):
    """All keys of a ConfigMap."""

    name: str = ""
    optional: bool | None = None


class SecretEnvSource(Struct):
    """All keys of a Secret."""

    name: str = ""
    optional: bool | None = None


class EnvFromSource(Struct):
    """Environment variables from every key of an object: one of these."""

    prefix: str = ""
    config_map_ref: ConfigMapEnvSource | None = None
    secret_ref: SecretEnvSource | None = None


# --------------------------------------------------------------------------------------------------------- containers
class ContainerPort(Struct):
    """A port that a container listens on."""

    container_port: int
    name: str = ""
    protocol: str = ""
    host_port: int = 0
    host_ip: str = field(default="", name="hostIP")


class ResourceRequirements(Struct):
    """What a container asks for and may use at most."""

    requests: dict[str, Amount] | None = None
    limits: dict[str, Amount] | None = None
    claims: Sequence[dict[str, Any]] = ()


class Container(Struct):
    """One program of a pod."""

    name: str
    image: str = ""
    image_pull_policy: str = ""
    command: Sequence[str] = ()
    args: Sequence[str] = ()
    working_dir: str = ""
    ports: Sequence[ContainerPort] = ()
    env: Sequence[EnvVar] = ()
    env_from: Sequence[EnvFromSource] = ()
    resources: ResourceRequirements | None = None
    resize_policy: Sequence[dict[str, Any]] = ()
    restart_policy: str | None = None
    volume_mounts: Sequence[VolumeMount] = ()
    volume_devices: Sequence[dict[str, Any]] = ()
    liveness_probe: dict[str, Any] | None = None
    readiness_probe: dict[str, Any] | None = None
    startup_probe: dict[str, Any] | None = None
    lifecycle: dict[str, Any] | None = None
    security_context: dict[str, Any] | None = None
    termination_message_path: str = ""
    termination_message_policy: str = ""
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False


class EphemeralContainer(Container):
    """A container added to a running pod to look into it."""

    target_container_name: str = ""


# ---------------------------------------------------------------------------------------------------------------- pod
class Toleration(Struct):
    """A taint that a pod can live with."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class PodSpec(Struct):
    """What a pod should be."""

    containers: Sequence[Container] | None = ()  # null from some clients' templates
    init_containers: Sequence[Container] = ()
    ephemeral_containers: Sequence[EphemeralContainer] = ()
    volumes: Sequence[Volume] = ()
    image_pull_secrets: Sequence[LocalObjectReference] = ()
    service_account_name: str = ""
    service_account: str = ""  # the deprecated name of the same field; servers set both
    automount_service_account_token: bool | None = None
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: dict[str, Any] | None = None
    tolerations: Sequence[Toleration] = ()
    topology_spread_constraints: Sequence[dict[str, Any]] = ()
    scheduler_name: str = ""
    scheduling_gates: Sequence[dict[str, Any]] = ()
    priority_class_name: str = ""
    priority: int | None = None
    preemption_policy: str | None = None
    restart_policy: str = ""
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    security_context: dict[str, Any] | None = None
    host_network: bool = False
    host_pid: bool = field(default=False, name="hostPID")
    host_ipc: bool = field(default=False, name="hostIPC")
    host_users: bool | None = None
    share_process_namespace: bool | None = None
    hostname: str = ""
    subdomain: str = ""
    set_hostname_as_fqdn: bool | None = field(default=None, name="setHostnameAsFQDN")
    host_aliases: Sequence[dict[str, Any]] = ()
    dns_policy: str = ""
    dns_config: dict[str, Any] | None = None
    readiness_gates: Sequence[dict[str, Any]] = ()
    runtime_class_name: str | None = None
    enable_service_links: bool | None = None
    overhead: dict[str, Amount] | None = None
    os: dict[str, Any] | None = None
    resources: ResourceRequirements | None = None
    resource_claims: Sequence[dict[str, Any]] = ()


class PodTemplateSpec(Struct):
    """What the pods of a workload should be."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodSpec = field(default_factory=PodSpec)


class PodCondition(BaseCondition):
    """One aspect of a pod's state: Ready, Initialized, PodScheduled, ContainersReady, DisruptionTarget."""

    last_probe_time: str | None = None
    observed_generation: int = 0


class ContainerStateWaiting(Struct):
    """Not running yet, and why: ContainerCreating, CrashLoopBackOff, ImagePullBackOff, CreateContainerConfigError."""

    reason: str = ""
    message: str = ""


class ContainerStateRunning(Struct):
    """Running since."""

    started_at: str | None = None


class ContainerStateTerminated(Struct):
    """How and when it ended."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    container_id: str = field(default="", name="containerID")


class ContainerState(Struct):
    """One of these; none means waiting."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Struct):
    """What a container is."""

    name: str
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    image: str = ""
    image_id: str = field(default="", name="imageID")
    container_id: str = field(default="", name="containerID")
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    resources: ResourceRequirements | None = None


class PodIP(Struct):
    """One address of a pod."""

    ip: str = ""


class PodStatus(Struct):
    """What a pod is."""

    phase: str = ""  # Pending, Running, Succeeded, Failed or Unknown
    reason: str = ""
    message: str = ""
    nominated_node_name: str = ""
    conditions: Sequence[PodCondition] = ()
    container_statuses: Sequence[ContainerStatus] = ()
    init_container_statuses: Sequence[ContainerStatus] = ()
    ephemeral_container_statuses: Sequence[ContainerStatus] = ()
    host_ip: str = field(default="", name="hostIP")
    pod_ip: str = field(default="", name="podIP")
    pod_ips: Sequence[PodIP] = field(default=(), name="podIPs")
    start_time: str | None = None
    qos_class: str = ""
    observed_generation: int = 0


class Pod(Resource, version="v1"):
    """Containers that run together on one node."""

    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)
