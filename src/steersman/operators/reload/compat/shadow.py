"""Shadow mode: what this operator would have done, compared with what another controller did. Nothing is written.

    agreed        both restarted the workload, within `PATIENCE_SECONDS` of each other
    only ours     we would have restarted it, and the other did not
    only theirs   the other restarted it, and we would not have

That the other acted is observed by its annotations on the template, so its dialect must be enabled.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog
from prometheus_client import REGISTRY, Counter

from steersman.clock import SYSTEM_CLOCK
from steersman.kube.api.times import format_time
from steersman.operators.reload.api.annotations import RESTARTED_AT, RESTARTED_FOR
from steersman.operators.reload.planning.diff import describe
from steersman.operators.reload.planning.plan import Action

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from steersman.clock import Clock
    from steersman.kube.api.errors import KubeError
    from steersman.kube.api.gvk import NamespacedName
    from steersman.operators.reload.planning.evaluate import Evaluation

PATIENCE_SECONDS: Final = 60.0
KEPT: Final = 1_000  # differences that are remembered
OUTCOMES: Final = ("agreed", "only ours", "only theirs")

log = structlog.get_logger(__name__)


class ShadowOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One restart that either controller made or would have made."""

    workload: str
    namespace: str
    sources: str
    at: str
    outcome: str


class ShadowReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything compared so far."""

    counts: dict[str, int]
    differences: tuple[ShadowOutcome, ...] = ()
    waiting: int = 0  # restarts whose counterpart may still come


class _Restart(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    namespace: str
    sources: str
    tick: float
    wall: float


class Shadow:
    """Compares; a listener of the controllers."""

    def __init__(
        self,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        clock: Clock = SYSTEM_CLOCK,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._patience = patience_seconds
        self._clock = clock
        self._marks: dict[tuple[str, NamespacedName], object] = {}
        self._ours: dict[tuple[str, NamespacedName], _Restart] = {}
        self._theirs: dict[tuple[str, NamespacedName], _Restart] = {}
        self._counts = dict.fromkeys(OUTCOMES, 0)
        self._differences: deque[ShadowOutcome] = deque(maxlen=KEPT)
        where = REGISTRY if registry is None else registry
        self._metric = Counter("steersman_reload_shadow", "Restarts compared, by outcome.", ["outcome"], registry=where)
        for outcome in OUTCOMES:
            self._metric.labels(outcome)

    def evaluated(self, evaluation: Evaluation, *, written: bool) -> None:  # noqa: ARG002  # nothing ever is
        """Record what this operator would do, and what the other did since the last evaluation."""
        self.sweep()
        key = (type(evaluation.workload).KIND.kind, evaluation.workload.ref)
        marks = _marks(evaluation)
        if key in self._marks and self._marks[key] != marks:
            self._match(key, self._theirs, self._ours, self._restart(evaluation))
        self._marks[key] = marks
        if evaluation.plan.action is Action.RESTART:
            self._match(key, self._ours, self._theirs, self._restart(evaluation))

    def failed(self, evaluation: Evaluation, error: KubeError) -> None:
        """Nothing is written, so nothing fails."""

    def sweep(self) -> None:
        """Give up on counterparts that did not come in time."""
        now = self._clock.monotonic()
        for waiting, outcome in ((self._ours, "only ours"), (self._theirs, "only theirs")):
            for key in [key for key, restart in waiting.items() if now - restart.tick >= self._patience]:
                self._settle(waiting.pop(key), outcome)

    def report(self) -> ShadowReport:
        """Everything so far."""
        self.sweep()
        waiting = len(self._ours) + len(self._theirs)
        return ShadowReport(counts=dict(self._counts), differences=tuple(self._differences), waiting=waiting)

    async def run(self) -> None:
        """Sweep from time to time, so that metric and log do not wait for the next change."""
        while True:
            await self._clock.sleep(self._patience / 4)
            self.sweep()

    def _match(
        self,
        key: tuple[str, NamespacedName],
        mine: dict[tuple[str, NamespacedName], _Restart],
        others: dict[tuple[str, NamespacedName], _Restart],
        restart: _Restart,
    ) -> None:
        if others.pop(key, None) is not None:
            self._settle(restart, "agreed")
        else:
            mine.setdefault(key, restart)

    def _restart(self, evaluation: Evaluation) -> _Restart:
        workload = evaluation.workload
        return _Restart(
            title=workload.title,
            namespace=workload.namespace,
            sources=describe(evaluation.plan.changes, workload.namespace),
            tick=self._clock.monotonic(),
            wall=self._clock.time(),
        )

    def _settle(self, restart: _Restart, outcome: str) -> None:
        self._counts[outcome] += 1
        self._metric.labels(outcome).inc()
        if outcome == "agreed":
            log.info("agreed", workload=restart.title, namespace=restart.namespace)
            return
        log.warning("decisions differ", outcome=outcome, workload=restart.title, sources=restart.sources)
        self._differences.append(
            ShadowOutcome(
                workload=restart.title,
                namespace=restart.namespace,
                sources=restart.sources,
                at=format_time(restart.wall),
                outcome=outcome,
            )
        )


def _marks(evaluation: Evaluation) -> Any:
    facts = evaluation.workload.facts
    theirs = {name: value for name, value in facts.template_annotations.items() if not _ours(name)}
    return theirs, facts.variables


def _ours(name: str) -> bool:
    return name in (RESTARTED_AT, RESTARTED_FOR)
