"""When a rollout is observed again, and when its pods are read."""

from __future__ import annotations

import heapq
from collections import Counter
from types import SimpleNamespace

import msgspec
import pytest

from steersman.kube.api.types.apps import Deployment
from steersman.operators.reload.api.annotations import RESTARTED_AT
from steersman.operators.reload.api.config import ReloadOptions, WorkloadId
from steersman.operators.reload.controllers.reconciler import WorkloadReconciler
from steersman.operators.reload.workloads.kinds import BUILT_IN
from steersman.operators.reload.workloads.rollout_status import Phase, RolloutProgress
from steersman.testing.clock import VirtualClock

START = 1_800_000_000.0
STUCK = RolloutProgress(phase=Phase.PROGRESSING)


class Seen:
    """A Deployment that was restarted at the start, and is not available."""

    KIND = Deployment.KIND
    namespace = "shop"
    annotations = {}  # noqa: RUF012  # nothing writes to it

    def __init__(self, name="web"):
        self.name = self.title = name
        self.metadata = SimpleNamespace(resource_version="7", uid=name)
        self.facts = SimpleNamespace(
            template_annotations={RESTARTED_AT: "2027-01-15T08:00:00Z"},
            progress=STUCK,
            selector=f"app={name}",
            may_lack_pods=True,
        )


class Fleet:
    """Deployments whose rollouts are stuck, each observed when it is due; `reads`: when the pods of which were read."""

    def __init__(self, count=1, *, deadline=600, waiting_reason="", **options):
        self.clock = VirtualClock(time=START)
        self.reconciler = WorkloadReconciler(BUILT_IN[0], ReloadOptions(**options))
        self.deployments = [Seen(f"web-{number}") for number in range(count)]
        self.reads = []
        self.waiting_reason = waiting_reason
        self.context = SimpleNamespace(
            clock=self.clock,
            client=self,
            log=SimpleNamespace(info=self.ignore, warning=self.ignore),
            event=self.ignore,
        )
        for deployment in self.deployments:
            me = WorkloadId("Deployment", "shop", deployment.name)
            rollouts = self.reconciler.rollouts
            rollouts.claim(me, now=START, cause="configmap/app", sources=(), deadline_seconds=deadline)
            rollouts.start(me, deployment)
        self.due = [(START, number) for number in range(count)]

    def ignore(self, *_args, **_fields):
        """Logs and Events."""

    async def list(self, kind, *, namespace, label_selector):
        self.reads.append((self.clock.time() - START, label_selector.removeprefix("app=")))
        name = self.reads[-1][1]
        if not self.waiting_reason:
            return SimpleNamespace(items=[])
        owner = {"kind": "Deployment", "name": name, "uid": name, "controller": True, "apiVersion": "apps/v1"}
        waiting = {"name": "main", "state": {"waiting": {"reason": self.waiting_reason}}}
        meta = {
            "name": f"{name}-abc",
            "namespace": namespace,
            "annotations": {RESTARTED_AT: "2027-01-15T08:00:00Z"},
            "ownerReferences": [owner],
        }
        pod = msgspec.convert({"metadata": meta, "status": {"containerStatuses": [waiting]}}, kind)
        return SimpleNamespace(items=[pod])

    async def run_until(self, seconds):
        """Observe all that are due until then, as the queue would."""
        while self.due and self.due[0][0] <= START + seconds:
            due, number = heapq.heappop(self.due)
            await self.clock.advance(max(0.0, due - self.clock.time()))
            again = await self.reconciler._observe_rollout(self.context, self.deployments[number])
            if again is not None:
                heapq.heappush(self.due, (max(again, self.clock.time() + 0.001), number))
        await self.clock.advance(max(0.0, START + seconds - self.clock.time()))

    def status_changes(self):
        """The controller of Deployments writes each status."""
        for deployment in self.deployments:
            deployment.metadata.resource_version = str(int(deployment.metadata.resource_version) + 1)


@pytest.mark.parametrize(
    ("asks", "deadline", "now", "again"),
    [(True, 600, 1, 30), (True, 600, 31, 62), (True, 600, 400, 600), (True, 10, 1, 10), (False, 600, 31, 600)],
)
async def test_a_rollout_is_observed_when_its_deadline_passes_and_with_growing_pauses_before(
    asks, deadline, now, again
):
    fleet = Fleet(deadline=deadline, ask_pods=asks)
    await fleet.clock.advance(now)
    assert await fleet.reconciler._observe_rollout(fleet.context, fleet.deployments[0]) == START + again


async def test_500_stuck_rollouts_read_pods_once_a_second_in_all_and_stop_when_nothing_changes():
    fleet = Fleet(500)
    await fleet.run_until(599)
    assert len(fleet.reads) == 500
    assert max(Counter(int(at) for at, _ in fleet.reads).values()) == 1
    assert set(Counter(name for _, name in fleet.reads).values()) == {1}


async def test_a_rollout_whose_status_keeps_changing_has_its_pods_read_with_doubled_pauses():
    fleet = Fleet()
    for second in range(599):
        await fleet.run_until(second)
        fleet.status_changes()
    assert [round(at) for at, _ in fleet.reads] == [30, 60, 120, 240, 480]


async def test_500_rollouts_whose_status_keeps_changing_still_read_pods_once_a_second_in_all():
    fleet = Fleet(500)
    for second in range(599):
        await fleet.run_until(second)
        fleet.status_changes()
    assert max(Counter(int(at) for at, _ in fleet.reads).values()) == 1
    assert {name for _, name in fleet.reads} == {deployment.name for deployment in fleet.deployments}


async def test_a_fleet_whose_pods_cannot_start_is_not_polled():
    fleet = Fleet(20, waiting_reason="ImagePullBackOff")
    for second in range(599):
        await fleet.run_until(second)
        fleet.status_changes()
    assert len(fleet.reads) == 20
    assert fleet.due == []


async def test_a_rollout_that_ends_while_it_waits_for_its_turn_leaves_its_place_to_others():
    fleet = Fleet(3)
    await fleet.run_until(30.5)
    ended = next(d for d in fleet.deployments if d.name not in {name for _, name in fleet.reads})
    ended.facts.progress = RolloutProgress()
    me = WorkloadId("Deployment", "shop", ended.name)
    fleet.reconciler.rollouts.observe(me, ended, deadline_seconds=600)
    await fleet.run_until(599)
    assert {name for _, name in fleet.reads} == {d.name for d in fleet.deployments} - {ended.name}
    assert fleet.reconciler.shared.pod_reads._waiting == {}
