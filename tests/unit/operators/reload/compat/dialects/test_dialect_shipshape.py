"""The dialect of shipshape: its hashes on templates, taking over from it and going back to it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.kube.api.selectors import Selector
from steersman.operators.reload.api.config import LabelScope, ReloadOptions, RestartBudget, SourceKind, Window
from steersman.operators.reload.compat.dialects.hashes import ShipshapeHash
from steersman.operators.reload.compat.dialects.shipshape import RESTARTED_AT, Shipshape, hash_annotation
from tests.support.reload.miniature import World, configmap, env_from, workload

SCOPE = LabelScope(namespace="shop", selector=Selector.parse("app=web"))
AT_ONCE = ReloadOptions(
    window=Window(quiet=timedelta(0), limit=timedelta(0)), budget=RestartBudget(restarts=0), scopes=(SCOPE,)
)
LABELS = {"app": "web", "env": "test"}


def world(**options):
    return World(AT_ONCE, dialects=(Shipshape((SCOPE,), **options),))


def source(name="app", labels=LABELS, **data):
    return {**configmap(name, **data), "metadata": {"name": name, "namespace": "shop", "labels": labels}}


def target(template=None, **rest):
    made = workload("web", annotations={}, labels=LABELS, **rest)
    made["spec"]["template"]["metadata"] = {"annotations": template or {}}
    return made


def hash_of(**data):
    return ShipshapeHash()(SourceKind.CONFIGMAP, data, None)


def template(cluster):
    return cluster.get("Deployment", "web")["spec"]["template"]["metadata"]["annotations"]


def original_would_restart(cluster):
    """The check that the original makes at each start, for every ConfigMap of the environment."""
    marks = template(cluster)
    for (kind, _, name), held in cluster.objects.items():
        if kind != "ConfigMap" or held["metadata"].get("labels") != LABELS:
            continue
        recorded = marks.get(hash_annotation(name))
        if recorded is None:
            if RESTARTED_AT in marks:
                return True
        elif recorded != hash_of(**held["data"]):
            return True
    return False


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ({}, "seed"),
        ({RESTARTED_AT: "2026-01-01T00:00:00Z", hash_annotation("app"): hash_of(mode="a")}, "seed"),
        ({RESTARTED_AT: "2026-01-01T00:00:00Z", hash_annotation("app"): hash_of(mode="b")}, "restart"),
        ({RESTARTED_AT: "2026-01-01T00:00:00Z", hash_annotation("app"): "junk"}, "restart"),
        ({RESTARTED_AT: "2026-01-01T00:00:00Z", hash_annotation("other"): "x"}, "seed"),
        ({RESTARTED_AT: "2026-01-01T00:00:00Z"}, "restart"),  # left by a version that wrote no hashes
        ({hash_annotation("app"): hash_of(mode="a")}, "seed"),
    ],
)
def test_taking_over_restarts_only_what_is_out_of_date(marks, expected):
    cluster = world()
    cluster.put(source(mode="a"))
    cluster.put(target(marks))
    assert cluster.run() == {"deployment/web": expected}
    assert cluster.run(after=60) == {}
    if expected == "seed":
        assert template(cluster) == marks


def test_a_restart_writes_the_time_and_the_hashes_of_all_configmaps_of_the_environment():
    cluster = world()
    cluster.put(source(mode="a"))
    cluster.put(source("other", mode="x"))
    cluster.put(source("a" * 52, mode="x"))
    cluster.put(source("elsewhere", {"app": "web", "env": "prod"}, mode="x"))
    cluster.put(target())
    cluster.run()
    cluster.put(source(mode="b"))
    assert cluster.run() == {"deployment/web": "restart"}
    ours = {name: value for name, value in template(cluster).items() if name.startswith("shipshape.io/")}
    assert ours == {
        RESTARTED_AT: "2023-11-14T22:13:20Z",
        "shipshape.io/config-hash-app": hash_of(mode="b"),
        "shipshape.io/config-hash-other": hash_of(mode="x"),
        f"shipshape.io/config-hash-{'a' * 40}-6c1b3dc7a7": hash_of(mode="x"),
    }
    assert not original_would_restart(cluster)


def test_the_names_follow_the_key_that_was_chosen():
    cluster = world(key="example.org/at")
    cluster.put(source(mode="a"))
    cluster.put(target({"example.org/config-hash-app": hash_of(mode="b")}))
    assert cluster.run() == {"deployment/web": "restart"}
    assert template(cluster)["example.org/config-hash-app"] == hash_of(mode="a")
    assert template(cluster)["example.org/at"] == "2023-11-14T22:13:20Z"


def test_hashes_mean_nothing_where_the_labels_do_not_meet():
    cluster = world()
    cluster.put(source(labels={"app": "web", "env": "prod"}, mode="a"))
    made = target({hash_annotation("app"): "stale"}, uses=[env_from("app")])
    made["metadata"]["annotations"] = {"steersman.dev/reload": "auto"}
    cluster.put(made)
    assert cluster.run() == {"deployment/web": "seed"}
    cluster.put(source(labels={"app": "web", "env": "prod"}, mode="b"))
    assert cluster.run() == {"deployment/web": "restart"}
    assert RESTARTED_AT not in template(cluster)


def test_without_scopes_nothing_is_hashed_and_nothing_is_kept():
    assert (Shipshape().hashes, Shipshape().annotations) == ((), frozenset())


DATA = st.dictionaries(st.sampled_from("ab"), st.sampled_from(["1", "2", "é\b"]), max_size=2)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(["app", "more"]), DATA), max_size=6), st.booleans())
def test_after_any_history_the_original_would_restart_nothing_and_we_take_over_from_ourselves(steps, crashes):
    cluster = world()
    cluster.put(source(a="1"))
    cluster.put(source("more", a="1"))
    cluster.put(target())
    cluster.run()
    for name, data in steps:
        cluster.put(source(name, **data))
        cluster.run(after=1)
        assert not original_would_restart(cluster)
        if crashes:
            restarts = dict(cluster.restarts)
            cluster.edit("Deployment", "web", {"metadata": {"annotations": {"steersman.dev/applied": None}}})
            cluster.crash()
            cluster.run(after=1)
            assert cluster.restarts == restarts
