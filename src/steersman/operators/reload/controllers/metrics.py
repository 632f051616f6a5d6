"""The metrics of the reload operator: counters by kind of workload, and what waits right now.

Every series exists from the first scrape on, at zero, so that `rate()` works from the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from steersman.operators.reload.planning.gates import GATES
from steersman.operators.reload.planning.plan import Action

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.operators.reload.controllers.change_tracker import ChangeTracker
    from steersman.operators.reload.planning.plan import WorkloadPlan


class ReloadMetrics:
    """The series of one operator; made once per registry."""

    def __init__(self, kinds: Iterable[str] = (), registry: CollectorRegistry | None = None) -> None:
        registry = REGISTRY if registry is None else registry
        self.restarts = Counter(
            "steersman_reload_restarts", "Workloads restarted because a source changed.", ["kind"], registry=registry
        )
        self.seeds = Counter(
            "steersman_reload_seeds",
            "Workloads whose state was written, no restart.",
            ["kind"],
            registry=registry,
        )
        self.refusals = Counter(
            "steersman_reload_refusals", "Patches of workloads that the server refused.", ["kind"], registry=registry
        )
        self.conflicts = Counter(
            "steersman_reload_conflicts",
            "Patches made again, on a newer workload.",
            ["kind"],
            registry=registry,
        )
        self.held = Counter(
            "steersman_reload_held",
            "Restarts found held back, by gate.",
            ["kind", "gate"],
            registry=registry,
        )
        self.problems = Counter(
            "steersman_reload_problems", "Annotations found that make no sense.", ["kind"], registry=registry
        )
        self.pending = Gauge(
            "steersman_reload_pending", "Workloads with changes that wait to be applied.", ["kind"], registry=registry
        )
        self.outcomes = Counter(
            "steersman_reload_rollouts",
            "Restarts whose outcome is known: available or failed.",
            ["kind", "outcome"],
            registry=registry,
        )
        self.seconds = Histogram(
            "steersman_reload_rollout_seconds",
            "From a restart to its outcome.",
            ["kind"],
            buckets=(1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800),
            registry=registry,
        )
        self.under_way = Gauge(
            "steersman_reload_rollouts_under_way", "Restarts that are not available yet.", registry=registry
        )
        for kind in kinds:
            for outcome in ("available", "failed"):
                self.outcomes.labels(kind, outcome)
            self.seconds.labels(kind)
            for counter in (self.restarts, self.seeds, self.refusals, self.conflicts, self.problems):
                counter.labels(kind)
            for gate in GATES:
                self.held.labels(kind, gate)

    def watch(self, kind: str, tracker: ChangeTracker) -> None:
        """Show how many workloads of that kind wait."""
        self.pending.labels(kind).set_function(lambda: tracker.pending)

    def ended(self, kind: str, outcome: str, seconds: float) -> None:
        """A restart became available, or failed."""
        self.outcomes.labels(kind, outcome).inc()
        self.seconds.labels(kind).observe(seconds)

    def evaluated(self, kind: str, plan: WorkloadPlan, *, written: bool) -> None:
        """A plan was made, and carried out as far as there was anything to write."""
        if written and plan.action is Action.RESTART:
            self.restarts.labels(kind).inc()
        elif written:
            self.seeds.labels(kind).inc()
        if plan.gate:
            self.held.labels(kind, plan.gate).inc()
