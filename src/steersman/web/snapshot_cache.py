"""The snapshot that all visitors of the page share, made at a bounded cost however many there are.

A snapshot is made when something may have happened since the last one, and making them takes at most one twentieth of
the time: showing must not slow down reconciling. Between two snapshots every visitor sees the same one. The same holds
for the reports of operators.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import structlog

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import traceback_of
from steersman.runtime.manager.operator_bundle import RowProblem, RowState
from steersman.runtime.manager.operator_report import OperatorReport

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.clock import Clock
    from steersman.runtime.manager.manager import Manager
    from steersman.web.change_authors import ChangeAuthors
    from steersman.web.health import HealthReader
    from steersman.web.model import PageSnapshot, Vitals

SHARE: Final = 20.0  # a snapshot that took a second to make is kept for twenty
SHORTEST: Final = 0.25  # seconds between two snapshots
LONGEST: Final = 5.0  # seconds that a report is kept though nothing happened: some states come of time alone

log = structlog.get_logger(__name__)


class SnapshotCache:
    """What the page and the API read."""

    def __init__(
        self,
        manager: Manager,
        health: HealthReader,
        snapshot: Callable[[], PageSnapshot],
        *,
        authors: ChangeAuthors | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._manager = manager
        self._health = health
        self._make_snapshot = snapshot
        self._clock = clock
        self._authors = authors
        self._snapshot: PageSnapshot | None = None
        self._signature: object = None
        self._until = 0.0
        self._reports: list[OperatorReport] | None = None
        self._reports_signature: object = None
        self._reports_made = self._reports_until = 0.0
        self.revision = 0  # of the snapshot: another number, another snapshot
        self.asks_for_tokens = False  # visitors sign in with a token
        self.health_path = "/health"  # of the view

    def now(self) -> datetime:
        """The time."""
        return datetime.fromtimestamp(self._clock.time(), UTC)

    def snapshot(self) -> PageSnapshot:
        """What the reload operator knows."""
        learned = self._authors.learned if self._authors is not None else 0
        signature, now = (self._health.signature(), learned), self._clock.monotonic()
        if self._snapshot is not None and (signature == self._signature or now < self._until):
            return self._snapshot
        made = self._make_snapshot()
        if self._authors is not None:
            made = self._authors.complete(made)
        took = self._clock.monotonic() - now
        self._until = now + max(SHORTEST, SHARE * took)
        self._signature = signature
        if made != self._snapshot:
            self._snapshot = made
            self.revision += 1
        assert self._snapshot is not None
        return self._snapshot

    def vitals(self) -> Vitals:
        """How the process is."""
        return self._health.read()

    def reports(self) -> list[OperatorReport]:
        """What every operator shows of itself; a failure of one does not hide the others."""
        signature, now = self._health.signature(), self._clock.monotonic()
        if self._reports is not None:
            is_current = signature == self._reports_signature and now < self._reports_made + LONGEST
            if is_current or now < self._reports_until:
                return self._reports
        self._reports = [self._report(name, make) for name, make in self._manager.reports.items()]
        self._reports_signature, self._reports_made = signature, now
        self._reports_until = now + max(SHORTEST, SHARE * (self._clock.monotonic() - now))
        return self._reports

    def _report(self, name: str, make: Callable[[], OperatorReport]) -> OperatorReport:
        try:
            return make()
        except Exception as error:  # noqa: BLE001  an operator's defect must not take the page away
            log.error("the tables of an operator failed", operator=name, traceback=traceback_of(error))  # noqa: TRY400  without locals
            message = f"its tables failed: {type(error).__name__}: {error}"
            problem = RowProblem(objects=[name], message=message, state=RowState.UNKNOWN, word=RowState.UNKNOWN.word)
            return OperatorReport(name=name, state=RowState.UNKNOWN, headline=message, problems=[problem])
