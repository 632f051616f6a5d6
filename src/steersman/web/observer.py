"""What there is to see of a manager, at a bounded cost however many people look.

A scene is made when something may have happened since the last one, and never more often than one twentieth of the
time allows: looking must not slow down working. Between two scenes everybody sees the same one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import structlog

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import traceback_of
from steersman.runtime.parts import Row, State, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from steersman.clock import Clock
    from steersman.runtime.manager import Manager
    from steersman.web.model import Scene, Vitals
    from steersman.web.vitals import Vital
    from steersman.web.witness import Witness

__all__ = ["Observer"]

SHARE: Final = 20.0  # a scene that took a second to make is kept for twenty
SHORTEST: Final = 0.25  # seconds between two scenes

log = structlog.get_logger(__name__)


class Observer:
    """Sees a manager."""

    def __init__(
        self,
        manager: Manager,
        vital: Vital,
        scene: Callable[[], Scene],
        *,
        witness: Witness | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._manager = manager
        self._vital = vital
        self._make_scene = scene
        self._clock = clock
        self._witness = witness
        self._scene: Scene | None = None
        self._signature: object = None
        self._until = 0.0
        self.revision = 0  # of the scene: another number, another scene
        self.asks_for_tokens = False  # whoever looks has signed in

    def now(self) -> datetime:
        """The time."""
        return datetime.fromtimestamp(self._clock.time(), UTC)

    def scene(self) -> Scene:
        """What the reload operator knows."""
        learned = self._witness.learned if self._witness is not None else 0
        signature, now = (self._vital.signature(), learned), self._clock.monotonic()
        if self._scene is not None and (signature == self._signature or now < self._until):
            return self._scene
        made = self._make_scene()
        if self._witness is not None:
            made = self._witness.complete(made)
        took = self._clock.monotonic() - now
        self._until = now + max(SHORTEST, SHARE * took)
        self._signature = signature
        if made != self._scene:
            self._scene = made
            self.revision += 1
        assert self._scene is not None
        return self._scene

    def vitals(self) -> Vitals:
        """How the process is."""
        return self._vital.read()

    def tables(self) -> Mapping[str, Sequence[Table]]:
        """What every operator shows of itself; one that fails to does not hide the others."""
        shown: dict[str, Sequence[Table]] = {}
        for name, tables in self._manager.table_makers.items():
            try:
                shown[name] = tables()
            except Exception as error:  # noqa: BLE001  an operator's defect must not take the page away
                log.error("an operator cannot show itself", operator=name, traceback=traceback_of(error))  # noqa: TRY400  without locals
                told = f"{type(error).__name__}: {error}"
                shown[name] = [Table("What went wrong", ["error"], [Row([told], State.BAD)])]
        return shown
