"""StatefulSets, DaemonSets, Jobs and CronJobs: their next step from what there is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.times import format_time
from steersman.kube.api.types.apps import (
    ControllerRevision,
    DaemonSetUpdateStrategy,
    RollingUpdate,
    RollingUpdatePartition,
    StatefulSetUpdateStrategy,
)
from steersman.kube.api.types.batch import CronJobStatus, JobCondition, JobStatus
from steersman.kube.api.types.pods import PodCondition, PodStatus
from steersman.simulate.kinds import (
    SimulatedCronJob,
    SimulatedCronJobSpec,
    SimulatedDaemonSet,
    SimulatedDaemonSetSpec,
    SimulatedJob,
    SimulatedJobSpec,
    SimulatedPod,
    SimulatedStatefulSet,
    SimulatedStatefulSetSpec,
)
from steersman.simulate.nodes import new_node
from steersman.simulate.workloads.cronjobs import last_due, plan_cron_job
from steersman.simulate.workloads.daemonsets import plan_daemon_set
from steersman.simulate.workloads.jobs import plan_job
from steersman.simulate.workloads.pods import REVISION_LABEL
from steersman.simulate.workloads.statefulsets import plan_stateful_set

NOW = 1_767_225_600.0  # midnight, a Thursday
READY = PodStatus(phase="Running", conditions=[PodCondition(type="Ready", status="True")])
UNREADY = PodStatus(phase="Running", conditions=[PodCondition(type="Ready", status="False")])


def template(image: str = "app:1") -> dict[str, Any]:
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": image}]}}


def metadata(uid: str = "s") -> ObjectMeta:
    return ObjectMeta(name="web", namespace="shop", uid=uid, generation=1, creation_timestamp=format_time(NOW - 3600))


def stateful(image: str = "app:1", **spec: Any) -> SimulatedStatefulSet:
    return SimulatedStatefulSet(
        metadata=metadata(), spec=SimulatedStatefulSetSpec(**{"replicas": 3, "template": template(image), **spec})
    )


def partitioned(partition: int) -> StatefulSetUpdateStrategy:
    return StatefulSetUpdateStrategy(type="RollingUpdate", rolling_update=RollingUpdatePartition(partition=partition))


def revision_of(image: str, number: int = 1) -> ControllerRevision:
    (made,) = [
        child
        for child in plan_stateful_set(stateful(image), [], [], now=NOW).create
        if isinstance(child, ControllerRevision)
    ]
    return replace(made, revision=number)


OLD, NEW = revision_of("app:1", 1), revision_of("app:2", 2)


def member(number: int, revision: ControllerRevision = OLD, status: PodStatus = READY, **more: Any) -> SimulatedPod:
    labels = {REVISION_LABEL: revision.name}
    return SimulatedPod(
        metadata=ObjectMeta(name=f"web-{number}", uid=f"{number}", labels=labels, **more), status=status
    )


def names(objects: Any) -> list[str]:
    return [one.name for one in objects if isinstance(one, SimulatedPod)]


@pytest.mark.parametrize(
    ("policy", "pods", "created"),
    [
        ("OrderedReady", [], ["web-0"]),
        ("OrderedReady", [member(0, status=UNREADY)], []),
        ("OrderedReady", [member(0)], ["web-1"]),
        ("OrderedReady", [member(0), member(1)], ["web-2"]),
        ("Parallel", [], ["web-0", "web-1", "web-2"]),
        ("Parallel", [member(1, status=UNREADY)], ["web-0", "web-2"]),
    ],
)
def test_members_appear_in_order_unless_the_policy_is_parallel(
    policy: str, pods: list[SimulatedPod], created: list[str]
) -> None:
    plan = plan_stateful_set(stateful(pod_management_policy=policy), pods, [OLD], now=NOW)
    assert names(plan.create) == created
    assert plan.delete == ()


def test_members_beyond_the_wanted_number_go_from_the_last_one_by_one() -> None:
    owner, pods = stateful(replicas=1), [member(number) for number in range(4)]
    assert names(plan_stateful_set(owner, pods, [OLD], now=NOW).delete) == ["web-3"]
    going = [*pods[:3], member(3, deletion_timestamp=format_time(NOW))]
    assert plan_stateful_set(owner, going, [OLD], now=NOW).delete == ()


def updating(image: str = "app:2", **spec: Any) -> SimulatedStatefulSet:
    owner = stateful(image, **spec)
    return replace(owner, status=replace(owner.status, current_revision=OLD.name))


@pytest.mark.parametrize(
    ("strategy", "pods", "deleted"),
    [
        (partitioned(0), [member(0), member(1), member(2)], ["web-2"]),
        (partitioned(0), [member(0), member(1), member(2, NEW)], ["web-1"]),
        (partitioned(0), [member(0), member(1), member(2, NEW, UNREADY)], []),
        (partitioned(0), [member(0), member(1), member(2, OLD, UNREADY)], ["web-2"]),
        (partitioned(2), [member(0), member(1), member(2, NEW)], []),
        (StatefulSetUpdateStrategy(type="OnDelete"), [member(0), member(1), member(2)], []),
    ],
)
def test_an_update_replaces_from_the_last_member_to_the_partition(
    strategy: StatefulSetUpdateStrategy, pods: list[SimulatedPod], deleted: list[str]
) -> None:
    plan = plan_stateful_set(updating(update_strategy=strategy), pods, [OLD, NEW], now=NOW)
    assert names(plan.delete) == deleted


def test_an_update_waits_for_the_member_it_replaced_whatever_the_policy_says_about_starts() -> None:
    owner = updating(pod_management_policy="Parallel")
    waiting = [member(0), member(1), member(2, NEW, UNREADY)]
    assert plan_stateful_set(owner, waiting, [OLD, NEW], now=NOW).delete == ()


def test_a_member_below_the_partition_comes_back_as_it_was() -> None:
    pods = [member(1), member(2, NEW)]
    (made,) = plan_stateful_set(updating(update_strategy=partitioned(2)), pods, [OLD, NEW], now=NOW).create
    assert made.spec["containers"][0]["image"] == "app:1"
    (made,) = plan_stateful_set(updating(), pods, [OLD, NEW], now=NOW).create
    assert made.spec["containers"][0]["image"] == "app:2"


def test_the_update_becomes_current_when_every_member_has_it_and_is_ready() -> None:
    almost = plan_stateful_set(updating(), [member(0), member(1, NEW), member(2, NEW)], [OLD, NEW], now=NOW).status
    assert (almost.current_revision, almost.update_revision, almost.updated_replicas) == (OLD.name, NEW.name, 2)
    done = plan_stateful_set(updating(), [member(number, NEW) for number in range(3)], [OLD, NEW], now=NOW).status
    assert (done.current_revision, done.current_replicas) == (NEW.name, 3)


def test_going_back_raises_the_revision_of_the_old_template() -> None:
    plan = plan_stateful_set(updating("app:1"), [], [OLD, NEW], now=NOW)
    assert [(child.obj.name, child.patch) for child in plan.change] == [(OLD.name, {"revision": 3})]


def test_a_member_names_its_claims_its_service_and_its_number() -> None:
    owner = stateful(service_name="web", volume_claim_templates=[{"metadata": {"name": "data"}}], ordinals={"start": 5})
    (made,) = plan_stateful_set(owner, [], [OLD], now=NOW).create
    assert made.name == "web-5"
    assert (made.spec["hostname"], made.spec["subdomain"]) == ("web-5", "web")
    assert made.spec["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-5"}}]


# ------------------------------------------------------------------------------------------------------------ daemons
NODES = [new_node(1), new_node(2), new_node(3)]


def daemon(image: str = "app:1", **spec: Any) -> SimulatedDaemonSet:
    return SimulatedDaemonSet(metadata=metadata(), spec=SimulatedDaemonSetSpec(template=template(image), **spec))


def daemon_revision(image: str, number: int) -> ControllerRevision:
    (made,) = [
        made
        for made in plan_daemon_set(daemon(image), [], [], [], now=NOW).create
        if isinstance(made, ControllerRevision)
    ]
    return replace(made, revision=number)


FIRST, SECOND = daemon_revision("app:1", 1), daemon_revision("app:2", 2)


def on(node: int, revision: ControllerRevision = FIRST, status: PodStatus = READY, **more: Any) -> SimulatedPod:
    labels = {REVISION_LABEL: revision.labels[REVISION_LABEL]}
    meta = ObjectMeta(name=f"web-{node}", uid=f"{node}", labels=labels, **more)
    return SimulatedPod(metadata=meta, status=status, spec={"nodeName": f"node-{node}"})


def test_every_node_gets_one_pod_and_a_node_that_is_gone_loses_it() -> None:
    plan = plan_daemon_set(daemon(), [on(1), on(9)], NODES, [FIRST], now=NOW)
    assert [child.spec["nodeName"] for child in plan.create] == ["node-2", "node-3"]
    assert names(plan.delete) == ["web-9"]
    assert (plan.status.desired_number_scheduled, plan.status.number_misscheduled) == (3, 1)


def test_a_pod_that_is_on_its_way_out_keeps_its_place_until_it_is_gone() -> None:
    pods = [on(1), on(2), on(3, deletion_timestamp=format_time(NOW))]
    assert plan_daemon_set(daemon(), pods, NODES, [FIRST], now=NOW).create == ()


def daemon_strategy(kind: str, unavailable: int | str | None = None) -> DaemonSetUpdateStrategy:
    return DaemonSetUpdateStrategy(type=kind, rolling_update=RollingUpdate(max_unavailable=unavailable))


@pytest.mark.parametrize(
    ("strategy", "pods", "deleted"),
    [
        (daemon_strategy("RollingUpdate"), [on(1), on(2), on(3)], ["web-1"]),
        (daemon_strategy("RollingUpdate", 2), [on(1), on(2), on(3)], ["web-1", "web-2"]),
        (daemon_strategy("RollingUpdate", "50%"), [on(1), on(2), on(3)], ["web-1", "web-2"]),
        (daemon_strategy("RollingUpdate"), [on(1), on(2), on(3, SECOND, UNREADY)], []),
        (daemon_strategy("RollingUpdate"), [on(1), on(2, FIRST, UNREADY), on(3)], ["web-2"]),
        (daemon_strategy("OnDelete"), [on(1), on(2), on(3)], []),
    ],
)
def test_an_update_of_daemons_stays_within_what_may_be_unavailable(
    strategy: DaemonSetUpdateStrategy, pods: list[SimulatedPod], deleted: list[str]
) -> None:
    plan = plan_daemon_set(daemon("app:2", update_strategy=strategy), pods, NODES, [FIRST, SECOND], now=NOW)
    assert names(plan.delete) == deleted


# --------------------------------------------------------------------------------------------------------------- jobs
def job(**spec: Any) -> SimulatedJob:
    return SimulatedJob(metadata=metadata("j"), spec=SimulatedJobSpec(template=template(), **spec))


def runs(*phases: str) -> list[SimulatedPod]:
    return [
        SimulatedPod(metadata=ObjectMeta(name=f"web-{at}"), status=PodStatus(phase=one))
        for at, one in enumerate(phases)
    ]


@pytest.mark.parametrize(
    ("spec", "phases", "created", "condition"),
    [
        ({}, [], 1, None),
        ({"completions": 5, "parallelism": 2}, [], 2, None),
        ({"completions": 5, "parallelism": 3}, ["Succeeded"] * 4, 1, None),
        ({"completions": 3, "parallelism": 2}, ["Running", "Running"], 0, None),
        ({"completions": 2}, ["Succeeded", "Succeeded"], 0, "SuccessCriteriaMet"),
        ({"completions": 1, "backoff_limit": 1}, ["Failed"], 1, None),
        ({"completions": 1, "backoff_limit": 1}, ["Failed", "Failed"], 0, "FailureTarget"),
        ({"suspend": True}, [], 0, "Suspended"),
    ],
)
def test_a_job_starts_pods_until_enough_succeeded_or_too_many_failed(
    spec: dict[str, Any], phases: list[str], created: int, condition: str | None
) -> None:
    plan = plan_job(job(**spec), runs(*phases), now=NOW)
    assert len(plan.create) == created
    assert (plan.status.conditions[-1].type if plan.status.conditions else None) == condition


def test_the_pods_of_an_indexed_job_share_the_numbers_out() -> None:
    owner = job(completions=3, parallelism=3, completion_mode="Indexed")
    first = plan_job(owner, [], now=NOW).create
    indexes = [one.annotations["batch.kubernetes.io/job-completion-index"] for one in first]
    assert indexes == ["0", "1", "2"]
    done = [replace(one, status=PodStatus(phase="Succeeded")) for one in (first[0], first[2])]
    again = plan_job(owner, done, now=NOW)
    assert [child.annotations["batch.kubernetes.io/job-completion-index"] for child in again.create] == ["1"]
    assert again.status.completed_indexes == "0,2"


@pytest.mark.parametrize(
    ("phase", "conditions"),
    [("Succeeded", ["SuccessCriteriaMet", "Complete"]), ("Failed", ["FailureTarget", "Failed"])],
)
def test_the_end_of_a_job_is_announced_and_then_its_time_to_live_begins(phase: str, conditions: list[str]) -> None:
    owner, pods = job(backoff_limit=0, ttl_seconds_after_finished=10), runs(phase, "Running")
    announcing = plan_job(owner, pods, now=NOW)
    assert announcing.again is not None
    assert announcing.again < 1
    assert list(announcing.delete) == pods[1:]
    ending = plan_job(replace(owner, status=announcing.status), pods, now=NOW)
    assert [known.type for known in ending.status.conditions] == conditions
    assert ending.again == 10


def test_a_finished_job_goes_when_its_time_is_over() -> None:
    ended = JobStatus(conditions=[JobCondition(type="Complete", status="True", last_transition_time=format_time(NOW))])
    owner = replace(job(ttl_seconds_after_finished=10), status=ended)
    assert plan_job(owner, [], now=NOW + 4).again == 6
    assert plan_job(owner, [], now=NOW + 10).delete == (owner,)


@pytest.mark.parametrize(
    ("text", "when", "expected"),
    [
        ("* * * * *", "2026-01-01T00:00", True),
        ("*/15 * * * *", "2026-01-01T00:30", True),
        ("*/15 * * * *", "2026-01-01T00:31", False),
        ("0 9-17 * * mon-fri", "2026-01-01T12:00", True),
        ("0 9-17 * * mon-fri", "2026-01-03T12:00", False),
        ("0 0 * * 7", "2026-01-04T00:00", True),  # Sunday, by its other number
        ("0 0 13 * fri", "2026-01-13T00:00", True),  # two day fields: one is enough
        ("0 0 1 jan *", "2026-01-01T00:00", True),
        ("@hourly", "2026-01-01T05:00", True),
        ("@monthly", "2026-01-02T00:00", False),
    ],
)
def test_a_schedule_matches_its_minutes(text: str, when: str, expected: bool) -> None:
    minute = datetime.fromisoformat(when).replace(tzinfo=UTC).timestamp()
    assert (last_due(text, None, minute - 60, minute + 5) == minute) is expected


def test_only_the_latest_missed_minute_is_due_and_it_is_due_once() -> None:
    assert last_due("*/10 * * * *", None, NOW, NOW + 1900) == NOW + 1800
    assert last_due("*/10 * * * *", None, NOW + 1800, NOW + 1900) is None
    assert last_due("0 1 * * *", "Europe/Berlin", NOW - 60, NOW + 5) == NOW


def test_a_day_that_was_missed_by_hours_is_due_until_its_deadline() -> None:
    day = 86_400
    assert last_due("@daily", None, NOW - 10, NOW + day / 2) == NOW
    late = replace(cron(schedule="@daily"), status=CronJobStatus(last_schedule_time=format_time(NOW - day)))
    assert len(plan_cron_job(late, [], now=NOW + day / 2).create) == 1
    strict = replace(cron(schedule="@daily", starting_deadline_seconds=600), status=late.status)
    assert len(plan_cron_job(strict, [], now=NOW + 600).create) == 1
    assert plan_cron_job(strict, [], now=NOW + 601).create == ()


def test_an_interval_counts_from_the_last_run() -> None:
    assert last_due("@every 1h", None, NOW + 7, NOW + 3600) is None
    assert last_due("@every 1h", None, NOW + 7, NOW + 3607) == NOW + 3607
    assert last_due("@every 1h", None, NOW + 7, NOW + 9000) == NOW + 7207
    owner = replace(cron(schedule="@every 90s"), status=CronJobStatus(last_schedule_time=format_time(NOW)))
    assert plan_cron_job(owner, [], now=NOW + 50).again == 40
    assert [made.name for made in plan_cron_job(owner, [], now=NOW + 95).create] == [f"web-{int(NOW + 90) // 60}"]


def cron(**spec: Any) -> SimulatedCronJob:
    return SimulatedCronJob(metadata=metadata("c"), spec=SimulatedCronJobSpec(**{"schedule": "* * * * *", **spec}))


def test_a_cron_job_starts_a_job_per_minute_with_the_name_of_that_minute() -> None:
    plan = plan_cron_job(cron(), [], now=NOW + 5)
    assert [child.name for child in plan.create] == [f"web-{int(NOW) // 60}"]
    assert plan.status.last_schedule_time == format_time(NOW)
    assert plan.again == 55
    again = replace(cron(), status=CronJobStatus(last_schedule_time=format_time(NOW)))
    assert plan_cron_job(again, [], now=NOW + 5).create == ()


def test_concurrency_policies_hold_back_or_replace() -> None:
    running = job()
    assert plan_cron_job(cron(concurrency_policy="Forbid"), [running], now=NOW).create == ()
    replaced = plan_cron_job(cron(concurrency_policy="Replace"), [running], now=NOW)
    assert (len(replaced.create), replaced.delete) == (1, (running,))
    assert plan_cron_job(cron(suspend=True), [], now=NOW).create == ()
