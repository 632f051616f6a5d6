"""A plan: what to create, change and delete, what to say about it, and when to look again.

Plans are made by pure functions from what the cluster is, and carried out by `reconcilers.py`. A plan for a world that
is as it should be is empty: its status equals the one that is there, so nothing is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from steersman.kube.api.objects import Resource
from steersman.kube.api.times import format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.kube.api.types.apps import WorkloadCondition
    from steersman.kube.api.types.batch import JobCondition
    from steersman.kube.api.types.core import NodeCondition
    from steersman.kube.api.types.pods import PodCondition

C = TypeVar("C", bound="WorkloadCondition | PodCondition | JobCondition | NodeCondition")


class Change(msgspec.Struct, frozen=True):
    """A merge patch of one object."""

    obj: Resource
    patch: dict[str, Any]
    subresource: str | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """In this order: create, change, delete, report; then look `again` after so many seconds, if not None."""

    create: tuple[Any, ...] = ()  # Resources of any kind
    change: tuple[Change, ...] = ()
    delete: tuple[Resource, ...] = ()
    status: Any = None  # a whole status struct; None leaves it alone
    again: float | None = None


def earliest(*seconds: float | None) -> float | None:
    """The shortest of some waits, those that are None left out; never zero, so that it can be waited for."""
    known = [max(wait, 0.01) for wait in seconds if wait is not None]
    return min(known) if known else None


def with_conditions(known: Sequence[C], new: Iterable[C], *, now: float) -> list[C]:
    """`known` with `new` merged in by type: order is kept, and transition times move only with the status."""
    merged = {condition.type: condition for condition in known}
    for fresh in new:
        before = merged.get(fresh.type)
        same = before is not None and before.status == fresh.status
        since = before.last_transition_time if before is not None and same else format_time(now)
        merged[fresh.type] = replace(fresh, last_transition_time=since)
    return list(merged.values())
