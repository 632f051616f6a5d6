"""Two other programs that wrote down different things about one source: the change that one of them saw is not lost."""

from __future__ import annotations

from datetime import timedelta

import pytest

from steersman.operators.reload.api.config import ReloadOptions, RestartBudget, SourceKind, SourceRef, Window
from steersman.operators.reload.compat.dialects.hashes import ReloaderHash
from steersman.operators.reload.compat.dialects.reloader import Reloader, variable_name
from steersman.operators.reload.compat.dialects.wave import CONFIG_HASH, ENABLED, Wave
from tests.support.reload.miniature import World, configmap, env_from, workload

AT_ONCE = ReloadOptions(window=Window(quiet=timedelta(0), limit=timedelta(0)), budget=RestartBudget(restarts=0))
APP = SourceRef(SourceKind.CONFIGMAP, "shop", "app")
MARKS = {ENABLED: "true", "reloader.stakater.com/auto": "true"}


def by_reloader(mode):
    """The hash that Reloader writes for this content."""
    return ReloaderHash()(APP.kind, {"mode": mode}, None)


def by_wave(mode):
    """The hash that wave writes for this content: what we would write after a restart for it."""
    world = World(AT_ONCE, dialects=(Wave(),))
    world.put(configmap("app", mode="other"))
    world.put(workload("web", uses=[env_from("app")], annotations={ENABLED: "true"}))
    world.run()
    world.put(configmap("app", mode=mode))
    world.run()
    return world.get("Deployment", "web")["spec"]["template"]["metadata"]["annotations"][CONFIG_HASH]


@pytest.mark.parametrize(
    ("reloader", "wave", "expected"),
    [("now", "now", "seed"), ("old", "now", "restart"), ("now", "old", "restart"), ("old", "old", "restart")],
)
def test_a_change_that_one_of_two_dialects_has_not_applied_restarts_the_workload(reloader, wave, expected):
    made = workload("web", uses=[env_from("app")], annotations=MARKS)
    template = made["spec"]["template"]
    template["metadata"] = {"annotations": {CONFIG_HASH: by_wave(wave)}}
    variable = {"name": variable_name(APP), "value": by_reloader(reloader)}
    template["spec"]["containers"][0].setdefault("env", []).append(variable)
    world = World(AT_ONCE, dialects=(Reloader(), Wave()))
    world.put(configmap("app", mode="now"))
    world.put(made)
    assert world.run() == {"deployment/web": expected}
