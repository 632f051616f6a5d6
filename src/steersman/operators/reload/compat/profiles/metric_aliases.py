"""The metrics of the originals under their old names, so that alerts and dashboards go on working.

Each set listens to the controllers and counts what its original would have counted; what the rest of this program knows
already (watches, queues, the election) is read at each scrape. Every series is there from the first scrape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from prometheus_client import Counter, Gauge, Histogram, Info
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from steersman.clock import SYSTEM_CLOCK
from steersman.operators.reload.api.config import SourceKind
from steersman.operators.reload.planning.plan import Action

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from steersman.kube.api.errors import KubeError
    from steersman.kube.api.gvk import NamespacedName
    from steersman.operators.reload.compat.profiles.profile import Profile
    from steersman.operators.reload.controllers.change_tracker import PendingChanges
    from steersman.operators.reload.planning.evaluate import Evaluation
    from steersman.operators.reload.planning.plan import WorkloadPlan

_SS: Final = "configmap_reload"
_XG: Final = "deployment_restart_controller"
_LATENCY: Final = (0.5, 1, 2, 5, 10, 20, 30, 60)
_ACTION_LATENCY: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_RESOURCES: Final = {
    SourceKind.CONFIGMAP: "configmaps",
    SourceKind.SECRET: "secrets",
    SourceKind.PROVIDER_CLASS: "secretproviderclasspodstatuses",
}
Durations = tuple[list[tuple[str, int]], float]  # by upper bound as Prometheus counts them, and their sum
NONE_YET: Final[Durations] = ([("+Inf", 0)], 0.0)


class ProcessMetrics:
    """What the process knows of itself beside the controllers; read at every scrape."""

    def __init__(
        self,
        *,
        leading: Callable[[], bool] = lambda: True,
        watches: Callable[[], tuple[int, int, int]] = lambda: (0, 0, 0),
        sources: Callable[[], int] = lambda: 0,
        queue: Callable[[], tuple[int, int, int]] = lambda: (0, 0, 0),
        evaluations: Callable[[], Durations] = lambda: NONE_YET,
        queued: Callable[[], Durations] = lambda: NONE_YET,
        tick: Callable[[], float] = SYSTEM_CLOCK.monotonic,
    ) -> None:
        """`watches`: opened, failed, events received; `queue`: depth, additions, retries.

        `evaluations` and `queued`: how long evaluations and waiting in the queue took. `tick`: the time of windows.
        """
        self.leading = leading
        self.watches = watches
        self.sources = sources
        self.queue = queue
        self.evaluations = evaluations
        self.queued = queued
        self.tick = tick


def aliases_for(profile: Profile, pending: PendingChanges, process: ProcessMetrics, registry: CollectorRegistry) -> Any:
    """The set of the profile's original; wave has only those of its runtime, which are ours too."""
    if profile.name == "shipshape":
        interval = profile.config.options().window.interval.total_seconds()
        return ShipshapeAliases(pending, process, registry, profile.info, interval=interval)
    if profile.name == "xing":
        return XingAliases(pending, process, registry)
    if profile.name == "reloader":
        return ReloaderAliases(process, registry, by_namespace=profile.by_namespace)
    return None


class _Read(Collector):
    """Families made at every scrape."""

    def __init__(self, families: Callable[[], Iterable[Metric]], registry: CollectorRegistry) -> None:
        self._families = families
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        return self._families()

    def describe(self) -> Iterable[Metric]:
        """Nothing: reading them must not need anything to run."""
        return ()


class ShipshapeAliases:
    """`configmap_reload_*`."""

    def __init__(
        self,
        pending: PendingChanges,
        process: ProcessMetrics,
        registry: CollectorRegistry,
        info: dict[str, str],
        *,
        interval: float,
    ) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"{_SS}_{name}", text, labels, registry=registry)

        self._pending = pending
        self._process = process
        self._interval = interval
        self._waiting: dict[Any, Any] = {}
        self.restarts = counter("restarts", "Deployments restarted.", "env")
        self.errors = counter("errors", "Restarts that failed.", "env")
        self.debounced = counter("debounced", "Changes that wait for the window.", "env")
        self.retries = counter("retry", "Restarts that are tried again.", "env")
        self.dropped = counter("dropped_restarts", "Restarts given up at the end of the process.")
        self.transitions = counter("leader_transitions", "Leadership gained and lost.", "transition")
        for transition in ("acquired", "lost"):
            self.transitions.labels(transition)
        self.latency = Histogram(
            f"{_SS}_leader_acquire_latency_seconds", "Time until elected.", buckets=_LATENCY, registry=registry
        )
        Info(_SS, "The original this stands in for.", registry=registry).info(info)
        _Read(self._families, registry)

    def evaluated(self, evaluation: Evaluation, *, written: bool) -> None:
        """Count restarts, and changes that begin to wait."""
        env, ref, plan = evaluation.workload.labels.get("env", ""), evaluation.workload.ref, evaluation.plan
        if evaluation.edges.tracked:
            for family in (self.restarts, self.errors):
                family.labels(env)
        if written and plan.action is Action.RESTART:
            self.restarts.labels(env).inc()
        if not self._debounced(plan):
            self._waiting.pop(ref, None)
        elif self._waiting.get(ref) != plan.observed.pending:
            self._waiting[ref] = plan.observed.pending
            self.debounced.labels(env).inc()

    def _debounced(self, plan: WorkloadPlan) -> bool:
        """Whether it waits because of an earlier restart, and not only for what is applied together with it."""
        applied = plan.observed.applied
        if plan.gate != "window" or plan.due is None or applied is None or not applied.restarts:
            return False
        return plan.due >= max(applied.restarts) + self._interval

    def failed(self, evaluation: Evaluation, error: KubeError) -> None:  # noqa: ARG002  # that it failed is enough
        """Count it; it is tried again."""
        env = evaluation.workload.labels.get("env", "")
        self.errors.labels(env).inc()
        self.retries.labels(env).inc()

    def elected(self, waited_seconds: float) -> None:
        """This process leads."""
        self.transitions.labels("acquired").inc()
        self.latency.observe(waited_seconds)

    def deposed(self) -> None:
        """This process leads no more."""
        self.transitions.labels("lost").inc()

    def _families(self) -> Iterator[Metric]:
        opened, failed, _ = self._process.watches()
        yield CounterMetricFamily(f"{_SS}_watch_errors", "Lists and watches that failed.", value=failed)
        again = max(0, opened - 1)
        yield CounterMetricFamily(f"{_SS}_watch_reconnects", "Watches opened after the first.", value=again)
        waiting = sum(len(refs) for refs in self._pending.waiting().values())
        yield GaugeMetricFamily(f"{_SS}_pending_restarts", "Workloads that wait.", value=waiting)
        leads = float(self._process.leading())
        yield GaugeMetricFamily(f"{_SS}_leader_state", "1 while this process leads.", value=leads)


class XingAliases:
    """`deployment_restart_controller_*`."""

    def __init__(self, pending: PendingChanges, process: ProcessMetrics, registry: CollectorRegistry) -> None:
        self._pending = pending
        self._process = process
        self._tracked: set[tuple[str, NamespacedName]] = set()  # by name of the controller
        self.updates = Counter(f"{_XG}_deployment_annotation_updates", "Patches sent.", registry=registry)
        self.restarts = Counter(f"{_XG}_deployment_restarts", "Workloads restarted.", registry=registry)
        self.processed = Counter(f"{_XG}_changes_processed", "Changes acted on.", registry=registry)
        _Read(self._families, registry)

    def evaluated(self, evaluation: Evaluation, *, written: bool) -> None:
        """Count what was patched and for what."""
        key = (f"reload-{type(evaluation.workload).KIND.plural}", evaluation.workload.ref)
        if evaluation.edges.tracked:
            self._tracked.add(key)
        else:
            self._tracked.discard(key)
        if written:
            self.updates.inc()
            self.processed.inc(max(1, len(evaluation.plan.changes)))
            if evaluation.plan.action is Action.RESTART:
                self.restarts.inc()

    def failed(self, evaluation: Evaluation, error: KubeError) -> None:  # noqa: ARG002  # the attempt counts
        """The original counts attempts."""
        self.updates.inc()

    def _families(self) -> Iterator[Metric]:
        trackers = self._pending.trackers
        self._tracked = {key for key in self._tracked if key[0] not in trackers or trackers[key[0]].knows(key[1])}
        _, _, events = self._process.watches()
        yield CounterMetricFamily(f"{_XG}_resource_versions", "Changes of objects seen.", value=events)
        yield GaugeMetricFamily(f"{_XG}_configs_total", "ConfigMaps and Secrets.", value=self._process.sources())
        yield GaugeMetricFamily(f"{_XG}_deployments_total", "Workloads that take part.", value=len(self._tracked))
        waiting = sum(len(refs) for refs in self._pending.waiting().values())
        yield GaugeMetricFamily(f"{_XG}_changes_waiting_total", "Workloads that wait.", value=waiting)


class ReloaderAliases:
    """`reloader_*`."""

    def __init__(self, process: ProcessMetrics, registry: CollectorRegistry, *, by_namespace: bool) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"reloader_{name}", text, labels, registry=registry)

        self._process = process
        self.executed = counter("reload_executed", "Reloads executed.", "success")
        for success in ("true", "false"):
            self.executed.labels(success)
        name = "reloader_reload_executed_total_by_namespace"
        labels = ["success", "namespace"]
        self._spaces: Gauge | None = (
            Gauge(name, "Reloads executed, by namespace.", labels, registry=registry) if by_namespace else None
        )
        self.reconciles = counter("reconcile", "Evaluations of workloads, by result.", "result")
        self.actions = counter("action", "Restarts, by kind and result.", "workload_kind", "result")
        self.skipped = counter("skipped", "Evaluations without a restart, by reason.", "reason")
        self.errors = counter("errors", "Restarts that failed, by type.", "type")
        self.scanned = counter("workloads_scanned", "Workloads evaluated.", "kind")
        self.matched = counter("workloads_matched", "Workloads restarted.", "kind")
        self.received = counter("events_received", "Changes of sources seen.", "event_type", "resource_type")
        self.processed = counter(
            "events_processed", "Changes of sources acted on.", "event_type", "resource_type", "result"
        )
        self.latency = Histogram(
            "reloader_action_latency_seconds",
            "From the first observation of a change to its restart.",
            ["workload_kind"],
            buckets=_ACTION_LATENCY,
            registry=registry,
        )
        _Read(self._families, registry)

    def evaluated(self, evaluation: Evaluation, *, written: bool) -> None:
        """Count evaluations and their outcome."""
        kind = type(evaluation.workload).KIND.kind
        self.scanned.labels(kind).inc()
        self.reconciles.labels("success").inc()
        if written and evaluation.plan.action is Action.RESTART:
            self.matched.labels(kind).inc()
            self.actions.labels(kind, "success").inc()
            self._executed("true", evaluation, "success")
        elif not evaluation.edges.tracked:
            self.skipped.labels("not_enrolled").inc()
        elif not evaluation.plan.changes:
            self.skipped.labels("no_change").inc()

    def failed(self, evaluation: Evaluation, error: KubeError) -> None:
        """Count what the API server rejected."""
        kind = type(evaluation.workload).KIND.kind
        self.reconciles.labels("error").inc()
        self.actions.labels(kind, "error").inc()
        self.errors.labels(error.reason or "unknown").inc()
        self._executed("false", evaluation, "error")

    def saw(self, resource: str, old: object | None, new: object | None, _initial: bool = False) -> None:
        """Count a change of a source that the watch brought; the original counts what was there at its start too."""
        self.received.labels("add" if old is None else "delete" if new is None else "update", resource).inc()

    def _executed(self, success: str, evaluation: Evaluation, result: str) -> None:
        namespace, observed = evaluation.workload.namespace, evaluation.plan.observed
        self.executed.labels(success).inc()
        if self._spaces is not None:
            self._spaces.labels(success, namespace).inc()
        for kind in sorted({change.source.kind for change in evaluation.plan.changes}):
            self.processed.labels("unknown", _RESOURCES[kind], result).inc()  # the original knows no better
        if evaluation.plan.changes:
            waited = max(0.0, self._process.tick() - observed.first)
            self.latency.labels(type(evaluation.workload).KIND.kind).observe(waited)

    def _families(self) -> Iterator[Metric]:
        depth, adds, retries = self._process.queue()
        yield GaugeMetricFamily("reloader_workqueue_depth", "Keys that are ready.", value=depth)
        yield CounterMetricFamily("reloader_workqueue_adds", "Keys that became dirty.", value=adds)
        yield CounterMetricFamily("reloader_retries", "Keys put back after a failure.", value=retries)
        evaluations = HistogramMetricFamily(
            "reloader_reconcile_duration_seconds", "Time of one evaluation.", labels=["result"]
        )
        evaluations.add_metric(["success"], *self._process.evaluations())
        yield evaluations
        buckets, total = self._process.queued()
        text = "Time in the queue before an evaluation."
        yield HistogramMetricFamily("reloader_workqueue_latency_seconds", text, buckets=buckets, sum_value=total)
