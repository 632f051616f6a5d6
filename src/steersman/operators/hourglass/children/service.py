"""The Service of a performer, and on demand its disruption budget and network policy. Pure.

All have the performer's name and label, so they are found whatever their owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.operators.hourglass.api.types import (
    APP,
    EXECUTOR_APP,
    NAME,
    PERFORMER,
    PERFORMER_APP,
    REVISION,
    pod_name,
)
from steersman.operators.hourglass.children.pod import port_of

if TYPE_CHECKING:
    from steersman.operators.hourglass.api.types import DisruptionBudget, PerformerSpec

Wire = dict[str, Any]


def _metadata(name: str, namespace: str) -> Wire:
    return {"name": pod_name(name), "namespace": namespace, "labels": {APP: PERFORMER_APP, PERFORMER: name}}


def service_for(name: str, namespace: str, spec: PerformerSpec, revision: str) -> Wire:
    """The stable address. `revision` narrows it to the pods of one template; empty: all of the performer's."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(name, namespace),
        "spec": {
            "type": "ClusterIP",
            "selector": {PERFORMER: name} | ({REVISION: revision} if revision else {}),
            "ports": [{"name": "grpc", "port": port_of(spec), "targetPort": "grpc", "protocol": "TCP"}],
        },
    }


def budget_for(metadata: Wire, selector: dict[str, str], budget: DisruptionBudget | None, replicas: int) -> Wire | None:
    """A disruption budget: as asked for, else one pod at a time where there are several."""
    if budget is None and replicas < 2:
        return None
    limits = msgspec.to_builtins(budget) if budget is not None else {"maxUnavailable": 1}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata,
        "spec": {"selector": {"matchLabels": selector}, **limits},
    }


def performer_budget(name: str, namespace: str, spec: PerformerSpec) -> Wire | None:
    """The disruption budget of a performer."""
    return budget_for(_metadata(name, namespace), {PERFORMER: name}, spec.disruption_budget, spec.replicas)


def network_policy_for(name: str, namespace: str, spec: PerformerSpec) -> Wire | None:
    """Allow traffic from executors only (the referenced one, or all of the namespace), and to the gRPC port only."""
    if spec.network_policy != "ExecutorOnly":
        return None
    executors = {APP: EXECUTOR_APP} | ({NAME: spec.executor_ref} if spec.executor_ref else {})
    rule = {
        "from": [{"podSelector": {"matchLabels": executors}}],
        "ports": [{"protocol": "TCP", "port": port_of(spec)}],
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(name, namespace),
        "spec": {
            "podSelector": {"matchLabels": {PERFORMER: name}},
            "policyTypes": ["Ingress"],
            "ingress": [rule],
        },
    }
