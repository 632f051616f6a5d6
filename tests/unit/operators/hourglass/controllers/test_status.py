"""What a performer says about itself."""

from __future__ import annotations

import msgspec
import pytest

from steersman.kube.api.types.pods import ContainerStatus, PodCondition
from steersman.operators.hourglass.children.replacement import PodHistory
from steersman.operators.hourglass.controllers.status import (
    Issue,
    PerformerFacts,
    history_of,
    performer_status,
    pod_issue,
)
from steersman.operators.hourglass.inspect.tables import executor_row, performer_row
from steersman.runtime.manager.operator_bundle import RowState

NOW = 1_800_000_000.0
A, B = "a" * 64, "b" * 64


def report(performer, pods, *, before=None, now=NOW, **facts):
    one = performer()
    one.status = before
    return performer_status(one, pods, PerformerFacts(hash=A, image="avs:1", **facts), now=now)


def summary(status):
    return status["conditions"][-1]


def waiting(pod, reason, message="because"):
    one = pod("performer-p", A, phase="Pending")
    state = {
        "name": "performer",
        "image": "avs:1",
        "restartCount": 3,
        "state": {"waiting": {"reason": reason, "message": message}},
    }
    one.status.container_statuses = [msgspec.convert(state, ContainerStatus)]
    return one


def unscheduled(pod, message):
    one = pod("performer-p", A, phase="Pending")
    one.status.conditions = [PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message=message)]
    return one


def test_a_ready_pod_makes_it_running_and_available(performer, pod):
    status = report(performer, [pod("performer-p", A)])
    assert (status["phase"], status["ready"], status["podName"]) == ("Running", True, "performer-p")
    assert (summary(status)["type"], summary(status)["reason"]) == ("Available", "PodReady")
    assert status["grpcEndpoint"] == "performer-p.ns.svc.cluster.local"


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        ("Pending", "Pending"),
        ("Running", "Running"),
        ("Failed", "Failed"),
        ("Succeeded", "Failed"),
        ("Unknown", "Pending"),
    ],
)
def test_every_phase_of_a_pod_has_its_phase(performer, pod, phase, expected):
    assert report(performer, [pod("performer-p", A, phase=phase, ready=False)])["phase"] == expected


def test_without_a_pod_it_is_pending_and_not_ready(performer):
    before = {"ready": True, "readyTime": "2026-01-01T00:00:00Z", "phase": "Running"}
    status = report(performer, [], before=before)
    assert (status["phase"], status["ready"], status["podName"], status["readyTime"]) == ("Pending", False, "", None)


def test_the_end_of_an_upgrade_is_dated_and_resets_the_ready_time(performer, pod):
    before = {"ready": True, "readyTime": "2026-01-01T00:00:00Z", "phase": "Upgrading"}
    status = report(performer, [pod("performer-p", A)], before=before)
    assert status["lastUpgrade"] == status["readyTime"] == "2027-01-15T08:00:00Z"


def test_while_it_is_replaced_the_image_that_runs_is_reported(performer, pod):
    status = report(performer, [pod("performer-p", B)], before={"observedImage": "avs:0"}, upgrading=True)
    assert (status["phase"], status["observedImage"]) == ("Upgrading", "avs:0")


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("ImagePullBackOff", "ImagePullFailed"),
        ("ErrImageNeverPull", "ImagePullFailed"),
        ("CrashLoopBackOff", "CrashLoop"),
        ("CreateContainerConfigError", "InvalidSpec"),
    ],
)
def test_what_the_kubelet_complains_of_is_the_reason(performer, pod, reason, expected):
    status = report(performer, [waiting(pod, reason)])
    assert summary(status)["reason"] == expected
    assert status["conditions"][1]["status"] == "True"


def test_a_container_that_is_being_created_is_not_an_issue(pod):
    assert pod_issue([waiting(pod, "ContainerCreating")]) is None


def test_missing_hardware_is_distinguished_from_other_reasons_of_the_scheduler(pod):
    gpus = frozenset({"nvidia.com/gpu"})
    assert pod_issue([unscheduled(pod, "2 Insufficient nvidia.com/gpu")], gpus).reason == "HardwareUnavailable"
    assert pod_issue([unscheduled(pod, "2 Insufficient cpu")], gpus).reason == "SchedulingFailed"


def test_an_invalid_spec_leaves_a_running_pod_available_but_is_reported_last(performer, pod):
    status = report(performer, [pod("performer-p", A)], blocked=Issue("InvalidSpec", "spec.image: is empty"))
    assert (status["ready"], summary(status)["message"]) == (True, "spec.image: is empty")


def test_equal_facts_give_an_equal_status(performer, pod):
    first = report(performer, [pod("performer-p", A)])
    again = report(performer, [pod("performer-p", A)], before=first, now=NOW + 1000)
    assert again == first


def test_nonsense_in_a_stored_status_is_forgotten(performer):
    nonsense = {"templateHash": 7, "createdReplicas": "x", "recreations": True, "lastRecreation": "soon"}
    assert history_of(performer(status=nonsense)) == PodHistory()


def test_a_row_has_the_state_and_why(performer, executor, pod):
    good = performer()
    good.status = report(performer, [pod("performer-p", A)])
    assert (performer_row(good).state, performer_row(good).note) == (RowState.GOOD, "")
    bad = performer()
    bad.status = report(performer, [waiting(pod, "ImagePullBackOff", "no such image")])
    assert (performer_row(bad).state, performer_row(bad).note) == (
        RowState.BAD,
        "ImagePullFailed: Image avs:1: no such image",
    )
    assert performer_row(performer()).cells[2] == "New"
    stopped = executor(replicas=0)
    stopped.status = {"phase": "Stopped"}
    assert executor_row(stopped).state == RowState.OFF
