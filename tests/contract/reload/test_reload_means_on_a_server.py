"""Calls and evictions by the operator at work: every pod gets the change once, and disruption budgets are honoured."""

from __future__ import annotations

import json

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from steersman.kube.api.errors import NotFound
from steersman.kube.api.gvk import Kind
from steersman.kube.api.types import Deployment, Event, Pod
from steersman.operators.reload.api.config import ReloadConfig
from steersman.operators.reload.controllers.setup import operator
from steersman.testing import eventually, running

PDB = Kind(group="policy", version="v1", kind="PodDisruptionBudget", plural="poddisruptionbudgets")
STRANGERS = {"zz-foreign": "other-5d8", "zz-nobodys": ""}
pytestmark = pytest.mark.timeout(300)


def configmap(namespace, mode):
    meta = {"name": "app", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"mode": mode}}


def deployment(namespace, action):
    container = {"name": "main", "image": "web:1", "envFrom": [{"configMapRef": {"name": "app"}}]}
    labels = {"app": "web"}
    marks = {"steersman.dev/reload": "auto", "steersman.dev/action": action}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": namespace, "annotations": marks},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def replicaset(namespace, name, labels):
    pod = {"containers": [{"name": "main", "image": "web:1"}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }


async def pod(client, namespace, name, *, ip="127.0.0.1", owner="web-5d8"):
    """A pod of the ReplicaSet of the workload that runs and is ready, as a kubelet would report it."""
    labels = {"app": "web", "pod-template-hash": "5d8"}
    meta = {"name": name, "namespace": namespace, "labels": labels}
    if owner:
        above = await client.apply(replicaset(namespace, owner, labels), field_manager="test")
        head = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": above["metadata"]["uid"]}
        meta["ownerReferences"] = [{**head, "controller": True}]
    spec = {"containers": [{"name": "main", "image": "web:1"}], "terminationGracePeriodSeconds": 0}
    await client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    status = {
        "phase": "Running",
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    await client.patch(Pod.KIND, name, {"status": status}, namespace=namespace, subresource="status")


async def applied(client, namespace):
    found = await client.get(Deployment, "web", namespace=namespace)
    state = found.annotations.get("steersman.dev/applied")
    return None if state is None else json.loads(state)


async def stamped(client, namespace):
    found = await client.get(Deployment, "web", namespace=namespace)
    return "steersman.dev/restarted-at" in (found.spec.template.metadata.annotations or {})


def at_work(client, namespace, *actions, **options):
    config = ReloadConfig(
        quiet_period="0s", max_delay="0s", namespaces=(namespace,), kinds=("Deployment",), actions=actions
    )
    return running(client, *operator(config, registry=CollectorRegistry()), **options)


@pytest.fixture
async def app():
    """The port of a server that stands for the pods, and the requests it has seen; the first is answered with 503."""
    seen = []

    async def handle(request):
        seen.append(f"{request.method} {request.path}")
        return web.Response(status=503 if len(seen) == 1 else 200)

    application = web.Application()
    application.router.add_route("*", "/{tail:.*}", handle)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1], seen
    finally:
        await runner.cleanup()


async def test_each_pod_is_called_and_nothing_restarts(cluster, client, namespace, app):
    port, seen = app
    await client.create(configmap(namespace, "a"))
    await client.create(deployment(namespace, f"http port={port} path=/-/reload after=0s"))
    for name in ("web-1", "web-2"):
        await pod(client, namespace, name)
    await pod(client, namespace, "foreign", owner="other-5d8")
    async with at_work(client, namespace, "http"):
        before = await eventually(lambda: applied(client, namespace), "it is seeded", timeout=60)
        await client.apply(configmap(namespace, "b"), field_manager="test", force=True)

        async def written():
            return (await applied(client, namespace))["s"] != before["s"]

        await eventually(written, "the change is written down", timeout=60)
    assert seen == ["POST /-/reload"] * 3  # one of them was asked twice
    assert not await stamped(client, namespace)


@pytest.mark.slow  # evictions are spaced by the wall clock, which is also that of the pods
async def test_old_pods_are_evicted_one_by_one_as_far_as_a_budget_allows(cluster, client, namespace):
    await client.create(configmap(namespace, "a"))
    await client.create(deployment(namespace, "evict"))
    for name in ("web-1", "web-2"):
        await pod(client, namespace, name)
    for name, owner in STRANGERS.items():  # a selector finds them, and they are somebody else's
        await pod(client, namespace, name, owner=owner)
    async with at_work(client, namespace, "evict"):
        await eventually(lambda: applied(client, namespace), "it is seeded", timeout=60)
        await budget(client, namespace, allowed=0)
        await client.apply(configmap(namespace, "b"), field_manager="test", force=True)
        await eventually(lambda: _told(client, namespace, "EvictionWaits"), "a budget holds it back", timeout=60)
        assert len((await client.list(Pod, namespace=namespace)).items) == 4
        await budget(client, namespace, allowed=5)
        for name in ("web-2", "web-1"):
            await eventually(lambda name=name: _gone(client, namespace, name), f"{name} is evicted", timeout=90)
            await pod(client, namespace, f"{name}-new")

        async def finished():
            return not (await applied(client, namespace)).get("e")

        await eventually(finished, "nobody is old", timeout=90)
    names = {one.name for one in (await client.list(Pod, namespace=namespace)).items}
    assert names == {"web-1-new", "web-2-new", *STRANGERS}
    assert not await stamped(client, namespace)
    assert len((await applied(client, namespace))["r"]) == 1


async def test_a_dry_run_calls_no_pod_and_says_which_it_would_have_called(cluster, client, namespace, app):
    port, seen = app
    await client.create(configmap(namespace, "a"))
    await client.create(deployment(namespace, f"http port={port} path=/-/reload after=0s"))
    await pod(client, namespace, "web-1")
    async with at_work(client, namespace, "http"):
        before = await eventually(lambda: applied(client, namespace), "it is seeded", timeout=60)
    await client.apply(configmap(namespace, "b"), field_manager="test", force=True)
    with capture_logs() as logs:
        async with at_work(client, namespace, "http", dry_run=True):
            await eventually(lambda: any(line.get("effect") == "http reload" for line in logs), timeout=60)
            await eventually(lambda: any("/deployments/web" in line.get("write", "") for line in logs), timeout=60)
    assert seen == []
    assert await applied(client, namespace) == before
    told = {line["target"] for line in logs if line.get("effect") == "http reload"}
    assert told == {f"pod {namespace}/web-1"}


async def test_a_dry_run_carries_no_eviction_on(cluster, client, namespace):
    await client.create(configmap(namespace, "a"))
    await client.create(deployment(namespace, "evict"))
    await pod(client, namespace, "web-1")
    async with at_work(client, namespace, "evict"):
        await eventually(lambda: applied(client, namespace), "it is seeded", timeout=60)
        await budget(client, namespace, allowed=0)
        await client.apply(configmap(namespace, "b"), field_manager="test", force=True)
        await eventually(lambda: _told(client, namespace, "EvictionWaits"), "a budget holds it back", timeout=60)
    await budget(client, namespace, allowed=5)
    with capture_logs() as logs:
        async with at_work(client, namespace, "evict", dry_run=True) as manager:
            await eventually(lambda: any("/eviction" in line.get("write", "") for line in logs), timeout=60)
            await eventually(lambda: manager.runners and _idle(manager), "it has got its answer")
    assert [one.name for one in (await client.list(Pod, namespace=namespace)).items] == ["web-1"]
    assert not any(line["event"] == "pod evicted" for line in logs)


def _idle(manager):
    return not any(engine.queue.processing for engine in manager.runners.values())


async def budget(client, namespace, *, allowed):
    """A disruption budget that allows so many evictions, as its controller would report it."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    made = await client.apply(body, field_manager="test", force=True)
    counts = {"currentHealthy": 2, "desiredHealthy": 2 - allowed if allowed < 2 else 0, "expectedPods": 2}
    status = {"observedGeneration": made["metadata"]["generation"], "disruptionsAllowed": allowed, **counts}
    await client.patch(PDB, "web", {"status": status}, namespace=namespace, subresource="status")


async def _told(client, namespace, reason):
    return reason in {event.reason for event in (await client.list(Event, namespace=namespace)).items}


async def _gone(client, namespace, name):
    try:
        await client.get(Pod, name, namespace=namespace)
    except NotFound:
        return True
    return False
