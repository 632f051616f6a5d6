"""What stands above the controllers: windows of other programs, namespaces that are left out, and the end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from steersman.kube.selectors import Selector
from steersman.operators.reload.dialects.reloader import Reloader
from steersman.operators.reload.oversight import AT_ONCE, Oversight
from steersman.operators.reload.plan import Action
from steersman.operators.reload.telling import refusal_delay
from steersman.operators.reload.types import Budget, Options, Window
from steersman.testing.reloading import World, configmap, env, workload

AUTO = {"reloader.stakater.com/auto": "true"}
PAUSE = "deployment.reloader.stakater.com/pause-period"


def world(**options):
    made = World(Options(budget=Budget(restarts=0), **options), dialects=[Reloader()])
    made.put(configmap("app", mode="a"))
    return made


def changed(made):
    made.run()
    made.put(configmap("app", mode="b"))
    return made.run()


def test_the_first_change_restarts_at_once_and_the_next_waits_for_the_interval():
    made = world(window=Window(quiet=timedelta(0), limit=timedelta(0), interval=timedelta(seconds=60)))
    made.put(workload("web", uses=[env("app", "mode")]))
    assert changed(made) == {"deployment/web": "restart"}
    made.put(configmap("app", mode="c"))
    assert made.run(after=10) == {"deployment/web": "wait"}
    made.put(configmap("app", mode="d"))
    assert made.run(after=40) == {"deployment/web": "wait"}
    assert made.run(after=11) == {"deployment/web": "restart"}
    assert made.run(after=100) == {}
    assert made.restarts == {"deployment/web": 2}


def test_a_pause_period_of_reloader_holds_the_change_and_never_pauses_the_deployment():
    made = world(window=AT_ONCE)
    made.put(workload("web", uses=[env("app", "mode")], annotations={**AUTO, PAUSE: "5m"}))
    assert changed(made) == {"deployment/web": "wait"}
    made.put(configmap("app", mode="c"))
    assert made.run(after=200) == {"deployment/web": "wait"}
    made.crash()
    made.run()
    assert made.run(after=301) == {"deployment/web": "restart"}
    assert "paused" not in made.get("Deployment", "web")["spec"]
    assert made.restarts == {"deployment/web": 1}


def test_a_pause_period_that_cannot_be_read_is_told_and_does_not_stop_the_restart():
    made = world(window=AT_ONCE)
    made.put(workload("web", uses=[env("app", "mode")], annotations={**AUTO, PAUSE: "soon"}))
    assert changed(made) == {"deployment/web": "restart"}
    (problem,) = made.look("Deployment", "web").plan.problems
    assert problem == f'{PAUSE}: "soon" is not a duration (try 5m); it restarts without it'


@pytest.mark.parametrize(("strategy", "by_time"), [("restart", True), ("rollout", False), (None, False)])
def test_a_rollout_restarts_by_its_field_when_its_strategy_says_so(strategy, by_time):
    made = world(window=AT_ONCE)
    marks = AUTO if strategy is None else {**AUTO, "reloader.stakater.com/rollout-strategy": strategy}
    rollout = workload("web", uses=[env("app", "mode")], kind="Rollout", annotations=marks)
    made.put({**rollout, "apiVersion": "argoproj.io/v1alpha1"})
    assert changed(made) == {"rollout/web": "restart"}
    spec = made.get("Rollout", "web")["spec"]
    assert ("restartAt" in spec) == by_time
    assert ("metadata" in spec["template"]) != by_time


def test_nothing_takes_part_in_a_namespace_that_is_left_out():
    made = world(window=AT_ONCE, ignored_namespaces=frozenset({"shop"}))
    made.put(workload("web", uses=[env("app", "mode")], annotations=AUTO))
    assert changed(made) == {}
    assert made.look("Deployment", "web").edges.reason == "namespace shop is left out"


def test_only_namespaces_with_the_labels_take_part():
    made = world(window=AT_ONCE, namespace_selector=Selector.parse("team=a"))
    made.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"team": "b"}}})
    made.put(workload("web", uses=[env("app", "mode")], annotations=AUTO))
    assert changed(made) == {}
    made.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"team": "a"}}})
    made.run()
    made.put(configmap("app", mode="c"))
    assert made.run() == {"deployment/web": "restart"}


def test_one_who_pretends_plans_each_restart_once_and_writes_nothing():
    made = world(window=AT_ONCE)
    made.put(workload("web", uses=[env("app", "mode")]))
    keeper = made.keepers["Deployment"]
    oversight = Oversight(pretends=True)
    actions = []
    for mode in ("a", "b", "b", "c"):
        made.put(configmap("app", mode=mode))
        look = made.look("Deployment", "web")
        keeper.ledger.keep(look.workload.ref, oversight.pretended(look.plan))
        actions.append(look.plan.action)
    assert actions == [Action.SEED, Action.RESTART, Action.SEED, Action.RESTART]
    assert made.patches == 0
    assert oversight.held() is not None


def test_in_a_hurry_no_window_holds_anything_back():
    oversight, options = Oversight(), Options()
    assert oversight.hurried(options) is options
    oversight.hurry()
    assert oversight.hurried(options).window == AT_ONCE


def test_the_first_reason_not_to_write_is_told():
    oversight = Oversight()
    assert oversight.held() is None
    oversight.reasons += [lambda _: None, lambda where: "somebody else leads" if where == "shop" else None]
    assert (oversight.held("shop"), oversight.held()) == ("somebody else leads", None)


def test_workloads_that_come_and_go_leave_nothing_behind():
    oversight = Oversight()
    made = world(window=AT_ONCE)
    made.put(workload("web", uses=[env("app", "mode")]))
    oversight.looked(made.look("Deployment", "web"), written=False)
    assert not oversight._answered
    oversight.hurry()
    oversight.looked(made.look("Deployment", "web"), written=False)
    assert oversight._answered


@pytest.mark.parametrize(("refusals", "seconds"), [(0, 15), (1, 30), (9, 900), (5000, 900)])
def test_a_server_that_refuses_for_ever_is_asked_again_and_again_but_seldom(refusals, seconds):
    assert refusal_delay(refusals) == seconds
