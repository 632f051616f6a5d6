"""What each node lacks for a pod, and the command `why`."""

from __future__ import annotations

import msgspec
import pytest

from steersman.cli.main import _run
from steersman.kube.api.types import Node, Pod
from steersman.operators.hourglass.inspect.why_pending import fit_on_nodes


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
    return list(fit_on_nodes(one, [on], others)[0].lacks)


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


def test_why_wants_a_kind_and_a_name(capsys):
    assert _run(["hourglass", "why", "pod/x"]) == 1
    assert "is neither performer/NAME nor executor/NAME" in capsys.readouterr().err
