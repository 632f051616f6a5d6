"""What pods and Deployments say about themselves."""

from __future__ import annotations

import pytest

from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types.apps import Deployment, DeploymentSpec, DeploymentStatus
from steersman.kube.api.types.pods import (
    ContainerState,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodCondition,
    PodStatus,
)
from steersman.runtime.workloads import CRASHED, is_active, is_ready, is_rolled_out, stuck_containers


def pod(deleted=None, **status):
    return Pod(metadata=ObjectMeta(name="p", deletion_timestamp=deleted), status=PodStatus(**status))


def waiting(name, reason):
    return ContainerStatus(name=name, state=ContainerState(waiting=ContainerStateWaiting(reason=reason)))


def test_a_pod_is_ready_when_its_condition_says_so():
    ready = PodCondition(type="Ready", status="True")
    assert is_ready(pod(conditions=[ready]))
    assert not is_ready(pod(conditions=[PodCondition(type="Ready", status="False")]))
    assert not is_ready(pod())


def test_a_pod_that_ended_or_goes_is_not_active():
    assert is_active(pod(phase="Running"))
    assert is_active(pod(phase="Pending"))
    assert not is_active(pod(phase="Failed"))
    assert not is_active(pod(phase="Running", deleted="2026-01-01T00:00:00Z"))


def test_containers_that_never_start_are_stuck_and_those_that_start_are_not():
    found = pod(
        init_container_statuses=[waiting("init", "ImagePullBackOff")],
        container_statuses=[waiting("app", "ContainerCreating"), waiting("log", "CrashLoopBackOff")],
    )
    assert [(container.name, state.reason) for container, state in stuck_containers(found)] == [
        ("init", "ImagePullBackOff"),
        ("log", "CrashLoopBackOff"),
    ]
    assert "CrashLoopBackOff" in CRASHED


@pytest.mark.parametrize(
    ("status", "rolled_out"),
    [
        (DeploymentStatus(observed_generation=2, replicas=3, updated_replicas=3, ready_replicas=3), True),
        (DeploymentStatus(observed_generation=1, replicas=3, updated_replicas=3, ready_replicas=3), False),
        (DeploymentStatus(observed_generation=2, replicas=4, updated_replicas=3, ready_replicas=3), False),
        (DeploymentStatus(observed_generation=2, replicas=3, updated_replicas=3, ready_replicas=2), False),
    ],
)
def test_a_rollout_is_complete_when_all_pods_are_new_and_ready(status, rolled_out):
    meta = ObjectMeta(name="d", generation=2)
    assert is_rolled_out(Deployment(metadata=meta, spec=DeploymentSpec(replicas=3), status=status)) is rolled_out
