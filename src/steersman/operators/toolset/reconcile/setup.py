"""The operator assembled: the controllers as tables (what is watched, which change matters, which key it enqueues)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from steersman.kube.api.gvk import NamespacedName
from steersman.operators import Operator
from steersman.operators.toolset.api.config import ApiConfig, ToolsetSection
from steersman.operators.toolset.api.crd import (
    EndpointSliceSummary,
    ServiceSummary,
    ToolsetConfig,
    summarize_service,
    summarize_slice,
)
from steersman.operators.toolset.discovery.probe import Prober
from steersman.operators.toolset.discovery.probe_controller import CONCURRENCY, ProbeController
from steersman.operators.toolset.reconcile.metrics import ToolsetMetrics
from steersman.operators.toolset.reconcile.rbac import rules
from steersman.operators.toolset.reconcile.reconciler import ToolsetReconciler
from steersman.operators.toolset.reconcile.status import tables
from steersman.runtime.controller.builder import Controller
from steersman.runtime.controller.predicates import Predicate, annotation, generation, labels, spec
from steersman.runtime.manager.operator_bundle import OperatorBundle, RuntimeEnvironment, Task
from steersman.runtime.workqueue.queue import Debounce

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import CollectorRegistry

    from steersman.runtime.cluster import Cluster

DEBOUNCE: Final = Debounce(quiet_seconds=0.5, limit_seconds=3.0)


def _readiness_changed(old: EndpointSliceSummary | None, new: EndpointSliceSummary | None) -> bool:
    """Whether a slice got its first ready endpoint, or lost its last."""
    return old is None or new is None or (old.ready > 0) != (new.ready > 0)


def _service_of(endpoints: EndpointSliceSummary) -> Iterable[str]:
    return (f"{endpoints.namespace}/{endpoints.service}",)


def controllers(reconciler: ToolsetReconciler, probing: ProbeController) -> list[Controller]:
    """One reconciles ConfigMaps, one probes Services."""
    scope: dict[str, Any] = {"namespaces": reconciler.settings.namespaces}
    toolset = (
        Controller(None, reconciler.reconcile, "toolset")
        .watches(
            ServiceSummary,
            to=reconciler.all_targets,
            when=labels | annotation() | spec("ports", "type", "selector", "externalName", "clusterIP"),
            transform=summarize_service,
            **scope,
        )
        .watches(
            EndpointSliceSummary,
            to=reconciler.targets_of_slice,
            when=Predicate("ready", _readiness_changed),
            transform=summarize_slice,
            **scope,
        )
        .index(EndpointSliceSummary, "service", _service_of)
        .watches_channel(reconciler.changed)
        .with_options(concurrency=2, debounce=DEBOUNCE, shared_objects=True)
    )
    if reconciler.has_crd:
        watched = reconciler.settings.namespaces
        where = None if watched is None else watched | {reconciler.settings.namespace}  # a Role covers no others
        toolset = toolset.watches(ToolsetConfig, to=reconciler.targets_of_config, when=generation, namespaces=where)
    probes = (
        Controller(None, probing.reconcile, "toolset-probe")
        .watches_channel(reconciler.probes)
        .with_options(concurrency=CONCURRENCY)
    )
    return [toolset, probes]


def make_bundle(
    section: ToolsetSection | None = None,
    around: RuntimeEnvironment = RuntimeEnvironment(),  # noqa: B008  # frozen
    *,
    registry: CollectorRegistry | None = None,
    prober: Prober | None = None,
) -> OperatorBundle:
    """The operator as the section `toolset:` configures it."""
    section = section or ToolsetSection()
    settings, metrics = section.settings(), ToolsetMetrics(registry)
    served = around.served is not None and ToolsetConfig.KIND in around.served
    reconciler = ToolsetReconciler(settings, metrics, has_crd=served)
    probing = ProbeController(reconciler.health, prober or Prober(), metrics, enqueue=reconciler.changed.send)

    async def enqueue_first(_cluster: Cluster) -> None:
        if settings.name:
            reconciler.changed.send(NamespacedName(settings.name, settings.namespace))
        await asyncio.Event().wait()

    return OperatorBundle(
        controllers=controllers(reconciler, probing),
        tasks=[Task(name="first reconcile", run=enqueue_first, leader_only=False)],
        tables=lambda _cluster: tables(reconciler.views()),
        routes=(lambda cluster: _routes(reconciler, cluster, section.api)) if section.api.enabled else None,
    )


def _routes(reconciler: ToolsetReconciler, cluster: Cluster, config: ApiConfig) -> list[Any]:
    from steersman.operators.toolset.http.handlers import routes  # loads an HTTP server

    return list(routes(reconciler, cluster, config))


OPERATOR: Final = Operator(
    name="toolset",
    summary="discovers observability services and writes the toolset ConfigMap of a troubleshooting agent",
    config=ToolsetSection,
    check=ToolsetSection.settings,
    parts=make_bundle,
    rules=rules,
    kinds=(ToolsetConfig,),
)
