"""A configured operator is taken in whole: controllers, tasks, checks, routes and tables."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from steersman.errors import ConfigError
from steersman.kube.api.objects import ObjectMeta, Resource
from steersman.runtime.cluster import Cluster
from steersman.runtime.controller.builder import Controller
from steersman.runtime.manager.manager import Manager
from steersman.runtime.manager.operator_bundle import OperatorBundle, Row, RowState, Table, Task, condition_state
from steersman.runtime.reconcile.conditions import new_condition
from steersman.testing import eventually
from steersman.testing.clock import settle


class App(Resource, group="example.org", version="v1"):
    pass


def build(clock: Any, caches: Any, **options: Any) -> Manager:
    client: Any = SimpleNamespace(field_manager="test", guarded=lambda _guard: client)

    class Tested(Manager):
        def _cluster(self, name: str, client: Any, component: str) -> Cluster:
            return Cluster(client, caches, name=name)

    return Tested(client, clock=clock, registry=CollectorRegistry(), **options)


@pytest.fixture
async def run():
    running = []

    async def start(manager: Manager) -> None:
        running.append((manager, asyncio.create_task(manager.run())))
        await settle()

    yield start
    for manager, task in running:
        manager.stop()
        await task


async def test_its_controllers_work_and_its_tasks_run_with_the_cluster(clock, caches, run):
    seen, given = [], []

    async def reconcile(ctx, obj):
        seen.append(obj.name)

    async def work(cluster):
        given.append(cluster)
        await asyncio.Event().wait()

    manager = build(clock, caches)
    manager.include(
        "op", OperatorBundle(controllers=[Controller(App, reconcile)], tasks=[Task(name="sweep", run=work)])
    )
    await run(manager)
    caches[App].sync(App(metadata=ObjectMeta(name="a", namespace="shop")))
    await eventually(lambda: seen == ["a"])
    assert given == [manager.cluster()]


async def test_its_tasks_are_called_by_its_name_and_wait_for_leadership_unless_they_say_otherwise(clock, caches, run):
    started = []

    def noting(name: str, **options: Any) -> Task:
        async def work(cluster):
            started.append(name)
            await asyncio.Event().wait()

        return Task(name=name, run=work, **options)

    waiting = asyncio.Event()

    class Never:
        slow_renewals = 0

        async def acquire(self):
            await waiting.wait()

        def problem(self):
            return None

        def leading(self):
            return False

        async def release(self):
            return False

    manager = build(clock, caches, elector=Never())
    manager.include("op", OperatorBundle(controllers=(), tasks=[noting("leads"), noting("always", leader_only=False)]))
    await run(manager)
    assert started == ["always"]


async def test_its_checks_count_for_readiness_under_its_name(clock, caches, run):
    problems = {"named": "does not answer"}
    manager = build(clock, caches)
    manager.include("dns", OperatorBundle(controllers=(), checks={"named": lambda: problems.get("named")}))
    await run(manager)
    assert manager.ready()["dns named"] == "does not answer"
    problems.clear()
    assert manager.ready()["dns named"] is None


async def test_its_routes_are_served_on_the_managers_listener(clock, caches, run):
    def routes(cluster):
        async def answer(request: web.Request) -> web.Response:
            return web.json_response({"home": cluster is manager.cluster()})

        return [web.get("/api/op/home", answer)]

    manager = build(clock, caches, listen="127.0.0.1:0")
    manager.include("op", OperatorBundle(controllers=(), routes=routes))
    await run(manager)
    await eventually(lambda: manager.health.port)
    url = f"http://127.0.0.1:{manager.health.port}/api/op/home"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert (response.status, await response.json()) == (200, {"home": True})


async def test_without_a_listener_its_routes_are_not_requested(clock, caches):
    manager = build(clock, caches)
    manager.include("op", OperatorBundle(controllers=(), routes=lambda _: pytest.fail("asked")))


async def test_its_tables_are_created_again_for_every_reconcile(clock, caches):
    looks = []

    def tables(cluster):
        looks.append(cluster)
        return [Table("zones", ["name"], [Row([f"look {len(looks)}"])])]

    manager = build(clock, caches)
    manager.include("op", OperatorBundle(controllers=(), tables=tables))
    manager.include("quiet", OperatorBundle(controllers=()))
    assert manager.reports["op"]().tables[0].rows[0].cells == ["look 1"]
    assert manager.reports["op"]().tables[0].rows[0].cells == ["look 2"]
    assert list(manager.reports) == ["op", "quiet"]
    assert set(looks) == {manager.cluster()}


async def test_two_operators_with_a_controller_of_the_same_name_are_refused(clock, caches):
    manager = build(clock, caches)
    manager.include("one", OperatorBundle(controllers=[Controller(App, print)]))
    with pytest.raises(ConfigError, match=r"two controllers called app: give one another name"):
        manager.include("two", OperatorBundle(controllers=[Controller(App, print)]))


@pytest.mark.parametrize(
    ("condition", "state"),
    [
        (None, (RowState.BUSY, "")),
        (new_condition("Ready", None, "Waiting", "for pods"), (RowState.BUSY, "for pods")),
        (new_condition("Ready", True, "AllReady"), (RowState.GOOD, "")),
        (new_condition("Ready", False, "Missing", "secret/db"), (RowState.BAD, "secret/db")),
    ],
)
def test_a_row_has_the_state_of_its_condition(condition, state):
    assert condition_state(condition) == state
