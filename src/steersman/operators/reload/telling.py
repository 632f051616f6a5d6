"""What people are told of, and how often. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from steersman.operators.reload.workloads import Workload

__all__ = ["REASONS", "TROUBLES", "note_on", "refusal_delay"]

REFUSED_SECONDS: Final = (15.0, 900.0)  # at first, and at most

# The gates that people are told of, when they close; the others open by themselves.
REASONS: Final = {
    "missing": "SourceMissing",
    "action": "ActionOff",
    "hook": "RestartHeldByHook",
    "freeze": "RestartFrozen",
    "approval": "RestartNeedsApproval",
    "budget": "RestartBudgetUsed",
    "schedule": "RestartScheduled",
    "halt": "RestartHalted",
}
# What went wrong when it was tried: as new, it counts more than a gate that closed before.
TROUBLES: Final = ("ReloadCallFailed", "EvictionFailed", "EvictionWaits", "RestartRefused", "SourceUnreadable")


def refusal_delay(refusals: int) -> float:
    """Seconds until the next try, after so many refusals.

    >>> [refusal_delay(number) for number in (0, 1, 9, 5000)]
    [15.0, 30.0, 900.0, 900.0]
    """
    first, most = REFUSED_SECONDS
    return min(most, first * 2.0 ** min(refusals, 10))


def note_on(workload: Workload) -> str:
    """What a restart may not reach."""
    owner = workload.controller
    owned = f"{owner.kind.lower()}/{owner.name} controls it and may undo this" if owner is not None else None
    return "".join(f"; {text}" for text in (workload.facts.note, owned) if text)
