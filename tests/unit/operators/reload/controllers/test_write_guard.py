"""Windows of other programs, ignored namespaces, shadow mode, the write guard, and the flush before the end."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from steersman.kube.api.errors import Forbidden
from steersman.kube.api.selectors import Selector
from steersman.operators.reload.api.config import ReloadOptions, RestartBudget, Window
from steersman.operators.reload.compat.dialects.reloader import Reloader
from steersman.operators.reload.controllers.reconciler import NO_WINDOW
from steersman.operators.reload.controllers.restart_guard import RestartGuard
from steersman.operators.reload.planning.plan import Action
from tests.support.reload.miniature import World, configmap, env, workload

AUTO = {"reloader.stakater.com/auto": "true"}
PAUSE = "deployment.reloader.stakater.com/pause-period"
PAUSED_AT = "deployment.reloader.stakater.com/paused-at"


def world(**options):
    made = World(ReloadOptions(budget=RestartBudget(restarts=0), **options), dialects=[Reloader()])
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


def test_a_pause_period_of_reloader_pauses_the_deployment_with_its_first_restart():
    made = world(window=NO_WINDOW)
    made.put(workload("web", uses=[env("app", "mode")], annotations={**AUTO, PAUSE: "5m"}))
    assert changed(made) == {"deployment/web": "restart"}
    live = made.get("Deployment", "web")
    assert live["spec"]["paused"] is True
    began = live["metadata"]["annotations"][PAUSED_AT]
    (dialect,) = made.reconcilers["Deployment"].dialects
    pause = dialect.pause(made.decoded(live))
    assert pause.annotation == PAUSED_AT
    assert pause.until == pytest.approx(made.now + 300, abs=1)
    made.put(configmap("app", mode="c"))
    assert made.run(after=200) == {"deployment/web": "restart"}
    assert made.get("Deployment", "web")["metadata"]["annotations"][PAUSED_AT] == began


@pytest.mark.parametrize(
    ("annotations", "paused", "over"),
    [
        ({PAUSED_AT: "2026-01-01T00:00:00Z"}, True, True),  # without a period
        ({PAUSED_AT: "yesterday", PAUSE: "5m"}, True, True),
        ({PAUSED_AT: "2026-01-01T00:00:00Z", PAUSE: "5m"}, False, None),
        ({PAUSE: "5m"}, True, None),
    ],
    ids=["no period", "no time", "resumed by a user", "paused by a user"],
)
def test_a_pause_is_over_when_its_length_is_unknown_and_one_of_a_user_is_left_alone(annotations, paused, over):
    made = world(window=NO_WINDOW)
    manifest = workload("web", uses=[env("app", "mode")], annotations={**AUTO, **annotations})
    manifest["spec"]["paused"] = paused
    made.put(manifest)
    (dialect,) = made.reconcilers["Deployment"].dialects
    pause = dialect.pause(made.decoded(made.get("Deployment", "web")))
    assert (None if pause is None else pause.until < 1.8e9) is over


def test_a_pause_period_that_cannot_be_read_is_reported_and_does_not_stop_the_restart():
    made = world(window=NO_WINDOW)
    made.put(workload("web", uses=[env("app", "mode")], annotations={**AUTO, PAUSE: "soon"}))
    assert changed(made) == {"deployment/web": "restart"}
    (problem,) = made.evaluate("Deployment", "web").plan.problems
    assert problem == f'{PAUSE}: "soon" is not a duration (try 5m); it restarts without it'


@pytest.mark.parametrize(("strategy", "by_time"), [("restart", True), ("rollout", False), (None, False)])
def test_a_rollout_restarts_by_its_field_when_its_strategy_says_so(strategy, by_time):
    made = world(window=NO_WINDOW)
    marks = AUTO if strategy is None else {**AUTO, "reloader.stakater.com/rollout-strategy": strategy}
    rollout = workload("web", uses=[env("app", "mode")], kind="Rollout", annotations=marks)
    made.put({**rollout, "apiVersion": "argoproj.io/v1alpha1"})
    assert changed(made) == {"rollout/web": "restart"}
    spec = made.get("Rollout", "web")["spec"]
    assert ("restartAt" in spec) == by_time
    assert ("metadata" in spec["template"]) != by_time


def test_nothing_takes_part_in_a_namespace_that_is_left_out():
    made = world(window=NO_WINDOW, ignored_namespaces=frozenset({"shop"}))
    made.put(workload("web", uses=[env("app", "mode")], annotations=AUTO))
    assert changed(made) == {}
    assert made.evaluate("Deployment", "web").edges.reason == "namespace shop is left out"


def test_only_namespaces_with_the_labels_take_part():
    made = world(window=NO_WINDOW, namespace_selector=Selector.parse("team=a"))
    made.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"team": "b"}}})
    made.put(workload("web", uses=[env("app", "mode")], annotations=AUTO))
    assert changed(made) == {}
    made.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"team": "a"}}})
    made.run()
    made.put(configmap("app", mode="c"))
    assert made.run() == {"deployment/web": "restart"}


def test_shadow_mode_plans_each_restart_once_and_writes_nothing():
    made = world(window=NO_WINDOW)
    made.put(workload("web", uses=[env("app", "mode")]))
    reconciler = made.reconcilers["Deployment"]
    guard = RestartGuard(shadow=True)
    actions = []
    for mode in ("a", "b", "b", "c"):
        made.put(configmap("app", mode=mode))
        look = made.evaluate("Deployment", "web")
        reconciler.tracker.keep(look.workload.ref, look.plan.remembered_in_shadow())
        actions.append(look.plan.action)
    assert actions == [Action.SEED, Action.RESTART, Action.SEED, Action.RESTART]
    assert made.patches == 0
    assert guard.blocked_by() is not None


def test_a_flush_skips_windows():
    made = world(window=Window(quiet=timedelta(hours=1), limit=timedelta(hours=1)))
    made.put(workload("web", uses=[env("app", "mode")]))
    assert changed(made) == {"deployment/web": "wait"}
    made.shared.pending.skip_windows()
    assert made.evaluate("Deployment", "web").policy.window == NO_WINDOW
    assert made.run() == {"deployment/web": "restart"}


def test_the_first_reason_not_to_write_is_reported():
    guard = RestartGuard()
    assert guard.blocked_by() is None
    guard.block_while(lambda _: None, after=asyncio.Event())
    guard.block_while(lambda where: "wave leads" if where == "shop" else None, after=asyncio.Event())
    assert (guard.blocked_by("shop"), guard.blocked_by()) == ("wave leads", None)


@pytest.mark.parametrize(("refusals", "seconds"), [(0, 15), (1, 30), (9, 900), (5000, 900)])
def test_a_server_that_rejects_for_ever_is_asked_again_and_again_but_seldom(refusals, seconds):
    made = world(window=NO_WINDOW)
    made.put(workload("web", uses=[env("app", "mode")]))
    look = made.evaluate("Deployment", "web")
    look = replace(look, plan=replace(look.plan, observed=replace(look.plan.observed, refusals=refusals)))
    ctx = SimpleNamespace(event=lambda *_, **__: None, log=SimpleNamespace(warning=lambda *_, **__: None))
    result = made.reconcilers["Deployment"]._report_rejected(ctx, look, Forbidden("no", code=403))
    assert result.after_seconds == seconds
