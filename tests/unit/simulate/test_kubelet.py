"""The life of a pod: where it goes, how it fares, how it ends, and who can reach it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.times import format_time
from steersman.kube.api.types.core import Node, NodeSpec, Service, ServicePort, ServiceSpec, Taint
from steersman.kube.api.types.pods import PodCondition
from steersman.simulate.annotations import COMPLETE_AFTER, FAIL, READY_AFTER, TERMINATE_AFTER
from steersman.simulate.endpoints import plan_endpoints
from steersman.simulate.kinds import SimulatedPod
from steersman.simulate.kubelet import PodPlan, free_address, plan_pod
from steersman.simulate.nodes import fits, new_node, plan_node
from steersman.simulate.workloads.pods import is_ready

NOW = 1_767_225_600.0
NODES = [new_node(1), new_node(2)]


def pod(annotations: dict[str, str] | None = None, *, name: str = "a", **spec: Any) -> SimulatedPod:
    metadata = ObjectMeta(
        name=name, namespace="shop", uid=f"uid-{name}", generation=1, labels={"app": "web"}, annotations=annotations
    )
    ports = [{"name": "http", "containerPort": 8080}]
    spec = {"containers": [{"name": "main", "image": "app:1", "ports": ports}], "nodeName": "node-1", **spec}
    return SimulatedPod(metadata=metadata, spec=spec)


def planned(one: SimulatedPod, *, now: float = NOW) -> PodPlan:
    return plan_pod(one, NODES, lambda _: False, now=now)


def after(one: SimulatedPod, *, now: float = NOW) -> SimulatedPod:
    return replace(one, status=planned(one, now=now).status)


def test_a_pod_without_a_node_is_bound_to_one_that_takes_it() -> None:
    assert planned(pod(nodeName="")).bind in {"node-1", "node-2"}
    assert planned(pod(nodeName="", nodeSelector={"kubernetes.io/hostname": "node-2"})).bind == "node-2"


def test_a_pod_that_no_node_takes_says_so_and_waits() -> None:
    plan = planned(pod(nodeName="", nodeSelector={"disk": "ssd"}))
    assert plan.bind == ""
    assert [(condition.type, condition.status, condition.reason) for condition in plan.status.conditions] == [
        ("PodScheduled", "False", "Unschedulable")
    ]


def test_a_pod_with_a_scheduling_gate_is_left_alone() -> None:
    assert planned(pod(nodeName="", schedulingGates=[{"name": "quota"}])) == PodPlan()


@pytest.mark.parametrize(
    ("tolerations", "daemon", "expected"),
    [
        ([], False, False),
        ([{"key": "gpu", "operator": "Exists"}], False, True),
        ([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}], False, True),
        ([{"key": "gpu", "value": "no"}], False, False),
        ([{"operator": "Exists"}], False, True),
        ([{"operator": "Exists", "effect": "NoExecute"}], False, False),
        ([], True, False),
    ],
)
def test_a_tainted_node_takes_only_pods_that_tolerate_it(tolerations: Any, daemon: bool, expected: bool) -> None:
    node = Node(
        metadata=ObjectMeta(name="n"), spec=NodeSpec(taints=[Taint(key="gpu", value="yes", effect="NoSchedule")])
    )
    assert fits({"tolerations": tolerations}, node, daemon=daemon) is expected


def test_a_cordoned_node_takes_only_daemons() -> None:
    node = Node(metadata=ObjectMeta(name="n"), spec=NodeSpec(unschedulable=True))
    assert (fits({}, node), fits({}, node, daemon=True)) == (False, True)


@pytest.mark.parametrize(
    ("annotations", "restart", "phase", "ready", "waiting"),
    [
        ({}, "Always", "Running", True, None),
        ({FAIL: "never-ready"}, "Always", "Running", False, None),
        ({FAIL: "crash"}, "Always", "Running", False, "CrashLoopBackOff"),
        ({FAIL: "crash"}, "OnFailure", "Running", False, "CrashLoopBackOff"),
        ({FAIL: "crash"}, "Never", "Failed", False, None),
        ({FAIL: "image-pull"}, "Always", "Pending", False, "ImagePullBackOff"),
        ({}, "Never", "Succeeded", False, None),
        ({COMPLETE_AFTER: "1m"}, "Never", "Running", True, None),
    ],
)
def test_a_pod_fares_as_its_annotations_and_restart_policy_say(
    annotations: dict[str, str], restart: str, phase: str, ready: bool, waiting: str | None
) -> None:
    one = after(pod(annotations, restartPolicy=restart))
    (container,) = one.status.container_statuses
    assert (one.status.phase, is_ready(one), container.ready) == (phase, ready, ready)
    assert (container.state.waiting.reason if container.state.waiting else None) == waiting
    assert bool(one.status.pod_ip) is (phase != "Pending")


def test_looking_at_a_pod_again_changes_nothing() -> None:
    for behavior in ({}, {FAIL: "crash"}, {FAIL: "image-pull"}, {FAIL: "never-ready"}):
        one = after(pod(behavior, initContainers=[{"name": "first", "image": "init:1"}]))
        assert after(one, now=NOW + 100) == one


def test_a_pod_is_ready_after_the_time_it_asks_for_and_not_before() -> None:
    one = after(pod({READY_AFTER: "2s"}))
    assert not is_ready(one)
    assert planned(one, now=NOW + 0.5).again == 1.5
    assert is_ready(after(one, now=NOW + 2))


def test_a_pod_whose_failure_is_taken_away_recovers() -> None:
    one = after(pod({FAIL: "crash"}))
    healed = after(replace(one, metadata=replace(one.metadata, annotations={})), now=NOW + 5)
    assert is_ready(healed)
    assert {condition.type: condition.last_transition_time for condition in healed.status.conditions}[
        "Ready"
    ] == format_time(NOW + 5)


def test_a_closed_readiness_gate_keeps_a_pod_from_being_ready() -> None:
    one = after(pod(readinessGates=[{"conditionType": "example.org/warm"}]))
    assert not is_ready(one)
    opened = [*one.status.conditions, PodCondition(type="example.org/warm", status="True")]
    assert is_ready(after(replace(one, status=replace(one.status, conditions=opened))))


@pytest.mark.parametrize(
    ("annotations", "complaint"),
    [
        ({FAIL: "sometimes"}, f'annotation {FAIL}: "sometimes" is not one of never-ready, crash, image-pull'),
        ({READY_AFTER: "soon"}, f"annotation {READY_AFTER}: "),
    ],
)
def test_an_unknown_annotation_value_shows_on_the_pod(annotations: dict[str, str], complaint: str) -> None:
    status = planned(pod(annotations)).status
    assert status.phase == "Pending"
    assert status.conditions[0].reason == "InvalidSimulation"
    assert status.conditions[0].message.startswith(complaint)


def deleted(one: SimulatedPod, grace: int = 30) -> SimulatedPod:
    metadata = replace(one.metadata, deletion_timestamp=format_time(NOW + grace), deletion_grace_period_seconds=grace)
    return replace(one, metadata=metadata)


@pytest.mark.parametrize(
    ("one", "elapsed", "expected"),
    [
        (deleted(pod()), 0, PodPlan(finish=True)),
        (deleted(pod({TERMINATE_AFTER: "5s"})), 2, PodPlan(again=3)),
        (deleted(pod({TERMINATE_AFTER: "5s"})), 5, PodPlan(finish=True)),
        (deleted(pod({TERMINATE_AFTER: "5m"})), 30, PodPlan(finish=True)),  # never longer than its grace
        (deleted(pod(), grace=0), 0, PodPlan()),  # only finalizers hold it
    ],
)
def test_a_deleted_pod_ends_within_its_grace(one: SimulatedPod, elapsed: float, expected: PodPlan) -> None:
    assert planned(one, now=NOW + elapsed) == expected


def test_no_two_pods_have_one_address() -> None:
    taken: set[str] = set()
    for number in range(2000):
        address = free_address(f"uid-{number}", taken.__contains__)
        assert address not in taken
        taken.add(address)


def test_a_node_is_ready_unless_asked_not_to_be_and_looking_again_changes_nothing() -> None:
    node = new_node(1)
    status = plan_node(node, now=NOW).status
    assert {condition.type: condition.status for condition in status.conditions}["Ready"] == "True"
    assert plan_node(replace(node, status=status), now=NOW + 60).status == status
    node.metadata.annotations = {FAIL: "not-ready"}
    assert {condition.type: condition.status for condition in plan_node(node, now=NOW).status.conditions}[
        "Ready"
    ] == "False"


# ----------------------------------------------------------------------------------------------------------- services
def service(**spec: Any) -> Service:
    spec = {"selector": {"app": "web"}, "ports": [ServicePort(port=80, target_port="http")], **spec}
    return Service(metadata=ObjectMeta(name="web", namespace="shop", uid="s"), spec=ServiceSpec(**spec))


def test_a_service_shows_the_pods_it_selects_and_which_of_them_take_traffic() -> None:
    pods = [after(pod(name="a")), after(pod({FAIL: "never-ready"}, name="b")), deleted(after(pod(name="c")))]
    pods += [after(pod({FAIL: "image-pull"}, name="d")), pod(name="homeless")]
    (made,) = plan_endpoints(service(), pods, []).create
    found = {
        endpoint.target_ref.name: (endpoint.conditions.ready, endpoint.conditions.terminating)
        for endpoint in made.endpoints
    }
    assert found == {"a": (True, False), "b": (False, False), "c": (False, True)}
    assert [port.port for port in made.ports] == [8080]
    assert made.labels["kubernetes.io/service-name"] == "web"


def test_a_slice_that_is_right_is_left_alone_and_one_that_is_not_is_patched() -> None:
    pods = [after(pod(name="a"))]
    (made,) = plan_endpoints(service(), pods, []).create
    assert plan_endpoints(service(), pods, [made]) == plan_endpoints(service(selector=None), [], [])
    (change,) = plan_endpoints(service(), [], [made]).change
    assert change.patch["endpoints"] == []


def test_a_service_that_publishes_all_addresses_calls_every_pod_ready() -> None:
    (made,) = plan_endpoints(
        service(publish_not_ready_addresses=True, cluster_ip="None"), [after(pod({FAIL: "never-ready"}))], []
    ).create
    assert [endpoint.conditions.ready for endpoint in made.endpoints] == [True]
    assert "service.kubernetes.io/headless" in made.labels


def test_a_service_that_lost_its_selector_loses_its_slice() -> None:
    (made,) = plan_endpoints(service(), [], []).create
    assert plan_endpoints(service(selector=None), [], [made]).delete == (made,)
