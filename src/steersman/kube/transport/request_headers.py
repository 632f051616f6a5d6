"""Headers that every request carries: the user agent, and the trace context when a span is active."""

from __future__ import annotations

import platform
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["trace_headers", "user_agent"]

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # as everything else in a cluster calls them


@cache
def user_agent(component: str | None = None) -> str:
    """`steersman/VERSION (os/arch) python/VERSION`, and the component that asks, when there is one."""
    try:
        release = version("steersman")
    except PackageNotFoundError:  # run from a source tree that was never installed
        release = "unknown"
    machine = platform.machine().lower()
    system = f"{platform.system().lower()}/{_ARCHITECTURES.get(machine, machine)}"
    python = ".".join(map(str, sys.version_info[:3]))
    return " ".join(filter(None, [f"steersman/{release}", f"({system})", f"python/{python}", component]))


def trace_headers() -> Mapping[str, str]:
    """The W3C traceparent and tracestate headers of the active span; empty without one, at no cost.

    A span cannot be active before OpenTelemetry has been imported, so it is never imported from here alone: that would
    slow the start of every process on whose machine it happens to be installed.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or not trace.get_current_span().get_span_context().is_valid:
        return {}
    carrier: dict[str, str] = {}
    _propagator().inject(carrier)
    return carrier


@cache
def _propagator() -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()
