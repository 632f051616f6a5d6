"""W3C trace context, when a span of OpenTelemetry is active; otherwise nothing, at no cost.

Nobody can have started a span before somebody imported OpenTelemetry, so it is never imported from here alone: that
would slow the start of every process on whose machine it happens to be installed.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["trace_headers"]


def trace_headers() -> Mapping[str, str]:
    """The traceparent and tracestate headers of the active span."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or not trace.get_current_span().get_span_context().is_valid:
        return {}
    carrier: dict[str, str] = {}
    _propagator().inject(carrier)
    return carrier


@functools.cache
def _propagator() -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()
