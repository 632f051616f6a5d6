"""Managers on a server: who leads, who works on what, and what happens when something is missing."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from steersman.crd import crd_manifest
from steersman.kube.api.objects import ObjectMeta, Resource, Struct
from steersman.kube.api.types.coordination import Lease
from steersman.kube.api.types.core import ConfigMap, Namespace, Secret, ServiceAccount
from steersman.kube.api.types.rbac import PolicyRule, Role, RoleBinding, RoleRef, Subject
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.runtime.controller.builder import Controller
from steersman.runtime.controller.result import requeue
from steersman.runtime.leaderelection.elector import LeaderElector, LeaseLock
from steersman.runtime.leaderelection.rules import LeaseTimings
from steersman.runtime.manager.manager import Manager
from steersman.runtime.sharding.member import KubeShards
from steersman.testing import FaultProxy, eventually

QUICK = LeaseTimings(
    lease_seconds=60, renew_seconds=40, retry_seconds=0.3
)  # asks often; no busy machine takes a lease away


@pytest.fixture
async def client(cluster, tmp_path):
    cluster.write_kubeconfig(tmp_path / "kubeconfig")
    async with Client.connect(load_config(tmp_path / "kubeconfig")) as connected:
        yield connected


@asynccontextmanager
async def running(manager: Manager):
    task = asyncio.create_task(manager.run())
    try:
        yield task
    finally:
        manager.stop()
        await asyncio.wait_for(asyncio.wait([task]), 90)


def make(client: Client, *controllers: Controller, **options: Any) -> Manager:
    return Manager(client, controllers, registry=CollectorRegistry(), **options)


def configmap(namespace: str, name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace, labels={"suite": "managers"}), data=data)


async def test_a_lease_is_held_renewed_and_given_back(client, namespace):
    elector = LeaderElector(LeaseLock(client, "leader", namespace), identity="me", timing=QUICK)
    await elector.acquire()
    first = await client.get(Lease, "leader", namespace=namespace)
    held = first.spec
    assert (held.holder_identity, held.lease_duration_seconds, held.lease_transitions) == ("me", 60, 0)
    holding = asyncio.create_task(elector.hold())

    async def renewed():
        return (await client.get(Lease, "leader", namespace=namespace)).spec.renew_time != first.spec.renew_time

    await eventually(renewed)
    await client.patch(Lease, "leader", {"metadata": {"labels": {"touched": "yes"}}}, namespace=namespace)
    slow = elector.slow_renewals
    await eventually(lambda: elector.slow_renewals > slow)
    assert elector.leading()
    assert not holding.done()
    holding.cancel()
    assert await elector.release()
    freed = await client.get(Lease, "leader", namespace=namespace)
    assert not freed.spec.holder_identity
    assert freed.metadata.labels == {"touched": "yes"}


async def test_a_second_manager_waits_warm_and_takes_over_when_the_first_ends(client, namespace):
    acting: list[str] = []

    def acts_as(name: str) -> Controller:
        async def reconcile(ctx, obj):
            acting.append(name)
            return requeue(after=0.05)

        return Controller(ConfigMap, reconcile, "app").select(namespaces=[namespace], label_selector="suite=managers")

    def elected(name: str) -> LeaderElector:
        return LeaderElector(LeaseLock(client, "leader", namespace), identity=name, timing=QUICK)

    await client.create(configmap(namespace, "one"))
    first = make(client, acts_as("first"), elector=elected("first"))
    second = make(client, acts_as("second"), elector=elected("second"))
    async with running(first):
        await eventually(lambda: len(acting) > 3)
        async with running(second) as standby:
            await eventually(lambda: all(problem is None for problem in second.ready().values()))
            assert set(acting) == {"first"}
            first.stop()
            await eventually(lambda: "second" in acting)
            switch = acting.index("second")
            assert set(acting[:switch]) == {"first"}
            assert set(acting[switch:]) == {"second"}
            assert not standby.done()


async def test_processes_share_namespaces_and_take_over_what_another_leaves(client, namespace):
    spaces = [namespace]
    for number in range(7):
        name = f"{namespace}-{number}"
        await client.create(Namespace(metadata=ObjectMeta(name=name)))
        spaces.append(name)
    for space in spaces:
        await client.create(configmap(space, "one"))
    at_work: dict[str, str] = {}
    owners: dict[str, str] = {}

    def works_as(name: str) -> Controller:
        async def reconcile(ctx, obj):
            assert obj.namespace not in at_work, f"{name} and {at_work[obj.namespace]} at once in {obj.namespace}"
            at_work[obj.namespace] = owners[obj.namespace] = name
            await asyncio.sleep(0)
            del at_work[obj.namespace]
            return requeue(after=0.1)

        return Controller(ConfigMap, reconcile, "app").select(label_selector="suite=managers").within(spaces)

    first, second = make(client, works_as("first")), make(client, works_as("second"))
    for manager in (first, second):
        manager.share(KubeShards(client, "group", namespace), timing=QUICK)
    async with running(first) as one:
        await eventually(lambda: owners == dict.fromkeys(spaces, "first"))
        async with running(second) as two:
            await eventually(lambda: set(owners.values()) == {"first", "second"} and len(owners) == len(spaces))
            first.stop()
            await eventually(lambda: owners == dict.fromkeys(spaces, "second"))
            assert not two.done()
        await asyncio.wait([one])
        one.result()
    assert first.runner("app").tally.panics == second.runner("app").tally.panics == 0


class GadgetSpec(Struct):
    size: int = 0


class Gadget(Resource, group="managers.example.org", version="v1"):
    """Installed late."""

    spec: GadgetSpec


async def test_a_kind_that_is_missing_at_the_start_is_found_when_it_is_installed_and_others_do_not_wait(
    client, namespace
):
    seen: list[str] = []

    async def reconcile(ctx, obj):
        seen.append(obj.name)

    await client.create(configmap(namespace, "one"))
    here = Controller(ConfigMap, reconcile, "here").select(namespaces=[namespace], label_selector="suite=managers")
    missing = Controller(Gadget, reconcile, "missing").select(namespaces=[namespace])
    manager = make(client, here, missing, listen="127.0.0.1:0")
    async with running(manager):
        await eventually(lambda: seen == ["one"])

        async def readyz():
            url = f"http://127.0.0.1:{manager.health.port}/readyz"
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                return answer.status, await answer.text()

        async def named():
            status, text = await readyz()
            return status == 503 and "gadgets.managers.example.org" in text and "CustomResourceDefinition" in text

        await eventually(named)
        await client.create(crd_manifest(Gadget))

        async def installed():
            return await client.create(
                Gadget(metadata=ObjectMeta(name="late", namespace=namespace), spec=GadgetSpec(size=1))
            )

        try:
            await eventually(installed)
            await eventually(lambda: "late" in seen)

            async def ready():
                return (await readyz())[0] == 200

            await eventually(ready)
        finally:
            from steersman.kube.api.types.apiextensions import CustomResourceDefinition

            await client.delete(CustomResourceDefinition, "gadgets.managers.example.org")


async def test_a_dry_run_changes_nothing(client, namespace):
    tried: list[str] = []

    async def reconcile(ctx, obj):
        made = await ctx.apply(configmap(namespace, "made", by="dry run"))
        tried.append(made.metadata.name)
        await ctx.delete(obj)
        ctx.event(obj, "Tried", "nothing happened")

    await client.create(configmap(namespace, "one"))
    controller = Controller(ConfigMap, reconcile, "dry").select(namespaces=[namespace], label_selector="suite=managers")
    async with running(make(client, controller, dry_run=True)):
        await eventually(lambda: bool(tried))
    names = [obj.name for obj in (await client.list(ConfigMap, namespace=namespace)).items]
    assert "one" in names
    assert "made" not in names


def binding(namespace: str, resource: str) -> RoleBinding:
    """What lets the service account `worker` use the role of the same name."""
    return RoleBinding(
        metadata=ObjectMeta(name=resource, namespace=namespace),
        role_ref=RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name=resource),
        subjects=[Subject(kind="ServiceAccount", name="worker", namespace=namespace)],
    )


@asynccontextmanager
async def worker_behind_a_proxy(real, admin, namespace, tmp_path):
    """A client that may read ConfigMaps and Secrets of one namespace, over connections that can be cut."""
    await admin.create(ServiceAccount(metadata=ObjectMeta(name="worker", namespace=namespace)))
    for resource in ("configmaps", "secrets"):
        rule = PolicyRule(api_groups=[""], resources=[resource], verbs=["get", "list", "watch"])
        await admin.create(Role(metadata=ObjectMeta(name=resource, namespace=namespace), rules=[rule]))
        await admin.create(binding(namespace, resource))
    token = (await admin.create_token("worker", namespace=namespace)).token
    address = urlsplit(real.url)
    async with FaultProxy(address.hostname, address.port) as proxy:
        config = real.kubeconfig().replace(address.netloc, proxy.address).replace(real.token, token)
        (tmp_path / "worker").write_text(config)
        async with Client.connect(load_config(tmp_path / "worker")) as client:
            yield client, proxy


async def test_rights_removed_at_run_time_stop_only_what_needs_them_and_are_named_until_they_return(
    real, tmp_path, namespace
):
    seen: list[str] = []

    async def reconcile(ctx, obj):
        seen.append(f"{type(obj).__name__} {obj.name}")

    def problem_of_secrets() -> str | None:
        return manager.ready()[f"source secrets in {namespace} where suite=managers"]

    selection = {"namespaces": [namespace], "label_selector": "suite=managers"}
    readers = [Controller(kind, reconcile).select(**selection) for kind in (ConfigMap, Secret)]
    hidden = Secret(metadata=ObjectMeta(name="hidden", namespace=namespace, labels={"suite": "managers"}))
    real.write_kubeconfig(tmp_path / "admin")
    async with (
        Client.connect(load_config(tmp_path / "admin")) as admin,
        worker_behind_a_proxy(real, admin, namespace, tmp_path) as (worker, proxy),
    ):
        manager = make(worker, *readers)
        async with running(manager) as task:
            await eventually(lambda: problem_of_secrets() is None)
            await admin.delete(RoleBinding, "secrets", namespace=namespace)

            async def refused():
                if problem_of_secrets() is None:  # a watch that is open stays open, and rights are read from a cache
                    await proxy.cut()
                return "forbidden" in (problem_of_secrets() or "").lower()

            await eventually(refused)
            await admin.create(hidden)
            await admin.create(configmap(namespace, "meanwhile"))
            await eventually(lambda: "ConfigMap meanwhile" in seen)
            assert "Secret hidden" not in seen
            await admin.create(binding(namespace, "secrets"))
            await eventually(lambda: "Secret hidden" in seen)
            await eventually(lambda: problem_of_secrets() is None)
            assert not task.done()
