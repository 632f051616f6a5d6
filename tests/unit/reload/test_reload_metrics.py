"""The series of the operator: there from the start, and counting what happened."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from steersman.operators.reload.ledger import Ledger, Observed
from steersman.operators.reload.metrics import ReloadMetrics
from steersman.operators.reload.plan import Action, Plan
from steersman.operators.reload.types import SourceKind, SourceRef
from steersman.testing.reloading import World, env, workload

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
    registry, ledger = CollectorRegistry(), Ledger()
    metrics = ReloadMetrics(["Deployment"], registry)
    metrics.watch("Deployment", ledger)
    world = World()
    world.put(workload("web", uses=[env("app", "mode")]))
    web = world.look("Deployment", "web").workload
    ledger.keep(web.ref, Observed(uid=web.metadata.uid, pending={APP: "x"}))
    metrics.looked("Deployment", Plan(action=Action.RESTART, reason=""), written=True)
    metrics.looked("Deployment", Plan(action=Action.SEED, reason=""), written=True)
    metrics.looked("Deployment", Plan(action=Action.WAIT, reason="", gate="window"), written=False)
    metrics.looked("Deployment", Plan(action=Action.NOTHING, reason=""), written=False)

    def value(name, **labels):
        return registry.get_sample_value(f"steersman_reload_{name}", {"kind": "Deployment", **labels})

    assert value("restarts_total") == value("seeds_total") == value("held_total", gate="window") == 1
    assert value("pending") == 1
    ledger.forget(web.ref)
    assert value("pending") == 0
