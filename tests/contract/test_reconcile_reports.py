"""What a reconcile writes to its own object, as the server stores it: conditions, status, errors, finalizers."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from steersman.crd.manifest import crd_manifest
from steersman.errors import PlanError
from steersman.kube.api.errors import NotFound
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ObjectMeta, Resource, Struct
from steersman.kube.api.types.core import Event
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.runtime.controller.builder import Controller
from steersman.runtime.controller.result import requeue
from steersman.runtime.reconcile.conditions import Condition
from steersman.testing import RequestLog, eventually, running


class BoxSpec(Struct):
    size: int = 1


class BoxStatus(Struct):
    ready: bool = False
    conditions: list[Condition] | None = None


class BoxBase(Resource):
    spec: BoxSpec = BoxSpec()
    status: BoxStatus = BoxStatus()


@pytest.fixture
async def client(cluster, tmp_path):
    cluster.write_kubeconfig(tmp_path / "kubeconfig")
    async with Client.connect(load_config(tmp_path / "kubeconfig")) as connected:
        yield connected


@pytest.fixture
async def box(client):
    """A kind of the test's own, installed and removed again."""
    name = f"Box{uuid.uuid4().hex[:8]}"
    kind: Any = type(BoxBase)(name, (BoxBase,), {}, group="reports.example.org", version="v1", kind=name)
    manifest = crd_manifest(kind)
    await client.apply(manifest)

    async def served():
        try:
            await client.list(kind, namespace="default")
        except NotFound:
            return False
        return True

    await eventually(served)
    yield kind
    crds = manifest["metadata"]["name"]
    await client.transport.request("DELETE", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crds}")


def named(kind: Any, namespace: str, **spec: Any) -> Any:
    return kind(metadata=ObjectMeta(name="a", namespace=namespace), spec=BoxSpec(**spec))


def status_writes(log: RequestLog) -> list[str]:
    return [write for write in log.writes if write.endswith("/status")]


async def test_a_condition_is_stored_as_the_api_defines_it_and_written_once(client, namespace, box):
    runs: list[bool] = []

    async def reconcile(ctx, obj):
        runs.append(await ctx.set_condition(obj, "Ready", True, reason="Packed", message="1 item", ready=True))
        return requeue(after=0.01) if len(runs) < 4 else None

    await client.create(named(box, namespace))
    with RequestLog(client) as log:
        async with running(client, Controller(box, reconcile).select(namespaces=[namespace])):
            await eventually(lambda: len(runs) >= 4)
    assert runs[:4] == [True, False, False, False]
    assert len(status_writes(log)) == 1
    stored = await client.get(box, "a", namespace=namespace, into=dict)
    (condition,) = stored["status"]["conditions"]
    assert condition.pop("lastTransitionTime")
    assert condition == {
        "type": "Ready",
        "status": "True",
        "reason": "Packed",
        "message": "1 item",
        "observedGeneration": 1,
    }
    assert stored["status"]["ready"] is True


async def test_the_first_status_is_stored_even_when_it_has_nothing_but_defaults(client, namespace, box):
    answers: list[bool] = []

    async def reconcile(ctx, obj):
        answers.append(await ctx.status(obj, ready=False))
        return requeue(after=0.01) if len(answers) < 3 else None

    await client.create(named(box, namespace))
    async with running(client, Controller(box, reconcile).select(namespaces=[namespace])):
        await eventually(lambda: len(answers) >= 3)
    assert answers[:3] == [True, False, False]
    assert (await client.get(box, "a", namespace=namespace, into=dict))["status"] == {"ready": False}


async def test_a_plan_error_is_stored_as_a_condition_with_one_event_and_taken_back(client, namespace, box):
    runs: list[int] = []

    async def reconcile(ctx, obj):
        runs.append(obj.spec.size)
        if obj.spec.size < 1:
            raise PlanError("must be at least 1", reason="InvalidSize", field="spec.size")

    async def stored() -> list[dict[str, Any]]:
        found = await client.get(box, "a", namespace=namespace, into=dict)
        return found.get("status", {}).get("conditions", [])

    async def events() -> list[Event]:
        found = (await client.list(Event, namespace=namespace)).items
        return [event for event in found if event.reason == "InvalidSize"]

    await client.create(named(box, namespace, size=0))
    async with running(client, Controller(box, reconcile, "sizes").select(namespaces=[namespace])) as manager:
        (condition,) = await eventually(stored)
        assert (condition["type"], condition["status"], condition["reason"], condition["message"]) == (
            "Stalled",
            "True",
            "InvalidSize",
            "spec.size: must be at least 1",
        )
        await eventually(events)
        for count in range(len(runs) + 1, len(runs) + 4):
            manager.runner("sizes").add(NamespacedName("a", namespace))
            await eventually(lambda count=count: len(runs) >= count)
        await client.patch(box, "a", {"spec": {"size": 2}}, namespace=namespace)

        async def cleared() -> bool:
            return not await stored()

        await eventually(cleared)
    (event,) = await events()
    assert (event.type, event.count) == ("Warning", 1)


async def test_several_finalizers_are_added_in_one_write_and_cleaned_up_in_their_order(client, namespace, box):
    steps: list[str] = []
    allowed = asyncio.Event()

    async def reconcile(ctx, obj):
        steps.append(f"reconcile {obj.metadata.finalizers}")

    async def first(ctx, obj):
        steps.append(f"first {obj.metadata.finalizers}")
        return None if allowed.is_set() else requeue(after=0.01)

    async def second(ctx, obj):
        steps.append(f"second {obj.metadata.finalizers}")

    one, two = "example.org/first", "example.org/second"
    controller = Controller(box, reconcile).select(namespaces=[namespace]).finalizer(one, first).finalizer(two, second)
    await client.create(named(box, namespace))
    with RequestLog(client) as log:
        async with running(client, controller):
            await eventually(lambda: steps)
            assert len(log.writes) == 1
            await client.delete(box, "a", namespace=namespace)
            await eventually(lambda: steps.count(f"first {[one, two]}") >= 2)
            assert not any(step.startswith("second") for step in steps)
            allowed.set()

            async def gone():
                return not (await client.list(box, namespace=namespace)).items

            await eventually(gone)
    assert steps[0] == f"reconcile {[one, two]}"
    assert [step for step in steps if step.startswith("second")] == [f"second {[two]}"]
    assert steps[-1] == f"second {[two]}"
