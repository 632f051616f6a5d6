"""Executors, performers and their pods for tests of the hourglass operator.

await install(client)
await client.create(performer("p", namespace, image="avs:1"))
await settle_pod(client, "performer-p", namespace, ready=True)     # where nothing else moves pods along
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.kube.api.errors import AlreadyExists, NotFound
from steersman.kube.api.types.pods import Pod
from steersman.operators.hourglass.api.types import (
    GROUP,
    VERSION,
    HourglassExecutor,
    Performer,
    StoredExecutor,
    StoredPerformer,
)
from steersman.testing.waiting import eventually

if TYPE_CHECKING:
    from steersman.kube.client.client import Client

__all__ = [
    "executor",
    "executor_pods",
    "gone",
    "install",
    "performer",
    "ready_performer",
    "running_executor",
    "settle_pod",
    "status_of",
    "upstream_executor",
    "upstream_performer",
]

API = f"{GROUP}/{VERSION}"
CONFIG: dict[str, Any] = {
    "aggregatorEndpoint": "aggregator.hourglass.io:9090",
    "operatorKeys": {"ecdsa": "ecdsa-key-material", "bls": "bls-key-material"},
    "chains": [{"name": "ethereum", "rpc": "https://rpc.example", "chainId": 1, "taskMailboxAddress": "0x..."}],
}


def performer(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    """A performer; `image` and `avsAddress` are there unless said otherwise."""
    body = {"avsAddress": "0xtest-avs-address", "image": "avs:1"} | spec
    return {"apiVersion": API, "kind": "Performer", "metadata": {"name": name, "namespace": namespace}, "spec": body}


def executor(name: str, namespace: str, *, config: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """An executor with two keys and one chain."""
    metadata = {"name": name, "namespace": namespace}
    body = {"image": "executor:1", "config": CONFIG | (config or {})} | spec
    return {"apiVersion": API, "kind": "HourglassExecutor", "metadata": metadata, "spec": body}


async def install(client: Client) -> None:
    """Both definitions, served; harmless when repeated."""
    from steersman.crd.manifest import crd_manifest

    for kind in (HourglassExecutor, Performer):
        try:
            await client.create(crd_manifest(kind))
        except AlreadyExists:
            continue
    for kind in (HourglassExecutor, Performer):
        await eventually(lambda kind=kind: _served(client, kind), f"{kind.KIND.plural} are served", timeout=60)  # type: ignore[misc]


async def _served(client: Client, kind: Any) -> bool:
    await client.list(kind.KIND, namespace="default")
    return True


async def status_of(client: Client, name: str, namespace: str) -> dict[str, Any]:
    """The status of a performer, as it is now."""
    return (await client.get(StoredPerformer, name, namespace=namespace)).status or {}


async def ready_performer(client: Client, name: str, namespace: str, **fields: Any) -> dict[str, Any]:
    """Wait until a performer is ready, settled on its newest spec, and its status has these fields."""

    async def settled() -> dict[str, Any]:
        found = await client.get(StoredPerformer, name, namespace=namespace)
        status = found.status or {}
        assert status.get("observedGeneration") == found.metadata.generation, status
        assert (status.get("ready"), status.get("phase")) == (True, "Running"), status
        assert {field: status.get(field) for field in fields} == fields
        return status

    return await eventually(settled, f"performer {name} is ready", timeout=90)


async def settle_pod(
    client: Client, name: str, namespace: str, *, phase: str = "Running", ready: bool = True, **status: Any
) -> Pod:
    """Give a pod a state, in the place of a kubelet; waits until there is such a pod."""
    conditions = [{"type": "Ready", "status": "True" if ready and phase == "Running" else "False"}]
    body = {"status": {"phase": phase, "conditions": conditions, **status}}

    async def patched() -> Pod:
        return await client.patch(Pod, name, body, namespace=namespace, subresource="status")

    return await eventually(patched, f"pod {name} exists", timeout=60)


def _owner(owner: dict[str, Any], kind: str) -> dict[str, Any]:
    return {
        "apiVersion": API,
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


async def upstream_performer(client: Client, owner: dict[str, Any], node: str, *, head: bool) -> str:
    """Pod, Service and finalizer as the original leaves them, in its first version or its last; gives the pod's uid."""
    name, namespace = owner["metadata"]["name"], owner["metadata"]["namespace"]
    labels = {
        "app": "hourglass-performer",
        "hourglass.eigenlayer.io/performer": name,
        "hourglass.eigenlayer.io/avs": "0xtest-avs-address",
    }
    meta = {"name": f"performer-{name}", "namespace": namespace, "ownerReferences": [_owner(owner, "Performer")]}
    container: dict[str, Any] = {
        "name": "performer",
        "image": "avs:1",
        "ports": [{"name": "grpc", "containerPort": 9090}],
    }
    if head:
        container["imagePullPolicy"] = "IfNotPresent"
        container["readinessProbe"] = {"grpc": {"port": 9090}}
    spec = {"containers": [container], "nodeSelector": {"pool": node}, "restartPolicy": "Always"}
    pod: dict[str, Any] = await client.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta | {"labels": labels}, "spec": spec},
        field_manager="manager",
    )
    ports = [{"name": "grpc", "port": 9090, "targetPort": "grpc"}]
    selector = {"hourglass.eigenlayer.io/performer": name}
    await client.create(
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"selector": selector, "ports": ports}},
        field_manager="manager",
    )
    finalizer = {"metadata": {"finalizers": ["hourglass.eigenlayer.io/performer-finalizer"]}}
    await client.patch(StoredPerformer, name, finalizer, namespace=namespace)
    return str(pod["metadata"]["uid"])


async def upstream_executor(client: Client, owner: dict[str, Any], node: str) -> None:
    """ConfigMap and Deployment as the original leaves them."""
    name, namespace = owner["metadata"]["name"], owner["metadata"]["namespace"]
    references = {"ownerReferences": [_owner(owner, "HourglassExecutor")]}
    meta = {"name": f"{name}-config", "namespace": namespace, **references}
    data = {"config.yaml": 'aggregator_endpoint: "x"\n'}
    await client.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}, field_manager="manager"
    )
    labels = {"app": "hourglass-executor", "hourglass.eigenlayer.io/name": name}
    container = {"name": "executor", "image": "executor:1", "args": ["--config=/etc/hourglass/config.yaml"]}
    pod = {
        "containers": [container],
        "serviceAccountName": "hourglass-executor",
        "nodeSelector": {"pool": node},
        "terminationGracePeriodSeconds": 30,
    }
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    meta = {"name": name, "namespace": namespace, **references}
    await client.create(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}, field_manager="manager"
    )


async def running_executor(client: Client, name: str, namespace: str) -> dict[str, Any]:
    """The status of an executor, once it is about what is asked for and everything runs."""

    async def settled() -> dict[str, Any]:
        found = await client.get(StoredExecutor, name, namespace=namespace)
        status: dict[str, Any] = found.status or {}
        assert status.get("observedGeneration") == found.metadata.generation, status
        assert status.get("phase") == "Running", status
        return status

    return await eventually(settled, f"executor {name} runs", timeout=120)


async def executor_pods(client: Client, name: str, namespace: str) -> list[Pod]:
    """The pods of an executor that are there to stay."""
    listing = await client.list(Pod, namespace=namespace, label_selector=f"hourglass.eigenlayer.io/name={name}")
    return [pod for pod in listing.items if not pod.deleting]


async def gone(client: Client, kind: Any, name: str, namespace: str) -> bool:
    """Whether an object is not there."""
    try:
        await client.get(kind, name, namespace=namespace)
    except NotFound:
        return True
    return False
