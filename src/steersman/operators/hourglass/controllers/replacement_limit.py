"""How many performers are replaced at once: a limit for the cluster, and one for the performers of an executor.

The status records who is being replaced (phase Upgrading), so a crash loses nothing. What is kept here only bridges the
time between a slot that is granted and the status that shows it, and remembers who waits. A replacement that has not
ended after ten minutes no longer blocks others in the cluster; it still counts for its own executor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from steersman.errors import FormatError
from steersman.kube.api.times import parse_time
from steersman.operators.hourglass.controllers.status import stored_conditions
from steersman.runtime.reconcile.conditions import find_condition
from steersman.text import some_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from steersman.kube.api.gvk import NamespacedName
    from steersman.operators.hourglass.api.types import StoredPerformer

STUCK_AFTER: Final = 600.0


def allowed_unavailable(limit: int | str, total: int) -> int:
    """How many of `total` may be unavailable; a percentage is rounded down, but never to zero.

    >>> allowed_unavailable("25%", 10), allowed_unavailable("10%", 3), allowed_unavailable(2, 10)
    (2, 1, 2)
    """
    if isinstance(limit, int):
        return limit
    return max(1, total * int(limit.removesuffix("%")) // 100)


class ReplacementLimiter:
    """Grants slots for replacements."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._granted: set[NamespacedName] = set()
        self._waiting: dict[NamespacedName, None] = {}

    def acquire(
        self,
        performer: StoredPerformer,
        upgrading: Iterable[StoredPerformer],
        siblings: Sequence[StoredPerformer],
        max_unavailable: int | str | None,
        *,
        surge: bool,
        age: Callable[[float], float],
    ) -> str:
        """Take a slot: empty when it is granted, else why not.

        `upgrading` are those being replaced, `siblings` those of the same executor, `surge`: no pod is removed first.
        """
        key = performer.ref
        busy = {other.ref for other in upgrading if not _is_stuck(other, age)} | self._granted
        busy.discard(key)
        why = ""
        if self._limit is not None and len(busy) >= self._limit:
            why = f"Waiting for {len(busy)} other replacements (maxConcurrentReplacements is {self._limit})"
        elif max_unavailable is not None and not surge and (performer.status or {}).get("ready"):
            allowed = allowed_unavailable(max_unavailable, len(siblings))
            missing = [
                other.name
                for other in siblings
                if other.ref != key and (other.ref in self._granted or not _is_ready(other))
            ]
            if len(missing) >= allowed:
                names = some_of(sorted(missing), 3)
                why = f"Waiting: {len(missing)} performers of its executor are unavailable ({names}), {allowed} may be"
        if why:
            self._waiting[key] = None
            return why
        self._waiting.pop(key, None)
        self._granted.add(key)
        return ""

    def release(self, key: NamespacedName, *, upgrading: bool) -> None:
        """Drop a slot once the status is written: it shows the replacement now, or there is none."""
        self._granted.discard(key)
        if not upgrading:
            self._waiting.pop(key, None)

    def next_waiting(self, _change: Any = None) -> list[NamespacedName]:
        """Those who should ask again, as many as could get a slot."""
        count = len(self._waiting) if self._limit is None else 2 * self._limit
        return list(self._waiting)[:count]


def _is_ready(performer: StoredPerformer) -> bool:
    status = performer.status or {}
    return status.get("ready") is True and status.get("phase") != "Upgrading"


def _is_stuck(performer: StoredPerformer, age: Callable[[float], float]) -> bool:
    progressing = find_condition(stored_conditions(performer.status), "Progressing")
    if progressing is None or not progressing.last_transition_time:
        return False
    try:
        since = parse_time(progressing.last_transition_time).timestamp()
    except FormatError:
        return True  # an invalid time must not block others
    return age(since) > STUCK_AFTER
