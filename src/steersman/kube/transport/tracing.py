"""OpenTelemetry spans: of each request, and of each reconcile with the time its key was in the queue.

    reconcile zone    from when the key was ready; with the object, and the error if it failed
    ├── queue         until a worker took the key
    └── PATCH         each attempt of each request, with its path and status; the API server continues the trace

A program turns it on by setting a tracer provider, as the OpenTelemetry SDK describes. Without one there are no spans,
and asking whether there is one costs a lookup: OpenTelemetry is never imported from here, because a provider cannot be
set before the program has imported it.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

__all__ = ["active_tracer", "reconcile_span", "record_error", "traced_request"]

T = TypeVar("T")

_known: tuple[Any, Any] = (None, None)  # the provider, and its tracer


def active_tracer() -> Any | None:
    """The tracer of the program's provider; None when the program has set none."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        return None
    global _known  # noqa: PLW0603  making a tracer costs more than a span
    if _known[0] is not provider:
        _known = (provider, provider.get_tracer("steersman"))
    return _known[1]


async def traced_request(tracer: Any, method: str, path: str, server: str, attempt: Awaitable[T]) -> T:
    """Await one attempt of a request within a span; its query is left out, which may hold anything."""
    from opentelemetry.trace import SpanKind

    host, _, port = server.rpartition(":")
    attributes: dict[str, Any] = {"http.request.method": method, "server.address": host}
    attributes["url.path"] = path.partition("?")[0]
    if port.isdecimal():
        attributes["server.port"] = int(port)
    with tracer.start_as_current_span(method, kind=SpanKind.CLIENT, attributes=attributes) as span:
        outcome = await attempt
        error = getattr(outcome, "error", None)
        code = getattr(outcome, "code", "") or getattr(outcome, "status", 101)
        if str(code).isdecimal():
            span.set_attribute("http.response.status_code", int(code))
        if error is not None:
            _fail(span, error)
        return outcome


@contextmanager
def reconcile_span(tracer: Any, controller: str, key: str, *, now: float, queued_seconds: float) -> Iterator[None]:
    """A span from when the key was ready, `now` being the wall-clock time at which its reconcile begins."""
    begun = int(now * 1e9)
    ready = begun - int(queued_seconds * 1e9)
    attributes = {
        "steersman.controller": controller,
        "steersman.object": key,
        "steersman.queue_seconds": queued_seconds,
    }
    with tracer.start_as_current_span(f"reconcile {controller}", start_time=ready, attributes=attributes):
        tracer.start_span("queue", start_time=ready).end(begun)
        yield


def record_error(error: Exception) -> None:
    """The current span, if there is one, failed with `error`."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is not None:
        _fail(trace.get_current_span(), error)


def _fail(span: Any, error: Exception) -> None:
    from opentelemetry.trace import Status, StatusCode

    if span.is_recording():
        span.set_attribute("error.type", type(error).__name__)
        span.set_status(Status(StatusCode.ERROR, str(error)))
