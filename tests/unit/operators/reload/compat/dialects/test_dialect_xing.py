"""The dialect of XING's controller: taking over from it, going back to it, and anything people may have written."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.operators.reload.api.config import ReloadOptions, RestartBudget, SourceKind, Window
from steersman.operators.reload.compat.dialects.hashes import XingHash
from steersman.operators.reload.compat.dialects.xing import CHECKSUMS, ENABLED, TIMESTAMP, Xing
from tests.support.reload.miniature import World, configmap, env, env_from, secret, volume, workload

AT_ONCE = ReloadOptions(window=Window(quiet=timedelta(0), limit=timedelta(0)), budget=RestartBudget(restarts=0))
ON = {ENABLED: "enabled"}


def world(options=AT_ONCE):
    return World(options, dialects=(Xing(),))


def sums(**sources):
    """Checksums as the original writes them: configmap data per name."""
    return {
        f"configmap/shop/{name}": XingHash()(SourceKind.CONFIGMAP, data, None).split()[0]
        for name, data in sources.items()
    }


def recorded(cluster, kind="Deployment"):
    return json.loads(cluster.get(kind, "web")["metadata"]["annotations"][CHECKSUMS])


def template(cluster, kind="Deployment"):
    return (cluster.get(kind, "web")["spec"]["template"].get("metadata") or {}).get("annotations") or {}


def put(cluster, *uses, checksums=None, kind="Deployment", enabled="enabled"):
    marks = {ENABLED: enabled} | ({} if checksums is None else {CHECKSUMS: checksums})
    cluster.put(workload("web", uses=uses, kind=kind, annotations=marks))


def original_would(cluster):
    """What the original does with the workload at its start: restart, write (its annotation only) or nothing."""
    found = cluster.get("Deployment", "web")
    text = found["metadata"]["annotations"].get(CHECKSUMS)
    known = json.loads(text) if text else {}
    pod = found["spec"]["template"]["spec"]
    linked = set()
    for container in pod.get("containers", ()):
        for one in container.get("envFrom", ()):
            linked |= {f"configmap/shop/{one['configMapRef']['name']}"} if "configMapRef" in one else set()
            linked |= {f"secret/shop/{one['secretRef']['name']}"} if "secretRef" in one else set()
    linked |= {f"configmap/shop/{one['configMap']['name']}" for one in pod.get("volumes", ()) if "configMap" in one}
    now = {}
    for name in linked:
        kind, _, source = name.split("/")
        held = cluster.objects.get(({"configmap": "ConfigMap", "secret": "Secret"}[kind], "shop", source))
        if held is not None:
            now[name] = XingHash()(SourceKind(kind), held.get("data"), None).split()[0]
    if any(name in known and known[name] != value for name, value in now.items()):
        return "restart"
    return "nothing" if known == now else "write"


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_what_the_original_applied_is_taken_over_without_a_restart_and_a_change_restarts_once(kind):
    cluster = world()
    cluster.put(configmap("app", mode="a"))
    put(cluster, env_from("app"), checksums=json.dumps(sums(app={"mode": "a"})), kind=kind)
    before = cluster.get(kind, "web")["metadata"]["annotations"][CHECKSUMS]
    cluster.run()
    assert (cluster.restarts, cluster.patches) == ({}, 1)
    assert cluster.get(kind, "web")["metadata"]["annotations"][CHECKSUMS] == before
    cluster.put(configmap("app", mode="b"))
    cluster.edit(kind, "web", {})
    cluster.run()
    cluster.run(after=60)
    assert (cluster.restarts, cluster.patches) == ({f"{kind.lower()}/web": 1}, 2)
    assert recorded(cluster, kind) == sums(app={"mode": "b"})
    assert template(cluster, kind)[TIMESTAMP] == "Nov 14 22:13:20"


def test_a_day_of_one_digit_is_padded_as_go_does():
    cluster = world()
    cluster.now = 1_709_647_389.0  # 2024-03-05 14:03:09
    cluster.put(configmap("app", mode="b"))
    put(cluster, env_from("app"), checksums=json.dumps(sums(app={"mode": "a"})))
    assert cluster.run() == {"deployment/web": "restart"}
    assert template(cluster)[TIMESTAMP] == "Mar  5 14:03:09"


@pytest.mark.parametrize("enabled", ["true", "Enabled", "enabled ", "", "disabled"])
def test_any_other_word_than_enabled_is_no(enabled):
    cluster = world()
    cluster.put(configmap("app", mode="b"))
    put(cluster, env_from("app"), checksums=json.dumps(sums(app={"mode": "a"})), enabled=enabled)
    assert cluster.run() == {}
    assert cluster.patches == 0


@pytest.mark.parametrize("spelling", [0, 1])
def test_both_spellings_of_an_empty_source_and_of_control_characters_are_known(spelling):
    cluster = world()
    data = {"k": "\b<\f"}
    odd = XingHash()(SourceKind.CONFIGMAP, data, None).split()[spelling]
    empty = XingHash()(SourceKind.CONFIGMAP, None, None).split()[spelling]
    cluster.put(configmap("odd", **data))
    cluster.put(configmap("empty"))
    written = json.dumps({"configmap/shop/odd": odd, "configmap/shop/empty": empty})
    put(cluster, env_from("odd"), env_from("empty"), checksums=f"\n  {written}\n")
    cluster.run()
    assert cluster.restarts == {}
    assert recorded(cluster) == json.loads(written)  # and left as they were


@pytest.mark.parametrize(
    "junk",
    [
        "null",
        "[]",
        '"x"',
        "",
        "{",
        "x" * 200_000,
        "[" * 100_000,
        '{"configmap/shop/app": null}',
        '{"configmap/shop/app": 7}',
    ],
)
def test_junk_is_nothing_known_and_is_written_again(junk):
    cluster = world()
    cluster.put(configmap("app", mode="a"))
    put(cluster, env_from("app"), checksums=junk)
    assert cluster.run() == {"deployment/web": "seed"}
    assert recorded(cluster) == sums(app={"mode": "a"})
    assert cluster.run() == {}


@pytest.mark.parametrize("junk", ["null", "{", "[]"])
def test_junk_is_a_problem_that_names_the_annotation(junk):
    cluster = world()
    cluster.put(configmap("app", mode="a"))
    put(cluster, env_from("app"), checksums=junk)
    assert [text for text in cluster.step("Deployment", "web").plan.problems if text.startswith(CHECKSUMS)]


def test_references_that_the_original_never_saw_are_taken_in_silence_and_not_written():
    cluster = world()
    cluster.put(configmap("app", mode="a"))
    cluster.put(configmap("single", mode="a"))
    cluster.put(secret("files", k="v"))
    cluster.put(configmap("early", mode="a"))
    put(
        cluster,
        env_from("app"),
        {"initContainers": [{"name": "i", "envFrom": [{"configMapRef": {"name": "early"}}]}]},
        env("single", "mode"),
        volume("files", kind="secret"),
        checksums=json.dumps(sums(app={"mode": "a"})),
    )
    cluster.run()
    assert cluster.restarts == {}
    assert recorded(cluster) == sums(app={"mode": "a"})
    cluster.put(secret("files", k="w"))
    assert cluster.run() == {"deployment/web": "restart"}


def test_entries_of_sources_that_are_gone_or_not_used_are_dropped():
    cluster = world()
    cluster.put(configmap("app", mode="a"))
    cluster.put(configmap("other", mode="a"))
    stale = sums(app={"mode": "a"}, other={"mode": "x"}, gone={"mode": "x"})
    put(cluster, env_from("app"), env_from("gone", optional=True), checksums=json.dumps(stale))
    cluster.run()
    assert (cluster.restarts, recorded(cluster)) == ({}, sums(app={"mode": "a"}))


def test_a_change_that_waits_is_not_written_as_applied():
    cluster = world(ReloadOptions(window=Window(quiet=timedelta(seconds=60), limit=timedelta(seconds=60))))
    cluster.put(configmap("app", mode="a"))
    put(cluster, env_from("app"))
    cluster.run()
    cluster.put(configmap("app", mode="b"))
    assert cluster.run() == {"deployment/web": "wait"}
    assert original_would(cluster) == "restart"
    cluster.put(configmap("more", mode="x"))
    both = {"spec": {"template": {"spec": {"volumes": [{"name": "v", "configMap": {"name": "more"}}]}}}}
    cluster.edit("Deployment", "web", both)
    assert cluster.run() == {"deployment/web": "wait"}
    assert recorded(cluster) == sums(app={"mode": "a"}, more={"mode": "x"})
    assert cluster.run(after=61) == {"deployment/web": "restart"}
    assert original_would(cluster) == "nothing"


def test_a_key_that_no_workload_uses_updates_the_checksum_without_a_restart():
    cluster = world()
    cluster.put(configmap("app", mode="a", other="x"))
    part = {"volumes": [{"name": "v", "configMap": {"name": "app", "items": [{"key": "mode", "path": "mode"}]}}]}
    put(cluster, part)
    cluster.run()
    cluster.put(configmap("app", mode="a", other="y"))
    cluster.run()
    assert cluster.restarts == {}
    assert original_would(cluster) == "nothing"


def test_a_kind_that_the_original_does_not_watch_gets_no_marks():
    cluster = world()
    cluster.put(configmap("app", mode="a"))
    put(cluster, env_from("app"), kind="DaemonSet")
    cluster.run()
    cluster.put(configmap("app", mode="b"))
    assert cluster.run() == {"daemonset/web": "restart"}
    assert CHECKSUMS not in cluster.get("DaemonSet", "web")["metadata"]["annotations"]


DATA = st.dictionaries(st.sampled_from("ab"), st.sampled_from(["1", "2", "<\b"]), max_size=2)
STEP = st.tuples(st.sampled_from(["app", "more"]), DATA)


@settings(max_examples=40)
@given(st.lists(STEP, max_size=6), st.booleans())
def test_after_any_history_the_original_would_restart_nothing_and_we_take_over_from_ourselves(steps, crashes):
    cluster = world()
    for name in ("app", "more"):
        cluster.put(configmap(name, a="1"))
    put(cluster, env_from("app"), volume("more"))
    cluster.run()
    for name, data in steps:
        cluster.put(configmap(name, **data))
        cluster.run(after=1)
        assert original_would(cluster) == "nothing"
        if crashes:
            restarts = dict(cluster.restarts)
            cluster.edit("Deployment", "web", {"metadata": {"annotations": {"steersman.dev/applied": None}}})
            cluster.crash()
            cluster.run(after=1)
            assert cluster.restarts == restarts
