"""The embedded API server: a Kubernetes API in memory, for tests, demos and laptops.

    async with EmbeddedServer() as server:
        ...  # any Kubernetes client, with server.kubeconfig()

Its scope is what our operators, kubectl and Helm need. Inside that scope it answers with the code, reason, fields and
objects of kube-apiserver 1.36; the sentences of its errors are its own. The way of a request:

    bytes ─► authentication ─► authorization ─► dispatch      http/, authorization/: a Request, or a page (/version)
      ─► decode ─► defaults                                   write/decoding, resources/: an object of the right type
      ─► patch ─► managed fields                              patch/: what the writer wants, and who owns it
      ─► strategy ─► admission ─► validation                  write/, quota/, validation/, crd/: what may be stored
      ─► storage ─► watch                                     storage/: one revision per write, one log per resource
      ─► representation ─► bytes                              storage/representations, printing/: object, list or Table

A request is one synchronous step from decode to storage, so it needs no lock; `admission/` repeats the step once
webhooks have answered what it needs to know. Afterwards `controllers/` act on the change: definitions are served,
namespaces emptied, dependents of deleted owners collected. `discovery/` describes what is served, `subresources/`
answers what is not the object itself. What real servers say is recorded in `data/` by tools/extract_*.py: discovery,
OpenAPI, Go types, columns, protobuf numbers and the roles a server starts with.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steersman.apiserver.http.faults import Fault
    from steersman.apiserver.http.listener import LogEntry
    from steersman.apiserver.http.server import EmbeddedServer

__all__ = ["EmbeddedServer", "Fault", "LogEntry"]
_MODULES = {"EmbeddedServer": "server", "Fault": "faults", "LogEntry": "listener"}


def __getattr__(name: str) -> Any:
    """Import on first use: the pure parts do not need a web server."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"steersman.apiserver.http.{_MODULES[name]}"), name)
