"""The API: both kinds as people write them, and every name that goes with them.

The definitions hold all fields of both published versions of the original and ours, so a resource of either is
accepted as it is. What a schema cannot say, `validation` does. Objects are watched as `StoredExecutor` and
`StoredPerformer`, whose spec is not looked at before `validation` does: what an older schema let in is a condition on
that one object and never a hole in the cache.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from steersman.crd.markers import Ge, Le, ListMap, MinLength, Schema
from steersman.kube.definitions import ColumnSpec, ScaleSpec
from steersman.kube.objects import Resource, Struct
from steersman.operators.hourglass.scheduling import LocalReference, Resources, Scheduling, Tolerate
from steersman.runtime.conditions import Condition

__all__ = [
    "ExecutorSpec",
    "HourglassExecutor",
    "Performer",
    "PerformerSpec",
    "StoredExecutor",
    "StoredPerformer",
]

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


class Budget(Struct):
    """How many pods an eviction may take at once; one of these."""

    max_unavailable: int | str | None = None
    min_available: int | str | None = None


# ---------------------------------------------------------------------------------------------------------- executors
class Chain(Struct):
    """A chain that the executor serves."""

    name: Annotated[str, MinLength(1)]
    rpc: Annotated[str, MinLength(1)]
    chain_id: Annotated[int, Ge(1)]
    task_mailbox_address: Annotated[str, MinLength(1)]


class KubernetesMode(Struct):
    """How the executor runs performers on Kubernetes."""

    namespace: str = "default"
    default_scheduling: Scheduling | None = None
    """What performers that refer to this executor inherit where they say nothing."""


class ExecutorConfig(Struct):
    """What the executor is told."""

    aggregator_endpoint: Annotated[str, MinLength(1)]
    operator_keys: dict[str, str] | None = None
    """Private keys in clear, by name. A Secret named by operatorKeysSecretRef is safer: specs are readable."""
    operator_keys_secret_ref: LocalReference | None = None
    """A Secret of the same namespace that holds the keys."""
    chains: Annotated[list[Chain], MinLength(1), ListMap("name")]
    performer_mode: Literal["kubernetes", "docker"] = "kubernetes"
    kubernetes: KubernetesMode | None = None
    log_level: str = "info"


class PerformerPolicy(Struct):
    """What holds for all performers that refer to the executor."""

    max_unavailable: int | str | None = None
    """So many of them (or such a share, as 25%) may be away at once while they are replaced."""


class ExecutorSpec(Struct):
    """What to run."""

    image: Annotated[str, MinLength(1)]
    replicas: Replicas = 1
    config: Annotated[
        ExecutorConfig,
        Schema(anyOf=[{"required": ["operatorKeys"]}, {"required": ["operatorKeysSecretRef"]}]),
    ]
    resources: Resources | None = None
    node_selector: dict[str, str] | None = None
    tolerations: list[Tolerate] | None = None
    image_pull_secrets: list[LocalReference] | None = None
    service_account_name: str = EXECUTOR_ACCOUNT
    pod_security: PodSecurity = "Restricted"
    """Restricted: as the Pod Security Standard of that name asks. Compatible: as the image has it."""
    disruption_budget: Budget | None = None
    """Without it, executors of two or more replicas lose at most one to evictions."""
    performers: PerformerPolicy | None = None


class ExecutorStatus(Struct):
    """How it is doing."""

    phase: str = ""
    replicas: Annotated[int, Int32] = 0
    ready_replicas: Annotated[int, Int32] = 0
    selector: str = ""
    observed_generation: int = 0
    observed_image: str = ""
    config_hash: str = ""
    last_config_update: Annotated[str | None, Schema(format="date-time")] = None
    conditions: Annotated[list[Condition] | None, ListMap("type")] = None


class HourglassExecutor(
    Resource,
    group=GROUP,
    version=VERSION,
    scale=ScaleSpec(selector=".status.selector"),
    columns=(
        ColumnSpec(name="Image", json_path=".spec.image"),
        ColumnSpec(name="Replicas", json_path=".spec.replicas", type="integer"),
        ColumnSpec(name="Ready", json_path=".status.readyReplicas", type="integer"),
        ColumnSpec(name="Phase", json_path=".status.phase"),
    ),
):
    """An Hourglass executor: a Deployment with its configuration and keys."""

    spec: ExecutorSpec
    status: ExecutorStatus = ExecutorStatus()


# --------------------------------------------------------------------------------------------------------- performers
class KeyReference(Struct):
    """One key of a Secret or a ConfigMap."""

    key: Annotated[str, MinLength(1)]
    name: str = ""
    optional: bool | None = None


class ValueFrom(Struct):
    """Where a value comes from; one of these."""

    secret_key_ref: KeyReference | None = None
    config_map_key_ref: KeyReference | None = None


class EnvironmentFrom(Struct):
    """An environment variable from elsewhere."""

    name: Annotated[str, MinLength(1)]
    value_from: ValueFrom


class PerformerConfig(Struct):
    """How the performer's container is started."""

    grpc_port: Annotated[int, Ge(1), Le(65535), Int32] = DEFAULT_PORT
    environment: dict[str, str] | None = None
    environment_from: list[EnvironmentFrom] | None = None
    args: list[str] | None = None
    command: list[str] | None = None
    service_account_name: str | None = None
    probe: Literal["TCP", "GRPC"] = "TCP"
    """How readiness is asked: by a connection, or by the gRPC health protocol (Kubernetes 1.24 and newer)."""


class Hardware(Struct):
    """What the node must have."""

    gpu_type: str | None = None
    gpu_count: Annotated[int, Ge(0), Int32] | None = None
    tee_required: bool | None = None
    tee_type: str | None = None
    custom_labels: dict[str, str] | None = None


HardwareRequirements = Annotated[
    Hardware | None,
    Schema(anyOf=[{"properties": {"teeRequired": {"enum": [False]}}}, {"required": ["teeType"]}]),
]


class PerformerSpec(Struct):
    """What to run, and where."""

    avs_address: Annotated[str, MinLength(1)]
    image: Annotated[str, MinLength(1)]
    image_pull_policy: Literal["Always", "Never", "IfNotPresent"] = "IfNotPresent"
    version: str | None = None
    executor_ref: str | None = None
    """An executor of the same namespace, whose defaults for scheduling hold where this performer says nothing."""
    config: PerformerConfig | None = None
    resources: Resources | None = None
    scheduling: Scheduling | None = None
    hardware_requirements: HardwareRequirements = None
    image_pull_secrets: list[LocalReference] | None = None
    replicas: Annotated[int, Ge(0), Le(100), Int32] = 1
    strategy: Literal["Recreate", "BlueGreen"] = "Recreate"
    """Recreate: old pods go before new ones come. BlueGreen: new pods are ready before the Service turns to them."""
    pod_security: PodSecurity = "Compatible"
    disruption_budget: Budget | None = None
    network_policy: Literal["None", "ExecutorOnly"] = "None"
    """ExecutorOnly: nobody but executors may connect, and only to the gRPC port."""


PHASES = Literal["Pending", "Running", "Upgrading", "Terminating", "Failed"]


class PerformerStatus(Struct):
    """How it is doing."""

    phase: PHASES | None = None
    ready: bool = False
    pod_name: str = ""
    service_name: str = ""
    grpc_endpoint: str = ""
    replicas: Annotated[int, Int32] = 0
    ready_replicas: Annotated[int, Int32] = 0
    selector: str = ""
    observed_generation: int = 0
    observed_image: str = ""
    template_hash: str = ""
    created_replicas: Annotated[int, Int32] = 0
    """How many pods of this template there have been at once: one that is missing was lost."""
    recreations: Annotated[int, Int32] = 0
    last_recreation: Annotated[str | None, Schema(format="date-time")] = None
    last_upgrade: Annotated[str | None, Schema(format="date-time")] = None
    ready_time: Annotated[str | None, Schema(format="date-time")] = None
    conditions: Annotated[list[Condition] | None, ListMap("type")] = None


class Performer(
    Resource,
    group=GROUP,
    version=VERSION,
    scale=ScaleSpec(selector=".status.selector"),
    columns=(
        ColumnSpec(name="AVS", json_path=".spec.avsAddress"),
        ColumnSpec(name="Image", json_path=".spec.image"),
        ColumnSpec(name="Version", json_path=".spec.version"),
        ColumnSpec(name="Phase", json_path=".status.phase"),
        ColumnSpec(name="Endpoint", json_path=".status.grpcEndpoint"),
    ),
):
    """A performer of an AVS: a pod (or several) behind a Service of a stable name."""

    spec: PerformerSpec
    status: PerformerStatus = PerformerStatus()


# ------------------------------------------------------------------------------------------------- as they are stored
class StoredExecutor(Resource, group=GROUP, version=VERSION, kind="HourglassExecutor"):
    """An executor whose spec nobody has read yet."""

    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class StoredPerformer(Resource, group=GROUP, version=VERSION, kind="Performer"):
    """A performer whose spec nobody has read yet."""

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
