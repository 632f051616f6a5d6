"""Going from one profile to another, and to the operator without one: nothing is written that is not needed."""

from __future__ import annotations

import copy
import itertools

import msgspec
import pytest

from steersman.operators.reload.api.config import ReloadConfig
from steersman.operators.reload.compat.dialects import dialects_for
from steersman.operators.reload.compat.profiles import read_profile
from tests.support.reload.miniature import World, configmap, env_from, workload

LABELS = {"app": "web", "env": "test"}
ENROLLED = {
    "com.xing.deployment-restart": "enabled",
    "reloader.stakater.com/auto": "true",
    "wave.pusher.com/update-on-config-change": "true",
    "steersman.dev/reload": "auto",
}
CHECKSUMS = "com.xing.deployment-restart.applied-config-checksums"
WRITES_CHECKSUMS = {"xing", "none"}  # these speak XING's dialect
WAYS = ("none", "shipshape", "xing", "reloader", "wave")
PAIRS = list(itertools.permutations(WAYS, 2))


def spoken(name):
    """The options and dialects of a profile; of the operator itself for `none`."""
    if name == "none":
        scope = {"namespace": "shop", "selector": "app=web"}
        options = msgspec.convert({"selectors": [scope]}, ReloadConfig).options()
        return options, dialects_for(options)
    profile = read_profile(name, (), {"WATCH_NAMESPACE": "shop", "APP_SELECTOR": "app=web"})
    return profile.config.options(), profile.dialects


def at_rest(name):
    """A cluster in which everybody takes part and a change has been applied."""
    options, dialects = spoken(name)
    world = World(options, dialects=dialects)
    source = configmap("app", mode="a")
    source["metadata"]["labels"] = LABELS
    world.put(source)
    world.put(workload("web", uses=[env_from("app")], labels=LABELS, annotations=ENROLLED))
    settle(world)
    change(world, "b")
    assert world.restarts == {"deployment/web": 1}
    return world


def settle(world):
    for _ in range(3):
        world.run(after=40)


def change(world, mode):
    world.edit("ConfigMap", "app", {"data": {"mode": mode}})
    settle(world)
    world.roll("web")
    settle(world)


def handed_to(name, world):
    """Another process for the same cluster."""
    options, dialects = spoken(name)
    new = World(options, dialects=dialects)
    new.objects, new.revision, new.now = copy.deepcopy(world.objects), world.revision, world.now
    new.crash()
    settle(new)
    return new


def template(world):
    return world.get("Deployment", "web")["spec"]["template"]


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_another_profile_writes_only_the_marks_that_are_missing_and_once(before, after):
    world = at_rest(before)
    other = handed_to(after, world)
    assert other.restarts == {}
    assert template(other) == template(world)
    wanted = after in WRITES_CHECKSUMS and before not in WRITES_CHECKSUMS
    assert other.patches == int(wanted)
    for name in (before, after, before):
        other = handed_to(name, other)
        assert (other.patches, other.restarts) == (0, {})


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_marks_that_another_profile_left_behind_are_brought_up_to_date_without_a_restart(before, after):
    world = handed_to(after, at_rest(before))
    change(world, "c")
    assert world.restarts == {"deployment/web": 1}
    back = handed_to(before, world)
    assert back.restarts == {}
    assert template(back) == template(world)
    stale = before in WRITES_CHECKSUMS and after not in WRITES_CHECKSUMS
    assert back.patches == int(stale)
    change(back, "d")
    assert back.restarts == {"deployment/web": 1}


@pytest.mark.parametrize("name", sorted(WRITES_CHECKSUMS))
@pytest.mark.parametrize("text", [" {text}\n", '{{"configmap/shop/app" : "{sum}" }}'])
def test_checksums_that_say_the_same_in_another_format_are_left_alone(name, text):
    world = at_rest(name)
    said = world.get("Deployment", "web")["metadata"]["annotations"][CHECKSUMS]
    told = text.format(text=said, sum=msgspec.json.decode(said)["configmap/shop/app"])
    world.edit("Deployment", "web", {"metadata": {"annotations": {CHECKSUMS: told}}})
    other = handed_to(name, world)
    assert (other.patches, other.restarts) == (0, {})
