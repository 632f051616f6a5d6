"""Shadow: what this operator would have done beside what another one did. Nothing is written.

    agreed        both restarted the workload, within `PATIENCE_SECONDS` of each other
    only ours     we would have restarted it, and the other did not
    only theirs   the other restarted it, and we would not have

That the other acted is seen by its marks on the template, so its dialect must be spoken here.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog
from prometheus_client import REGISTRY, Counter

from steersman.clock import SYSTEM_CLOCK
from steersman.kube.times import format_time
from steersman.operators.reload.apply import describe
from steersman.operators.reload.plan import Action
from steersman.operators.reload.types import RESTARTED_AT, RESTARTED_FOR

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from steersman.clock import Clock
    from steersman.kube.errors import KubeError
    from steersman.kube.resources import ObjectRef
    from steersman.operators.reload.look import Look

__all__ = ["OUTCOMES", "Comparison", "Report", "Shadow"]

PATIENCE_SECONDS: Final = 60.0
KEPT: Final = 1_000  # differences that are remembered
OUTCOMES: Final = ("agreed", "only ours", "only theirs")

log = structlog.get_logger(__name__)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One restart that somebody made or would have made."""

    workload: str
    namespace: str
    sources: str
    at: str
    outcome: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything compared so far."""

    counts: dict[str, int]
    differences: tuple[Comparison, ...] = ()
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
        self._marks: dict[tuple[str, ObjectRef], object] = {}
        self._ours: dict[tuple[str, ObjectRef], _Restart] = {}
        self._theirs: dict[tuple[str, ObjectRef], _Restart] = {}
        self._counts = dict.fromkeys(OUTCOMES, 0)
        self._differences: deque[Comparison] = deque(maxlen=KEPT)
        where = REGISTRY if registry is None else registry
        self._metric = Counter("steersman_reload_shadow", "Restarts compared, by outcome.", ["outcome"], registry=where)
        for outcome in OUTCOMES:
            self._metric.labels(outcome)

    def looked(self, look: Look, *, written: bool) -> None:  # noqa: ARG002  # nothing ever is
        """Note what we would do, and what somebody did since the last look."""
        self.sweep()
        key = (type(look.workload).KIND.kind, look.workload.ref)
        marks = _marks(look)
        if key in self._marks and self._marks[key] != marks:
            self._match(key, self._theirs, self._ours, self._restart(look))
        self._marks[key] = marks
        if look.plan.action is Action.RESTART:
            self._match(key, self._ours, self._theirs, self._restart(look))

    def failed(self, look: Look, error: KubeError) -> None:
        """Nothing is written, so nothing fails."""

    def sweep(self) -> None:
        """Give up on counterparts that did not come in time."""
        now = self._clock.monotonic()
        for waiting, outcome in ((self._ours, "only ours"), (self._theirs, "only theirs")):
            for key in [key for key, one in waiting.items() if now - one.tick >= self._patience]:
                self._settle(waiting.pop(key), outcome)

    def report(self) -> Report:
        """Everything so far."""
        self.sweep()
        waiting = len(self._ours) + len(self._theirs)
        return Report(counts=dict(self._counts), differences=tuple(self._differences), waiting=waiting)

    async def run(self) -> None:
        """Sweep from time to time, so that metric and log do not wait for the next change."""
        while True:
            await self._clock.sleep(self._patience / 4)
            self.sweep()

    def _match(
        self,
        key: tuple[str, ObjectRef],
        mine: dict[tuple[str, ObjectRef], _Restart],
        others: dict[tuple[str, ObjectRef], _Restart],
        restart: _Restart,
    ) -> None:
        if others.pop(key, None) is not None:
            self._settle(restart, "agreed")
        else:
            mine.setdefault(key, restart)

    def _restart(self, look: Look) -> _Restart:
        workload = look.workload
        return _Restart(
            title=workload.title,
            namespace=workload.namespace,
            sources=describe(look.plan.changes, workload.namespace),
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
            Comparison(
                workload=restart.title,
                namespace=restart.namespace,
                sources=restart.sources,
                at=format_time(restart.wall),
                outcome=outcome,
            )
        )


def _marks(look: Look) -> Any:
    facts = look.workload.facts
    theirs = {name: value for name, value in facts.template_annotations.items() if not _ours(name)}
    return theirs, facts.variables


def _ours(name: str) -> bool:
    return name in (RESTARTED_AT, RESTARTED_FOR)
