"""The controllers, as tables: what is watched, which change matters, whose key it touches."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from steersman.kube.resources import ObjectRef
from steersman.operators import Operator
from steersman.operators.toolset.keeper import Keeper
from steersman.operators.toolset.metrics import ToolsetMetrics
from steersman.operators.toolset.objects import ServiceLook, SliceLook, ToolsetConfig, service_look, slice_look
from steersman.operators.toolset.probe import Prober
from steersman.operators.toolset.probing import CONCURRENCY, Asker
from steersman.operators.toolset.rights import rules
from steersman.operators.toolset.tables import tables
from steersman.operators.toolset.types import ApiConfig, ToolsetSection
from steersman.runtime.controller import Controller
from steersman.runtime.parts import Parts, Surroundings, Task
from steersman.runtime.predicates import Predicate, annotation, generation, labels, spec
from steersman.runtime.queue import Debounce

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import CollectorRegistry

    from steersman.runtime.cluster import Cluster

__all__ = ["OPERATOR", "controllers", "make_parts"]

SETTLE: Final = Debounce(quiet_seconds=0.5, limit_seconds=3.0)


def _turned(old: SliceLook | None, new: SliceLook | None) -> bool:
    """Whether a slice got its first ready endpoint, or lost its last."""
    return old is None or new is None or (old.ready > 0) != (new.ready > 0)


def _service_of(piece: SliceLook) -> Iterable[str]:
    return (f"{piece.namespace}/{piece.service}",)


def controllers(keeper: Keeper, asker: Asker) -> list[Controller]:
    """One keeps ConfigMaps, one asks services."""
    scope: dict[str, Any] = {"namespaces": keeper.file.namespaces}
    watched = (
        Controller(None, keeper.reconcile, "toolset")
        .watches(
            ServiceLook,
            to=keeper.everything,
            when=labels | annotation() | spec("ports", "type", "selector", "externalName", "clusterIP"),
            transform=service_look,
            **scope,
        )
        .watches(SliceLook, to=keeper.users_of, when=Predicate("ready", _turned), transform=slice_look, **scope)
        .index(SliceLook, "service", _service_of)
        .hears(keeper.changed)
        .configured(concurrency=2, debounce=SETTLE)
    )
    if keeper.crd:
        inside = keeper.file.namespaces
        where = None if inside is None else inside | {keeper.file.namespace}  # rights of a Role end there
        watched = watched.watches(ToolsetConfig, to=keeper.claimed, when=generation, namespaces=where)
    asking = Controller(None, asker.reconcile, "toolset-probe").hears(keeper.probes).configured(concurrency=CONCURRENCY)
    return [watched, asking]


def make_parts(
    section: ToolsetSection | None = None,
    around: Surroundings = Surroundings(),  # noqa: B008  # frozen
    *,
    registry: CollectorRegistry | None = None,
    prober: Prober | None = None,
) -> Parts:
    """The operator that the section `toolset:` asks for."""
    section = section or ToolsetSection()
    settings = section.settings()
    served = around.served is not None and ToolsetConfig.KIND in around.served
    keeper = Keeper(settings, ToolsetMetrics(registry), crd=served)
    asker = Asker(keeper, prober or Prober())

    async def first_look(_cluster: Cluster) -> None:
        if settings.name:
            keeper.changed.send(ObjectRef(settings.name, settings.namespace))
        await asyncio.Event().wait()

    return Parts(
        controllers=controllers(keeper, asker),
        tasks=[Task(name="first look", run=first_look, leader_only=False)],
        tables=lambda _cluster: tables(keeper.views.values()),
        routes=(lambda cluster: _routes(keeper, cluster, section.api)) if section.api.enabled else None,
    )


def _routes(keeper: Keeper, cluster: Cluster, config: ApiConfig) -> list[Any]:
    from steersman.operators.toolset.api import routes  # an HTTP server is a lot to load for those who need none

    return list(routes(keeper, cluster, config))


OPERATOR: Final = Operator(
    name="toolset",
    summary="keeps the toolset ConfigMap of a troubleshooting agent true to the observability services there are",
    config=ToolsetSection,
    check=ToolsetSection.settings,
    parts=make_parts,
    rules=rules,
    kinds=(ToolsetConfig,),
)
