from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from structlog.testing import capture_logs

from steersman.errors import ConfigError
from steersman.kube.api.errors import Conflict, NotFound
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ObjectMeta, Resource
from steersman.kube.transport.write_requests import WriteRequest
from steersman.runtime.controller.builder import Controller
from steersman.runtime.controller.result import done, requeue
from steersman.runtime.leaderelection.elector import LeaderElector, LeadershipLost
from steersman.runtime.leaderelection.rules import LeaderElectionRecord, LeaseTimings
from steersman.runtime.manager.manager import Manager, SyncTimeout
from steersman.runtime.manager.supervisor import TaskFailed
from steersman.testing.clock import settle
from steersman.web.health import HealthReader


class App(Resource, group="example.org", version="v1"):
    pass


class Pod(Resource, version="v1"):
    pass


def app(name: str = "a", revision: str = "1") -> App:
    return App(metadata=ObjectMeta(name=name, namespace="shop", uid=name, resource_version=revision))


class MemoryLease:
    """A lease in memory."""

    def __init__(self) -> None:
        self.record: LeaderElectionRecord | None = None
        self.version = 0
        self.down = False

    def __str__(self) -> str:
        return "ops/webapp"

    async def read(self) -> tuple[LeaderElectionRecord, str]:
        if self.down:
            await asyncio.Event().wait()
        if self.record is None:
            raise NotFound("no lease")
        return self.record, str(self.version)

    async def write(self, record: LeaderElectionRecord, version: str) -> str:
        if self.down:
            await asyncio.Event().wait()
        if version != ("" if self.record is None else str(self.version)):
            raise Conflict("not the newest")
        self.record, self.version = record, self.version + 1
        return str(self.version)

    @property
    def holder(self) -> str | None:
        return self.record.holder if self.record is not None else None


class House:
    """A manager over caches in memory, and a diary of what happened in which order."""

    def __init__(self, clock: Any, caches: Any, make_manager: Any) -> None:
        self.clock, self.caches, self._make = clock, caches, make_manager
        self.diary: list[str] = []
        self.registry = CollectorRegistry()
        self.lease = MemoryLease()
        self.managers: list[tuple[Manager, asyncio.Task[None]]] = []
        self.manager: Manager
        self.task: asyncio.Task[None]

    def elector(self, identity: str = "me") -> LeaderElector:
        return LeaderElector(self.lease, identity=identity, clock=self.clock, random=lambda: 0.0)

    def build(self, *controllers: Controller, **options: Any) -> Manager:
        return self._make(*controllers, registry=self.registry, **options)

    async def run(self, *controllers: Controller, synced: bool = True, **options: Any) -> Manager:
        self.manager = self.build(*controllers, **options)
        return await self.start(self.manager, synced=synced)

    async def start(self, manager: Manager, *, synced: bool = True) -> Manager:
        self.task = asyncio.create_task(manager.run())
        self.managers.append((manager, self.task))
        if synced:
            for informer in self.caches:
                informer.sync()
        await settle()
        return manager

    async def end(self) -> None:
        for _manager, task in self.managers:
            if not task.done():
                task.cancel()
                await self.clock.advance(20)
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def house(clock, caches, make_manager):
    made = House(clock, caches, make_manager)
    yield made
    await made.end()


def noting(house: House, gate: asyncio.Event | None = None) -> Any:
    async def reconcile(ctx: Any, obj: Any) -> None:
        house.diary.append(f"began {obj.name}")
        try:
            if gate is not None:
                await gate.wait()
        except asyncio.CancelledError:
            house.diary.append(f"cancelled {obj.name}")
            raise
        house.diary.append(f"ended {obj.name}")

    return reconcile


# -- starting ---------------------------------------------------------------------------------------------------------


async def test_controllers_work_and_stop_when_asked(house):
    await house.run(Controller(App, noting(house)))
    house.caches[App].set(app())
    await settle()
    assert house.diary == ["began a", "ended a"]
    house.manager.stop()
    await settle()
    assert house.task.done()
    assert house.task.exception() is None


async def test_two_controllers_of_one_name_are_refused(house):
    with pytest.raises(ConfigError, match="two controllers called app: give one another name"):
        house.build(Controller(App, noting(house)), Controller(App, noting(house)))


async def test_a_controller_whose_kind_is_missing_blocks_nothing_else(house):
    manager = house.build(Controller(App, noting(house)), Controller(Pod, noting(house), "pods"))
    await house.start(manager, synced=False)
    house.caches[Pod].problem = "the server does not know pods"
    house.caches[App].sync(app())
    await house.clock.advance(600)
    assert house.diary == ["began a", "ended a"]
    ready = manager.ready()
    assert ready["source apps.example.org"] is None
    assert ready["source pods"] == "the server does not know pods"
    house.caches[Pod].problem = None
    house.caches[Pod].sync(Pod(metadata=ObjectMeta(name="p", namespace="shop", resource_version="1")))
    await settle()
    assert "ended p" in house.diary
    assert manager.ready()["source pods"] is None


async def test_sources_that_fail_alike_are_complained_about_in_one_line(house):
    manager = house.build(Controller(App, noting(house)), Controller(Pod, noting(house), "pods"))
    await house.start(manager, synced=False)
    house.caches[App].problem = "cannot connect: refused (GET https://api:6443/apis/example.org/v1/apps?limit=500)"
    house.caches[Pod].problem = "cannot connect: refused (GET https://api:6443/api/v1/pods?limit=500)"
    with capture_logs() as logs:
        await house.clock.advance(11)
    (line,) = [line for line in logs if line["event"] == "not synced"]
    assert (line["sources"], line["problem"]) == ("apps.example.org, pods", "cannot connect: refused")


async def test_a_long_outage_is_complained_about_less_and_less(house):
    await house.start(house.build(Controller(App, noting(house))), synced=False)
    with capture_logs() as logs:
        await house.clock.advance(3600)
    waited = [line["waited_seconds"] for line in logs if line["event"] == "not synced"]
    assert waited[:6] == [10, 30, 70, 150, 310, 610]
    assert waited[-1] - waited[-2] == 300


async def test_a_limit_concerns_the_start_and_not_what_is_added_later(house):
    manager = await house.run(Controller(App, noting(house)), sync_seconds=120)
    await house.clock.advance(130)
    manager.add(Controller(Pod, noting(house), "pods"))
    await house.clock.advance(30)
    assert not house.task.done()


async def test_with_a_limit_a_source_that_does_not_sync_ends_the_process_by_name(house):
    manager = house.build(Controller(App, noting(house)), sync_seconds=120)
    await house.start(manager, synced=False)
    house.caches[App].problem = "not allowed"
    await house.clock.advance(119)
    assert not house.task.done()
    await house.clock.advance(2)
    with pytest.raises(TaskFailed, match=r"not synced within 120 s: apps\.example\.org \(not allowed\)"):
        house.task.result()
    assert issubclass(SyncTimeout, Exception)


async def test_a_controller_added_while_another_process_leads_is_warm_when_this_process_does(house):
    house.lease.record = LeaderElectionRecord(holder="other", duration_seconds=15)
    manager = await house.run(elector=house.elector())
    manager.add(Controller(App, noting(house)))
    house.caches[App].sync(app())
    await settle()
    assert len(manager.runner("app").queue) == 1
    assert house.diary == []
    await house.clock.advance(20)
    assert house.diary == ["began a", "ended a"]


async def test_controllers_may_be_added_while_running(house):
    manager = await house.run()
    manager.add(Controller(App, noting(house)))
    house.caches[App].sync(app())
    await settle()
    assert house.diary == ["began a", "ended a"]
    assert house.caches[App].runs == 1


# -- nothing dies unnoticed -------------------------------------------------------------------------------------------


async def test_a_source_that_dies_is_started_again_and_readiness_says_so(house):
    manager = house.build(Controller(App, noting(house)))
    for informer in house.caches:
        informer.crash = RuntimeError("boom")
    await house.start(manager)
    assert manager.ready()["tasks"] == "source apps.example.org: RuntimeError: boom"
    house.caches[App].crash = None
    await house.clock.advance(2)
    assert manager.ready()["tasks"] is None
    assert house.caches[App].runs == 2
    assert not house.task.done()


@pytest.mark.parametrize("ill", [0, 1])
async def test_a_source_that_is_well_does_not_hide_another_of_the_same_objects_that_is_not(house, ill):
    class Narrow(Resource, group="example.org", version="v1", kind="App"):
        pass

    manager = await house.run(Controller(App, noting(house)), Controller(Narrow, noting(house), "narrow"))
    list(house.caches)[ill].problem = "gone"
    assert manager.ready()["source apps.example.org"] == "gone"


async def test_what_is_wrong_with_a_part_is_a_warning_and_fails_nothing(house):
    """One object that does not decode, one namespace that may not be read: the rest goes on, and is needed."""

    def broken(obj: Pod) -> list[NamespacedName]:
        raise KeyError("app")

    manager = await house.run(Controller(App, noting(house)).watches(Pod, to=broken))
    house.caches[App].problem, house.caches[App].partial = "shop/b left out: no number", True
    house.caches[Pod].set(Pod(metadata=ObjectMeta(name="p", namespace="shop", uid="p", resource_version="1")))
    await settle()
    assert [name for name, problem in manager.ready().items() if problem] == []
    assert manager.warnings() == [
        "source apps.example.org: shop/b left out: no number",
        "controller app: mapping shop/p failed: KeyError: 'app'",
    ]
    assert HealthReader(manager).read().warnings == manager.warnings()  # for the API, and so for `steersman status`


async def test_a_broken_worker_ends_the_process_with_an_error(house):
    manager = await house.run(Controller(App, noting(house)))
    manager.runner("app").queue.forget = None  # anything that cannot happen
    house.caches[App].set(app())
    await settle()
    with pytest.raises(TaskFailed, match=r"controller app: TypeError: .*not callable"):
        house.task.result()


async def test_two_tasks_of_one_name_are_refused_with_a_way_out(house):
    manager = house.build()
    manager.add_task("sweep", asyncio.Event().wait)
    with pytest.raises(ConfigError, match="two tasks called sweep: give one another name"):
        manager.add_task("sweep", asyncio.Event().wait, leader_only=False)


async def test_two_checks_of_one_name_are_refused_instead_of_forgetting_the_first(house):
    manager = house.build()
    manager.add_check("disk", lambda: "full")
    with pytest.raises(ConfigError, match="two checks called disk: give one another name"):
        manager.add_check("disk", lambda: None)
    assert manager.ready()["disk"] == "full"


@pytest.mark.parametrize("name", ["sync watch", "event loop watch", "shards", "webhooks"])
async def test_a_task_may_not_have_the_name_of_one_of_the_managers_own(house, name):
    manager = house.build()
    with pytest.raises(ConfigError, match=f"{name} is the name of a task of the manager: choose another"):
        manager.add_task(name, asyncio.Event().wait)


async def test_background_tasks_are_started_again_too(house):
    async def flaky() -> None:
        house.diary.append("task")
        raise OSError

    manager = house.build()
    manager.add_task("flaky", flaky)
    await house.start(manager)
    await house.clock.advance(4)
    assert house.diary == ["task"] * 3


async def test_checks_that_others_add_are_part_of_readiness(house):
    manager = await house.run()
    problem: str | None = "not connected"
    manager.add_check("bind", lambda: problem)
    assert manager.ready()["bind"] == "not connected"
    problem = None
    assert manager.ready()["bind"] is None


async def test_a_check_that_fails_itself_is_named_and_hides_nothing(house):
    def check() -> str | None:
        raise ConnectionError("database away")

    manager = await house.run(Controller(App, noting(house)))
    manager.add_check("database", check)
    assert manager.ready()["database"] == "the check itself failed: ConnectionError: database away"
    assert manager.ready()["source apps.example.org"] is None


# -- stopping ---------------------------------------------------------------------------------------------------------


async def test_what_is_being_reconciled_may_end_within_the_grace(house):
    gate = asyncio.Event()
    await house.run(Controller(App, noting(house, gate)))
    house.caches[App].set(app())
    await settle()
    house.manager.stop()
    await house.clock.advance(29)
    assert not house.task.done()
    gate.set()
    await settle()
    assert house.task.done()
    assert house.diary == ["began a", "ended a"]


async def test_after_the_grace_it_is_cancelled(house):
    await house.run(Controller(App, noting(house, asyncio.Event())), grace_seconds=5)
    house.caches[App].set(app())
    await settle()
    house.manager.stop()
    await house.clock.advance(5)
    assert house.task.done()
    assert house.diary == ["began a", "cancelled a"]


async def test_without_a_limit_it_may_take_as_long_as_it_needs(house):
    gate = asyncio.Event()
    await house.run(Controller(App, noting(house, gate)), grace_seconds=-1)
    house.caches[App].set(app())
    await settle()
    house.manager.stop()
    await house.clock.advance(300)
    assert not house.task.done()
    gate.set()
    await settle()
    assert house.task.done()


async def test_asked_twice_it_ends_at_once(house):
    await house.run(Controller(App, noting(house, asyncio.Event())))
    house.caches[App].set(app())
    await settle()
    house.manager.stop()
    await settle()
    house.manager.stop()
    await settle()
    assert house.task.done()
    assert house.diary == ["began a", "cancelled a"]


async def test_stopping_takes_no_new_keys(house):
    gate = asyncio.Event()
    await house.run(Controller(App, noting(house, gate)).with_options(concurrency=1))
    house.caches[App].set(app("a"), app("b"))
    await settle()
    house.manager.stop()
    gate.set()
    await settle()
    assert house.diary == ["began a", "ended a"]


# -- leading ----------------------------------------------------------------------------------------------------------


async def test_a_standby_is_warm_but_does_not_act_and_takes_over_at_once(house):
    house.lease.record, house.lease.version = LeaderElectionRecord(holder="other", duration_seconds=15), 1
    manager = await house.run(Controller(App, noting(house)), elector=house.elector())
    house.caches[App].set(app())
    await house.clock.advance(10)
    assert house.caches[App].runs == 1
    assert len(manager.runner("app").queue) == 1
    assert house.diary == []
    assert all(problem is None for problem in manager.ready().values())
    house.lease.record, house.lease.version = LeaderElectionRecord(holder="", duration_seconds=1), 2
    await house.clock.advance(2)
    assert house.diary == ["began a", "ended a"]


async def test_a_lost_lease_cancels_workers_without_grace_and_is_an_error(house):
    manager = await house.run(Controller(App, noting(house, asyncio.Event())), elector=house.elector())
    house.caches[App].set(app())
    await settle()
    assert house.diary == ["began a"]
    house.lease.down = True
    await house.clock.advance(9.9)
    assert house.diary == ["began a"]
    await house.clock.advance(0.2)
    assert house.diary == ["began a", "cancelled a"]
    with pytest.raises(LeadershipLost):
        house.task.result()
    assert not manager.working.is_set()


async def test_when_the_lease_is_lost_workers_are_cancelled_before_anything_else_is_stopped(house):
    async def slow_to_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await house.clock.sleep(4)
            house.diary.append("task ended")

    manager = house.build(Controller(App, noting(house, asyncio.Event())), elector=house.elector())
    manager.add_task("slow", slow_to_end)
    await house.start(manager)
    house.caches[App].set(app())
    await settle()
    house.lease.record, house.lease.version = LeaderElectionRecord(holder="thief", duration_seconds=15), 99
    await house.clock.advance(2)
    assert house.diary == ["began a", "cancelled a"]
    await house.clock.advance(4)
    assert house.diary == ["began a", "cancelled a", "task ended"]


async def test_cancelled_from_outside_it_ends_in_order_but_without_grace(house):
    await house.run(Controller(App, noting(house, asyncio.Event())), elector=house.elector())
    house.caches[App].set(app())
    await settle()
    house.task.cancel()
    await settle()
    assert house.diary == ["began a", "cancelled a"]
    assert house.task.cancelled()
    assert house.lease.holder == ""


async def test_a_worker_that_is_slow_to_end_does_not_let_tasks_act_on_after_the_lease_is_lost(house):
    gate, acting = asyncio.Event(), True

    async def reconcile(ctx, obj):
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                house.diary.append("told to end")

    async def task() -> None:
        nonlocal acting
        try:
            await asyncio.Event().wait()
        finally:
            acting = False

    manager = house.build(Controller(App, reconcile), elector=house.elector())
    manager.add_task("poller", task)
    await house.start(manager)
    house.caches[App].set(app())
    await settle()
    house.lease.record, house.lease.version = LeaderElectionRecord(holder="thief", duration_seconds=15), 99
    await house.clock.advance(2.5)
    assert house.diary == ["told to end"]
    assert not acting
    gate.set()


async def test_the_lease_is_not_given_back_while_a_thread_works_that_is_past_its_timeout(house):
    """The timeout was the first cancellation, and the end of the process is the second."""
    go, began = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def reconcile(_ctx: Any, _obj: App) -> None:
        loop.call_soon_threadsafe(began.set)
        go.wait()

    manager = await house.run(
        Controller(App, reconcile).with_options(timeout_seconds=5), elector=house.elector(), grace_seconds=1
    )
    house.caches[App].set(app())
    await began.wait()
    try:
        await house.clock.advance(6)
        manager.stop()
        with capture_logs() as logs:
            for _ in range(15):
                await house.clock.advance(1)
        assert house.task.done()
        assert house.lease.holder == "me", "the next leader waits until it expires"
        assert any(line["event"].startswith("the lease is left to expire") for line in logs)
    finally:
        go.set()


@pytest.mark.parametrize("paused", [5.0, 60.0])
async def test_a_process_that_was_stopped_for_longer_than_its_term_writes_nothing_when_it_goes_on(house, paused):
    """Nothing had a chance to run that could have cancelled the reconcile."""
    gate = asyncio.Event()

    async def reconcile(ctx: Any, obj: App) -> None:
        await gate.wait()
        await ctx.delete(obj)

    async def delete(*_: Any, **__: Any) -> None:
        manager.cluster().guard.admit(WriteRequest("DELETE", "/", {}, None))  # as a guarded client does
        house.diary.append("written")

    manager = await house.run(Controller(App, reconcile), elector=house.elector())
    manager.cluster().client.delete = delete  # type: ignore[method-assign]
    house.caches[App].set(app())
    await settle()
    house.clock.pause(paused)
    gate.set()
    await settle()
    assert house.diary == (["written"] if paused < 10 else [])


async def test_a_process_that_was_stopped_for_longer_than_its_term_begins_nothing_when_it_goes_on(house):
    await house.run(Controller(App, noting(house)), elector=house.elector())
    house.clock.pause(60)
    house.caches[App].set(app())
    await settle()
    assert house.diary == []


async def test_a_lease_that_was_lost_is_not_given_back(house):
    await house.run(Controller(App, noting(house)), elector=house.elector())
    house.lease.record, house.lease.version = LeaderElectionRecord(holder="thief", duration_seconds=15), 99
    await house.clock.advance(3)
    assert isinstance(house.task.exception(), LeadershipLost)
    assert house.lease.holder == "thief"


async def test_the_lease_is_given_back_after_everything_that_acts_has_ended(house):
    gate = asyncio.Event()
    await house.run(Controller(App, noting(house, gate)), elector=house.elector())
    house.caches[App].set(app())
    await settle()
    house.manager.stop()
    await house.clock.advance(20)  # longer than a term: it is renewed while the work ends
    assert house.lease.holder == "me"
    assert house.diary == ["began a"]
    gate.set()
    await settle()
    assert house.diary == ["began a", "ended a"]
    assert house.lease.holder == ""


@pytest.mark.parametrize("who", ["a reconcile", "a task"])
async def test_the_lease_is_not_given_back_while_something_acts_that_does_not_end(house, who):
    gate = asyncio.Event()

    async def stubborn(*_: Any) -> None:
        while not gate.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()

    manager = house.build(Controller(App, stubborn if who == "a reconcile" else noting(house)), elector=house.elector())
    if who == "a task":
        manager.add_task("poller", stubborn)
    await house.start(manager)
    house.caches[App].set(app())
    await settle()
    manager.stop()
    manager.stop()  # at once
    await house.clock.advance(20)
    assert house.task.done()
    assert house.lease.holder == "me"
    gate.set()


async def test_a_lease_lost_while_a_task_is_slow_to_stop_ends_the_workers_at_once(house):
    gate = asyncio.Event()

    async def reconcile(ctx, obj):
        try:
            await asyncio.Event().wait()
        finally:
            house.diary.append("reconcile ended")

    async def task() -> None:
        while not gate.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()

    manager = house.build(Controller(App, reconcile), elector=house.elector())
    manager.add_task("poller", task)
    await house.start(manager)
    house.caches[App].set(app())
    await settle()
    manager.stop()
    house.lease.record, house.lease.version = LeaderElectionRecord(holder="thief", duration_seconds=15), 99
    await house.clock.advance(2.5)
    diary = list(house.diary)
    gate.set()
    assert diary == ["reconcile ended"]


async def test_a_lease_lost_while_stopping_ends_the_grace(house):
    await house.run(Controller(App, noting(house, asyncio.Event())), elector=house.elector())
    house.caches[App].set(app())
    await settle()
    house.manager.stop()
    house.lease.record, house.lease.version = LeaderElectionRecord(holder="thief", duration_seconds=15), 99
    await house.clock.advance(3)
    assert house.diary == ["began a", "cancelled a"]
    assert house.lease.holder == "thief"


async def test_stopping_before_being_elected_takes_part_no_longer(house):
    house.lease.record, house.lease.version = LeaderElectionRecord(holder="other", duration_seconds=15), 1
    await house.run(Controller(App, noting(house)), elector=house.elector())
    house.manager.stop()
    await settle()
    assert house.task.done()
    assert house.task.exception() is None
    house.lease.record = LeaderElectionRecord(holder="", duration_seconds=1)
    await house.clock.advance(60)
    assert house.lease.holder == ""


async def test_tasks_for_leaders_wait_until_this_process_leads(house):
    async def forever(name: str) -> None:
        house.diary.append(name)
        await asyncio.Event().wait()

    house.lease.record, house.lease.version = LeaderElectionRecord(holder="other", duration_seconds=15), 1
    manager = house.build(elector=house.elector())
    manager.add_task("for all", lambda: forever("for all"), leader_only=False)
    manager.add_task("for leaders", lambda: forever("for leaders"))
    await house.start(manager)
    assert house.diary == ["for all"]
    await house.clock.advance(20)
    assert house.diary == ["for all", "for leaders"]


async def test_two_processes_never_act_at_once_and_one_takes_over_from_the_other(house, clock):
    acting: set[str] = set()
    most = 0

    def acts_as(name: str) -> Any:
        async def reconcile(ctx: Any, obj: Any) -> Any:
            nonlocal most
            acting.add(name)
            most = max(most, len(acting))
            try:
                await clock.sleep(1)
            finally:
                acting.discard(name)
            return requeue(after=0.1)

        return reconcile

    first = house.build(Controller(App, acts_as("first"), "app"), elector=house.elector("first"), grace_seconds=3)
    await house.start(first)
    house.caches[App].set(app())
    await clock.advance(5)
    house.registry = CollectorRegistry()
    second = house.build(Controller(App, acts_as("second"), "app"), elector=house.elector("second"))
    await house.start(second)
    await clock.advance(60)
    assert acting <= {"first"}
    first.stop()
    await clock.advance(10)
    assert acting <= {"second"}
    assert second.working.is_set()
    assert most == 1


# -- looking ----------------------------------------------------------------------------------------------------------


async def test_metrics_have_controller_runtimes_names_and_start_at_zero(house):
    await house.run(Controller(App, noting(house)), elector=house.elector())
    text = generate_latest(house.registry).decode()
    for line in (
        'controller_runtime_reconcile_total{controller="app",result="success"} 0.0',
        'controller_runtime_reconcile_total{controller="app",result="requeue_after"} 0.0',
        'controller_runtime_reconcile_errors_total{controller="app"} 0.0',
        'controller_runtime_terminal_reconcile_errors_total{controller="app"} 0.0',
        'controller_runtime_reconcile_panics_total{controller="app"} 0.0',
        'controller_runtime_reconcile_timeouts_total{controller="app"} 0.0',
        'controller_runtime_reconcile_time_seconds_bucket{controller="app",le="0.005"} 0.0',
        'controller_runtime_max_concurrent_reconciles{controller="app"} 8.0',
        'controller_runtime_active_workers{controller="app"} 0.0',
        'workqueue_depth{controller="app",name="app",priority="0"} 0.0',
        'workqueue_adds_total{controller="app",name="app"} 0.0',
        'workqueue_retries_total{controller="app",name="app"} 0.0',
        'workqueue_queue_duration_seconds_count{controller="app",name="app"} 0.0',
        'workqueue_work_duration_seconds_sum{controller="app",name="app"} 0.0',
        'workqueue_unfinished_work_seconds{controller="app",name="app"} 0.0',
        'workqueue_longest_running_processor_seconds{controller="app",name="app"} 0.0',
        'leader_election_master_status{name="webapp"} 1.0',
        'leader_election_slowpath_total{name="webapp"} 0.0',
        'steersman_restarts_total{task="source apps.example.org"} 0.0',
    ):
        assert line in text


async def test_metrics_count_what_happens_and_vanish_with_the_manager(house):
    gate = asyncio.Event()
    await house.run(Controller(App, noting(house, gate)))
    house.caches[App].set(app("a"))
    await settle()
    await house.clock.advance(4)
    text = generate_latest(house.registry).decode()
    assert 'controller_runtime_active_workers{controller="app"} 1.0' in text
    assert 'workqueue_unfinished_work_seconds{controller="app",name="app"} 4.0' in text
    gate.set()
    await settle()
    text = generate_latest(house.registry).decode()
    assert 'controller_runtime_reconcile_total{controller="app",result="success"} 1.0' in text
    assert 'controller_runtime_reconcile_time_seconds_bucket{controller="app",le="4.0"} 1.0' in text
    house.manager.stop()
    await settle()
    assert "controller_runtime" not in generate_latest(house.registry).decode()


async def test_liveness_notices_a_dead_election(house):
    manager = await house.run(elector=house.elector())
    assert manager.alive() == {"loop": None, "election": None}
    house.clock.pause(LeaseTimings().lease_seconds + 30)
    assert re.fullmatch(r"the lease was due for renewal \d\d s ago", manager.alive()["election"])


async def test_namespaces_of_another_owner_are_unchanged(house):
    async def reconcile(ctx: Any, obj: Any) -> Any:
        house.diary.append(str(ctx.key))
        return done

    await house.run(Controller(App, reconcile), permit=lambda namespace: namespace == "mine")
    house.caches[App].set(app(), App(metadata=ObjectMeta(name="b", namespace="mine", resource_version="1")))
    await settle()
    assert house.diary == [str(NamespacedName("b", "mine"))]
