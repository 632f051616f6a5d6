"""Whose turn it is to be replaced: not too many performers at once, and of one executor never too many away.

The status says who is being replaced (phase Upgrading), so a crash forgets nothing. What is kept here only bridges the
time between a turn that is given and the status that shows it, and remembers who waits. A replacement that has not
come to its end for ten minutes no longer holds up others of the cluster; it still counts for its own executor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from steersman.errors import FormatError
from steersman.kube.times import parse_time
from steersman.operators.hourglass.report import stored_conditions
from steersman.runtime.conditions import find_condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.kube.resources import ObjectRef
    from steersman.operators.hourglass.types import StoredPerformer

__all__ = ["Turns", "allowed_away"]

STUCK_AFTER: Final = 600.0


def allowed_away(limit: int | str, total: int) -> int:
    """How many of `total` may be away; a share is rounded down, but never to none.

    >>> allowed_away("25%", 10), allowed_away("10%", 3), allowed_away(2, 10)
    (2, 1, 2)
    """
    if isinstance(limit, int):
        return limit
    return max(1, total * int(limit.removesuffix("%")) // 100)


class Turns:
    """Gives turns."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._given: set[ObjectRef] = set()
        self._waiting: dict[ObjectRef, None] = {}

    def ask(
        self,
        performer: StoredPerformer,
        under_way: Iterable[StoredPerformer],
        siblings: Sequence[StoredPerformer],
        max_away: int | str | None,
        *,
        surge: bool,
        now: float,
    ) -> str:
        """Take a turn: empty when it is given, else why not.

        `under_way` are those being replaced, `siblings` those of the same executor, `surge`: nothing goes away.
        """
        key = performer.ref
        busy = {other.ref for other in under_way if not _stuck(other, now)} | self._given
        busy.discard(key)
        why = ""
        if self._limit is not None and len(busy) >= self._limit:
            why = f"waits for {len(busy)} other replacements (maxConcurrentReplacements is {self._limit})"
        elif max_away is not None and not surge and (performer.status or {}).get("ready"):
            allowed = allowed_away(max_away, len(siblings))
            away = [one.name for one in siblings if one.ref != key and (one.ref in self._given or not _ready(one))]
            if len(away) >= allowed:
                why = f"waits: {len(away)} performers of its executor are away ({_few(away)}), {allowed} may be"
        if why:
            self._waiting[key] = None
            return why
        self._waiting.pop(key, None)
        self._given.add(key)
        return ""

    def settle(self, key: ObjectRef, *, upgrading: bool) -> None:
        """The status of this performer is written: it holds its turn itself now, or needs none any more."""
        self._given.discard(key)
        if not upgrading:
            self._waiting.pop(key, None)

    def waits(self, key: ObjectRef) -> bool:
        """Whether somebody waits for a turn."""
        return key in self._waiting

    def next(self, _change: Any = None) -> list[ObjectRef]:
        """Those who should ask again, as many as could get a turn."""
        count = len(self._waiting) if self._limit is None else 2 * self._limit
        return list(self._waiting)[:count]


def _ready(performer: StoredPerformer) -> bool:
    status = performer.status or {}
    return status.get("ready") is True and status.get("phase") != "Upgrading"


def _stuck(performer: StoredPerformer, now: float) -> bool:
    progressing = find_condition(stored_conditions(performer.status), "Progressing")
    if progressing is None or not progressing.last_transition_time:
        return False
    try:
        since = parse_time(progressing.last_transition_time).timestamp()
    except FormatError:
        return True  # a time that nobody can read holds up nobody
    return now - since > STUCK_AFTER


def _few(names: Sequence[str]) -> str:
    return ", ".join(sorted(names)[:3]) + ("…" if len(names) > 3 else "")
