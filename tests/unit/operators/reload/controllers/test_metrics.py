"""The series of the operator: there from the start, and counting what happened."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from steersman.operators.reload.api.config import SourceKind, SourceRef
from steersman.operators.reload.controllers.change_tracker import ChangeTracker
from steersman.operators.reload.controllers.metrics import ReloadMetrics
from steersman.operators.reload.planning.plan import Action, Observed, WorkloadPlan
from tests.support.reload.miniature import World, env, workload

APP = SourceRef(SourceKind.CONFIGMAP, "shop", "app")


def test_every_series_is_there_before_anything_happened():
    registry = CollectorRegistry()
    ReloadMetrics(["Deployment"], registry)
    for name in ("restarts", "seeds", "refusals", "conflicts", "problems"):
        assert registry.get_sample_value(f"steersman_reload_{name}_total", {"kind": "Deployment"}) == 0
    for gate in ("missing", "freeze", "budget", "window"):
        labels = {"kind": "Deployment", "gate": gate}
        assert registry.get_sample_value("steersman_reload_held_total", labels) == 0


def test_restarts_seeds_and_closed_gates_are_counted_and_what_waits_is_shown():
    registry, tracker = CollectorRegistry(), ChangeTracker()
    metrics = ReloadMetrics(["Deployment"], registry)
    metrics.watch("Deployment", tracker)
    world = World()
    world.put(workload("web", uses=[env("app", "mode")]))
    web = world.evaluate("Deployment", "web").workload
    tracker.keep(web.ref, Observed(uid=web.metadata.uid, pending={APP: "x"}))
    metrics.evaluated("Deployment", WorkloadPlan(action=Action.RESTART, reason=""), written=True)
    metrics.evaluated("Deployment", WorkloadPlan(action=Action.SEED, reason=""), written=True)
    metrics.evaluated("Deployment", WorkloadPlan(action=Action.WAIT, reason="", gate="window"), written=False)
    metrics.evaluated("Deployment", WorkloadPlan(action=Action.NOTHING, reason=""), written=False)

    def value(name, **labels):
        return registry.get_sample_value(f"steersman_reload_{name}", {"kind": "Deployment", **labels})

    assert value("restarts_total") == value("seeds_total") == value("held_total", gate="window") == 1
    assert value("pending") == 1
    tracker.forget(web.ref)
    assert value("pending") == 0
