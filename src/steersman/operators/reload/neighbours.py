"""In the company of other controllers: what runs beside ours so that two never act, and one can be compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from steersman.operators.reload.rivals import LEASES, RivalWatch
from steersman.operators.reload.shadow import Shadow
from steersman.runtime.parts import Parts, Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web
    from prometheus_client import CollectorRegistry

    from steersman.operators.reload.oversight import Oversight
    from steersman.operators.reload.types import ReloadConfig
    from steersman.runtime.cluster import Cluster
    from steersman.runtime.parts import Surroundings

__all__ = ["REPORT", "beside_others"]

REPORT = "/api/reload/shadow"


def beside_others(
    config: ReloadConfig,
    around: Surroundings,
    oversight: Oversight,
    *,
    registry: CollectorRegistry | None = None,
) -> Parts:
    """Guard against a rival that leads or, in the shadow of one, compare with it."""
    if oversight.pretends:
        shadow = Shadow(registry=registry)
        oversight.listeners.append(shadow)

        async def sweep(_cluster: Cluster) -> None:
            await shadow.run()

        return Parts(
            controllers=(),
            tasks=(Task(name="shadow", run=sweep, leader_only=False),),
            routes=lambda _cluster: _routes(shadow),
        )
    if config.rivals == ():
        return Parts(controllers=())
    within = (*(around.namespaces or ()), *config.namespaces)
    rivals = RivalWatch(
        LEASES if config.rivals is None else config.rivals,
        own=around.lease,
        within=within,
        asks=config.pods and not within,
        home=(around.own_namespace,),
        trusted=config.rival_namespaces,
        registry=registry,
    )
    oversight.guard(rivals.problem, after=rivals.looked)

    async def watch(cluster: Cluster) -> None:
        await rivals.run(cluster.client)

    return Parts(
        controllers=(),
        tasks=(Task(name="rivals", run=watch, leader_only=False),),
        checks={"rivals": rivals.problem},
    )


def _routes(shadow: Shadow) -> Sequence[web.RouteDef]:
    from aiohttp import web  # an HTTP server is a lot to load for those who need none

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(shadow.report()), content_type="application/json")

    return [web.get(REPORT, answer)]
