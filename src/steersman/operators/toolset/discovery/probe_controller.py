"""The second controller: probes each candidate when it is due, and records the result in the health table.

A healthy Service is probed again after the interval, with jitter; one that was never healthy less and less often, so
that a wrong guess costs its owner nothing. A Service without ready endpoints is not probed. When a result may change
what is included, the target's key goes to the queue of the reconciler; nothing else is started here.
"""

from __future__ import annotations

import random as randomness
from typing import TYPE_CHECKING, Final

from steersman.runtime.controller.result import Result, done, requeue

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.kube.api.gvk import NamespacedName
    from steersman.operators.toolset.api.config import TargetSettings
    from steersman.operators.toolset.discovery.health import HealthRecord, HealthTable, ProbeKey
    from steersman.operators.toolset.discovery.probe import Prober
    from steersman.operators.toolset.reconcile.metrics import ToolsetMetrics
    from steersman.runtime.reconcile.context import Context

CONCURRENCY: Final = 10
JITTER: Final = 0.1


class ProbeController:
    """Probes the candidates of a health table."""

    def __init__(
        self,
        table: HealthTable,
        prober: Prober,
        metrics: ToolsetMetrics,
        *,
        enqueue: Callable[[NamespacedName], None],
        random: Callable[[], float] = randomness.random,
    ) -> None:
        """`enqueue` receives the target of a candidate whose health changed."""
        self._table = table
        self._prober = prober
        self._metrics = metrics
        self._enqueue = enqueue
        self._random = random

    async def reconcile(self, ctx: Context, key: ProbeKey) -> Result:
        """Probe one candidate, unless there is nothing to probe."""
        settings = self._table.settings(key.target)
        candidate = self._table.candidates(key.target).get(key.service)
        before = self._table.get(key)
        if settings is None or candidate is None or not settings.health.enabled or candidate.health_skipped:
            return done
        if before is not None and before.empty_since is not None:
            return done
        result = await self._prober.probe(
            candidate, timeout=settings.health.timeout, attempts=settings.health.attempts, strict=settings.strict
        )
        if self._table.candidates(key.target).get(key.service) != candidate:
            return requeue(after=0)  # the candidate changed during the probe
        self._metrics.checks.labels(candidate.type, result.outcome.value).inc()
        self._metrics.check_duration.labels(candidate.type).observe(result.seconds)
        record = self._table.record_probe(key, candidate.probed_urls, result, now=ctx.clock.time())
        if not result.reachable:
            ctx.log.warning(
                "probe failed",
                component="health_check",
                service=str(key.service),
                service_type=candidate.type,
                outcome=result.outcome.value,
                message=result.message,
            )
        if _may_change_inclusion(before, record, settings):
            self._enqueue(key.target)
        return requeue(after=next_probe(record, settings, self._random()))


def _may_change_inclusion(before: HealthRecord | None, record: HealthRecord, settings: TargetSettings) -> bool:
    """Whether the outcome is another one, or the failure that excludes a Service."""
    if before is None or before.result is None or record.result is None:
        return True
    return before.result.outcome is not record.result.outcome or record.failures == settings.health.failures


def next_probe(record: HealthRecord, settings: TargetSettings, chance: float) -> float:
    """Seconds until the next probe; `chance` from 0 to 1 spreads them."""
    wait = settings.health.interval
    if not record.included and record.failures > settings.health.failures:
        wait = min(wait * 2 ** min(record.failures - settings.health.failures, 10), settings.discovery_interval * 4)
    return wait * (1 - JITTER + 2 * JITTER * chance)
