"""A tenant who may write workloads in one namespace holds back no restart of another, though both use one source."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from steersman.kube.api.errors import Forbidden
from steersman.kube.api.types import Deployment, Namespace
from steersman.operators.reload.api.config import GuardConfig, ReloadConfig
from steersman.operators.reload.controllers.setup import operator
from steersman.runtime.rbac import rule
from steersman.testing import client_as, eventually, running

pytestmark = pytest.mark.timeout(300)

TENANT = rule("deployments.apps", "create", "get", "patch")
CONTROLLER = rule("deployments.apps/status", "patch")
FAILED = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}


def deployment(namespace, name, **annotations):
    container = {"name": "main", "image": "web:1"}
    labels = {"app": name}
    meta = {"name": name, "namespace": namespace, "annotations": {"steersman.dev/reload": "auto", **annotations}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


@pytest.fixture
async def elsewhere(cluster, client, namespace):
    """The namespace of the tenant."""
    name = f"{namespace}-tenant"
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    await client.delete(Namespace, name)


@pytest.mark.parametrize(
    ("annotations", "workloads", "status"),
    [
        pytest.param({"steersman.dev/wave": "-999", "steersman.dev/freeze": "true"}, 1, None, id="a frozen wave"),
        pytest.param({"steersman.dev/wave": "-999"}, 1, {"conditions": [FAILED]}, id="a failed rollout"),
        pytest.param({}, 4, None, id="many workloads against a guard"),
    ],
)
async def test_a_tenant_cannot_hold_back_the_restarts_of_another(
    cluster, client, namespace, elsewhere, annotations, workloads, status
):
    meta = {"name": "app", "namespace": namespace, "annotations": {"steersman.dev/share-with": elsewhere}}
    source = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"mode": "a"}}
    shared = {"steersman.dev/reload-extra": f"configmap/{namespace}/app"}
    await client.create(source)
    await client.create(deployment(namespace, "victim", **shared))
    names = [f"tenant-{number}" for number in range(workloads)]
    async with client_as(cluster, "tenant", TENANT, CONTROLLER, namespace=elsewhere) as tenant:
        for name in names:
            agreed = {"steersman.dev/order-with": namespace}  # the tenant does, the victim does not
            await tenant.create(deployment(elsewhere, name, **shared, **agreed, **annotations))
            if status is not None:
                await tenant.patch(Deployment, name, {"status": status}, namespace=elsewhere, subresource="status")
        with pytest.raises(Forbidden):
            await tenant.patch(Deployment, "victim", {"metadata": {"labels": {"a": "b"}}}, namespace=namespace)

    config = ReloadConfig(
        quiet_period="0s",
        max_delay="0s",
        namespaces=(namespace, elsewhere),
        kinds=("Deployment",),
        guard=GuardConfig(workloads=3),
    )

    async def annotated(place, name, wanted):
        found = await client.get(Deployment, name, namespace=place)
        return wanted in {**found.annotations, **(found.spec.template.metadata.annotations or {})}

    async with running(client, *operator(config, registry=CollectorRegistry())):
        for place, name in [(namespace, "victim"), *((elsewhere, name) for name in names)]:
            await eventually(lambda place=place, name=name: annotated(place, name, "steersman.dev/applied"))
        await client.apply({**source, "data": {"mode": "b"}}, field_manager="test", force=True)
        await eventually(lambda: annotated(namespace, "victim", "steersman.dev/restarted-at"), "the victim restarts")
