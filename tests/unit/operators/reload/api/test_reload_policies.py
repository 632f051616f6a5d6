"""What holds a restart back besides its own window: the calendar, others, failures, and people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.operators.reload.api.annotations import APPLIED
from steersman.operators.reload.api.config import Guard, OnFailure, ReloadOptions, RestartBudget, Window
from steersman.operators.reload.api.windows import MaintenanceWindow, make_window, parse_windows
from steersman.operators.reload.planning.gates import GATES
from steersman.operators.reload.planning.state import read_state
from tests.support.reload.miniature import START, World, configmap, env, workload

NOW = Window(quiet=timedelta(0), limit=timedelta(0))
FREE = RestartBudget(restarts=0)


def options(**more):
    return ReloadOptions(window=NOW, budget=FREE, **more)


def cluster_of(world, *names, waves=(), **annotations):
    """Workloads that share one ConfigMap, seeded."""
    world.put(configmap("app", mode="a"))
    for place, name in enumerate(names):
        marks = {"steersman.dev/reload": "auto", **annotations}
        if waves:
            marks["steersman.dev/wave"] = str(waves[place])
        world.put(workload(name, uses=[env("app", "mode")], annotations=marks))
    world.run()
    assert world.restarts == {}
    return world


def change(world, value="b"):
    world.put(configmap("app", mode=value))


def gate(world, name, kind="Deployment"):
    plan = world.evaluate(kind, name).plan
    return plan.gate


# ------------------------------------------------------------------------------------------------------------ calendar
@pytest.mark.parametrize(
    ("text", "at", "opens"),
    [
        ("0 2 * * * for 2h", "2026-05-04T01:00:00", "2026-05-04T02:00:00"),
        ("0 2 * * * for 2h", "2026-05-04T02:00:00", "2026-05-04T02:00:00"),
        ("0 2 * * * for 2h", "2026-05-04T03:59:59", "2026-05-04T03:59:59"),
        ("0 2 * * * for 2h", "2026-05-04T04:00:00", "2026-05-05T02:00:00"),
        ("0 2 * * 1-5 for 1h", "2026-05-09T00:00:00", "2026-05-11T02:00:00"),  # a Saturday
        ("0 2 * * * for 1h in Europe/Berlin", "2026-01-10T00:00:00", "2026-01-10T01:00:00"),  # winter
        ("0 2 * * * for 1h in Europe/Berlin", "2026-07-09T22:00:00", "2026-07-10T00:00:00"),  # summer
        ("0 22 * * * for 4h", "2026-05-05T01:00:00", "2026-05-05T01:00:00"),  # over midnight
        ("0 2 * * * for 1h; 0 4 * * * for 1h", "2026-05-05T03:30:00", "2026-05-05T04:00:00"),
    ],
)
def test_a_timetable_opens_at_the_times_of_its_zone(text, at, opens):
    now = datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp()
    found = parse_windows(text).opens(now)
    assert datetime.fromtimestamp(found, UTC).replace(tzinfo=None).isoformat() == opens


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("at night", "is not a window"),
        ("0 2 * * for 2h", "is not a cron expression"),
        ("0 2 * * * for 2 parsecs", "is not a window"),
        ("0 2 * * * for 2x", "is not a duration"),
        ("0 2 * * * for 0s", "is not a valid length of a window"),
        ("0 2 * * * for 2h in Europe/Atlantis", "is not a time zone"),
        ("0 2 * * * for 2h in ../../etc/passwd", "is not a time zone"),
        ("0 2 * * * for 2h in " + "x" * 300, "is not a time zone"),
    ],
)
def test_a_window_that_cannot_be_read_is_named_and_never_opens(text, told):
    world = cluster_of(World(options()), "web", **{"steersman.dev/windows": text})
    change(world)
    plan = world.evaluate("Deployment", "web").plan
    assert (plan.gate, plan.due) == ("schedule", None)
    (problem,) = plan.problems
    assert problem.startswith("steersman.dev/windows: ")
    assert told in problem


@given(st.integers(0, 59), st.integers(0, 23), st.integers(1, 3000), st.integers(0, 2**31))
def test_a_window_is_open_exactly_while_it_lasts(minute, hour, minutes, now):
    opening = make_window(f"{minute} {hour} * * *", f"{minutes}m")
    opens = opening.next(now)
    assert opens >= now
    began = [day * 86400 + hour * 3600 + minute * 60 for day in range(now // 86400 - 3, now // 86400 + 2)]
    is_open = any(start <= now < start + minutes * 60 for start in began)
    assert (opens == now) is is_open
    assert is_open or opens in began


def test_outside_of_its_windows_a_change_waits_and_says_until_when():
    opening = MaintenanceWindow(cron="0 2 * * *", duration=timedelta(hours=1))
    world = cluster_of(World(options(maintenance_windows=parse_windows(str(opening)))), "web")
    change(world)
    plan = world.evaluate("Deployment", "web").plan
    assert plan.gate == "schedule"
    assert datetime.fromtimestamp(plan.due, UTC).hour == 2
    assert world.run() == {"deployment/web": "wait"}
    assert world.run(after=plan.due - world.now) == {"deployment/web": "restart"}


def test_windows_that_are_empty_say_nothing_and_those_further_out_count():
    world = cluster_of(
        World(options(maintenance_windows=parse_windows("0 2 * * * for 1h"))), "web", **{"steersman.dev/windows": ""}
    )
    change(world)
    assert gate(world, "web") == "schedule"


def test_an_urgent_source_waits_for_no_window():
    world = cluster_of(World(options(maintenance_windows=parse_windows("0 2 * * * for 1h"))), "web")
    world.put(configmap("app", mode="b", annotations={"steersman.dev/urgent": "true"}))
    assert world.run() == {"deployment/web": "restart"}


def test_a_freeze_of_the_source_counts_also_where_one_of_the_workload_has_expired():
    past = {"steersman.dev/freeze": "until=2023-11-14T22:00:00Z"}  # before the start
    world = cluster_of(World(options()), "web", **past)
    world.put(configmap("app", mode="b", annotations={"steersman.dev/freeze": "true"}))
    assert gate(world, "web") == "freeze"


@pytest.mark.parametrize("where", ["workload", "source", "namespace"])
def test_a_freeze_holds_until_it_expires(where):
    until = {"steersman.dev/freeze": "until=2023-11-14T23:13:20Z"}  # an hour after the start
    world = World(options())
    world.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    cluster_of(world, "web")
    if where == "source":
        world.put(configmap("app", mode="b", annotations=until))
    else:
        change(world)
    if where == "workload":
        world.edit("Deployment", "web", {"metadata": {"annotations": until}})
    if where == "namespace":
        world.edit("Namespace", "shop", {"metadata": {"annotations": until}}, namespace="")
    plan = world.evaluate("Deployment", "web").plan
    assert (plan.gate, plan.due) == ("freeze", START + 3600)
    assert world.run(after=3599) == {"deployment/web": "wait"}
    assert world.run(after=2) == {"deployment/web": "restart"}


# ------------------------------------------------------------------------------------------------------ waves and order
def test_the_next_wave_starts_when_the_previous_one_is_available():
    world = cluster_of(World(options()), "db", "api", "web", waves=(0, 1, 2))
    change(world)
    assert world.run() == {"deployment/db": "restart", "deployment/api": "wait", "deployment/web": "wait"}
    assert (gate(world, "api"), gate(world, "web")) == ("wave", "wave")
    assert world.run(after=60)["deployment/api"] == "wait"
    world.roll("db")
    assert world.run() == {"deployment/api": "restart", "deployment/web": "wait"}
    world.roll("api")
    assert world.run() == {"deployment/web": "restart"}


def test_waves_are_kept_in_whatever_order_workloads_are_evaluated():
    world = cluster_of(World(options()), "a-last", "z-first", waves=(5, 1))
    change(world)
    assert world.step("Deployment", "a-last").plan.gate == "wave"
    assert world.step("Deployment", "z-first").plan.action == "restart"


def test_a_new_leader_finds_the_wave_that_is_under_way():
    world = cluster_of(World(options()), "db", "web", waves=(0, 1))
    change(world)
    world.run()
    world.crash()
    assert world.run() == {"deployment/web": "wait"}
    world.roll("db")
    assert world.run() == {"deployment/web": "restart"}


def test_after_a_crash_a_higher_wave_waits_until_the_lower_ones_have_been_evaluated():
    world = cluster_of(World(options()), "a-last", "z-first", waves=(5, 1))
    change(world)
    world.crash()
    assert world.step("Deployment", "a-last").plan.gate == "wave"


def test_waves_hold_across_kinds():
    world = World(options())
    world.put(configmap("app", mode="a"))
    marks = {"steersman.dev/reload": "auto"}
    world.put(workload("db", kind="StatefulSet", uses=[env("app", "mode")], annotations=marks))
    world.put(workload("web", uses=[env("app", "mode")], annotations={**marks, "steersman.dev/wave": "1"}))
    world.run()
    change(world)
    assert world.run() == {"statefulset/db": "restart", "deployment/web": "wait"}
    status = {"observedGeneration": 1, "currentRevision": "x", "updateRevision": "x", "readyReplicas": 1}
    world.edit("StatefulSet", "db", {"status": status})
    assert world.run() == {"deployment/web": "restart"}


def test_a_lower_wave_that_cannot_go_holds_back_only_those_of_the_same_change():
    world = cluster_of(World(options()), "db", "web", waves=(0, 1))
    world.put(configmap("own", mode="a"))
    marks = {"steersman.dev/reload": "auto", "steersman.dev/wave": "1"}
    world.put(workload("free", uses=[env("own", "mode")], annotations=marks))
    world.run()
    world.edit("Deployment", "db", {"metadata": {"annotations": {"steersman.dev/freeze": "true"}}})
    change(world)
    world.put(configmap("own", mode="b"))
    assert world.run() == {"deployment/db": "wait", "deployment/web": "wait", "deployment/free": "restart"}


def test_a_dependency_goes_first_whatever_it_changes_for():
    world = cluster_of(World(options()), "db")
    world.put(configmap("own", mode="a"))
    marks = {"steersman.dev/reload": "auto", "steersman.dev/depends-on": "deployment/db"}
    world.put(workload("app", uses=[env("own", "mode")], annotations=marks))
    world.run()
    change(world)
    world.put(configmap("own", mode="b"))
    assert world.step("Deployment", "app").plan.gate == "depends-on"
    assert world.run() == {"deployment/app": "wait", "deployment/db": "restart"}
    assert world.run(after=30) == {"deployment/app": "wait"}
    world.roll("db")
    assert world.run() == {"deployment/app": "restart"}


def test_dependencies_in_a_circle_are_reported_and_left_out():
    world = cluster_of(World(options()), "a", "b")
    for name, other in (("a", "b"), ("b", "a")):
        mark = {"steersman.dev/depends-on": f"deployment/{other}"}
        world.edit("Deployment", name, {"metadata": {"annotations": mark}})
    world.run()
    change(world)
    assert "depends on" in " ".join(world.evaluate("Deployment", "a").plan.problems)
    assert world.run() == {"deployment/a": "restart", "deployment/b": "restart"}


def test_a_workload_that_depends_on_itself_says_so_and_goes():
    world = cluster_of(World(options()), "a", **{"steersman.dev/depends-on": "deployment/a"})
    change(world)
    assert world.evaluate("Deployment", "a").plan.problems == (
        "steersman.dev/depends-on: the workload depends on itself; dependency ignored",
    )
    assert world.run() == {"deployment/a": "restart"}


# ---------------------------------------------------------------------------------------------------------- concurrency
@pytest.mark.parametrize("limits", [{"max_concurrent": 2}, {"max_concurrent_per_namespace": 2}])
def test_no_more_rollouts_are_under_way_than_allowed(limits):
    world = cluster_of(World(options(**limits)), *"abcde")
    change(world)
    for _ in range(5):
        world.run(after=1)
        under_way = [me.name for me, _ in world.coordinator.rollouts.open()]
        assert len(under_way) <= 2
        for name in under_way:
            world.roll(name)
    assert sum(world.restarts.values()) == 5


def test_the_limit_of_a_namespace_leaves_others_alone():
    world = cluster_of(World(options(max_concurrent_per_namespace=1)), "a", "b")
    world.put(configmap("app", mode="a", namespace="lab"))
    world.put(workload("c", uses=[env("app", "mode")], namespace="lab"))
    world.run()
    change(world)
    world.put(configmap("app", mode="b", namespace="lab"))
    world.run()
    assert world.restarts == {"deployment/a": 1, "deployment/c": 1}


def test_a_new_leader_counts_the_rollouts_of_the_old_one():
    world = cluster_of(World(options(max_concurrent=1)), "a", "b")
    change(world)
    world.run()
    world.crash()
    assert world.run() == {"deployment/b": "wait"}
    assert gate(world, "b") == "concurrency"


# ------------------------------------------------------------------------------------------------------------- failures
def test_a_failed_rollout_halts_the_others_of_the_same_change_until_it_recovers():
    world = cluster_of(World(options(max_concurrent=1)), "a", "b")
    change(world)
    world.run()
    world.roll("a", available=False)
    assert world.run() == {"deployment/b": "wait"}
    assert gate(world, "b") == "halt"
    assert "its progress deadline passed" in world.evaluate("Deployment", "b").plan.reason
    world.roll("a")
    assert world.run() == {"deployment/b": "restart"}


def test_the_fix_of_a_failed_change_is_another_change():
    world = cluster_of(World(options(max_concurrent=1)), "a", "b")
    change(world)
    world.run()
    world.roll("a", available=False)
    change(world, "c")
    assert world.run()["deployment/a"] == "restart"


def test_after_a_crash_a_failure_still_halts():
    world = cluster_of(World(options(max_concurrent=1)), "a", "b")
    change(world)
    world.run()
    world.roll("a", available=False)
    world.crash()
    world.run()
    assert gate(world, "b") == "halt"


def test_with_continue_a_failure_stops_nothing_else():
    world = cluster_of(World(options(max_concurrent=1, on_failure=OnFailure.CONTINUE)), "a", "b")
    change(world)
    world.run()
    world.roll("a", available=False)
    assert world.run() == {"deployment/b": "restart"}


def test_a_rollout_that_is_not_available_in_time_has_failed():
    world = cluster_of(World(options(max_concurrent=1, deadline=timedelta(minutes=3))), "a", "b")
    change(world)
    world.run()
    assert gate(world, "b") == "concurrency"
    world.now += 181
    assert gate(world, "b") == "halt"
    assert "not available after 180 s" in world.evaluate("Deployment", "b").plan.reason


def test_a_rollout_that_was_available_stays_so_whatever_becomes_of_its_pods():
    world = cluster_of(World(options(max_concurrent=1)), "a", "b")
    change(world)
    world.run()
    world.roll("a")
    world.edit("Deployment", "a", {"status": {"availableReplicas": 0, "conditions": []}})
    assert world.run() == {"deployment/b": "restart"}


# ---------------------------------------------------------------------------------------------------------------- guard
@pytest.mark.parametrize(("guard", "holds"), [(Guard(workloads=2), True), (Guard(workloads=3), False)])
def test_a_change_that_affects_too_many_waits_for_approval(guard, holds):
    world = cluster_of(World(options(guard=guard)), "a", "b", "c")
    change(world)
    world.run()
    world.run()
    assert sum(world.restarts.values()) == (0 if holds else 3)


def test_workloads_that_are_gone_do_not_count_among_the_many():
    world = cluster_of(World(options(guard=Guard(workloads=2))), "a", "b", "c")
    change(world)
    world.run()
    world.delete("Deployment", "c")
    world.run()
    world.run()
    assert world.restarts == {"deployment/a": 1, "deployment/b": 1}


@pytest.mark.parametrize("where", ["source", "workload", "namespace"])
def test_an_approval_names_the_digest(where):
    world = World(options(guard=Guard(percent=50)))
    world.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    cluster_of(world, "a", "b", "c")
    change(world)
    world.run()
    plan = world.evaluate("Deployment", "b").plan
    assert plan.gate == "approval"
    digest = plan.reason.rpartition("steersman.dev/approve: ")[2]
    mark = {"metadata": {"annotations": {"steersman.dev/approve": digest}}}
    if where == "source":
        world.edit("ConfigMap", "app", mark)
    elif where == "namespace":
        world.edit("Namespace", "shop", mark, namespace="")
    else:
        world.edit("Deployment", "b", mark)
    world.run()
    world.run()
    expected = ["deployment/b"] if where == "workload" else [f"deployment/{name}" for name in "abc"]
    assert sorted(world.restarts) == expected
    world.run(after=60)
    assert sorted(world.restarts) == expected, "what is left is still the same change"


def test_an_approval_is_for_one_change_only():
    world = cluster_of(World(options(guard=Guard(workloads=1))), "a", "b")
    change(world)
    world.run()
    digest = world.evaluate("Deployment", "a").plan.reason.rpartition(" ")[2]
    world.edit(
        "ConfigMap", "app", {"metadata": {"annotations": {"steersman.dev/approve": digest}}, "data": {"mode": "c"}}
    )
    world.run()
    world.run()
    assert world.restarts == {}


def test_a_change_of_a_key_that_few_use_needs_no_approval():
    world = cluster_of(World(options(guard=Guard(workloads=2))), "a", "b", "c")
    world.put(configmap("app", mode="a", rare="x"))
    world.put(workload("d", uses=[env("app", "rare")]))
    world.run()
    world.put(configmap("app", mode="a", rare="y"))
    world.run()
    world.run()
    assert world.restarts == {"deployment/d": 1}


# -------------------------------------------------------------------------------------------------------------- history
def history(world, name="web"):
    found = read_state(world.get("Deployment", name)["metadata"]["annotations"][APPLIED]).applied
    return [(past.cause, past.outcome) for past in found.history]


def test_each_restart_is_remembered_with_its_cause_and_the_outcome_of_the_one_before():
    world = cluster_of(World(options()), "web")
    change(world)
    world.run()
    assert history(world) == [("configmap/app#mode", "")]
    world.roll("web", available=False)
    change(world, "c")
    world.run(after=5)
    world.roll("web")
    world.crash()
    change(world, "d")
    world.run(after=5)
    change(world, "e")
    world.run(after=5)
    assert history(world) == [
        ("configmap/app#mode", "failed: its progress deadline passed"),
        ("configmap/app#mode", "available"),
        ("configmap/app#mode", "replaced"),
        ("configmap/app#mode", ""),
    ]


# ------------------------------------------------------------------------------------------------------------- together
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("change"), st.integers(0, 3)),
        st.tuples(st.just("run"), st.sampled_from([0, 1, 7, 40, 700, 4000])),
        st.tuples(st.just("roll"), st.integers(0, 3)),
        st.tuples(st.just("fail"), st.integers(0, 3)),
        st.tuples(st.just("crash"), st.just(0)),
        st.tuples(st.just("freeze"), st.booleans()),
    ),
    max_size=25,
)


@settings(max_examples=25, deadline=None)
@given(STEPS)
def test_restarts_never_exceed_changes_and_no_change_is_lost(steps):
    """Over waves, limits, windows of the calendar, failures, freezes and crashes."""
    limits = {
        "max_concurrent": 2,
        "deadline": timedelta(minutes=5),
        "maintenance_windows": parse_windows("*/30 * * * * for 20m"),
    }
    world = cluster_of(World(ReloadOptions(budget=FREE, **limits)), *"abcd", waves=(0, 0, 1, 2))
    changes = 0

    def under_way():
        return [me.name for me, one in world.coordinator.rollouts.open() if one.phase(world.now) == "progressing"]

    for what, which in steps:
        if what == "change":
            changes += 1
            change(world, f"v{changes}")
        elif what == "run":
            world.run(after=which)
        elif what in ("roll", "fail"):
            world.roll("abcd"[which], available=what == "roll")
        elif what == "crash":
            world.crash()
        else:
            mark = {"steersman.dev/freeze": "true" if which else None}
            world.edit("ConfigMap", "app", {"metadata": {"annotations": mark}})
        assert len(under_way()) <= 2
        assert all(count <= changes for count in world.restarts.values())
    world.edit("ConfigMap", "app", {"metadata": {"annotations": {"steersman.dev/freeze": None}}})
    for _ in range(24):
        for name in "abcd":
            world.roll(name)
        world.run(after=660)  # no part of half an hour: some of them come while a window is open
    wanted = {world.evaluate("Deployment", name).plan.action.value for name in "abcd"}
    assert wanted == {"nothing"}, "everything runs the last configuration"
    assert all(count <= changes for count in world.restarts.values())


def test_every_gate_is_asked_somewhere_above():
    assert set(GATES) == {
        "missing", "action", "freeze", "approval", "budget",
        "schedule", "halt", "depends-on", "wave", "window", "concurrency", "hook",
    }  # fmt: skip


def test_a_time_of_the_day_that_comes_twice_when_clocks_are_set_back_is_meant_once():
    day = datetime(2026, 10, 25, tzinfo=UTC).timestamp()  # 3:00 becomes 2:00 at 1:00 UTC
    nightly = parse_windows("30 2 * * * for 30m in Europe/Berlin")
    hourly = parse_windows("0 * * * * for 10m in Europe/Berlin")
    minutes = range(180)
    opened = [minute for minute in minutes if nightly.opens(day + minute * 60) == day + minute * 60]
    assert opened == [*range(30, 60)]
    for minute in minutes:  # what it says of the future is what it says when that has come
        then = nightly.opens(day + minute * 60)
        assert nightly.opens(then) == then
    assert [minute for minute in minutes if hourly.opens(day + minute * 60) == day + minute * 60] == [
        *range(10),
        *range(60, 70),
        *range(120, 130),
    ]
