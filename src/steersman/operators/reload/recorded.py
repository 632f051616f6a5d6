"""A recorded restart as the change that led to it, for replays. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.operators.reload.hooks import HookChange, HookSource
from steersman.operators.reload.sourcetimes import seconds
from steersman.operators.reload.told import changes_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.operators.reload.answers import HistoryEntry

__all__ = ["recorded_change"]


def recorded_change(entry: HistoryEntry, before: Iterable[HistoryEntry] = ()) -> HookChange:
    """The change, as far as the record tells; `before` are the restarts that came earlier."""
    sources = [
        HookSource(one.source.kind.value, one.source.namespace, one.source.name, one.keys)
        for one in changes_in(entry.cause, entry.workload.namespace)
    ]
    return HookChange(
        workload=entry.workload,
        sources=tuple(sources),
        at=seconds(entry.at),
        restarts=tuple(seconds(one.at) for one in before if one.workload == entry.workload),
    )
