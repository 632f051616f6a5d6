"""The metrics of controllers and queues, under controller-runtime's names, so that existing dashboards work.

Nothing is counted here: runners and queues count with plain numbers, and this collector reads them at each
scrape. Every series is there from the first scrape on, at zero, so that `rate()` works from the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from steersman.runtime.controller.stuck_keys import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from steersman.runtime.controller.runner import ControllerRunner
    from steersman.runtime.leaderelection.elector import LeaderElector
    from steersman.runtime.reconcile.event_recorder import EventRecorder

__all__ = ["RuntimeCollector"]

NAMED_KEYS = 10  # labels are not for long lists


class RuntimeCollector(Collector):
    """Shows the runners, queues, election and recorder of one manager."""

    def __init__(
        self,
        runners: Callable[[], Iterable[ControllerRunner]],
        *,
        elector: Callable[[], LeaderElector | None] = lambda: None,
        recorders: Callable[[], Iterable[EventRecorder]] = lambda: (),
        restarts: Callable[[], dict[str, int]] = dict,
        withheld: Callable[[], dict[str, int]] = dict,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._runners = runners
        self._elector = elector
        self._recorders = recorders
        self._restarts = restarts
        self._withheld = withheld
        self._registry = REGISTRY if registry is None else registry
        self._registry.register(self)

    def close(self) -> None:
        """Show nothing more."""
        self._registry.unregister(self)

    def collect(self) -> Iterator[Metric]:
        runners = list(self._runners())
        yield from _controllers(runners)
        yield from _queues(runners)
        yield from self._election()
        yield _counter(
            "steersman_source_failures",
            "Mappings of a change to keys that failed, so that the change was lost.",
            ["controller", "source"],
            [((e.name, str(s.watch)), s.failures) for e in runners for s in e.sources if s.watch.to is not None],
        )
        yield _counter(
            "steersman_restarts",
            "Restarts of background tasks that failed.",
            ["task"],
            [((task,), count) for task, count in self._restarts().items()],
        )
        yield _counter(
            "steersman_writes_withheld",
            "Writes and effects not made: sent as dry runs, or refused because this process may not act.",
            ["reason"],
            [((reason,), count) for reason, count in self._withheld().items()],
        )
        dropped = [((), sum(recorder.dropped for recorder in self._recorders()))]
        yield _counter("steersman_events_dropped", "Events not recorded: too many, or not accepted.", [], dropped)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the series depend on what runs, and reading them must not need it to run."""
        return ()

    def _election(self) -> Iterator[Metric]:
        elector = self._elector()
        name = ["name"]
        leading = GaugeMetricFamily("leader_election_master_status", "1 while this process leads.", labels=name)
        slow = CounterMetricFamily(
            "leader_election_slowpath", "Renewals that had to read the lease first.", labels=name
        )
        if elector is not None:
            leading.add_metric([elector.name], float(elector.leading()))
            slow.add_metric([elector.name], elector.slow_renewals)
        yield leading
        yield slow


def _controllers(runners: list[ControllerRunner]) -> Iterator[Metric]:
    prefix, label = "controller_runtime", ["controller"]
    results = [((e.name, result), count) for e in runners for result, count in e.tally.results.items()]
    yield _counter(f"{prefix}_reconcile", "Reconciles by result.", ["controller", "result"], results)
    errors = [((e.name,), e.tally.results["error"]) for e in runners]
    yield _counter(f"{prefix}_reconcile_errors", "Reconciles that failed.", label, errors)
    terminal = [((e.name,), e.tally.terminal_errors) for e in runners]
    yield _counter(
        f"{prefix}_terminal_reconcile_errors",
        "Reconciles that failed and are not retried until something changes.",
        label,
        terminal,
    )
    panics = [((e.name,), e.tally.panics) for e in runners]
    yield _counter(f"{prefix}_reconcile_panics", "Reconciles that failed with an unexpected error.", label, panics)
    timeouts = [((e.name,), e.tally.timeouts) for e in runners]
    yield _counter(f"{prefix}_reconcile_timeouts", "Reconciles that took longer than allowed.", label, timeouts)
    seconds = HistogramMetricFamily(f"{prefix}_reconcile_time_seconds", "Time of one reconcile.", labels=label)
    for e in runners:
        seconds.add_metric([e.name], e.tally.seconds.cumulative(), e.tally.seconds.total)
    yield seconds
    size = [((e.name,), e.controller.options.concurrency) for e in runners]
    yield _gauge(f"{prefix}_max_concurrent_reconciles", "Workers.", label, size)
    active = [((e.name,), e.tally.active) for e in runners]
    yield _gauge(f"{prefix}_active_workers", "Workers that are reconciling.", label, active)
    yield from _stuck_keys(runners)


def _stuck_keys(runners: list[ControllerRunner]) -> Iterator[Metric]:
    found = [(e.name, stuck) for e in runners for stuck in e.stuck_keys()]
    counts = {(e.name, kind): 0 for e in runners for kind in KINDS}
    named = []
    for name, stuck in found:
        counts[name, stuck.kind] += 1
        if counts[name, stuck.kind] <= NAMED_KEYS:
            named.append(((name, stuck.kind, str(stuck.key)), 1))
    text = "Keys that write every time, hang or keep failing."
    yield _gauge("steersman_troubled_keys", text, ["controller", "trouble"], counts.items())
    text = f"Their names, at most {NAMED_KEYS} of each sort."
    yield _gauge("steersman_troubled_key_info", text, ["controller", "trouble", "object"], named)


def _queues(runners: list[ControllerRunner]) -> Iterator[Metric]:
    label = ["name", "controller"]
    depth = GaugeMetricFamily("workqueue_depth", "Keys that are ready, by priority.", labels=[*label, "priority"])
    queued = HistogramMetricFamily("workqueue_queue_duration_seconds", "From ready to running.", labels=label)
    worked = HistogramMetricFamily("workqueue_work_duration_seconds", "From running to done.", labels=label)
    unfinished, longest, adds, retries = [], [], [], []
    for runner in runners:
        queue, names = runner.queue, (runner.name, runner.name)
        for priority, keys in (queue.depths() or {0: 0}).items():
            depth.add_metric([*names, str(priority)], keys)
        queued.add_metric(list(names), queue.queue_seconds.cumulative(), queue.queue_seconds.total)
        worked.add_metric(list(names), queue.work_seconds.cumulative(), queue.work_seconds.total)
        running = queue.processing_seconds()
        unfinished.append((names, sum(running)))
        longest.append((names, max(running, default=0.0)))
        adds.append((names, queue.adds))
        retries.append((names, queue.retries))
    yield depth
    yield queued
    yield worked
    yield _counter("workqueue_adds", "Keys that became dirty.", label, adds)
    yield _counter("workqueue_retries", "Keys that were put back after a failure.", label, retries)
    yield _gauge("workqueue_unfinished_work_seconds", "Time that running keys have taken so far.", label, unfinished)
    yield _gauge("workqueue_longest_running_processor_seconds", "The longest of them.", label, longest)


def _counter(name: str, text: str, labels: list[str], values: Iterable[tuple[tuple[str, ...], Any]]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for names, value in values:
        family.add_metric(list(names), value)
    return family


def _gauge(name: str, text: str, labels: list[str], values: Iterable[tuple[tuple[str, ...], Any]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for names, value in values:
        family.add_metric(list(names), value)
    return family
