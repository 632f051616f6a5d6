"""Reconcilers in threads: what a cancelled one asked for ends with it."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from steersman.cache.store import ObjectStore
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ObjectMeta, Resource
from steersman.runtime.cluster import ClusterSnapshot
from steersman.runtime.reconcile.blocking_context import Abandoned, BlockingContext, run_blocking
from steersman.runtime.reconcile.context import ClusterContext, Context
from steersman.testing.clock import settle


class Thing(Resource, group="example.org", version="v1"):
    pass


def thing(name: str) -> Thing:
    return Thing(metadata=ObjectMeta(name=name, namespace="shop", uid=name, resource_version="1"))


class Server:
    """The context of a reconcile whose writes are answered when the test says so."""

    def __init__(self) -> None:
        self.asked, self.answer = asyncio.Event(), asyncio.Event()
        self.diary: list[str] = []

    def context(self) -> Any:
        fields = {"reconcile_id": "id", "failures": 0, "clock": None, "log": None, "cache": None, "clusters": {}}
        fields |= {"field_manager": "test"}
        return SimpleNamespace(key="shop/a", apply=self.apply, **fields)

    async def apply(self, obj: str) -> str:
        self.asked.set()
        try:
            await self.answer.wait()
        except asyncio.CancelledError:
            self.diary.append("request cancelled")
            raise
        self.diary.append(f"{obj} written")
        return obj


async def test_a_request_in_flight_ends_with_the_reconcile_that_made_it():
    """A lost lease cancels workers: nothing they asked for may arrive after somebody else leads."""
    server = Server()

    def reconcile(ctx: Any, obj: str) -> None:
        try:
            ctx.apply(obj)
        except Abandoned as why:
            server.diary.append(str(why))
        ctx.apply("another")

    task = asyncio.create_task(run_blocking(reconcile, server.context(), "one"))
    await server.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.diary == ["request cancelled", "the reconcile of shop/a was cancelled"]


async def test_a_request_made_after_the_cancellation_is_never_sent():
    server, go, loop = Server(), threading.Event(), asyncio.get_running_loop()
    began, outcome = asyncio.Event(), []

    def reconcile(ctx: Any, obj: str) -> None:
        loop.call_soon_threadsafe(began.set)
        go.wait()
        try:
            ctx.apply(obj)
        except Abandoned:
            outcome.append(ctx.abandoned)
            raise

    task = asyncio.create_task(run_blocking(reconcile, server.context(), "one"))
    await began.wait()
    task.cancel()
    loop.call_soon(go.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (outcome, server.asked.is_set()) == ([True], False)


async def test_a_reconcile_that_is_cancelled_again_and_again_still_ends_no_earlier_than_its_thread():
    """The second cancellation is that of a process that stops: as long as the thread works, so does the reconcile."""
    server, go, loop = Server(), threading.Event(), asyncio.get_running_loop()
    began = asyncio.Event()

    def reconcile(_ctx: Any, _obj: str) -> None:
        loop.call_soon_threadsafe(began.set)
        go.wait()
        server.diary.append("thread ended")

    task = asyncio.create_task(run_blocking(reconcile, server.context(), "one"))
    await began.wait()
    for _ in range(3):
        task.cancel()
        await settle()
        assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.diary == ["thread ended"]


async def test_a_request_that_is_not_cancelled_is_answered():
    server = Server()
    server.answer.set()
    assert await run_blocking(lambda ctx, obj: ctx.apply(obj), server.context(), "one") == "one"


def public(what: Any) -> set[str]:
    return {name for name in dir(what) if not name.startswith("_")}


async def test_a_thread_can_do_what_a_coroutine_can(memory_cluster):
    """All but to use what belongs to the event loop: the client, and caches that are asked for at run time."""
    with ClusterSnapshot([], user="test") as cache:
        other = ClusterContext(memory_cluster, cache, field_manager="test")
        known = {"key": "a", "reconcile_id": "id", "clock": None, "log": None, "others": {"other": other}}
        context = Context(memory_cluster, cache, field_manager="test", **known)
        blocking = BlockingContext(context, asyncio.get_running_loop())
        assert public(context) - public(blocking) == {"client", "caches"}
        assert public(other) - public(blocking.clusters["other"]) == {"client", "caches"}


async def test_a_thread_reads_a_snapshot_like_any_collection():
    with ObjectStore[Any]().snapshot() as snapshot:
        known = thing("a")
        snapshot.record_write(known)
        server = Server()
        context = server.context()
        context.cache = {Thing: snapshot}

        def reconcile(ctx: Any, _obj: str) -> list[Any]:
            things = ctx.cache[Thing]
            return [list(things), len(things), known.ref in things, NamespacedName("b", "shop") in things]

        assert await run_blocking(reconcile, context, "one") == [[known], 1, True, False]
