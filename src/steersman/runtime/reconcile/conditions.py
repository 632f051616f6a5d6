"""Conditions: one aspect of an object's state each, in its status.

The rule that is easy to get wrong: `lastTransitionTime` moves when the *status* of a condition changes, and only then.
A new reason, message or observed generation keeps it. So equal facts give equal conditions, and nothing is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec
from msgspec.structs import replace

from steersman.kube.api.objects import Struct
from steersman.kube.api.times import format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "Condition",
    "find_condition",
    "is_news",
    "merge_condition",
    "new_condition",
    "set_conditions",
    "without_conditions",
]

Status = Literal["True", "False", "Unknown"]


class Condition(Struct, omit_defaults=False):  # written in full: the API requires every field but the generation
    """One aspect of an object's state."""

    LIST_KEYS: ClassVar = ("type",)  # lists of them are maps, in definitions too

    type: str
    """The aspect that the condition is about, such as `Ready`."""
    status: Status
    """`True`, `False`, or `Unknown`."""
    reason: str = ""
    """Why the condition has this status, in one word for programs."""
    message: str = ""
    """Why the condition has this status, in a sentence for people."""
    last_transition_time: str = ""
    """When `status` last changed (RFC 3339, UTC)."""
    observed_generation: int = 0
    """`metadata.generation` of the spec that the condition is about."""


def new_condition(
    kind: str,
    status: bool | Status | None,
    reason: str,
    message: str = "",
    *,
    generation: int = 0,
) -> Condition:
    """A condition to be merged with `set_conditions`; None is Unknown.

    >>> new_condition("Ready", True, "AllReplicasReady").status
    'True'
    """
    text: Status = ("True" if status else "False") if isinstance(status, bool) else status or "Unknown"
    return Condition(type=kind, status=text, reason=reason, message=message, observed_generation=generation)


def find_condition(conditions: Iterable[Condition] | None, kind: str) -> Condition | None:
    """The condition of that type, if there is one."""
    return next((known for known in conditions or () if known.type == kind), None)


def is_news(before: Condition | None, after: Condition) -> bool:
    """Whether a condition says something that it did not say before, and an Event should say it too.

    The stored condition is the memory of what was reported: it survives restarts, unlike `ReportedIssues`.
    """
    return before is None or (before.status, before.reason, before.message) != (
        after.status,
        after.reason,
        after.message,
    )


def set_conditions(known: Sequence[Condition] | None, *new: Condition, now: float) -> list[Condition]:
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


def merge_condition(known: Sequence[dict[str, Any]], new: Condition, *, now: float) -> list[dict[str, Any]]:
    """As `set_conditions`, on conditions as they are on the wire: fields that `Condition` does not name are kept."""
    before = next((entry for entry in known if entry.get("type") == new.type), {})
    since = before.get("lastTransitionTime") if before.get("status") == new.status else None
    after = {**before, **msgspec.to_builtins(replace(new, last_transition_time=since or format_time(now)))}
    return [after if entry is before else entry for entry in known] if before else [*known, after]


def without_conditions(known: Sequence[Condition] | None, *kinds: str) -> list[Condition]:
    """`known` without the conditions of those types."""
    return [condition for condition in known or () if condition.type not in kinds]
