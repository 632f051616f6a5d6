"""Many replacements at once: never more than allowed, and all of them in the end. On the simulated cluster."""

from __future__ import annotations

import contextlib

import pytest
from prometheus_client import CollectorRegistry

from steersman.operators.hourglass.api.config import HourglassConfig, HourglassOptions
from steersman.operators.hourglass.api.types import StoredExecutor, StoredPerformer
from steersman.operators.hourglass.controllers.setup import controllers, parts
from steersman.runtime.manager.operator_bundle import RowState, RuntimeEnvironment
from steersman.testing import eventually, running
from tests.support.hourglass import executor, install, performer, ready_performer
from tests.support.states import every_state

pytestmark = pytest.mark.timeout(300)
COUNT = 12


@contextlib.asynccontextmanager
async def at_work(client, namespace, **options):
    registry = CollectorRegistry()
    made = [
        controller.within([namespace]) for controller in controllers(HourglassOptions(**options), registry=registry)
    ]
    async with running(client, *made, registry=registry) as manager:
        yield manager


def config_of(namespace, **scheduling):
    return {"kubernetes": {"namespace": namespace, "defaultScheduling": scheduling}}


async def replace_all(client, namespace):
    """Change what all of them inherit, and look on until they have followed; returns the most away at once."""
    labels = {"tolerations": [{"key": "new", "operator": "Exists"}]}
    change = {"spec": {"config": config_of(namespace, **labels)}}
    most = 0
    async with every_state(client, StoredPerformer, namespace=namespace) as passing:
        await client.patch(StoredExecutor, "e", change, namespace=namespace)
        async for state in passing:
            found = [one.status for one in state.values()]
            busy = [item for item in found if item["phase"] == "Upgrading" or not item["ready"]]
            most = max(most, len(busy))
            if not busy and all(item.get("lastUpgrade") for item in found):
                break
    return most


@pytest.mark.parametrize(("options", "policy", "limit"), [({"max_replacements": 3}, None, 3), ({}, 2, 2)])
async def test_a_change_of_the_executor_replaces_its_performers_a_few_at_a_time(
    simulated, client, namespace, options, policy, limit
):
    await install(client)
    extra = {} if policy is None else {"performers": {"maxUnavailable": policy}}
    async with at_work(client, namespace, **options):
        await client.create(executor("e", namespace, config=config_of(namespace), **extra))
        for number in range(COUNT):
            await client.create(performer(f"p{number}", namespace, executorRef="e"))
        for number in range(COUNT):
            await ready_performer(client, f"p{number}", namespace)
        assert 1 <= await replace_all(client, namespace) <= limit


async def test_a_missing_executor_is_a_warning_and_no_obstacle(simulated, client, namespace):
    await install(client)
    async with at_work(client, namespace):
        await client.create(performer("p", namespace, executorRef="nobody"))
        status = await ready_performer(client, "p", namespace)
        degraded = {condition["type"]: condition for condition in status["conditions"]}["Degraded"]
        assert (degraded["status"], degraded["reason"]) == ("True", "ExecutorNotFound")


async def test_the_tables_show_phases_and_why_one_is_not_available(simulated, client, namespace):
    await install(client)
    around = RuntimeEnvironment(namespaces=[namespace])
    made = parts(HourglassConfig(), around)
    async with at_work(client, namespace) as manager:
        await client.create(performer("good", namespace))
        await client.create(performer("stuck", namespace, scheduling={"nodeSelector": {"no": "such-node"}}))
        await client.create(executor("e", namespace))
        await ready_performer(client, "good", namespace)

        def shown():
            performers, executors = made.tables(manager.cluster())
            rows = {row.cells[0]: row for row in performers.rows}
            assert (rows["good"].cells[2], rows["good"].state) == ("Running", RowState.GOOD)
            assert rows["stuck"].state == RowState.BAD
            assert "nodes are available" in rows["stuck"].note
            return [row.cells[2] for row in executors.rows] == ["Running"]

        await eventually(shown, timeout=60)
