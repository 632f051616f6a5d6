"""The state of a workload towards its sources: one word and one colour each, for the page, the map and the terminal.

Invariant: every place that shows a workload takes its state from here, so two of them never disagree. Pure.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from steersman.runtime.manager.operator_bundle import RowState


class RestartState(StrEnum):
    """The state of a workload."""

    CURRENT = "current"  # its pods were started for what its sources say
    PENDING = "pending"  # something changed; the restart waits for its time
    HELD = "held"  # something changed; the restart waits for approval, another workload or a gate
    OPEN = "open"  # restarted too often: the circuit is open
    ROLLING = "rolling"  # restarted, and the rollout is under way
    FAILED = "failed"  # restarted, and the rollout failed
    OFF = "off"  # reload is not enabled for it
    UNKNOWN = "unknown"  # it or its sources cannot be read now: what was last seen may no longer be true

    @property
    def row_state(self) -> RowState:
        """Its colour."""
        return _SHOWN[self][0]

    @property
    def word(self) -> str:
        """Its name for users."""
        return _SHOWN[self][1]

    @property
    def meaning(self) -> str:
        """What it says about a workload."""
        return _SHOWN[self][2]


_SHOWN: Final = {
    RestartState.CURRENT: (RowState.GOOD, "Current", "runs the current configuration"),
    RestartState.PENDING: (RowState.WAITING, "Pending", "restarts soon"),
    RestartState.ROLLING: (RowState.BUSY, "Rolling out", "is being restarted"),
    RestartState.HELD: (RowState.WAITING, "Held back", "waits for approval, another workload or a gate"),
    RestartState.OPEN: (RowState.BAD, "Circuit open", "was restarted too often"),
    RestartState.FAILED: (RowState.BAD, "Failed", "its rollout failed"),
    RestartState.UNKNOWN: (RowState.UNKNOWN, "Unknown", "it or its sources cannot be read now"),
    RestartState.OFF: (RowState.OFF, "Not watched", "reload is not enabled"),
}
TIMED: Final = frozenset({"window", "schedule", "freeze", "budget"})  # gates that open at a time that is known
_BY_GATE: Final = {
    "window": RestartState.PENDING,
    "schedule": RestartState.PENDING,
    "budget": RestartState.OPEN,
}


def state_of_gate(gate: str, due: float | None) -> RestartState:
    """The state of a workload whose restart this gate holds back until `due`; None: until something changes."""
    if gate in TIMED and due is None:
        return RestartState.HELD  # windows that cannot be read never open by themselves
    return _BY_GATE.get(gate, RestartState.HELD)
