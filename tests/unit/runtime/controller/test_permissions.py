"""Rights that follow from controllers: from their tables, and from what their functions ask of the context."""

from __future__ import annotations

import asyncio
import functools

import pytest

import steersman as sm
from steersman.runtime.controller.permissions import derive_rules
from steersman.runtime.rbac import rule_manifest

WIDGETS = sm.Kind(group="example.org", version="v1", kind="Widget", plural="widgets")
QUOTAS = sm.Kind(group="example.org", version="v1", kind="Quota", plural="quotas", namespaced=False)


class Shop(sm.Resource, group="example.org", version="v1"):
    class Status(sm.Struct):
        ready: bool = False

    status: Status | None = None


class Till(sm.Resource, group="example.org", version="v1"):
    class Status(sm.Struct):
        conditions: list[sm.Condition] | None = None

    status: Status | None = None


class Plan(sm.Struct):
    surplus: list[sm.Job]
    config: sm.ConfigMap | None = None


def verbs(controller, *, cluster=""):
    """resource -> verbs."""
    derived = derive_rules([controller], cluster=cluster)
    assert derived.unresolved == ()
    found = {}
    for row in map(rule_manifest, derived.rules):
        for resource in row["resources"]:
            found.setdefault(resource, set()).update(row["verbs"])
    return found


def for_shops(reconcile):
    return verbs(sm.Controller(Shop, reconcile))


async def nothing(ctx, obj):
    pass


def test_a_table_needs_lists_and_watches_and_what_the_runtime_writes():
    table = sm.Controller(Till, nothing).owns(sm.Secret).watches(sm.Node, to=lambda node: []).reads(WIDGETS)
    read = {"list", "watch"}
    assert verbs(table.finalizer("example.org/gone", nothing)) == {
        "tills": {*read, "patch"},
        "tills/status": {"patch"},  # the condition Stalled
        "tills/finalizers": {"update"},
        "secrets": read,
        "nodes": read,
        "widgets": read,
        "events": {"create", "patch"},
    }
    assert for_shops(nothing) == {"shops": read, "events": {"create", "patch"}}


def config_map(shop):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": shop.name}}


def plan(shop) -> Plan:
    return Plan([])


class Store:
    """What authors keep beside a controller."""

    kind = sm.Secret

    def __init__(self, other):
        self.other = other

    async def reconcile(self, ctx, shop):
        await ctx.delete(self.kind, shop.ref)
        await self._forget(ctx, shop)

    async def _forget(self, ctx, shop):
        await ctx.delete(self.other, shop.ref)

    async def __call__(self, ctx, shop):
        await ctx.client.get(self.other, shop.name)


async def applies_a_manifest(ctx, shop):
    await ctx.apply(config_map(shop))


async def applies_what_is_assigned_in_branches(ctx, shop):
    child = None
    if shop.name == "a":
        child = config_map(shop)
    elif shop.name == "b":
        child = sm.Secret(metadata=sm.ObjectMeta(name="b"))
    await ctx.apply(child)


async def applies_a_list(ctx, shop):
    children = [config_map(shop), {**config_map(shop), "data": {}}]
    for child in children:
        await ctx.create(child)


async def deletes_what_a_type_names(ctx, shop):
    step = plan(shop)
    for job in step.surplus[1:]:
        await ctx.delete(job)
    if step.config is not None:
        await ctx.patch(step.config, {"data": None})


async def deletes_from_the_cache(ctx, shop):
    await asyncio.gather(*(ctx.delete(job) for job in sorted(ctx.cache[sm.Job].list(namespace="x"))))


async def loops_over_kinds(ctx, shop):
    for kind in (sm.Secret, sm.ConfigMap):
        await ctx.delete(kind, shop.ref)


async def asks_a_client(ctx, shop):
    client = ctx.client
    await client.get(sm.Node, "n")
    await client.delete_collection(WIDGETS, namespace="x")
    await client.scale(sm.Deployment, "web", 3)
    await client.update_with_retry(sm.Secret, "s", lambda secret: secret)
    (first, *_) = (await client.list(sm.ConfigMap)).items
    await client.replace(first)


async def writes_status(ctx, shop):
    await ctx.status(shop, ready=True)


async def streams(ctx, shop):
    pod = ctx.cache[sm.Pod].get(shop.ref)
    await ctx.logs(pod)
    await ctx.exec(pod, ["ls"])


async def uses_functions_inside(ctx, shop):
    async def remove(kind):
        await ctx.delete(kind, shop.ref)

    await remove(sm.Secret)


async def takes_over(ctx, shop):
    await ctx.apply(config_map(shop), adopt={"app": "shop"})


def blocks(ctx: sm.BlockingContext, shop):
    ctx.apply(config_map(shop))


MAKE = {"create", "patch"}


@pytest.mark.parametrize(
    ("reconcile", "expected"),
    [
        (applies_a_manifest, {"configmaps": MAKE}),
        (applies_what_is_assigned_in_branches, {"configmaps": MAKE, "secrets": MAKE}),
        (applies_a_list, {"configmaps": {"create"}}),
        (deletes_what_a_type_names, {"jobs": {"delete"}, "configmaps": {"patch"}}),
        (deletes_from_the_cache, {"jobs": {"delete"}}),
        (loops_over_kinds, {"secrets": {"delete"}, "configmaps": {"delete"}}),
        (
            asks_a_client,
            {
                "nodes": {"get"},
                "widgets": {"deletecollection"},
                "deployments/scale": {"patch"},
                "secrets": {"get", "update"},
                "configmaps": {"list", "update"},
            },
        ),
        (writes_status, {"shops/status": {"patch"}}),
        (streams, {"pods/log": {"get"}, "pods/exec": {"get", "create"}}),
        (uses_functions_inside, {"secrets": {"delete"}}),
        (takes_over, {"configmaps": {*MAKE, "list"}}),
        (blocks, {"configmaps": MAKE}),
        (Store(WIDGETS).reconcile, {"secrets": {"delete"}, "widgets": {"delete"}}),
        (Store(WIDGETS), {"widgets": {"get"}}),
        (functools.partial(Store.reconcile, Store(WIDGETS)), {"secrets": {"delete"}, "widgets": {"delete"}}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_function_needs_what_it_asks_of_the_context(reconcile, expected):
    assert for_shops(reconcile) == {"shops": {"list", "watch"}, "events": MAKE, **expected}


def test_every_handler_is_read():
    async def gone(ctx, key):
        await ctx.client.delete(sm.Secret, key.name)

    async def timer(ctx, shop):
        await ctx.client.get(sm.Node, "n")

    async def daemon(ctx: sm.DaemonContext, shop):
        with ctx.snapshot() as now:
            await now.status(shop, ready=True)

    async def changed(ctx, shop, change):
        await ctx.client.list(sm.Pod)

    table = sm.Controller(Shop, nothing).on_missing(gone).timer(timer, every=60).daemon(daemon)
    found = verbs(table.on_field("status.ready", changed))
    assert found["secrets"] == {"delete"}
    assert found["nodes"] == {"get"}
    assert found["pods"] == {"list"}
    assert found["shops/status"] == {"patch"}


def test_another_cluster_has_rights_of_its_own():
    async def mirror(ctx, shop):
        await ctx.clusters["there"].apply(config_map(shop))

    table = sm.Controller(Shop, mirror).watches(sm.ConfigMap, to=lambda _: [], cluster="there")
    assert "configmaps" not in verbs(table)
    assert verbs(table, cluster="there") == {"configmaps": {"list", "watch", *MAKE}}


def test_kinds_without_a_namespace_are_granted_for_the_cluster():
    async def reads(ctx, shop):
        await ctx.client.get(QUOTAS, "one")

    granted = derive_rules([sm.Controller(Shop, reads)]).permissions()
    assert [row.resources for row in granted.cluster] == [["quotas"]]


async def asks_for_any_kind(ctx, shop):
    await ctx.client.get(shop.kind_of_child(), "x")


async def hands_the_context_on(ctx, shop):
    await asyncio.wait_for(ctx, 1)


async def applies_something(ctx, shop):
    child = config_map(shop) if shop.name else shop.child()
    await ctx.apply(child)


async def posts(ctx, shop):
    await ctx.client.raw_post("/apis/example.org/v1/x", {})


async def follows_names(ctx, shop):
    ctx.caches.informer(sm.Secret)


@pytest.mark.parametrize(
    ("reconcile", "call"),
    [
        (asks_for_any_kind, "ctx.client.get(shop.kind_of_child(), 'x')"),
        (hands_the_context_on, "wait_for(ctx, 1)"),
        (applies_something, "ctx.apply(child)"),
        (posts, "ctx.client.raw_post("),
        (follows_names, "ctx.caches"),
    ],
)
def test_a_call_that_cannot_be_read_is_named_with_file_and_line_until_it_is_declared(reconcile, call):
    table = sm.Controller(Shop, reconcile)
    (request,) = derive_rules([table]).unresolved
    assert call in request.call
    file, _, line = request.where.rpartition(":")
    assert file.endswith("test_permissions.py")
    assert 0 < int(line) - reconcile.__code__.co_firstlineno <= 2
    assert "declare it: Controller.needs(rule(" in str(request)
    declared = derive_rules([table.needs(sm.rule("secrets", *(request.verbs or ["get"])))])
    assert declared.unresolved == ()
    assert any("secrets" in row.resources for row in declared.rules)


def test_a_declaration_with_other_verbs_answers_nothing():
    table = sm.Controller(Shop, asks_for_any_kind).needs(sm.rule("secrets", "delete"))
    assert len(derive_rules([table]).unresolved) == 1


def test_a_function_that_calls_itself_is_read_once():
    async def again(ctx, shop):
        await ctx.delete(sm.Secret, shop.ref)
        await again(ctx, shop)

    assert for_shops(again)["secrets"] == {"delete"}
