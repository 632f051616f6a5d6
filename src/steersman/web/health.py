"""The state of the process, read from its manager, and samples of the last ten minutes.

Reading costs no request and changes nothing. A sample is a handful of numbers every few seconds, kept for ten minutes,
so that a person who opens the page sees what happened before.
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

from steersman.clock import SYSTEM_CLOCK
from steersman.web.model import Check, ControllerHealth, Leadership, Series, Vitals, WatchHealth

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.clock import Clock
    from steersman.runtime.controller.runner import ControllerRunner
    from steersman.runtime.manager.manager import Manager
    from steersman.runtime.observability.histogram import Histogram

STEP_SECONDS: Final = 5.0
KEPT: Final = 120  # samples: ten minutes

_SERIES: Final = (
    ("reconciles", "/s"),
    ("reconcile time", "ms"),
    ("queue wait", "ms"),
    ("keys in queues", "keys"),
    ("oldest watch event", "s"),
)


class HealthReader:
    """Reads the state of a manager."""

    def __init__(self, manager: Manager, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._manager = manager
        self._clock = clock
        self._started = datetime.fromtimestamp(clock.time(), UTC)
        self._samples: dict[str, deque[float]] = {name: deque(maxlen=KEPT) for name, _ in _SERIES}
        self._last = _Counters(())

    def read(self) -> Vitals:
        """Now."""
        manager = self._manager
        return Vitals(
            version=own_version(),
            started=self._started,
            leadership=self._leadership(),
            checks=[
                Check(name=name, problem=problem) for name, problem in {**manager.alive(), **manager.ready()}.items()
            ],
            watches=[
                WatchHealth(
                    name=watch.name,
                    synced=watch.synced,
                    objects=watch.objects,
                    age_seconds=_rounded(watch.last_event_seconds),
                    revision=watch.resource_version,
                    problem=watch.problem,
                    unknown=watch.unknown,
                    unseen=sorted(watch.unseen),
                    coverage=watch.coverage,
                )
                for watch in manager.watches()
            ],
            controllers=[_controller(engine) for engine in manager.runners.values()],
            series=[
                Series(name=name, unit=unit, step_seconds=STEP_SECONDS, values=list(self._samples[name]))
                for name, unit in _SERIES
            ],
            warnings=manager.warnings(),
        )

    def signature(self) -> object:
        """A value that differs whenever something may have happened in the cluster or in a controller."""
        return (
            tuple((watch.resource_version, watch.problem is None) for watch in self._manager.watches()),
            tuple(sum(engine.tally.results.values()) for engine in self._manager.runners.values()),
            self._manager.working.is_set(),
        )

    async def sample(self) -> None:
        """Take a sample every few seconds, for ever."""
        while True:
            await self._clock.sleep(STEP_SECONDS)
            self.take()

    def take(self) -> None:
        """Take one sample."""
        engines = list(self._manager.runners.values())
        now, before = _Counters(engines), self._last
        self._last = now
        done, queued = now.reconciled - before.reconciled, now.queued - before.queued
        ages = [watch.last_event_seconds for watch in self._manager.watches() if watch.last_event_seconds is not None]
        values = {
            "reconciles": done / STEP_SECONDS,
            "reconcile time": 1000 * (now.seconds - before.seconds) / done if done else 0.0,
            "queue wait": 1000 * (now.queue_seconds - before.queue_seconds) / queued if queued else 0.0,
            "keys in queues": float(sum(sum(engine.queue.describe(0)["counts"].values()) for engine in engines)),
            "oldest watch event": max(ages, default=0.0),
        }
        for name, value in values.items():
            self._samples[name].append(round(value, 3))

    def _leadership(self) -> Leadership:
        elector, leading = self._manager.elector, self._manager.working.is_set()
        if elector is None:
            return Leadership(elected=False, leading=leading)
        return Leadership(
            elected=True,
            leading=leading,
            identity=elector.identity,
            leader=elector.leader,
            namespace=self._manager.cluster().client.namespace,
        )


class _Counters:
    """What the engines had counted when it was made."""

    def __init__(self, engines: Iterable[ControllerRunner]) -> None:
        self.reconciled = self.queued = 0
        self.seconds = self.queue_seconds = 0.0
        for engine in engines:
            self.reconciled += engine.tally.seconds.count
            self.seconds += engine.tally.seconds.total
            self.queued += engine.queue.queue_seconds.count
            self.queue_seconds += engine.queue.queue_seconds.total


def _controller(engine: ControllerRunner) -> ControllerHealth:
    counts, results = engine.queue.describe(0)["counts"], engine.tally.results
    return ControllerHealth(
        name=engine.name,
        synced=engine.has_synced(),
        ready=counts["ready"],
        waiting=counts["waiting"],
        running=counts["running"],
        workers=engine.controller.options.concurrency,
        succeeded=sum(results.values()) - results["error"],
        failed=results["error"],
        retries=engine.queue.retries,
        mean_seconds=_mean(engine.tally.seconds),
        mean_queue_seconds=_mean(engine.queue.queue_seconds),
    )


def _mean(histogram: Histogram) -> float | None:
    return round(histogram.total / histogram.count, 6) if histogram.count else None


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def own_version() -> str:
    """The version of this program."""
    try:
        return version("steersman")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "unknown"
