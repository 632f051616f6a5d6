"""Deployments and ReplicaSets: sizes, revisions and what they say about themselves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from steersman.kube.api.objects import ObjectMeta, OwnerReference
from steersman.kube.api.times import format_time
from steersman.kube.api.types.apps import DeploymentStrategy, ReplicaSetStatus, RollingUpdate
from steersman.kube.api.types.pods import PodCondition, PodStatus
from steersman.simulate.kinds import (
    SimulatedDeployment,
    SimulatedDeploymentSpec,
    SimulatedPod,
    SimulatedReplicaSet,
    SimulatedReplicaSetSpec,
)
from steersman.simulate.plan import Plan
from steersman.simulate.workloads.deployments import (
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    REVISION,
    bounds_of,
    plan_deployment,
)
from steersman.simulate.workloads.pods import HASH_LABEL, limit, unhashed
from steersman.simulate.workloads.replicasets import plan_replica_set

NOW = 1_767_225_600.0


def template(image: str = "app:1") -> dict[str, Any]:
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": image}]}}


def deployment(
    image: str = "app:1", *, surge: int | str = 1, unavailable: int | str = 0, **spec: Any
) -> SimulatedDeployment:
    strategy = DeploymentStrategy(
        type="RollingUpdate", rolling_update=RollingUpdate(max_surge=surge, max_unavailable=unavailable)
    )
    spec = {"replicas": 3, "strategy": strategy, "template": template(image), **spec}
    return SimulatedDeployment(
        metadata=ObjectMeta(name="web", namespace="shop", uid="d", generation=1),
        spec=SimulatedDeploymentSpec(selector={"matchLabels": {"app": "web"}}, **spec),
    )


def replica_set(image: str, size: int, available: int | None = None, *, revision: int = 1) -> SimulatedReplicaSet:
    available = size if available is None else available
    return SimulatedReplicaSet(
        metadata=ObjectMeta(
            name=f"web-{image}",
            namespace="shop",
            uid=image,
            creation_timestamp=format_time(NOW + revision),
            annotations={REVISION: str(revision), DESIRED_REPLICAS: "3", MAX_REPLICAS: "4"},
        ),
        spec=SimulatedReplicaSetSpec(replicas=size, template=template(image)),
        status=ReplicaSetStatus(replicas=size, ready_replicas=available, available_replicas=available),
    )


def sizes(plan: Plan, *known: SimulatedReplicaSet) -> dict[str, int]:
    after = {one.name: one.spec.replicas for one in (*known, *plan.create)}
    after |= {child.obj.name: child.patch["spec"]["replicas"] for child in plan.change if "spec" in child.patch}
    return after


def test_a_new_deployment_gets_one_replica_set_that_its_template_names() -> None:
    (made,) = plan_deployment(deployment(), [], now=NOW).create
    digest = made.labels[HASH_LABEL]
    assert made.name == f"web-{digest}"
    assert made.spec.replicas == 3
    assert made.spec.selector == {"matchLabels": {"app": "web", HASH_LABEL: digest}}
    assert unhashed(made.spec.template) == unhashed(template())
    assert made.annotations[REVISION] == "1"


@pytest.mark.parametrize(
    ("surge", "unavailable", "replicas", "most", "least"),
    [
        (1, 0, 3, 4, 3),
        ("25%", "25%", 10, 13, 8),
        ("25%", "25%", 1, 2, 1),
        (0, "10%", 3, 3, 2),  # both round to nothing: one may be missing
        ("100%", "100%", 2, 4, 0),
    ],
)
def test_surge_rounds_up_and_unavailability_rounds_down(
    surge: int | str, unavailable: int | str, replicas: int, most: int, least: int
) -> None:
    bounds = bounds_of(deployment(surge=surge, unavailable=unavailable, replicas=replicas))
    assert (bounds.most, bounds.least) == (most, least)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ((3, 3), (0, 0), {"web-app:1": 3, "web-app:2": 1}),  # begin: one more
        ((3, 3), (1, 0), {"web-app:1": 3, "web-app:2": 1}),  # not ready: stop
        ((3, 3), (1, 1), {"web-app:1": 2, "web-app:2": 1}),  # ready: one old one goes
        ((2, 2), (1, 1), {"web-app:1": 2, "web-app:2": 2}),  # room again
        ((3, 1), (1, 1), {"web-app:1": 2, "web-app:2": 1}),  # a useless old one goes first
        ((0, 0), (3, 3), {"web-app:1": 0, "web-app:2": 3}),  # done
    ],
)
def test_a_rolling_update_takes_one_step_at_a_time(old: Any, new: Any, expected: dict[str, int]) -> None:
    known = [replica_set("app:1", *old), replica_set("app:2", *new, revision=2)]
    assert sizes(plan_deployment(deployment("app:2"), known, now=NOW), *known) == expected


@given(
    replicas=st.integers(0, 8),
    surge=st.integers(0, 3),
    unavailable=st.integers(0, 3),
    old=st.integers(0, 8),
    choices=st.lists(st.integers(0, 100), max_size=30),
    heals=st.booleans(),
)
def test_a_rollout_keeps_its_bounds_whatever_becomes_ready_when_and_ends_if_pods_become_ready(
    replicas: int, surge: int, unavailable: int, old: int, choices: list[int], heals: bool
) -> None:
    wanted = deployment("app:2", surge=surge, unavailable=unavailable, replicas=replicas)
    bounds = bounds_of(wanted)
    known = [replica_set("app:1", old)]
    total = old
    for choice in [*choices, *([100] * 60 if heals else [])]:
        available = sum(item.status.available_replicas for item in known)
        plan = plan_deployment(wanted, known, now=NOW)
        after = sizes(plan, *known)
        assert sum(after.values()) <= max(bounds.most, total)
        known = [_moved(one, after[one.name], choice) for one in (*known, *plan.create)]
        kept = sum(min(item.status.available_replicas, item.spec.replicas or 0) for item in known)
        assert kept >= min(available, bounds.least)
        total = sum(after.values())
    if heals:
        assert {
            unhashed(item.spec.template)["spec"]["containers"][0]["image"]: item.spec.replicas for item in known
        } == {
            "app:1": 0,
            "app:2": replicas,
        }


def _moved(one: SimulatedReplicaSet, size: int, percent: int) -> SimulatedReplicaSet:
    """A ReplicaSet some time later: it has its size, what was available still is, and some more may be."""
    before = min(one.status.available_replicas, size)
    available = before + (size - before) * percent // 100
    name = one.name if one.metadata.uid else "web-app:2"
    return replica_set(name.removeprefix("web-"), size, available, revision=2 if name.endswith("2") else 1)


def test_recreate_starts_the_new_pods_when_the_old_ones_are_gone() -> None:
    wanted = deployment("app:2", strategy=DeploymentStrategy(type="Recreate"))
    old, new = replica_set("app:1", 3), replica_set("app:2", 0, revision=2)
    assert sizes(plan_deployment(wanted, [old, new], now=NOW), old, new) == {"web-app:1": 0, "web-app:2": 0}
    going = replace(old, spec=replace(old.spec, replicas=0))
    assert sizes(plan_deployment(wanted, [going, new], now=NOW), going, new)["web-app:2"] == 0
    gone = replica_set("app:1", 0)
    assert sizes(plan_deployment(wanted, [gone, new], now=NOW), gone, new)["web-app:2"] == 3


def test_a_paused_deployment_is_scaled_but_not_rolled() -> None:
    old = replica_set("app:1", 3)
    plan = plan_deployment(deployment("app:2", paused=True, replicas=5), [old], now=NOW)
    assert plan.create == ()
    assert sizes(plan, old) == {"web-app:1": 5}
    assert plan.status.conditions[-1].reason == "DeploymentPaused"


def test_going_back_to_an_old_template_takes_its_replica_set_and_the_next_revision() -> None:
    first, second = replica_set("app:1", 0, revision=1), replica_set("app:2", 3, revision=2)
    plan = plan_deployment(deployment("app:1"), [first, second], now=NOW)
    assert plan.create == ()
    patches = {(change.obj.KIND.kind, change.obj.name): change.patch for change in plan.change}
    assert patches["ReplicaSet", "web-app:1"]["metadata"]["annotations"] == {REVISION: "3"}
    assert patches["Deployment", "web"] == {"metadata": {"annotations": {REVISION: "3"}}}


def test_only_as_many_old_templates_are_kept_as_the_history_limit_says() -> None:
    olds = [replica_set(f"app:{number}", 0, revision=number) for number in range(1, 5)]
    new = replica_set("app:9", 3, revision=5)
    plan = plan_deployment(deployment("app:9", revision_history_limit=2), [*olds, new], now=NOW)
    assert [one.name for one in plan.delete] == ["web-app:1", "web-app:2"]


def _rolled(
    known: list[SimulatedReplicaSet], wanted: SimulatedDeployment, now: float
) -> tuple[SimulatedDeployment, Plan]:
    plan = plan_deployment(wanted, known, now=now)
    return replace(wanted, status=plan.status), plan


def test_a_rollout_without_progress_passes_its_deadline_and_says_so() -> None:
    wanted = deployment("app:2", progress_deadline_seconds=10)
    stuck = [replica_set("app:1", 3), replica_set("app:2", 1, 0, revision=2)]
    wanted, _ = _rolled(stuck, wanted, NOW)
    wanted, plan = _rolled(stuck, wanted, NOW + 4)
    assert plan.again == 6
    assert wanted.status.conditions[-1].status == "True"
    wanted, plan = _rolled(stuck, wanted, NOW + 10)
    assert (wanted.status.conditions[-1].status, wanted.status.conditions[-1].reason) == (
        "False",
        "ProgressDeadlineExceeded",
    )
    assert plan.again is None
    better = [stuck[0], replica_set("app:2", 1, 1, revision=2)]
    wanted, _ = _rolled(better, wanted, NOW + 20)
    assert wanted.status.conditions[-1].reason == "ReplicaSetUpdated"


def test_a_deployment_at_rest_has_an_empty_plan() -> None:
    wanted = deployment("app:1")
    wanted.metadata.annotations = {REVISION: "1"}
    known = [replica_set("app:1", 3)]
    wanted, _ = _rolled(known, wanted, NOW)
    wanted, _ = _rolled(known, wanted, NOW + 1)
    plan = plan_deployment(wanted, known, now=NOW + 60)
    assert plan == Plan(status=wanted.status)
    assert [condition.reason for condition in wanted.status.conditions] == [
        "MinimumReplicasAvailable",
        "NewReplicaSetAvailable",
    ]


# -------------------------------------------------------------------------------------------------------- replica sets
def pod(
    name: str, *, ready: bool = True, node: str = "node-1", phase: str = "Running", **metadata: Any
) -> SimulatedPod:
    conditions = [PodCondition(type="Ready", status=str(ready), last_transition_time=format_time(NOW))]
    return SimulatedPod(
        metadata=ObjectMeta(
            name=name,
            uid=name,
            owner_references=[OwnerReference(api_version="", kind="", name="", uid="rs")],
            **metadata,
        ),
        spec={"nodeName": node} if node else {},
        status=PodStatus(phase=phase, conditions=conditions),
    )


def owner(replicas: int, **spec: Any) -> SimulatedReplicaSet:
    metadata = ObjectMeta(name="web-1", namespace="shop", uid="rs", generation=2)
    return SimulatedReplicaSet(
        metadata=metadata, spec=SimulatedReplicaSetSpec(replicas=replicas, template=template(), **spec)
    )


def test_missing_pods_are_created_from_the_template_and_belong_to_the_replica_set() -> None:
    plan = plan_replica_set(owner(3), [pod("a")], now=NOW)
    assert len(plan.create) == 2
    assert plan.create[0].metadata.generate_name == "web-1-"
    assert plan.create[0].controller is not None
    assert plan.create[0].controller.uid == "rs"
    assert plan.create[0].spec == template()["spec"]


def test_of_too_many_pods_the_least_useful_go() -> None:
    pods = [
        pod("good"),
        pod("not-ready", ready=False),
        pod("pending", ready=False, phase="Pending"),
        pod("homeless", ready=False, node="", phase="Pending"),
    ]
    gone = [one.name for one in plan_replica_set(owner(1), pods, now=NOW).delete]
    assert gone == ["homeless", "pending", "not-ready"]


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_pods_that_ended_or_are_being_deleted_are_replaced(phase: str) -> None:
    ended = [pod("a", phase=phase), pod("b", deletion_timestamp=format_time(NOW))]
    assert len(plan_replica_set(owner(2), ended, now=NOW).create) == 2


def test_a_pod_is_available_once_it_has_been_ready_long_enough() -> None:
    early = plan_replica_set(owner(1, min_ready_seconds=10), [pod("a")], now=NOW + 4)
    assert (early.status.ready_replicas, early.status.available_replicas, early.again) == (1, 0, 6)
    late = plan_replica_set(owner(1, min_ready_seconds=10), [pod("a")], now=NOW + 10)
    assert (late.status.available_replicas, late.again) == (1, None)


@given(st.integers(0, 300), st.integers(0, 100))
def test_a_percentage_rounded_up_is_never_less_than_rounded_down_and_at_most_one_more(total: int, percent: int) -> None:
    up, down = (limit(f"{percent}%", total, up=way, default=0) for way in (True, False))
    assert down <= up <= down + 1
    assert down * 100 <= percent * total <= up * 100
