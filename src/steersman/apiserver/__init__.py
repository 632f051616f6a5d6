"""The embedded API server: a small, honest Kubernetes API in memory, for tests, demos and laptops.

    async with EmbeddedServer() as server:
        ...  # any Kubernetes client, with server.kubeconfig()

Its scope is what our operators, kubectl and Helm need; inside that scope it behaves like kube-apiserver 1.36.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steersman.apiserver.faults import Fault
    from steersman.apiserver.http import LogEntry
    from steersman.apiserver.server import EmbeddedServer

__all__ = ["EmbeddedServer", "Fault", "LogEntry"]

_HOMES = {
    "EmbeddedServer": "steersman.apiserver.server",
    "Fault": "steersman.apiserver.faults",
    "LogEntry": "steersman.apiserver.http",
}


def __getattr__(name: str) -> Any:
    """Import on first use: who needs only the pure parts does not pay for a web server."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
