"""A function of the user has the last word and can break nothing: not by raising, hanging or nonsense."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from steersman.errors import ConfigError
from steersman.operators.reload.planning.hooks import (
    HookChange,
    HookRunner,
    HookSource,
    allow,
    change_of,
    hold,
    load_hook,
)
from steersman.operators.reload.workloads.workload import WorkloadName
from tests.support.reload.miniature import World, configmap, env, env_from, workload

CHANGE = HookChange(
    workload=WorkloadName("Deployment", "shop", "web"),
    sources=(HookSource("configmap", "shop", "app", ("mode",)), HookSource("secret", "lab", "db")),
    at=1.0,
)


def test_sources_are_named_as_people_of_the_namespace_name_them():
    assert CHANGE.names == ("configmap/app", "secret/lab/db")


@pytest.mark.parametrize(
    ("answer", "allowed", "reason"),
    [
        (allow(), True, ""),
        (None, True, ""),
        (True, True, ""),
        (False, False, "the hook returned False"),
        (hold("not today", 60), False, "not today"),
    ],
)
async def test_what_it_says_counts(answer, allowed, reason):
    decision = await HookRunner(lambda _: answer).decide(CHANGE)
    assert (decision.allowed, decision.reason) == (allowed, reason)


def raises(_change):
    raise RuntimeError("boom")


@pytest.mark.parametrize(
    ("function", "why"), [(raises, "RuntimeError: boom"), (lambda _: "yes", "str is not a decision")]
)
async def test_a_failure_means_what_the_configuration_says(function, why):
    assert (await HookRunner(function, on_error="allow").decide(CHANGE)).allowed
    held = await HookRunner(function, on_error="hold").decide(CHANGE)
    assert (held.allowed, held.reason) == (False, f"the hook failed: {why}")


async def test_a_hang_means_the_same_and_no_second_call_is_made_until_it_is_over():
    release, calls = threading.Event(), []

    def slow(change):
        calls.append(change)
        release.wait(60)

    runner = HookRunner(slow, timeout=0.01, on_error="hold")
    try:
        assert "no answer within" in (await runner.decide(CHANGE)).reason
        assert "an earlier call has not returned" in (await runner.decide(CHANGE)).reason
        assert len(calls) == 1
    finally:
        release.set()
    await runner._busy
    assert (runner.failures, len(calls)) == (2, 1)


def changed_world():
    """A workload that is about to be restarted."""
    world = World()
    world.put(configmap("app", mode="a"))
    world.put(workload("web", uses=[env_from("app")], labels={"tier": "front"}))
    world.run()
    world.put(configmap("app", mode="b"))
    world.run()
    world.now += 60
    return world


def clock(world):
    return SimpleNamespace(time=lambda: world.now)


async def judged(function, world):
    """The evaluation that follows the question."""
    runner = HookRunner(function)
    asking = world.evaluate("Deployment", "web", hook=runner)
    assert (asking.plan.action, asking.plan.state) == ("ask", None)
    await runner.ask(asking, clock(world))
    return world.evaluate("Deployment", "web", hook=runner)


async def test_a_plan_is_held_back_until_the_time_the_function_names():
    world = changed_world()
    change = change_of(world.evaluate("Deployment", "web"), world.now)
    assert (change.action, change.names, change.sources[0].keys) == ("restart", ("configmap/app",), ("mode",))
    assert change.labels == {"tier": "front"}
    held = (await judged(lambda _: hold("moving house", 30), world)).plan
    assert (held.action, held.gate, held.reason, held.due) == ("wait", "hook", "hook: moving house", world.now + 30)
    assert held.state is None
    assert (await judged(lambda _: allow(), world)).plan.action == "restart"


@pytest.mark.parametrize("seconds", ["soon", float("nan"), True, [1]])
async def test_a_time_that_is_none_is_a_failure_like_any_other(seconds):
    decision = await HookRunner(lambda _: hold("x", seconds), on_error="hold").decide(CHANGE)
    assert decision.reason.startswith("the hook failed: seconds=")
    assert (await HookRunner(lambda _: hold("x", seconds)).decide(CHANGE)).allowed


@pytest.mark.parametrize("seconds", [float("inf"), 1e300, 10**400])
async def test_a_time_without_end_ends_after_a_day(seconds):
    world = changed_world()
    plan = (await judged(lambda _: hold("x", seconds), world)).plan
    assert (plan.action, plan.due) == ("wait", world.now + 86_400)


async def test_what_is_not_a_restart_is_not_asked_about():
    world = World()
    world.put(configmap("app", mode="a"))
    world.put(workload("web", uses=[env("app", "mode")]))
    assert world.evaluate("Deployment", "web", hook=HookRunner(raises, on_error="hold")).plan.action == "seed"


async def test_an_answer_counts_once_for_what_was_asked_and_not_for_long():
    world, runner = changed_world(), HookRunner(lambda _: allow())

    def planned():
        return world.evaluate("Deployment", "web", hook=runner)

    asking = planned()
    await runner.ask(asking, clock(world))
    assert planned().plan.action == "restart"
    runner.forget(asking.workload.metadata.uid)
    assert planned().plan.action == "ask"
    await runner.ask(asking, clock(world))
    world.now += 30
    assert planned().plan.action == "ask"
    await runner.ask(planned(), clock(world))
    world.put(configmap("app", mode="b", more="x"))
    assert planned().plan.action == "ask", "it is another change"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("night", 'there is no hook "night" in the group steersman.reload.hooks'),
        ("no.such.module:decide", "cannot be loaded"),
        ("json:nothing", "cannot be loaded"),
        ("string:digits", "is not a function"),
    ],
)
def test_a_hook_that_cannot_be_had_is_reported_at_the_start(name, said):
    with pytest.raises(ConfigError) as caught:
        load_hook(name)
    assert said in str(caught.value)
