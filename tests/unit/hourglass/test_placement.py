"""What each node lacks for a pod, and which turn a replacement gets."""

from __future__ import annotations

import msgspec
import pytest
import yaml

from steersman.cli.main import _run
from steersman.kube.types import Node, Pod
from steersman.operators.hourglass.placement import verdicts
from steersman.operators.hourglass.turns import Turns
from steersman.testing.hourglassing import executor as executor_manifest
from steersman.testing.hourglassing import performer as performer_manifest


def node(name="n", *, labels=None, taints=(), allocatable=None, **spec):
    ready = [{"type": "Ready", "status": "True"}]
    body = {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"taints": list(taints), **spec},
        "status": {"conditions": ready, "allocatable": {"cpu": "4", "pods": "10"} | (allocatable or {})},
    }
    return msgspec.convert(body, Node)


def pod(name="p", *, requests=None, where="", **spec):
    container = {"name": "c", "resources": {"requests": requests or {}}}
    body = {"metadata": {"name": name, "uid": name}, "spec": {"containers": [container], "nodeName": where, **spec}}
    return msgspec.convert(body, Pod)


def lacks(one, on, *others):
    return list(verdicts(one, [on], others)[0].lacks)


AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpus", "operator": "Gt", "values": ["2"]}]}]
        }
    }
}


@pytest.mark.parametrize(
    ("one", "on", "missing"),
    [
        (pod(), node(), []),
        (pod(), node(unschedulable=True), ["is cordoned"]),
        (pod(nodeSelector={"a": "b"}), node(), ["label a=b"]),
        (pod(nodeSelector={"a": "b"}), node(labels={"a": "c"}), ["label a=b (has c)"]),
        (pod(affinity=AFFINITY), node(labels={"gpus": "2"}), ["required node affinity"]),
        (pod(affinity=AFFINITY), node(labels={"gpus": "3"}), []),
        (
            pod(),
            node(taints=[{"key": "sgx", "value": "on", "effect": "NoSchedule"}]),
            ["toleration of taint sgx=on:NoSchedule"],
        ),
        (
            pod(tolerations=[{"key": "sgx", "operator": "Exists"}]),
            node(taints=[{"key": "sgx", "value": "on", "effect": "NoSchedule"}]),
            [],
        ),
        (pod(), node(taints=[{"key": "x", "effect": "PreferNoSchedule"}]), []),
        (pod(requests={"nvidia.com/gpu": "1"}), node(), ["1 nvidia.com/gpu (0 of 0 free)"]),
        (pod(requests={"cpu": "500m"}), node(), []),
    ],
)
def test_a_node_says_what_it_lacks(one, on, missing):
    assert lacks(one, on) == missing


def test_what_others_use_is_not_free():
    on = node(allocatable={"nvidia.com/gpu": "2"})
    others = [pod("x", requests={"nvidia.com/gpu": "2"}, where="n"), pod("y", requests={"cpu": "9"}, where="else")]
    assert lacks(pod(requests={"nvidia.com/gpu": "1"}), on, *others) == ["1 nvidia.com/gpu (0 of 2 free)"]
    others[0].status.phase = "Succeeded"
    assert lacks(pod(requests={"nvidia.com/gpu": "1"}), on, *others) == []


# ------------------------------------------------------------------------------------------------------------ turns
def test_not_more_than_the_limit_are_replaced_at_once(performer):
    turns = Turns(2)
    a, b, c = (performer(name) for name in "abc")
    ask = {"under_way": (), "siblings": (), "max_away": None, "surge": False, "now": 0.0}
    assert [turns.ask(one, **ask) == "" for one in (a, b, c)] == [True, True, False]
    assert turns.next() == [c.ref]
    turns.settle(a.ref, upgrading=True)
    a.status = {"phase": "Upgrading"}
    assert "2 other replacements" in turns.ask(c, **ask | {"under_way": (a,)})
    turns.settle(b.ref, upgrading=False)
    assert turns.ask(c, **ask | {"under_way": (a,)}) == ""
    assert turns.next() == []


def test_of_one_executor_never_more_are_away_than_it_allows(performer):
    turns = Turns(None)
    ready = {"ready": True, "phase": "Running"}
    a, b, c = (performer(name, status=dict(ready)) for name in "abc")
    ask = {"under_way": (), "siblings": (a, b, c), "max_away": 1, "surge": False, "now": 0.0}
    assert turns.ask(a, **ask) == ""
    assert "1 performers of its executor are away (a), 1 may be" in turns.ask(b, **ask)
    assert turns.ask(b, **ask | {"surge": True}) == "", "nothing goes away in blue/green"
    c.status = {"ready": False}
    assert turns.ask(c, **ask) == "", "who is away already makes nothing worse"


def test_a_replacement_that_is_stuck_does_not_hold_up_the_others(performer):
    stuck = performer("stuck")
    since = {"type": "Progressing", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    stuck.status = {"phase": "Upgrading", "conditions": [since]}
    ask = {"under_way": (stuck,), "siblings": (), "max_away": None, "surge": False}
    began = 1767225600.0
    assert Turns(1).ask(performer("p"), **ask, now=began + 60) != ""
    assert Turns(1).ask(performer("p"), **ask, now=began + 601) == ""


def test_a_time_that_nobody_can_read_holds_up_nobody(performer):
    broken = performer("broken")
    since = {"type": "Progressing", "status": "True", "lastTransitionTime": "yesterday"}
    broken.status = {"phase": "Upgrading", "conditions": [since]}
    ask = {"under_way": (broken,), "siblings": (), "max_away": None, "surge": False}
    assert Turns(1).ask(performer("p"), **ask, now=0.0) == ""


# ---------------------------------------------------------------------------------------------------------- commands
def write(tmp_path, *manifests):
    path = tmp_path / "manifests.yaml"
    path.write_text("---\n".join(yaml.safe_dump(one) for one in manifests))
    return str(path)


def test_a_plan_names_every_object_and_no_key(tmp_path, capsys):
    scheduling = {"nodeSelector": {"pool": "avs"}}
    config = {"kubernetes": {"namespace": "ns", "defaultScheduling": scheduling}}
    path = write(
        tmp_path,
        executor_manifest("e", "ns", replicas=2, config=config),
        performer_manifest("p", "ns", executorRef="e", replicas=2, networkPolicy="ExecutorOnly"),
    )
    assert _run(["hourglass", "plan", "-f", path]) == 3
    said = capsys.readouterr().out
    for name in (
        "ConfigMap/e-config",
        "Secret/e-keys",
        "Deployment/e",
        "Pod/performer-p-1",
        "NetworkPolicy/performer-p",
    ):
        assert name in said
    assert "on a node with pool=avs" in said
    assert "key-material" not in said


def test_a_plan_of_something_invalid_names_the_field_and_fails(tmp_path, capsys):
    path = write(tmp_path, performer_manifest("p", "ns", config={"grpcPort": 0}))
    assert _run(["hourglass", "plan", "-f", path]) == 1
    assert "spec.config.grpcPort" in capsys.readouterr().out


def test_why_wants_a_kind_and_a_name(capsys):
    assert _run(["hourglass", "why", "pod/x"]) == 1
    assert "is neither performer/NAME nor executor/NAME" in capsys.readouterr().err


def test_a_plan_compared_with_the_cluster_keeps_what_is_as_it_should_be():
    from steersman.kube.types import Deployment
    from steersman.operators.hourglass.executor import children_of
    from steersman.operators.hourglass.forecast import forecast
    from steersman.operators.hourglass.settings import HourglassOptions
    from steersman.operators.hourglass.types import StoredExecutor
    from steersman.operators.hourglass.validation import read_executor

    manifest = executor_manifest("e", "ns", config={"operatorKeysSecretRef": {"name": "vault"}})
    del manifest["spec"]["config"]["operatorKeys"]
    stored = msgspec.convert(manifest, StoredExecutor)
    deployment = children_of(stored, read_executor(stored)[0], keys="digest of the Secret").deployment
    live = {
        ("HourglassExecutor", "ns", "e"): stored,
        ("Deployment", "ns", "e"): msgspec.convert({k: deployment[k] for k in ("metadata", "spec")}, Deployment),
    }
    options = HourglassOptions(create_service_accounts=False)
    lines = {line.object: line.action for line in forecast([manifest], options, live=live)}
    assert lines == {"ConfigMap/e-config": "create", "Deployment/e": "keep"}
    changed = {**manifest, "spec": {**manifest["spec"], "image": "executor:2"}}
    lines = {line.object: line.action for line in forecast([changed], options, live=live)}
    assert lines["Deployment/e"] == "update"


def test_a_plan_says_what_is_adopted_from_another_version_and_what_is_replaced():
    from steersman.kube.types import Deployment, Pod
    from steersman.operators.hourglass.forecast import forecast
    from steersman.operators.hourglass.settings import HourglassOptions

    owner = {"apiVersion": "x/v1", "kind": "Performer", "name": "p", "uid": "u", "controller": True}
    container = {"name": "main", "image": "avs:1"}
    pod = {"metadata": {"name": "performer-p", "namespace": "ns", "ownerReferences": [owner]}}
    made = {"spec": {"template": {"spec": {"containers": [{"name": "executor", "image": "executor:1"}]}}}}
    live = {
        ("Pod", "ns", "performer-p"): msgspec.convert({**pod, "spec": {"containers": [container]}}, Pod),
        ("Deployment", "ns", "e"): msgspec.convert({"metadata": {"name": "e", "namespace": "ns"}, **made}, Deployment),
    }
    options = HourglassOptions(create_service_accounts=False)

    def actions(performer_image, executor_image):
        manifests = [
            performer_manifest("p", "ns", image=performer_image),
            executor_manifest("e", "ns", image=executor_image),
        ]
        lines = {line.object: line.action for line in forecast(manifests, options, live=live)}
        return lines["Pod/performer-p"], lines["Deployment/e"]

    assert actions("avs:1", "executor:1") == ("keep", "keep")
    assert actions("avs:2", "executor:2") == ("replace", "update")
