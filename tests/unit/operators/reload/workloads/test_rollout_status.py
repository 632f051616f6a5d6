"""How far a rollout is, from what workloads and their pods say."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.kube.api.types.pods import Pod
from steersman.operators.reload.api.annotations import RESTARTED_AT
from steersman.operators.reload.api.config import SourceKind, SourceRef, WorkloadId
from steersman.operators.reload.planning.rollouts import Rollouts
from steersman.operators.reload.workloads.kinds import BUILT_IN, JOB, KindRule, view
from steersman.operators.reload.workloads.pods import issue_in
from steersman.operators.reload.workloads.rollout_status import Phase

RULES = {rule.kind.kind: rule for rule in (*BUILT_IN, JOB)}
OTHER = KindRule(kind=RULES["Deployment"].kind, template=("spec", "pods"))


def raw(value):
    return msgspec.Raw(msgspec.json.encode(value))


def progress(kind, spec, status, generation=2):
    rule = kind if isinstance(kind, KindRule) else RULES[kind]
    return view(rule, raw(spec), raw(status), generation).progress


def seen(**status):
    return {"observedGeneration": 2, **status}


def progressing(reason):
    return {"conditions": [{"type": "Available", "status": "True"}, {"type": "Progressing", "reason": reason}]}


HALF = {"replicas": 3, "updatedReplicas": 1, "availableReplicas": 3}
FULL = {"replicas": 3, "updatedReplicas": 3, "availableReplicas": 3}


@pytest.mark.parametrize(
    ("kind", "spec", "status", "phase"),
    [
        ("Deployment", {"replicas": 3}, {}, "progressing"),  # nobody has looked at it
        ("Deployment", {"replicas": 3}, {"observedGeneration": 1, **FULL}, "progressing"),  # of the old template
        ("Deployment", {"replicas": 3}, seen(**HALF), "progressing"),
        ("Deployment", {"replicas": 3}, seen(**FULL), "available"),
        ("Deployment", {"replicas": 3}, seen(**FULL, **progressing("NewReplicaSetAvailable")), "available"),
        ("Deployment", {"replicas": 3}, seen(**HALF, **progressing("NewReplicaSetAvailable")), "progressing"),
        ("Deployment", {"replicas": 3}, seen(**HALF, **progressing("ReplicaSetUpdated")), "progressing"),
        ("Deployment", {"replicas": 3}, seen(**HALF, **progressing("ProgressDeadlineExceeded")), "failed"),
        # pods that fail long after a rollout are no rollout
        (
            "Deployment",
            {"replicas": 3},
            seen(replicas=3, updatedReplicas=3, availableReplicas=0, **progressing("NewReplicaSetAvailable")),
            "available",
        ),
        ("Deployment", {"replicas": 0}, seen(), "available"),
        ("Deployment", {"replicas": 3, "paused": True}, seen(**HALF), "available"),
        ("Deployment", {}, seen(replicas=1, updatedReplicas=1, availableReplicas=1), "available"),
        ("Deployment", {"replicas": 3}, {"observedGeneration": [], "replicas": "x"}, "progressing"),  # unreadable
        ("StatefulSet", {"replicas": 2}, seen(currentRevision="a", updateRevision="b"), "progressing"),
        ("StatefulSet", {"replicas": 2}, seen(currentRevision="b", updateRevision="b", readyReplicas=2), "available"),
        (
            "StatefulSet",
            {"updateStrategy": {"type": "OnDelete"}},
            seen(currentRevision="a", updateRevision="b"),
            "available",
        ),
        (
            "StatefulSet",
            {"replicas": 3, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}},
            seen(currentRevision="a", updateRevision="b", updatedReplicas=1, readyReplicas=3),
            "available",
        ),
        (
            "StatefulSet",
            {"replicas": 3, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}},
            seen(currentRevision="a", updateRevision="b", updatedReplicas=0, readyReplicas=3),
            "progressing",
        ),
        ("DaemonSet", {}, seen(desiredNumberScheduled=2, updatedNumberScheduled=1, numberAvailable=2), "progressing"),
        ("DaemonSet", {}, seen(desiredNumberScheduled=2, updatedNumberScheduled=2, numberAvailable=1), "progressing"),
        ("DaemonSet", {}, seen(desiredNumberScheduled=2, updatedNumberScheduled=2, numberAvailable=2), "available"),
        ("DaemonSet", {"updateStrategy": {"type": "OnDelete"}}, seen(desiredNumberScheduled=2), "available"),
        ("CronJob", {}, {}, "available"),
        ("Job", {}, {}, "available"),
        ("Rollout", {"replicas": 2}, {"observedGeneration": "2", "phase": "Healthy"}, "available"),
        ("Rollout", {"replicas": 2}, {"observedGeneration": "1", "phase": "Healthy"}, "progressing"),
        ("Rollout", {"replicas": 2}, {"observedGeneration": "7d9f", "phase": "Paused"}, "progressing"),
        ("Rollout", {"replicas": 2}, {"observedGeneration": "2", "phase": "Degraded", "message": "aborted"}, "failed"),
        ("DeploymentConfig", {"replicas": 3}, seen(**FULL), "available"),
        (OTHER, {"pods": {}}, {}, "available"),
    ],
)
def test_a_workload_says_how_far_its_rollout_is(kind, spec, status, phase):
    assert progress(kind, spec, status).phase == phase


def pod(name, *, stamp="now", state=None, init=None, deleted=False):
    def container(title, found):
        return {"name": title, "state": found or {"running": {}}}

    meta = {"name": name, "annotations": {RESTARTED_AT: stamp}}
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status = {"containerStatuses": [container("main", state)], "initContainerStatuses": [container("prepare", init)]}
    return msgspec.convert({"metadata": meta, "status": status}, Pod)


def waiting(reason, message=""):
    return {"waiting": {"reason": reason, "message": message}}


@pytest.mark.parametrize(
    ("pods", "told"),
    [
        ([], ""),
        ([pod("a")], ""),
        ([pod("a", state=waiting("ContainerCreating"))], ""),
        (
            [pod("a", state=waiting("CrashLoopBackOff", "back-off 20s"))],
            "pod a: container main: CrashLoopBackOff (back-off 20s)",
        ),
        ([pod("b", init=waiting("ImagePullBackOff"))], "pod b: container prepare: ImagePullBackOff"),
        ([pod("b"), pod("a", state=waiting("ErrImagePull"))], "pod a: container main: ErrImagePull"),
        ([pod("a", stamp="before", state=waiting("CrashLoopBackOff"))], ""),  # one that is on its way out
        ([pod("a", state=waiting("CrashLoopBackOff"), deleted=True)], ""),
        (
            [pod("a", state=waiting("CreateContainerConfigError", "x" * 999))],
            f"pod a: container main: CreateContainerConfigError ({'x' * 200})",
        ),
    ],
)
def test_pods_say_why_a_rollout_will_not_get_on(pods, told):
    assert issue_in(pods, "now") == told


EXPRESSIONS = [
    {"key": "track", "operator": "NotIn", "values": ["canary"]},
    {"key": "old", "operator": "DoesNotExist"},
]


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ({"matchLabels": {"b": "2", "a": "1"}}, "a=1,b=2"),
        ({"matchLabels": {"app": "web"}, "matchExpressions": EXPRESSIONS}, "app=web,!old,track notin (canary)"),
        ({"matchExpressions": EXPRESSIONS}, "!old,track notin (canary)"),
        ({"app": "web"}, "app=web"),  # of a DeploymentConfig
        ({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "x", "operator": "Near"}]}, ""),
        ({}, ""),
        (None, ""),
    ],
)
def test_the_pods_of_a_workload_are_those_of_its_whole_selector_and_no_others(selector, text):
    assert view(RULES["Deployment"], raw({"selector": selector, "template": {}})).selector == text


# ----------------------------------------------------------------------------------------- who has failed, quickly
STEPS = st.one_of(
    st.tuples(st.just("claim"), st.integers(0, 3), st.integers(1, 40)),
    st.tuples(st.sampled_from(["trouble", "fine", "made", "refused", "gone"]), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("wait"), st.just(0), st.integers(1, 30)),
)


@given(st.lists(STEPS, max_size=40))
def test_those_that_failed_for_a_source_are_exactly_the_open_ones_that_say_so(steps):
    book, now = Rollouts(), 1_000.0
    sources = [SourceRef(SourceKind.CONFIGMAP, "shop", name) for name in ("app", "db")]
    for step, number, value in steps:
        who = WorkloadId("Deployment", "shop", f"web-{number}")
        match step:
            case "claim":
                book.claim(who, now=now, cause="", sources=sources[: 1 + number % 2], deadline_seconds=value)
            case "trouble" | "fine":
                book.set_issue(who, "CrashLoopBackOff" if step == "trouble" else "")
            case "made":
                book.start(who, None)
            case "refused":
                book.release(who)
            case "gone":
                book.forget(who)
            case "wait":
                now += value
        for source in sources:
            failed = [one for one in book.open_for(source) if book.get(one).phase(now) is Phase.FAILED]
            assert list(book.failed_for(source, now)) == failed


def test_a_rollout_takes_its_part_of_the_cluster_wide_limit_also_when_the_wall_clock_is_set():
    rollouts, web = Rollouts(), WorkloadId("Deployment", "a", "web")
    rollouts.claim(web, now=1000.0, cause="configmap/app", sources=(), deadline_seconds=600.0)
    assert rollouts.under_way(1010.0, longest=600.0) == 1
    rollouts.clock_set(3600.0, ((1010.0, 3600.0),))
    assert rollouts.under_way(4610.0, longest=600.0) == 1
    assert rollouts.under_way(5300.0, longest=600.0) == 0
