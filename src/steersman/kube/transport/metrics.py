"""What the client reports about its requests, under the names client-go uses, so existing dashboards work.

One `ClientMetrics` belongs to one registry; clients that share a registry share the metrics.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

__all__ = ["ClientMetrics"]

_SECONDS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_BYTES: Final = (64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)

_by_registry: WeakKeyDictionary[CollectorRegistry, ClientMetrics] = WeakKeyDictionary()


class ClientMetrics:
    """The rest_client_* metrics of one registry. `verb` and `method` are HTTP methods, `host` is host:port."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "rest_client_requests_total",
            "HTTP requests by status code (or <error> when there was no answer), method and host.",
            ["code", "method", "host"],
            registry=registry,
        )
        self.retries = Counter(
            "rest_client_request_retries_total",
            "Requests that were sent again, by the status code that caused it, verb and host.",
            ["code", "verb", "host"],
            registry=registry,
        )
        self.duration = Histogram(
            "rest_client_request_duration_seconds",
            "Time until the whole answer was read; for a stream, until its headers arrived.",
            ["verb", "host"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.request_size = Histogram(
            "rest_client_request_size_bytes",
            "Size of request bodies.",
            ["verb", "host"],
            buckets=_BYTES,
            registry=registry,
        )
        self.response_size = Histogram(
            "rest_client_response_size_bytes",
            "Size of response bodies, decompressed; streams are not counted.",
            ["verb", "host"],
            buckets=_BYTES,
            registry=registry,
        )
        self.exec_calls = Counter(
            "rest_client_exec_plugin_call_total",
            "Runs of credential plugins by exit code and outcome.",
            ["code", "call_status"],
            registry=registry,
        )

    @classmethod
    def of(cls, registry: CollectorRegistry | None = None) -> ClientMetrics:
        """The metrics of `registry` (the process-wide one by default), made on first use."""
        registry = registry if registry is not None else REGISTRY
        found = _by_registry.get(registry)
        if found is None:
            found = _by_registry[registry] = cls(registry)
        return found
