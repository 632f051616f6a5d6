"""The simulation: small controllers that make a bare API server behave like a cluster.

    async with simulation(client):
        ...  # Deployments get pods, pods become ready, services get endpoints

Deployments, StatefulSets, DaemonSets, Jobs, CronJobs, Services, Pods and Nodes behave as on a cluster whose containers
always start, unless an annotation on the pod asks for something else (`steersman.simulate.annotations`).
They are ordinary controllers; nothing runs, nothing is stored, and nothing is written when nothing changes.
Not for a cluster that has controllers of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steersman.simulate.reconcilers import controllers
    from steersman.simulate.session import simulation

__all__ = ["controllers", "simulation"]

_HOMES = {"controllers": "steersman.simulate.reconcilers", "simulation": "steersman.simulate.session"}


def __getattr__(name: str) -> Any:
    """Import on first use: the pure parts cost nothing else."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
