"""W3C trace context, when OpenTelemetry is installed and a span is active; otherwise nothing, at no cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["trace_headers"]

try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:

    def trace_headers() -> Mapping[str, str]:
        """The traceparent and tracestate headers of the active span."""
        return {}

else:
    _PROPAGATOR = TraceContextTextMapPropagator()

    def trace_headers() -> Mapping[str, str]:
        """The traceparent and tracestate headers of the active span."""
        if not trace.get_current_span().get_span_context().is_valid:
            return {}
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return carrier
