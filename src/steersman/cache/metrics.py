"""Metrics of lists and watches, one set per registry, whatever the number of clusters.

Named like the client-go reflector metrics where those exist; every series of a source appears with zero when the
source is made, so that `rate()` works from the first scrape.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

__all__ = ["CacheMetrics", "ReflectorMetrics"]


class CacheMetrics:
    """The collectors; hands out one `ReflectorMetrics` per source."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        where = REGISTRY if registry is None else registry
        source = ["cluster", "source"]
        self.lists = Counter("steersman_cache_lists_total", "Complete lists taken.", source, registry=where)
        self.list_seconds = Counter(
            "steersman_cache_list_seconds_total", "Time spent in complete lists.", source, registry=where
        )
        self.watches = Counter("steersman_cache_watches_total", "Watches opened.", source, registry=where)
        self.watch_seconds = Counter(
            "steersman_cache_watch_seconds_total", "Time spent in watches.", source, registry=where
        )
        self.events = Counter("steersman_cache_watch_events_total", "Events received.", source, registry=where)
        self.stale = Counter(
            "steersman_cache_watch_stale_total", "Silent connections that were replaced.", source, registry=where
        )
        self.failures = Counter(
            "steersman_cache_failures_total", "Lists and watches that failed.", [*source, "reason"], registry=where
        )
        self.undecodable = Counter(
            "steersman_cache_undecodable_total",
            "Objects that did not decode and were left out.",
            source,
            registry=where,
        )
        self.handler_errors = Counter(
            "steersman_cache_handler_errors_total", "Exceptions raised by event handlers.", source, registry=where
        )
        self.objects = Gauge("steersman_cache_objects", "Objects held.", source, registry=where)

    @classmethod
    def of(cls, registry: CollectorRegistry | None = None) -> CacheMetrics:
        """The metrics in that registry, made when first asked for."""
        where = REGISTRY if registry is None else registry
        known = _BY_REGISTRY.get(where)
        if known is None:
            known = _BY_REGISTRY[where] = cls(where)
        return known

    def reflector(self, source: str, cluster: str = "") -> ReflectorMetrics:
        """The metrics of one source."""
        return ReflectorMetrics(self, cluster, source)


_BY_REGISTRY: WeakKeyDictionary[CollectorRegistry, CacheMetrics] = WeakKeyDictionary()


class ReflectorMetrics:
    """One source's part of the metrics."""

    def __init__(self, metrics: CacheMetrics, *labels: str) -> None:
        self._lists = metrics.lists.labels(*labels)
        self._list_seconds = metrics.list_seconds.labels(*labels)
        self._watches = metrics.watches.labels(*labels)
        self._watch_seconds = metrics.watch_seconds.labels(*labels)
        self._events = metrics.events.labels(*labels)
        self._stale = metrics.stale.labels(*labels)
        self._failures = metrics.failures
        self._labels = labels
        self.undecodable = metrics.undecodable.labels(*labels)
        self.handler_errors = metrics.handler_errors.labels(*labels)
        self.objects = metrics.objects.labels(*labels)

    def listed(self, seconds: float) -> None:
        """A complete list took so long."""
        self._lists.inc()
        self._list_seconds.inc(seconds)

    def watch_started(self) -> None:
        """A watch is being opened."""
        self._watches.inc()

    def received(self, events: int) -> None:
        """So many events came together."""
        self._events.inc(events)

    def watch_ended(self, seconds: float) -> None:
        """A watch is over."""
        self._watch_seconds.inc(seconds)

    def stale(self) -> None:
        """A silent connection was given up."""
        self._stale.inc()

    def failed(self, reason: str) -> None:
        """A step failed for `reason`."""
        self._failures.labels(*self._labels, reason).inc()
