"""The API: both kinds as people write them, and every name that goes with them.

The definitions hold all fields of both published versions of the original and ours, so a resource of either is
accepted as it is. What a schema cannot say, `validation` does. Objects are watched as `StoredExecutor` and
`StoredPerformer`, whose spec is decoded by `validation` only: what an older schema let in becomes a condition on that
object and never a missing object in the cache.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from steersman.crd.markers import Ge, Le, ListMap, MinLength, Schema
from steersman.kube.api.crd_options import PrinterColumn, ScaleSubresource
from steersman.kube.api.objects import Resource, Struct
from steersman.operators.hourglass.api.scheduling import LocalReference, Resources, Scheduling, Tolerate
from steersman.runtime.reconcile.conditions import Condition

GROUP: Final = "hourglass.eigenlayer.io"
VERSION: Final = "v1alpha1"

# labels and annotations
APP: Final = "app"
EXECUTOR_APP: Final = "hourglass-executor"
PERFORMER_APP: Final = "hourglass-performer"
NAME: Final = f"{GROUP}/name"  # of the executor, on its children
PERFORMER: Final = f"{GROUP}/performer"  # of the performer, on its children
AVS: Final = f"{GROUP}/avs"
REVISION: Final = f"{GROUP}/revision"  # the beginning of the template hash, for a Service to select
TEMPLATE_HASH: Final = f"{GROUP}/pod-template-hash"
ADOPTED: Final = f"{GROUP}/adopted-template"  # on a Deployment of another version: the template we would have made
CONFIG_HASH: Final = f"{GROUP}/config-hash"
KEYS_HASH: Final = f"{GROUP}/keys-hash"

EXECUTOR_FINALIZER: Final = f"{GROUP}/finalizer"
PERFORMER_FINALIZER: Final = f"{GROUP}/performer-finalizer"
ORPHAN: Final = "orphan"

DEFAULT_PORT: Final = 9090
EXECUTOR_ACCOUNT: Final = "hourglass-executor"

Int32 = Schema(format="int32")
Replicas = Annotated[int, Ge(0), Int32]
PodSecurity = Literal["Restricted", "Compatible"]


class DisruptionBudget(Struct):
    """How many pods an eviction may take at once; one of these."""

    max_unavailable: int | str | None = None
    """How many pods an eviction may take away, as a number or a share such as `25%`. Set this or `minAvailable`."""
    min_available: int | str | None = None
    """How many pods must stay, as a number or a share such as `75%`. Set this or `maxUnavailable`."""


# ---------------------------------------------------------------------------------------------------------- executors
class Chain(Struct):
    """A chain that the executor serves."""

    name: Annotated[str, MinLength(1)]
    """Name of the chain, unique in the list."""
    rpc: Annotated[str, MinLength(1)]
    """URL of the chain's RPC endpoint."""
    chain_id: Annotated[int, Ge(1)]
    """Numeric id of the chain, such as 1 for Ethereum."""
    task_mailbox_address: Annotated[str, MinLength(1)]
    """Address of the task mailbox contract on the chain."""


class KubernetesMode(Struct):
    """How the executor runs performers on Kubernetes."""

    namespace: str = "default"
    """Namespace in which the executor runs performers. Outside its own namespace, the owner of that namespace must
    grant it the rights."""
    default_scheduling: Scheduling | None = None
    """Scheduling of performers that name this executor in `executorRef`, for the fields that they do not set."""


class ExecutorConfig(Struct):
    """What the executor is told."""

    aggregator_endpoint: Annotated[str, MinLength(1)]
    """Host and port of the aggregator that sends tasks."""
    operator_keys: dict[str, str] | None = None
    """Private keys in clear, by name, such as `ecdsa` and `bls`; mounted at `/etc/hourglass/keys`. Prefer
    `operatorKeysSecretRef`, because specs are readable. One of the two is required."""
    operator_keys_secret_ref: LocalReference | None = None
    """A Secret of the same namespace with the private keys, mounted at `/etc/hourglass/keys`. Set this or
    `operatorKeys`."""
    chains: Annotated[list[Chain], MinLength(1), ListMap("name")]
    """The chains on which the executor listens for tasks."""
    performer_mode: Literal["kubernetes", "docker"] = "kubernetes"
    """Where the executor runs performers: as pods, or as Docker containers."""
    kubernetes: KubernetesMode | None = None
    """Settings for `performerMode: kubernetes`."""
    log_level: str = "info"
    """Level of the executor's log, as the executor understands it."""


class PerformerPolicy(Struct):
    """What holds for all performers that refer to the executor."""

    max_unavailable: int | str | None = None
    """How many performers of this executor may be away at once while pods are replaced, as a number or a share such as
    `25%`. No limit besides the operator's own when absent."""


class ExecutorSpec(Struct):
    """What to run."""

    image: Annotated[str, MinLength(1)]
    """Image of the executor, with its tag or digest."""
    replicas: Replicas = 1
    """How many pods run. 0 stops the executor and keeps its objects."""
    config: Annotated[
        ExecutorConfig,
        Schema(anyOf=[{"required": ["operatorKeys"]}, {"required": ["operatorKeysSecretRef"]}]),
    ]
    """What the executor reads from its configuration file. Every change rolls the Deployment."""
    resources: Resources | None = None
    """CPU, memory and other resources of the container. The namespace's defaults when absent."""
    node_selector: dict[str, str] | None = None
    """Labels that a node must have, each with exactly this value."""
    tolerations: list[Tolerate] | None = None
    """Taints of nodes that the pods tolerate."""
    image_pull_secrets: list[LocalReference] | None = None
    """Secrets of the same namespace with credentials of the registry."""
    service_account_name: str = EXECUTOR_ACCOUNT
    """ServiceAccount of the pods; its name must match `hourglass.serviceAccounts` of the operator. The operator makes
    the default one, with a Role to run performers."""
    pod_security: PodSecurity = "Restricted"
    """`Restricted` sets what the Pod Security Standard of that name asks for; `Compatible` leaves it to the image."""
    disruption_budget: DisruptionBudget | None = None
    """How many pods an eviction may take. When absent, executors with two or more replicas lose at most one at a time.
    """
    performers: PerformerPolicy | None = None
    """Limits for all performers that name this executor in `executorRef`."""


class ExecutorStatus(Struct):
    """How it is doing."""

    phase: str = ""
    """`Running` when all replicas are up to date and available, `Pending` before that, `Stopped` with 0 replicas,
    `Terminating` during deletion."""
    replicas: Annotated[int, Int32] = 0
    """How many pods the Deployment has."""
    ready_replicas: Annotated[int, Int32] = 0
    """How many of them are ready."""
    selector: str = ""
    """Label selector of the pods, for autoscalers."""
    observed_generation: int = 0
    """`metadata.generation` of the spec that this status describes."""
    observed_image: str = ""
    """Image in the spec that this status describes."""
    config_hash: str = ""
    """Hash of the configuration file in use, without keys."""
    last_config_update: Annotated[str | None, Schema(format="date-time")] = None
    """When `configHash` last changed."""
    conditions: Annotated[list[Condition] | None, ListMap("type")] = None
    """`Available` sums up the state, `Progressing` says whether a rollout is under way, `Degraded` what is wrong."""


class HourglassExecutor(
    Resource,
    group=GROUP,
    version=VERSION,
    scale=ScaleSubresource(selector=".status.selector"),
    columns=(
        PrinterColumn(name="Image", json_path=".spec.image"),
        PrinterColumn(name="Replicas", json_path=".spec.replicas", type="integer"),
        PrinterColumn(name="Ready", json_path=".status.readyReplicas", type="integer"),
        PrinterColumn(name="Phase", json_path=".status.phase"),
    ),
):
    """An Hourglass executor: a Deployment with its configuration and keys."""

    spec: ExecutorSpec
    """The desired executor."""
    status: ExecutorStatus = ExecutorStatus()
    """What the operator observed."""


# --------------------------------------------------------------------------------------------------------- performers
class KeyReference(Struct):
    """One key of a Secret or a ConfigMap."""

    key: Annotated[str, MinLength(1)]
    """The key whose value is used."""
    name: str = ""
    """Name of the Secret or ConfigMap, in the same namespace."""
    optional: bool | None = None
    """Whether the container starts without the variable when the object or key does not exist. False when absent: the
    container waits."""


class ValueFrom(Struct):
    """Where a value comes from; one of these."""

    secret_key_ref: KeyReference | None = None
    """A key of a Secret."""
    config_map_key_ref: KeyReference | None = None
    """A key of a ConfigMap."""


class EnvironmentFrom(Struct):
    """An environment variable from elsewhere."""

    name: Annotated[str, MinLength(1)]
    """Name of the environment variable."""
    value_from: ValueFrom
    """The Secret or ConfigMap that holds the value; exactly one."""


class PerformerConfig(Struct):
    """How the performer's container is started."""

    grpc_port: Annotated[int, Ge(1), Le(65535), Int32] = DEFAULT_PORT
    """Port on which the container serves gRPC. The Service has the same port."""
    environment: dict[str, str] | None = None
    """Environment variables by name. A value can refer to another variable as `$(NAME)`."""
    environment_from: list[EnvironmentFrom] | None = None
    """Environment variables whose values are in Secrets or ConfigMaps."""
    args: list[str] | None = None
    """Arguments of the container. The image decides when absent."""
    command: list[str] | None = None
    """Command of the container. The image decides when absent."""
    service_account_name: str | None = None
    """ServiceAccount of the pod; its name must match `hourglass.serviceAccounts` of the operator. The namespace's
    default when absent."""
    probe: Literal["TCP", "GRPC"] = "TCP"
    """How readiness is tested on the gRPC port: by opening a connection (`TCP`), or by the gRPC health protocol
    (`GRPC`)."""


class Hardware(Struct):
    """What the node must have."""

    gpu_type: str | None = None
    """Type of GPU, as `hardwareMap.gpu` of the operator names it. A type without an entry is requested as
    `nvidia.com/TYPE`."""
    gpu_count: Annotated[int, Ge(0), Int32] | None = None
    """How many GPUs the pod gets. None when absent or 0."""
    tee_required: bool | None = None
    """Whether the node must have a trusted execution environment. It needs `teeType`."""
    tee_type: str | None = None
    """Type of trusted execution environment, as `hardwareMap.tee` of the operator names it; `sgx`, `sev` and `tdx` are
    known without an entry."""
    custom_labels: dict[str, str] | None = None
    """Further labels that the node must have, each with exactly this value."""


HardwareRequirements = Annotated[
    Hardware | None,
    Schema(anyOf=[{"properties": {"teeRequired": {"enum": [False]}}}, {"required": ["teeType"]}]),
]


class PerformerSpec(Struct):
    """What to run, and where."""

    avs_address: Annotated[str, MinLength(1)]
    """Address of the AVS that the performer works for. It becomes a label of its objects."""
    image: Annotated[str, MinLength(1)]
    """Image of the performer, with its tag or digest."""
    image_pull_policy: Literal["Always", "Never", "IfNotPresent"] = "IfNotPresent"
    """When the kubelet pulls the image."""
    version: str | None = None
    """Version of the performer for people and `kubectl get`. The operator does not act on it."""
    executor_ref: str | None = None
    """Name of an executor of the same namespace, whose `defaultScheduling` applies where this performer sets nothing. A
    name that does not exist is reported, and nothing is inherited."""
    config: PerformerConfig | None = None
    """Port, environment and command of the container. Defaults apply when absent."""
    resources: Resources | None = None
    """CPU, memory and other resources of the container. The namespace's defaults when absent."""
    scheduling: Scheduling | None = None
    """Where the pods may run. Fields that are absent are as in `defaultScheduling` of the executor."""
    hardware_requirements: HardwareRequirements = None
    """GPUs and other hardware that the node must have."""
    image_pull_secrets: list[LocalReference] | None = None
    """Secrets of the same namespace with credentials of the registry."""
    replicas: Annotated[int, Ge(0), Le(100), Int32] = 1
    """How many pods serve behind the Service. They are replaced one at a time."""
    strategy: Literal["Recreate", "BlueGreen"] = "Recreate"
    """How a changed pod is replaced: `Recreate` deletes the old pod first, `BlueGreen` waits until the new pod is ready
    and in the Service's endpoints."""
    pod_security: PodSecurity = "Compatible"
    """`Restricted` sets what the Pod Security Standard of that name asks for; `Compatible` leaves it to the image."""
    disruption_budget: DisruptionBudget | None = None
    """How many pods an eviction may take. When absent, performers with two or more replicas lose at most one at a time.
    """
    network_policy: Literal["None", "ExecutorOnly"] = "None"
    """`ExecutorOnly` lets only executors connect, and only to the gRPC port. `None` sets no policy."""


PHASES = Literal["Pending", "Running", "Upgrading", "Terminating", "Failed"]


class PerformerStatus(Struct):
    """How it is doing."""

    phase: PHASES | None = None
    """`Pending` before a pod runs, `Running`, `Upgrading` during a replacement, `Failed` when a pod ended,
    `Terminating` during deletion."""
    ready: bool = False
    """Whether a pod serves requests."""
    pod_name: str = ""
    """The pod to inspect first: a ready pod if there is one, of the newest template."""
    service_name: str = ""
    """Name of the Service, `performer-NAME`."""
    grpc_endpoint: str = ""
    """DNS name of the Service, which stays the same when pods are replaced."""
    replicas: Annotated[int, Int32] = 0
    """How many pods there are, without those being deleted."""
    ready_replicas: Annotated[int, Int32] = 0
    """How many pods are ready."""
    selector: str = ""
    """Label selector of the pods, for autoscalers."""
    observed_generation: int = 0
    """`metadata.generation` of the spec that this status describes."""
    observed_image: str = ""
    """Image that runs. During a replacement it is still the old one."""
    template_hash: str = ""
    """Hash of the desired pod template. A pod with another hash is replaced."""
    created_replicas: Annotated[int, Int32] = 0
    """The most pods of this template that existed at once. A pod missing from that number was lost and is created
    again."""
    recreations: Annotated[int, Int32] = 0
    """How many times a lost pod was created again; each time delays the next. It starts again at 0 after ten minutes
    without a loss."""
    last_recreation: Annotated[str | None, Schema(format="date-time")] = None
    """When a lost pod was last created again."""
    last_upgrade: Annotated[str | None, Schema(format="date-time")] = None
    """When the last replacement of all pods ended."""
    ready_time: Annotated[str | None, Schema(format="date-time")] = None
    """When the performer became ready. Absent while it is not."""
    conditions: Annotated[list[Condition] | None, ListMap("type")] = None
    """`Available` sums up the state, `Progressing` says whether a replacement is under way, `Degraded` what is wrong.
    """


class Performer(
    Resource,
    group=GROUP,
    version=VERSION,
    scale=ScaleSubresource(selector=".status.selector"),
    columns=(
        PrinterColumn(name="AVS", json_path=".spec.avsAddress"),
        PrinterColumn(name="Image", json_path=".spec.image"),
        PrinterColumn(name="Version", json_path=".spec.version"),
        PrinterColumn(name="Phase", json_path=".status.phase"),
        PrinterColumn(name="Endpoint", json_path=".status.grpcEndpoint"),
    ),
):
    """A performer of an AVS: a pod (or several) behind a Service of a stable name."""

    spec: PerformerSpec
    """The desired performer."""
    status: PerformerStatus = PerformerStatus()
    """What the operator observed."""


# ------------------------------------------------------------------------------------------------- as they are stored
class StoredExecutor(Resource, group=GROUP, version=VERSION, kind="HourglassExecutor"):
    """An executor whose spec is not decoded yet."""

    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class StoredPerformer(Resource, group=GROUP, version=VERSION, kind="Performer"):
    """A performer whose spec is not decoded yet."""

    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


def pod_name(performer: str) -> str:
    """The name of a performer's Service and of its first pod."""
    return f"performer-{performer}"


def further_name(performer: str, revision: str, number: int) -> str:
    """The name of any other pod: no other performer has one like it, whatever it is called.

    It begins as no first pod does, and read from its end it falls apart in one way only: a number, ten digits of the
    revision, and the performer.
    """
    return f"performers-{performer}-{revision}-{number}"
