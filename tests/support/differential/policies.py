"""Strategies for the small kinds around workloads: accounts, budgets, autoscalers, ingresses, roles and leases."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["autoscaler_spec", "budget_spec", "completed", "ingress_spec", "lease_spec", "rules", "service_account"]

_values = st.sampled_from(["1", "2"])
_amounts = st.sampled_from([1, 2, "50%"])
_selectors = st.sampled_from(
    [{}, {"matchLabels": {"app": "web"}}, {"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
)


def optional(**fields: SearchStrategy[Any]) -> SearchStrategy[dict[str, Any]]:
    """A dict with any subset of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def service_account() -> SearchStrategy[dict[str, Any]]:
    """Some of a ServiceAccount."""
    names = st.lists(st.sampled_from([{"name": "x"}, {"name": "y"}]), max_size=2, unique_by=lambda item: item["name"])
    return optional(imagePullSecrets=names, secrets=names, automountServiceAccountToken=st.booleans())


def budget_spec() -> SearchStrategy[dict[str, Any]]:
    """Some of a PodDisruptionBudget's spec; both amounts together are refused."""
    return optional(
        minAvailable=_amounts,
        maxUnavailable=_amounts,
        selector=_selectors,
        unhealthyPodEvictionPolicy=st.sampled_from(["IfHealthyBudget", "AlwaysAllow"]),
    )


def autoscaler_spec() -> SearchStrategy[dict[str, Any]]:
    """Some of a HorizontalPodAutoscaler's spec."""
    target = {"type": "Utilization", "averageUtilization": 60}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    return optional(
        minReplicas=st.integers(1, 2),
        maxReplicas=st.integers(2, 4),
        metrics=st.lists(st.just(metric), max_size=1),
        scaleTargetRef=st.just({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}),
    )


def ingress_spec() -> SearchStrategy[dict[str, Any]]:
    """Some of an Ingress' spec."""
    backend = st.sampled_from(
        [{"service": {"name": "web", "port": {"number": 80}}}, {"service": {"name": "web", "port": {"name": "http"}}}]
    )
    path = st.fixed_dictionaries(
        {"path": st.sampled_from(["/", "/a"]), "pathType": st.just("Prefix"), "backend": backend}
    )
    rule = st.fixed_dictionaries(
        {"http": st.fixed_dictionaries({"paths": st.lists(path, min_size=1, max_size=2)})},
        optional={"host": st.sampled_from(["a.example", "*.example"])},
    )
    return optional(
        ingressClassName=st.just("nginx"),
        defaultBackend=backend,
        rules=st.lists(rule, min_size=1, max_size=2),
        tls=st.lists(st.just({"hosts": ["a.example"], "secretName": "cert"}), max_size=1),
    )


def rules() -> SearchStrategy[list[dict[str, Any]]]:
    """The rules of a Role."""
    names = st.lists(st.sampled_from(["pods", "secrets"]), max_size=2)
    rule = st.fixed_dictionaries(
        {"apiGroups": st.just([""]), "resources": names, "verbs": st.sampled_from([["get"], ["*"], []])}
    )
    return st.lists(rule, max_size=2)


def lease_spec() -> SearchStrategy[dict[str, Any]]:
    """Some of a Lease's spec."""
    return optional(
        holderIdentity=_values,
        leaseDurationSeconds=st.sampled_from([0, 15]),
        leaseTransitions=st.sampled_from([0, 3]),
        renewTime=st.sampled_from(["2026-01-02T03:04:05.123456Z", "2026-01-02T03:04:05Z"]),
    )


def completed(kind: str, content: dict[str, Any]) -> dict[str, Any]:
    """The content with everything the server requires, without touching what is there."""
    content = copy.deepcopy(content)
    match kind:
        case "autoscaler":
            spec = content.setdefault("spec", {})
            spec.setdefault("maxReplicas", 3)
            spec.setdefault("scaleTargetRef", {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"})
        case "budget":
            spec = content.setdefault("spec", {})
            if "minAvailable" in spec:
                spec.pop("maxUnavailable", None)
        case "ingress":
            spec = content.setdefault("spec", {})
            if not spec.get("rules"):
                spec.setdefault("defaultBackend", {"service": {"name": "web", "port": {"number": 80}}})
        case _:
            pass
    return content
