"""What the operator knows, as one value: for every kind of waiting, and for what has been."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from steersman.operators.reload.api.config import Guard, ReloadOptions, RestartBudget, SourceRef, Window, WorkloadId
from steersman.operators.reload.inspect.live_status import tables_of, view_of
from steersman.runtime.manager.operator_bundle import RowState
from steersman.runtime.manager.operator_report import report_of
from tests.support.reload.miniature import START, World, configmap, env, workload

NOW = Window(quiet=timedelta(0), limit=timedelta(0))


def world_with(*names, **options):
    world = World(ReloadOptions(**{"window": NOW, "budget": RestartBudget(restarts=0), **options}))
    world.put(configmap("app", mode="a"))
    for name in names:
        world.put(workload(name, uses=[env("app", "mode")]))
    world.run()
    return world


def change(world, value):
    world.put(configmap("app", mode=value))
    world.run()
    world.run()
    return view_of(world.coordinator, world.now)


def cells(view, title):
    return [tuple(row.cells) for table in tables_of(view) if table.title == title for row in table.rows]


def words(view):
    return [row.word for row in tables_of(view)[0].rows]


def me(name):
    return WorkloadId("Deployment", "shop", name)


def test_who_takes_part_is_there_with_its_edges():
    view = view_of(world_with("web").coordinator, START)
    (web,) = view.workloads
    (edge,) = web.edges
    assert (web.workload, edge.source.name, edge.keys) == (me("web"), "app", ("mode",))
    assert view.pending == view.rollouts == view.history == ()


def test_what_waits_says_for_what_until_when_and_why():
    view = change(world_with("web", window=Window()), "b")
    (pending,) = view.pending
    assert (pending.workload, pending.gate, pending.due, pending.since) == (me("web"), "window", START + 5, START)
    assert cells(view, "Workloads") == [
        ("deployment/shop/web", "configmap/app#mode", "", "2023-11-14T22:13:25Z", "window (5s quiet, at most 30s)")
    ]
    assert words(view) == ["Pending"]


def test_rollouts_under_way_and_failed_ones_are_there_with_who_halts():
    world = world_with("a", "b", "c", max_concurrent=2)
    view = change(world, "b")
    assert [(rollout.workload, rollout.outcome.phase, rollout.halts) for rollout in view.rollouts] == [
        (me("a"), "progressing", False),
        (me("b"), "progressing", False),
    ]
    world.roll("a", available=False)
    world.run()
    view = view_of(world.coordinator, world.now)
    assert [(rollout.outcome.phase, rollout.halts) for rollout in view.rollouts] == [
        ("failed", True),
        ("progressing", False),
    ]
    assert [(one.workload, one.gate) for one in view.pending] == [(me("c"), "halt")]
    assert words(view) == ["Failed", "Held back", "Rolling out"]
    report = report_of("reload", tables_of(view))
    assert report.headline == "0 of 3 workloads current, 1 failed, 1 held back, 1 rolling out"
    (problem,) = report.problems  # one failure, and who waits because of it
    assert problem.objects == ["deployment/shop/a", "deployment/shop/c"]
    assert problem.command == "kubectl rollout status deployment/a -n shop"


def test_an_open_circuit_says_when_it_closes():
    world = world_with("web", budget=RestartBudget(restarts=1))
    change(world, "b")
    view = change(world, "c")
    (circuit,) = view.circuits
    assert (circuit.budget, circuit.closes) == ("1 restarts in 1h", START + 3600)
    (problem,) = report_of("reload", tables_of(view)).problems
    assert (problem.word, problem.command) == ("Circuit open", "steersman why deployment/web -n shop")


def test_an_approval_names_source_digest_and_whom_it_concerns():
    view = change(world_with("a", "b", guard=Guard(workloads=1)), "b")
    (approval,) = view.approvals
    assert approval.source == SourceRef.parse("configmap/app", "shop")
    assert approval.workloads == (me("a"), me("b"))
    assert all(approval.digest in one.reason for one in view.pending)
    (problem,) = report_of("reload", tables_of(view)).problems  # one approval for two workloads
    assert problem.objects == ["deployment/shop/a", "deployment/shop/b"]
    assert problem.command == "steersman reload approve configmap/app -n shop"


def test_the_past_has_causes_and_outcomes_the_latest_first():
    world = world_with("web")
    change(world, "b")
    world.roll("web", available=False)
    world.now += 9
    view = change(world, "c")
    assert [(restart.sources, restart.outcome.phase) for restart in view.history] == [
        ("configmap/app#mode", "progressing"),
        ("configmap/app#mode", "failed"),
    ]
    rows = [row for table in tables_of(view) if table.title == "Last restarts" for row in table.rows]
    assert [row.state for row in rows] == [RowState.BUSY, RowState.BAD]


def test_a_view_can_be_sent_as_json_and_holds_no_value_of_a_source():
    text = msgspec.json.encode(change(world_with("web"), "a-very-secret-value"))
    assert b"a-very-secret-value" not in text
    assert b"configmap" in text
