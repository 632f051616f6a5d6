"""Where the originals lose, double or invent restarts, in the profile of each: ours do not."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from steersman.operators.reload.compat.profiles import read_profile
from steersman.operators.reload.controllers.reconciler import NO_WINDOW
from tests.support.reload.miniature import World, configmap, env, env_from, secret, workload

LABELS = {"app": "web", "env": "test"}
RELOADER = {"reloader.stakater.com/auto": "true"}
WAVE = {"wave.pusher.com/update-on-config-change": "true"}


def world_of(profile, argv=(), *, at_once=True, **environ):
    read = read_profile(profile, argv, environ)
    options = read.config.options()
    return World(replace(options, window=NO_WINDOW) if at_once else options, dialects=read.dialects)


def labelled(name, **data):
    made = configmap(name, **data)
    made["metadata"]["labels"] = LABELS
    return made


def shipshape(**environ):
    values = {"APP_SELECTOR": "app=web", "WATCH_NAMESPACE": "shop", **environ}
    made = world_of("shipshape", at_once=False, **values)
    made.put(labelled("app", mode="a"))
    made.put(labelled("more", mode="a"))
    made.put(workload("web", labels=LABELS, annotations={"x": "y"}))
    made.run()
    return made


def test_s3_the_first_change_ever_is_found_though_no_operator_ran():
    made = shipshape()
    made.put(labelled("app", mode="b"))
    made.crash()
    made.run()
    assert made.run(after=2) == {"deployment/web": "restart"}
    assert made.restarts == {"deployment/web": 1}


def test_s5_two_configmaps_that_change_together_are_one_rollout():
    made = shipshape()
    made.put(labelled("app", mode="b"))
    assert made.run() == {"deployment/web": "wait"}
    made.put(labelled("more", mode="b"))
    made.run(after=0.2)
    assert made.run(after=0.6) == {"deployment/web": "restart"}
    assert made.run(after=60) == {}
    assert made.restarts == {"deployment/web": 1}


def test_s9_what_waits_is_due_at_the_very_end_of_its_window():
    made = shipshape(DEBOUNCE_SECONDS="60")
    made.put(labelled("app", mode="b"))
    made.run()
    assert made.run(after=1) == {"deployment/web": "restart"}
    restarted = int(made.now)
    made.put(labelled("app", mode="c"))
    made.now += 10
    plan = made.evaluate("Deployment", "web").plan
    assert plan.due == restarted + 60


def test_a_change_that_is_overtaken_while_its_patch_fails_is_applied_once_and_as_the_last_one():
    made = world_of("reloader")
    made.put(configmap("app", mode="a"))
    made.put(workload("web", uses=[env_from("app")], annotations=RELOADER))
    made.run()
    made.put(configmap("app", mode="b"))
    made.evaluate("Deployment", "web")  # the plan is made, and its patch never arrives
    made.put(configmap("app", mode="c"))
    assert made.run() == {"deployment/web": "restart"}
    assert made.run() == {}
    (container,) = made.get("Deployment", "web")["spec"]["template"]["spec"]["containers"]
    (variable,) = [one for one in container["env"] if one["name"] == "STAKATER_APP_CONFIGMAP"]
    fresh = world_of("reloader")
    fresh.put(configmap("app", mode="0"))
    fresh.put(workload("web", uses=[env_from("app")], annotations=RELOADER))
    fresh.run()
    fresh.put(configmap("app", mode="c"))
    fresh.run()
    (other,) = fresh.get("Deployment", "web")["spec"]["template"]["spec"]["containers"]
    assert variable in other["env"]


@pytest.mark.parametrize("strategy", ["env-vars", "annotations"])
def test_a_patch_whose_answer_is_lost_is_not_made_again(strategy):
    made = world_of("reloader", (f"--reload-strategy={strategy}",))
    made.put(configmap("app", mode="a"))
    made.put(workload("web", uses=[env_from("app")], annotations=RELOADER))
    made.run()
    made.put(configmap("app", mode="b"))
    made.step("Deployment", "web", lose=True)
    made.crash()
    assert made.run(after=60) == {}
    assert made.restarts == {"deployment/web": 1}


@pytest.mark.parametrize("ignored", ["configmaps", "secrets"])
def test_a_source_that_appears_restarts_though_the_other_kind_is_ignored(ignored):
    made = world_of("reloader", (f"--resources-to-ignore={ignored}", "--reload-on-create=true"))
    kind, source = ("secret", secret) if ignored == "configmaps" else ("configMap", configmap)
    made.put(workload("web", uses=[env("app", "mode", kind=kind, optional=True)], annotations=RELOADER))
    made.run()
    made.put(source("app", mode="a"))
    assert made.run() == {"deployment/web": "restart"}


@pytest.mark.parametrize("strategy", ["env-vars", "annotations"])
def test_any_number_of_starts_restarts_nothing(strategy):
    made = world_of("reloader", (f"--reload-strategy={strategy}", "--sync-after-restart", "--reload-on-create=true"))
    for name in ("one", "two"):
        made.put(configmap(name, mode="a"))
    made.put(workload("web", uses=[env_from("one"), env_from("two")], annotations=RELOADER))
    made.put(workload("night", uses=[env_from("one")], annotations=RELOADER, kind="CronJob"))
    made.run()
    made.put(configmap("one", mode="b"))
    made.put(configmap("two", mode="b"))
    made.run()
    before = dict(made.restarts)
    for _ in range(5):
        made.crash()
        assert made.run(after=60) == {}
    assert made.restarts == before == {"deployment/web": 1, "cronjob/night": 1}


def test_one_workload_that_flaps_blocks_nothing_else():
    made = World(read_profile("wave", (), {}).config.options())
    made.options = replace(made.options, window=NO_WINDOW, budget=replace(made.options.budget, restarts=3))
    made.crash()
    for name in ("flapping", "quiet"):
        made.put(configmap(name, mode="a"))
        made.put(workload(name, uses=[env_from(name)]))
    made.run()
    for number in range(200):
        made.put(configmap("flapping", mode=str(number)))
        made.run(after=1)
    made.put(configmap("quiet", mode="b"))
    assert made.run()["deployment/quiet"] == "restart"
    assert made.restarts == {"deployment/flapping": 3, "deployment/quiet": 1}


def test_a_source_in_two_volumes_of_which_only_the_second_is_mounted_counts():
    made = world_of("reloader")
    made.put(configmap("app", mode="a"))
    pod = {
        "volumes": [{"name": name, "configMap": {"name": "app"}} for name in ("first", "second")],
        "containers": [{"name": "main", "volumeMounts": [{"name": "second", "mountPath": "/etc/app"}]}],
    }
    made.put(workload("web", uses=[pod], annotations=RELOADER))
    made.run()
    made.put(configmap("app", mode="b"))
    assert made.run() == {"deployment/web": "restart"}


def test_wave_s_workloads_restart_for_what_only_an_init_container_reads():
    made = world_of("wave")
    made.put(configmap("app", mode="a"))
    pod = {
        "initContainers": [{"name": "init", "envFrom": [{"configMapRef": {"name": "app"}}]}],
        "containers": [{"name": "main"}],
    }
    made.put(workload("web", uses=[pod], annotations=WAVE))
    made.run()
    made.put(configmap("app", mode="b"))
    assert made.run() == {"deployment/web": "restart"}


def test_enrolling_a_workload_in_wave_restarts_nothing():
    made = world_of("wave")
    made.put(configmap("app", mode="a"))
    made.put(workload("web", uses=[env_from("app")], annotations={"x": "y"}))
    made.run()
    made.edit("Deployment", "web", {"metadata": {"annotations": WAVE}})
    assert made.run() == {"deployment/web": "seed"}
    assert made.restarts == {}


def test_a_window_of_a_profile_is_that_of_its_original():
    windows = {name: read_profile(name, (), {}).config.options().window for name in ("shipshape", "xing")}
    assert windows["shipshape"].interval == timedelta(seconds=5)
    assert (windows["xing"].quiet, windows["xing"].limit) == (timedelta(seconds=5), timedelta(seconds=5))
