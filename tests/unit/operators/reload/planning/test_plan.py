"""What is done about a workload, and why: the rules of restarting, one by one and over random histories."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.kube.api.selectors import Selector
from steersman.operators.reload.api.annotations import APPLIED
from steersman.operators.reload.api.config import MOST_RESTARTS, LabelScope, ReloadOptions, RestartBudget, Window
from steersman.operators.reload.planning.plan import Action
from steersman.operators.reload.planning.state import read_state
from tests.support.reload.miniature import START, World, configmap, env, env_from, secret, volume, workload

NOW = Window(quiet=timedelta(0), limit=timedelta(0))
FREE = RestartBudget(restarts=0)
AT_ONCE = ReloadOptions(window=NOW, budget=FREE)


@pytest.fixture
def world():
    return World(AT_ONCE)


def seeded(world, *objects):
    for obj in objects:
        world.put(obj)
    world.run()
    assert world.restarts == {}
    return world


def stamps(world, kind="Deployment", name="web"):
    template = world.get(kind, name)["spec"]["template"]
    return (template.get("metadata") or {}).get("annotations") or {}


# ------------------------------------------------------------------------------------------------- seeding and restart
def test_at_first_observation_state_is_written_and_nothing_restarts(world):
    seeded(world, configmap("app", mode="a"), workload("web", uses=[env("app", "mode")]))
    assert world.patches == 1
    assert APPLIED in world.get("Deployment", "web")["metadata"]["annotations"]
    assert stamps(world) == {}
    assert world.run() == {}
    assert world.patches == 1


def test_a_changed_key_restarts_once_and_says_what_for(world):
    seeded(world, configmap("app", mode="a", other="x"), workload("web", uses=[env("app", "mode")]))
    world.put(configmap("app", mode="b", other="x"))
    assert world.run() == {"deployment/web": "restart"}
    assert stamps(world)["steersman.dev/restarted-for"] == "configmap/app#mode"
    assert stamps(world)["steersman.dev/restarted-at"] == "2023-11-14T22:13:20.000000Z"
    assert world.run(after=100) == {}


def test_a_key_that_no_workload_uses_restarts_nothing(world):
    seeded(world, configmap("app", mode="a", other="x"), workload("web", uses=[env("app", "mode")]))
    world.put(configmap("app", mode="a", other="y", more="z"))
    assert world.run() == {}
    assert world.patches == 1


def test_metadata_of_a_source_restarts_nothing(world):
    seeded(world, configmap("app", mode="a"), workload("web", uses=[env_from("app")]))
    world.edit("ConfigMap", "app", {"metadata": {"labels": {"x": "y"}, "annotations": {"z": "1"}}})
    assert world.run() == {}
    assert world.patches == 1


@pytest.mark.parametrize("change", [{"mode": "b"}, {"mode": "a", "new": "x"}, {}])
def test_changed_added_and_removed_keys_all_count_when_all_keys_are_used(world, change):
    seeded(world, configmap("app", mode="a"), workload("web", uses=[env_from("app")]))
    world.put(configmap("app", **change))
    assert world.run() == {"deployment/web": "restart"}


def test_sources_that_change_together_are_one_restart(world):
    uses = [env("app", "mode"), env_from("db", kind="secret")]
    seeded(world, configmap("app", mode="a"), secret("db", pw="x"), workload("web", uses=uses))
    world.put(configmap("app", mode="b"))
    world.put(secret("db", pw="y"))
    assert world.run() == {"deployment/web": "restart"}
    assert world.restarts == {"deployment/web": 1}
    assert stamps(world)["steersman.dev/restarted-for"] == "configmap/app#mode secret/db#pw"


def test_a_change_that_is_taken_back_in_time_restarts_nothing():
    world = seeded(World(), configmap("app", mode="a"), workload("web", uses=[env("app", "mode")]))
    world.put(configmap("app", mode="b"))
    assert world.run() == {"deployment/web": "wait"}
    world.put(configmap("app", mode="a"))
    assert world.run(after=60) == {}


def test_after_an_undone_rollout_the_old_value_is_a_change_again(world):
    seeded(world, configmap("app", mode="a"), workload("web", uses=[env("app", "mode")]))
    world.put(configmap("app", mode="b"))
    world.run()
    world.edit("Deployment", "web", {"spec": {"template": {"metadata": None}}})  # kubectl rollout undo
    world.put(configmap("app", mode="a"))
    assert world.run() == {"deployment/web": "restart"}


# --------------------------------------------------------------------------------------- sources that come, go, or lack
def test_deleting_a_source_restarts_nothing_and_recreating_it_the_same_neither(world):
    seeded(world, configmap("app", mode="a"), workload("web", uses=[env("app", "mode")]))
    world.delete("ConfigMap", "app")
    assert world.run() == {}
    world.put(configmap("app", mode="a"))
    assert world.run() == {}
    assert world.patches == 1


def test_a_source_that_is_recreated_with_other_data_restarts(world):
    seeded(world, configmap("app", mode="a"), workload("web", uses=[env("app", "mode")]))
    world.delete("ConfigMap", "app")
    world.run()
    world.crash()
    world.put(configmap("app", mode="b"))
    assert world.run() == {"deployment/web": "restart"}


def test_a_required_source_that_appears_is_what_the_pods_waited_for(world):
    seeded(world, workload("web", uses=[env("app", "mode")]))
    assert world.patches == 0
    world.put(configmap("app", mode="a"))
    assert world.run() == {"deployment/web": "seed"}


@pytest.mark.parametrize("crash", [False, True])
def test_an_optional_source_that_appears_restarts(world, crash):
    seeded(world, workload("web", uses=[env("app", "mode", optional=True)]))
    if crash:
        world.crash()
    world.put(configmap("app", mode="a"))
    assert world.run() == {"deployment/web": "restart"}


def test_an_optional_source_that_appears_before_the_first_reconcile_restarts(world):
    seeded(world, workload("other"))
    world.put(workload("web", uses=[env("app", "mode", optional=True)]))
    world.put(configmap("app", mode="a"))
    assert world.run()["deployment/web"] == "restart"


def test_no_restart_into_a_missing_key(world):
    seeded(
        world, configmap("app", mode="a", level="1"), workload("web", uses=[env("app", "mode"), env("app", "level")])
    )
    world.put(configmap("app", mode="b"))
    look = world.step("Deployment", "web")
    assert (look.plan.action, look.plan.gate, look.plan.due) == (Action.WAIT, "missing", None)
    assert look.plan.reason == "pods need configmap/app to start, but it has no key level"
    world.put(configmap("app", mode="b", level="1"))
    assert world.run() == {"deployment/web": "restart"}


def test_no_restart_while_another_required_source_is_gone(world):
    uses = [env("app", "mode"), env_from("db", kind="secret")]
    seeded(world, configmap("app", mode="a"), secret("db", pw="x"), workload("web", uses=uses))
    world.delete("Secret", "db")
    world.put(configmap("app", mode="b"))
    assert world.evaluate("Deployment", "web").plan.gate == "missing"
    world.put(secret("db", pw="x"))
    assert world.run() == {"deployment/web": "restart"}
    assert stamps(world)["steersman.dev/restarted-for"] == "configmap/app#mode"


# ---------------------------------------------------------------------------------------------- edges that come and go
def test_using_another_key_is_not_a_change_of_it(world):
    seeded(world, configmap("app", mode="a", level="1"), workload("web", uses=[env("app", "mode")]))
    world.put(workload("web", uses=[env("app", "mode"), env("app", "level")]))
    assert world.run() == {"deployment/web": "seed"}
    world.put(workload("web", uses=[env_from("app")]))
    assert world.run() == {"deployment/web": "seed"}


def test_a_key_that_changes_while_the_used_keys_do_still_counts(world):
    seeded(world, configmap("app", mode="a", level="1"), workload("web", uses=[env("app", "mode")]))
    world.put(workload("web", uses=[env("app", "mode"), env("app", "level")]))
    world.put(configmap("app", mode="b", level="1"))
    assert world.run() == {"deployment/web": "restart"}


def test_a_source_that_is_no_longer_used_is_forgotten_and_starts_afresh_when_used_again(world):
    seeded(
        world,
        configmap("app", mode="a"),
        secret("db", pw="x"),
        workload("web", uses=[env("app", "mode"), volume("db", kind="secret")]),
    )
    world.put(workload("web", uses=[volume("db", kind="secret")]))
    assert world.run() == {"deployment/web": "seed"}
    world.put(configmap("app", mode="b"))
    world.put(workload("web", uses=[env("app", "mode"), volume("db", kind="secret")]))
    assert world.run() == {"deployment/web": "seed"}
    assert world.restarts == {}


def test_who_no_longer_takes_part_is_cleaned_up_and_starts_afresh_when_it_does_again(world):
    seeded(world, configmap("app", mode="a"), workload("web", uses=[env("app", "mode")]))
    world.put(workload("web", uses=[env("app", "mode")], annotations={"steersman.dev/reload": "off"}))
    assert world.run() == {"deployment/web": "forget"}
    assert APPLIED not in world.get("Deployment", "web")["metadata"]["annotations"]
    world.put(configmap("app", mode="b"))
    assert world.run() == {}
    world.put(workload("web", uses=[env("app", "mode")]))
    assert world.run() == {"deployment/web": "seed"}


def test_an_ignored_key_restarts_nothing_and_neither_does_ignoring_it(world):
    uses = [env_from("app")]
    seeded(world, configmap("app", mode="a", debug="0"), workload("web", uses=uses))
    marks = {"steersman.dev/reload": "auto", "steersman.dev/reload-ignore": "configmap/app#debug"}
    world.put(workload("web", uses=uses, annotations=marks))
    assert world.run() == {"deployment/web": "seed"}
    world.put(configmap("app", mode="a", debug="1"))
    assert world.run() == {}
    world.put(configmap("app", mode="b", debug="1"))
    assert world.run() == {"deployment/web": "restart"}
    world.put(workload("web", uses=uses))
    assert world.run() == {"deployment/web": "seed"}


def test_a_new_source_in_a_scope_is_seeded_and_a_label_alone_is_not_a_change(world):
    scope = ReloadOptions(window=NOW, scopes=(LabelScope(selector=Selector.parse("app=web")),))
    world = seeded(World(scope), workload("web", annotations={}, labels={"app": "web", "env": "test"}))
    world.put(configmap("app", mode="a"))
    assert world.run() == {}
    world.edit("ConfigMap", "app", {"metadata": {"labels": {"app": "web", "env": "test"}}})
    assert world.run() == {"deployment/web": "seed"}
    world.edit("ConfigMap", "app", {"data": {"mode": "b"}})
    assert world.run() == {"deployment/web": "restart"}


# -------------------------------------------------------------------------------------------------- the seeding race
def test_a_source_that_changes_between_a_new_workload_and_the_first_reconcile_restarts_it(world):
    seeded(world, configmap("app", mode="a"))
    world.put(workload("web", uses=[env("app", "mode")]))
    world.put(configmap("app", mode="b"))
    assert world.run() == {"deployment/web": "restart"}


def test_a_source_that_changes_just_before_a_new_workload_does_not(world):
    seeded(world, configmap("app", mode="a"))
    world.put(configmap("app", mode="b"))
    world.put(workload("web", uses=[env("app", "mode")]))
    assert world.run() == {"deployment/web": "seed"}


def test_a_change_that_is_delivered_after_a_workload_that_was_created_after_it_restarts_nothing(world):
    """Sources and workloads are two watches, and one of them may lag behind."""
    seeded(world, configmap("app", mode="a"), workload("other"))
    late = world.get("ConfigMap", "app")
    world.put(configmap("app", mode="b"))
    newest = world.objects["ConfigMap", "shop", "app"]
    world.objects["ConfigMap", "shop", "app"] = late  # not delivered yet
    world.put(workload("web", uses=[env("app", "mode")]))
    assert world.run() == {"deployment/web": "seed"}
    world.objects["ConfigMap", "shop", "app"] = newest
    assert world.run() == {"deployment/web": "seed"}
    world.put(configmap("app", mode="c"))
    assert world.run() == {"deployment/web": "restart"}


def test_a_key_that_no_workload_uses_does_not_win_the_race_either(world):
    seeded(world, configmap("app", mode="a"))
    world.put(workload("web", uses=[env("app", "mode")]))
    world.put(configmap("app", mode="a"))
    assert world.run() == {"deployment/web": "seed"}


def test_a_lost_race_is_written_down_so_that_a_crash_in_the_window_loses_nothing():
    world = seeded(World(), configmap("app", mode="a"))
    world.put(workload("web", uses=[env("app", "mode")]))
    world.put(configmap("app", mode="b"))
    assert world.run() == {"deployment/web": "wait"}
    world.crash()
    assert world.run() == {"deployment/web": "wait"}
    assert world.run(after=30) == {"deployment/web": "restart"}


def test_a_new_cluster_full_of_workloads_is_adopted_without_one_restart(world):
    for number in range(20):
        world.put(workload(f"web-{number}", uses=[env_from(f"app-{number}", optional=bool(number % 2))]))
        world.put(configmap(f"app-{number}", mode="a"))
    world.crash()
    actions = world.run()
    assert set(actions.values()) == {"seed"}
    assert world.restarts == {}


# ------------------------------------------------------------------------------------------------------ wiped and junk
@pytest.mark.parametrize("junk", [None, "null", "[]", "{}", "j" * 200_000])
def test_a_wiped_annotation_is_restored_and_a_change_in_between_is_not_lost(world, junk):
    seeded(world, configmap("app", mode="a"), workload("web", uses=[env("app", "mode")]))
    world.edit("Deployment", "web", {"metadata": {"annotations": {APPLIED: junk}}})
    assert world.run() == {"deployment/web": "seed"}
    world.edit("Deployment", "web", {"metadata": {"annotations": {APPLIED: junk}}})
    world.put(configmap("app", mode="b"))
    assert world.run() == {"deployment/web": "restart"}


def wipe(world):
    world.edit("Deployment", "web", {"metadata": {"annotations": {APPLIED: None}}})
    return world.run(after=1)


def test_a_removal_after_each_restart_is_put_right_each_time(world):
    seeded(world, configmap("app", mode="0"), workload("web", uses=[env("app", "mode")]))
    for number in range(1, 20):
        world.put(configmap("app", mode=str(number)))
        assert world.run(after=1) == {"deployment/web": "restart"}
        assert wipe(world) == {"deployment/web": "seed"}


def test_who_keeps_removing_our_annotation_wins_for_an_hour(world):
    seeded(world, configmap("app", mode="0"), workload("web", uses=[env("app", "mode")]))
    assert [wipe(world) for _ in range(7)] == [{"deployment/web": "seed"}] * 5 + [{}] * 2
    plan = world.evaluate("Deployment", "web").plan
    assert plan.due == world.now - 1 + 3600
    assert world.run(after=3598) == {}
    assert world.run(after=1) == {"deployment/web": "seed"}


def test_removals_that_are_hours_apart_are_put_right_each_time(world):
    seeded(world, configmap("app", mode="0"), workload("web", uses=[env("app", "mode")]))
    for _ in range(20):
        world.now += 3600
        assert wipe(world) == {"deployment/web": "seed"}


def test_a_pending_change_survives_a_replacement_that_wipes_everything_we_wrote(world):
    marks = {"steersman.dev/reload": "auto", "steersman.dev/freeze": "true"}
    seeded(world, configmap("app", mode="a"), workload("web", uses=[env("app", "mode")], annotations=marks))
    world.put(configmap("app", mode="b"))
    assert world.run() == {"deployment/web": "wait"}
    world.edit("Deployment", "web", {"metadata": {"annotations": {APPLIED: None, "steersman.dev/freeze": None}}})
    assert world.run() == {"deployment/web": "restart"}


def test_junk_is_reported_with_its_field_and_seeded_over(world):
    world.put(configmap("app", mode="a"))
    marks = {"steersman.dev/reload": "auto", APPLIED: "[]"}
    world.put(workload("web", uses=[env("app", "mode")], annotations=marks))
    plan = world.step("Deployment", "web").plan
    assert plan.action is Action.SEED
    assert plan.problems == ("steersman.dev/applied: invalid state annotation; reset",)


def test_state_of_a_later_version_is_left_alone_and_reported(world):
    world.put(configmap("app", mode="a"))
    marks = {"steersman.dev/reload": "auto", APPLIED: '{"v":9}'}
    world.put(workload("web", uses=[env("app", "mode")], annotations=marks))
    plan = world.step("Deployment", "web").plan
    assert plan.action is Action.NOTHING
    assert "later version" in plan.problems[0]
    assert world.patches == 0


def test_a_workload_that_is_replaced_by_another_of_its_name_inherits_nothing(world):
    seeded(world, configmap("app", mode="a"), workload("web", uses=[env("app", "mode")]))
    world.delete("Deployment", "web")
    world.put(configmap("app", mode="b"))
    world.put(workload("web", uses=[env("app", "mode")]))
    assert world.run() == {"deployment/web": "seed"}


# ------------------------------------------------------------------------------------------------------------- gates
def test_a_change_waits_until_the_sources_are_quiet_but_never_longer_than_the_limit():
    world = seeded(World(ReloadOptions(budget=FREE)), configmap("app", n="0"), workload("web", uses=[env("app", "n")]))
    for second in range(1, 40):
        world.put(configmap("app", n=str(second)))
        done = world.run(after=1)
        if done == {"deployment/web": "restart"}:
            break
        assert done == {"deployment/web": "wait"}
    assert second == 31  # the first look was at second 1
    world.put(configmap("app", n="last"))
    plan = world.step("Deployment", "web").plan
    assert plan.due == world.now + 5
    assert str(plan).startswith("wait until 2023-11-14T22:13:56Z: window (5s quiet, at most 30s)")
    assert world.run(after=4.9) == {"deployment/web": "wait"}
    assert world.run(after=0.1) == {"deployment/web": "restart"}


@pytest.mark.parametrize(("annotation", "wait"), [("0s", 0), ("1m", 60)])
def test_a_workload_can_have_a_window_of_its_own(annotation, wait):
    marks = {"steersman.dev/reload": "auto", "steersman.dev/quiet-period": annotation}
    web = workload("web", uses=[env("app", "mode")], annotations=marks)
    world = seeded(World(), configmap("app", mode="a"), web)
    world.put(configmap("app", mode="b"))
    plan = world.evaluate("Deployment", "web").plan
    assert (plan.due or world.now) - world.now == wait


def test_an_urgent_source_does_not_wait():
    world = seeded(World(), configmap("app", mode="a"), workload("web", uses=[env("app", "mode")]))
    world.put(configmap("app", mode="b", annotations={"steersman.dev/urgent": "true"}))
    assert world.run() == {"deployment/web": "restart"}


@pytest.mark.parametrize("where", ["workload", "namespace", "source"])
def test_a_freeze_holds_until_it_expires(world, where):
    until = {"steersman.dev/freeze": "until=2023-11-14T23:00:00Z"}
    seeded(world, configmap("app", mode="a"), workload("web", uses=[env("app", "mode")]))
    if where == "namespace":
        world.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "annotations": until}})
    if where == "workload":
        marks = {"steersman.dev/reload": "auto", **until}
        world.put(workload("web", uses=[env("app", "mode")], annotations=marks))
    world.put(configmap("app", mode="b", annotations=until if where == "source" else None))
    plan = world.step("Deployment", "web").plan
    assert (plan.action, plan.gate) == (Action.WAIT, "freeze")
    assert world.run(after=plan.due - world.now - 1) == {"deployment/web": "wait"}
    assert world.run(after=1) == {"deployment/web": "restart"}


@pytest.mark.parametrize("text", ["until=tomorrow", "until=2030-13-01", "yes", "2030-01-01"])
@pytest.mark.parametrize("where", ["workload", "namespace", "source"])
def test_a_freeze_that_cannot_be_read_holds_until_it_is_right_and_is_reported(world, where, text):
    wrong = {"steersman.dev/freeze": text}
    marks = {"steersman.dev/reload": "auto", **(wrong if where == "workload" else {})}
    spaced = {"name": "shop", "annotations": wrong if where == "namespace" else {}}
    world.put({"apiVersion": "v1", "kind": "Namespace", "metadata": spaced})
    web = workload("web", uses=[env("app", "mode")], annotations=marks)
    seeded(world, configmap("app", mode="a", annotations=wrong if where == "source" else None), web)
    world.put(configmap("app", mode="b", annotations=wrong if where == "source" else None))
    plan = world.evaluate("Deployment", "web").plan
    assert (plan.gate, plan.due) == ("freeze", None)
    assert "invalid, so it has no end" in plan.reason
    assert "no restarts until it is corrected" in plan.problems[0]


def test_a_freeze_until_a_day_ends_where_the_day_begins(world):
    marks = {"steersman.dev/reload": "auto", "steersman.dev/freeze": "until=2023-11-20"}
    seeded(world, configmap("app", mode="a"), workload("web", uses=[env("app", "mode")], annotations=marks))
    world.put(configmap("app", mode="b"))
    assert world.evaluate("Deployment", "web").plan.due == datetime(2023, 11, 20, tzinfo=UTC).timestamp()


def test_a_freeze_without_an_end_waits_for_a_change(world):
    marks = {"steersman.dev/reload": "auto", "steersman.dev/freeze": "true"}
    seeded(world, configmap("app", mode="a"), workload("web", uses=[env("app", "mode")], annotations=marks))
    world.put(configmap("app", mode="b"))
    assert world.evaluate("Deployment", "web").plan.due is None
    world.put(workload("web", uses=[env("app", "mode")]))
    assert world.run() == {"deployment/web": "restart"}


@pytest.mark.parametrize("crash", [False, True])
def test_the_budget_opens_the_circuit_and_it_closes_by_itself(crash):
    world = seeded(World(ReloadOptions(window=NOW)), configmap("app", n="0"), workload("web", uses=[env("app", "n")]))
    for second in range(1, 6):
        world.put(configmap("app", n=str(second)))
        assert world.run(after=1) == {"deployment/web": "restart"}
    if crash:
        world.crash()
    world.put(configmap("app", n="6"))
    plan = world.step("Deployment", "web").plan
    assert (plan.gate, plan.reason) == ("budget", "budget used up (5 restarts in 1h)")
    assert plan.due == START + 1 + 3600
    assert plan.changes[0].keys == ("n",)
    world.put(configmap("app", n="7"))
    assert world.run(after=plan.due - world.now - 1) == {"deployment/web": "wait"}
    assert world.run(after=1) == {"deployment/web": "restart"}


@pytest.mark.parametrize("most", [1, 30, MOST_RESTARTS])
def test_a_budget_of_any_size_opens_the_circuit(most):
    budget = RestartBudget(restarts=most, per=timedelta(hours=1))
    made = World(ReloadOptions(window=NOW, budget=budget))
    world = seeded(made, configmap("app", n="0"), workload("web", uses=[env("app", "n")]))
    for number in range(most + 3):
        world.put(configmap("app", n=f"v{number}"))
        world.run(after=1)
    assert world.restarts == {"deployment/web": most}
    assert world.evaluate("Deployment", "web").plan.gate == "budget"


def test_a_new_edge_is_written_down_even_while_another_change_waits():
    world = seeded(
        World(), configmap("app", mode="a"), secret("db", pw="x"), workload("web", uses=[env("app", "mode")])
    )
    world.put(configmap("app", mode="b"))
    world.run()
    world.put(workload("web", uses=[env("app", "mode"), volume("db", kind="secret")]))
    assert world.run() == {"deployment/web": "wait"}
    world.crash()
    world.put(secret("db", pw="y"))
    world.run()
    assert world.run(after=60) == {"deployment/web": "restart"}
    assert stamps(world)["steersman.dev/restarted-for"] == "configmap/app#mode secret/db#pw"


# ------------------------------------------------------------------------------------------------------- large states
def test_a_workload_with_more_sources_than_its_state_can_name_still_restarts_for_each_of_them(world):
    uses = [env_from(f"{'very-' * 20}long-name-{n}") for n in range(200)]
    for n in range(200):
        world.put(configmap(f"{'very-' * 20}long-name-{n}", mode="a"))
    seeded(world, workload("web", uses=uses))
    assert read_state(world.get("Deployment", "web")["metadata"]["annotations"][APPLIED]).applied.total.count == 200
    world.crash()
    assert world.run() == {}
    world.put(configmap(f"{'very-' * 20}long-name-7", mode="b"))
    assert world.run() == {"deployment/web": "restart"}
    assert len(stamps(world)["steersman.dev/restarted-for"]) < 1100
    assert world.run() == {}


def crowd(number, mode="a"):
    """One of so many ConfigMaps that their state is summarised; all are in one scope."""
    made = configmap(f"{'very-' * 20}long-name-{number}", mode=mode)
    made["metadata"]["labels"] = {"app": "web", "env": "live"}
    return made


def crowded(uses=()):
    """A workload with 200 of them."""
    world = World(ReloadOptions(budget=FREE, scopes=() if uses else (LabelScope(selector=Selector.parse("app=web")),)))
    web = workload("web", uses=uses, labels={"app": "web", "env": "live"})
    seeded(world, *map(crowd, range(200)), web)
    assert read_state(world.get("Deployment", "web")["metadata"]["annotations"][APPLIED]).applied.total
    return world


@pytest.mark.parametrize("crash", [False, True])
def test_a_change_among_very_many_sources_is_not_lost_when_another_one_joins_them(crash):
    world = crowded()
    world.put(crowd(7, mode="b"))
    assert world.run() == {"deployment/web": "wait"}
    if crash:
        world.crash()
    world.put(crowd(999))
    world.run(after=1)
    world.run(after=60)
    assert world.run(after=60) == {}
    assert world.restarts == {"deployment/web": 1}


def test_a_source_that_joins_very_many_others_is_not_a_change():
    world = crowded()
    world.put(crowd(999))
    assert world.run(after=60) == {"deployment/web": "seed"}
    assert world.run(after=60) == {}
    assert world.restarts == {}


def test_deleting_one_of_very_many_optional_sources_restarts_nothing_and_a_crash_afterwards_at_most_once():
    world = crowded([env_from(f"{'very-' * 20}long-name-{n}", optional=True) for n in range(200)])
    world.delete("ConfigMap", f"{'very-' * 20}long-name-3")
    assert (world.run(after=60), world.run(after=60), world.restarts) == ({}, {}, {})
    for _ in range(3):
        world.crash()
        world.run(after=60)
        world.run(after=60)
    assert world.restarts == {"deployment/web": 1}  # nobody can tell any more whether another one changed as well


# ----------------------------------------------------------------------------------------------------- random histories
steps = st.one_of(
    st.tuples(st.just("set"), st.sampled_from("abc"), st.sampled_from("123")),
    st.tuples(st.just("delete"), st.sampled_from("abc"), st.just("")),
    st.tuples(st.just("look"), st.sampled_from(["", "lose"]), st.sampled_from("0159")),
    st.tuples(st.just("crash"), st.just(""), st.just("")),
)


@settings(max_examples=3 * settings().max_examples)
@given(st.lists(steps, max_size=40))
def test_restarts_never_exceed_changes_and_no_change_is_lost(history):
    world = World(ReloadOptions(budget=FREE))
    for name in "abc":
        world.put(configmap(name, v="1"))
    uses = [env_from("a"), env("b", "v"), env_from("c", optional=True)]
    world.put(workload("web", uses=uses))
    world.run()
    started = dict.fromkeys("abc", "1")  # what the running pods were started with
    changes = 0
    for step, what, value in history:
        if step == "set":
            old = world.objects.get(("ConfigMap", "shop", what))
            changes += old is None or old["data"]["v"] != value
            world.put(configmap(what, v=value))
        elif step == "delete" and ("ConfigMap", "shop", what) in world.objects:
            world.delete("ConfigMap", what)
        elif step == "crash":
            world.crash()
        elif step == "look":
            world.now += int(value)
            before = world.restarts.get("deployment/web", 0)
            world.step("Deployment", "web", lose=what == "lose")
            if world.restarts.get("deployment/web", 0) > before:
                now = _values(world)
                assert any(now[name] != started[name] for name in now), "a restart without a change"
                started |= now
    for name in "abc":
        if ("ConfigMap", "shop", name) not in world.objects:
            world.put(configmap(name, v="1"))
            changes += 1
    restarts = world.restarts.get("deployment/web", 0)
    world.run()
    world.run(after=60)
    world.run(after=60)
    if world.restarts.get("deployment/web", 0) > restarts:
        started |= _values(world)
    assert started == _values(world), "a change was lost"
    assert world.restarts.get("deployment/web", 0) <= changes
    assert world.run(after=60) == {}


def _values(world):
    return {name: obj["data"]["v"] for (kind, _, name), obj in world.objects.items() if kind == "ConfigMap"}
