"""The simulation: small controllers that make a bare API server behave like a cluster.

    async with simulation(client):
        ...  # Deployments get pods, pods become ready, services get endpoints

Deployments, StatefulSets, DaemonSets, Jobs, CronJobs, Services, Pods and Nodes behave as on a cluster whose containers
always start, unless an annotation on the pod asks for a failure (`steersman.simulate.annotations`). Nothing runs,
nothing is kept in memory, and nothing is written when nothing changes. Not for a cluster with controllers of its own.

    watch ──► reconcile(key): children from the cache ──► plan (pure) ──► create, patch, delete, status

`reconcilers` has the table of controllers and the one function that carries out plans; `workloads` has one planner per
workload kind, `kubelet`, `nodes` and `endpoints` those of pods, nodes and services.
"""

from __future__ import annotations

from steersman.simulate.reconcilers import controllers, simulation

__all__ = ["controllers", "simulation"]
