"""Conditions: what an object says about itself, one line per aspect.

The rule that everybody gets wrong: `lastTransitionTime` moves when the *status* of a condition changes, and only then.
A new reason, message or observed generation keeps it. So equal facts give equal conditions, and nothing is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from msgspec.structs import replace

from steersman.kube.objects import Struct
from steersman.kube.times import format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Condition", "condition", "find_condition", "with_conditions", "without_conditions"]

Status = Literal["True", "False", "Unknown"]


class Condition(Struct, omit_defaults=False):
    """One aspect of an object's state. Written in full: the API requires every field but the generation."""

    LIST_KEYS: ClassVar = ("type",)  # lists of them are maps, in definitions too

    type: str
    status: Status
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


def condition(
    kind: str,
    status: bool | Status | None,
    reason: str,
    message: str = "",
    *,
    generation: int = 0,
) -> Condition:
    """A condition to be merged with `with_conditions`; None is Unknown.

    >>> condition("Ready", True, "AllReplicasReady").status
    'True'
    """
    text: Status = ("True" if status else "False") if isinstance(status, bool) else status or "Unknown"
    return Condition(type=kind, status=text, reason=reason, message=message, observed_generation=generation)


def find_condition(conditions: Iterable[Condition] | None, kind: str) -> Condition | None:
    """The condition of that type, if there is one."""
    return next((known for known in conditions or () if known.type == kind), None)


def with_conditions(known: Sequence[Condition] | None, *new: Condition, now: float) -> list[Condition]:
    """`known` with `new` merged in by type: order is kept, and transition times move only with the status.

    `now` is wall-clock seconds. A condition of `new` that carries its own transition time keeps it.
    """
    merged = {condition.type: condition for condition in known or ()}
    for fresh in new:
        before = merged.get(fresh.type)
        unchanged = before is not None and before.status == fresh.status and before.last_transition_time
        since = fresh.last_transition_time or (
            before.last_transition_time if before and unchanged else format_time(now)
        )
        merged[fresh.type] = replace(fresh, last_transition_time=since)
    return list(merged.values())


def without_conditions(known: Sequence[Condition] | None, *kinds: str) -> list[Condition]:
    """`known` without the conditions of those types."""
    return [condition for condition in known or () if condition.type not in kinds]
