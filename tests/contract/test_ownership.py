"""What exists and is not ours is neither written nor deleted by a context, whatever its cache knows."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from steersman.errors import PlanError
from steersman.kube.api.errors import AlreadyExists, Conflict, KubeError
from steersman.kube.api.gvk import Kind, NamespacedName
from steersman.kube.api.objects import ObjectMeta, OwnerReference, Resource
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.runtime.controller.builder import Controller
from steersman.runtime.controller.result import done
from steersman.runtime.manager.manager import Manager
from steersman.runtime.reconcile.ownership import NotOwned
from steersman.testing import eventually

CHILD = {"role": "child"}


class ConfigMap(Resource, version="v1"):
    data: dict[str, str] | None = None


class Child(Resource, version="v1", kind="ConfigMap", plural="configmaps"):
    """The same kind under another class, so that parents and children are selected apart."""

    data: dict[str, str] | None = None


@pytest.fixture
async def client(cluster, tmp_path):
    cluster.write_kubeconfig(tmp_path / "kubeconfig")
    async with Client.connect(load_config(tmp_path / "kubeconfig")) as connected:
        yield connected


@pytest.fixture
async def parent(client, namespace):
    return await client.create(configmap(namespace, "parent", labels={"role": "parent"}))


def configmap(namespace: str, name: str = "child", *, labels: dict[str, str] | None = None, **data: str) -> ConfigMap:
    meta = ObjectMeta(name=name, namespace=namespace, labels=CHILD if labels is None else labels)
    return ConfigMap(metadata=meta, data=data or None)


def child(**data: str) -> Child:
    return Child(metadata=ObjectMeta(name="child", labels=CHILD), data=data)


def reference(owner: ConfigMap) -> OwnerReference:
    meta = owner.metadata
    return OwnerReference(api_version="v1", kind="ConfigMap", name=meta.name, uid=meta.uid, controller=True)


async def data_of(client, namespace: str, name: str = "child") -> dict[str, str] | None:
    return (await client.get(ConfigMap, name, namespace=namespace)).data


@asynccontextmanager
async def running(client, controller):
    manager = Manager(client, [controller], registry=CollectorRegistry())
    task = asyncio.create_task(manager.run())
    try:
        await eventually(lambda: manager.working.is_set() or task.done())
        yield manager
    finally:
        manager.stop()
        await asyncio.wait_for(task, 90)


def owning(namespace: str, reconcile: Any, *, children: Any = Child, selector: str | None = "role=child") -> Controller:
    return (
        Controller(ConfigMap, reconcile, "owning")
        .select(namespaces=[namespace], label_selector="role=parent")
        .owns(children, namespaces=[namespace], label_selector=selector)
    )


async def outcome(client, namespace: str, act: Any, **options: Any) -> Any:
    """What `act(ctx, parent)` returned or raised in the first reconcile of the parent."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def reconcile(ctx, app):
        if not answer.done():
            try:
                answer.set_result(await act(ctx, app))
            except (KubeError, NotOwned) as error:
                answer.set_result(error)
        return done

    async with running(client, owning(namespace, reconcile, **options)):
        return await asyncio.wait_for(answer, 60)


async def test_an_apply_leaves_a_foreign_object_of_that_name_alone(client, namespace, parent):
    await client.create(configmap(namespace, mode="theirs"))
    error = await outcome(client, namespace, lambda ctx, _: ctx.apply(child(mode="ours")))
    assert isinstance(error, NotOwned)
    assert isinstance(error, PlanError)
    assert error.reason == "NameConflict"
    assert str(error) == (
        f"ConfigMap child exists in namespace {namespace} and was not made for ConfigMap parent: "
        "choose another name, or remove it"
    )
    assert await data_of(client, namespace) == {"mode": "theirs"}


async def test_an_apply_names_the_controller_that_has_the_object(client, namespace, parent):
    other = await client.create(configmap(namespace, "other", labels={}))
    theirs = configmap(namespace, mode="theirs")
    theirs.metadata.owner_references = [reference(other)]
    await client.create(theirs)
    error = await outcome(client, namespace, lambda ctx, _: ctx.apply(child(mode="ours"), adopt=CHILD))
    assert isinstance(error, NotOwned)
    assert "belongs to ConfigMap other, not to ConfigMap parent" in str(error)
    assert await data_of(client, namespace) == {"mode": "theirs"}


async def test_an_apply_leaves_a_foreign_object_alone_that_its_cache_does_not_hold(client, namespace, parent):
    await client.create(configmap(namespace, labels={}, mode="theirs"))
    error = await outcome(client, namespace, lambda ctx, _: ctx.apply(child(mode="ours")))
    assert isinstance(error, NotOwned)
    assert await data_of(client, namespace) == {"mode": "theirs"}


async def test_an_apply_leaves_a_foreign_object_alone_that_appears_at_the_same_moment(client, namespace, parent):
    async def act(ctx, _):
        await client.create(configmap(namespace, mode="theirs"))
        await ctx.apply(child(mode="ours"))

    assert isinstance(await outcome(client, namespace, act), NotOwned)
    assert await data_of(client, namespace) == {"mode": "theirs"}


async def test_an_apply_leaves_a_foreign_object_alone_that_has_taken_the_place_of_ours(client, namespace, parent):
    async def act(ctx, _):
        await ctx.apply(child(mode="ours"))
        await client.delete(ConfigMap, "child", namespace=namespace)
        await client.create(configmap(namespace, mode="theirs"))
        await ctx.apply(child(mode="ours again"))

    assert isinstance(await outcome(client, namespace, act), NotOwned)
    assert await data_of(client, namespace) == {"mode": "theirs"}


async def test_an_apply_makes_a_child_again_that_was_deleted_at_the_same_moment(client, namespace, parent):
    async def act(ctx, _):
        await ctx.apply(child(mode="ours"))
        await client.delete(ConfigMap, "child", namespace=namespace)
        return await ctx.apply(child(mode="ours again"))

    made = await outcome(client, namespace, act)
    assert made.data == {"mode": "ours again"}
    assert made.controller.uid == parent.metadata.uid


async def test_an_apply_changes_a_child_that_its_cache_does_not_hold(client, namespace, parent):
    ours = configmap(namespace, labels={}, mode="old")
    ours.metadata.owner_references = [reference(parent)]
    await client.create(ours)
    made = await outcome(client, namespace, lambda ctx, _: ctx.apply(child(mode="new")))
    assert made.data == {"mode": "new"}


async def test_an_untyped_child_is_checked_like_a_typed_one(client, namespace, parent):
    await client.create(configmap(namespace, mode="theirs"))
    kind = Kind(group="", version="v1", kind="ConfigMap", plural="configmaps")
    wire = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "child"}, "data": {"mode": "ours"}}
    error = await outcome(client, namespace, lambda ctx, _: ctx.apply(wire), children=kind, selector=None)
    assert isinstance(error, NotOwned)
    assert await data_of(client, namespace) == {"mode": "theirs"}


async def test_an_object_that_no_controller_has_is_adopted_by_its_labels(client, namespace, parent):
    await client.create(configmap(namespace, mode="left behind"))
    made = await outcome(client, namespace, lambda ctx, _: ctx.apply(child(mode="ours"), adopt=CHILD))
    assert made.data == {"mode": "ours"}
    assert made.controller.uid == parent.metadata.uid


async def test_a_function_may_say_what_is_adopted(client, namespace, parent):
    await client.create(configmap(namespace, mode="left behind"))
    refused = await outcome(client, namespace, lambda ctx, _: ctx.apply(child(mode="ours"), adopt=lambda _: False))
    assert isinstance(refused, NotOwned)
    made = await outcome(
        client, namespace, lambda ctx, _: ctx.apply(child(mode="ours"), adopt=lambda obj: "mode" in obj.data)
    )
    assert made.data == {"mode": "ours"}


async def test_without_an_owner_adopt_says_which_existing_object_may_be_written(client, namespace, parent):
    await client.create(configmap(namespace, labels={}, mode="theirs"))

    def act(ctx, _):
        return ctx.apply(child(mode="ours"), owner=None, adopt=CHILD)

    assert isinstance(await outcome(client, namespace, act), NotOwned)
    assert await data_of(client, namespace) == {"mode": "theirs"}
    await client.delete(ConfigMap, "child", namespace=namespace)
    assert (await outcome(client, namespace, act)).data == {"mode": "ours"}
    assert (await outcome(client, namespace, act)).data == {"mode": "ours"}


async def test_a_name_that_a_foreign_object_has_cannot_be_created(client, namespace, parent):
    await client.create(configmap(namespace, mode="theirs"))
    assert isinstance(await outcome(client, namespace, lambda ctx, _: ctx.create(child())), NotOwned)

    async def twice(ctx, _):
        mine = Child(metadata=ObjectMeta(name="mine", labels=CHILD))
        await ctx.create(mine)
        await ctx.create(mine)

    assert isinstance(await outcome(client, namespace, twice), AlreadyExists)


@pytest.mark.parametrize("labels", [CHILD, {}], ids=["cached", "not cached"])
async def test_a_foreign_object_is_not_deleted_by_its_name(client, namespace, parent, labels):
    await client.create(configmap(namespace, labels=labels, mode="theirs"))
    ref = NamespacedName("child", namespace)
    assert isinstance(await outcome(client, namespace, lambda ctx, _: ctx.delete(Child, ref)), NotOwned)
    assert await data_of(client, namespace) == {"mode": "theirs"}
    assert await outcome(client, namespace, lambda ctx, _: ctx.delete(Child, ref, owner=None)) is True


async def test_a_child_is_deleted_by_its_name_and_its_absence_is_fine(client, namespace, parent):
    ref = NamespacedName("child", namespace)

    async def act(ctx, _):
        before = await ctx.delete(Child, ref)
        await ctx.apply(child())
        return before, await ctx.delete(Child, ref)

    assert await outcome(client, namespace, act) == (False, True)


async def test_a_child_is_made_once_the_foreign_object_is_gone(client, namespace, parent):
    await client.create(configmap(namespace, mode="theirs"))
    refusals = []

    async def reconcile(ctx, _):
        try:
            await ctx.apply(child(mode="ours"))
        except NotOwned as error:
            refusals.append(error)
            raise
        return done

    async with running(client, owning(namespace, reconcile)):
        await eventually(lambda: refusals)
        await client.delete(ConfigMap, "child", namespace=namespace)

        async def made() -> bool:
            found = await client.list(ConfigMap, namespace=namespace, label_selector="role=child")
            return [obj.data for obj in found.items] == [{"mode": "ours"}]

        await eventually(made)


@pytest.mark.parametrize("held", [True, False], ids=["terminating", "gone"])
async def test_nothing_is_adopted_for_an_owner_that_is_being_deleted(client, namespace, parent, held):
    """A cache may show that children were cut loose before it shows why."""
    await client.create(configmap(namespace, mode="left behind"))
    if held:
        await client.patch(ConfigMap, "parent", {"metadata": {"finalizers": ["example.org/hold"]}}, namespace=namespace)

    async def act(ctx, _):
        await client.delete(ConfigMap, "parent", namespace=namespace)
        await ctx.apply(child(mode="ours"), adopt=CHILD)

    error = await outcome(client, namespace, act)
    assert isinstance(error, Conflict)
    assert "adopts nothing" in str(error)
    assert await data_of(client, namespace) == {"mode": "left behind"}


async def test_no_right_to_get_is_needed(client, namespace, parent):
    await client.create(configmap(namespace, labels={}, mode="theirs"))
    await client.create(configmap(namespace, "orphan"))
    asked, request = [], client.transport.request

    async def recording(method: str, path: str, **options: Any) -> Any:
        asked.append(f"{method} {path.rpartition('/')[2]}")
        return await request(method, path, **options)

    client.transport.request = recording
    assert isinstance(await outcome(client, namespace, lambda ctx, _: ctx.apply(child(mode="ours"))), NotOwned)
    orphan = Child(metadata=ObjectMeta(name="orphan", labels=CHILD))
    assert (await outcome(client, namespace, lambda ctx, _: ctx.apply(orphan, adopt=CHILD))).controller
    assert isinstance(await outcome(client, namespace, lambda ctx, _: ctx.create(child())), NotOwned)
    assert "PATCH orphan" in asked
    assert [line for line in asked if line.startswith("GET ") and line != "GET configmaps"] == []
