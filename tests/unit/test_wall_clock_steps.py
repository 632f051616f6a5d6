"""The wall clock may be set at any time: durations do not notice."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.clock import Ages, WallSteps
from steersman.kube.api.types.pods import Pod
from steersman.operators.hourglass.api.types import TEMPLATE_HASH
from steersman.operators.hourglass.children.replacement import DesiredPods, PodHistory, next_steps
from steersman.operators.reload.api.config import RestartBudget, SourceKind, SourceRef, Window, WorkloadId
from steersman.operators.reload.planning.gates import Policy, RestartRequest, first_blocking_gate
from steersman.operators.reload.planning.plan import Observed
from steersman.operators.reload.planning.restart_order import RestartCoordinator
from steersman.operators.reload.workloads.rollout_status import Phase
from steersman.testing.clock import VirtualClock
from tests.support.reload.miniature import World, configmap, env_from, workload

WEB = WorkloadId("Deployment", "shop", "web")
APP = SourceRef(SourceKind.CONFIGMAP, "shop", "app")
DAY = 86_400.0


async def test_an_age_grows_with_time_and_not_with_the_clock_being_set_forward():
    clock = VirtualClock()
    ages, stamp = Ages(clock), clock.time() - 10
    clock.jump(DAY)
    await clock.advance(5)
    assert ages.since(stamp) == pytest.approx(15)
    later = clock.time()
    await clock.advance(7)
    clock.jump(DAY)
    assert (ages.since(stamp), ages.since(later)) == (pytest.approx(22), pytest.approx(7))


@given(st.lists(st.tuples(st.sampled_from(["pass", "jump", "stamp", "ask"]), st.floats(0, 1e6)), max_size=30))
async def test_no_step_of_the_clock_ever_makes_anything_look_older_than_it_is(history):
    clock = VirtualClock()
    ages, stamps = Ages(clock), []
    for what, number in history:
        if what == "pass":
            await clock.advance(number)
        elif what == "jump":
            clock.jump(number - 3e5)  # forward or back
        elif what == "stamp":
            ages.since(clock.time())
            stamps.append((clock.time(), clock.monotonic()))
        for stamp, tick in stamps:
            assert ages.since(stamp) <= clock.monotonic() - tick + 2 * len(history) + 1e-3


def test_a_clock_that_is_only_corrected_was_not_set():
    steps = WallSteps()
    assert [steps.notice(wall, tick) for wall, tick in ((100.0, 0.0), (111.5, 10.0), (119.0, 20.0))] == [0, 0, 0]
    assert steps.notice(190.0, 30.0) == 60.0


def followed(coordinator, clock):
    coordinator.rollouts.claim(
        WEB, now=coordinator.moment(clock).wall, cause="configmap/app", sources=[APP], deadline_seconds=600
    )
    return coordinator.rollouts


@pytest.mark.parametrize("step", [DAY, -DAY, 3600.0, -3600.0])
async def test_a_rollout_that_is_under_way_has_its_deadline_whatever_the_wall_clock_is_set_to(step):
    clock, coordinator = VirtualClock(), RestartCoordinator()
    rollouts = followed(coordinator, clock)
    await clock.advance(300)
    clock.jump(step)
    await clock.advance(299)
    now = coordinator.moment(clock).wall
    assert rollouts.get(WEB).phase(now) is Phase.PROGRESSING
    assert (rollouts.failed_for(APP, now), rollouts.under_way(now)) == ((), 1)
    await clock.advance(2)
    now = coordinator.moment(clock).wall
    assert rollouts.get(WEB).phase(now) is Phase.FAILED
    assert list(rollouts.failed_for(APP, now)) == [WEB]
    assert round(rollouts.outcome(WEB, now).ended - rollouts.get(WEB).began) == 601


async def test_a_restart_of_before_the_step_that_is_seen_after_it_has_its_deadline_too():
    clock, coordinator = VirtualClock(), RestartCoordinator()
    coordinator.moment(clock)
    world = World()
    world.put(configmap("app", a="1"))
    world.put(workload("web", uses=[env_from("app")]))
    stamp = {"steersman.dev/restarted-at": "2026-01-01T00:00:00.000000Z"}
    world.edit("Deployment", "web", {"spec": {"template": {"metadata": {"annotations": stamp}}}})
    seen = world.evaluate("Deployment", "web").workload
    await clock.advance(60)
    clock.jump(DAY)
    coordinator.moment(clock)
    coordinator.observe(WEB, seen, is_new=True)
    rollout = coordinator.rollouts.get(WEB)
    assert coordinator.moment(clock).wall - rollout.began == pytest.approx(60)


async def test_a_budget_is_not_renewed_by_setting_the_clock_forward():
    clock, coordinator = VirtualClock(), RestartCoordinator()
    coordinator.moment(clock)
    restarts = [int(clock.time()) - 5, int(clock.time())]
    clock.jump(DAY)
    budget = RestartBudget(restarts=2, per=timedelta(hours=1))
    policy = Policy(budget=budget, window=Window(quiet=timedelta(0), limit=timedelta(0)))

    def closed():
        now, observed = coordinator.moment(clock), Observed(uid="u")
        return first_blocking_gate(
            RestartRequest(workload=WEB, policy=policy, sources={}, restarts=restarts, observed=observed, now=now)
        )

    assert closed().gate == "budget"
    assert closed().due - clock.time() == pytest.approx(3595, abs=2)
    await clock.advance(3600)
    assert closed() is None


async def test_a_pending_pod_is_not_given_up_because_the_clock_was_set():
    clock = VirtualClock()
    ages = Ages(clock)
    created = "2026-01-01T00:00:00Z"
    pod = Pod()
    pod.metadata.name, pod.metadata.uid, pod.metadata.creation_timestamp = "performer-p", "u", created
    pod.metadata.annotations = {TEMPLATE_HASH: "h"}
    pod.status.phase = "Pending"
    clock.jump(DAY)
    desired = DesiredPods(performer="p", hash="h", image="i", pending_seconds=600.0)
    assert next_steps(desired, [pod], PodHistory(), now=clock.time(), age=ages.since).remove == []
    await clock.advance(601)
    (removal,) = next_steps(desired, [pod], PodHistory(), now=clock.time(), age=ages.since).remove
    assert removal.reason == "PendingTooLong"
