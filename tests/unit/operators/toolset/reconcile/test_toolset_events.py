"""The Events of a target: each problem is reported once, to each ConfigMap that may carry it."""

from __future__ import annotations

from types import SimpleNamespace

from prometheus_client import CollectorRegistry

from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ObjectMeta
from steersman.operators.toolset.api.crd import TargetConfigMap
from steersman.operators.toolset.reconcile.current import ToolsetProblem
from steersman.operators.toolset.reconcile.metrics import ToolsetMetrics
from steersman.operators.toolset.reconcile.status import Reporter

TARGET = NamespacedName("toolset", "ai")
INVALID, LONG = (ToolsetProblem(reason, "loki", "why") for reason in ("InvalidAnnotation", "NameTooLong"))


class Recorder:
    """The part of a context that reports."""

    def __init__(self):
        self.events = []
        self.log = SimpleNamespace(warning=lambda *_, **__: None)

    def event(self, subject, reason, _message, *, warning):
        assert warning
        self.events.append((subject.metadata.uid, reason))


def configmap(uid):
    return TargetConfigMap(metadata=ObjectMeta(name=TARGET.name, namespace=TARGET.namespace, uid=uid))


def reported(*passes):
    """The Events after passes with a ConfigMap, or none, and problems; and the count of INVALID."""
    recorder, registry = Recorder(), CollectorRegistry()
    reporter = Reporter(TARGET, ToolsetMetrics(registry))
    for uid, *problems in passes:
        reporter.problems(recorder, configmap(uid) if uid else None, problems)
    labels = {"toolset_type": "loki", "error_type": INVALID.reason}
    return recorder.events, registry.get_sample_value("toolset_generation_failures_total", labels)


def test_a_problem_is_reported_once_and_again_when_it_comes_back():
    first, both, none = ("a", INVALID), ("a", INVALID, LONG), ("a",)
    assert reported(first, both, both)[0] == [("a", "InvalidAnnotation"), ("a", "NameTooLong")]
    assert reported(first, none, first)[0] == [("a", "InvalidAnnotation")] * 2


def test_a_configmap_that_is_made_again_gets_the_events_of_problems_that_are_still_there():
    assert reported(("a", INVALID), ("b", INVALID))[0] == [("a", "InvalidAnnotation"), ("b", "InvalidAnnotation")]


def test_without_a_configmap_a_problem_is_counted_once_and_its_event_follows_when_there_is_one():
    assert reported(("", INVALID), ("", INVALID)) == ([], 1)
    assert reported(("", INVALID), ("", INVALID), ("a", INVALID))[0] == [("a", "InvalidAnnotation")]
