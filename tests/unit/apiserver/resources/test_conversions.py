"""Between versions, and between spellings of a number."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.apiserver.resources.conversion import converter, to_storage
from steersman.apiserver.resources.registry import Registry, condition
from steersman.apiserver.write.decoding import typed_object

REGISTRY = Registry()


def autoscaler(target: int) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h"},
        "spec": {
            "maxReplicas": 3,
            "targetCPUUtilizationPercentage": target,
            "scaleTargetRef": {"kind": "Deployment", "name": "d"},
        },
        "status": {"currentReplicas": 1, "desiredReplicas": 2, "currentCPUUtilizationPercentage": 60},
    }


@given(st.integers(1, 200))
def test_an_autoscaler_written_in_v1_reads_the_same_in_v1_and_as_a_metric_in_v2(target: int):
    info = REGISTRY.by_kind("autoscaling", "v1", "HorizontalPodAutoscaler")
    assert info is not None
    stored = to_storage(info, autoscaler(target))
    assert stored["apiVersion"] == "autoscaling/v2"
    (metric,) = stored["spec"]["metrics"]
    assert metric["resource"]["target"] == {"type": "Utilization", "averageUtilization": target}
    convert = converter(info)
    assert convert is not None
    read = convert(stored)
    assert (read["spec"], read["status"]) == (autoscaler(target)["spec"], autoscaler(target)["status"])


def test_the_two_events_are_one_event_with_two_vocabularies():
    info = REGISTRY.by_kind("events.k8s.io", "v1", "Event")
    assert info is not None
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "name": "p"},
        "note": "hello",
        "reportingController": "c",
        "deprecatedCount": 2,
    }
    stored = to_storage(info, event)
    assert (stored["involvedObject"]["name"], stored["message"]) == ("p", "hello")
    assert (stored["reportingComponent"], stored["count"]) == ("c", 2)
    convert = converter(info)
    assert convert is not None
    assert convert(stored) | event == convert(stored) | {"apiVersion": "events.k8s.io/v1"}


def test_a_kind_with_one_version_needs_no_conversion():
    info = REGISTRY.by_kind("", "v1", "ConfigMap")
    assert info is not None
    assert converter(info) is None
    same = {"metadata": {"name": "a"}}
    assert to_storage(info, same) is same


def toys() -> Registry:
    """A registry that serves a kind which keeps everything."""
    registry = Registry()
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {
        "group": "example.org",
        "scope": "Namespaced",
        "names": {"plural": "toys", "singular": "toy", "kind": "Toy", "listKind": "ToyList"},
        "versions": [version],
        "conversion": {"strategy": "None"},
    }
    installed = registry.install({"metadata": {"name": "toys.example.org"}, "spec": spec}, now="2026-01-01T00:00:00Z")
    assert (condition(installed.definition, "Established") or {})["status"] == "True"
    return registry


TOYS = toys()


@pytest.mark.parametrize(
    ("given_", "kept"),
    [(3.0, 3), (1e3, 1000), (1.5, 1.5), (-0.0, 0), (1e21, 1e21), (10**20, 10**20), (10**29, 1e29), (True, True)],
)
def test_numbers_of_custom_resources_are_spelled_as_go_spells_them(given_: Any, kept: Any):
    info = TOYS.by_kind("example.org", "v1", "Toy")
    assert info is not None
    toy = {"apiVersion": "example.org/v1", "kind": "Toy", "metadata": {"name": "t"}, "spec": {"a": [{"b": given_}]}}
    value = typed_object(info, toy, validation="Ignore", warnings=[])["spec"]["a"][0]["b"]
    assert (type(value), value) == (type(kept), kept)
