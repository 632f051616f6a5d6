"""The second controller: asks one candidate after the other, each when it is due, and tells the keeper what changed.

A service that is well is asked again after the interval, with some jitter; one that never was is asked less and less
often, so that a guess costs its owner nothing. Nothing is asked of a service without ready endpoints.
"""

from __future__ import annotations

import random as randomness
from typing import TYPE_CHECKING, Final

from steersman.operators.toolset.keeper import Keeper, ProbeKey, question_of
from steersman.runtime.result import Result, done, requeue

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.operators.toolset.health import Observed
    from steersman.operators.toolset.probe import Prober
    from steersman.operators.toolset.types import Settings
    from steersman.runtime.context import Context

__all__ = ["CONCURRENCY", "Asker", "next_probe"]

CONCURRENCY: Final = 10
JITTER: Final = 0.1


class Asker:
    """Probes candidates."""

    def __init__(self, keeper: Keeper, prober: Prober, *, random: Callable[[], float] = randomness.random) -> None:
        self._keeper = keeper
        self._prober = prober
        self._random = random

    async def reconcile(self, ctx: Context, key: ProbeKey) -> Result:
        """Ask one service, if there is anything to ask."""
        keeper = self._keeper
        settings = keeper.targets.settings.get(key.target)
        candidate = keeper.candidates.get(key.target, {}).get(key.service)
        if settings is None or candidate is None:
            keeper.book.forget(key)
            return done
        before = keeper.book.get(key)
        if not settings.health.enabled or candidate.health_skipped or (before and before.empty_since is not None):
            return done
        result = await self._prober.probe(
            candidate, timeout=settings.health.timeout, attempts=settings.health.attempts, strict=settings.strict
        )
        if keeper.candidates.get(key.target, {}).get(key.service) != candidate:
            return requeue(after=0)  # it became another one while we asked
        keeper.metrics.checks.labels(candidate.type, result.outcome.value).inc()
        keeper.metrics.check_duration.labels(candidate.type).observe(result.seconds)
        page = keeper.book.probed(key, question_of(candidate), result, now=ctx.clock.time())
        if not result.reachable:
            ctx.log.warning(
                "probe failed",
                component="health_check",
                service=str(key.service),
                service_type=candidate.type,
                outcome=result.outcome.value,
                message=result.message,
            )
        if _matters(before, page, settings):
            keeper.changed.send(key.target)
        return requeue(after=next_probe(page, settings, self._random()))


def _matters(before: Observed | None, page: Observed, settings: Settings) -> bool:
    """Whether somebody should look again: another answer, or the failure that removes a service."""
    if before is None or before.result is None or page.result is None:
        return True
    return before.result.outcome is not page.result.outcome or page.failures == settings.health.failures


def next_probe(page: Observed, settings: Settings, chance: float) -> float:
    """Seconds until the next probe; `chance` from 0 to 1 spreads them."""
    wait = settings.health.interval
    if not page.included and page.failures > settings.health.failures:
        wait = min(wait * 2 ** min(page.failures - settings.health.failures, 10), settings.discovery_interval * 4)
    return wait * (1 - JITTER + 2 * JITTER * chance)
