"""What workloads must know of each other: who was looked at, who goes first, and who is under way."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.operators.reload.api.annotations import APPLIED
from steersman.operators.reload.api.config import (
    Features,
    Guard,
    ReloadOptions,
    RestartBudget,
    SourceKind,
    SourceRef,
    Window,
    WorkloadId,
)
from steersman.operators.reload.planning.gates import Moment
from steersman.operators.reload.planning.restart_order import RestartCoordinator
from steersman.operators.reload.planning.state import read_state, write_state
from tests.support.reload.miniature import World, configmap, env, workload

AT_ONCE = ReloadOptions(window=Window(quiet=timedelta(0), limit=timedelta(0)), budget=RestartBudget(restarts=0))
WEB, DB = WorkloadId("Deployment", "shop", "web"), WorkloadId("Deployment", "shop", "db")


# ------------------------------------------------------------------------------------------------------- the marks
def test_a_mark_goes_when_the_reconcile_ends_that_began_under_it():
    coordinator = RestartCoordinator()
    coordinator.mark([WEB, DB])
    mark = coordinator.mark_of(WEB)
    coordinator.unmark(WEB, mark)
    assert coordinator.mark_of(WEB) is None
    assert coordinator.mark_of(DB) is not None


def test_a_mark_that_came_while_a_reconcile_went_on_stays():
    coordinator = RestartCoordinator()
    coordinator.mark([WEB])
    mark = coordinator.mark_of(WEB)
    coordinator.mark([WEB])
    coordinator.unmark(WEB, mark)
    assert coordinator.mark_of(WEB) is not None


def test_a_reconcile_without_a_mark_takes_none_away():
    coordinator = RestartCoordinator()
    mark = coordinator.mark_of(WEB)
    coordinator.mark([WEB])
    coordinator.unmark(WEB, mark)
    assert coordinator.mark_of(WEB) is not None


# ------------------------------------------------------------------------------------------------------------ guards
def lending(guard, homes):
    """A ConfigMap of one namespace that a workload in each of several others uses."""
    world = World(msgspec.structs.replace(AT_ONCE, guard=guard, order_with=frozenset({"*"})))
    world.put(configmap("app", mode="a", annotations={"steersman.dev/share-with": "*"}))
    marks = {"steersman.dev/reload": "auto", "steersman.dev/reload-extra": "configmap/shop/app"}
    for number in range(homes):
        world.put(workload("web", namespace=f"home-{number}", annotations=marks))
    world.run()
    assert world.restarts == {}
    world.put(configmap("app", mode="b", annotations={"steersman.dev/share-with": "*"}))
    return world


def test_a_guard_counts_the_workloads_of_all_agreed_namespaces_before_the_first_of_them_goes():
    world = lending(Guard(workloads=2), homes=6)
    for _ in range(3):
        world.run(after=60)
    assert world.restarts == {}
    assert world.evaluate("Deployment", "web", namespace="home-0").plan.gate == "approval"


@pytest.mark.parametrize(("other", "gate"), [("app", "window"), ("else", "")])
def test_only_those_that_may_use_the_source_are_waited_for_in_agreed_namespaces(other, gate):
    world = lending(Guard(workloads=2), homes=1)
    where = SourceRef(SourceKind.CONFIGMAP, "shop", other)
    world.coordinator.mark([WorkloadId("Deployment", "far", "away")], where)
    assert world.evaluate("Deployment", "web", namespace="home-0").plan.gate == gate


# ------------------------------------------------------------------------------------------------------ who goes first
def test_a_lower_wave_of_an_agreed_namespace_goes_first_though_it_is_evaluated_later():
    world = World(msgspec.structs.replace(AT_ONCE, order_with=frozenset({"*"})))
    shared = {"steersman.dev/share-with": "*"}
    asks = {"steersman.dev/reload": "auto", "steersman.dev/reload-extra": "configmap/shop/app"}
    world.put(configmap("app", mode="a", annotations=shared))
    world.put(workload("late", namespace="a", annotations={**asks, "steersman.dev/wave": "1"}))
    world.put(workload("early", namespace="b", annotations=asks))
    world.run()
    world.put(configmap("app", mode="b", annotations=shared))
    assert world.run() == {"deployment/late": "wait", "deployment/early": "restart"}
    assert world.run(after=1) == {"deployment/late": "wait"}
    world.roll("early", namespace="b")
    assert world.run(after=1) == {"deployment/late": "restart"}


def shop(plans, made=AT_ONCE):
    """Workloads that share one ConfigMap, seeded; `plans`: name -> wave, and names that it depends on."""
    world = World(made)
    world.put(configmap("app", mode="a"))
    for name, (wave, depends) in plans.items():
        marks = {"steersman.dev/reload": "auto", "steersman.dev/wave": str(wave)}
        if depends:
            marks["steersman.dev/depends-on"] = ",".join(f"deployment/{depend}" for depend in depends)
        world.put(workload(name, uses=[env("app", "mode")], annotations=marks))
    world.run()
    assert world.restarts == {}
    world.put(configmap("app", mode="b"))
    return world


ALL = Features(actions=frozenset({"restart", "none", "http", "evict"}))


def beside(action, **more):
    """A workload whose pods are dealt with one by one, and two that restart; one ConfigMap has changed for all."""
    world = World(msgspec.structs.replace(AT_ONCE, features=ALL, **more))
    world.put(configmap("app", mode="a"))
    for name, marks in {"db": {"action": action}, "web": {"wave": "1"}, "zoo": {}}.items():
        annotations = {f"steersman.dev/{one}": text for one, text in {"reload": "auto", **marks}.items()}
        world.put(workload(name, uses=[env("app", "mode")], annotations=annotations))
    world.run()
    world.put(configmap("app", mode="b"))
    return world


def evicted(world):
    """What is written when the last of the old pods has gone."""
    state = read_state(world.get("Deployment", "db")["metadata"]["annotations"][APPLIED]).applied
    assert state is not None
    done = write_state(msgspec.structs.replace(state, evict=0))
    world.edit("Deployment", "db", {"metadata": {"annotations": {APPLIED: done}}})


@pytest.mark.parametrize("crash", [False, True])
def test_the_next_wave_waits_until_the_last_pod_is_evicted(crash):
    world = beside("evict")
    assert world.run() == {"deployment/db": "evict", "deployment/web": "wait", "deployment/zoo": "restart"}
    world.roll("zoo")
    if crash:
        world.crash()
    assert world.run(after=60) == {"deployment/web": "wait"}
    assert world.evaluate("Deployment", "web").plan.waits_for == DB
    evicted(world)
    assert world.run(after=60) == {"deployment/web": "restart"}


def test_evictions_count_among_the_rollouts_that_are_under_way():
    world = beside("evict", max_concurrent=1)
    assert world.run() == {"deployment/db": "evict", "deployment/web": "wait", "deployment/zoo": "wait"}
    assert world.evaluate("Deployment", "zoo").plan.gate == "concurrency"
    evicted(world)
    assert world.run()["deployment/zoo"] == "restart"


def test_an_eviction_that_does_not_move_fails_at_its_deadline_and_says_what_it_waits_for():
    world = beside("evict")
    world.run()
    began = world.now
    world.coordinator.rollouts.set_waiting(DB, "for pod db-1 to go", moved=began + 500)
    world.coordinator.rollouts.set_waiting(DB, "for pod db-1 to be ready")
    rollout = world.coordinator.rollouts.get(DB)
    assert rollout.phase(began + 1099) == "progressing"
    assert rollout.reason(began + 1100) == "not available after 600 s (waiting for pod db-1 to be ready)"
    evicted(world)
    assert world.coordinator.rollouts.get(DB).phase(began + 1100) == "available"


def claimed(world):
    """The look that decides on a call, before anybody knows how it ends."""
    look = world.evaluate("Deployment", "db")
    assert look.plan.action == "call"
    world.coordinator.record(look, Moment(wall=world.now, tick=world.now))
    return look


def test_the_next_wave_waits_while_pods_do_not_take_a_call_and_no_longer_than_its_deadline():
    world = beside("http port=80 after=0s")
    claimed(world)
    world.step("Deployment", "zoo")
    world.roll("zoo")
    for _ in range(5):
        world.now += 60
        claimed(world)
        assert world.step("Deployment", "web").plan.gate == "wave"
    world.now += 300
    claimed(world)
    assert world.step("Deployment", "web").plan.gate == "halt"
    world.step("Deployment", "db")
    assert world.step("Deployment", "web").plan.action == "restart"


def test_a_call_that_is_no_longer_wanted_blocks_nothing_else():
    world = beside("http port=80 after=0s", max_concurrent=1)
    claimed(world)
    assert world.step("Deployment", "zoo").plan.gate == "concurrency"
    world.edit("Deployment", "db", {"metadata": {"annotations": {"steersman.dev/freeze": "true"}}})
    assert world.step("Deployment", "db").plan.gate == "freeze"
    assert world.step("Deployment", "zoo").plan.action == "restart"


def test_a_restart_of_a_workload_that_is_being_restarted_is_not_one_more():
    world = beside("restart", max_concurrent=1)
    assert world.run()["deployment/db"] == "restart"
    world.put(configmap("app", mode="c"))
    assert world.run()["deployment/db"] == "restart"


def rounds(world, names):
    """Look and roll out until nothing moves; the names in the order of their restarts."""
    order = []
    for _ in range(3 * len(names) + 3):
        done = [name.removeprefix("deployment/") for name, action in world.run(after=60).items() if action == "restart"]
        for name in done:
            world.roll(name)
        order += sorted(done)
    return order


def test_a_dependency_that_does_not_exist_is_reported_once_all_kinds_are_listed_and_blocks_nothing_else():
    world = shop({"web": (0, ["dbb"])})
    problems = [world.evaluate("Deployment", "web").plan.problems]
    world.now += 30
    problems.append(world.evaluate("Deployment", "web").plan.problems)
    world.put(workload("dbb", annotations={}))
    problems.append(world.evaluate("Deployment", "web").plan.problems)
    told = "steersman.dev/depends-on: deployment/dbb does not exist, or its kind is not watched; dependency ignored"
    assert problems == [(), (told,), ()]
    assert rounds(world, ["web"]) == ["web"]


def test_whom_an_earlier_wave_depends_on_goes_with_it_and_that_is_reported():
    world = shop({"a": (0, "c"), "b": (1, ""), "c": (2, "")})
    told = "steersman.dev/depends-on: deployment/c has wave 2, after wave 0 of deployment/a; it goes with wave 0"
    assert world.evaluate("Deployment", "a").plan.problems == (told,)
    assert rounds(world, "abc") == ["c", "a", "b"]


@given(
    st.dictionaries(
        st.sampled_from("abcde"),
        st.tuples(st.integers(-1, 2), st.sets(st.sampled_from("abcde"), max_size=2)),
        min_size=1,
    )
)
@settings(max_examples=40)
def test_whatever_waves_and_dependencies_say_everybody_is_restarted_once(plans):
    assert sorted(rounds(shop(plans), plans)) == sorted(plans)


def test_a_reason_names_who_is_waited_for_and_does_not_grow():
    world = shop({"a": (0, ""), "b": (1, ""), "c": (2, ""), "d": (3, "")})
    world.edit("Deployment", "a", {"metadata": {"annotations": {"steersman.dev/freeze": "true"}}})
    for _ in range(20):
        world.run(after=60)
    reasons = {name: world.evaluate("Deployment", name).plan for name in "bcd"}
    assert world.restarts == {}
    assert {name: plan.waits_for.name for name, plan in reasons.items()} == {"b": "a", "c": "a", "d": "a"}
    frozen = "wave 0 goes first: deployment/a: its restart waits (steersman.dev/freeze on the workload)"
    assert {plan.reason for plan in reasons.values()} == {frozen}


def test_along_a_chain_everybody_names_the_next_one_only():
    world = shop({"a": (0, ""), "b": (0, "a"), "c": (0, "b"), "d": (0, "c")})
    world.edit("Deployment", "a", {"metadata": {"annotations": {"steersman.dev/freeze": "true"}}})
    for _ in range(20):
        world.run(after=60)
    assert world.evaluate("Deployment", "d").plan.reason == (
        "deployment/c goes first: its restart waits (for deployment/b)"
    )


def test_a_failed_rollout_for_more_sources_than_can_be_listed_halts_the_others_also_after_a_crash():
    world = World(AT_ONCE)
    names = [f"configuration-number-{number:03}-of-the-shop" for number in range(60)]
    for name in names:
        world.put(configmap(name, mode="a"))
    second = {"steersman.dev/reload": "auto", "steersman.dev/wave": "1"}
    world.put(workload("a", uses=[env(name, "mode") for name in names]))
    world.put(workload("b", uses=[env(names[-1], "mode")], annotations=second))
    world.run()
    for name in names:
        world.put(configmap(name, mode="b"))
    world.run()
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    world.edit("Deployment", "a", {"status": {"observedGeneration": 99, "conditions": [late]}})
    world.run()
    world.crash()
    world.run()
    world.run()
    assert world.restarts == {"deployment/a": 1}
    assert world.evaluate("Deployment", "b").plan.gate == "halt"


# ------------------------------------------------------------------------------------------------- dependencies twice
def test_a_dependency_that_is_named_twice_counts_once():
    world = World(AT_ONCE)
    world.put(configmap("app", mode="a"))
    marks = {"steersman.dev/reload": "auto", "steersman.dev/depends-on": "deployment/db,deploy/db"}
    world.put(workload("db", uses=[env("app", "mode")], annotations={"steersman.dev/reload": "auto"}))
    world.put(workload("web", uses=[env("app", "mode")], annotations=marks))
    world.run()
    world.put(configmap("app", mode="b"))
    world.run()
    assert world.evaluate("Deployment", "web").policy.depends == (DB,)
    assert world.restarts == {"deployment/db": 1}


# ------------------------------------------------------------------------------------ one tenant and another's restarts
SHARED = {"steersman.dev/share-with": "*"}
ASKS = {"steersman.dev/reload": "auto", "steersman.dev/reload-extra": "configmap/platform/app"}
AGREED = [
    ({"steersman.dev/order-with": "b"}, {"steersman.dev/order-with": "a,shop"}),
    ({"steersman.dev/order-with": "*"}, {"steersman.dev/order-with": "*"}),
]
NOT_AGREED = [
    ({}, {}),
    ({}, {"steersman.dev/order-with": "*"}),
    ({"steersman.dev/order-with": "*"}, {}),
    ({"steersman.dev/order-with": "c"}, {"steersman.dev/order-with": "a"}),
]


def tenants(mine, theirs, made=AT_ONCE, others=1, **marks):
    """A victim in namespace `a` and workloads of tenant `b`, of one shared source, seeded; the source has changed."""
    world = World(made)
    world.put(configmap("app", mode="a", namespace="platform", annotations=SHARED))
    world.put(workload("victim", namespace="a", annotations={**ASKS, **mine}))
    for number in range(others):
        world.put(workload(f"tenant-{number}", namespace="b", annotations={**ASKS, **theirs, **marks}))
    world.run()
    assert world.restarts == {}
    world.put(configmap("app", mode="b", namespace="platform", annotations=SHARED))
    return world


def victim(world):
    return world.evaluate("Deployment", "victim", namespace="a").plan


@pytest.mark.parametrize(("mine", "theirs"), NOT_AGREED)
def test_a_frozen_lower_wave_of_another_namespace_holds_back_only_who_agreed(mine, theirs):
    marks = {"steersman.dev/wave": "-999", "steersman.dev/freeze": "true"}
    world = tenants(mine, theirs, **marks)
    assert world.run()["deployment/victim"] == "restart"


@pytest.mark.parametrize(("mine", "theirs"), AGREED)
def test_a_lower_wave_of_a_namespace_that_both_agreed_on_goes_first(mine, theirs):
    world = tenants(mine, theirs, **{"steersman.dev/wave": "-999", "steersman.dev/freeze": "true"})
    world.run()
    assert victim(world).gate == "wave"


@pytest.mark.parametrize(("mine", "theirs"), NOT_AGREED)
def test_a_tenant_that_is_not_evaluated_holds_back_only_who_agreed(mine, theirs):
    world = tenants({**mine, "steersman.dev/wave": "1"}, theirs)
    world.coordinator.mark([WorkloadId("Deployment", "b", "tenant-0")])
    if mine.get("steersman.dev/order-with") != "*":  # whether the tenant agrees is known once it is evaluated
        assert victim(world).action == "restart"
    world.evaluate("Deployment", "tenant-0", namespace="b")
    world.coordinator.unmark(
        WorkloadId("Deployment", "b", "tenant-0"), world.coordinator.mark_of(WorkloadId("Deployment", "b", "tenant-0"))
    )
    assert victim(world).action == "restart"


@pytest.mark.parametrize(
    ("agreement", "gate"), [*((row, "") for row in NOT_AGREED), *((row, "halt") for row in AGREED)]
)
def test_a_rollout_that_failed_in_another_namespace_halts_only_who_agreed(agreement, gate):
    mine, theirs = agreement
    freeze = {"steersman.dev/freeze": "true"}
    world = tenants({**mine, **freeze}, theirs)
    world.run()
    world.roll("tenant-0", namespace="b", available=False)
    world.run()
    world.edit("Deployment", "victim", {"metadata": {"annotations": {"steersman.dev/freeze": None}}}, namespace="a")
    assert victim(world).gate == gate


@pytest.mark.parametrize(
    ("agreement", "gate"), [*((row, "") for row in NOT_AGREED), *((row, "approval") for row in AGREED)]
)
def test_workloads_of_another_namespace_count_against_the_guard_only_of_who_agreed(agreement, gate):
    mine, theirs = agreement
    world = tenants(mine, theirs, msgspec.structs.replace(AT_ONCE, guard=Guard(workloads=3)), others=4)
    for number in range(4):
        world.evaluate("Deployment", f"tenant-{number}", namespace="b")
    world.run()
    assert (victim(world).gate, world.restarts.get("deployment/victim", 0)) == (gate, 0 if gate else 1)


def test_workloads_that_wait_in_a_namespace_that_did_not_agree_do_not_count_against_the_guard():
    frozen = {"steersman.dev/freeze": "true"}
    world = tenants(frozen, frozen, msgspec.structs.replace(AT_ONCE, guard=Guard(workloads=3)), others=4)
    world.run()
    world.edit("Deployment", "victim", {"metadata": {"annotations": {"steersman.dev/freeze": None}}}, namespace="a")
    assert victim(world).action == "restart"


def test_a_rollout_without_end_in_another_namespace_leaves_room_after_the_configured_deadline():
    made = msgspec.structs.replace(AT_ONCE, max_concurrent=1)
    world = tenants({"steersman.dev/freeze": "true"}, {}, made, **{"steersman.dev/rollout-deadline": "87600h"})
    world.run()
    world.edit("Deployment", "victim", {"metadata": {"annotations": {"steersman.dev/freeze": None}}}, namespace="a")
    assert victim(world).gate == "concurrency"
    world.now += made.deadline.total_seconds() + 1
    assert victim(world).action == "restart"
