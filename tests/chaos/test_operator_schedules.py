"""A sample of what `make chaos` runs: schedules of user actions and faults against the real operators, in virtual time.

Each seed is one schedule, and the same schedule always gives the same run, as far as the kernel allows. Operators with
planted defects show that the harness finds what it is for.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from steersman.kube.api.types import Deployment
from steersman.operators.reload.api.annotations import RESTARTED_AT
from steersman.runtime.controller.builder import Controller
from steersman.runtime.manager.operator_bundle import OperatorBundle
from tests.support.chaos.operators import subject
from tests.support.chaos.operators.reload import ReloadSubject
from tests.support.chaos.run import run
from tests.support.chaos.schedule import generate, parse

pytestmark = pytest.mark.slow  # make test runs them, make check does not

SAMPLE = [("reload", range(4)), ("hourglass", range(3)), ("toolset", range(4)), ("dns", range(3, 5))]
QUIET = parse("reload 0 with 1 replicas\n1.00 edit configmap/app-0\n20.00 edit secret/db-1\n")


@pytest.mark.parametrize(("name", "seed"), [(name, seed) for name, seeds in SAMPLE for seed in seeds])
def test_after_a_schedule_nothing_is_lost_doubled_or_without_a_cause(name, seed):
    chosen = subject(name)
    schedule = generate(name, seed, chosen.actions, chosen.faults)
    assert run(schedule).findings == {}, f"make chaos ARGS='--operators {name} --seed {seed} --schedules 1'\n{schedule}"


def test_the_same_schedule_gives_the_same_run():
    first, second = (replace(run(QUIET), recovery=None) for _ in range(2))  # the kernel may deliver a byte a poll later
    assert first == second
    assert first.acts == 3  # two workloads use app-0, and one of them that runs uses db-1


def test_an_operator_that_does_nothing_is_found_to_lose_changes(monkeypatch):
    monkeypatch.setattr(ReloadSubject, "bundle", lambda *_: OperatorBundle(controllers=[]))
    assert "nothing_lost" in run(QUIET).findings


def test_an_operator_that_restarts_everything_twice_is_found(monkeypatch):
    made = ReloadSubject.bundle

    async def again(ctx, deployment):
        annotations = deployment.spec.template.metadata.annotations or {}
        if annotations.get("again") != annotations.get(RESTARTED_AT):
            later = {"spec": {"template": {"metadata": {"annotations": {"again": annotations[RESTARTED_AT]}}}}}
            await ctx.client.patch(Deployment, deployment.name, later, namespace=deployment.namespace)

    def doubled(self, clock, registry):
        bundle = made(self, clock, registry)
        return replace(bundle, controllers=[*bundle.controllers, Controller(Deployment, again, "again")])

    monkeypatch.setattr(ReloadSubject, "bundle", doubled)
    assert {"nothing_done_twice", "no_act_without_cause"} <= run(QUIET).findings.keys()
