"""Daemons, timers and field handlers at work, on the embedded and the real server: what they write passes the guard."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from steersman.kube.api.errors import NotFound
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types.core import ConfigMap
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.runtime.controller.builder import Controller
from steersman.runtime.reconcile.write_guard import NotLeading
from steersman.testing import eventually, running


@pytest.fixture
async def client(cluster, tmp_path):
    cluster.write_kubeconfig(tmp_path / "kubeconfig")
    async with Client.connect(load_config(tmp_path / "kubeconfig")) as connected:
        yield connected


def parent(namespace: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name="parent", namespace=namespace, labels={"role": "parent"}), data=data)


def made_by(author: str, namespace: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=author, namespace=namespace), data={"by": author})


async def idle(_ctx: Any, _obj: Any) -> None:
    """A reconciler with nothing to do."""


def controller_of(namespace: str) -> Controller:
    return Controller(ConfigMap, idle, "background").select(namespaces=[namespace], label_selector="role=parent")


class Work:
    """A daemon, a timer and a field handler that write an object each, by the context and by the raw client."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.ran: dict[str, int] = {}
        self.cancelled = asyncio.Event()

    def note(self, author: str) -> None:
        self.ran[author] = self.ran.get(author, 0) + 1

    async def daemon(self, ctx: Any, obj: Any) -> None:
        with ctx.snapshot() as now:
            await now.apply(made_by("daemon", self.namespace))
        await ctx.client.apply(made_by("daemon-raw", self.namespace), force=True)
        self.note("daemon")
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()

    async def timer(self, ctx: Any, obj: Any) -> None:
        await ctx.apply(made_by("timer", self.namespace))
        self.note("timer")

    async def field(self, ctx: Any, obj: Any, change: Any) -> None:
        await ctx.apply(made_by(f"field-{change.old}-{change.new}", self.namespace))
        self.note("field")

    def controller(self) -> Controller:
        rows = controller_of(self.namespace).daemon(self.daemon).timer(self.timer, every=0.05)
        return rows.on_field("data.mode", self.field)


WRITTEN = {"daemon", "daemon-raw", "timer", "field-a-b"}


async def stored(client: Client, namespace: str) -> set[str]:
    found = (await client.list(ConfigMap, namespace=namespace)).items
    return {obj.name for obj in found} & WRITTEN


async def change_mode(client: Client, namespace: str, work: Work) -> None:
    await eventually(lambda: work.ran.keys() >= {"daemon", "timer"})
    await client.patch(ConfigMap, "parent", {"data": {"mode": "b"}}, namespace=namespace)
    await eventually(lambda: "field" in work.ran)


async def test_background_work_writes_and_ends_with_its_object(client, namespace):
    work = Work(namespace)
    await client.create(parent(namespace, mode="a"))
    async with running(client, work.controller()):
        await change_mode(client, namespace, work)
        await eventually(lambda: work.ran["timer"] >= 3)
        assert await stored(client, namespace) == WRITTEN
        await client.delete(ConfigMap, "parent", namespace=namespace)
        await eventually(work.cancelled.is_set)


async def test_in_a_dry_run_nothing_that_background_work_writes_is_stored(client, namespace):
    work = Work(namespace)
    await client.create(parent(namespace, mode="a"))
    async with running(client, work.controller(), dry_run=True):
        await change_mode(client, namespace, work)
    assert work.cancelled.is_set()
    assert await stored(client, namespace) == set()


async def test_a_daemon_whose_namespace_is_taken_away_can_no_longer_write(client, namespace):
    mine = {namespace}
    started, taken, refused = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def daemon(ctx: Any, obj: Any) -> None:
        started.set()
        await taken.wait()
        with ctx.snapshot() as now, pytest.raises(NotLeading):
            await now.apply(made_by("daemon", namespace))
        with pytest.raises(NotLeading):
            await ctx.client.create(made_by("daemon-raw", namespace))
        with pytest.raises(NotLeading):
            ctx.effect("http call", "example.org")
        refused.set()

    await client.create(parent(namespace))
    async with running(client, controller_of(namespace).daemon(daemon), permit=lambda name: name in mine):
        await eventually(started.is_set)
        mine.clear()
        taken.set()
        await eventually(refused.is_set)
    for name in ("daemon", "daemon-raw"):
        with pytest.raises(NotFound):
            await client.get(ConfigMap, name, namespace=namespace)
