"""What runs beside the controllers, at work: a message per change, the word of a hook, stale pods counted."""

from __future__ import annotations

import asyncio
import json
import sys
import types

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from steersman.kube.api.types import Deployment
from steersman.operators.reload.api.config import HookConfig, ReceiverConfig, ReloadConfig
from steersman.operators.reload.controllers.setup import parts
from steersman.operators.reload.inspect.audit import Auditor
from steersman.operators.reload.planning.hooks import hold
from steersman.runtime.manager.manager import Manager
from steersman.runtime.manager.operator_bundle import RuntimeEnvironment
from steersman.testing import FastClock, eventually

pytestmark = pytest.mark.timeout(300)
SPEED = 10.0  # of the operator's clock


def configmap(namespace, mode):
    meta = {"name": "app", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"mode": mode}}


def deployment(namespace):
    container = {"name": "main", "image": "web:1", "envFrom": [{"configMapRef": {"name": "app"}}]}
    labels = {"app": "web"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": namespace, "annotations": {"steersman.dev/reload": "auto"}},
        "spec": {
            "paused": True,  # nobody rolls it out here: its restart counts as available at once
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


@pytest.fixture
async def receiver():
    """The address of a webhook, and the messages it has got."""
    got = []

    async def handle(request):
        got.append(await request.json())
        return web.Response()

    application = web.Application()
    application.router.add_post("/", handle)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/", got
    finally:
        await runner.cleanup()


@pytest.fixture
def hook(monkeypatch):
    """A hook that holds the first change it sees for a second, as an installed module; and what it was asked."""
    asked = []

    def decide(change):
        asked.append(change)
        return hold("let me think", seconds=1) if len(asked) == 1 else None

    module = types.ModuleType("reload_hook_of_a_test")
    setattr(module, "decide", decide)  # noqa: B010  # a module of the moment has no type
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return f"{module.__name__}:decide", asked


async def marked(client, namespace):
    found = await client.get(Deployment, "web", namespace=namespace)
    return "steersman.dev/applied" in found.annotations


async def stamped(client, namespace):
    found = await client.get(Deployment, "web", namespace=namespace)
    return "steersman.dev/restarted-at" in (found.spec.template.metadata.annotations or {})


async def test_a_hook_decides_last_and_a_change_is_one_message(cluster, client, namespace, receiver, hook):
    url, got = receiver
    name, asked = hook
    config = ReloadConfig(
        quiet_period="0s",
        max_delay="0s",
        namespaces=(namespace,),
        kinds=("Deployment",),
        rivals=(),
        notify=(ReceiverConfig(url=url),),
        hook=HookConfig(name=name, timeout="60s"),
    )
    registry = CollectorRegistry()
    clock = FastClock(SPEED)
    around = RuntimeEnvironment(namespaces=[namespace], own_namespace=namespace, clock=clock)
    made = parts(config, around, registry=registry)
    await client.create(configmap(namespace, "a"))
    await client.create(deployment(namespace))
    manager = Manager(client, registry=registry, clock=clock)
    manager.include("reload", made)
    running = asyncio.create_task(manager.run())
    try:
        await eventually(lambda: marked(client, namespace), "it is seeded", timeout=60)
        await client.apply(configmap(namespace, "hunter2"), field_manager="test", force=True)
        await eventually(lambda: stamped(client, namespace), "it restarts", timeout=90)
        await eventually(lambda: got, "a message arrives", timeout=90)
    finally:
        manager.stop()
        await running
    assert [change.names for change in asked] == [("configmap/app",)] * 2
    (message,) = got
    assert message["data"]["workloads"][0]["name"] == "web"
    assert message["data"]["sources"][0]["keys"] == ["mode"]
    assert "hunter2" not in json.dumps(message)


async def test_stale_pods_are_counted_from_what_the_server_knows(cluster, client, namespace):
    labels = {"app": "web"}
    container = {"name": "main", "image": "web:1", "envFrom": [{"configMapRef": {"name": "app"}}]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    meta = {"name": "web", "namespace": namespace}
    spec = {"selector": {"matchLabels": labels}, "serviceName": "web", "template": template}
    made = await client.create({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": spec})
    uid = made["metadata"]["uid"]
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": uid, "controller": True}
    pod = {"name": "web-0", "namespace": namespace, "labels": labels, "ownerReferences": [owner]}
    await client.create({"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": template["spec"]})
    auditor = Auditor(ReloadConfig(namespaces=(namespace,)).options(), None, CollectorRegistry())

    async def changed_later():
        """Times on a server are whole seconds: change until the change is later than the pod."""
        await client.apply(configmap(namespace, str(asyncio.get_running_loop().time())), field_manager="t", force=True)
        return await auditor.count(client) == {namespace: 1}

    await client.create(configmap(namespace, "a"))
    await eventually(changed_later, "the pod is stale", timeout=60)
