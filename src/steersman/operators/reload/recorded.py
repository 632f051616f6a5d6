"""A recorded restart as the change that led to it, for replays. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.errors import FormatError
from steersman.operators.reload.hooks import HookChange, HookSource
from steersman.operators.reload.sourcetimes import seconds
from steersman.operators.reload.types import SourceRef

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.operators.reload.answers import HistoryEntry

__all__ = ["recorded_change"]


def recorded_change(entry: HistoryEntry, before: Iterable[HistoryEntry] = ()) -> HookChange:
    """The change, as far as the record tells; `before` are the restarts that came earlier."""
    sources = []
    for word in entry.cause.split():
        name, _, keys = word.partition("#")
        try:
            source = SourceRef.parse(name, entry.workload.namespace)
        except FormatError:
            continue  # "and 3 more", or a person
        used = tuple(key for key in keys.split(",") if key)
        sources.append(HookSource(source.kind.value, source.namespace, source.name, used))
    return HookChange(
        workload=entry.workload,
        sources=tuple(sources),
        at=seconds(entry.at),
        restarts=tuple(seconds(one.at) for one in before if one.workload == entry.workload),
    )
