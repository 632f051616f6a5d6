"""New objects of the built-in kinds, with what a real kube-apiserver made of them (tools/record_answers.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from steersman.apiserver.patch.managed_fields import track_update
from steersman.apiserver.resources.conform import at_rest
from steersman.apiserver.resources.defaults import apply_defaults
from steersman.apiserver.resources.kinds import BUILTINS
from steersman.apiserver.resources.schema import builtin_schema
from steersman.kube.api.gvk import Kind

CASES = json.loads((Path(__file__).parents[1] / "data" / "defaults.json").read_text())
KINDS = {(info.kind.api_version, info.kind.kind): info.kind for info in BUILTINS}
KINDS["storage.k8s.io/v1", "CSIDriver"] = Kind(
    group="storage.k8s.io", version="v1", kind="CSIDriver", plural="csidrivers", namespaced=False
)
# What is not a default: it comes from a strategy, an allocator or an admission plugin, after ownership is recorded.
ELSEWHERE = {
    "DaemonSet": ["metadata.annotations"],
    "Job": ["metadata.labels", "spec.selector", "spec.template.metadata.labels"],
    "Namespace": ["spec.finalizers"],
    "Node": ["spec.taints"],
    "PersistentVolume": ["metadata.finalizers", "status.lastPhaseTransitionTime"],
    "PersistentVolumeClaim": ["metadata.finalizers"],
    "Pod": ["status.phase", "status.qosClass"],
    "Service": ["spec.clusterIP", "spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy", "spec.ports.nodePort"],
}
Object = dict[str, Any]


def kind_of(case: Object) -> Kind:
    return KINDS[case["sent"]["apiVersion"], case["sent"]["kind"]]


def name_of(case: Object) -> str:
    return f"{case['sent']['kind']}-{case['sent']['metadata']['name']}"


def without(value: Any, path: list[str]) -> Any:
    head, *rest = path
    if isinstance(value, list):
        return [without(item, path) for item in value]
    if not isinstance(value, dict) or head not in value:
        return value
    if not rest:
        return {key: below for key, below in value.items() if key != head}
    return {**value, head: without(value[head], rest)}


def comparable(obj: Object) -> Object:
    for path in ("metadata.generation", *ELSEWHERE.get(obj["kind"], ())):
        obj = without(obj, path.split("."))
    return obj


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_new_object_is_what_the_real_server_makes_of_it(case):
    kind = kind_of(case)
    recorded = case["answer"]
    now = next((entry["time"] for entry in recorded["metadata"].get("managedFields", ())), "")
    made = apply_defaults(kind, case["sent"])
    tracked = track_update(builtin_schema(kind), None, made, manager="rec", api_version=kind.api_version, now=now)
    assert comparable(at_rest(builtin_schema(kind), tracked)) == comparable(recorded)


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_defaults_set_twice_are_defaults_set_once(case):
    once = apply_defaults(kind_of(case), case["sent"])
    assert apply_defaults(kind_of(case), once) == once


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_setting_defaults_leaves_the_request_alone(case):
    before = json.dumps(case["sent"])
    apply_defaults(kind_of(case), case["sent"])
    assert json.dumps(case["sent"]) == before


def test_what_is_elsewhere_is_really_in_the_answers():
    """A path that no answer has would hide nothing and is a mistake."""
    for kind, paths in ELSEWHERE.items():
        for path in paths:
            answers = [case["answer"] for case in CASES if case["sent"]["kind"] == kind]
            assert any(without(answer, path.split(".")) != answer for answer in answers), f"{kind} {path}"
