"""Sequences of writes by several managers, with the answers a real kube-apiserver gave (tools/record_answers.py)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from steersman.apiserver.patch.apply import apply
from steersman.apiserver.patch.managed_fields import keep_times, track_update
from steersman.apiserver.patch.strategic_merge import strategic_merge
from steersman.apiserver.resources.conform import conform, zero
from steersman.apiserver.resources.defaults import apply_defaults
from steersman.apiserver.resources.schema import builtin_schema, custom_schema
from steersman.apiserver.status_errors import StatusError
from steersman.kube.api.gvk import Kind

RECORDED = json.loads(gzip.decompress((Path(__file__).parents[1] / "data" / "ownership.json.gz").read_bytes()))
KINDS = {
    "ConfigMap": Kind(version="v1", kind="ConfigMap", plural="configmaps"),
    "Deployment": Kind(group="apps", version="v1", kind="Deployment", plural="deployments"),
    "Thing": Kind(group="example.org", version="v1", kind="Thing", plural="things"),
}
SCHEMAS = {name: builtin_schema(kind) for name, kind in KINDS.items() if name != "Thing"}
SCHEMAS["Thing"] = custom_schema(RECORDED["definition"], status=True)
Object = dict[str, Any]


def taken_in(kind: str, obj: Object) -> Object:
    """What decoding makes of a request: types and defaults."""
    if kind != "Thing":
        return apply_defaults(KINDS[kind], obj)
    obj = conform(SCHEMAS[kind], obj)
    spec = obj.get("spec") or {}
    if not spec.get("ports"):
        return obj
    return {**obj, "spec": {**spec, "ports": [{"protocol": "TCP", **port} for port in spec["ports"]]}}


def merge_patch(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        out.pop(key, None) if value is None else out.update({key: merge_patch(out.get(key), value)})
    return out


def stored(kind: str, old: Object | None, new: Object, subresource: str) -> Object:
    """What the endpoint lets through: the status of a main write and the rest of a status write stay."""
    if kind == "ConfigMap":
        return new
    if subresource == "status" and old is not None:
        metadata = old["metadata"] if kind == "Thing" else {**new["metadata"], "labels": old["metadata"].get("labels")}
        metadata = {**metadata, "managedFields": new["metadata"].get("managedFields")}
        kept = {**old, "metadata": metadata, "status": new.get("status")}
    else:
        kept = {**new, "status": zero(SCHEMAS[kind]).get("status") if old is None else old.get("status")}
    kept["metadata"] = {key: value for key, value in kept["metadata"].items() if value is not None}
    return {key: value for key, value in kept.items() if value is not None}


def answer(kind: str, old: Object | None, step: Object) -> Object:
    schema, subresource = SCHEMAS[kind], step.get("subresource", "")
    options = {
        "manager": step["manager"],
        "api_version": KINDS[kind].api_version,
        "now": step["now"],
        "subresource": subresource,
    }
    if step["op"] == "apply":
        new = apply(schema, old, step["body"], force=step.get("force", False), **options)
        new = taken_in(kind, new)
    else:
        sent = step["body"]
        if step["op"] == "merge":
            sent = merge_patch(old, sent)
        elif step["op"] == "strategic":
            sent = strategic_merge(schema, old, sent)
        new = track_update(schema, old, taken_in(kind, sent), **options)
    new = stored(kind, old, new, subresource)
    return new if old is None else keep_times(old, new)


@pytest.mark.parametrize("sequence", RECORDED["sequences"], ids=lambda sequence: sequence["kind"])
def test_managed_fields_and_conflicts_are_those_of_the_real_server(sequence):
    kind, old = sequence["kind"], None
    for step in sequence["steps"]:
        recorded = step["answer"]
        if step["code"] >= 300:
            with pytest.raises(StatusError) as refused:
                answer(kind, old, step)
            assert refused.value.code == step["code"]
            causes = (refused.value.details or {}).get("causes", [])
            assert sorted(causes, key=str) == sorted(recorded["causes"], key=str)
            continue
        assert answer(kind, old, step) == recorded
        old = recorded


def test_the_recordings_cover_every_kind_of_write():
    seen = {(step["op"], step["code"] < 300) for sequence in RECORDED["sequences"] for step in sequence["steps"]}
    assert seen >= {
        ("create", True),
        ("put", True),
        ("merge", True),
        ("strategic", True),
        ("apply", True),
        ("apply", False),
    }
