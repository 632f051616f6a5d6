"""Workloads that may be listed and not watched: a changed source has its possible users listed at once.

Rights of other programs, such as those of Reloader's chart, do not include `watch` on workloads. The cache then lists
workloads every 10 to 20 seconds. A workload that is younger than the last list would be restarted that late, so a
change of a source lists the workloads of its namespace first (`Informer.refresh`, which gathers requests). Where a
watch delivers workloads nothing happens here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from steersman.operators.reload.controllers.change_tracker import source_matters
from steersman.operators.reload.sources.digest import Source
from steersman.operators.reload.workloads.workload import Workload

if TYPE_CHECKING:
    from steersman.cache.interfaces import Informer
    from steersman.operators.reload.controllers.change_tracker import PendingChanges
    from steersman.runtime.cluster import Cluster


async def refresh_users(pending: PendingChanges, cluster: Cluster) -> None:
    """Run until cancelled: whenever a source changes, list the workloads of its namespace that are not watched."""
    workloads = _informers(cluster, Workload)
    for informer in workloads:
        await informer.wait_synced()
        tracker = pending.trackers.get(f"reload-{informer.kind.plural}")
        if tracker is not None:
            tracker.live = True
            tracker.listed_before, tracker.listed_at = informer.listed_before, informer.listed_at

    def changed(old: Source | None, new: Source | None, initial: bool) -> None:
        source = old if new is None else new
        if source is not None and not initial and source_matters(old, new):
            for informer in workloads:
                informer.refresh(source.namespace)

    registrations = [informer.add_handler(changed) for informer in _informers(cluster, Source)]
    try:
        await asyncio.Event().wait()
    finally:
        for registration in registrations:
            registration.remove()


def _informers(cluster: Cluster, base: type) -> list[Informer[Any]]:
    return [
        informer
        for informer in cluster.caches
        if isinstance(informer.target, type) and issubclass(informer.target, base)
    ]
