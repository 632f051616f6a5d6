"""One evaluation stands for many edits of sources while a workload waits for its window, and no restart moves."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from steersman.kube.api.gvk import NamespacedName
from steersman.operators.reload.api.config import ReloadOptions
from steersman.operators.reload.controllers.reconciler import COALESCE_SECONDS
from steersman.operators.reload.controllers.setup import controllers
from steersman.operators.reload.planning.plan import Action
from steersman.operators.reload.sources.digest import ConfigMapSource, SecretSource
from tests.support.reload.miniature import World, configmap, env, workload

WEB = NamespacedName("web", "shop")
SOURCES = ("app", "db")


class Storm:
    """A workload that reads the key `mode` of two sources, evaluated when its queue says so."""

    def __init__(self, *, coalesce, quiet="5s", **annotations):
        self.world = World()
        self.coalesce = coalesce
        self.evaluations = 0
        self.restarts = []
        self.due = inf
        self.edits = 0
        self.data = {source: {"mode": "0", "other": "0"} for source in SOURCES}
        for source in SOURCES:
            self.world.put(configmap(source, **self.data[source]))
        marks = {"steersman.dev/reload": "auto", "steersman.dev/quiet-period": quiet} | annotations
        self.world.put(workload("web", uses=[env(source, "mode") for source in SOURCES], annotations=marks))
        self.world.run()
        self.start = self.world.now

    def evaluate(self):
        self.evaluations += 1
        plan = self.world.step("Deployment", "web").plan
        if plan.action is Action.RESTART:
            self.restarts.append(round(self.world.now - self.start, 3))
            self.world.roll("web")
        self.due = inf if plan.due is None else max(plan.due, self.world.now + 0.001)

    def wait(self, seconds):
        until = self.world.now + seconds
        while self.due <= until:
            self.world.now = max(self.due, self.world.now)
            self.evaluate()
        self.world.now = until

    def edit(self, source, key="mode", annotations=None):
        """Give a key a value that it never had."""
        self.edits += 1
        before = self.world.get("ConfigMap", source)
        self.data[source][key] = str(self.edits)
        self.world.put(configmap(source, annotations=annotations, **self.data[source]))
        self.due = min(self.due, self.world.now + (self.delay(source, before) or 0.0))
        self.wait(0)

    def delay(self, source, before):
        if not self.coalesce:
            return None
        decoded = (self.world.decoded(manifest) for manifest in (before, self.world.get("ConfigMap", source)))
        return self.world.reconcilers["Deployment"].delay_of(WEB, *decoded)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 12).map(lambda half: half / 2), st.sampled_from(SOURCES), st.sampled_from(("mode", "other"))
        ),
        max_size=40,
    )
)
def test_coalesced_edits_cause_the_same_restarts_at_the_same_times_as_an_evaluation_of_each(edits):
    eager, lazy = Storm(coalesce=False), Storm(coalesce=True)
    for gap, source, key in edits:
        for storm in (eager, lazy):
            storm.wait(gap)
            storm.edit(source, key)
    for storm in (eager, lazy):
        storm.wait(100)
    assert lazy.restarts == eager.restarts
    assert lazy.evaluations <= eager.evaluations + len(lazy.restarts)


def test_a_storm_of_edits_costs_an_evaluation_every_few_seconds():
    storm = Storm(coalesce=True)
    for number in range(2_000):
        storm.edit(SOURCES[number % 2])
        storm.wait(0.01)
    assert storm.evaluations <= 20 / COALESCE_SECONDS + 1
    storm.wait(30)
    assert len(storm.restarts) == 1


def test_a_long_window_is_evaluated_now_and_then():
    storm = Storm(coalesce=True, quiet="10m")
    storm.edit("app")
    storm.wait(1)
    storm.edit("db")
    storm.wait(COALESCE_SECONDS)
    ((_, state),) = storm.world.coordinator.states()
    assert [change.source.name for change in state.changes] == ["app", "db"]


@pytest.mark.parametrize("annotations", [{"steersman.dev/urgent": "true"}, {"steersman.dev/freeze": "true"}])
def test_an_edit_that_may_open_or_close_a_gate_is_evaluated_at_once(annotations):
    storm = Storm(coalesce=True)
    storm.edit("app")
    storm.wait(1)
    before = storm.evaluations
    storm.edit("db", annotations=annotations)
    assert storm.evaluations == before + 1


def test_a_process_that_skips_windows_evaluates_every_edit_at_once():
    storm = Storm(coalesce=True)
    storm.edit("app")
    storm.world.shared.pending.skip_windows()
    before = storm.evaluations
    storm.edit("db")
    assert storm.evaluations == before + 1


def test_the_controllers_coalesce_edits_of_configmaps_and_secrets():
    (deployments, *_) = controllers(ReloadOptions(), registry=CollectorRegistry())
    rows = [row for row in deployments.watched if row.target in (ConfigMapSource, SecretSource)]
    assert len(rows) == 2
    assert all(row.after is not None for row in rows)
