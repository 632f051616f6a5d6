"""Stale pods: older than the last change of a key they use, whether or not anything restarts them."""

from __future__ import annotations

import pytest

from steersman.kube.api.times import format_time
from steersman.operators.reload.api.config import ReloadConfig
from steersman.operators.reload.inspect.audit import stale_pods
from steersman.operators.reload.inspect.offline import OfflineInspection, changes_of
from tests.support.reload.miniature import START, World, configmap, env, env_from, workload


def source(name, times, **data):
    """A ConfigMap whose keys were written at these times, each by a manager of its own."""
    made = configmap(name, **data)
    made["metadata"]["creationTimestamp"] = format_time(START - 1000)
    made["metadata"]["managedFields"] = [
        {"manager": key, "time": format_time(at), "fieldsV1": {"f:data": {f"f:{key}": {}}}} for key, at in times.items()
    ]
    return made


def pod(started, *, owner=("ReplicaSet", "web-abc"), annotations=None, **status):
    meta = {
        "name": "web-abc-1",
        "namespace": "shop",
        "labels": {"pod-template-hash": "abc"},
        "annotations": annotations or {},
        "ownerReferences": [{"kind": owner[0], "name": owner[1], "controller": True}],
    }
    running = [{"state": {"running": {"startedAt": format_time(started)}}}]
    return {"metadata": meta, "status": {"phase": "Running", "containerStatuses": running, **status}}


def audit(pods, *manifests):
    inspection = OfflineInspection(ReloadConfig().options())
    for manifest in manifests:
        inspection.add(manifest)
    return stale_pods(inspection, pods, START + 1000)


APP = {"mode": START + 10, "level": START - 10}


@pytest.mark.parametrize(
    ("uses", "started", "keys"),
    [
        (env("app", "mode"), START, ("mode",)),
        (env("app", "mode"), START + 20, None),
        (env("app", "level"), START, None),
        (env_from("app"), START, ("mode",)),
        (env_from("app"), START - 20, ("level", "mode")),
    ],
)
def test_a_pod_is_stale_when_a_key_it_uses_changed_after_it_started(uses, started, keys):
    found = audit([pod(started)], source("app", APP, mode="a", level="b"), workload("web", uses=[uses]))
    assert [item.sources[0].keys for item in found] == ([] if keys is None else [keys])


def test_a_workload_that_is_not_restarted_is_reported_all_the_same():
    manifest = workload("web", uses=[env("app", "mode")], annotations={})
    (stale,) = audit([pod(START)], source("app", APP, mode="a"), manifest)
    assert (stale.enrolled, stale.workload.name, stale.sources[0].source) == (False, "web", "configmap/app")


@pytest.mark.parametrize("by", ["workload", "source"])
def test_a_key_that_does_not_count_makes_nothing_stale(by):
    marks = {"steersman.dev/reload": "auto"}
    app = source("app", APP, mode="a", level="b")
    if by == "workload":
        marks["steersman.dev/reload-ignore"] = "configmap/app#mode"
    else:
        app["metadata"]["annotations"] = {"steersman.dev/compare": "mode=ignore"}
    web = workload("web", uses=[env_from("app")], annotations=marks)
    assert audit([pod(START)], app, web) == []
    (found,) = audit([pod(START - 20)], app, web)
    assert found.sources[0].keys == ("level",)


def test_a_source_that_is_ignored_on_purpose_makes_nothing_stale():
    marks = {"steersman.dev/reload": "auto", "steersman.dev/reload-ignore": "configmap/app"}
    manifest = workload("web", uses=[env("app", "mode")], annotations=marks)
    assert audit([pod(START)], source("app", APP, mode="a"), manifest) == []


@pytest.mark.parametrize(
    "gone",
    [pod(START, phase="Succeeded"), pod(START, owner=("ReplicaSet", "other-abc")), pod(START, owner=("Job", "x"))],
)
def test_what_has_ended_or_belongs_to_another_owner_does_not_count(gone):
    assert audit([gone], source("app", APP, mode="a"), workload("web", uses=[env("app", "mode")])) == []


def test_a_pod_of_the_present_restart_is_fresh_while_its_digests_are():
    world = World()
    world.put(configmap("app", mode="a"))
    world.put(workload("web", uses=[env("app", "mode")]))
    world.run()
    world.put(configmap("app", mode="b"))
    world.run()
    world.run(after=60)
    manifest = world.get("Deployment", "web")
    stamp = manifest["spec"]["template"]["metadata"]["annotations"]["steersman.dev/restarted-at"]
    mine = pod(START + 61, annotations={"steersman.dev/restarted-at": stamp})
    late = {"mode": START + 500}  # its manager wrote something, and the value is the same
    assert audit([mine], source("app", late, mode="b"), manifest) == []
    assert len(audit([mine], source("app", late, mode="c"), manifest)) == 1


def test_the_last_writer_of_a_key_says_when_it_changed():
    manifest = source("app", APP, mode="a", level="b")
    manifest["data"]["old"] = "c"  # nobody claims it: as old as the object
    assert changes_of(manifest) == {"mode": START + 10, "level": START - 10, "old": START - 1000}
