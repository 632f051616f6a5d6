"""What a daemon works with: the present state whenever it asks, and writes that pass the guard.

    async def follow(ctx: DaemonContext, site: Site) -> None:
        while True:
            answer = await probe(site.spec.url)
            with ctx.snapshot() as now:                    # a Context on the state of this moment
                await now.status(site, latency=answer.seconds)
            await ctx.sleep(10)

A reconcile has one snapshot from its beginning to its end. A daemon lives as long as its object, so it takes a new one
when it needs one and closes it soon: an open snapshot keeps old objects in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import structlog.typing

    from steersman.clock import Clock
    from steersman.kube.client.client import Client
    from steersman.runtime.cluster import Cluster
    from steersman.runtime.reconcile.context import Context

__all__ = ["DaemonContext"]


class DaemonContext:
    """See the module's docstring. It is valid until the daemon is cancelled."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        key: Any,
        clock: Clock,
        log: structlog.typing.FilteringBoundLogger,
        memory: dict[str, Any],
        snapshot: Callable[[], AbstractContextManager[Context]],
    ) -> None:
        self.key = key
        self.clock = clock
        self.log = log
        self.memory = memory  # shared with the reconciles and timers of the object
        self.client: Client = cluster.client_for(key)  # dry run, leadership and sharding hold for it too
        self.snapshot = snapshot  # as a context manager: a `Context` on what the caches know now
        self._cluster = cluster

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be changed."""
        return self._cluster.dry_run

    def effect(self, name: str, target: str = "") -> bool:
        """As `Context.effect`: whether to have an effect outside Kubernetes now."""
        return self._cluster.guard.bound_to(self.key).effect(name, target)

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`, by the clock of the manager."""
        await self.clock.sleep(seconds)
