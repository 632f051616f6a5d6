"""Kinds that are installed after the operator has started, on both API servers."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from steersman.crd import crd_manifest
from steersman.kube.api.errors import NotFound
from steersman.kube.api.gvk import Kind
from steersman.kube.api.types import CustomResourceDefinition
from steersman.operators.reload.api.annotations import APPLIED, RESTARTED_FOR
from steersman.operators.reload.api.config import ReloadOptions, RestartBudget, Window
from steersman.operators.reload.api.policy import ReloadPolicy
from steersman.operators.reload.controllers.reconciler import SharedContext
from steersman.operators.reload.controllers.setup import controllers
from steersman.operators.reload.planning.restart_order import RestartCoordinator
from steersman.testing import eventually, running

ROLLOUTS = Kind(group="argoproj.io", version="v1alpha1", kind="Rollout", plural="rollouts")
DEPLOYMENTS = Kind(group="apps", version="v1", kind="Deployment", plural="deployments")
LIMIT = 90  # seconds that a fact may take on a busy machine


def rollout_crd():
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"kind": ROLLOUTS.kind, "plural": ROLLOUTS.plural, "singular": "rollout"}
    version = {"name": ROLLOUTS.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": ROLLOUTS.group, "scope": "Namespaced", "names": names, "versions": [version]}
    meta = {"name": f"{ROLLOUTS.plural}.{ROLLOUTS.group}"}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta, "spec": spec}


async def uninstall(client, target, name):
    with suppress(NotFound):
        await client.delete(CustomResourceDefinition, name)

    async def absent():
        try:
            await client.list(target)
        except NotFound:
            return True
        return False

    await eventually(absent, f"{name} is not served", timeout=LIMIT)


async def config(client, namespace, mode):
    meta = {"name": "app", "namespace": namespace}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"mode": mode}}
    await client.apply(body, field_manager="test", force=True)


def workload(kind, namespace):
    labels = {"app": "web"}
    pod = {"containers": [{"name": "main", "image": "web:1", "envFrom": [{"configMapRef": {"name": "app"}}]}]}
    meta = {"name": "web", "namespace": namespace, "annotations": {"steersman.dev/reload": "auto"}}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}


@pytest.fixture
async def without_kinds(client, cluster):
    kinds = ((ROLLOUTS, f"{ROLLOUTS.plural}.{ROLLOUTS.group}"), (ReloadPolicy.KIND, "reloadpolicies.steersman.dev"))
    for target, name in kinds:
        await uninstall(client, target, name)
    yield
    for target, name in kinds:
        await uninstall(client, target, name)


@pytest.mark.usefixtures("without_kinds")
async def test_kinds_that_are_installed_later_take_part_without_a_restart_of_the_operator(client, namespace):
    await config(client, namespace, "a")
    await client.create(workload(DEPLOYMENTS, namespace))
    options = ReloadOptions(
        window=Window(quiet=timedelta(0), limit=timedelta(0)),
        budget=RestartBudget(restarts=0),
        namespaces=frozenset({namespace}),
    )
    coordinator = RestartCoordinator()
    made = controllers(options, served=(), registry=CollectorRegistry(), shared=SharedContext(coordinator=coordinator))

    async def annotations(kind):
        return (await client.get(kind, "web", namespace=namespace))["metadata"]["annotations"]

    async def seeded(kind):
        async def there():
            return APPLIED in await annotations(kind)

        await eventually(there, f"{kind.kind} is seeded", timeout=LIMIT)

    async with running(client, *made) as manager:
        await seeded(DEPLOYMENTS)
        assert {name: why for name, why in manager.ready().items() if why} == {}

        for crd in (rollout_crd(), crd_manifest(ReloadPolicy)):
            await client.apply(crd, field_manager="test", force=True)
        await eventually(lambda: client.create(workload(ROLLOUTS, namespace)), "rollouts are served", timeout=LIMIT)
        meta = {"name": "calm", "namespace": namespace}
        policy = {"apiVersion": "steersman.dev/v1alpha1", "kind": "ReloadPolicy", "metadata": meta}
        policy["spec"] = {"freeze": "true"}
        await eventually(lambda: client.create(policy), "policies are served", timeout=LIMIT)
        await seeded(ROLLOUTS)

        async def holds():
            return (await client.get(ReloadPolicy, "calm", namespace=namespace)).status.workloads == 2

        await eventually(holds, "the policy holds for both", timeout=LIMIT)
        await config(client, namespace, "b")

        def frozen():
            return sorted((me.kind, standing.gate) for me, standing in coordinator.states()) == [
                ("Deployment", "freeze"),
                ("Rollout", "freeze"),
            ]

        await eventually(frozen, "both wait", timeout=LIMIT)
        await client.delete(ReloadPolicy, "calm", namespace=namespace)

        async def restarted():
            found = await client.get(ROLLOUTS, "web", namespace=namespace)
            marks = found["spec"]["template"]["metadata"].get("annotations") or {}
            return found["spec"].get("restartAt") or RESTARTED_FOR in marks

        await eventually(restarted, "the rollout is restarted", timeout=LIMIT)
