from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import structlog
from structlog.testing import capture_logs

from steersman.errors import ConfigError, DriverError, PlanError
from steersman.kube.api.errors import AlreadyExists, Cause, Conflict, TooManyRequests
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ObjectMeta, Resource
from steersman.runtime.controller.builder import Controller
from steersman.runtime.controller.channel import Channel
from steersman.runtime.controller.predicates import Predicate, created, labels
from steersman.runtime.controller.result import TerminalError, done, requeue
from steersman.runtime.controller.runner import ControllerRunner
from steersman.runtime.controller.schedule import Schedule
from steersman.runtime.controller.stuck_keys import Limits
from steersman.runtime.controller.worker import STALE_RETRIES
from steersman.runtime.workqueue.queue import LOW_PRIORITY
from steersman.runtime.workqueue.rate_limiters import ExponentialBackoff
from steersman.testing import eventually
from steersman.testing.clock import settle


class App(Resource, group="example.org", version="v1"):
    pass


class Pod(Resource, version="v1"):
    pass


A, B = NamespacedName("a", "shop"), NamespacedName("b", "shop")


def app(name: str = "a", revision: str = "1", **meta: Any) -> App:
    fields = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "resource_version": revision, **meta}
    return App(metadata=ObjectMeta(**fields))


def pod(name: str, revision: str = "1", **meta: Any) -> Pod:
    return Pod(metadata=ObjectMeta(name=name, namespace="shop", uid=name, resource_version=revision, **meta))


class Bench:
    """Runs engines on the test's clock, and ends them after the test."""

    def __init__(self, clock: Any, caches: Any, cluster: Any) -> None:
        self.clock, self.caches, self.cluster = clock, caches, cluster
        self.tasks: list[asyncio.Task[None]] = []
        self.engine: ControllerRunner

    async def run(self, controller: Controller, *objects: App, **options: Any) -> ControllerRunner:
        engine = self.prepare(controller, **options)
        self.start(engine)
        for informer in self.caches:
            informer.sync(*(obj for obj in objects if type(obj) is informer.target))
        await settle()
        return engine

    def prepare(self, controller: Controller, **options: Any) -> ControllerRunner:
        made = controller.with_options(limiter=lambda: ExponentialBackoff(jitter=0))
        engine = ControllerRunner(made, {"": self.cluster}, clock=self.clock, random=lambda: 0.5, **options)
        engine.start_sources()
        return engine

    def start(self, engine: ControllerRunner) -> asyncio.Task[None]:
        self.tasks.append(asyncio.create_task(engine.run()))
        return self.tasks[-1]


@pytest.fixture
async def bench(clock, caches, memory_cluster):
    made = Bench(clock, caches, memory_cluster)
    yield made
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)


class Script:
    """A reconciler that answers from a list; exceptions are raised. Keeps what it was called with."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: list[Any] = []
        self.contexts: list[Any] = []

    async def __call__(self, ctx: Any, obj: Any) -> Any:
        self.calls.append(obj)
        self.contexts.append(ctx)
        answer = self.answers.pop(0) if self.answers else done
        if isinstance(answer, BaseException):
            raise answer
        return answer


# -- when it runs -----------------------------------------------------------------------------------------------------


async def test_nothing_is_reconciled_before_every_source_has_delivered_its_first_list(bench):
    reconcile = Script()
    engine = bench.prepare(Controller(App, reconcile).reads(Pod))
    bench.start(engine)
    bench.caches[App].sync(app())
    await bench.clock.advance(600)
    assert not engine.has_synced()
    assert reconcile.calls == []
    bench.caches[Pod].sync()
    await settle()
    assert engine.has_synced()
    assert reconcile.calls == [app()]


async def test_changes_that_come_before_the_workers_are_kept_and_collapsed(bench):
    reconcile = Script()
    engine = bench.prepare(Controller(App, reconcile))
    for revision in ("1", "2", "3"):
        bench.caches[App].set(app(revision=revision))
    bench.start(engine)
    bench.caches[App].sync()
    await settle()
    assert [call.metadata.resource_version for call in reconcile.calls] == ["3"]


async def test_what_is_sent_through_a_channel_is_reconciled_also_when_it_was_sent_before_the_start(bench):
    reconcile, channel = Script(), Channel()
    channel.send("early")
    engine = bench.prepare(Controller(None, reconcile, "keys").reads(Pod).watches_channel(channel))
    bench.start(engine)
    bench.caches[Pod].sync()
    channel.send("now")
    channel.send("later", after=30)
    await bench.clock.advance(29)
    assert reconcile.calls == ["early", "now"]
    await bench.clock.advance(1)
    assert reconcile.calls == ["early", "now", "later"]


async def test_one_key_never_runs_twice_at_once_and_runs_again_when_it_changed_meanwhile(bench):
    running, most, gate = 0, 0, asyncio.Event()

    async def reconcile(ctx, obj):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1

    engine = await bench.run(Controller(App, reconcile), app())
    for revision in range(2, 10):
        bench.caches[App].set(app(revision=str(revision)))
        await settle()
    assert (running, most) == (1, 1)
    gate.set()
    await settle()
    assert engine.tally.results["success"] == 2
    assert most == 1


async def test_no_more_keys_run_at_once_than_allowed(bench):
    running, most, gate = 0, 0, asyncio.Event()

    async def reconcile(ctx, obj):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1

    engine = await bench.run(
        Controller(App, reconcile).with_options(concurrency=3), *(app(f"n{number}") for number in range(10))
    )
    assert (running, engine.tally.active, len(engine.queue)) == (3, 3, 7)
    gate.set()
    await settle()
    assert engine.tally.results["success"] == 10
    assert most == 3


async def test_the_first_list_and_resyncs_wait_behind_real_changes(bench):
    engine = bench.prepare(Controller(App, Script()))
    informer = bench.caches[App]
    informer.sync(app("first"))
    informer.set(app("changed"))
    informer.set(app("resynced", "5"))
    assert engine.queue.depths() == {LOW_PRIORITY: 1, 0: 2}
    engine = bench.prepare(Controller(App, Script()))
    informer.set(app("resynced", "5"))
    assert engine.queue.depths() == {LOW_PRIORITY: 3}


async def test_old_and_new_state_are_both_mapped(bench):
    def app_of(obj):
        return [NamespacedName(obj.metadata.labels["app"], "shop")]

    reconcile = Script()
    await bench.run(Controller(App, reconcile).watches(Pod, to=app_of), app("a"), app("b"))
    reconcile.calls.clear()
    bench.caches[Pod].set(pod("p", labels={"app": "a"}))
    bench.caches[Pod].set(pod("p", "2", labels={"app": "b"}))
    await settle()
    assert sorted(call.name for call in reconcile.calls) == ["a", "b"]


async def test_a_mapping_may_read_what_is_known_of_other_objects(bench):
    def all_apps(obj, cache):
        return [known.ref for known in cache[App].list()]

    reconcile = Script()
    await bench.run(Controller(App, reconcile).watches(Pod, to=all_apps), app("a"), app("b"))
    reconcile.calls.clear()
    bench.caches[Pod].set(pod("p"))
    await settle()
    assert sorted(call.name for call in reconcile.calls) == ["a", "b"]
    assert bench.caches[App].store._snapshots == []


async def test_a_predicate_that_fails_counts_as_a_yes(bench):
    reconcile = Script()
    await bench.run(Controller(App, reconcile).when(Predicate("broken", lambda old, new: 1 / 0)), app())
    assert reconcile.calls == [app()]


async def test_a_mapping_that_fails_is_named_and_stops_nothing_else(bench):
    def broken(obj):
        if obj.name == "bad":
            raise KeyError("app")
        return [A]

    reconcile = Script()
    engine = await bench.run(Controller(App, reconcile).watches(Pod, to=broken), app())
    reconcile.calls.clear()
    bench.caches[Pod].set(pod("bad"))
    bench.caches[Pod].set(pod("good"))
    await settle()
    assert reconcile.calls == [app()]
    assert engine.sources[1].failures == 1
    assert engine.sources[1].problem == "mapping shop/bad failed: KeyError: 'app'"


@pytest.mark.parametrize(
    ("given", "problem"), [(A, "NamespacedName"), ("shop/a", "'shop/a'"), (None, None), ([], None)]
)
async def test_a_mapping_gives_several_keys_or_nothing_and_never_one_alone(bench, given, problem):
    reconcile = Script()
    engine = await bench.run(Controller(App, reconcile).watches(Pod, to=lambda _pod: given), app("a"))
    bench.caches[Pod].set(pod("p"))
    await settle()
    assert [obj.name for obj in reconcile.calls] == ["a"]
    found = engine.sources[1].problem
    assert found is None if problem is None else problem in found and "a list of keys" in found


@pytest.mark.parametrize("end", ["repaired", "deleted", "deleted unnoticed"])
async def test_a_mapping_that_failed_is_named_no_longer_than_it_matters(bench, end):
    def broken(obj):
        if obj.metadata.labels is None:
            raise KeyError("app")
        return [A]

    when = created if end == "deleted unnoticed" else None
    engine = await bench.run(Controller(App, Script()).watches(Pod, to=broken, when=when), app())
    source = engine.sources[1]
    bench.caches[Pod].set(pod("one"), pod("two"))
    assert source.problem == "mapping shop/two failed: KeyError: 'app', and 1 more"
    if end == "repaired":
        bench.caches[Pod].set(pod("one", "2", labels={}), pod("two", "2", labels={}))
    else:
        bench.caches[Pod].remove(pod("one", "2"))
        bench.caches[Pod].remove(pod("two", "2"))
    assert source.problem is None


async def test_a_plan_error_is_logged_with_its_reason_and_the_time_of_the_next_attempt(bench):
    with capture_logs() as lines:
        await bench.run(Controller(App, Script(PlanError("two names", reason="CNAMEConflict"))), app())
    (line,) = [line for line in lines if line["event"] == "reconcile failed"]
    assert (line["reason"], line["error"], line["retry_seconds"]) == ("CNAMEConflict", "two names", 30.0)


async def test_changes_that_do_not_matter_are_left_out(bench):
    reconcile = Script()
    await bench.run(Controller(App, reconcile).when(labels), app())
    bench.caches[App].set(app(revision="2"))
    await settle()
    assert len(reconcile.calls) == 1
    bench.caches[App].set(app(revision="3", labels={"a": "b"}))
    await settle()
    assert len(reconcile.calls) == 2


# -- what it answers --------------------------------------------------------------------------------------------------


async def test_the_backoff_grows_until_there_is_a_result_that_is_not_an_error(bench):
    oops = DriverError("down", server="s")
    reconcile = Script(oops, oops, oops, requeue(after=60), oops)
    engine = await bench.run(Controller(App, reconcile), app())
    await bench.clock.advance(61)
    assert [ctx.failures for ctx in reconcile.contexts] == [0, 1, 2, 3, 0, 1]
    assert engine.tally.results == {"success": 1, "error": 4, "requeue": 0, "requeue_after": 1}


async def test_the_delays_after_failures_double(bench):
    times: list[float] = []

    async def reconcile(ctx, obj):
        times.append(bench.clock.monotonic())
        raise DriverError("down", server="s")

    await bench.run(Controller(App, reconcile), app())
    await bench.clock.advance(1.3)
    gaps = [round(later - earlier, 4) for earlier, later in itertools.pairwise(times)]
    assert gaps == [0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64]


async def test_requeue_after_runs_again_at_that_time_and_keeps_the_priority(bench):
    reconcile = Script(requeue(after=30))
    engine = await bench.run(Controller(App, reconcile), app())
    await bench.clock.advance(29.9)
    assert len(reconcile.calls) == 1
    assert [entry["priority"] for entry in engine.queue.describe()["waiting"]] == [LOW_PRIORITY]
    await bench.clock.advance(0.1)
    assert len(reconcile.calls) == 2


@pytest.mark.parametrize(("second", "runs"), [(done, 2), (requeue(after=50), 3)])
async def test_the_last_answer_counts_and_done_takes_back_an_earlier_requeue(bench, second, runs):
    """A run that a change caused knows more than the one that asked to come back."""
    reconcile = Script(requeue(after=30), second)
    await bench.run(Controller(App, reconcile), app())
    await bench.clock.advance(10)
    bench.caches[App].set(app(revision="2"))
    await settle()
    assert len(reconcile.calls) == 2
    await bench.clock.advance(25)
    assert len(reconcile.calls) == 2
    await bench.clock.advance(600)
    assert len(reconcile.calls) == runs


async def test_a_result_may_set_another_priority(bench):
    gate = asyncio.Event()

    async def reconcile(ctx, obj):
        await gate.wait()
        return requeue(after=5, priority=9) if ctx.key == A else done

    engine = await bench.run(Controller(App, reconcile), app())
    gate.set()
    await settle()
    assert [entry["priority"] for entry in engine.queue.describe()["waiting"]] == [9]


async def test_requeue_without_a_time_backs_off_while_it_keeps_asking(bench):
    engine = await bench.run(Controller(App, Script(requeue(), requeue(), requeue())), app())
    await bench.clock.advance(1)
    assert engine.tally.results == {"success": 1, "error": 0, "requeue": 3, "requeue_after": 0}
    assert engine.queue.num_requeues(A) == 0


async def test_a_plan_error_is_tried_again_with_growing_delays_and_never_counts_as_stuck(bench):
    times: list[float] = []

    async def reconcile(ctx, obj):
        times.append(bench.clock.monotonic())
        raise PlanError("cannot", reason="Conflict")

    engine = await bench.run(Controller(App, reconcile).with_options(limits=Limits(failures=2)), app())
    await bench.clock.advance(10_000)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert (gaps[0], gaps[-1]) == (30.0, 1000.0)
    assert gaps == sorted(gaps)
    assert engine.stuck_keys() == []
    assert engine.tally.terminal_errors == 0


async def test_a_terminal_error_is_not_tried_again_until_something_changes(bench):
    reconcile = Script(DriverError("down", server="s"), TerminalError("no use"))
    engine = await bench.run(Controller(App, reconcile), app())
    await bench.clock.advance(100_000)
    assert len(reconcile.calls) == 2
    assert engine.tally.terminal_errors == 1
    assert engine.tally.results["error"] == 2
    assert engine.tally.panics == 0
    assert engine.queue.num_requeues(A) == 0
    bench.caches[App].set(app(revision="2"))
    await settle()
    assert len(reconcile.calls) == 3


@pytest.mark.parametrize("nonsense", ["later", 5, True, [], object()])
async def test_a_nonsense_result_is_an_error_that_says_what_would_be_right(bench, nonsense):
    with structlog.testing.capture_logs() as logs:
        engine = await bench.run(Controller(App, Script(nonsense)), app())
    assert engine.tally.results["error"] == 1
    assert "return done, requeue(…) or nothing" in next(line["error"] for line in logs if "error" in line)


async def test_returning_nothing_means_done(bench):
    engine = await bench.run(Controller(App, Script(None)), app())
    assert engine.tally.results["success"] == 1


async def test_an_unexpected_error_is_counted_apart_and_its_log_shows_where_but_no_values(bench):
    async def reconcile(ctx, obj):
        secret = "hunter2"
        return len(secret) / 0

    with structlog.testing.capture_logs() as logs:
        engine = await bench.run(Controller(App, reconcile), app())
    assert (engine.tally.panics, engine.tally.results["error"]) == (1, 1)
    [line] = [line for line in logs if line["log_level"] == "error"]
    assert "ZeroDivisionError" in line["traceback"]
    assert "in reconcile" in line["traceback"]
    assert "hunter2" not in str({key: value for key, value in line.items() if key != "traceback"})
    assert "exc_info" not in line


async def test_where_a_reconcile_failed_is_reported_once_and_again_when_it_fails_otherwise(bench):
    errors = [KeyError("size"), KeyError("size"), ValueError("far")]

    with structlog.testing.capture_logs() as logs:
        await bench.run(Controller(App, Script(*errors)), app())
        await bench.clock.advance(100)
    said = [(line["error"], "traceback" in line) for line in logs if line["event"] == "reconcile failed"]
    assert said == [("KeyError: 'size'", True), ("KeyError: 'size'", False), ("ValueError: far", True)]


async def test_how_the_runtime_came_to_call_a_reconciler_is_not_shown(bench):
    async def reconcile(ctx, obj):
        await ctx.status(obj, raedy=True)

    with structlog.testing.capture_logs() as logs:
        await bench.run(Controller(App, reconcile), app())
    [text] = [line["traceback"] for line in logs if "traceback" in line]
    assert "runtime/controller/runner.py" not in text
    assert text.index("in reconcile") < text.index("status_patch.py")  # what it called is


async def test_a_mapping_that_fails_is_logged_with_its_controller_and_error(bench):
    def broken(obj):
        raise KeyError(obj.metadata.name)

    with structlog.testing.capture_logs() as logs:
        await bench.run(Controller(App, Script()).watches(App, to=broken).named("apps"), app())
    [line] = [line for line in logs if line["event"] == "mapping failed; its change is lost"]
    assert (line["controller"], line["error"]) == ("apps", "KeyError: 'a'")


async def test_a_server_that_says_when_to_come_back_is_obeyed(bench):
    reconcile = Script(TooManyRequests("slow down", retry_after=20))
    await bench.run(Controller(App, reconcile), app())
    await bench.clock.advance(19.9)
    assert len(reconcile.calls) == 1
    await bench.clock.advance(0.1)
    assert len(reconcile.calls) == 2


async def test_a_reconcile_that_takes_too_long_is_ended_and_counted(bench):
    async def reconcile(ctx, obj):
        await asyncio.Event().wait()

    engine = await bench.run(Controller(App, reconcile).with_options(timeout_seconds=5), app())
    await bench.clock.advance(4.9)
    assert engine.tally.active == 1
    await bench.clock.advance(0.1)
    assert (engine.tally.timeouts, engine.tally.results["error"], engine.tally.panics) == (1, 1, 0)


async def test_a_timeout_of_something_else_is_an_ordinary_error(bench):
    engine = await bench.run(Controller(App, Script(TimeoutError())).with_options(timeout_seconds=5), app())
    assert (engine.tally.timeouts, engine.tally.results["error"]) == (0, 1)


async def exiting(_ctx: Any, obj: App) -> None:
    if obj.name == "a":
        sys.exit(3)


def exiting_in_a_thread(_ctx: Any, obj: App) -> None:
    if obj.name == "a":
        sys.exit(3)


@pytest.mark.parametrize("reconcile", [exiting, exiting_in_a_thread])
async def test_a_reconcile_that_calls_exit_fails_alone(bench, reconcile):
    engine = await bench.run(Controller(App, reconcile), app("a"), app("b"))
    await eventually(lambda: engine.tally.results["success"] == 1 and engine.tally.results["error"] == 1)
    assert engine.tally.panics == 1
    assert not bench.tasks[0].done()


async def test_a_write_that_came_too_late_is_a_reason_to_reconcile_again_and_not_a_failure(bench):
    late = Conflict("the object has been modified", code=409)
    reconcile = Script(late, late)
    with capture_logs() as logs:
        engine = await bench.run(Controller(App, reconcile), app())
        await bench.clock.advance(1)
    assert len(reconcile.calls) == 3
    assert engine.tally.results == {"success": 1, "error": 0, "requeue": 2, "requeue_after": 0}
    assert {line["log_level"] for line in logs} == {"info"}


@pytest.mark.parametrize(
    "error",
    [
        Conflict("owned", code=409, causes=[Cause(reason="FieldManagerConflict", message="x", field=".spec")]),
        AlreadyExists("there is one", code=409),
    ],
    ids=["a field of another manager", "a name that is taken"],
)
async def test_a_conflict_that_a_retry_does_not_solve_is_a_failure(bench, error):
    engine = await bench.run(Controller(App, Script(error)), app())
    assert engine.tally.results["error"] == 1


async def test_conflicts_without_end_are_failures_at_last(bench):
    engine = await bench.run(Controller(App, Script(*[Conflict("late", code=409)] * 20)), app())
    await bench.clock.advance(10)
    assert engine.tally.results["requeue"] == STALE_RETRIES
    assert engine.tally.results["error"] > 0


@pytest.mark.parametrize("waits", [True, False], ids=["and waits", "and returns"])
async def test_a_reconcile_that_cancels_its_own_task_fails_alone_and_its_worker_is_replaced(bench, waits):
    calls: list[str] = []

    async def reconcile(_ctx: Any, obj: App) -> None:
        calls.append(obj.name)
        if obj.name == "a" and calls.count("a") <= 3:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            if waits:
                await asyncio.sleep(0)

    with capture_logs() as logs:
        engine = await bench.run(Controller(App, reconcile), app("a"))
        await bench.clock.advance(60)
        bench.caches[App].set(app("b"))
        await settle()
    assert calls == (["a"] * 4 if waits else ["a"]) + ["b"]
    assert engine.tally.panics == (3 if waits else 0)
    replaced = [line for line in logs if line["event"] == "a reconcile cancelled its worker; it is replaced"]
    assert len(replaced) == (3 if waits else 1)
    assert engine.tally.active == 0


async def test_a_cancellation_that_leaks_out_of_a_reconcile_does_not_kill_the_worker(bench):
    reconcile = Script(asyncio.CancelledError())
    engine = await bench.run(Controller(App, reconcile).with_options(concurrency=1), app())
    assert engine.tally.results["error"] == 1
    await bench.clock.advance(1)
    assert len(reconcile.calls) == 2


# -- what it sees -----------------------------------------------------------------------------------------------------


async def test_one_reconcile_reads_one_snapshot(bench):
    seen: list[Any] = []
    go_on = asyncio.Event()

    async def reconcile(ctx, obj):
        seen.append([pod.name for pod in ctx.cache[Pod].list()])
        await go_on.wait()
        seen.append([pod.name for pod in ctx.cache[Pod].list()])

    await bench.run(Controller(App, reconcile).reads(Pod), app())
    bench.caches[Pod].set(pod("new"))
    go_on.set()
    await settle()
    assert seen == [[], []]
    bench.caches[App].set(app(revision="2"))
    await settle()
    assert seen[2:] == [["new"], ["new"]]
    assert bench.caches[Pod].store._snapshots == []


async def test_objects_can_be_found_by_an_index(bench):
    found: list[list[str]] = []

    async def reconcile(ctx, obj):
        found.append([pod.name for pod in ctx.cache[Pod].by_index("app", obj.name)])

    def app_of(obj):
        return [obj.metadata.labels["app"]]

    controller = Controller(App, reconcile).reads(Pod).index(Pod, "app", app_of)
    pods = [pod("p", labels={"app": "a"}), pod("q", labels={"app": "b"}), pod("r", labels={"app": "a"})]
    await bench.run(controller, app("a"), *pods)
    assert found == [["p", "r"]]
    with pytest.raises(ConfigError, match="read or watch Pod before you index it"):
        Controller(App, reconcile).index(Pod, "app", app_of)


async def test_an_object_that_is_gone_is_not_reconciled_but_reported_to_its_caller(bench):
    reconcile, forget = Script(), Script()
    await bench.run(Controller(App, reconcile).on_missing(forget), app())
    reconcile.calls.clear()
    bench.caches[App].remove(app())
    await settle()
    assert reconcile.calls == []
    assert forget.calls == [A]


async def test_terminating_objects_are_left_alone_unless_asked_for(bench):
    going = app(deletion_timestamp="2026-01-01T00:00:00Z")
    careful, eager = Script(), Script()
    await bench.run(Controller(App, careful), going)
    await bench.run(Controller(App, eager, "eager").with_options(while_terminating=True))
    assert careful.calls == []
    assert eager.calls == [going]


async def test_reading_a_kind_that_was_not_declared_says_what_to_add(bench):
    async def reconcile(ctx, obj):
        ctx.cache[Pod].get(A)

    with structlog.testing.capture_logs() as logs:
        await bench.run(Controller(App, reconcile), app())
    assert any("add .reads(Pod)" in line.get("error", "") for line in logs)


async def test_the_reconcile_id_is_in_every_log_line_of_a_reconcile_and_in_no_other(bench):
    lines: list[dict[str, Any]] = []

    def keep(logger, method, event):
        lines.append(dict(event))
        raise structlog.DropEvent

    ids = []

    async def reconcile(ctx, obj):
        ids.append(ctx.reconcile_id)
        structlog.get_logger().info("from afar")
        await asyncio.create_task(deeper())

    async def deeper():
        structlog.get_logger().info("from a task")

    structlog.configure(processors=[structlog.contextvars.merge_contextvars, keep], cache_logger_on_first_use=False)
    try:
        await bench.run(Controller(App, reconcile), app("a"), app("b"))
        structlog.get_logger().info("outside")
    finally:
        structlog.reset_defaults()
    told = [line for line in lines if line["event"].startswith("from")]
    assert len(told) == 4
    assert {line["reconcile_id"] for line in told} == set(ids)
    assert len(set(ids)) == 2
    assert {(line["controller"], line["object"]) for line in told} == {("app", "shop/a"), ("app", "shop/b")}
    assert "reconcile_id" not in next(line for line in lines if line["event"] == "outside")


async def test_a_context_knows_how_often_its_key_failed_before(bench):
    reconcile = Script(DriverError("x", server="s"), DriverError("x", server="s"))
    await bench.run(Controller(App, reconcile), app())
    await bench.clock.advance(1)
    assert [ctx.failures for ctx in reconcile.contexts] == [0, 1, 2]


# -- keys, schedules, permission --------------------------------------------------------------------------------------


async def test_a_controller_for_no_kind_reconciles_the_keys_its_mappings_give(bench):
    reconcile = Script()
    controller = Controller(None, reconcile, "all").watches(Pod, to=lambda obj: ["everything"])
    await bench.run(controller, pod("p"), pod("q"))
    assert reconcile.calls == ["everything"]


async def test_every_object_is_reconciled_once_per_schedule(bench):
    reconcile = Script()
    await bench.run(Controller(App, reconcile).schedule(every=600), app("a"), app("b"))
    reconcile.calls.clear()
    await bench.clock.advance(600)
    assert reconcile.calls == []  # spread over the time that begins now
    await bench.clock.advance(300)
    assert sorted(call.name for call in reconcile.calls) == ["a", "b"]


async def test_a_cron_expression_says_when_to_reconcile_in_the_time_of_its_zone(bench):
    seen: list[str] = []

    async def reconcile(ctx, obj):
        seen.append(datetime.fromtimestamp(bench.clock.time(), ZoneInfo("Europe/Berlin")).isoformat())

    begun = datetime(2026, 10, 23, 12, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
    await bench.clock.advance(begun - bench.clock.time())
    await bench.run(Controller(App, reconcile).schedule(cron="0 4 * * *", zone="Europe/Berlin"), app("a"))
    seen.clear()
    await bench.clock.advance(3 * 86400)
    days = [("24", "02:00"), ("25", "01:00"), ("26", "01:00")]  # the clocks go back on the 25th
    assert seen == [f"2026-10-{day}T04:00:00+{offset}" for day, offset in days]


async def test_missed_reconciles_run_once(bench, monkeypatch):
    seen = []

    async def reconcile(ctx, key):
        seen.append(key)

    await bench.run(Controller(None, reconcile, "clock").schedule(cron="* * * * *", keys=["tick"]))
    there = bench.clock.time()
    monkeypatch.setattr(bench.clock, "time", lambda: there + 3600 + bench.clock.monotonic())  # suspended for an hour
    await bench.clock.advance(61)
    assert len(seen) <= 2


async def test_named_keys_are_reconciled_on_schedule(bench):
    reconcile = Script()
    controller = Controller(None, reconcile, "clock").schedule(every=10, keys=["tick"])
    engine = bench.prepare(controller)
    bench.start(engine)
    await bench.clock.advance(35)
    assert reconcile.calls == ["tick"] * 3


async def test_keys_of_another_owner_are_unchanged(bench):
    reconcile = Script()
    mine = {"shop"}
    engine = await bench.run(Controller(App, reconcile), app("a"), permit=lambda key: key.namespace in mine)
    mine.clear()
    engine.queue.add(A)
    await settle()
    assert len(reconcile.calls) == 1
    mine.add("shop")
    engine.add_all(where=lambda key: key.namespace == "shop")
    await settle()
    assert len(reconcile.calls) == 2


async def test_an_object_that_went_while_it_was_nobodys_is_known_to_be_gone_when_it_is_ours(bench):
    mine: set[str] = set()
    gone = Script()
    controller = Controller(App, Script()).on_missing(gone)
    engine = await bench.run(controller, app("a"), app("b"), permit=lambda key: key.namespace in mine)
    bench.caches[App].remove(app("a", revision="2"))
    await settle()
    mine.add("shop")
    engine.add_all(where=lambda key: key.namespace == "stock")
    await settle()
    assert gone.calls == []
    engine.add_all(where=lambda key: key.namespace == "shop")
    engine.add_all(where=lambda key: key.namespace == "shop")
    await settle()
    assert gone.calls == [A]


async def test_keys_of_no_kind_are_not_lost_while_they_are_nobodys(bench):
    """What is there is found by mapping it again; what was sent, or has gone since, is remembered."""
    mine: set[str] = set()
    reconcile, channel = Script(), Channel()
    controller = Controller(None, reconcile, "mapped").watches(Pod, to=lambda pod: [NamespacedName(pod.name, "shop")])
    engine = await bench.run(controller.watches_channel(channel), permit=lambda key: key.namespace in mine)
    bench.caches[Pod].set(pod("stays"), pod("goes"))
    await settle()
    bench.caches[Pod].remove(pod("goes", revision="2"))
    channel.send(NamespacedName("sent", "shop"))
    await settle()
    mine.add("shop")
    engine.add_all(where=lambda key: key.namespace == "shop")
    await settle()
    assert sorted(key.name for key in reconcile.calls) == ["goes", "sent", "stays"]


async def test_of_what_belongs_to_another_owner_only_so_much_is_remembered(bench, monkeypatch):
    monkeypatch.setattr("steersman.runtime.controller.runner.LEFT_KEYS", 3)
    mine: set[str] = set()
    reconcile, channel = Script(), Channel()
    engine = await bench.run(Controller(None, reconcile, "sent").watches_channel(channel), permit=mine.__contains__)
    for number in (0, 1, 2, 0, 3):
        channel.send(str(number))
        await settle()
    mine.update("0123")
    engine.add_all()
    await settle()
    assert sorted(reconcile.calls) == ["0", "2", "3"]


async def test_waiting_until_nothing_works_on_some_keys_returns_when_that_is_so(bench):
    gates = {"a": asyncio.Event(), "b": asyncio.Event()}

    async def reconcile(ctx, obj):
        await gates[obj.name].wait()

    engine = await bench.run(Controller(App, reconcile), app("a"), app("b"))
    idle = asyncio.create_task(engine.wait_idle(lambda key: key.name == "a"))
    await settle()
    assert not idle.done()
    gates["a"].set()
    await settle()
    assert idle.done()


async def test_stopping_lets_what_runs_end_and_drops_the_rest(bench):
    gate = asyncio.Event()
    ran: list[str] = []

    async def reconcile(ctx, obj):
        ran.append(obj.name)
        await gate.wait()

    controller = Controller(App, reconcile).with_options(concurrency=1)
    engine = await bench.run(controller, app("a"), app("b"))
    engine.stop()
    bench.caches[App].set(app("c"))
    await settle()
    assert not bench.tasks[0].done()
    gate.set()
    await settle()
    assert bench.tasks[0].done()
    assert ran == ["a"]
    assert bench.caches[App].handlers == []


# -- blocking reconcilers ---------------------------------------------------------------------------------------------


async def test_a_blocking_reconcile_that_timed_out_keeps_its_key_until_its_thread_ends(bench):
    release, started = threading.Event(), asyncio.Event()
    runs: list[bool] = []
    loop = asyncio.get_running_loop()

    def reconcile(ctx, obj):
        runs.append(ctx.abandoned)
        loop.call_soon_threadsafe(started.set)
        release.wait(30)
        runs.append(ctx.abandoned)
        ctx.apply(obj)

    controller = Controller(App, reconcile).with_options(timeout_seconds=5)
    engine = bench.prepare(controller)
    bench.start(engine)
    bench.caches[App].sync(app())
    await started.wait()
    await bench.clock.advance(5)
    engine.queue.add(A)
    await settle()
    assert engine.queue.processing == 1
    assert runs == [False]
    engine.queue.close(drop=True)
    release.set()
    await eventually(lambda: not engine.queue.processing)
    assert runs == [False, True]
    assert engine.tally.timeouts == 1


async def test_an_error_in_a_thread_is_an_error_of_the_reconcile(bench):
    def reconcile(ctx, obj):
        raise StopIteration if obj.name == "a" else ValueError("bad")

    engine = bench.prepare(Controller(App, reconcile))
    bench.start(engine)
    bench.caches[App].sync(app("a"), app("b"))
    await eventually(lambda: engine.tally.results["error"] == 2)
    assert engine.tally.panics == 2


# -- tables that cannot run -------------------------------------------------------------------------------------------


async def test_one_class_in_two_selections_is_refused(bench):
    controller = Controller(App, Script()).owns(Pod).watches(Pod, to=lambda obj: [], label_selector="a=b")
    with pytest.raises(ConfigError, match="two selections"):
        bench.prepare(controller)


async def test_an_unknown_cluster_is_refused(bench):
    with pytest.raises(ConfigError, match="watches cluster 'far'"):
        bench.prepare(Controller(App, Script()).reads(Pod, cluster="far"))


async def test_a_defect_of_a_worker_is_raised_and_not_swallowed(bench):
    engine = bench.prepare(Controller(App, Script()))
    engine.queue.forget = None  # type: ignore[assignment]  # anything that cannot happen
    task = bench.start(engine)
    bench.caches[App].sync(app())
    await settle()
    assert isinstance(task.exception(), ExceptionGroup)


async def test_an_interrupted_reconcile_ends_alone_and_its_key_stays_dirty(bench):
    began: list[str] = []
    gate = asyncio.Event()

    async def reconcile(ctx, obj):
        began.append(obj.name)
        await gate.wait()

    controller = Controller(App, reconcile).with_options(concurrency=2)
    engine = await bench.run(controller, app("a"), app("b"))
    engine.interrupt(lambda key: key.name == "a")
    await settle()
    assert began == ["a", "b", "a"]  # the worker lives, and nobody had to say that the key is dirty
    gate.set()
    await settle()
    assert engine.tally.results["success"] == 2
    assert engine.tally.results["error"] == 0


async def test_a_thousand_keys_that_all_ask_to_run_again_do_not_block_each_other(bench):
    runs: dict[str, int] = {}

    async def reconcile(ctx, obj):
        runs[obj.name] = runs.get(obj.name, 0) + 1
        return requeue(after=0.01) if runs[obj.name] < 5 else done

    objects = [app(f"n{number}") for number in range(1000)]
    engine = await bench.run(Controller(App, reconcile).with_options(concurrency=1), *objects)
    await bench.clock.advance(1)
    assert runs == {obj.name: 5 for obj in objects}
    assert engine.tally.results == {"success": 1000, "error": 0, "requeue": 0, "requeue_after": 4000}


@pytest.mark.parametrize("steps", range(4))
async def test_an_interruption_together_with_the_end_of_leadership_ends_the_worker(bench, steps):
    async def reconcile(ctx, obj):
        await asyncio.Event().wait()

    engine = bench.prepare(Controller(App, reconcile))
    task = bench.start(engine)
    bench.caches[App].sync(app())
    await settle()
    task.cancel()
    for _ in range(steps):
        await asyncio.sleep(0)
    engine.interrupt(lambda key: True)
    await settle()
    assert task.cancelled()


async def test_a_reconcile_that_swallows_its_interruption_leaves_its_worker_sound(bench):
    runs: list[str] = []

    async def reconcile(ctx, obj):
        runs.append(obj.name)
        if len(runs) == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return
        if len(runs) == 2:
            raise asyncio.CancelledError  # something it waited for was cancelled

    engine = await bench.run(Controller(App, reconcile).with_options(concurrency=1), app())
    engine.interrupt(lambda key: True)
    await settle()
    for _ in range(2):
        engine.queue.add(A)
        await settle()
        await bench.clock.advance(1)
    assert len(runs) >= 3  # the worker lives
    assert engine.tally.results["error"] == 1


async def test_a_schedule_that_breaks_is_raised_and_not_swallowed(bench, monkeypatch):
    def broken(self, now):
        raise RuntimeError("no such day")

    engine = bench.prepare(Controller(App, Script()).schedule(cron="0 3 * * *"))
    monkeypatch.setattr(Schedule, "next", broken)
    task = bench.start(engine)
    bench.caches[App].sync()
    await settle()
    assert isinstance(task.exception(), ExceptionGroup)


async def test_an_object_without_generation_that_others_change_is_not_stuck(bench):
    async def reconcile(ctx, obj):
        ctx.writes += 1  # to a child

    limits = Limits(writes=3, writes_seconds=600)
    engine = await bench.run(Controller(App, reconcile).with_options(limits=limits), app(revision="1"))
    for revision in range(2, 8):
        bench.caches[App].set(app(revision=str(revision)))
        await settle()
    assert engine.tally.results["success"] == 7
    assert engine.stuck_keys() == []
    for _ in range(3):
        engine.queue.add(A)
        await settle()
    assert [trouble.kind for trouble in engine.stuck_keys()] == ["writes"]


# -- standing by ------------------------------------------------------------------------------------------------------


async def test_a_standby_does_not_remember_every_object_that_ever_was(bench):
    reconcile = Script()
    engine = bench.prepare(Controller(App, reconcile).watches(Pod, to=lambda pod: [app(pod.name).ref]))
    bench.caches[App].sync(app("stays"))
    bench.caches[Pod].sync()
    for number in range(5_000):
        bench.caches[App].set(app(f"job-{number}"))
        bench.caches[App].remove(app(f"job-{number}", "2"))
        bench.caches[Pod].set(pod(f"job-{number}"))  # late, for something that is gone
    assert engine.queue.dirty <= 1_001
    bench.start(engine)
    await settle()
    assert [obj.name for obj in reconcile.calls] == ["stays"]


async def test_a_standby_keeps_what_its_controller_wants_to_hear_the_end_of(bench):
    engine = bench.prepare(Controller(App, Script()).on_missing(Script()))
    bench.caches[App].sync()
    for number in range(1_500):
        engine.add(app(f"job-{number}").ref)
    assert engine.queue.dirty == 1_500


async def test_a_standby_that_does_not_know_its_objects_yet_forgets_none(bench):
    engine = bench.prepare(Controller(App, Script()))
    for number in range(1_500):
        engine.add(app(f"job-{number}").ref)
    assert engine.queue.dirty == 1_500


async def test_a_failing_key_that_was_given_away_is_no_longer_ours_to_report(bench):
    mine = {"shop"}
    controller = Controller(App, Script(*[ValueError("x")] * 50)).with_options(limits=Limits(failures=3))
    engine = await bench.run(controller, app(), permit=lambda key: key.namespace in mine)
    await bench.clock.advance(5)
    assert engine.stuck_keys()
    mine.clear()
    await bench.clock.advance(3600)
    assert not engine.stuck_keys()
