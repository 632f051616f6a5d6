"""Executors, the documented samples, adoption and what a client relies on, on the real control plane."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
import yaml

from steersman.kube.api.errors import Forbidden, NotFound
from steersman.kube.api.types import (
    ConfigMap,
    Deployment,
    Namespace,
    Pod,
    PodDisruptionBudget,
    Secret,
    Service,
    ServiceAccount,
)
from steersman.operators.hourglass.api.types import StoredExecutor, StoredPerformer
from steersman.testing import eventually
from tests.support.hourglass import (
    API,
    CONFIG,
    executor,
    executor_pods,
    gone,
    performer,
    ready_performer,
    running_executor,
    status_of,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CHAINS = {"ethereum": 1, "base": 8453, "arbitrum": 42161}


def chains(*names):
    return [
        {"name": name, "rpc": f"https://{name}.example/v2/...", "chainId": CHAINS[name], "taskMailboxAddress": "0x..."}
        for name in names
    ]


async def test_an_executor_of_two_replicas_has_everything_and_scales_by_its_scale(
    admin, operator, pool, namespace, full
):
    node = await pool()
    await admin.create(executor("e", namespace, replicas=2, nodeSelector={"pool": node}))
    status = await running_executor(admin, "e", namespace)
    assert status["conditions"][-1]["reason"] == "DeploymentAvailable"
    config = await admin.get(ConfigMap, "e-config", namespace=namespace)
    assert yaml.safe_load(config.data["config.yaml"])["chains"][0]["chain_id"] == 1
    secret = await admin.get(Secret, "e-keys", namespace=namespace)
    assert secret.data == {name: value.encode() for name, value in CONFIG["operatorKeys"].items()}
    budget = await admin.get(PodDisruptionBudget, "e", namespace=namespace)
    assert budget.spec.max_unavailable == 1
    assert (await admin.get(ServiceAccount, "hourglass-executor", namespace=namespace)).name
    account = f"system:serviceaccount:{namespace}:hourglass-executor"
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": account,
            "resourceAttributes": {
                "verb": "create",
                "group": "hourglass.eigenlayer.io",
                "resource": "performers",
                "namespace": namespace,
            },
        },
    }

    async def allowed():  # the authorizer learns of a Role by a watch of its own
        answer = await admin.raw_post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return answer["status"]["allowed"]

    await eventually(allowed, "the account may create performers", timeout=90)

    scale = await admin.scale(StoredExecutor, "e", 3, namespace=namespace)
    assert scale.spec.replicas == 3
    await running_executor(admin, "e", namespace)
    scale = await admin.scale(StoredExecutor, "e", namespace=namespace)
    assert (scale.status.replicas, scale.status.selector) == (
        3,
        "app=hourglass-executor,hourglass.eigenlayer.io/name=e",
    )
    await admin.scale(StoredExecutor, "e", 0, namespace=namespace)
    await eventually(lambda: _phase(admin, "e", namespace, "Stopped"), timeout=90)
    assert await eventually(lambda: gone(admin, PodDisruptionBudget, "e", namespace), timeout=90)


async def _phase(client, name, namespace, phase):
    return ((await client.get(StoredExecutor, name, namespace=namespace)).status or {}).get("phase") == phase


async def test_an_autoscaler_can_read_the_scale(admin, operator, pool, namespace, full):
    node = await pool()
    await admin.create(executor("e", namespace, nodeSelector={"pool": node}))
    await running_executor(admin, "e", namespace)
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
    }
    scaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "e", "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": API, "kind": "HourglassExecutor", "name": "e"},
            "minReplicas": 2,
            "maxReplicas": 4,
            "metrics": [metric],
        },
    }
    await admin.create(scaler)
    await eventually(lambda: _replicas(admin, namespace, 2), "the autoscaler sets its minimum", timeout=120)
    await running_executor(admin, "e", namespace)


async def _replicas(client, namespace, number):
    return (await client.get(StoredExecutor, "e", namespace=namespace)).spec["replicas"] == number


async def test_a_change_of_configuration_rolls_once_and_a_restart_by_hand_is_kept(
    admin, operator, pool, namespace, full
):
    node = await pool()
    await admin.create(executor("e", namespace, nodeSelector={"pool": node}))
    first = await running_executor(admin, "e", namespace)
    before = {pod.metadata.uid for pod in await executor_pods(admin, "e", namespace)}
    await admin.patch(StoredExecutor, "e", {"spec": {"config": {"logLevel": "debug"}}}, namespace=namespace)

    async def rolled():
        now = {pod.metadata.uid for pod in await executor_pods(admin, "e", namespace)}
        return len(now) == 1 and not now & before

    await eventually(rolled, "the pods are new", timeout=120)
    status = await running_executor(admin, "e", namespace)
    assert status["configHash"] != first["configHash"]
    stamp = {"kubectl.kubernetes.io/restartedAt": "now"}
    restart = {"spec": {"template": {"metadata": {"annotations": stamp}}}}
    await admin.patch(Deployment, "e", restart, namespace=namespace)
    await admin.patch(StoredExecutor, "e", {"spec": {"image": "executor:2"}}, namespace=namespace)
    await running_executor(admin, "e", namespace)
    live = await admin.get(Deployment, "e", namespace=namespace)
    assert live.spec.template.metadata.annotations["kubectl.kubernetes.io/restartedAt"] == "now"
    assert live.spec.template.spec.containers[0].image == "executor:2"


async def test_keys_by_reference_roll_the_executor_when_they_change(admin, operator, pool, namespace, full):
    node = await pool()
    config = {"operatorKeysSecretRef": {"name": "vault"}}
    manifest = executor("e", namespace, config=config, nodeSelector={"pool": node})
    del manifest["spec"]["config"]["operatorKeys"]
    await admin.create(manifest)

    async def missing():
        conditions = ((await admin.get(StoredExecutor, "e", namespace=namespace)).status or {}).get("conditions")
        return conditions and conditions[1]["reason"] == "KeysMissing"

    await eventually(missing, timeout=90)
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "vault", "namespace": namespace}}
    await admin.apply({**body, "stringData": {"ecdsa": "first"}}, field_manager="test", force=True)
    await running_executor(admin, "e", namespace)
    before = {pod.metadata.uid for pod in await executor_pods(admin, "e", namespace)}
    await admin.patch(Secret, "vault", {"stringData": {"ecdsa": "second"}}, namespace=namespace)

    async def rolled():
        now = {pod.metadata.uid for pod in await executor_pods(admin, "e", namespace)}
        return len(now) == 1 and not now & before

    await eventually(rolled, "the pods are new", timeout=120)


async def test_deleting_an_executor_removes_pods_before_what_they_read(admin, operator, pool, namespace, full):
    node = await pool()
    await admin.create(executor("e", namespace, nodeSelector={"pool": node}))
    await running_executor(admin, "e", namespace)
    (pod,) = await executor_pods(admin, "e", namespace)
    hold = {"metadata": {"finalizers": ["example.org/slow"]}}
    await admin.patch(Pod, pod.name, hold, namespace=namespace)
    await admin.delete(StoredExecutor, "e", namespace=namespace)
    await eventually(lambda: _phase(admin, "e", namespace, "Terminating"), timeout=90)
    assert not await gone(admin, Secret, "e-keys", namespace)
    await admin.patch(Pod, pod.name, {"metadata": {"finalizers": None}}, namespace=namespace)
    await eventually(lambda: gone(admin, StoredExecutor, "e", namespace), timeout=120)
    assert await gone(admin, Secret, "e-keys", namespace)
    assert await gone(admin, Deployment, "e", namespace)


SAMPLES = {
    "minimal-performer": {},
    "basic-performer": {
        "version": "v1.0.0",
        "config": {"grpcPort": 9090, "environment": {"LOG_LEVEL": "info"}},
        "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "4", "memory": "8Gi"}},
    },
    "gpu-performer": {
        "executorRef": "ha-executor",
        "hardwareRequirements": {"gpuType": "nvidia-a100", "gpuCount": 1},
        "scheduling": {
            "nodeSelector": {"accelerator": "nvidia-tesla-a100"},
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "nvidia.com/gpu.present", "operator": "In", "values": ["true"]}]}
                    ]
                }
            },
            "tolerations": [
                {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"},
            ],
        },
        "config": {"args": ["--model", "large"]},
        "imagePullSecrets": [{"name": "registry"}],
    },
    "tee-performer": {
        "hardwareRequirements": {"teeRequired": True, "teeType": "sgx", "customLabels": {"security": "high"}},
        "scheduling": {"tolerations": [{"key": "sgx", "operator": "Equal", "value": "enabled"}]},
        "config": {"command": ["/app/run"], "args": ["--secure"]},
    },
    "bottlerocket-performer": {
        "scheduling": {
            "affinity": {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 100,
                            "preference": {
                                "matchExpressions": [
                                    {"key": "node.kubernetes.io/os", "operator": "In", "values": ["bottlerocket"]}
                                ]
                            },
                        }
                    ]
                }
            }
        }
    },
    "complex-performer": {
        "imagePullPolicy": "Never",
        "hardwareRequirements": {
            "gpuType": "nvidia-a100",
            "gpuCount": 2,
            "teeRequired": True,
            "teeType": "sgx",
            "customLabels": {"security": "high"},
        },
        "scheduling": {"tolerations": [{"operator": "Exists"}]},
        "config": {"command": ["/app/run"], "args": ["-v"], "environment": {"A": "1"}},
        "imagePullSecrets": [{"name": "registry"}],
    },
}


async def test_every_documented_sample_runs(admin, operator, pool, namespace, full):
    labels = {
        "accelerator": "nvidia-tesla-a100",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": "A100",
        "intel.feature.node.kubernetes.io/sgx": "true",
        "security": "high",
        "node.kubernetes.io/os": "bottlerocket",
    }
    node = await pool(gpus=4, labels=labels)
    scheduling = {"nodeSelector": {"pool": node}, "tolerations": [{"key": "dedicated", "value": "hourglass"}]}
    executors = {
        "minimal-executor": {},
        "basic-executor": {"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "2", "memory": "4Gi"}}},
        "example-executor": {"replicas": 2, "config": {"chains": chains("ethereum", "base")}},
        "ha-executor": {
            "replicas": 3,
            "config": {
                "chains": chains("ethereum", "base", "arbitrum"),
                "kubernetes": {"namespace": namespace, "defaultScheduling": scheduling},
            },
            "tolerations": scheduling["tolerations"],
            "imagePullSecrets": [{"name": "registry"}],
        },
    }
    for name, spec in executors.items():
        await admin.create(executor(name, namespace, nodeSelector={"pool": node}, **spec))
    for name, spec in SAMPLES.items():
        body = performer(name, namespace, **spec)
        selector = body["spec"].setdefault("scheduling", {}).setdefault("nodeSelector", {})
        selector["pool"] = node
        await admin.create(body)
    for name in executors:
        await running_executor(admin, name, namespace)
    for name in SAMPLES:
        await ready_performer(admin, name, namespace)


async def test_the_clients_contract_holds_for_a_scripted_executor_client(admin, operator, pool, namespace, full):
    """What an executor's client does: create, poll `status.ready`, blue/green by a second resource, delete."""
    node = await pool()

    async def deploy(name, tag):
        labels = {"app": "hourglass-performer", "hourglass.eigenlayer.io/avs": "0xTEST_avs"}
        body = performer(
            name,
            namespace,
            avsAddress="0xTEST_avs",
            image=f"registry.example/avs:{tag}",
            version=tag,
            imagePullPolicy="Never",
            config={"grpcPort": 8080, "environment": {"AVS_ADDRESS": "0xTEST_avs", "GRPC_PORT": "8080"}},
            scheduling={"nodeSelector": {"pool": node}},
        )
        body["metadata"]["labels"] = labels | {"hourglass.eigenlayer.io/performer": name}
        await admin.create(body)
        await eventually(lambda: _is_ready(admin, name, namespace), f"{name} is ready", timeout=90)
        status = await status_of(admin, name, namespace)
        assert status["grpcEndpoint"] == f"performer-{name}.{namespace}.svc.cluster.local"
        assert status["conditions"][-1]["message"] == "1 of 1 pods ready"
        service = await admin.get(Service, f"performer-{name}", namespace=namespace)
        assert [(port.port, port.target_port) for port in service.spec.ports] == [(8080, "grpc")]

    await deploy("performer-abc123-00000001", "v1")
    await deploy("performer-abc123-00000002", "v2")
    await admin.delete(StoredPerformer, "performer-abc123-00000001", namespace=namespace)
    await eventually(lambda: gone(admin, StoredPerformer, "performer-abc123-00000001", namespace), timeout=90)
    assert (await status_of(admin, "performer-abc123-00000002", namespace))["ready"] is True
    with pytest.raises(NotFound):
        await admin.delete(StoredPerformer, "performer-abc123-00000001", namespace=namespace)


async def _is_ready(client, name, namespace):
    return (await status_of(client, name, namespace)).get("ready") is True


async def test_restricted_pods_pass_a_restricted_namespace_and_others_are_reported(
    admin, operator, pool, namespace, full
):
    node = await pool()
    enforce = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await admin.patch(Namespace, namespace, enforce)
    await eventually(lambda: _enforced(admin, namespace), "admission knows of the label", timeout=90)
    placed = {"scheduling": {"nodeSelector": {"pool": node}}}
    await admin.create(executor("e", namespace, nodeSelector={"pool": node}))
    await admin.create(performer("safe", namespace, podSecurity="Restricted", **placed))
    await admin.create(performer("free", namespace, **placed))
    await running_executor(admin, "e", namespace)
    await ready_performer(admin, "safe", namespace)

    async def refused():
        summary = (await status_of(admin, "free", namespace)).get("conditions", [{}])[-1]
        return summary.get("reason") == "AdmissionRejected" and "PodSecurity" in summary["message"]

    await eventually(refused, timeout=90)
    await admin.patch(StoredPerformer, "free", {"spec": {"podSecurity": "Restricted"}}, namespace=namespace)
    await ready_performer(admin, "free", namespace)


async def _enforced(client, namespace):
    """Admission learns of a namespace's labels by a watch of its own."""
    pod = {"containers": [{"name": "x", "image": "x"}]}
    meta = {"name": "probe", "namespace": namespace}
    try:
        await client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod}, dry_run=True)
    except Forbidden as error:
        return "PodSecurity" in str(error)
    return False


async def test_why_names_what_each_node_lacks_and_a_plan_compares(admin, operator, pool, namespace, full, tmp_path):
    node = await pool(gpus=1)
    hardware = {"gpuCount": 2}
    body = performer("p", namespace, hardwareRequirements=hardware, scheduling={"nodeSelector": {"pool": node}})
    await admin.create(body)

    async def told():
        code, said = await command(operator, "why", "performer/p", "-n", namespace)
        assert (code, f"{node} " in said) == (3, True), said
        return "2 nvidia.com/gpu (1 of 1 free)" in said

    await eventually(told, timeout=120)
    path = tmp_path / "p.yaml"
    path.write_text(yaml.safe_dump(body))
    code, said = await command(operator, "plan", "-f", str(path), "--live")
    assert (code, "Pod/performer-p" in said) == (0, True), said
    body["spec"]["hardwareRequirements"] = {"gpuCount": 1}
    path.write_text(yaml.safe_dump(body))
    code, said = await command(operator, "plan", "-f", str(path), "--live")
    assert (code, "its template changed (Recreate)" in said) == (3, True), said
    await admin.patch(StoredPerformer, "p", {"spec": body["spec"]}, namespace=namespace)
    await ready_performer(admin, "p", namespace)
    code, said = await command(operator, "why", "performer/p", "-n", namespace)
    assert (code, "1 of 1 pods ready" in said) == (0, True), said


async def command(operator, *arguments):
    """Run `steersman hourglass …`; its exit code and what it said."""
    process = await asyncio.create_subprocess_exec(
        *(Path(sys.executable).with_name("steersman"), "hourglass", *arguments),
        env={"KUBECONFIG": str(operator.kubeconfig), "PATH": "/usr/bin:/bin", "HOME": str(operator.folder)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode, said.decode()
