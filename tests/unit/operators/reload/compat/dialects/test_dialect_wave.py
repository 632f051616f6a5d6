"""The dialect of wave: one hash over everything, taking over from it and going back to it."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.operators.reload.api.config import ReloadOptions, RestartBudget, SourceKind, Window
from steersman.operators.reload.compat.dialects.wave import CONFIG_HASH, ENABLED, EXTRA, Wave
from tests.support.reload.miniature import World, configmap, env, env_from, secret, volume, workload

AT_ONCE = ReloadOptions(window=Window(quiet=timedelta(0), limit=timedelta(0)), budget=RestartBudget(restarts=0))
ON = {ENABLED: "true"}
VECTOR = "d4fa1e15ef57e736fe5342bb2af3b32002bab29be3bc75cda6655b02d5a3cbbb"


def world():
    return World(AT_ONCE, dialects=(Wave(),))


def original(configmaps=None, secrets=None):
    """The hash as the original computes it, from values in plain text."""
    text = json.dumps(
        {
            part: {
                name: {k: b64encode(v.encode()).decode() for k, v in data.items()}
                for name, data in (some or {}).items()
            }
            for part, some in (("configMaps", configmaps), ("secrets", secrets))
        },
        sort_keys=True,
        separators=(",", ":"),
    )
    return hashlib.sha256(text.encode()).hexdigest()


def target(*uses, recorded=None, annotations=ON, kind="Deployment"):
    made = workload("web", uses=uses, annotations=annotations, kind=kind)
    if recorded is not None:
        made["spec"]["template"]["metadata"] = {"annotations": {CONFIG_HASH: recorded}}
    return made


def hash_on(cluster):
    return (cluster.get("Deployment", "web")["spec"]["template"].get("metadata") or {"annotations": {}})[
        "annotations"
    ].get(CONFIG_HASH)


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [(VECTOR, "seed"), (original({"app": {"key": "old"}}), "restart"), ("junk", "restart"), (None, "seed")],
)
def test_taking_over_restarts_only_what_is_out_of_date(recorded, expected):
    cluster = world()
    cluster.put(configmap("app", key="value"))
    cluster.put(target(env_from("app"), recorded=recorded))
    assert cluster.run() == {"deployment/web": expected}
    assert cluster.run(after=60) == {}
    assert hash_on(cluster) == (VECTOR if expected == "restart" else recorded)


@pytest.mark.parametrize("word", ["True", "1", "yes", "", "true "])
def test_only_exactly_true_takes_part(word):
    cluster = world()
    cluster.put(configmap("app", key="value"))
    cluster.put(target(env_from("app"), recorded="stale", annotations={ENABLED: word}))
    assert cluster.run() == {}


def test_the_hash_is_over_used_keys_whole_volumes_and_extra_sources():
    cluster = world()
    cluster.put(configmap("app", mode="a", other="x"))
    cluster.put(configmap("files", one="1", two="2"))
    cluster.put(secret("db", password="p"))
    cluster.put(configmap("extra", k="v"))
    marks = ON | {"wave.pusher.com/extra-configmaps": "extra", "wave.pusher.com/extra-secrets": "shop/db"}
    cluster.put(target(env("app", "mode"), volume("files"), annotations=marks))
    cluster.run()
    cluster.put(secret("db", password="q"))
    assert cluster.run() == {"deployment/web": "restart"}
    used = {"app": {"mode": "a"}, "files": {"one": "1", "two": "2"}, "extra": {"k": "v"}}
    assert hash_on(cluster) == original(used, {"db": {"password": "q"}})


def test_names_that_are_none_are_problems_and_the_others_count():
    cluster = world()
    cluster.put(configmap("extra", k="v"))
    cluster.put(target(annotations=ON | {"wave.pusher.com/extra-configmaps": "a/b/c, extra,extra,,/x"}))
    look = cluster.step("Deployment", "web")
    assert len(look.plan.problems) == 2
    assert [edge.source.name for edge in look.edges.tracked] == ["extra"]


def test_a_missing_required_source_makes_a_restart_wait_and_an_optional_one_is_left_out():
    cluster = world()
    cluster.put(configmap("app", key="value"))
    cluster.put(target(env_from("app"), env_from("maybe", optional=True), recorded=VECTOR))
    cluster.run()
    assert cluster.restarts == {}
    cluster.delete("ConfigMap", "app")
    assert cluster.run() == {}


def test_a_release_that_hashed_text_as_it_is_is_known_too():
    cluster = world()
    cluster.put(configmap("app", key="value"))
    earlier = hashlib.sha256(b'{"configMaps":{"app":{"key":"value"}},"secrets":{}}').hexdigest()
    cluster.put(target(env_from("app"), recorded=earlier))
    assert cluster.run() == {"deployment/web": "seed"}


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(["app", "more"]), st.sampled_from("123")), max_size=6))
def test_after_any_history_the_original_would_restart_nothing_and_we_take_over_from_ourselves(steps):
    cluster = world()
    state = {"app": {"a": "1"}, "more": {"a": "1"}}
    for name, data in state.items():
        cluster.put(configmap(name, **data))
    cluster.put(target(env_from("app"), volume("more"), recorded=original(state)))
    cluster.run()
    for name, value in steps:
        state[name] = {"a": value}
        cluster.put(configmap(name, a=value))
        cluster.run(after=1)
        assert hash_on(cluster) == original(state)
        restarts = dict(cluster.restarts)
        cluster.edit("Deployment", "web", {"metadata": {"annotations": {"steersman.dev/applied": None}}})
        cluster.crash()
        cluster.run(after=1)
        assert cluster.restarts == restarts


def test_a_list_without_end_counts_as_far_as_the_limit_allows_and_its_hash_is_left_alone():
    cluster = world()
    cluster.put(configmap("app", key="value"))
    many = {EXTRA[SourceKind.SECRET]: ",".join(f"s{number}" for number in range(30_000))}
    cluster.put(target(env("app", "key"), recorded="junk", annotations=ON | many))
    look = cluster.evaluate("Deployment", "web")
    assert len(look.edges.tracked) == 101
    (told,) = look.plan.problems
    assert "it has 30000 entries, of which the first 100 count" in told
    assert look.plan.action == "seed"
    assert not Wave().over(look.workload)
