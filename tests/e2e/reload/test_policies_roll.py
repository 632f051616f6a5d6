"""Waves, limits and failures where workloads really roll: on the simulated cluster and on the whole control plane."""

from __future__ import annotations

from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from steersman.kube.api.gvk import Kind
from steersman.kube.api.patches import PatchType
from steersman.kube.api.times import parse_time
from steersman.kube.api.types import Pod
from steersman.operators.reload.api.config import KindConfig, ReloadOptions, Window
from steersman.operators.reload.controllers.reconciler import SharedContext
from steersman.operators.reload.controllers.setup import controllers
from steersman.operators.reload.inspect.live_status import view_of
from steersman.operators.reload.planning.restart_order import RestartCoordinator
from steersman.testing import eventually, running

KINDS = {
    "Deployment": Kind(group="apps", version="v1", kind="Deployment", plural="deployments"),
    "StatefulSet": Kind(group="apps", version="v1", kind="StatefulSet", plural="statefulsets"),
}
WAVES = {"db": ("StatefulSet", 0), "api": ("Deployment", 1), "web": ("Deployment", 2)}
LIMIT = 300  # seconds that a rollout may take on a busy machine


def workload(namespace, name, kind, wave):
    labels = {"app": name}
    env = {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "app", "key": "mode"}}}
    pod = {"containers": [{"name": "main", "image": "web:1", "env": [env]}], "terminationGracePeriodSeconds": 0}
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
        **({"serviceName": name} if kind == "StatefulSet" else {}),
    }
    marks = {"steersman.dev/reload": "auto", "steersman.dev/wave": str(wave)}
    meta = {"name": name, "namespace": namespace, "annotations": marks}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": spec}


@pytest.mark.timeout(900)
@pytest.mark.slow
async def test_waves_roll_one_after_the_other_on_the_simulated_cluster(simulated, client, namespace):
    await waves_roll(client, namespace)


@pytest.mark.timeout(900)
@pytest.mark.slow
async def test_waves_roll_one_after_the_other_on_the_control_plane(full, client, namespace):
    await full.add_nodes(f"{namespace}-node")
    await waves_roll(client, namespace)


async def waves_roll(client, namespace):
    """A StatefulSet, then two Deployments; each is available before the next is restarted."""
    source = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app", "namespace": namespace}}
    await client.create({**source, "data": {"mode": "a"}})
    for name, (kind, wave) in WAVES.items():
        await client.create(workload(namespace, name, kind, wave))

    async def ready():
        for name, (kind, _) in WAVES.items():
            found = await client.get(KINDS[kind], name, namespace=namespace)
            assert (found.get("status") or {}).get("readyReplicas") == 2, name
            assert "steersman.dev/applied" in found["metadata"]["annotations"]
        return True

    coordinator = RestartCoordinator()
    options = ReloadOptions(
        window=Window(quiet=timedelta(0), limit=timedelta(0)),
        kinds=tuple(KindConfig(kind=kind) for kind in KINDS),
        namespaces=frozenset({namespace}),
        max_concurrent=1,
    )
    async with running(
        client, *controllers(options, registry=CollectorRegistry(), shared=SharedContext(coordinator=coordinator))
    ):
        await eventually(ready, "everything runs", timeout=LIMIT)
        patch = {"data": {"mode": "b"}}
        config = Kind(version="v1", kind="ConfigMap", plural="configmaps")
        await client.patch(config, "app", patch, type=PatchType.MERGE, namespace=namespace)

        async def over():
            history = view_of(coordinator, 0.0).history
            return len(history) == 3 and all(restart.outcome.phase == "available" for restart in history) and history

        history = await eventually(over, "all three are available", timeout=LIMIT)
    order = [restart.workload.name for restart in sorted(history, key=lambda restart: restart.at)]
    times = {}
    for name, (kind, _) in WAVES.items():
        found = await client.get(KINDS[kind], name, namespace=namespace)
        times[name] = parse_time(found["spec"]["template"]["metadata"]["annotations"]["steersman.dev/restarted-at"])
    assert sorted(times, key=times.__getitem__) == ["db", "api", "web"], order
    assert all(restart.outcome.seconds is not None for restart in history)
    for pod in (await client.list(Pod, namespace=namespace)).items:
        if not pod.metadata.deletion_timestamp:
            assert pod.annotations.get("steersman.dev/restarted-for") == "configmap/app#mode", pod.name
