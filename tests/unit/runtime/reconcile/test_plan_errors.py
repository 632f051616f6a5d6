"""What an object says of a PlanError, and how often."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from steersman.errors import PlanError
from steersman.kube.api.errors import Forbidden
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ObjectMeta, Resource, Struct
from steersman.kube.api.patches import apply_merge_patch
from steersman.runtime.cluster import Cluster
from steersman.runtime.controller.builder import Controller
from steersman.runtime.controller.runner import ControllerRunner
from steersman.runtime.reconcile.conditions import Condition
from steersman.testing.clock import settle


class ZoneStatus(Struct):
    conditions: list[Condition] | None = None


class Zone(Resource, group="example.org", version="v1"):
    status: ZoneStatus = ZoneStatus()


class Plain(Resource, group="example.org", version="v1"):
    pass


A = NamespacedName("a", "shop")


def made(kind: Any, revision: str = "1", **fields: Any) -> Any:
    meta = ObjectMeta(name="a", namespace="shop", uid="u", resource_version=revision, generation=1)
    return kind(metadata=meta, **fields)


class Server:
    """A client that stores the status of one object."""

    field_manager = "test"

    def __init__(self) -> None:
        self.held: Any = None
        self.patches: list[Any] = []
        self.refusal: Exception | None = None

    def guarded(self, _guard: Any) -> Server:
        return self

    async def patch(self, _target: Any, _name: str, patch: dict[str, Any], **_: Any) -> Any:
        if self.refusal is not None:
            raise self.refusal
        self.patches.append(patch)
        revision = str(int(self.held.metadata.resource_version) + 1)
        status = apply_merge_patch(msgspec.to_builtins(self.held.status), patch["status"])
        self.held = made(type(self.held), revision, status=msgspec.convert(status, ZoneStatus))
        return self.held


class Recorder:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, bool]] = []

    def event(self, _obj: Any, _kind: Any, reason: str, message: str, *, warning: bool) -> None:
        self.events.append((reason, message, warning))


class Bench:
    """One controller whose reconciler raises what the test says."""

    def __init__(self, caches: Any, clock: Any) -> None:
        self.server, self.recorder, self.caches, self.clock = Server(), Recorder(), caches, clock
        self.problem: Exception | None = None
        self.runs = 0
        self.tasks: list[asyncio.Task[None]] = []

    async def reconcile(self, _ctx: Any, _obj: Any) -> None:
        self.runs += 1
        if self.problem is not None:
            raise self.problem

    async def start(self, obj: Any) -> None:
        client, recorder = self.server, self.recorder
        self.server.held = obj
        cluster = Cluster(client, self.caches, recorder=recorder, clock=self.clock)  # type: ignore[arg-type]
        self.runner = ControllerRunner(Controller(type(obj), self.reconcile), {"": cluster}, clock=self.clock)
        self.runner.start_sources()
        self.tasks.append(asyncio.create_task(self.runner.run()))
        self.caches[type(obj)].sync(obj)
        await settle()

    async def again(self) -> None:
        before = self.runs
        self.runner.add(A)
        await settle()
        assert self.runs > before

    @property
    def conditions(self) -> list[tuple[str, str, str, str]]:
        return [(c.type, c.status, c.reason, c.message) for c in self.server.held.status.conditions or ()]


@pytest.fixture
async def bench(caches, clock):
    made_bench = Bench(caches, clock)
    yield made_bench
    for task in made_bench.tasks:
        task.cancel()
    await asyncio.gather(*made_bench.tasks, return_exceptions=True)


INVALID = PlanError("is not a name", reason="InvalidName", field="spec.name")
REPORT = ("InvalidName", "spec.name: is not a name", True)


async def test_a_plan_error_becomes_a_condition_and_an_event_once(bench):
    bench.problem = INVALID
    await bench.start(made(Zone))
    for _ in range(3):
        await bench.again()
    assert bench.conditions == [("Stalled", "True", "InvalidName", "spec.name: is not a name")]
    assert bench.recorder.events == [REPORT]
    assert len(bench.server.patches) == 1


async def test_another_error_is_reported_again_and_a_pass_takes_the_condition_back(bench):
    bench.problem = INVALID
    await bench.start(made(Zone))
    bench.problem = PlanError("two of them", reason="Conflict")
    await bench.again()
    assert [event[0] for event in bench.recorder.events] == ["InvalidName", "Conflict"]
    bench.problem = None
    await bench.again()
    assert bench.conditions == []
    written = len(bench.server.patches)
    await bench.again()
    assert len(bench.server.patches) == written


async def test_after_a_restart_the_stored_condition_says_what_was_reported(bench):
    said = Condition(type="Stalled", status="True", reason="InvalidName", message="spec.name: is not a name")
    said.observed_generation, said.last_transition_time = 1, "2026-01-01T00:00:00Z"
    bench.problem = INVALID
    await bench.start(made(Zone, status=ZoneStatus(conditions=[said])))
    assert bench.runs == 1
    assert bench.recorder.events == []
    assert bench.server.patches == []


async def test_a_kind_without_conditions_gets_the_event_alone_and_once(bench):
    bench.problem = INVALID
    await bench.start(made(Plain))
    await bench.again()
    assert bench.recorder.events == [REPORT]
    bench.problem = None
    await bench.again()
    bench.problem = INVALID
    await bench.again()
    assert bench.recorder.events == [REPORT, REPORT]
    assert bench.server.patches == []


async def test_a_report_that_is_rejected_leaves_the_error_as_it_is(bench):
    bench.problem, bench.server.refusal = INVALID, Forbidden("no", code=403)
    await bench.start(made(Zone))
    assert bench.runner.tally.results["error"] == 1
    assert bench.runner.queue.num_requeues(A) == 1
    assert bench.recorder.events == []


async def test_other_errors_are_reported_nowhere_but_in_the_log(bench):
    bench.problem = ZeroDivisionError("oops")
    await bench.start(made(Zone))
    assert bench.server.patches == []
    assert bench.recorder.events == []
