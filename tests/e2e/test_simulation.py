"""The embedded server with the simulation behind it, as kubectl and a client see it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from steersman.apiserver import EmbeddedServer
from steersman.kube.api.types.apps import DaemonSet, Deployment, ReplicaSet, StatefulSet
from steersman.kube.api.types.batch import Job
from steersman.kube.api.types.core import Node
from steersman.kube.api.types.discovery import EndpointSlice
from steersman.kube.api.types.pods import Pod
from steersman.kube.client.client import Client
from steersman.kube.config.config import AuthInfo, Config
from steersman.kube.config.kubeconfig import load_config
from steersman.simulate import controllers, simulation
from steersman.simulate.annotations import FAIL, TERMINATE_AFTER
from steersman.testing import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.runtime.manager.manager import Manager
    from steersman.testing.programs import Program

STEERSMAN = Path(sys.executable).with_name("steersman")

pytestmark = pytest.mark.usefixtures("simulated")


def workload(
    kind: str, name: str = "web", *, image: str = "app:1", annotations: dict | None = None, **spec: Any
) -> dict:
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels, "annotations": annotations or {}},
        "spec": {"containers": [{"name": "main", "image": image, "ports": [{"name": "http", "containerPort": 8080}]}]},
    }
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
        return {
            "apiVersion": "batch/v1",
            "kind": kind,
            "metadata": {"name": name},
            "spec": {"template": template, **spec},
        }
    body = {"selector": {"matchLabels": labels}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": body}


async def settled(client: Client, namespace: str, name: str = "web") -> Deployment:
    async def fact() -> Deployment | None:
        one = await client.get(Deployment, name, namespace=namespace)
        wanted, status = one.spec.replicas, one.status
        complete = status.replicas == status.updated_replicas == status.available_replicas == wanted
        return one if complete and status.observed_generation == one.metadata.generation else None

    found = await eventually(fact, f"deployment {name} is rolled out")
    assert found is not None
    return found


async def pods_of(client: Client, namespace: str, name: str = "web") -> list[Pod]:
    return list((await client.list(Pod, namespace=namespace, label_selector=f"app={name}")).items)


async def runs_only(client: Client, namespace: str, image: str) -> bool:
    """Whether every pod is of this template; those before it end in their own time."""
    return {pod.spec.containers[0].image for pod in await pods_of(client, namespace)} == {image}


async def test_the_cluster_has_two_ready_nodes(client: Client) -> None:
    async def ready() -> bool:
        nodes = (await client.list(Node)).items
        conditions = {
            (node.name, one.status) for node in nodes for one in node.status.conditions if one.type == "Ready"
        }
        return conditions == {("node-1", "True"), ("node-2", "True")}

    await eventually(ready)


async def test_a_deployment_gets_running_pods_with_addresses_of_their_own(client: Client, namespace: str) -> None:
    await client.create(workload("Deployment", replicas=3), namespace=namespace)
    await settled(client, namespace)
    pods = await pods_of(client, namespace)
    assert [pod.status.phase for pod in pods] == ["Running"] * 3
    assert len({pod.status.pod_ip for pod in pods}) == 3
    assert {pod.spec.node_name for pod in pods} <= {"node-1", "node-2"}
    assert all(one.ready and one.state and one.state.running for pod in pods for one in pod.status.container_statuses)


async def test_kubectl_rollout_follows_an_update_and_undoes_it(
    client: Client, namespace: str, kubectl: Program
) -> None:
    here = ("-n", namespace)
    await kubectl("apply", *here, "-f", "-", stdin=yaml.safe_dump(workload("Deployment", replicas=3)))
    said = await kubectl("rollout", "status", *here, "deployment/web", "--timeout=120s")
    assert 'deployment "web" successfully rolled out' in said.out
    await kubectl("set", "image", *here, "deployment/web", "main=app:2")
    await kubectl("rollout", "status", *here, "deployment/web", "--timeout=120s")
    await eventually(lambda: runs_only(client, namespace, "app:2"))
    await kubectl("rollout", "undo", *here, "deployment/web")
    await kubectl("rollout", "status", *here, "deployment/web", "--timeout=120s")
    await eventually(lambda: runs_only(client, namespace, "app:1"))
    history = await kubectl("rollout", "history", *here, "deployment/web")
    assert [line.split()[0] for line in history.out.splitlines()[2:] if line] == ["2", "3"]
    assert len((await client.list(ReplicaSet, namespace=namespace)).items) == 2


async def test_a_template_that_never_becomes_ready_stops_its_own_rollout(
    client: Client, namespace: str, kubectl: Program
) -> None:
    rolling = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    made = workload("Deployment", replicas=3, strategy=rolling, progressDeadlineSeconds=1)
    await client.create(made, namespace=namespace)
    await settled(client, namespace)
    patch = {"spec": {"template": {"metadata": {"annotations": {FAIL: "never-ready"}}}}}
    await client.patch(Deployment, "web", patch, namespace=namespace)
    said = await kubectl("rollout", "status", "-n", namespace, "deployment/web", "--timeout=120s", check=False)
    assert said.code == 1
    assert "exceeded its progress deadline" in said.err

    async def stopped() -> bool:
        status = (await client.get(Deployment, "web", namespace=namespace)).status
        return (status.available_replicas, status.updated_replicas, status.replicas) == (3, 1, 4)

    await eventually(stopped)


@pytest.mark.parametrize(
    ("failure", "phase", "reason"),
    [("crash", "Running", "CrashLoopBackOff"), ("image-pull", "Pending", "ImagePullBackOff")],
)
async def test_a_pod_fails_in_the_way_its_annotation_asks_for_and_recovers_without_it(
    failure: str, phase: str, reason: str, client: Client, namespace: str
) -> None:
    await client.create(workload("Deployment", replicas=1, annotations={FAIL: failure}), namespace=namespace)

    async def failing() -> Pod | None:
        for pod in await pods_of(client, namespace):
            states = [one.state for one in pod.status.container_statuses]
            if pod.status.phase == phase and [s.waiting.reason for s in states if s and s.waiting] == [reason]:
                return pod
        return None

    pod = await eventually(failing)
    assert pod is not None
    await client.patch(Pod, pod.name, {"metadata": {"annotations": {FAIL: None}}}, namespace=namespace)
    await settled(client, namespace)


async def test_scaling_down_and_up_again_changes_the_number_of_pods(client: Client, namespace: str) -> None:
    await client.create(workload("Deployment", replicas=4), namespace=namespace)
    await settled(client, namespace)
    for replicas in (1, 3, 0):
        await client.scale(Deployment, "web", replicas, namespace=namespace)
        await settled(client, namespace)
        await eventually(lambda wanted=replicas: _counts(client, namespace, wanted))


async def _counts(client: Client, namespace: str, wanted: int) -> bool:
    return len(await pods_of(client, namespace)) == wanted


async def test_deleting_a_deployment_takes_its_replica_sets_and_pods_with_it(client: Client, namespace: str) -> None:
    await client.create(workload("Deployment", replicas=2), namespace=namespace)
    await settled(client, namespace)
    await client.delete(Deployment, "web", namespace=namespace, propagation="Background")

    async def gone() -> bool:
        sets = (await client.list(ReplicaSet, namespace=namespace)).items
        return not sets and not await pods_of(client, namespace)

    await eventually(gone)


async def test_a_pod_that_is_slow_to_end_stays_until_it_has_ended(client: Client, namespace: str) -> None:
    slow = {TERMINATE_AFTER: "20s"}
    await client.create(workload("Deployment", replicas=1, annotations=slow), namespace=namespace)
    await settled(client, namespace)
    (pod,) = await pods_of(client, namespace)
    await client.delete(Pod, pod.name, namespace=namespace)
    await eventually(lambda: _counts(client, namespace, 2))
    await client.delete(Pod, pod.name, namespace=namespace, grace_period_seconds=0)
    await settled(client, namespace)


async def test_a_stateful_set_is_rolled_from_the_last_pod_to_its_partition(
    client: Client, namespace: str, kubectl: Program
) -> None:
    here = ("-n", namespace)
    update = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    claims = [
        {
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
    ]
    made = workload("StatefulSet", replicas=3, serviceName="web", updateStrategy=update, volumeClaimTemplates=claims)
    await client.create(made, namespace=namespace)
    await kubectl("rollout", "status", *here, "statefulset/web", "--timeout=120s")
    await kubectl("set", "image", *here, "statefulset/web", "main=app:2")
    said = await kubectl("rollout", "status", *here, "statefulset/web", "--timeout=120s")
    assert "partitioned roll out complete: 2 new pods have been updated" in said.out

    async def partitioned() -> bool:
        images = {pod.name: pod.spec.containers[0].image for pod in await pods_of(client, namespace)}
        return images == {"web-0": "app:1", "web-1": "app:2", "web-2": "app:2"}

    await eventually(partitioned)
    patch = {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}
    await client.patch(StatefulSet, "web", patch, namespace=namespace)
    said = await kubectl("rollout", "status", *here, "statefulset/web", "--timeout=120s")
    await eventually(lambda: runs_only(client, namespace, "app:2"))
    await kubectl("rollout", "undo", *here, "statefulset/web")
    await kubectl("rollout", "status", *here, "statefulset/web", "--timeout=120s")
    await eventually(lambda: runs_only(client, namespace, "app:1"))


async def test_a_daemon_set_has_a_pod_on_every_node_and_rolls(client: Client, namespace: str, kubectl: Program) -> None:
    here = ("-n", namespace)
    await client.create(workload("DaemonSet"), namespace=namespace)
    await kubectl("rollout", "status", *here, "daemonset/web", "--timeout=120s")
    assert {pod.spec.node_name for pod in await pods_of(client, namespace)} == {"node-1", "node-2"}
    await kubectl("set", "image", *here, "daemonset/web", "main=app:2")
    await kubectl("rollout", "status", *here, "daemonset/web", "--timeout=120s")
    await eventually(lambda: runs_only(client, namespace, "app:2"))

    async def available() -> bool:
        return (await client.get(DaemonSet, "web", namespace=namespace)).status.number_available == 2

    await eventually(available)


async def test_a_job_completes_and_one_that_crashes_fails(client: Client, namespace: str, kubectl: Program) -> None:
    here = ("-n", namespace)
    await client.create(workload("Job", "good", completions=3, parallelism=2), namespace=namespace)
    await client.create(workload("Job", "bad", annotations={FAIL: "crash"}, backoffLimit=1), namespace=namespace)
    await kubectl("wait", *here, "--for=condition=complete", "job/good", "--timeout=120s")
    await kubectl("wait", *here, "--for=condition=failed", "job/bad", "--timeout=120s")
    good, bad = [await client.get(Job, name, namespace=namespace) for name in ("good", "bad")]
    assert (good.status.succeeded, bad.status.failed) == (3, 2)


async def test_a_service_has_the_ready_pods_as_endpoints(client: Client, namespace: str) -> None:
    ports = [{"name": "web", "port": 80, "targetPort": "http"}]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"clusterIP": "None", "selector": {"app": "web"}, "ports": ports},
    }
    await client.create(service, namespace=namespace)
    made = await client.create(
        workload("Deployment", replicas=2, annotations={FAIL: "never-ready"}), namespace=namespace
    )

    async def endpoints(ready: list[bool]) -> bool:
        slices = (
            await client.list(EndpointSlice, namespace=namespace, label_selector="kubernetes.io/service-name=web")
        ).items
        found = [one.conditions.ready for part in slices for one in part.endpoints or () if one.conditions]
        numbers = {port.port for part in slices for port in part.ports or ()}
        return found == ready and numbers == {8080}

    await eventually(lambda: endpoints([False, False]))
    healthy = {"spec": {"template": {"metadata": {"annotations": {FAIL: None}}}}}
    await client.patch(Deployment, made["metadata"]["name"], healthy, namespace=namespace)
    await eventually(lambda: endpoints([True, True]))


@pytest.mark.slow
async def test_a_simulation_that_is_started_again_finds_nothing_to_write() -> None:
    async with EmbeddedServer() as server:
        config = Config(server=server.url, ca=server.ca_pem.encode(), auth=AuthInfo(token=server.token))
        async with Client.connect(config) as client:
            async with simulation(client) as manager:
                for kind in ("Deployment", "StatefulSet", "DaemonSet"):
                    await client.create(workload(kind, kind.lower()), namespace="default")
                await client.create(workload("Job", "job"), namespace="default")
                failing = workload("Deployment", "crashing", annotations={FAIL: "crash"})
                await client.create(failing, namespace="default")
                await settled(client, "default", "deployment")
                await eventually(lambda: _finished(client))
                await eventually(_at_rest(manager, server))
            before = server.revision
            async with simulation(client) as manager:
                await eventually(_at_rest(manager, server))
            assert server.revision == before


async def _finished(client: Client) -> bool:
    """Whether the last thing has happened that will happen to each of them."""
    stateful = await client.get(StatefulSet, "statefulset", namespace="default")
    daemons = await client.get(DaemonSet, "daemonset", namespace="default")
    job = await client.get(Job, "job", namespace="default")
    crashing = await client.get(Deployment, "crashing", namespace="default")
    (crashed,) = await pods_of(client, "default", "crashing")
    return (
        stateful.status.available_replicas == 1
        and daemons.status.number_available == 2
        and any(condition.type == "Complete" for condition in job.status.conditions)
        and crashing.status.updated_replicas == 1
        and crashed.status.container_statuses[0].restart_count == 1
    )


def _at_rest(manager: Manager, server: EmbeddedServer) -> Callable[[], bool]:
    """Whether nothing is left to do: idle, many times in a row, with nothing written in between."""
    looks: list[int] = []

    def fact() -> bool:
        looks.append(server.revision if _idle(manager) else -len(looks))
        return len(looks) >= 12 and len(set(looks[-12:])) == 1

    return fact


def _idle(manager: Manager) -> bool:
    """Whether nobody works on anything or is about to; deadlines far ahead do not count."""
    queues = [manager.runner(controller.name).queue for controller in controllers()]
    waiting = [entry["inSeconds"] for queue in queues for entry in queue.describe()["waiting"]]
    return not any(len(queue) or queue.processing for queue in queues) and all(seconds > 2 for seconds in waiting)


@pytest.mark.slow
async def test_the_command_simulates_a_cluster_when_asked_to(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    process = await asyncio.create_subprocess_exec(
        STEERSMAN, "apiserver", "--simulate", "--kubeconfig-out", str(kubeconfig), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        while b"simulating" not in await process.stdout.readline():
            assert process.returncode is None
        async with Client.connect(load_config(kubeconfig)) as client:
            await client.create(workload("Deployment", replicas=2), namespace="default")
            await settled(client, "default")
    finally:
        process.terminate()
        await process.communicate()
    assert process.returncode == 0
