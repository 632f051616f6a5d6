"""What a reconciler reads is its own: it may change it, and no other controller sees that."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from steersman.cache.identity import ref_of
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ObjectMeta, Resource, Struct
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.runtime.cluster import ClusterSnapshot
from steersman.runtime.controller.builder import Controller
from steersman.runtime.controller.result import done
from steersman.runtime.manager.manager import Manager
from steersman.runtime.reconcile.conditions import Condition, new_condition
from steersman.testing import eventually
from tests.support.manifests import deployment


class Status(Struct):
    replicas: int = 0
    ready_replicas: int = 0
    conditions: list[Condition] | None = None


class Deployment(Resource, group="apps", version="v1"):
    status: Status = Status()


class ConfigMap(Resource, version="v1"):
    data: dict[str, str] | None = None


@pytest.fixture
async def client(cluster, tmp_path):
    cluster.write_kubeconfig(tmp_path / "kubeconfig")
    async with Client.connect(load_config(tmp_path / "kubeconfig")) as connected:
        yield connected


@asynccontextmanager
async def running(client, *controllers):
    manager = Manager(client, controllers, registry=CollectorRegistry())
    task = asyncio.create_task(manager.run())
    try:
        await eventually(lambda: manager.working.is_set() or task.done())
        yield manager
    finally:
        manager.stop()
        await asyncio.wait_for(task, 90)


async def web(client, namespace) -> None:
    body = deployment("web")
    body["metadata"] |= {"namespace": namespace, "annotations": {"role": "test"}}
    await client.create(body)


async def test_a_status_that_was_changed_in_place_is_written(client, namespace):
    await web(client, namespace)

    async def reconcile(ctx, app):
        app.status.replicas = 3
        app.status.ready_replicas = 2
        await ctx.status(app, app.status)
        return done

    async def written() -> bool:
        status = (await client.get(Deployment, "web", namespace=namespace)).status
        return (status.replicas, status.ready_replicas) == (3, 2)

    async with running(client, Controller(Deployment, reconcile).select(namespaces=[namespace])):
        await eventually(written)


async def test_conditions_that_were_changed_in_place_are_written(client, namespace):
    await web(client, namespace)

    async def reconcile(ctx, app):
        fresh = new_condition("Available", True, "Fine")
        fresh.last_transition_time = "2026-01-01T00:00:00Z"
        app.status.conditions = [fresh] if app.status.conditions is None else app.status.conditions
        app.status.conditions[0].message = "all is well"
        await ctx.status(app, app.status)
        return done

    async def written() -> bool:
        found = (await client.get(Deployment, "web", namespace=namespace)).status.conditions
        return [(entry.type, entry.message) for entry in found or ()] == [("Available", "all is well")]

    async with running(client, Controller(Deployment, reconcile).select(namespaces=[namespace])):
        await eventually(written)


def spoil(obj: Any) -> None:
    """Change an object in every way that is possible in place."""
    if isinstance(obj, dict):
        obj["data"]["mode"] = "spoiled"
        obj["metadata"]["labels"]["mode"] = "spoiled"
    else:
        obj.data["mode"] = "spoiled"
        obj.metadata.labels["mode"] = "spoiled"
        obj.metadata.annotations = {"mode": "spoiled"}


def name_of(obj: Any) -> list[str]:
    return [ref_of(obj).name]


@pytest.mark.parametrize("target", [ConfigMap, ConfigMap.KIND], ids=["typed", "untyped"])
async def test_no_controller_reads_what_another_changed_in_memory(client, namespace, target):
    labels = {"role": "test", "mode": "fine"}
    meta = ObjectMeta(name="app", namespace=namespace, labels=labels)
    await client.create(ConfigMap(metadata=meta, data={"mode": "fine"}))
    ref, spoiled, read = NamespacedName("app", namespace), asyncio.Event(), asyncio.Queue()

    async def spoiling(ctx, app):
        cache = ctx.cache[target]
        spoil(app)
        for obj in (cache.get(ref), cache.latest(ref), *cache, *cache.list(namespace=namespace)):
            spoil(obj)
        for obj in cache.by_index("name", "app"):
            spoil(obj)
        wire = {"apiVersion": "v1", "kind": "ConfigMap"}
        meta = {"name": "app", "namespace": namespace, "annotations": {"touched": "yes"}}
        spoil(await ctx.apply({**wire, "metadata": meta}, owner=None))
        spoil(await ctx.apply({**wire, "metadata": meta}, owner=None))  # known to change nothing
        spoil(await ctx.patch(cache.get(ref), {"metadata": {"annotations": {"touched": "twice"}}}))
        spoiled.set()
        return done

    async def reading(ctx, app):
        await spoiled.wait()
        with ClusterSnapshot(ctx.cache, user="reading") as now:  # what later reconciles will see
            await read.put([app, ctx.cache[target].get(ref), *now[target]])
        return done

    def table(function: Any, name: str) -> Controller:
        made = Controller(target, function, name).select(namespaces=[namespace], label_selector="role=test")
        return made.index(target, "name", name_of)

    async with running(client, table(spoiling, "spoiling"), table(reading, "reading")):
        for obj in await asyncio.wait_for(read.get(), 60):
            found = obj if isinstance(obj, dict) else {"data": obj.data, "metadata": {"labels": obj.labels}}
            assert (found["data"], found["metadata"]["labels"]) == ({"mode": "fine"}, labels)
