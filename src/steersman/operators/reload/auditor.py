"""The auditor: counts stale pods from time to time, when the configuration asks for it.

It reads what the command `steersman audit` reads, so both say the same. Nothing is kept but the numbers, and a count
that fails leaves the last one, with the time of the last success beside it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import structlog
from prometheus_client import REGISTRY, CollectorRegistry, Gauge

from steersman.kube.errors import KubeError
from steersman.kube.types.pods import Pod
from steersman.operators.reload.staleness import stale_pods
from steersman.operators.reload.survey import Survey, read_cluster

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.kube.client import Client
    from steersman.kube.resources import Kind
    from steersman.operators.reload.types import Options
    from steersman.runtime.cluster import Cluster

__all__ = ["ALERT", "Auditor"]

ALERT = "sum by (namespace) (steersman_reload_stale_pods) > 0"
log = structlog.get_logger(__name__)


class Auditor:
    """Counts stale pods."""

    def __init__(
        self, options: Options, served: Iterable[Kind] | None, registry: CollectorRegistry | None = None
    ) -> None:
        registry = REGISTRY if registry is None else registry
        self._options = options
        self._served = tuple(served or ())
        self._known: set[str] = set()  # namespaces that have a series
        self.stale = Gauge(
            "steersman_reload_stale_pods",
            "Pods that started before the last change of a key they use.",
            ["namespace"],
            registry=registry,
        )
        self.audited = Gauge(
            "steersman_reload_audit_timestamp_seconds", "When stale pods were last counted.", registry=registry
        )

    async def run(self, cluster: Cluster) -> None:
        """Count for ever, every `reload.auditPeriod`."""
        period = self._options.features.audit
        while period is not None:
            try:
                await self.count(cluster.client)
            except KubeError as error:
                log.warning("stale pods not counted", error=str(error))
            await asyncio.sleep(period.total_seconds())

    async def count(self, client: Client) -> dict[str, int]:
        """Count once: stale pods by namespace; a namespace that had some keeps its series, at zero."""
        import time

        spaces = sorted(self._options.namespaces) if self._options.namespaces is not None else None
        survey = Survey(self._options, served=self._served)
        await read_cluster(survey, client, namespaces=spaces)
        pods = [pod for space in spaces or [""] for pod in (await client.list(Pod.KIND, namespace=space or None)).items]
        now = time.time()
        found = Counter(one.namespace for one in stale_pods(survey, pods, now))
        self._known |= found.keys()
        for namespace in self._known:
            self.stale.labels(namespace).set(found[namespace])
        self.audited.set(now)
        return dict(found)
